"""`alignup replay`: scenarios in, the documented JSON lines out, or reports in their place."""

from __future__ import annotations

import copy
import gzip
import json
import sys
from collections import Counter
from typing import Any

import pytest

from alignup.cli import replay as replay_command
from alignup.cli.replay import (
    alignment,
    print_rows,
    reports_refusal,
    show_nodes,
    show_use,
    sparkline,
)
from alignup.cli.terminal import Table, make_console, progress
from alignup.replay.summary import Counts, NodeReport, Report, Use
from inputs.traces import scenario as trace_scenario

CORES = [{"cpus": [cpu], "socket": cpu // 2} for cpu in range(4)]
SCENARIO: dict[str, Any] = {
    "name": "two pods",
    "machine": {
        "numaNodes": [
            {"id": 0, "memory": 1 << 30, "distances": [10, 255, 255, 20], "cores": CORES[:2]},
            {"id": 3, "memory": 1 << 30, "distances": [20, 255, 255, 10], "cores": CORES[2:]},
        ]
    },
    "kubelet": {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Mi"}}],
    },
    "devices": {"a/gpu": [{"id": "gpu0", "numa": [0]}, {"id": "gpu1", "numa": [3]}]},
}

GPU = {"a/gpu": "1"}


def manifest(uid: str, **limits: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": "1", "memory": "1Mi", **limits}}
    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "c0", "image": "i", "resources": resources}]},
    }


def scenario(*steps: Any, **changes: Any) -> str:
    """Return a line: pods to admit by manifest, pods to remove by uid."""
    done = [{"remove": step} if isinstance(step, str) else {"admit": step} for step in steps]
    return json.dumps({**copy.deepcopy(SCENARIO), "steps": done, **changes})


def test_every_documented_key(alignup, write) -> None:
    """NUMA nodes by the kernel's ids, CPUs as lists, memory in bytes, devices by resource."""
    file = write(
        "s.jsonl",
        scenario(manifest("p", cpu="2", **GPU), manifest("q"), manifest("r", cpu="3"), "p"),
    )

    ended = alignup("replay", "--json", file)

    assert (ended.status, ended.err) == (0, "")
    [answer] = ended.lines
    assert list(answer) == ["name", "steps"]
    first, second, refused, removed = answer["steps"]
    assert first == {
        "admitted": True,
        "reason": "",
        "message": "",
        "sharedCpus": "0-1",
        "containers": {
            "c0": {
                "affinity": {"numaNodes": [3], "preferred": True},
                "cpus": "2-3",
                "memory": [{"numaNodes": [3], "type": "memory", "size": 1 << 20}],
                "devices": {"a/gpu": ["gpu1"]},
            }
        },
    }
    assert second["containers"]["c0"]["affinity"] == {"numaNodes": [0], "preferred": True}
    assert refused["admitted"] is False
    assert refused["reason"] == "TopologyAffinityError"
    assert "cpu is free: 3 asked, 0 free" in refused["message"]
    assert refused["containers"] == {}
    assert removed == {
        "admitted": True,
        "reason": "",
        "message": "",
        "sharedCpus": "0,2-3",
        "containers": {},
    }


def test_hints_of_containers(alignup, write) -> None:
    """By provider and resource; null where a provider has no preference."""
    file = write(
        "s.jsonl", scenario(manifest("p", **GPU), manifest("q", cpu="500m"), manifest("r", cpu="9"))
    )
    first, second, refused = alignup("replay", "--json", "--hints", file).lines[0]["steps"]

    hints = first["containers"]["c0"]["hints"]
    assert list(hints) == ["devices", "cpu", "memory"]
    assert hints["cpu"] == {
        "cpu": [
            {"numaNodes": [0], "preferred": True},
            {"numaNodes": [3], "preferred": True},
            {"numaNodes": [0, 3], "preferred": False},
        ]
    }
    assert set(hints["devices"]) == {"a/gpu"}
    assert set(hints["memory"]) == {"memory"}
    assert second["containers"]["c0"]["hints"]["cpu"] is None
    assert second["containers"]["c0"]["hints"]["devices"] == {}
    assert refused["containers"]["c0"] == {"hints": refused["containers"]["c0"]["hints"]}
    assert refused["containers"]["c0"]["hints"]["cpu"] == {"cpu": []}
    assert "podHints" not in first


