"""`alignup rank` and `simulate`.

They say which nodes of a cluster are the best for a pod, and how a trace of pods would do.

`rank` says why the other nodes refuse the pod, too; with `--koordinator-profile` how Koordinator's
scheduler would filter and score the nodes, and with `--replicas` how many replicas of the pod they
could take. `simulate` places a trace of pods on a cluster and says how many found a node, and how
full it got.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli import options
from alignup.cli.inputs import read_bytes, read_pods, read_resources
from alignup.cli.terminal import (
    Table,
    make_console,
    nodes_text,
    print_json,
    print_line,
    print_whole,
    progress,
    safe,
)
from alignup.errors import ConfigError, InputError, one_line, warn
from alignup.machine.bits import bit_numbers
from alignup.records import json_fields
from alignup.text.counting import counted, number_in, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.cli.terminal import Console
    from alignup.cluster import Cluster, Evaluation
    from alignup.cluster.pod_groups import GroupPlan
    from alignup.cluster.ranking import Ranking
    from alignup.cluster.traces import Event
    from alignup.control_plane.scheduler.ask import AskedCluster
    from alignup.explanations.explanation import Explanation
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node

SHOWN_NAMES = 5

# Nodes in lines, the bytes of their pods that differ, and the bytes of a trace: what is read within
# ten seconds, unless each node has a machine of its own.
NODE_LIMIT: Final = 15_000
POD_LIMIT: Final = 4 << 20
TRACE_LIMIT: Final = 8 << 20

_YES_NO: Final = {True: "yes", False: "no", None: "-"}

# By the key of a placement, its heading and how a person reads it.
_COLUMNS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "node": ("node", str),
    "score": ("score", lambda score: number_in(score, ".2f")),
    "policy": ("policy", lambda policy: policy or "none"),
    "numaNodes": ("NUMA nodes", nodes_text),
    "preferred": ("preferred", _YES_NO.__getitem__),
    "exact": ("certain", _YES_NO.__getitem__),
    "draAligned": ("near its claims' devices", _YES_NO.__getitem__),
}

# By the key of a report, what became of so many pods.
_OUTCOMES: Final = {
    "placed": "placed",
    "noRoom": "found no node with enough in total",
    "noAlignment": "found nodes with enough in total, none that could align them",
    "refused": "refused by the node that was chosen",
    "leftOut": "left out with their groups, for which there was no place together",
    "misaligned": "placed with devices of claims that are not near their CPUs and memory",
}

_REBALANCING_NUMBERS: Final = (
    "placed",
    "still wait",
    "waited on average",
    "at most",
    "evictions",
    "CPUs in use",
    "stranded",
)

SHOWN_CAUSES = 10
SHOWN_GROUPS = 10

# Of a member of a group that is left out.
SHOWN_GROUP_CAUSES = 3

# Shorter traces are over before a progress bar would be read.
SHOWN_PROGRESS = 2000


@options.subcommand(
    "rank", "0 if some node would admit a pod, or enough of a group get a place; 1 if not"
)
def command(
    *,
    nodes: str | None = options.nodes_or_cluster,
    kubeconfig: str | None = options.asked_kubeconfig,
    strategy: str = options.strategy,
    top: int = options.number("Show the best N nodes.", 0, default=10),
    threads: int = options.number("Use N threads.", maximum=256, default=1),
    exact: bool = options.flag(
        "Try the admission on each node that totals alone cannot decide (JSON lines only)."
    ),
    koordinator_profile: str | None = options.koordinator_profile,
    version: KubeletVersion | None = options.kubelet_version,
    counts: bool = options.flag(
        "Count how many replicas of the pod the nodes could take, at most 110 pods per node, or "
        "`maxPods` where that is less.",
        "--replicas",
    ),
    group: bool = options.flag(
        "Place all pods together, as the members of one group (JSON lines only)."
    ),
    min_members: int | None = options.number("With --group: N members are enough.  [default: all]"),
    resources: tuple[str, ...] = options.resources,
    require_dra_alignment: bool = options.require_dra_alignment,
    as_json: bool = options.json("pod"),
    pods: tuple[str, ...] = options.files("POD.yaml...", required=True),
) -> int:
    """Show which nodes of a cluster would admit a pod, and why others refuse it.

        alignup rank --nodes nodes.jsonl pod.yaml
        alignup rank --kubeconfig ~/.kube/config --replicas pod.yaml

    No pod is placed; each is judged by itself. `certain: no`: the node publishes only totals, and
    may refuse the pod. If no node would admit it, what would help on one of them is told.

    Of nodes that publish only totals, counts of replicas are upper bounds. A node counts if its
    kubelet would admit the pod and if it has enough of everything in total. Nodes without NUMA
    management come last. Equal nodes keep the order of the file. --strategy applies to kubelets;
    with --koordinator-profile, the profile filters and scores.

    With --group the pods, as many as their objects ask for, are placed one beside the other, on as
    few nodes as they can be.
    """
    if nodes is not None and kubeconfig is not None:
        raise click.UsageError("give either --nodes or --kubeconfig")

    has_other = counts or koordinator_profile is not None
    check_group_options(group=group, min_members=min_members, without=has_other)

    from alignup.cluster.ranking import rank, replicas_that_fit
    from alignup.cluster.shortages import Fit
    from alignup.kubernetes.pod_documents import expanded, live_pods

    cluster, by_amounts = ranked_cluster(nodes, kubeconfig, version)
    if resources:
        cluster = with_claims(cluster, resources)

    documents = live_pods(read_pods(pods), None, one_node=False)
    if group:
        members = expanded(documents)
        return rank_group(cluster, members, min_members, strategy=strategy, as_json=as_json)

    waiting_pods = expanded(documents, 1)
    empty_nodes: Sequence[Node] = ()
    if counts and koordinator_profile is None:
        empty_nodes = cluster.nodes or made_up_nodes(nodes, version)

    fit = Fit(cluster)
    help_for = Help(cluster)
    most_admitting = 0
    for number, pod in enumerate(waiting_pods):
        replicas: dict[str, int] = {}
        example = None
        if koordinator_profile is not None:
            answer = koordinator_dict(cluster, pod, koordinator_profile, top)
        else:
            evaluation = cluster.evaluate(pod, strategy, threads=threads, exact=exact)
            evaluation.exact[[cluster.index(name) for name in by_amounts]] = False
            ranking = rank(
                cluster, pod, evaluation, fit, require_dra_alignment=require_dra_alignment
            )
            # nothing without nodes
            replicas = dict(zip(cluster.names, replicas_that_fit(empty_nodes, pod), strict=False))
            best = placements(cluster, evaluation, ranking, top)
            answer = answer_dict(cluster, pod, ranking, best, {"strategy": strategy})
            answer |= replicas_dict(replicas)
            example = help_for.example(pod, ranking)
            answer |= example_dict(example)

        most_admitting = max(most_admitting, answer["admitting"])
        if as_json:
            print_json(answer)
            continue

        click.echo(nl=number > 0)
        show(answer, top)
        if replicas:
            print_line(replicas_text(replicas, top))

        show_help(example)

    return 0 if most_admitting else 1


class Help:
    """Explains pods that no node of a cluster would admit.

    Those that ask for the same are explained once.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._explanations: dict[object, Explanation] = {}

    def example(self, pod: Pod, ranking: Ranking) -> tuple[str, Explanation] | None:
        """Return a node that would not admit a pod, and why.

        It is the first of those that refuse the pod for the commonest cause. None: some node would
        admit the pod, only amounts of that node are known, or it cannot have the pod's own policy.
        """
        from alignup.cluster.node_totals import demand_key
        from alignup.explanations.why import explain

        if ranking.order or not ranking.groups:
            return None

        name = ranking.groups[0].nodes[0]
        index = self._cluster.index(name)
        if index >= len(self._cluster.nodes):
            return None

        key = (name, demand_key(pod))
        if key not in self._explanations:
            try:
                self._explanations[key] = explain(self._cluster.nodes[index], pod)
            except ConfigError:  # the pod's own policy does not go with so many NUMA nodes
                return None

        return name, self._explanations[key]


