"""Pages of reports: every number of the report is there, and no script."""

from __future__ import annotations

from alignup.replay.report import Counts, NodeReport, Report
from alignup.replay.report_page import comparison_page, replay_page
from alignup.replay.steps import read_steps
from alignup.replay.summary import summarized, with_kubelet
from traces import scenario


def report(policy: str) -> Report:
    one = with_kubelet(scenario(0), {"topologyManagerPolicy": policy})
    return Report([summarized(one, read_steps(one["steps"]))], policy)


def test_configurations_stand_side_by_side() -> None:
    reports = [report("none"), report("restricted")]
    page = comparison_page(reports)

    for one in reports:
        assert f"<td>{one.configuration}</td>" in page
        assert f">{one.total.admitted}</td>" in page
        assert f"{one.utilisation['cpu']:.1%}" in page
        assert f"{one.stranded['example.com/gpu']:.1%}" in page
    assert "<script" not in page


def test_a_report_has_plots_of_every_numa_node() -> None:
    one = report("restricted")
    page = replay_page([], 0, one)

    for use in one.nodes[0].uses:
        assert f"mean {use.mean:.1%}, peak {use.peak:.1%}" in page
    assert "node-0: cpu held over time" in page
    assert "TopologyAffinityError" in page


def test_many_nodes_are_cut_and_said() -> None:
    page = replay_page([], 0, Report([NodeReport(str(number), Counts()) for number in range(30)]))

    assert "the first 20 of 30 nodes" in page
