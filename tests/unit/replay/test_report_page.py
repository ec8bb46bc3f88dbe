"""Pages of reports: every number of the report is there, and no script."""

from __future__ import annotations

import re

from alignup.replay.report_page import areas, bars, comparison_page, replay_page
from alignup.replay.scenario import read_steps
from alignup.replay.summary import Counts, NodeReport, Report, summarized, with_kubelet
from pictures import texts_of
from traces import scenario


def report(policy: str) -> Report:
    one = with_kubelet(scenario(0), {"topologyManagerPolicy": policy})
    return Report([summarized(one, read_steps(one))], policy)


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


def widths(plot) -> list[int]:
    return [int(re.search(r"h(\d+)v", path.get("d"))[1]) for path in plot.iter("path")]


def test_bars_are_as_long_as_their_values() -> None:
    plot = bars("pods", [("a", 1, "one"), ("b", 4, "four"), ("c", None, "-")])

    assert widths(plot) == [90, 360, 0]
    assert {"a", "one", "four", "-"} <= set(texts_of(plot))


def test_parts_are_drawn_of_a_whole() -> None:
    assert widths(bars("parts", [("a", 0.25, "25%")], whole=1)) == [90]
    assert widths(bars("nothing", [("a", 0.0, "0")])) == [0]


def test_areas_rise_with_their_parts() -> None:
    plot = areas("held", [("NUMA node 0", [0.0, 1.0, 0.5], "mean 50%"), ("NUMA node 1", [], "-")])
    path = [one.get("d") for one in plot.iter("path") if one.get("d").endswith("z")]
    heights = [float(y) for y in re.findall(r"V([\d.]+)H", path[0])]

    assert len(path) == 1
    assert heights == [30.0, 4.0, 17.0]
