"""`alignup rank`: prints the best nodes of a cluster for a pod, and why the others refuse it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alignup.cli.completion import files
from alignup.cli.inputs import read_bytes, read_pods
from alignup.cli.options import STRATEGIES, WholeNumber, kubelet_version_option
from alignup.cli.terminal import counted, make_console, make_table, nodes_text, print_whole, safe
from alignup.errors import InputError
from alignup.machine.bits import bit_numbers

if TYPE_CHECKING:
    from rich.console import Console

    from alignup.cluster import Cluster, Evaluation
    from alignup.cluster.ranking import Ranking
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion

__all__ = ["command", "load_cluster"]

SHOWN_NAMES = 5


@click.command(
    name="rank",
    epilog="Exit status: 0 if some node would admit a pod; 1 if none would; 2 bad usage or bad input.",
)
@click.option(
    "--nodes",
    "-n",
    required=True,
    metavar="FILE",
    shell_complete=files,
    help="Nodes as JSON lines, or NodeResourceTopology objects in YAML or JSON; Node objects beside them tell the "
    "kubelets' releases.",
)
@click.option(
    "--strategy",
    "-s",
    default="least-numa-nodes",
    show_default=True,
    metavar=f"[{'|'.join(STRATEGIES)}]",
    help="How placements are scored, higher for better: few NUMA nodes, much or little left on them, the parts of "
    "CPU, memory and devices in balance, or as Koordinator's design document does.",
)
@click.option("--top", default=10, show_default=True, type=WholeNumber(min=0), help="How many nodes to show.")
@click.option(
    "--threads", default=1, show_default=True, type=WholeNumber(min=1, max=256), help="Threads to use."
)
@click.option(
    "--exact", is_flag=True, help="Where amounts cannot tell, ask the node itself (JSON lines only)."
)
@click.option(
    "--koordinator-profile",
    metavar="[document|scheduler]",
    help="Filter and score as Koordinator's scheduler: `document` (its design) or `scheduler` (as released).",
)
@kubelet_version_option
@click.option(
    "--replicas",
    "counts",
    is_flag=True,
    help="Count how many replicas of the pod the nodes could take, up to 110 pods a node, a kubelet's default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a pod, and nothing else.")
@click.argument("pods", nargs=-1, required=True, metavar="POD.yaml...", shell_complete=files)
@click.pass_context
def command(
    ctx: click.Context,
    nodes: str,
    strategy: str,
    top: int,
    threads: int,
    exact: bool,
    koordinator_profile: str | None,
    version: KubeletVersion | None,
    counts: bool,
    as_json: bool,
    pods: tuple[str, ...],
) -> None:
    """Show which nodes of a cluster would admit a pod, the best first. No pod is placed; each is judged by itself.

    A node counts if its kubelet would admit the pod and it has enough of everything in sum. Nodes without NUMA
    management come last, equal nodes in the order of the file. `certain` is no where only amounts are known of a
    node, which may refuse the pod all the same; counts of replicas are then upper bounds. Strategies are for
    kubelets; under --koordinator-profile the profile filters and scores.
    """
    import msgspec

    from alignup.cli.rank_replicas import count_replicas, nodes_to_fill, replicas_dict, show_replicas
    from alignup.cluster.node_totals import Fit
    from alignup.cluster.ranking import rank

    cluster = load_cluster(nodes, version)
    asking = read_pods(pods, replicas=1, one_node=False)
    if koordinator_profile is not None:
        from alignup.cli.rank_koordinator import rank_pods

        ctx.exit(0 if rank_pods(cluster, asking, koordinator_profile, top, as_json=as_json) else 1)
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
    ctx.exit(0 if most else 1)


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
                yes_or_no(one["preferred"]) if aligns else "-",
                yes_or_no(one["exact"]),
            )
        print_whole(console, table)
    if ranking.unmanaged:
        named = ", ".join(ranking.unmanaged[:SHOWN_NAMES])
        more = len(ranking.unmanaged) - SHOWN_NAMES
        console.print(
            f"without NUMA management, so last: {safe(named)}{f' and {more} more' if more > 0 else ''}"
        )
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


def yes_or_no(value: bool) -> str:
    """Return a truth as a table shows it."""
    return "yes" if value else "no"