def example_dict(example: tuple[str, Explanation] | None) -> dict[str, Any]:
    """Return a node and what would help on it, in JSON's types; without an example nothing."""
    if example is None:
        return {}

    name, explanation = example
    suggestions = [suggestion.to_dict() for suggestion in explanation.suggestions]
    return {"example": {"node": name, "suggestions": suggestions}}


def show_help(example: tuple[str, Explanation] | None) -> None:
    """Print what would help a pod that no node would admit."""
    if example is None:
        return

    name, explanation = example
    if explanation.suggestions:
        # most ranks have none, and the extender's commands start with this module
        from alignup.cli.explain_view import show_suggestions

        show_suggestions(make_console(), explanation, f" on node {name}")


def check_group_options(*, group: bool, min_members: int | None, without: bool) -> None:
    """Check the options of groups.

    Args:
        group: whether the pods are a group.
        min_members: how many are enough.
        without: whether there is an option that does not go with a group.

    Raises:
        UsageError: they do not go together.
    """
    if min_members is not None and not group:
        raise click.UsageError("--min-members needs --group")
    if group and without:
        raise click.UsageError("--group goes without --replicas and --koordinator-profile")


def ranked_cluster(
    nodes: str | None, kubeconfig: str | None, version: KubeletVersion | None
) -> tuple[Cluster, frozenset[str]]:
    """Return the cluster of a file or of an API server.

    With the names of the nodes of which only amounts are known there, although the cluster is made
    of nodes.

    Raises:
        AlignupError: the file or the server cannot be read.
    """
    if nodes is not None:
        return load_cluster(nodes, version), frozenset()

    from alignup.control_plane.scheduler.ask import ask, read_cluster

    asked_cluster = ask(kubeconfig, read_cluster)
    say_what_is_unknown(asked_cluster)
    return asked_cluster.cluster(), asked_cluster.by_amounts


