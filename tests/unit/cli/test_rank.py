"""`alignup rank`: which nodes, in which order, and why not the others.

`alignup simulate`: what comes of a trace, with and without a view of NUMA nodes.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from alignup import cluster, explain
from alignup.cli import rank
from alignup.cli.options import POLICIES, STRATEGIES
from alignup.cli.program import program
from alignup.cli.terminal import progress
from alignup.cluster import traces
from alignup.cluster.evictions import Rules
from alignup.control_plane.scheduler import ask as scheduler_ask
from alignup.control_plane.scheduler.ask import AskedCluster
from alignup.errors import InputError
from alignup.explanations import why
from alignup.host.parts.cut import LAYOUTS
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.node import Node
from inputs.cluster_files import TOPOLOGY, node_line, pod_manifest
from inputs.machines import machine_of


@pytest.fixture
def files(tmp_path):
    """Return the paths of two nodes as JSON lines, and of a pod."""
    nodes, pod = tmp_path / "nodes.jsonl", tmp_path / "pod.yaml"
    full = node_line("full", pods=[pod_manifest("old", cpus=6)])
    nodes.write_text(f"{full}\n\n{node_line('empty')}\n{node_line('small', cores=1)}\n")
    pod.write_text(json.dumps(pod_manifest("new", cpus=4)))
    return nodes, pod


def json_lines(result):
    """Return the objects that a command has printed."""
    return [json.loads(line) for line in result.output.splitlines()]


def run(*arguments):
    """Run the program; what is not an exit is an error."""
    result = CliRunner().invoke(program, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_policy_that_no_node_can_have(tmp_path):
    """It is a refusal like any other, to which nothing is suggested."""
    nodes, pod = tmp_path / "nodes.jsonl", tmp_path / "pod.yaml"
    nodes.write_text(json.dumps({"name": "wide", "machine": machine_of(9, 1)}))
    manifest = pod_manifest("new")
    policy = '{"numaTopologyPolicy": "BestEffort"}'
    manifest["metadata"]["annotations"] = {"scheduling.koordinator.sh/numa-topology-spec": policy}
    pod.write_text(json.dumps(manifest))
    result = run("rank", "--nodes", nodes, "--replicas", pod)
    assert (result.exit_code, result.stderr) == (1, "")
    assert "wide: expected 1 to 8 NUMA nodes" in result.stdout
    assert "0 replicas would fit" in result.stdout


def test_the_best_nodes_come_first(files):
    """A node says yes with NUMA nodes and score; the others are counted by reason."""
    nodes, pod = files
    result = run("rank", "--nodes", nodes, pod)
    assert result.exit_code == 0
    assert "1 would refuse it: TopologyAffinityError" in result.output
    first = "default/new: 2 of 3 nodes would admit it"
    assert result.output.startswith(first)

    lines = run("rank", "--nodes", nodes, pod, pod).output.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(first)]
    assert len(starts) == 2
    assert lines[starts[1] - 1] == ""
    assert lines[starts[1] - 2] != ""


def test_json_has_one_object_a_pod(files):
    """Standard output is JSON lines and nothing else."""
    nodes, pod = files
    result = run(
        "rank", "--nodes", nodes, "--json", "--top", 1, "--strategy", "least-allocated", pod, pod
    )
    first, second = map(json.loads, result.output.splitlines())
    assert first == second
    assert first["admitting"] == 2
    assert first["refusals"] == {"TopologyAffinityError": 1}
    assert first["best"] == [
        # on NUMA node 1, whose CPUs are all free: half of them and a 32nd of the memory; the empty
        # node gives node 0
        {"node": "full", "score": 73.4375, "numaNodes": [1], "preferred": True, "exact": True}
    ]


def test_a_node_of_a_cluster_of_which_only_amounts_are_known_is_not_certain(files, monkeypatch):
    _, pod = files
    nodes = {name: Node.from_dict(json.loads(node_line(name))) for name in ("exact", "amounts")}
    asked_cluster = AskedCluster(nodes, frozenset({"amounts"}), (), (), Rules({}, {}))
    monkeypatch.setattr(scheduler_ask, "ask", lambda *_: asked_cluster)
    (answer,) = map(json.loads, run("rank", "--json", pod).output.splitlines())
    assert {placement["node"]: placement["exact"] for placement in answer["best"]} == {
        "exact": True,
        "amounts": False,
    }


def test_nobody_admits(files, tmp_path):
    """Exit status 1: no node would take any of the pods."""
    nodes, _ = files
    pod = tmp_path / "large.json"
    pod.write_text(json.dumps(pod_manifest("large", cpus=64)))
    result = run("rank", "--nodes", nodes, pod)
    assert result.exit_code == 1
    assert "0 of 3 nodes" in result.output
    assert "score" not in result.output


def test_topologies_are_ranked_as_upper_bounds(tmp_path, files):
    """NodeResourceTopology objects do, and nothing that they admit is certain."""
    path = tmp_path / "topologies.yaml"
    path.write_text(TOPOLOGY)
    result = run("rank", "--nodes", path, "--json", files[1])
    best = json.loads(result.output)["best"]
    assert [placement["node"] for placement in best] == ["worker-a"]
    assert best[0]["numaNodes"] == [1]
    assert not best[0]["exact"]
    assert "no" in run("rank", "--nodes", path, files[1]).output


def test_exact_answers_ask_the_nodes(files):
    """`--exact` needs nodes, and has them here."""
    nodes, pod = files
    assert run("rank", "--nodes", nodes, "--exact", "--threads", 2, pod).exit_code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}\n", "nodes.*name"),
        ("kind: Pod\n", "NodeResourceTopology"),
        ("\n", "NodeResourceTopology"),
    ],
)
def test_a_file_of_something_else_is_an_error(tmp_path, files, content, message):
    """The error says which file and what was expected."""
    path = tmp_path / "nodes.x"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        run("rank", "--nodes", path, files[1])


def test_an_unknown_strategy_is_an_error(files):
    """The known ones are named."""
    nodes, pod = files
    with pytest.raises(InputError, match=r"least-numa-nodes, .*document, got 'best'"):
        run("rank", "--nodes", nodes, "--strategy", "best", pod)


def test_koordinators_scheduler_filters_and_scores(files):
    """Under either profile; a pod without a policy on a node without one gets no NUMA node."""
    nodes, pod = files

    result = run("rank", "--nodes", nodes, "--koordinator-profile", "document", pod)
    assert result.exit_code == 0
    assert "default/new: 2 of 3 nodes would admit it" in result.output
    assert "1 would refuse it: Unschedulable\n  1 node: Insufficient cpu (small)" in result.output

    answer = json.loads(
        run("rank", "--nodes", nodes, "--koordinator-profile", "document", "--json", pod).output
    )
    # node 0 of the empty one has seven CPUs to give, node 1 of the full one eight: the fuller
    # placement is worth more
    assert [(placement["node"], placement["numaNodes"]) for placement in answer["best"]] == [
        ("empty", [0]),
        ("full", [1]),
    ]

    [refused] = answer["refused"]
    assert (refused["node"], refused["reason"], refused["message"]) == (
        "small",
        "Unschedulable",
        "Insufficient cpu",
    )
    assert answer["refusals"] == {"Unschedulable": 1}
    assert answer["exact"]

    answer = json.loads(
        run("rank", "--nodes", nodes, "--koordinator-profile", "scheduler", "--json", pod).output
    )
    assert {placement["policy"] for placement in answer["best"]} == {""}


def test_no_node_passes_koordinators_scheduler(tmp_path):
    """Exit status 1, and many refused nodes are counted."""
    pod, nodes = tmp_path / "large.json", tmp_path / "many.jsonl"
    pod.write_text(json.dumps(pod_manifest("large", cpus=64)))
    nodes.write_text("\n".join(node_line(f"n{number}") for number in range(12)))
    result = run("rank", "--nodes", nodes, "--koordinator-profile", "scheduler", pod)
    assert result.exit_code == 1
    assert "12 nodes: Insufficient cpu (n0, n1, n2, n3, n4" in result.output


def test_an_unknown_koordinator_profile_is_an_error(files):
    nodes, pod = files
    with pytest.raises(InputError, match="one of document, scheduler, got 'best' at the profile"):
        run("rank", "--nodes", nodes, "--koordinator-profile", "best", pod)


def test_a_bad_node_is_passed_over_with_a_warning(alignup, files):
    """One incomplete line does not keep the others from being ranked."""
    nodes, pod = files
    nodes.write_text(f"{nodes.read_text()}\n{{}}\n")
    ended = alignup("rank", "--nodes", nodes, "--json", pod)

    assert ended.status == 0
    assert ended.lines[0]["nodes"] == 3
    assert "alignup: a node is ignored: " in ended.err


def test_refusals_are_told_node_by_node(alignup, files):
    """With the kubelet's word and a sentence; what no node has is missing everywhere."""
    nodes, pod = files
    [answer] = alignup("rank", "--nodes", nodes, "--json", pod).lines
    [refused] = answer["refused"]
    assert (refused["node"], refused["reason"]) == ("small", "TopologyAffinityError")
    assert "cpu" in refused["message"]
    assert answer["unmanaged"] == []
    assert f"  small: {refused['message']}" in alignup("rank", "--nodes", nodes, pod).out

    manifest = pod_manifest("new", cpus=1)
    manifest["spec"]["containers"][0]["resources"]["limits"]["example.com/no"] = 1
    pod.write_text(json.dumps(manifest))
    ended = alignup("rank", "--nodes", nodes, "--json", pod)
    assert (ended.status, ended.lines[0]["refusals"]) == (1, {"Insufficient example.com/no": 3})


