"""Judges a pod on all watched nodes at once: one answer over nodes that are known exactly and nodes known by amounts.

Keeps the two clusters that do so in step with the members; the members know what happened on their nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from alignup.cluster.cluster import Cluster
from alignup.cluster.evaluation import Evaluation
from alignup.cluster.reasons import Layouts, layouts_of, refusal_texts
from alignup.cluster.rows import NodeAmounts, row_of_amounts, row_of_node
from alignup.koordinator.effective import pod_policy
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.node import Node
from alignup.scheduler.amounts_member import AmountsMember, emptied
from alignup.scheduler.exact_member import ExactMember

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from alignup.kubernetes.pod import Pod

__all__ = ["Judgement", "Member", "View"]

Member = ExactMember | AmountsMember
_Empty = Node | NodeAmounts


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The answer of all nodes to a pod, by the view's numbers of the nodes."""

    admitted: npt.NDArray[np.bool_]
    score: npt.NDArray[np.float64]
    answers: tuple[Evaluation | None, Evaluation | None]
    """Of the nodes that are known exactly, which come first, and of the others."""


class _Part:
    """The cluster of the members of one kind; its rows outlive changes of membership."""

    __slots__ = ("_layouts", "cluster", "empties", "kinds", "names")

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.empties: Cluster | None = None
        self.names: tuple[str, ...] = ()
        self.kinds: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._layouts: Layouts | None = None

    @property
    def layouts(self) -> Layouts:
        """The layout of each member."""
        if self._layouts is None:
            self._layouts = layouts_of(self.cluster)
        return self._layouts

    def fill(self, names: tuple[str, ...], cluster: Cluster | None, empty: list[_Empty]) -> None:
        """Take other members.

        Args:
            names: their names.
            cluster: their cluster; None if there is none.
            empty: each without pods; those that are equal, or one object, are judged once.
        """
        self.names, self.cluster, self._layouts = names, cluster, None
        kinds: dict[object, int] = {}
        keys = [id(one) if isinstance(one, Node) else _key(one) for one in empty]
        self.kinds = np.array([kinds.setdefault(key, len(kinds)) for key in keys], np.intp)
        first = dict(zip(reversed(keys), reversed(empty), strict=True))
        self.empties = _cluster({f"kind-{number}": first[key] for key, number in kinds.items()})


def _cluster(found: Mapping[str, _Empty]) -> Cluster | None:
    """Return the cluster of nodes, or of amounts; None if there are none."""
    if not found:
        return None
    nodes = [one for one in found.values() if isinstance(one, Node)]
    rows = [row_of_node(one) if isinstance(one, Node) else row_of_amounts(one) for one in found.values()]
    return Cluster(tuple(found), rows, nodes)


def _key(amounts: NodeAmounts) -> object:
    """Return a key that equal amounts share."""
    parts = (amounts.memory, amounts.devices)
    return (
        amounts.numa_nodes,
        amounts.policy,
        amounts.scope,
        amounts.cpus,
        *[tuple(sorted(part.items())) for part in parts],
        amounts.distances,
    )


class View:
    """All members, numbered: first those that are known exactly."""

    __slots__ = ("_amounts", "_exact", "_index", "_is_stale", "members", "version")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._exact, self._amounts = _Part(), _Part()
        self._index: dict[str, int] = {}
        self._is_stale = False
        self.version = 0
        """Counts changes: what was judged under the same number still holds."""

    def touch(self) -> None:
        """Note that pods came to a member or left it."""
        self.version += 1

    def put(self, member: Member) -> None:
        """Add a member, or put it in the place of the one of its name."""
        self.members[member.name] = member
        self._is_stale = True
        self.touch()

    def drop(self, name: str) -> None:
        """Forget a member; an unknown name is no error."""
        if self.members.pop(name, None) is not None:
            self._is_stale = True
            self.touch()

    def refresh(self, member: Member) -> None:
        """Note that a member has other amounts, or another node object, than before."""
        self.touch()
        if self._is_stale:
            return
        cluster = (self._exact if isinstance(member, ExactMember) else self._amounts).cluster
        if cluster is not None:
            cluster.update(member.name, member.node if isinstance(member, ExactMember) else member.amounts)

    def numbers(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the number of each node; -1 for one that is not known."""
        self._settle()
        return np.fromiter(map(self._index.get, names, repeat(-1)), np.int64, len(names))

    def judge(self, pod: Pod, strategy: str) -> Judgement:
        """Return what each node says to a pod.

        Raises:
            InputError: the pod asks for too many resources, or its annotation of a NUMA policy cannot be read.
        """
        self._settle()
        answers = tuple(
            None if part.cluster is None else part.cluster.evaluate(pod, strategy)
            for part in (self._exact, self._amounts)
        )
        there = [answer for answer in answers if answer is not None]
        if not there:
            return Judgement(np.zeros(0, np.bool_), np.zeros(0), (None, None))
        return Judgement(
            np.concatenate([answer.admitted for answer in there]),
            np.concatenate([answer.score for answer in there]),
            (answers[0], answers[1]),
        )

    def affinity(self, pod: Pod, name: str, strategy: str) -> int:
        """Return the NUMA nodes where a member that is known by amounts would place a pod; 0: anywhere, or nowhere.

        Raises:
            InputError: as `judge`.
        """
        self._settle()
        cluster = self._amounts.cluster
        if cluster is None:
            return 0
        number = cluster.index(name)
        answer = Evaluation.empty(len(cluster))
        cluster.judge(cluster.job(pod), pod, strategy, answer, number, number + 1)
        return int(answer.affinity[number])

    def texts(self, pod: Pod, judged: Judgement, numbers: npt.NDArray[np.int64]) -> list[str]:
        """Return why each of some nodes, all of which refuse the pod, does so; in ascending order of their numbers."""
        own = pod_policy(pod)
        policy = -1 if own is None or own.policy == "none" else TOPOLOGY_POLICIES.index(own.policy)
        texts: list[str] = []
        first = 0
        for part, answer in zip((self._exact, self._amounts), judged.answers, strict=True):
            mine = numbers[(numbers >= first) & (numbers < first + len(part.names))] - first
            if part.cluster is not None and answer is not None and len(mine):
                texts += refusal_texts(part.cluster, part.layouts, pod, answer, mine, policy)
            first += len(part.names)
        return texts

    def empty_admits(self, pod: Pod, strategy: str) -> npt.NDArray[np.bool_]:
        """Return which nodes would admit the pod if no other pod were there."""
        self._settle()
        found = [
            part.empties.evaluate(pod, strategy).admitted[part.kinds]
            for part in (self._exact, self._amounts)
            if part.empties is not None
        ]
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def _settle(self) -> None:
        """Build the clusters anew after nodes came or went."""
        if not self._is_stale:
            return
        exact = {name: one for name, one in self.members.items() if isinstance(one, ExactMember)}
        amounts = {name: one for name, one in self.members.items() if isinstance(one, AmountsMember)}
        nodes = _cluster({name: one.node for name, one in exact.items()})
        self._exact.fill(tuple(exact), nodes, [one.template for one in exact.values()])
        rows = _cluster({name: one.amounts for name, one in amounts.items()})
        self._amounts.fill(tuple(amounts), rows, [emptied(one.topology.amounts) for one in amounts.values()])
        self._index = {name: number for number, name in enumerate((*exact, *amounts))}
        self._is_stale = False