def made_up_nodes(name: str | None, version: KubeletVersion | None) -> Sequence[Node]:
    """Return nodes that can admit pods, in place of those of which only amounts are known.

    Args:
        name: of the file, which is read again; None: the nodes are those of a cluster.
        version: the release of all kubelets; see `load_cluster`.

    Raises:
        InputError: only amounts are known of a cluster's nodes; or see `load_cluster`.
    """
    if name is None:
        raise InputError("--replicas needs nodes, and of this cluster's only amounts are known")
    if name == "-":
        raise click.UsageError(
            "--replicas needs a file, got standard input, which is read only once"
        )

    return load_cluster(name, version, can_admit=True).nodes


def load_cluster(
    name: str,
    version: KubeletVersion | None = None,
    *,
    can_admit: bool = False,
    resources: Sequence[str] = (),
) -> Cluster:
    """Return the cluster in a file: JSON lines of nodes, or NodeResourceTopology objects.

    Bad ones are warned of.

    Args:
        name: of the file.
        version: the release of all kubelets; None: what node lines or Node objects say, or the
            newest that is out.
        can_admit: make nodes up where only amounts are known, so that pods can be admitted.
        resources: names of files with the objects of claims.

    Raises:
        InputError: it holds neither, or no nodes that know where devices are.
    """
    if resources:
        return with_claims(load_cluster(name, version, can_admit=can_admit), resources)

    from alignup.cluster import Cluster, read_node_resource_topologies

    data = read_bytes(name)
    if is_json_lines(data):
        from alignup.cluster.json_lines import read_nodes

        count = data.count(b"\n")
        if count > NODE_LIMIT:
            raise InputError(f"{name} has {count} lines: at most {NODE_LIMIT} nodes are read")
        return Cluster.from_nodes(
            read_nodes(data, name, skip_bad=True, kubelet_version=version, most_different=POD_LIMIT)
        )

    try:
        if can_admit:
            from alignup.kubelet.node_resource_topology.read import nodes_of, read_topologies

            return Cluster.from_nodes(nodes_of(read_topologies(data, skip_bad=True), version))

        return read_node_resource_topologies(data, skip_bad=True, kubelet_version=version)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error


def say_what_is_unknown(cluster: AskedCluster) -> None:
    """Warn of the nodes of a cluster that publish nothing."""
    if cluster.unknown:
        count = counted(len(cluster.unknown), "node")
        warn(f"nothing is known of {count}: {some_of(cluster.unknown, SHOWN_NAMES)}")


def with_claims(cluster: Cluster, resources: Sequence[str]) -> Cluster:
    """Return a cluster whose nodes give pods devices for their claims.

    Raises:
        InputError: only amounts are known of the nodes.
    """
    if not cluster.nodes:
        raise InputError("--resources needs nodes as JSON lines, not NodeResourceTopology objects")

    claims = read_resources(resources)
    for name, node in zip(cluster.names, cluster.nodes, strict=True):
        node.know_claims(claims, name=name)
        cluster.update(name, node)

    return cluster


