"""`alignup rank --replicas`: prints how many replicas of a pod the nodes of a cluster could take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alignup.cli.terminal import counted, make_console, safe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.cluster import Cluster
    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

__all__ = ["count_replicas", "nodes_to_fill", "replicas_dict", "show_replicas"]


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