def test_hints_of_pods(alignup, write) -> None:
    """Under the scope pod they are there once."""
    kubelet = {**SCENARIO["kubelet"], "topologyManagerScope": "pod"}
    file = write("s.jsonl", scenario(manifest("p", **GPU), kubelet=kubelet))
    step = alignup("replay", "--json", "--hints", file).lines[0]["steps"][0]

    assert list(step["podHints"]) == ["devices", "cpu", "memory"]
    assert step["podHints"]["cpu"]["cpu"][0] == {"numaNodes": [0], "preferred": True}
    assert "hints" not in step["containers"]["c0"]


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_hints_of_1_38_have_scores(alignup, write, scope: str) -> None:
    """Those of the moment of each question; otherwise the answers are the same."""
    kubelet = {**SCENARIO["kubelet"], "topologyManagerScope": scope}
    file = write("s.jsonl", scenario(manifest("p", **GPU), manifest("q", cpu="1"), kubelet=kubelet))
    first, second = alignup("replay", "--json", "--hints", "--kubelet-version", "1.38", file).lines[
        0
    ]["steps"]
    hints = [
        (step["podHints"] if scope == "pod" else step["containers"]["c0"]["hints"])["cpu"]["cpu"]
        for step in (first, second)
    ]
    assert hints[0] == [
        {"numaNodes": [0], "preferred": True, "score": 1},
        {"numaNodes": [3], "preferred": True, "score": 1},
        {"numaNodes": [0, 3], "preferred": False, "score": 1},
    ]
    assert [hint["score"] for hint in hints[1]] != [1, 1, 1]

    def unscored(value):
        if isinstance(value, dict):
            return {key: unscored(field) for key, field in value.items() if key != "score"}
        return [unscored(field) for field in value] if isinstance(value, list) else value

    earlier = alignup("replay", "--json", "--hints", "--kubelet-version", "1.37", file)
    assert "score" not in earlier.out
    assert unscored([first, second]) == earlier.lines[0]["steps"]


def test_a_null_affinity(alignup, write) -> None:
    """A container that asks for nothing may be anywhere; under policy none nothing is decided."""
    nothing = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c0", "image": "i"}]}}
    file = write(
        "s.jsonl",
        scenario(nothing) + "\n" + scenario(nothing, kubelet={"topologyManagerPolicy": "none"}),
    )
    aligned, none = (
        line["steps"][0]["containers"]["c0"] for line in alignup("replay", "--json", file).lines
    )

    assert aligned == {
        "affinity": {"numaNodes": None, "preferred": True},
        "cpus": None,
        "memory": [],
        "devices": {},
    }
    assert none["affinity"] is None


def test_a_configuration_that_a_kubelet_refuses(alignup, write) -> None:
    """The scenario has no steps then."""
    file = write(
        "s.jsonl", scenario(kubelet={"topologyManagerPolicy": "bogus"}) + "\n\n" + scenario()
    )
    ended = alignup("replay", "--json", file)

    assert (ended.status, ended.err) == (0, "")
    refused, fine = ended.lines
    assert set(refused) == {"name", "configError"}
    assert "'bogus'" in refused["configError"]
    assert fine == {"name": "two pods", "steps": []}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (scenario(manifest("p")), 0),
        (scenario(manifest("p", cpu="9")), 1),
        (scenario(kubelet={"topologyManagerPolicy": "bogus"}), 1),
        ("{", 2),
    ],
    ids=["admitted", "refused", "no start", "no scenario"],
)
def test_refusals_fail_only_if_asked(alignup, write, line: str, status: int) -> None:
    """A replay is done once its input was read; whoever wants a verdict asks for it."""
    file = write("s.jsonl", line)

    if status != 2:
        assert alignup("replay", file).status == 0
    else:
        assert alignup("replay", file).status == 2

    assert alignup("replay", "--fail-on-refusal", file).status == status


def test_hints_are_json(alignup, write) -> None:
    """They are not passed over in silence."""
    ended = alignup("replay", "--hints", write("s.jsonl", scenario()))

    assert (ended.status, ended.out) == (2, "")
    assert "--hints needs --json" in ended.err


def test_what_is_passed_over_is_said_once(alignup, write) -> None:
    """On standard error, one line each, and standard output stays JSON."""
    file = write("s.jsonl", f"{scenario(kublet={})}\n" * 2)
    ended = alignup("replay", "--json", file)

    assert ended.status == 0
    assert len(ended.lines) == 2
    assert (
        ended.err
        == "alignup: the key 'kublet' of a node is unknown and ignored; did you mean 'kubelet'?\n"
    )


