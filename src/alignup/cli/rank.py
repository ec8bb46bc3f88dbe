"""`alignup rank` and `simulate`: say which nodes of a cluster are the best for a pod, and how a trace of pods would do.

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
    print_whole,
    progress,
    safe,
)
from alignup.errors import InputError, one_line, warn
from alignup.machine.bits import bit_numbers
from alignup.records import json_fields
from alignup.text.counting import counted, number_in, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.cluster import Cluster, Evaluation
    from alignup.cluster.ranking import Ranking
    from alignup.control_plane.scheduler.ask import AskedCluster
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node

SHOWN_NAMES = 5

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

SHOWN_CAUSES = 10

# Shorter traces are over before a progress bar would be read.
SHOWN_PROGRESS = 2000


@options.subcommand("rank", "0 if some node would admit a pod; 1 if none would")
def command(
    *,
    nodes: str | None = options.nodes_or_cluster,
    kubeconfig: str | None = options.asked_kubeconfig,
    strategy: str = options.strategy,
    top: int = options.number("Show the best N nodes.", 0, default=10),
    threads: int = options.number("Use N threads.", most=256, default=1),
    exact: bool = options.flag(
        "Try the admission on each node that totals alone cannot decide (JSON lines only)."
    ),
    koordinator_profile: str | None = options.koordinator_profile,
    version: KubeletVersion | None = options.kubelet_version,
    counts: bool = options.flag(
        "Count how many replicas of the pod the nodes could take, at most 110 pods per node.",
        "--replicas",
    ),
    resources: tuple[str, ...] = options.resources,
    require_dra_alignment: bool = options.require_dra_alignment,
    as_json: bool = options.json("pod"),
    pods: tuple[str, ...] = options.files("POD.yaml...", required=True),
) -> int:
    """Show which nodes of a cluster would admit a pod, the best first, and why the others refuse it.

        alignup rank --nodes nodes.jsonl pod.yaml
        alignup rank --kubeconfig ~/.kube/config --replicas pod.yaml

    No pod is placed; each is judged by itself. `certain: no` means that the node publishes only
    totals: it may still refuse the pod, and counts of replicas are upper bounds.

    A node counts if its kubelet would admit the pod and if it has enough of everything in total.
    Nodes without NUMA management come last. Equal nodes keep the order of the file. --strategy
    applies to kubelets; with --koordinator-profile, the profile filters and scores.
    """
    from alignup.cluster.node_totals import Fit
    from alignup.cluster.ranking import rank, replicas_that_fit
    from alignup.kubernetes.pod_documents import expanded, live_pods

    if nodes is not None and kubeconfig is not None:
        raise click.UsageError("give either --nodes or --kubeconfig")

    by_amounts: frozenset[str] = frozenset()
    if nodes is None:
        from alignup.control_plane.scheduler.ask import ask, read_cluster

        asked = ask(kubeconfig, read_cluster)
        cluster, by_amounts = asked.cluster(), asked.by_amounts
        say_what_is_unknown(asked)
    else:
        cluster = load_cluster(nodes, version)

    if resources:
        cluster = with_claims(cluster, resources)

    asking = expanded(live_pods(read_pods(pods), None, one_node=False), 1)
    members: Sequence[Node] = ()
    if counts and koordinator_profile is None:
        if not cluster.nodes and nodes == "-":
            raise click.UsageError(
                "--replicas needs a file, got standard input, which is read only once"
            )

        # made up where only amounts are known
        members = cluster.nodes or load_cluster(nodes or "-", version, can_admit=True).nodes

    fit, most = Fit(cluster), 0
    for number, pod in enumerate(asking):
        replicas: dict[str, int] = {}
        if koordinator_profile is not None:
            told = koordinator_dict(cluster, pod, koordinator_profile, top)
        else:
            answer = cluster.evaluate(pod, strategy, threads=threads, exact=exact)
            answer.exact[[cluster.index(name) for name in by_amounts]] = False
            ranking = rank(cluster, pod, answer, fit, require_dra_alignment=require_dra_alignment)
            # nothing without nodes
            replicas = dict(zip(cluster.names, replicas_that_fit(members, pod), strict=False))
            best = placements(cluster, answer, ranking, top)
            told = answer_dict(cluster, pod, ranking, best, {"strategy": strategy}) | replicas_dict(
                replicas
            )

        most = max(most, told["admitting"])
        if as_json:
            print_json(told)
            continue

        click.echo(nl=number > 0)
        show(told, top)
        if replicas:
            click.echo(replicas_text(replicas, top))

    return 0 if most else 1


def load_cluster(
    name: str,
    version: KubeletVersion | None = None,
    *,
    can_admit: bool = False,
    resources: Sequence[str] = (),
) -> Cluster:
    """Return the cluster in a file: JSON lines of nodes, or NodeResourceTopology objects; bad ones are warned of.

    Args:
        name: of the file.
        version: the release of all kubelets; None: what node lines or Node objects say, or the
            newest known.
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
        return Cluster.from_json_lines(data, name, skip_bad=True, kubelet_version=version)

    try:
        if can_admit:
            from alignup.kubelet.node_resource_topology.read import nodes_of, read_topologies

            return Cluster.from_nodes(nodes_of(read_topologies(data, skip_bad=True), version))

        return read_node_resource_topologies(data, skip_bad=True, kubelet_version=version)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error


