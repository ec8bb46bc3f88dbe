"""Places the pods of a group together: all of them, or as many as there is room for.

A group (a gang, in a scheduler's words) is worth nothing before enough of its members run. So its
members are placed on copies of nodes first, one after the other, and nothing is taken of the
cluster itself.

Members that ask for the same come to as few nodes as can be. How many of them a node takes is found
by admitting them there, as its kubelet would; the node that takes the fewest of those that take all
that are left is chosen, or else the node that takes most. Where members differ, the kinds are
placed one after the other, and other orders of the kinds are tried where one leaves somebody out:
that finds a place for all where each kind fits by itself, and may miss one where only a particular
mixture does.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from alignup.cluster.cluster import AMOUNTS_ONLY, Cluster, Ints
from alignup.cluster.evictions import admitted_numa_nodes
from alignup.cluster.node_totals import Totals, demand_key
from alignup.cluster.ranking import causes_in_words, layouts_of, refusal_texts
from alignup.cluster.shortages import Fit
from alignup.errors import AlignupError, InputError
from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

# Of a node that would take a member if the others were not there.
TAKEN: Final = "node(s) would be taken by other members"

# Orders of the kinds of a group that are tried: all of four kinds.
_MOST_ORDERS: Final = 24


class Place(Record):
    """Where a member of a group goes.

    Attributes:
        node: the name of the node.
        numa_nodes: the kernel's ids of the NUMA nodes of which its containers get CPUs, memory or
            devices.
    """

    pod: Pod
    node: str
    numa_nodes: tuple[int, ...] = ()


class GroupPlan(Record):
    """Where the members of a group go.

    Attributes:
        places: in an order in which kubelets admit them there.
        left_out: the members for which there is no room beside these.
    """

    places: tuple[Place, ...] = ()
    left_out: tuple[Pod, ...] = field(default=())

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, each once, in the order in which they are used."""
        return tuple(dict.fromkeys(place.node for place in self.places))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain objects."""
        return {
            "places": [
                {
                    "pod": place.pod.namespaced_name,
                    "node": place.node,
                    "numaNodes": list(place.numa_nodes),
                }
                for place in self.places
            ],
            "leftOut": [pod.namespaced_name for pod in self.left_out],
        }


class Room(Protocol):
    """What else than NUMA nodes limits how many pods a node takes: sums, counts, taints."""

    def most(self, pod: Pod) -> Ints:
        """Return by node how many copies of a pod it may have beside the pods that came to it."""

    def add(self, index: int, pod: Pod) -> None:
        """Count a pod that came to a node."""

    def fresh(self) -> Room:
        """Return the room as it was before any pod was added."""


class TotalRoom:
    """The room by the sums over whole nodes, as a scheduler counts it.

    Args:
        totals: of the nodes, with the pods that they hold.
    """

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._left = totals.left
        self._pods_left = totals.pods_left.copy()

    def most(self, pod: Pod) -> Ints:
        """See `Room`."""
        request = self._totals.request(pod)
        if request is None:
            return np.zeros(len(self._left), np.int64)

        asked = np.flatnonzero(request)
        counts = np.maximum(self._left[:, asked], 0) // request[asked]
        most: Ints = np.minimum(counts.min(axis=1, initial=np.iinfo(np.int64).max), self._pods_left)
        return np.maximum(most, 0)

    def add(self, index: int, pod: Pod) -> None:
        """See `Room`."""
        request = self._totals.request(pod)
        assert request is not None  # noqa: S101  # there is room for it
        self._left[index] -= request
        self._pods_left[index] -= 1

    def fresh(self) -> TotalRoom:
        """See `Room`."""
        return TotalRoom(self._totals)


def place_group(
    cluster: Cluster,
    pods: Sequence[Pod],
    room: Room | None = None,
    *,
    strategy: str = "least-numa-nodes",
    kind_of: Callable[[Pod], object] = demand_key,
) -> GroupPlan:
    """Return places for the members of a group on as few nodes as can be.

    Args:
        cluster: made from nodes; it stays as it is.
        pods: the members.
        room: what else limits the nodes; None: the sums over their pods.
        strategy: by which of two nodes that serve equally well one is chosen; see `rank`.
        kind_of: what is equal for members of which each may go wherever another one may.

    Raises:
        InputError: the cluster knows amounts only, or there is no such strategy.
    """
    if not cluster.nodes:
        raise InputError(AMOUNTS_ONLY)

    if room is None:
        room = TotalRoom(Totals(cluster.nodes))

    kinds: dict[object, list[Pod]] = {}
    for pod in pods:
        kinds.setdefault(kind_of(pod), []).append(pod)

    # the hardest first: that which fewest nodes take
    openings = {kind: int(room.most(members[0]).sum()) for kind, members in kinds.items()}
    hardest_first = sorted(kinds, key=openings.__getitem__)

    best = GroupPlan(left_out=tuple(pods))
    for order in islice(permutations(hardest_first), _MOST_ORDERS):
        placing = _Placing(cluster, room.fresh(), strategy)
        for kind in order:
            placing.serve(kinds[kind])

        if not placing.left_out:
            return placing.plan()
        if len(placing.left_out) < len(best.left_out):
            best = placing.plan()

    return best


def carried_out(cluster: Cluster, plan: GroupPlan) -> Cluster:
    """Return the cluster as it is with the members of a plan; the one that is given stays."""
    nodes = dict(zip(cluster.names, cluster.nodes, strict=False))
    for name in plan.nodes:
        nodes[name] = nodes[name].copy()
    for place in plan.places:
        nodes[place.node].admit(place.pod)

    return Cluster.from_nodes(nodes)


def causes_of_left_out(
    cluster: Cluster, plan: GroupPlan, pod: Pod, strategy: str = "least-numa-nodes"
) -> Counter[str]:
    """Return how many nodes refuse a member that was left out for what, beside the others.

    Args:
        cluster: made from nodes, without the members.
        plan: of the group.
        pod: one of those that were left out.
        strategy: see `place_group`.
    """
    occupied = carried_out(cluster, plan)
    answer = occupied.evaluate(pod, strategy)
    refusing = np.flatnonzero(~answer.admitted)
    causes = Counter(refusal_texts(occupied, layouts_of(occupied), pod, answer, refusing))
    for index, shortages in enumerate(Fit(occupied).shortages(pod)):
        if answer.admitted[index]:
            causes[shortages[0].cause if shortages else TAKEN] += 1

    return causes


def presence_in_words(present: int, size: int) -> str:
    """Return that not all members of a group have come."""
    return f"{present} of {size} members are there"


def fitting_in_words(fitting: int, members: int) -> str:
    """Return how many members of a group would get places."""
    return f"{fitting} of {members} members fit"


def shortfall_in_words(fitting: int, members: int, left_out: str, causes: Counter[str]) -> str:
    """Return how many members of a group would get places, and what the next one lacks.

    Args:
        fitting: how many would get places.
        members: how many there are.
        left_out: the name of one that has no place beside these.
        causes: why the nodes refuse it then.
    """
    return (
        f"{fitting_in_words(fitting, members)}; with these in place, {left_out} lacks one: "
        f"{causes_in_words(causes)}"
    )


class _Placing:
    """A plan in the making: copies of the nodes that got members."""

    def __init__(self, cluster: Cluster, room: Room, strategy: str) -> None:
        self._cluster = cluster
        self._room = room
        self._strategy = strategy
        # By index, the nodes with the members that came to them.
        self._used: dict[int, Node] = {}
        self._places: list[Place] = []
        self.left_out: list[Pod] = []

    def plan(self) -> GroupPlan:
        return GroupPlan(tuple(self._places), tuple(self.left_out))

    def serve(self, members: Sequence[Pod]) -> None:
        """Place members that ask for the same; those without a place are left out."""
        answer = self._cluster.evaluate(members[0], self._strategy)
        most = self._room.most(members[0])
        capacities = {
            index: _Capacity(self._node(index), members[0], int(most[index]), answer.score[index])
            for index in np.flatnonzero(most).tolist()
            # what a node took before may have changed its answer
            if answer.admitted[index] or index in self._used
        }

        waiting = list(members)
        while waiting and capacities:
            index, count = _best(capacities, len(waiting))
            if not count:
                break

            del capacities[index]
            self._use(index, waiting[:count])
            waiting = waiting[count:]

        self.left_out += waiting

    def _node(self, index: int) -> Node:
        return self._used.get(index) or self._cluster.nodes[index]

    def _use(self, index: int, members: Sequence[Pod]) -> None:
        """Admit members to a node that was found to take them."""
        node = self._used.setdefault(index, self._node(index).copy())
        name = self._cluster.names[index]
        for pod in members:
            admission = node.admit(pod)
            assert admission.admitted, admission.message  # noqa: S101  # a copy did
            self._room.add(index, pod)
            self._places.append(Place(pod, name, admitted_numa_nodes(node, admission)))


class _Capacity:
    """How many copies of a pod a node takes, found out as far as anybody asks.

    Args:
        node: with the members that came to it; it stays as it is.
        pod: one of the members that ask for the same.
        most: how many it takes at most, by sums.
        score: what the strategy says of the first.
    """

    def __init__(self, node: Node, pod: Pod, most: int, score: float) -> None:
        self._node = node
        self._pod = pod
        self.most = most
        self.score = score
        self._copy: Node | None = None
        # That many were admitted to the copy.
        self._count = 0

    @property
    def tightness(self) -> tuple[int, float]:
        """Sorts those with least room first, and of equal ones the best."""
        return self.most, -self.score

    @property
    def roominess(self) -> tuple[int, float]:
        """Sorts those with most room first, and of equal ones the best."""
        return -self.most, -self.score

    def up_to(self, limit: int) -> int:
        """Return how many it takes, or the limit if it takes as many."""
        if self._copy is None:
            self._copy = self._node.copy()

        while self._count < min(limit, self.most):
            replica = self._pod.renamed(uid=f"{self._pod.uid}/{self._count}")
            if not _admits(self._copy, replica):
                self.most = self._count
                break
            self._count += 1

        return min(limit, self.most)


def _admits(node: Node, pod: Pod) -> bool:
    """Admit a pod, if the node takes it; return whether it does."""
    try:
        return node.admit(pod).admitted
    except AlignupError:  # its own policy does not go with the node
        return False


def _best(capacities: Mapping[int, _Capacity], count: int) -> tuple[int, int]:
    """Return the node that serves so many members best, and how many it takes.

    A node is tried only where sums do not show already that it serves no better.
    """
    # of those that may take all, the one with least room
    large_enough = [index for index, capacity in capacities.items() if capacity.most >= count]
    for index in sorted(large_enough, key=lambda index: capacities[index].tightness):
        if capacities[index].up_to(count) == count:
            return index, count

    best, best_count = 0, 0
    for index in sorted(capacities, key=lambda index: capacities[index].roominess):
        if capacities[index].most <= best_count:
            break

        taken = capacities[index].up_to(count)
        if taken > best_count:
            best, best_count = index, taken

    return best, best_count
