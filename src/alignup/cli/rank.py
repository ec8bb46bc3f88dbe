"""`alignup rank`: prints the best nodes of a cluster for a pod, and why the others refuse it.

With `--koordinator-profile` it prints how Koordinator's scheduler would filter and score the nodes, and with
`--replicas` how many replicas of the pod they could take.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alignup.cli.inputs import read_bytes, read_pods
from alignup.cli.options import (
    WholeNumber,
    file_arguments,
    flag,
    json_option,
    kubelet_version_option,
    nodes_option,
    option,
    strategy_option,
    subcommand,
    word_option,
)
from alignup.cli.terminal import make_console, make_table, nodes_text, print_whole, safe
from alignup.errors import InputError
from alignup.machine.bits import bit_numbers
from alignup.text.byte_sizes import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.cli.terminal import Console
    from alignup.cluster import Cluster, Evaluation
    from alignup.cluster.koordinator import NodeVerdict
    from alignup.cluster.ranking import Ranking
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node

SHOWN_NAMES = 5
YES = {True: "yes", False: "no"}


@subcommand("rank", "0 if some node would admit a pod; 1 if none would")
def command(
    *,
    nodes: str = nodes_option,
    strategy: str = strategy_option,
    top: int = option("How many nodes to show.", default=10, type=WholeNumber(min=0)),
    threads: int = option("Threads to use.", default=1, type=WholeNumber(min=1, max=256)),
    exact: bool = flag("Where amounts cannot tell, ask the node itself (JSON lines only)."),
    koordinator_profile: str | None = word_option(
        "Filter and score as Koordinator's scheduler: `document` (its design) or `scheduler` (as released).",
        ("document", "scheduler"),
    ),
    version: KubeletVersion | None = kubelet_version_option,
    counts: bool = flag(
        "Count how many replicas of the pod the nodes could take, up to 110 pods a node, a kubelet's default.",
        "--replicas",
    ),
    as_json: bool = json_option("a pod"),
    pods: tuple[str, ...] = file_arguments("POD.yaml...", required=True),
) -> int:
    """Show which nodes of a cluster would admit a pod, the best first. No pod is placed; each is judged by itself.

    A node counts if its kubelet would admit the pod and it has enough of everything in sum. Nodes without NUMA
    management come last, equal nodes in the order of the file. `certain` is no where only amounts are known of a
    node, which may refuse the pod all the same; counts of replicas are then upper bounds. Strategies are for
    kubelets; under --koordinator-profile the profile filters and scores.
    """
    import msgspec

    from alignup.cluster.node_totals import Fit
    from alignup.cluster.ranking import rank

    cluster = load_cluster(nodes, version)
    asking = read_pods(pods, replicas=1, one_node=False)
    if koordinator_profile is not None:
        return 0 if rank_pods(cluster, asking, koordinator_profile, top, as_json=as_json) else 1
    again = partial(load_cluster, nodes, version, can_admit=True)
    members = nodes_to_fill(cluster, nodes, again) if counts else ()
    fit, most = Fit(cluster), 0
    for number, pod in enumerate(asking):
        answer = cluster.evaluate(pod, strategy, threads=threads, exact=exact)
        ranking = rank(cluster, pod, answer, fit)
        most, replicas = max(most, len(ranking.order)), count_replicas(cluster, members, pod)
        if as_json:
            told = answer_dict(cluster, pod, answer, ranking, strategy, top) | replicas_dict(replicas)
            click.echo(msgspec.json.encode(told))
            continue
        click.echo(nl=number > 0)
        show(cluster, pod, answer, ranking, top)
        show_replicas(replicas, top)
    return 0 if most else 1


def load_cluster(name: str, version: KubeletVersion | None = None, *, can_admit: bool = False) -> Cluster:
    """Return the cluster in a file: JSON lines of nodes, or NodeResourceTopology objects; bad ones are warned of.

    Args:
        name: of the file.
        version: the release of all kubelets; None: what node lines or Node objects say, or the newest known.
        can_admit: make nodes up where only amounts are known, so that pods can be admitted.

    Raises:
        InputError: it holds neither.
    """
    from alignup.cluster import Cluster

    data = read_bytes(name)
    if is_json_lines(data):
        return Cluster.from_json_lines(data, name, skip_bad=True, kubelet_version=version)
    try:
        if can_admit:
            from alignup.node_resource_topology.nodes import nodes_of
            from alignup.node_resource_topology.read import read_topologies

            return Cluster.from_nodes(nodes_of(read_topologies(data, skip_bad=True), version))
        return Cluster.from_node_resource_topologies(data, skip_bad=True, kubelet_version=version)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error


def is_json_lines(data: bytes) -> bool:
    """Return whether the first line that is not blank is a JSON object by itself, and of a node."""
    from alignup.text.json_text import decode_json

    line = data.lstrip().partition(b"\n")[0]
    try:
        first: object = decode_json(line, "a JSON object")
    except InputError:
        return False
    return isinstance(first, dict) and "kind" not in first


def placements(cluster: Cluster, answer: Evaluation, ranking: Ranking, top: int) -> list[dict[str, Any]]:
    """Return the best nodes in JSON's types; NUMA nodes by the kernel's ids where these are known."""
    found = []
    for index in ranking.order[:top].tolist():
        mask = int(answer.affinity[index])
        ids = cluster.nodes[index].machine.numa_node_ids if cluster.nodes else range(64)
        found.append(
            {
                "node": cluster.names[index],
                "score": round(float(answer.score[index]), 6),
                "numaNodes": [ids[position] for position in bit_numbers(mask)] or None,
                "preferred": bool(answer.preferred[index]),
                "exact": bool(answer.exact[index]),
            }
        )
    return found


def answer_dict(
    cluster: Cluster, pod: Pod, answer: Evaluation, ranking: Ranking, strategy: str, top: int
) -> dict[str, Any]:
    """Return the answer for one pod in JSON's types."""
    return {
        "pod": pod.name,
        "namespace": pod.namespace,
        "strategy": strategy,
        "nodes": len(cluster),
        "admitting": len(ranking.order),
        "refusals": ranking.refusals,
        "best": placements(cluster, answer, ranking, top),
        "unmanaged": list(ranking.unmanaged),
        "refused": [
            {"node": one.node, "reason": one.reason, "cause": one.cause, "message": one.message}
            for one in ranking.refused
        ],
        "causes": [
            {"reason": one.reason, "cause": one.cause, "count": len(one.nodes), "nodes": list(one.nodes)}
            for one in ranking.groups
        ],
    }