def is_json_lines(data: bytes) -> bool:
    """Return whether the first line that is not blank is a JSON object by itself, and of a node."""
    from alignup.text.json_text import decode_json

    try:
        line: object = decode_json(data.lstrip().partition(b"\n")[0], "a JSON object")
    except InputError:
        return False

    return isinstance(line, dict) and "kind" not in line


def placements(
    cluster: Cluster, evaluation: Evaluation, ranking: Ranking, top: int
) -> list[dict[str, Any]]:
    """Return the best nodes in JSON's types.

    NUMA nodes are there by the kernel's ids where these are known.
    """
    best = []
    for index in ranking.order[:top]:
        ids = cluster.nodes[index].machine.numa_node_ids if cluster.nodes else range(64)
        positions = bit_numbers(int(evaluation.affinity[index]))
        placement = {
            "node": cluster.names[index],
            "score": round(float(evaluation.score[index]), 6),
            "numaNodes": [ids[position] for position in positions] or None,
            "preferred": bool(evaluation.preferred[index]),
            "exact": bool(evaluation.exact[index]),
        }
        if index in ranking.meets:
            placement["draAligned"] = ranking.meets[index]

        best.append(placement)

    return best


def answer_dict(
    cluster: Cluster,
    pod: Pod,
    ranking: Ranking,
    best: Sequence[dict[str, Any]],
    by: Mapping[str, str],
) -> dict[str, Any]:
    """Return the answer for one pod in JSON's types.

    Args:
        cluster: the nodes.
        pod: the pod.
        ranking: of the nodes.
        best: the best of them, as `placements` has them.
        by: the name of the strategy, or of what else the ranking is by.
    """
    return {
        "pod": pod.name,
        "namespace": pod.namespace,
        **by,
        "nodes": len(cluster),
        "admitting": len(ranking.order),
        "refusals": ranking.refusals,
        "best": best,
        "unmanaged": list(ranking.unmanaged),
        "refused": [
            json_fields(refused, "node", "reason", "cause", "message")
            for refused in ranking.refused
        ],
        "causes": [
            json_fields(group, "reason", "cause", "nodes") | {"count": len(group.nodes)}
            for group in ranking.groups
        ],
    }


def show(answer: Mapping[str, Any], top: int) -> None:
    """Print what a person reads of an answer at a glance.

    Why nodes refuse is said once for all that refuse for equal causes, with the sentence of one of
    them.
    """
    console = make_console()
    label = safe(f"{answer['namespace']}/{answer['pod']}")
    nodes = counted(answer["nodes"], "node")
    console.print(f"{label}: {answer['admitting']} of {nodes} would admit it")

    unmanaged = answer["unmanaged"]
    show_placements(console, answer["best"], unmanaged)
    if unmanaged:
        console.print(f"without NUMA management, so last: {safe(some_of(unmanaged, SHOWN_NAMES))}")

    messages = {refused["node"]: refused["message"] for refused in answer["refused"]}
    for reason, count in answer["refusals"].items():
        console.print(f"{count} would refuse it: {safe(reason)}")
        groups = [group for group in answer["causes"] if group["reason"] == reason]
        for group in groups[:top]:
            cause = group["cause"]
            names = some_of(group["nodes"], SHOWN_NAMES)
            console.print(f"  {counted(group['count'], 'node')}: {safe(cause)} ({safe(names)})")

            example = group["nodes"][0]
            if messages[example] not in {"", cause}:
                console.print(f"    {safe(example)}: {safe(messages[example])}")

        if len(groups) > top:
            console.print(f"  and {counted(len(groups) - top, 'other cause')}")


def show_placements(
    console: Console, best: Sequence[Mapping[str, Any]], unmanaged: Sequence[str]
) -> None:
    """Print the best nodes, with a column for each key that one of them has."""
    keys = [key for key in _COLUMNS if any(key in placement for placement in best)]
    rows = []
    for placement in best:
        cells = {key: _COLUMNS[key][1](placement.get(key)) for key in keys}
        if placement["node"] in unmanaged:
            cells |= {"score": "-", "preferred": "-"}

        rows.append([cells[key] for key in keys])

    if rows:
        headings = (_COLUMNS[key][0] for key in keys)
        print_whole(console, Table(*headings, numbers=("score",), rows=rows))


