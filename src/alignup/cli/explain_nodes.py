"""Finds the nodes of a cluster that would take a pod now, for `alignup explain --nodes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.cli.rank import load_cluster, placements
from alignup.cli.terminal import counted
from alignup.cluster.node_totals import Fit
from alignup.cluster.ranking import rank

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion

__all__ = ["OtherNodes", "taking_words"]

MOST_NODES: Final = 10


class OtherNodes:
    """The nodes in a file, as `alignup rank` takes them.

    Raises:
        InputError: the file holds none.
    """

    def __init__(self, name: str, version: KubeletVersion | None) -> None:
        self._cluster = load_cluster(name, version)
        self._fit = Fit(self._cluster)

    def taking(self, pod: Pod) -> dict[str, Any]:
        """Return how many nodes there are, how many of them would take the pod, and the best ones, in JSON's types."""
        answer = self._cluster.evaluate(pod)
        ranking = rank(self._cluster, pod, answer, self._fit)
        return {
            "nodes": len(self._cluster),
            "admitting": len(ranking.order),
            "best": placements(self._cluster, answer, ranking, MOST_NODES),
        }


def taking_words(taking: dict[str, Any]) -> str:
    """Return the same as a line for people."""
    names = ", ".join(
        one["node"] + ("" if one["exact"] else " (only amounts are known)") for one in taking["best"]
    )
    more = taking["admitting"] - len(taking["best"])
    nodes = counted(taking["nodes"], "other node")
    return (
        f"{taking['admitting']} of {nodes} would take it now"
        + (f": {names}" if names else "")
        + (f" and {more} more" if more > 0 else "")
    )