def show(cluster: Cluster, pod: Pod, answer: Evaluation, ranking: Ranking, top: int) -> None:
    """Print what a person reads at a glance."""
    console = make_console()
    label = safe(f"{pod.namespace}/{pod.name}")
    console.print(f"{label}: {len(ranking.order)} of {counted(len(cluster), 'node')} would admit it")
    best = placements(cluster, answer, ranking, top)
    if best:
        table = make_table("node", "score", "NUMA nodes", "preferred", "certain", numbers=("score",))
        for one in best:
            aligns = one["node"] not in ranking.unmanaged
            table.add_row(
                safe(one["node"]),
                f"{one['score']:.2f}" if aligns else "-",
                nodes_text(one["numaNodes"]),
                YES[one["preferred"]] if aligns else "-",
                YES[one["exact"]],
            )
        print_whole(console, table)
    if ranking.unmanaged:
        named = ", ".join(ranking.unmanaged[:SHOWN_NAMES])
        more = len(ranking.unmanaged) - SHOWN_NAMES
        console.print(f"without NUMA management, so last: {safe(named)}{f' and {more} more' if more > 0 else ''}")
    show_refusals(console, ranking, top)


def show_refusals(console: Console, ranking: Ranking, top: int) -> None:
    """Print why nodes refuse, once for all that refuse for equal causes, with the sentence of one of them."""
    for reason, count in ranking.refusals.items():
        console.print(f"{count} would refuse it: {safe(reason)}")
        groups = [group for group in ranking.groups if group.reason == reason]
        for group in groups[:top]:
            names = ", ".join(group.nodes[:SHOWN_NAMES])
            more = f" and {len(group.nodes) - SHOWN_NAMES} more" if len(group.nodes) > SHOWN_NAMES else ""
            console.print(f"  {counted(len(group.nodes), 'node')}: {safe(group.cause)} ({safe(names)}{more})")
            if group.message:
                console.print(f"    {safe(group.nodes[0])}: {safe(group.message)}")
        if len(groups) > top:
            console.print(f"  and {counted(len(groups) - top, 'other cause')}")


SHOWN_REFUSALS = 10
"""The number of refused nodes that a person is shown; JSON has them all."""


def rank_pods(cluster: Cluster, pods: Iterable[Pod], profile: str, top: int, *, as_json: bool) -> bool:
    """Print the nodes for each pod, the best first, and return whether any node takes any pod.

    Raises:
        InputError: there is no such profile.
    """
    import msgspec

    from alignup.cluster.koordinator import judge_nodes

    found = False
    for pod in pods:
        verdicts = judge_nodes(cluster, pod, profile)
        found = found or any(one.admitted for one in verdicts)
        if as_json:
            answer = koordinator_dict(pod, verdicts, profile, top) | {"exact": bool(cluster.nodes)}
            click.echo(msgspec.json.encode(answer))
        else:
            show_koordinator(pod, verdicts, top)
    return found


