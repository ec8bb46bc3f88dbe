"""`alignup rank`: a cluster and a pod in, the best nodes out, and why the others said no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alignup.cli.inputs import read_bytes, read_pods
from alignup.cli.terminal import make_console, make_table, nodes_text, safe
from alignup.errors import InputError
from alignup.machine.bits import bit_numbers

if TYPE_CHECKING:
    from alignup.cluster import Cluster, Evaluation
    from alignup.kubernetes.pod import Pod

__all__ = ["command", "load_cluster"]


@click.command(
    name="rank",
    epilog="Exit status: 0 if some node would admit a pod; 1 if none would; 2 bad usage or bad input.",
)
@click.option(
    "--nodes",
    "-n",
    required=True,
    metavar="FILE",
    help="Nodes as JSON lines, or NodeResourceTopology objects in YAML or JSON.",
)
@click.option(
    "--strategy", "-s", default="least-numa-nodes", show_default=True, help="How placements are scored."
)
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(min=0), help="How many nodes to show."
)
@click.option(
    "--threads", default=1, show_default=True, type=click.IntRange(min=1, max=256), help="Threads to use."
)
@click.option(
    "--exact", is_flag=True, help="Where amounts cannot tell, ask the node itself (JSON lines only)."
)
@click.option(
    "--koordinator-profile",
    metavar="PROFILE",
    help="Filter and score as Koordinator's scheduler: `document` (its design) or `scheduler` (as released).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a pod, and nothing else.")
@click.argument("pods", nargs=-1, required=True, metavar="POD.yaml...")
@click.pass_context
def command(
    ctx: click.Context,
    nodes: str,
    strategy: str,
    top: int,
    threads: int,
    exact: bool,
    koordinator_profile: str | None,
    as_json: bool,
    pods: tuple[str, ...],
) -> None:
    """Show which nodes of a cluster would admit a pod, the best first. No pod is placed; each is judged by itself.

    Strategies: least-numa-nodes, least-allocated, most-allocated, balanced-allocation, document. They are for
    kubelets; under --koordinator-profile the profile scores.
    """
    import msgspec

    cluster = load_cluster(nodes)
    if koordinator_profile is not None:
        from alignup.cli.rank_koordinator import rank_pods

        taken = rank_pods(cluster, read_pods(pods), koordinator_profile, top, as_json=as_json)
        ctx.exit(0 if taken else 1)
    found = False
    for pod in read_pods(pods, replicas=1, one_node=False):
        answer = cluster.evaluate(pod, strategy, threads=threads, exact=exact)
        found = found or bool(answer.admitted.any())
        if as_json:
            click.echo(msgspec.json.encode(answer_dict(cluster, pod, answer, strategy, top)))
        else:
            show(cluster, pod, answer, top)
    ctx.exit(0 if found else 1)


def load_cluster(name: str) -> Cluster:
    """Return the cluster in a file: JSON lines of nodes, or NodeResourceTopology objects.

    Raises:
        InputError: it holds neither.
    """
    from alignup.cluster import Cluster

    data = read_bytes(name)
    if is_json_lines(data):
        return Cluster.from_json_lines(data, name)
    try:
        return Cluster.from_node_resource_topologies(data)
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


def placements(cluster: Cluster, answer: Evaluation, top: int) -> list[dict[str, Any]]:
    """Return the best nodes as JSON can hold them; NUMA nodes by the kernel's ids where these are known."""
    found = []
    for index in answer.best(top).tolist():
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


def answer_dict(cluster: Cluster, pod: Pod, answer: Evaluation, strategy: str, top: int) -> dict[str, Any]:
    """Return the answer for one pod as JSON can hold it."""
    return {
        "pod": pod.name,
        "namespace": pod.namespace,
        "strategy": strategy,
        "nodes": len(cluster),
        "admitting": int(answer.admitted.sum()),
        "refusals": answer.refusals(),
        "best": placements(cluster, answer, top),
    }


def show(cluster: Cluster, pod: Pod, answer: Evaluation, top: int) -> None:
    """Print what a person reads at a glance."""
    console = make_console()
    label = safe(f"{pod.namespace}/{pod.name}")
    console.print(f"{label}: {int(answer.admitted.sum())} of {len(cluster)} nodes would admit it")
    best = placements(cluster, answer, top)
    if best:
        table = make_table("node", "score", "NUMA nodes", "preferred", "certain", numbers=("score",))
        for one in best:
            certain = yes_or_no(one["exact"])
            table.add_row(
                safe(one["node"]),
                f"{one['score']:.2f}",
                nodes_text(one["numaNodes"]),
                yes_or_no(one["preferred"]),
                certain,
            )
        console.print(table)
    for reason, count in answer.refusals().items():
        console.print(f"{count} would refuse it: {reason}")


def yes_or_no(value: bool) -> str:
    """Return a truth as a table shows it."""
    return "yes" if value else "no"