def koordinator_dict(cluster: Cluster, pod: Pod, profile: str, top: int) -> dict[str, Any]:
    """Return what Koordinator's scheduler answers for one pod, in JSON's types.

    Raises:
        InputError: there is no such profile.
    """
    from alignup.cluster.koordinator import judge_nodes
    from alignup.cluster.ranking import Ranking, Refused

    judgements = judge_nodes(cluster, pod, profile)
    passing = [judgement for judgement in judgements if judgement.admitted]
    passing.sort(key=lambda judgement: -judgement.score)

    best = []
    for judgement in passing[:top]:
        verdict = judgement.verdict
        best.append(
            {
                "node": judgement.node,
                "score": round(judgement.score, 6),
                "policy": verdict.policy or "",
                "numaNodes": None if judgement.numa_nodes is None else list(judgement.numa_nodes),
                "preferred": verdict.affinity is not None and verdict.affinity.preferred,
            }
        )

    refused = [
        Refused(
            judgement.node,
            judgement.verdict.status.code.value,
            judgement.message,
            judgement.message,
        )
        for judgement in judgements
        if not judgement.admitted
    ]
    order = [cluster.index(judgement.node) for judgement in passing]
    ranking = Ranking(tuple(order), (), tuple(refused))
    answer = answer_dict(cluster, pod, ranking, best, {"koordinatorProfile": profile})
    answer["exact"] = bool(cluster.nodes)
    return answer


def replicas_dict(replicas: Mapping[str, int]) -> dict[str, Any]:
    """Return counts of replicas in JSON's types: in all, and by node those that take any.

    There is nothing without counts.
    """
    if not replicas:
        return {}

    by_node = {name: count for name, count in replicas.items() if count}
    return {"replicas": sum(replicas.values()), "replicasByNode": by_node}


def replicas_text(replicas: Mapping[str, int], top: int) -> str:
    """Return how many replicas there is room for, and where the most."""
    sentence = f"{counted(sum(replicas.values()), 'replica')} would fit, one after the other"

    counts = [(name, count) for name, count in replicas.items() if count]
    counts.sort(key=lambda item: -item[1])
    places = ", ".join(f"{count} on {name}" for name, count in counts[:top])
    if not places:
        return sentence

    sentence += f": {one_line(places)}"
    if len(counts) > top:
        sentence += f" and {sum(count for _, count in counts[top:])} on others"

    return sentence


# ---- rank --group


def rank_group(
    cluster: Cluster,
    pods: Sequence[Pod],
    min_members: int | None,
    *,
    strategy: str,
    as_json: bool,
) -> int:
    """Print where the members of a group go; return the exit status.

    Args:
        cluster: made from nodes.
        pods: the members.
        min_members: how many are enough; None: all.
        strategy: see `rank`.
        as_json: print JSON.

    Raises:
        InputError: only amounts are known of the nodes, or more are wanted than there are.
    """
    from alignup.cluster.pod_groups import place_group

    wanted = len(pods) if min_members is None else min_members
    if wanted > len(pods):
        raise InputError.at("--min-members", f"at most {len(pods)}, as many as there are", wanted)

    plan = place_group(cluster, pods, strategy=strategy)
    left_out = answers_for_left_out(cluster, plan, strategy)
    is_enough = len(plan.places) >= wanted
    if as_json:
        members = {"members": len(pods), "minMembers": wanted, "placed": len(plan.places)}
        print_json({**members, **plan.to_dict(), "leftOut": left_out})
        return 0 if is_enough else 1

    console = make_console()
    sign = "✓" if is_enough else "✗"
    sentence = f"{sign} {len(plan.places)} of {counted(len(pods), 'member')} get a place"
    if plan.nodes:
        sentence += f", on {counted(len(plan.nodes), 'node')}"
    if min_members is not None:
        sentence += f"; {wanted} are enough"
    console.print(sentence)

    rows = [
        [place.pod.namespaced_name, place.node, nodes_text(list(place.numa_nodes) or None)]
        for place in plan.places
    ]
    if rows:
        print_whole(console, Table("member", "node", "NUMA nodes", rows=rows))

    for answer in left_out:
        console.print()
        console.print("with these in place:")
        show(answer, SHOWN_GROUP_CAUSES)

    return 0 if is_enough else 1


