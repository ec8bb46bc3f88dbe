"""Prints how Koordinator's scheduler would filter and score the nodes of a cluster, for `alignup rank`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from alignup.cli.terminal import make_console, make_table, print_whole, safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from alignup.cluster import Cluster
    from alignup.cluster.koordinator import NodeVerdict
    from alignup.kubernetes.pod import Pod

__all__ = ["rank_pods"]

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
            answer = answer_dict(pod, verdicts, profile, top) | {"exact": bool(cluster.nodes)}
            click.echo(msgspec.json.encode(answer))
        else:
            show(pod, verdicts, top)
    return found


def best_of(verdicts: Sequence[NodeVerdict], top: int) -> list[NodeVerdict]:
    """Return the nodes that pass, best score first, then in the cluster's order."""
    return sorted([one for one in verdicts if one.admitted], key=lambda one: -one.score)[:top]


def answer_dict(pod: Pod, verdicts: Sequence[NodeVerdict], profile: str, top: int) -> dict[str, Any]:
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
                "preferred": one.verdict.affinity is not None and one.verdict.affinity.preferred,
            }
            for one in best_of(verdicts, top)
        ],
        "refused": [
            {"node": one.node, "reason": one.verdict.status.code.value, "message": one.message}
            for one in refused
        ],
    }


def show(pod: Pod, verdicts: Sequence[NodeVerdict], top: int) -> None:
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
            preferred = one.verdict.affinity is not None and one.verdict.affinity.preferred
            row = (one.verdict.policy or "none", ids, "yes" if preferred else "no")
            table.add_row(safe(one.node), f"{one.score:.2f}", *row)
        print_whole(console, table)
    for one in refused[:SHOWN_REFUSALS]:
        console.print(
            f"{safe(one.node)}: {one.verdict.status.code.value}: {safe(one.message)}", soft_wrap=True
        )
    if len(refused) > SHOWN_REFUSALS:
        console.print(f"and {len(refused) - SHOWN_REFUSALS} more refused nodes; --json has them all")
