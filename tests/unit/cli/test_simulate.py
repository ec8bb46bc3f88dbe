"""`alignup simulate`: what comes of a trace, with and without a view of NUMA nodes."""

from __future__ import annotations

import io
import json

import pytest
from click.testing import CliRunner

from alignup.cli import rank
from alignup.cli.program import program
from alignup.cli.terminal import progress
from alignup.cluster import simulation
from alignup.errors import InputError
from inputs.cluster_files import TOPOLOGY, node_line, pod_manifest


@pytest.fixture
def nodes(tmp_path):
    """Return the path of three nodes."""
    path = tmp_path / "nodes.jsonl"
    path.write_text("\n".join(node_line(f"n{index}") for index in range(3)))
    return path


def run(*arguments):
    """Run the program; what is not an exit is an error."""
    result = CliRunner().invoke(program, ["simulate", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_generated_trace_is_played(nodes):
    """JSON is one object; the same seed gives the same."""
    results = [
        run("--nodes", nodes, "--generate", 60, "--seed", 4, "--json").output for _ in range(2)
    ]
    assert results[0] == results[1]
    report = json.loads(results[0])
    assert report["arrivals"] == 60
    assert report["placed"] + report["noRoom"] + report["noAlignment"] + report["refused"] == 60
    assert not report["refused"]
    assert set(report["utilisation"]) == {"cpu", "memory", "example.com/gpu", "example.com/any"}


def test_a_blind_scheduler_is_refused(nodes):
    """What a blind scheduler does not foresee shows as refusals, in words too."""
    result = run("--nodes", nodes, "--generate", 200, "--blind", "--attempts", 2)
    assert result.exit_code == 0
    assert "node totals only" in result.output
    assert "TopologyAffinityError" in result.output
    assert "stranded" in result.output


def test_a_trace_from_a_file(nodes, tmp_path):
    """Pods come and go as the trace says."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        json.dumps({"time": 0, "admit": pod_manifest("a"), "duration": 10})
        + "\n"
        + json.dumps({"time": 5, "remove": "a"})
    )
    report = json.loads(run("--nodes", nodes, "--pods", trace, "--json").output)
    assert (report["arrivals"], report["placed"]) == (1, 1)


def test_rebalancing_is_compared_with_waiting(nodes):
    """JSON has the report of the same trace without it; a table shows both."""
    arguments = ("--nodes", nodes, "--generate", 120, "--rebalance", 10, "--seed", 2)
    report = json.loads(run(*arguments, "--json").output)
    assert report["rebalance"] == 10
    assert (
        report["waiting"].keys()
        == report["without"]["waiting"].keys()
        == {"mean", "longest", "pods", "evictions"}
    )
    assert (report["without"]["waiting"]["evictions"], report["without"]["arrivals"]) == (0, 120)
    lines = run(*arguments).output.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["without", "with"]
    assert run(*arguments, "--blind").exit_code == 2


def test_a_trace_is_needed(nodes, tmp_path):
    """Neither both nor none of --pods and --generate; nor an empty trace."""
    assert run("--nodes", nodes).exit_code == 2
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(InputError, match=r"there is no event in .*empty\.jsonl"):
        run("--nodes", nodes, "--pods", empty)


def test_a_generated_trace_without_events_is_not_called_a_file(alignup, nodes, monkeypatch):
    monkeypatch.setattr(simulation, "synthetic_trace", lambda *_: [])
    ended = alignup("simulate", "--nodes", nodes, "--generate", 5)

    assert ended.complains("there is no event in the generated trace")


def test_long_simulations_show_progress_on_a_terminal_only(monkeypatch):
    """A pipe sees nothing of it, and neither does a short one."""
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    for terminal, total in ((False, rank.SHOWN_PROGRESS), (True, None)):
        monkeypatch.setattr(stderr, "isatty", lambda terminal=terminal: terminal)
        with progress("simulating", total) as advance:
            advance(1)
    assert stderr.getvalue() == ""
    with progress("simulating", 2) as advance:
        advance(2)
    assert "simulating" in stderr.getvalue()


def test_topologies_can_be_simulated_too(alignup, tmp_path) -> None:
    """What rank reads, simulate does."""
    path = tmp_path / "topologies.yaml"
    path.write_text(TOPOLOGY)
    ended = alignup("simulate", "--nodes", path, "--generate", 20, "--json")

    assert ended.status == 0
    assert ended.lines[0]["arrivals"] == 20
    assert ended.lines[0]["placed"] > 0


@pytest.mark.parametrize("sight", [(), ("--blind",)])
def test_refusals_are_grouped_by_equal_causes(nodes, sight):
    """Of a blind scheduler as often as nodes refused.

    Of one that sees, those that could not align what they had.
    """
    report = json.loads(run("--nodes", nodes, "--generate", 300, *sight, "--json").output)
    counts = [cause["count"] for cause in report["causes"]]

    assert report["causes"]
    assert counts == sorted(counts, reverse=True)
    assert all(cause["reason"] and cause["cause"] for cause in report["causes"])
    if sight:
        assert sum(counts) == sum(report["refusals"].values())
    else:
        assert sum(counts) >= report["noAlignment"]

    text = run("--nodes", nodes, "--generate", 300, *sight).output
    assert (
        f"times a node refused, {report['causes'][0]['reason']}: {report['causes'][0]['cause']}"
        in text
    )


def test_rebalancing_that_makes_it_worse_is_not_done(tmp_path):
    """The report is that of the trace without it, and says what was discarded."""
    devices = {"nvidia.com/gpu": [{"id": "g0", "numa": 0}, {"id": "g1", "numa": 1}]}
    kubelet = {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static"}
    shape = {"machine": "align-up-article", "kubelet": kubelet, "devices": devices}

    file = tmp_path / "nodes.jsonl"
    file.write_text(
        "".join(json.dumps({"name": f"n{number}", **shape}) + "\n" for number in range(3))
    )

    arguments = ("--nodes", file, "--generate", 60, "--seed", 12, "--rebalance", 5)
    report = json.loads(run(*arguments, "--json").output)
    assert "without" not in report
    assert report["placed"] > report["discarded"]["placed"]
    assert (report["waiting"]["evictions"], report["discarded"]["waiting"]["evictions"] > 0) == (
        0,
        True,
    )

    alone = json.loads(run("--nodes", file, "--generate", 60, "--seed", 12, "--json").output)
    assert report["arrivals"] == alone["arrivals"]

    *_, said, _, _, without, moved = run(*arguments).output.splitlines()
    assert said == "rebalancing would make it worse, so it was not done:"
    assert (without.split()[1], moved.split()[1]) == (
        str(report["placed"]),
        str(report["discarded"]["placed"]),
    )