def best_of(verdicts: Sequence[NodeVerdict], top: int) -> list[NodeVerdict]:
    """Return the nodes that pass, best score first, then in the cluster's order."""
    return sorted([one for one in verdicts if one.admitted], key=lambda one: -one.score)[:top]


def koordinator_dict(pod: Pod, verdicts: Sequence[NodeVerdict], profile: str, top: int) -> dict[str, Any]:
    """Return the answer for one pod in JSON's types."""
    refused = [one for one in verdicts if not one.admitted]
    return {
        "pod": pod.name,
        "namespace": pod.namespace,
        "koordinatorProfile": profile,
        "nodes": len(verdicts),
        "admitting": len(verdicts) - len(refused),
        "refusals": dict(sorted(Counter(one.verdict.status.code.value for one in refused).items())),
        "best": [
            {
                "node": one.node,
                "score": round(one.score, 6),
                "policy": one.verdict.policy or "",
                "numaNodes": None if one.numa_nodes is None else list(one.numa_nodes),
                "preferred": one.preferred,
            }
            for one in best_of(verdicts, top)
        ],
        "refused": [
            {"node": one.node, "reason": one.verdict.status.code.value, "message": one.message} for one in refused
        ],
    }


def show_koordinator(pod: Pod, verdicts: Sequence[NodeVerdict], top: int) -> None:
    """Print the answer for one pod as a table, and below it the refused nodes."""
    console = make_console()
    refused = [one for one in verdicts if not one.admitted]
    taking = len(verdicts) - len(refused)
    console.print(f"{safe(f'{pod.namespace}/{pod.name}')}: {taking} of {len(verdicts)} nodes pass")
    best = best_of(verdicts, top)
    if best:
        table = make_table("node", "score", "policy", "NUMA nodes", "preferred", numbers=("score",))
        for one in best:
            ids = "any" if one.numa_nodes is None else ",".join(map(str, one.numa_nodes))
            row = (one.verdict.policy or "none", ids, YES[one.preferred])
            table.add_row(safe(one.node), f"{one.score:.2f}", *row)
        print_whole(console, table)
    for one in refused[:SHOWN_REFUSALS]:
        console.print(f"{safe(one.node)}: {one.verdict.status.code.value}: {safe(one.message)}")
    if len(refused) > SHOWN_REFUSALS:
        console.print(f"and {len(refused) - SHOWN_REFUSALS} more refused nodes; --json has them all")


def nodes_to_fill(cluster: Cluster, name: str, load_again: Callable[[], Cluster]) -> tuple[Node, ...]:
    """Return nodes that can admit pods, made up where only amounts are known.

    Args:
        cluster: as it was read.
        name: the name of its file.
        load_again: reads the file into a cluster of nodes.

    Raises:
        UsageError: they would have to be read from standard input a second time.
    """
    if cluster.nodes:
        return cluster.nodes
    if name == "-":
        raise click.UsageError("--replicas needs a file, got standard input, which is read only once")
    return load_again().nodes


def count_replicas(cluster: Cluster, nodes: Sequence[Node], pod: Pod) -> dict[str, int]:
    """Return how many replicas of a pod each node could take, by name; nothing without nodes."""
    from alignup.cluster.ranking import replicas_that_fit

    return dict(zip(cluster.names, replicas_that_fit(nodes, pod), strict=False))


def replicas_dict(replicas: Mapping[str, int]) -> dict[str, Any]:
    """Return counts of replicas in JSON's types: in all, and by node those that take any; nothing without counts."""
    if not replicas:
        return {}
    return {
        "replicas": sum(replicas.values()),
        "replicasByNode": {name: count for name, count in replicas.items() if count},
    }


def show_replicas(replicas: Mapping[str, int], top: int) -> None:
    """Print how many replicas there is room for, and where the most; nothing without counts."""
    if not replicas:
        return
    console = make_console()
    most = sorted((item for item in replicas.items() if item[1]), key=lambda item: -item[1])
    named = ", ".join(f"{count} on {name}" for name, count in most[:top])
    more = f" and {sum(count for _, count in most[top:])} on others" if len(most) > top else ""
    where = f": {safe(named)}{more}" if named else ""
    console.print(f"{counted(sum(replicas.values()), 'replica')} would fit, one after the other{where}")