def say_what_is_unknown(asked: AskedCluster) -> None:
    """Warn of the nodes of a cluster that publish nothing."""
    if asked.unknown:
        warn(
            f"nothing is known of {counted(len(asked.unknown), 'node')}: "
            f"{some_of(asked.unknown, SHOWN_NAMES)}"
        )


def with_claims(cluster: Cluster, resources: Sequence[str]) -> Cluster:
    """Return a cluster whose nodes give pods devices for their claims.

    Raises:
        InputError: only amounts are known of the nodes.
    """
    if not cluster.nodes:
        raise InputError("--resources needs nodes as JSON lines, not NodeResourceTopology objects")
    known = read_resources(resources)
    for name, node in zip(cluster.names, cluster.nodes, strict=True):
        node.know_claims(known, name=name)
        cluster.update(name, node)
    return cluster


def is_json_lines(data: bytes) -> bool:
    """Return whether the first line that is not blank is a JSON object by itself, and of a node."""
    from alignup.text.json_text import decode_json

    try:
        first: object = decode_json(data.lstrip().partition(b"\n")[0], "a JSON object")
    except InputError:
        return False
    return isinstance(first, dict) and "kind" not in first


def placements(
    cluster: Cluster, answer: Evaluation, ranking: Ranking, top: int
) -> list[dict[str, Any]]:
    """Return the best nodes in JSON's types; NUMA nodes by the kernel's ids where these are known."""
    found = []
    for index in ranking.order[:top]:
        ids = cluster.nodes[index].machine.numa_node_ids if cluster.nodes else range(64)
        nodes = [ids[position] for position in bit_numbers(int(answer.affinity[index]))] or None
        told = {
            "node": cluster.names[index],
            "score": round(float(answer.score[index]), 6),
            "numaNodes": nodes,
        }
        sure = {"preferred": bool(answer.preferred[index]), "exact": bool(answer.exact[index])}
        near = {"draAligned": ranking.meets[index]} if index in ranking.meets else {}
        found.append({**told, **sure, **near})

    return found


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
    told: dict[str, Any] = {
        "pod": pod.name,
        "namespace": pod.namespace,
        **by,
        "nodes": len(cluster),
    }
    told |= {"admitting": len(ranking.order), "refusals": ranking.refusals, "best": best}
    told |= {"unmanaged": list(ranking.unmanaged)}
    told["refused"] = [
        json_fields(one, "node", "reason", "cause", "message") for one in ranking.refused
    ]
    causes = [
        json_fields(one, "reason", "cause", "nodes") | {"count": len(one.nodes)}
        for one in ranking.groups
    ]
    return told | {"causes": causes}