def test_nodes_without_numa_management_are_named(alignup, files):
    nodes, pod = files
    plain = json.dumps({**json.loads(node_line("plain")), "kubelet": {}})
    nodes.write_text(f"{plain}\n{nodes.read_text()}")

    assert (
        "without NUMA management, so last: plain"
        in alignup("rank", "--nodes", nodes, pod).out.splitlines()
    )
    [answer] = alignup("rank", "--nodes", nodes, "--json", pod).lines
    assert (answer["best"][-1]["node"], answer["unmanaged"]) == ("plain", ["plain"])


def test_lists_that_are_copied_for_a_quick_start_are_those_that_there_are():
    assert STRATEGIES == cluster.STRATEGIES
    assert POLICIES == TOPOLOGY_POLICIES
    assert "[numa|socket|l3|core]" in run("split", "--help-all").output
    assert LAYOUTS == ("numa", "socket", "l3", "core")


def test_replicas_are_counted(files, tmp_path):
    nodes, pod = files
    result = run("rank", "--nodes", nodes, "--replicas", pod)
    assert "5 replicas would fit, one after the other: 3 on empty, 2 on full" in result.output
    answer = json.loads(run("rank", "--nodes", nodes, "--replicas", "--json", pod).output)
    assert (answer["replicas"], answer["replicasByNode"]) == (5, {"full": 2, "empty": 3})
    amounts = tmp_path / "amounts.json"
    amounts.write_text(TOPOLOGY)
    assert (
        json.loads(run("rank", "--nodes", amounts, "--replicas", "--json", pod).output)["replicas"]
        > 0
    )


