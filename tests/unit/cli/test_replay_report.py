"""`alignup replay --summary` and `--compare`: a report in place of the steps."""

from __future__ import annotations

import json
import sys

import pytest

from alignup.cli import replay as replay_command
from alignup.cli.replay import sparkline
from alignup.cli.terminal import progress
from inputs.traces import scenario


@pytest.fixture
def trace(write) -> str:
    """Two scenarios of 60 steps, and one whose kubelet would not start."""
    stuck = scenario(2) | {
        "kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "99"},
        "name": "stuck",
    }
    return write("trace.jsonl", "\n".join(map(json.dumps, [scenario(0), scenario(1), stuck])))


def test_a_summary_is_one_object(alignup, trace) -> None:
    ended = alignup("replay", "--summary", "--json", trace)
    [report] = ended.lines

    assert ended.status == 0
    assert [node["name"] for node in report["nodes"]] == ["node-0", "node-1", "stuck"]
    assert report["total"]["arrivals"] == report["total"]["admitted"] + report["total"]["refused"]
    assert report["nodes"][2].keys() == {"name", "configError"}


def test_a_summary_for_people(alignup, trace) -> None:
    out = alignup("replay", "--summary", trace).out

    for part in (
        "3 nodes, 120 steps",
        "admitted",
        "alignment: 100.0%",
        "stuck would not start",
        "stranded",
        "▁",
    ):
        assert part in out

    flat_text = " ".join(out.split())
    assert "example.com/any 0,1 1 " in flat_text
    assert "example.com/any any 1 " in flat_text


def test_one_node_needs_no_table_of_nodes(alignup, write) -> None:
    out = alignup("replay", "--summary", write("one.jsonl", json.dumps(scenario(0)))).out

    assert "1 node, 60 steps" in out
    assert "refused because of  " not in out


def test_configurations_stand_side_by_side(alignup, trace) -> None:
    ended = alignup("replay", "--compare", "none,restricted/pod", trace)
    rows = [line.split()[0] for line in ended.out.splitlines()[2:4]]
    reports = alignup("replay", "--compare", "none,restricted/pod", "--json", trace).lines

    assert rows == ["none", "restricted/pod"]
    assert "stuck would not start" in ended.out
    assert [report["configuration"] for report in reports] == ["none", "restricted/pod"]
    assert reports[0]["total"]["admitted"] >= reports[1]["total"]["admitted"]
    assert reports[0]["total"]["preferredShare"] is None


def test_the_comparison_under_its_own_policy_is_the_summary(alignup, write) -> None:
    file = write("one.jsonl", json.dumps(scenario(4)))
    [summary] = alignup("replay", "--summary", "--json", file).lines
    [compared] = alignup("replay", "--compare", "restricted", "--json", file).lines

    assert {**summary, "configuration": "restricted"} == compared


def test_refusals_fail_where_that_is_asked_for(alignup, trace) -> None:
    assert alignup("replay", "--summary", "--fail-on-refusal", trace).status == 1


@pytest.mark.parametrize(
    "options", [("--hints", "--json"), ("--compare-versions",), ("--kubelet-version", "1.35,1.36")]
)
def test_what_does_not_go_together_is_said(alignup, trace, options) -> None:
    ended = alignup("replay", "--summary", *options, trace)

    assert (ended.status, ended.out) == (2, "")
    assert "--summary and --compare go with one kubelet version" in ended.err


def test_bad_input_is_named(alignup, write) -> None:
    file = write("bad.jsonl", json.dumps(scenario(0, steps=0) | {"steps": [{"remove": "nobody"}]}))

    assert alignup("replay", "--compare", "sometimes", file).complains("--compare")
    assert alignup("replay", "--summary", file).complains("bad.jsonl:1: steps[0]: ")


def test_progress_is_shown_on_a_terminal(alignup, trace, monkeypatch) -> None:
    """With a bar that goes once the replay is over."""
    monkeypatch.setattr(replay_command, "count_lines", lambda _: 3)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert alignup("replay", "--summary", trace).status == 0
    with progress("replaying", 3) as advance:
        advance(3.0)


def test_there_is_no_progress_without_a_terminal(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert replay_command.count_lines([str(tmp_path)]) is None


def test_a_curve_in_letters() -> None:
    assert sparkline([0.0, 0.5, 1.0], "01234567") == "047"
    assert sparkline([], "01") == "-"
    assert len(sparkline([0.1] * 100, "01")) == 24