def show(told: Mapping[str, Any], top: int) -> None:
    """Print what a person reads of an answer at a glance.

    Why nodes refuse is said once for all that refuse for equal causes, with the sentence of one of
    them.
    """
    console = make_console()
    label = safe(f"{told['namespace']}/{told['pod']}")
    console.print(
        f"{label}: {told['admitting']} of {counted(told['nodes'], 'node')} would admit it"
    )
    best, unmanaged = told["best"], told["unmanaged"]
    keys = [key for key in _COLUMNS if any(key in one for one in best)]
    rows = []
    for one in best:
        unknown = {"score", "preferred"} if one["node"] in unmanaged else set()
        rows.append(["-" if key in unknown else _COLUMNS[key][1](one.get(key)) for key in keys])

    if rows:
        print_whole(
            console, Table(*(_COLUMNS[key][0] for key in keys), numbers=("score",), rows=rows)
        )

    if unmanaged:
        console.print(f"without NUMA management, so last: {safe(some_of(unmanaged, SHOWN_NAMES))}")

    messages = {one["node"]: one["message"] for one in told["refused"]}
    for reason, count in told["refusals"].items():
        console.print(f"{count} would refuse it: {safe(reason)}")
        groups = [one for one in told["causes"] if one["reason"] == reason]
        for one in groups[:top]:
            first, names = one["nodes"][0], some_of(one["nodes"], SHOWN_NAMES)
            console.print(
                f"  {counted(one['count'], 'node')}: {safe(one['cause'])} ({safe(names)})"
            )
            if messages[first] not in {"", one["cause"]}:
                console.print(f"    {safe(first)}: {safe(messages[first])}")

        if len(groups) > top:
            console.print(f"  and {counted(len(groups) - top, 'other cause')}")


def koordinator_dict(cluster: Cluster, pod: Pod, profile: str, top: int) -> dict[str, Any]:
    """Return what Koordinator's scheduler answers for one pod, in JSON's types.

    Raises:
        InputError: there is no such profile.
    """
    from alignup.cluster.koordinator import judge_nodes
    from alignup.cluster.ranking import Ranking, Refused

    verdicts = judge_nodes(cluster, pod, profile)
    passing = sorted((one for one in verdicts if one.admitted), key=lambda one: -one.score)
    failing = (one for one in verdicts if not one.admitted)
    refused = [
        Refused(one.node, one.verdict.status.code.value, one.message, one.message)
        for one in failing
    ]
    best = []
    for one in passing[:top]:
        nodes = None if one.numa_nodes is None else list(one.numa_nodes)
        preferred = one.verdict.affinity is not None and one.verdict.affinity.preferred
        place = {"node": one.node, "score": round(one.score, 6), "policy": one.verdict.policy or ""}
        best.append({**place, "numaNodes": nodes, "preferred": preferred})

    ranking = Ranking(tuple([cluster.index(one.node) for one in passing]), (), tuple(refused))
    return answer_dict(cluster, pod, ranking, best, {"koordinatorProfile": profile}) | {
        "exact": bool(cluster.nodes)
    }


def replicas_dict(replicas: Mapping[str, int]) -> dict[str, Any]:
    """Return counts of replicas in JSON's types: in all, and by node those that take any; nothing without counts."""
    by_node = {name: count for name, count in replicas.items() if count}
    return {"replicas": sum(replicas.values()), "replicasByNode": by_node} if replicas else {}