def answers_for_left_out(cluster: Cluster, plan: GroupPlan, strategy: str) -> list[dict[str, Any]]:
    """Return what the nodes say to each member without a place, once the others are there.

    Members that ask for the same are told the same.
    """
    if not plan.left_out:
        return []

    from alignup.cluster.node_totals import demand_key
    from alignup.cluster.pod_groups import carried_out
    from alignup.cluster.ranking import rank
    from alignup.cluster.shortages import Fit

    occupied = carried_out(cluster, plan)
    fit = Fit(occupied)
    answers: dict[object, dict[str, Any]] = {}
    for pod in plan.left_out:
        kind = demand_key(pod)
        if kind not in answers:
            ranking = rank(occupied, pod, occupied.evaluate(pod, strategy), fit)
            answers[kind] = answer_dict(occupied, pod, ranking, [], {"strategy": strategy})

    return list(answers.values())


# ---- simulate


@options.subcommand("simulate")
def simulate(
    *,
    nodes: str = options.file(
        "Nodes: JSON lines (the keys of a scenario and a name), or NodeResourceTopology objects.",
        *("--nodes", "-n"),
        required=True,
    ),
    pods: str | None = options.file(
        "The trace as JSON lines: a time with admit (and duration), remove, or group.",
        *("--pods", "-p"),
    ),
    generate: int | None = options.number("Generate N arrivals in place of --pods."),
    strategy: str | None = options.word(
        "What makes a node better; see `alignup rank`.  [default: least-numa-nodes; "
        "least-allocated with --blind]",
        options.STRATEGIES,
        *("--strategy", "-s"),
    ),
    blind: bool = options.flag(
        "Let the scheduler see node totals only, like the default scheduler."
    ),
    seed: int = options.value(
        "The seed for choosing between equal nodes and for --generate.",
        default=0,
        show_default=True,
    ),
    attempts: int = options.number("Try N nodes before a pod is given up.", default=1),
    rebalance: float | None = options.seconds(
        "Let pods wait, evict others to make room at most once in SECONDS of the trace, and "
        "compare."
    ),
    version: KubeletVersion | None = options.kubelet_version,
    resources: tuple[str, ...] = options.resources,
    as_json: bool = options.json(),
) -> None:
    """Place a trace of pods on a cluster: a scheduler chooses nodes, which admit or refuse them.

        alignup simulate --nodes nodes.jsonl --generate 1000
        alignup simulate --nodes nodes.jsonl --pods trace.jsonl --blind

    The scheduler ranks the nodes by --strategy, and places the members of a group all or none. With
    --blind, it sees neither NUMA nodes nor groups; compare how much the nodes then refuse, and how
    many groups run in part. With --rebalance, pods that find no node wait, and `alignup
    rebalance` makes room for them. The trace is also played without it, and that result is taken if
    it is better.
    """
    from alignup.cluster.cluster import Cluster
    from alignup.cluster.simulation import Simulation

    if (pods is None) == (generate is None):
        raise click.UsageError("give either --pods or --generate")
    if rebalance is not None and blind:
        raise click.UsageError(
            "--rebalance is for a scheduler that sees NUMA nodes, without --blind"
        )

    cluster = load_cluster(nodes, version, can_admit=True, resources=resources)
    events = trace_of(cluster, pods, generate or 0, seed)
    scheduler = partial(Simulation, strategy=strategy, blind=blind, seed=seed, attempts=attempts)

    def play(simulation: Simulation) -> dict[str, Any]:
        total = len(events) if len(events) >= SHOWN_PROGRESS else None
        with progress("simulating", total) as advance:
            for _ in simulation.steps(events):
                advance(1)

        return simulation.report.to_dict()

    without = None
    if rebalance is not None:
        copies = [node.copy() for node in cluster.nodes]
        copied_cluster = Cluster.from_nodes(dict(zip(cluster.names, copies, strict=True)))
        without = play(scheduler(copied_cluster, waits=True))

    simulation = scheduler(cluster, rebalance=rebalance)
    report = {
        "nodes": len(cluster),
        "strategy": simulation.strategy,
        "blind": blind,
        "seed": seed,
        **play(simulation),
    }
    if without is not None and merit(report) < merit(without):
        report = {
            **report,
            **without,
            "rebalance": rebalance,
            "discarded": {name: report[name] for name in without},
        }
    elif without is not None:
        report |= {"rebalance": rebalance, "without": without}

    if as_json:
        print_json(report)
    else:
        show_simulated(report)