def test_a_flood_of_warnings_ends(alignup, write) -> None:
    file = write("s.jsonl", "\n".join(scenario(**{f"kubelet{number}": {}}) for number in range(99)))
    said = alignup("replay", "--json", file).err.splitlines()

    assert len(said) == 50
    assert said[-1] == "alignup: more was ignored than is said here"


def test_machines_of_the_catalog_go_by_name(alignup, write) -> None:
    line = json.dumps(
        {
            "machine": "align-up-article",
            "steps": [{"admit": manifest("p", **{"nvidia.com/gpu": "1"})}],
        }
    )
    [answer] = alignup("replay", "--json", write("s.jsonl", line)).lines

    assert answer["steps"][0]["containers"]["c0"]["devices"] == {"nvidia.com/gpu": ["gpu0"]}


def test_text_for_people(alignup, write) -> None:
    file = write(
        "s.jsonl",
        "\n".join(
            [
                scenario(manifest("p", **GPU), manifest("q", cpu="9"), "p"),
                scenario(kubelet={"cpuManagerPolicy": "bogus"}, name=""),
            ]
        ),
    )
    ended = alignup("replay", file)

    assert ended.status == 0
    assert ended.out.splitlines()[:2] == [
        "two pods:",
        "  0: admitted, c0: NUMA node 0, CPUs 1, a/gpu gpu0",
    ]
    assert ended.out.splitlines()[2].startswith(
        "  1: refused, TopologyAffinityError: container 'c0' "
    )
    assert ended.out.splitlines()[3:5] == ["  2: removed", f"scenario {file}:2:"]
    assert "the kubelet would not start" in ended.out


def test_input_may_be_packed_or_come_from_a_pipe(alignup, write) -> None:
    """Several files in order; `-` once."""
    packed = write("s.jsonl.gz", gzip.compress(scenario(name="packed").encode()))
    ended = alignup("replay", "--json", packed, "-", stdin=scenario(name="piped").encode())

    assert (ended.status, [line["name"] for line in ended.lines]) == (0, ["packed", "piped"])


def test_no_scenarios_at_all(alignup) -> None:
    ended = alignup("replay", "--json", "-", stdin=b"\n")

    assert (ended.status, ended.out, ended.err) == (0, "", "")


def test_a_refused_pod_may_be_removed(alignup, write) -> None:
    """The conformance vectors do: there is nothing to take back. Once."""
    refused = manifest("p", cpu="9")
    assert alignup("replay", "--json", write("s.jsonl", scenario(refused, "p"))).status == 0
    assert alignup("replay", "--json", write("t.jsonl", scenario(refused, "p", "p"))).complains(
        "steps[2]", "'p'"
    )


def test_a_container_that_starts_is_said(alignup, write) -> None:
    """As a line of its own; in JSON it looks like a removal."""
    case = json.loads(scenario(manifest("p"), "p"))
    name = case["steps"][0]["admit"]["spec"]["containers"][0]["name"]
    case["steps"].insert(1, {"start": "p", "container": name})
    file = write("s.jsonl", json.dumps(case))

    assert alignup("replay", file).out.splitlines()[-2:] == [f"  1: {name} started", "  2: removed"]
    _, started, removed = alignup("replay", "--json", file).lines[0]["steps"]
    assert started == {**removed, "sharedCpus": started["sharedCpus"]}


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("{", ["s.jsonl:1", "a JSON object"]),
        ("3", ["s.jsonl:1", "a JSON object"]),
        ("[" * 100_000, ["s.jsonl:1", "a JSON object"]),
        ('{"name": 3}', ["s.jsonl:1", '"machine"']),
        (scenario("nobody"), ["s.jsonl:1", "steps[0]", "'nobody'"]),
        (scenario(manifest("p"), manifest("p")), ["steps[1]", "'p'", "admitted already"]),
        (scenario(manifest("p", cpu="two")), ["steps[0]", "'two'", 'limits["cpu"]']),
        (scenario(steps=3), ["a list of steps"]),
        (scenario(steps=[{}]), ["steps[0]", '"admit"']),
        (scenario(steps=[{"remove": ["p"]}]), ["steps[0]", "the uid of a pod"]),
        (scenario(devices=[]), ["devices"]),
        (scenario(preferredSets={"a/gpu": [["gpu7"]]}), ["preferredSets['a/gpu']", "gpu0, gpu1"]),
    ],
    ids=range(12),
)
def test_what_is_no_scenario(alignup, write, line: str, parts: list[str]) -> None:
    """One line says which file, line and step."""
    ended = alignup("replay", "--json", write("s.jsonl", line))

    assert ended.complains(*parts), ended