def replicas_text(replicas: Mapping[str, int], top: int) -> str:
    """Return how many replicas there is room for, and where the most."""
    most = sorted((item for item in replicas.items() if item[1]), key=lambda item: -item[1])
    named = ", ".join(f"{count} on {name}" for name, count in most[:top])
    more = f" and {sum(count for _, count in most[top:])} on others" if len(most) > top else ""
    where = f": {one_line(named)}{more}" if named else ""
    return f"{counted(sum(replicas.values()), 'replica')} would fit, one after the other{where}"


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
        "The trace as JSON lines: a time with admit (and duration) or remove.", *("--pods", "-p")
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
    """Place a trace of pods on a cluster: a scheduler ranks the nodes, and the chosen node admits or refuses.

        alignup simulate --nodes nodes.jsonl --generate 1000
        alignup simulate --nodes nodes.jsonl --pods trace.jsonl --blind

    With --blind, the scheduler does not see NUMA nodes; compare how much the nodes then refuse.
    With --rebalance, pods that find no node wait, and `alignup rebalance` makes room for them. The
    trace is also played without it, and that result is taken if it is better.
    """
    from alignup.cluster.cluster import Cluster
    from alignup.cluster.simulation import Simulation, read_trace, synthetic_trace

    if (pods is None) == (generate is None):
        raise click.UsageError("give either --pods or --generate")
    if rebalance is not None and blind:
        raise click.UsageError(
            "--rebalance is for a scheduler that sees NUMA nodes, without --blind"
        )

    cluster = load_cluster(nodes, version, can_admit=True, resources=resources)
    events = (
        synthetic_trace(cluster, generate or 0, seed)
        if pods is None
        else read_trace(read_bytes(pods), pods)
    )
    if not events:
        raise InputError(f"there is no event in {pods}")

    scheduler = partial(Simulation, strategy=strategy, blind=blind, seed=seed, attempts=attempts)

    def play(simulation: Simulation) -> dict[str, Any]:
        with progress(
            "simulating", len(events) if len(events) >= SHOWN_PROGRESS else None
        ) as advance:
            for _ in simulation.steps(events):
                advance(1)

        return simulation.report.to_dict()

    without = None
    if rebalance is not None:
        copies = [node.copy() for node in cluster.nodes]
        without = play(
            scheduler(Cluster.from_nodes(dict(zip(cluster.names, copies, strict=True))), waits=True)
        )

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


def merit(report: dict[str, Any]) -> tuple[int, float]:
    """Return how good a report is, the higher the better: how many pods were placed, and how little they waited."""
    return report["placed"], -report["waiting"]["mean"]


def show_simulated(report: dict[str, Any]) -> None:
    """Print what a person reads at a glance."""
    console = make_console()
    sight = "node totals only" if report["blind"] else "NUMA nodes"
    console.print(
        f"{counted(report['nodes'], 'node')}, {report['strategy']}, a scheduler that sees {sight}"
    )
    arrivals = max(1, report["arrivals"])
    for key, words in (
        ("placed", "placed"),
        ("noRoom", "found no node with enough in total"),
        ("noAlignment", "found nodes with enough in total, none that could align them"),
        ("refused", "refused by the node that was chosen"),
        ("misaligned", "placed with devices of claims that are not near their CPUs and memory"),
    ):
        if key in report:
            console.print(
                f"{report[key]:8} of {report['arrivals']} pods ({report[key] / arrivals:6.1%}) "
                f"{words}"
            )

    for reason, count in report["refusals"].items():
        console.print(f"{count:8} {'refusal' if count == 1 else 'refusals'}: {reason}")

    for one in report["causes"][:SHOWN_CAUSES]:
        times = "time" if one["count"] == 1 else "times"
        console.print(
            f"{one['count']:8} {times} a node refused, {safe(one['reason'])}: {safe(one['cause'])}"
        )

    if len(report["causes"]) > SHOWN_CAUSES:
        console.print(
            f"         and {len(report['causes']) - SHOWN_CAUSES} other causes; --json has all of "
            "them"
        )

    numbers = ("used on average", "at most", "stranded of what was free")
    columns = (report["utilisation"], report["peak"], report["stranded"])
    rows = (
        (name, *(number_in(column[name]) for column in columns)) for name in report["utilisation"]
    )
    print_whole(console, Table("resource", *numbers, numbers=numbers, rows=rows))
    if "discarded" in report:
        console.print("rebalancing would make it worse, so it was not done:")

    if "rebalance" in report:
        headings = (
            "placed",
            "still wait",
            "waited on average",
            "at most",
            "evictions",
            "CPUs in use",
            "stranded",
        )
        forms = {"pods": "d", "mean": ".1f", "longest": ".0f", "evictions": "d"}
        both = []
        for words, found in (
            ("without", report.get("without", report)),
            ("with", report.get("discarded", report)),
        ):
            waits = (number_in(found["waiting"][key], form) for key, form in forms.items())
            shares = (number_in(found[key].get("cpu")) for key in ("utilisation", "stranded"))
            both.append((words, str(found["placed"]), *waits, *shares))

        print_whole(console, Table("rebalancing (s)", *headings, numbers=headings, rows=both))