def trace_of(cluster: Cluster, name: str | None, count: int, seed: int) -> list[Event]:
    """Return the trace in a file; None: so many arrivals are generated.

    Raises:
        InputError: there is no event.
    """
    from alignup.cluster.traces import read_trace, synthetic_trace

    if name is None:
        events = synthetic_trace(cluster, count, seed)
        place = "the generated trace"
    else:
        events = read_trace(read_bytes(name, TRACE_LIMIT), name)
        place = name

    if not events:
        raise InputError(f"there is no event in {place}")

    return events


def merit(report: dict[str, Any]) -> tuple[int, float]:
    """Return how good a report is, the higher the better.

    It is how many pods were placed, and how little they waited.
    """
    return report["placed"], -report["waiting"]["mean"]


def show_simulated(report: dict[str, Any]) -> None:
    """Print what a person reads at a glance."""
    console = make_console()
    sight = "node totals only" if report["blind"] else "NUMA nodes"
    console.print(
        f"{counted(report['nodes'], 'node')}, {report['strategy']}, a scheduler that sees {sight}"
    )
    arrivals = report["arrivals"]
    for key, outcome in _OUTCOMES.items():
        if key in report:
            share = report[key] / max(1, arrivals)
            console.print(f"{report[key]:8} of {arrivals} pods ({share:6.1%}) {outcome}")

    if "groups" in report:
        show_groups(console, report["groups"])

    for reason, count in report["refusals"].items():
        console.print(f"{count:8} {'refusal' if count == 1 else 'refusals'}: {reason}")

    causes = report["causes"]
    for cause in causes[:SHOWN_CAUSES]:
        count = cause["count"]
        times = "time" if count == 1 else "times"
        reason = safe(cause["reason"])
        console.print(f"{count:8} {times} a node refused, {reason}: {safe(cause['cause'])}")

    if len(causes) > SHOWN_CAUSES:
        more = len(causes) - SHOWN_CAUSES
        console.print(f"         and {more} other causes; --json has all of them")

    numbers = ("used on average", "at most", "stranded of what was free")
    columns = (report["utilisation"], report["peak"], report["stranded"])
    rows = [
        (name, *(number_in(column[name]) for column in columns)) for name in report["utilisation"]
    ]
    print_whole(console, Table("resource", *numbers, numbers=numbers, rows=rows))

    if "discarded" in report:
        console.print("rebalancing would make it worse, so it was not done:")

    if "rebalance" in report:
        headings = _REBALANCING_NUMBERS
        rows = [
            ("without", *rebalancing_cells(report.get("without", report))),
            ("with", *rebalancing_cells(report.get("discarded", report))),
        ]
        print_whole(console, Table("rebalancing (s)", *headings, numbers=headings, rows=rows))


def show_groups(console: Console, groups: Mapping[str, Any]) -> None:
    """Print how many groups of a trace ran whole, and why the others did not."""
    console.print(
        f"{counted(groups['groups'], 'group')}: {groups['whole']} whole, {groups['partly']} in "
        f"part, {groups['none']} not at all"
    )
    not_whole = groups["notWhole"]
    for outcome in not_whole[:SHOWN_GROUPS]:
        console.print(f"  {safe(outcome['group'])}: {safe(outcome['reason'])}")

    if len(not_whole) > SHOWN_GROUPS:
        more = counted(len(not_whole) - SHOWN_GROUPS, "other group")
        console.print(f"  and {more}; --json has all of them")


def rebalancing_cells(report: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a report under the headings of `_REBALANCING_NUMBERS`."""
    waiting = report["waiting"]
    return (
        str(report["placed"]),
        number_in(waiting["pods"], "d"),
        number_in(waiting["mean"], ".1f"),
        number_in(waiting["longest"], ".0f"),
        number_in(waiting["evictions"], "d"),
        number_in(report["utilisation"].get("cpu")),
        number_in(report["stranded"].get("cpu")),
    )