def test_amounts_from_standard_input_cannot_be_filled(files):
    _, pod = files
    arguments = ["rank", "--nodes", "-", "--replicas", str(pod)]
    program_text = f"import sys; from alignup.cli import main; sys.argv[1:] = {arguments!r}; main()"
    done = subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", program_text],
        input=TOPOLOGY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--replicas needs a file" in done.stderr


def test_replicas_on_a_cluster_of_amounts_are_an_error_that_reads_no_input(
    alignup, files, monkeypatch
):
    """A cluster has no file that could be read again; standard input is nobody's answer."""
    _, pod = files
    amounts = cluster.read_node_resource_topologies(TOPOLOGY.encode())
    monkeypatch.setattr(
        scheduler_ask, "ask", lambda *_: AskedCluster({}, frozenset(), (), (), None)
    )
    monkeypatch.setattr(AskedCluster, "cluster", lambda _: amounts)
    ended = alignup("rank", "--replicas", pod, stdin=TOPOLOGY.encode())

    assert ended.complains("--replicas needs nodes", "only amounts are known")


def test_nodes_that_refuse_alike_are_told_once(tmp_path):
    """In text with the sentence of the first of them, in JSON with all of their names."""
    nodes, pod = tmp_path / "nodes.jsonl", tmp_path / "pod.json"
    nodes.write_text(
        "\n".join(
            node_line(f"n{index}", pods=[pod_manifest(f"old{index}", 5)]) for index in range(7)
        )
    )
    pod.write_text(json.dumps(pod_manifest("new", 9)))
    shown = run("rank", "--nodes", nodes, pod).output
    answer = json.loads(run("rank", "--nodes", nodes, "--json", pod).output)

    assert "7 nodes: no NUMA node has enough cpu (n0, n1, n2, n3, n4 and 2 more)" in shown
    assert shown.count("container 'c0' refused by policy") == 1
    [cause] = answer["causes"]
    assert (cause["reason"], cause["count"]) == ("TopologyAffinityError", 7)
    assert cause["nodes"] == [f"n{index}" for index in range(7)]
    assert {refusal["cause"] for refusal in answer["refused"]} == {cause["cause"]}