def test_bytes_that_are_no_text(alignup, write) -> None:
    assert alignup("replay", write("s.jsonl", b'{"name": "\xff"}')).complains("s.jsonl:1")
    torn = gzip.compress(scenario().encode() * 100)[:-20]
    assert alignup("replay", write("s.jsonl.gz", torn)).complains("a whole gzip file")


def test_what_was_answered_before_an_error_stays_answered(alignup, write) -> None:
    ended = alignup("replay", "--json", write("s.jsonl", scenario() + "\n{"))

    assert ended.status == 2
    assert ended.lines == [{"name": "two pods", "steps": []}]
    assert "s.jsonl:2" in ended.err


def test_long_replays_show_their_progress_on_a_terminal(alignup, write, monkeypatch) -> None:
    """On standard error, so that standard output stays as it is."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal is shown no progress
    few, many = write("few.jsonl", scenario()), write("many.jsonl", f"{scenario()}\n" * 250)

    assert alignup("replay", "--json", few).err == ""
    assert alignup("replay", "--json", "-", stdin=scenario().encode()).err == ""
    ended = alignup("replay", "--json", many)
    assert len(ended.lines) == 250
    assert "replaying" in ended.err


# ---- reports


@pytest.fixture
def trace(write) -> str:
    """Two scenarios of 60 steps, and one whose kubelet would not start."""
    stuck = trace_scenario(2) | {
        "kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "99"},
        "name": "stuck",
    }
    return write(
        "trace.jsonl", "\n".join(map(json.dumps, [trace_scenario(0), trace_scenario(1), stuck]))
    )


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
    out = alignup("replay", "--summary", write("one.jsonl", json.dumps(trace_scenario(0)))).out

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
    file = write("one.jsonl", json.dumps(trace_scenario(4)))
    [summary] = alignup("replay", "--summary", "--json", file).lines
    [compared] = alignup("replay", "--compare", "restricted", "--json", file).lines

    assert {**summary, "configuration": "restricted"} == compared


def test_refusals_fail_where_that_is_asked_for(alignup, trace) -> None:
    assert alignup("replay", "--summary", "--fail-on-refusal", trace).status == 1
    assert alignup("replay", "--summary", trace).status == 0


@pytest.mark.parametrize(
    ("counts", "config_error", "refuses"),
    [
        (Counts(), "", False),
        (Counts(arrivals=2, admitted=1), "", True),
        (Counts(), "would not start", True),
    ],
)
def test_a_report_has_a_refusal_where_a_pod_or_a_configuration_is_refused(
    counts: Counts, config_error: str, refuses: bool
) -> None:
    nodes = [NodeReport("first", Counts()), NodeReport("second", counts, config_error=config_error)]
    assert reports_refusal(Report(nodes)) is refuses


@pytest.mark.parametrize(
    "options", [("--hints", "--json"), ("--compare-versions",), ("--kubelet-version", "1.35,1.36")]
)
def test_what_does_not_go_together_is_said(alignup, trace, options) -> None:
    ended = alignup("replay", "--summary", *options, trace)

    assert (ended.status, ended.out) == (2, "")
    assert "--summary and --compare go with one kubelet version" in ended.err


def test_bad_input_is_named(alignup, write) -> None:
    file = write(
        "bad.jsonl", json.dumps(trace_scenario(0, steps=0) | {"steps": [{"remove": "nobody"}]})
    )

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


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        (Counts(), "no container was aligned"),
        (
            Counts(placed=2, numa_nodes=3),
            "alignment: - of containers preferred, 1.50 NUMA nodes a container on average",
        ),
    ],
)
def test_alignment_is_said_as_far_as_it_is_known(counts: Counts, sentence: str) -> None:
    assert alignment(counts) == sentence


WHOLE = {
    "metadata": {"name": "w", "uid": "w"},
    "spec": {
        "resources": {
            "limits": {"cpu": "2", "memory": "2Mi"},
            "requests": {"cpu": "2", "memory": "2Mi"},
        },
        "containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Mi"}}},
            {"name": "b"},
        ],
    },
}


def restarting(*steps: Any) -> str:
    """Return a line of a kubelet that gives pods CPUs as a whole, with these steps."""
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "featureGates": {"PodLevelResourceManagers": True},
    }
    return scenario(kubelet=kubelet, steps=[{"admit": WHOLE}, *steps])


def test_a_restart_is_said_with_what_became_of_the_pods(alignup, write) -> None:
    restart = {"restart": True}
    file = write("s.jsonl", restarting(restart, {"admit": manifest("p")}, restart))
    run = alignup("replay", file, "--kubelet-version", "1.37")
    lines = run.out.splitlines()
    refusal = lines.pop(3)
    assert refusal.startswith("     w: refused, TopologyAffinityError: pod refused by policy")
    assert lines == [
        "two pods:",
        "  0: admitted, a: NUMA node 3, CPUs 2; b: NUMA node 3, CPUs 3",
        "  1: the kubelet restarted",
        "  2: admitted, c0: NUMA node 0, CPUs 1",
        "  3: the kubelet restarted",
        "     p: admitted, c0: NUMA node 0, CPUs 1",
    ]
    assert alignup("replay", file, "--fail-on-refusal").status == 1


def test_releases_differ_by_what_a_restart_does(alignup, write) -> None:
    file = write("s.jsonl", restarting({"restart": True}))
    run = alignup("replay", "--compare-versions", "1.37,1.38", file)
    assert [line.split(":")[0] for line in run.out.splitlines()] == [
        "two pods",
        "  0",
        "  1",
        "    1.37",
        "    1.38",
    ]
    assert "1.38: restarted | w admitted, a: NUMA node 3, CPUs 2" in run.out
    assert "1.37: restarted | w refused, TopologyAffinityError" in run.out


def test_a_kubelet_that_does_not_start_again_is_said(alignup, write) -> None:
    line = json.loads(restarting({"restart": True}, {"restart": True}))
    line["kubelet"]["topologyManagerPolicy"] = "best-effort"
    line["machine"]["numaNodes"][0]["cores"] = [{"cpus": [cpu], "socket": 0} for cpu in range(2)]
    line["machine"]["numaNodes"][1]["cores"] = [{"cpus": [cpu], "socket": 1} for cpu in range(2, 6)]
    file = write("s.jsonl", json.dumps(line))
    run = alignup("replay", file)
    assert run.out.splitlines()[-1] == (
        '  2: the kubelet does not start: current set of available CPUs "0-5" doesn\'t match with '
        'CPUs in state "0-1,4-5"'
    )
    assert alignup("replay", file, "--fail-on-refusal").status == 1
    compared = alignup("replay", "--compare-versions", "1.37", file)
    assert "1.37: the kubelet does not start" in compared.out


def test_a_node_is_a_row_with_its_name_its_pods_and_who_is_to_blame(capsys) -> None:
    refusals = Counts(arrivals=4, admitted=3, resources=Counter({"memory": 1, "cpu": 2}))
    show_nodes(make_console(), [NodeReport("n0", refusals), NodeReport("", Counts())])
    _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows if row.strip()] == [
        ["n0", "4", "75.0%", "1", "-", "-", "cpu", "2,", "memory", "1"],
        ["-", "0", "0.0%", "0", "-", "-", "-"],
    ]


@pytest.mark.parametrize("name", ["n0", ""])
def test_the_use_of_a_numa_node_has_the_name_of_its_node(name: str, capsys) -> None:
    use = Use("cpu", (1,), 4, 0.5, 0.75, (0.5, 0.75))
    show_use(make_console(), [NodeReport(name, Counts(), (use,))])
    row = capsys.readouterr().out.splitlines()[3]
    assert row.split()[:6] == [name or "-", "cpu", "1", "4", "50.0%", "75.0%"]


@pytest.mark.parametrize(("count", "more"), [(60, ""), (61, "and 1 more; --json has all of them")])
def test_lines_that_are_not_shown_are_counted(count: int, more: str, capsys) -> None:
    print_rows(make_console(), Table("node"), count)

    out = capsys.readouterr().out
    assert out.strip().endswith(more)
    assert ("more" in out) is bool(more)