# ---- simulate


@pytest.fixture
def three_nodes(tmp_path):
    """Return the path of three nodes."""
    path = tmp_path / "nodes.jsonl"
    path.write_text("\n".join(node_line(f"n{index}") for index in range(3)))
    return path


def simulate(*arguments):
    """Run the program; what is not an exit is an error."""
    result = CliRunner().invoke(program, ["simulate", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_generated_trace_is_played(three_nodes):
    """JSON is one object; the same seed gives the same."""
    results = [
        simulate("--nodes", three_nodes, "--generate", 60, "--seed", 4, "--json").output
        for _ in range(2)
    ]
    assert results[0] == results[1]
    report = json.loads(results[0])
    assert report["arrivals"] == 60
    assert report["placed"] + report["noRoom"] + report["noAlignment"] + report["refused"] == 60
    assert not report["refused"]
    assert set(report["utilisation"]) == {"cpu", "memory", "example.com/gpu", "example.com/any"}


def test_a_blind_scheduler_is_refused(three_nodes):
    """What a blind scheduler does not foresee shows as refusals, in words too."""
    result = simulate("--nodes", three_nodes, "--generate", 200, "--blind", "--attempts", 2)
    assert result.exit_code == 0
    assert "node totals only" in result.output
    assert "TopologyAffinityError" in result.output
    assert "stranded" in result.output


def test_a_trace_from_a_file(three_nodes, tmp_path):
    """Pods come and go as the trace says."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        json.dumps({"time": 0, "admit": pod_manifest("a"), "duration": 10})
        + "\n"
        + json.dumps({"time": 5, "remove": "a"})
    )
    report = json.loads(simulate("--nodes", three_nodes, "--pods", trace, "--json").output)
    assert (report["arrivals"], report["placed"]) == (1, 1)


def test_rebalancing_is_compared_with_waiting(three_nodes):
    """JSON has the report of the same trace without it; a table shows both."""
    arguments = ("--nodes", three_nodes, "--generate", 120, "--rebalance", 10, "--seed", 2)
    report = json.loads(simulate(*arguments, "--json").output)
    assert report["rebalance"] == 10
    assert (
        report["waiting"].keys()
        == report["without"]["waiting"].keys()
        == {"mean", "longest", "pods", "evictions"}
    )
    assert (report["without"]["waiting"]["evictions"], report["without"]["arrivals"]) == (0, 120)
    lines = simulate(*arguments).output.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["without", "with"]
    assert simulate(*arguments, "--blind").exit_code == 2


def test_a_trace_is_needed(three_nodes, tmp_path):
    """Neither both nor none of --pods and --generate; nor an empty trace."""
    assert simulate("--nodes", three_nodes).exit_code == 2
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(InputError, match=r"there is no event in .*empty\.jsonl"):
        simulate("--nodes", three_nodes, "--pods", empty)


def test_a_generated_trace_without_events_is_not_called_a_file(alignup, three_nodes, monkeypatch):
    monkeypatch.setattr(traces, "synthetic_trace", lambda *_: [])
    ended = alignup("simulate", "--nodes", three_nodes, "--generate", 5)

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


def test_groups_of_a_trace_are_told(tmp_path) -> None:
    """At most ten that did not run whole; JSON has all of them, and a trace without groups none."""
    labels = {"alignup.dev/group": "g"}
    lines = []
    for number in range(12):
        manifest = pod_manifest(f"p{number}", cpus=1)
        manifest["metadata"]["labels"] = labels | {"alignup.dev/group": f"g{number}"}
        manifest["metadata"]["annotations"] = {"alignup.dev/group-size": "2"}
        lines.append(json.dumps({"time": number, "admit": manifest}))

    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(lines))
    nodes = tmp_path / "nodes.jsonl"
    nodes.write_text(node_line("a"))
    report = json.loads(simulate("--nodes", nodes, "--pods", trace, "--json").output)
    assert report["leftOut"] == 12
    assert [report["groups"][key] for key in ("groups", "whole", "partly", "none")] == [
        12,
        0,
        0,
        12,
    ]
    assert len(report["groups"]["notWhole"]) == 12

    text = simulate("--nodes", nodes, "--pods", trace).output
    assert "12 of 12 pods (100.0%) left out with their groups" in text
    assert "12 groups: 0 whole, 0 in part, 12 not at all\n" in text
    assert "  default/g9: 1 of 2 members are there\n" in text
    assert "default/g10" not in text
    assert "  and 2 other groups; --json has all of them\n" in text

    blind = json.loads(simulate("--nodes", nodes, "--pods", trace, "--blind", "--json").output)
    assert blind["groups"]["partly"] == 12
    alone = json.loads(simulate("--nodes", nodes, "--generate", 3, "--json").output)
    assert not {"groups", "leftOut"} & alone.keys()


def test_topologies_can_be_simulated_too(alignup, tmp_path) -> None:
    """What rank reads, simulate does."""
    path = tmp_path / "topologies.yaml"
    path.write_text(TOPOLOGY)
    ended = alignup("simulate", "--nodes", path, "--generate", 20, "--json")

    assert ended.status == 0
    assert ended.lines[0]["arrivals"] == 20
    assert ended.lines[0]["placed"] > 0


@pytest.fixture
def group(tmp_path):
    """Return the path of a Deployment of three pods of four CPUs, and of nodes for two of them."""
    nodes, deployment = tmp_path / "nodes.jsonl", tmp_path / "group.json"
    nodes.write_text(f"{node_line('a', cores=3)}\n{node_line('b', cores=3)}\n")
    template = {"spec": pod_manifest("x", cpus=4)["spec"]}
    deployment.write_text(
        json.dumps(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "train"},
                "spec": {"replicas": 5, "template": template},
            }
        )
    )
    return nodes, deployment


def test_a_group_gets_places_beside_each_other(group):
    nodes, deployment = group
    result = run("rank", "-n", nodes, "--group", "--json", deployment)
    answer = json.loads(result.output)
    placed = [(place["pod"], place["node"]) for place in answer["places"]]
    assert (answer["members"], answer["minMembers"], answer["placed"]) == (5, 5, len(placed))
    assert len({node for _, node in placed}) == 2
    assert result.exit_code == 1
    (left_out,) = answer["leftOut"]
    assert left_out["refusals"] == {"TopologyAffinityError": 2}


def test_enough_members_are_enough(group):
    nodes, deployment = group
    result = run("rank", "-n", nodes, "--group", "--min-members", "2", deployment)
    assert result.exit_code == 0
    assert "of 5 members get a place, on 2 nodes; 2 are enough" in result.output
    assert "with these in place:" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-members", "1"], "--min-members needs --group"),
        (["--group", "--replicas"], "--group goes without --replicas"),
        (["--group", "--koordinator-profile", "k"], "--group goes without --replicas"),
    ],
)
def test_options_that_do_not_go_with_a_group(group, options, message):
    nodes, deployment = group
    result = run("rank", "-n", nodes, *options, deployment)
    assert result.exit_code == 2
    assert message in result.output


def test_more_members_than_there_are(alignup, group):
    nodes, deployment = group
    answer = alignup("rank", "-n", nodes, "--group", "--min-members", "6", deployment)
    assert answer.status == 2
    assert "at most 5, as many as there are" in answer.err


@pytest.mark.parametrize("sight", [(), ("--blind",)])
def test_refusals_are_grouped_by_equal_causes(three_nodes, sight):
    """Of a blind scheduler as often as nodes refused.

    Of one that sees, those that could not align what they had.
    """
    report = json.loads(
        simulate("--nodes", three_nodes, "--generate", 300, *sight, "--json").output
    )
    counts = [cause["count"] for cause in report["causes"]]

    assert report["causes"]
    assert counts == sorted(counts, reverse=True)
    assert all(cause["reason"] and cause["cause"] for cause in report["causes"])
    if sight:
        assert sum(counts) == sum(report["refusals"].values())
    else:
        assert sum(counts) >= report["noAlignment"]

    text = simulate("--nodes", three_nodes, "--generate", 300, *sight).output
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
    report = json.loads(simulate(*arguments, "--json").output)
    assert "without" not in report
    assert report["placed"] > report["discarded"]["placed"]
    assert (report["waiting"]["evictions"], report["discarded"]["waiting"]["evictions"] > 0) == (
        0,
        True,
    )

    alone = json.loads(simulate("--nodes", file, "--generate", 60, "--seed", 12, "--json").output)
    assert report["arrivals"] == alone["arrivals"]

    *_, said, _, _, without, moved = simulate(*arguments).output.splitlines()
    assert said == "rebalancing would make it worse, so it was not done:"
    assert (without.split()[1], moved.split()[1]) == (
        str(report["placed"]),
        str(report["discarded"]["placed"]),
    )


def test_where_no_node_admits_a_pod_what_would_help_is_told(files):
    """On the first node of the commonest cause, as `explain` tells it; and it does help."""
    nodes, pod = files
    pod.write_text(json.dumps(pod_manifest("new", cpus=9)))
    result = run("rank", "--nodes", nodes, pod)
    assert result.exit_code == 1
    [answer] = json_lines(run("rank", "--nodes", nodes, "--json", pod))
    name = answer["causes"][0]["nodes"][0]
    assert answer["example"]["node"] == name
    assert f"what would help on node {name} (each was tried):\n  1. " in result.output

    members = cluster.Cluster.from_json_lines(nodes.read_bytes(), str(nodes), skip_bad=True)
    explanation = explain(members.nodes[members.index(name)], pod_manifest("new", cpus=9))
    assert answer["example"]["suggestions"] == explanation.to_dict()["suggestions"]
    assert answer["example"]["suggestions"]


def test_help_is_only_told_of_pods_that_no_node_admits(files):
    nodes, pod = files
    result = run("rank", "--nodes", nodes, pod)
    assert "what would help" not in result.output
    assert "example" not in json_lines(run("rank", "--nodes", nodes, "--json", pod))[0]


def test_of_nodes_with_amounts_only_no_help_is_told(tmp_path, files):
    _, pod = files
    path = tmp_path / "topologies.json"
    path.write_text(TOPOLOGY)
    pod.write_text(json.dumps(pod_manifest("new", cpus=900)))
    result = run("rank", "--nodes", path, pod)
    assert result.exit_code == 1
    assert "what would help" not in result.output


def test_pods_that_ask_for_the_same_are_explained_once(files, monkeypatch):
    nodes, pod = files
    pods = [pod_manifest(f"new-{number}", cpus=9) for number in range(4)]
    pod.write_text(json.dumps({"kind": "List", "items": pods}))
    names = []

    def counting(node, asked_pod):
        names.append(asked_pod.name)
        return explain(node, asked_pod)

    monkeypatch.setattr(why, "explain", counting)
    answers = json_lines(run("rank", "--nodes", nodes, "--json", pod))
    assert [answer["pod"] for answer in answers] == [f"new-{number}" for number in range(4)]
    assert names == ["new-0"]
    assert len({json.dumps(answer["example"]) for answer in answers}) == 1


def test_fleets_and_traces_have_limits(tmp_path, monkeypatch):
    nodes = tmp_path / "nodes.jsonl"
    nodes.write_text("".join(f"{node_line(f'n{number}')}\n" for number in range(4)))
    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(pod_manifest("p")))
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"time": 0, "admit": pod_manifest("p")}))
    ask = ["rank", "--nodes", str(nodes), str(pod)]
    simulate = ["simulate", "--nodes", str(nodes), "--pods", str(trace)]
    assert CliRunner().invoke(program, ask).exit_code == 0
    assert CliRunner().invoke(program, simulate).exit_code == 0

    monkeypatch.setattr(rank, "TRACE_LIMIT", 10)
    with pytest.raises(InputError, match="more than 10 bytes"):
        CliRunner().invoke(program, simulate, catch_exceptions=False)
    monkeypatch.setattr(rank, "NODE_LIMIT", 3)
    with pytest.raises(InputError, match="has 4 lines: at most 3 nodes are read"):
        CliRunner().invoke(program, ask, catch_exceptions=False)
