"""Groups of pods that wait for a place together, and how far each of them is.

A member waits until as many have come as have to run together. Then all of them get places, or
none:

1. the plan is written: each member gets the annotation of its node, and keeps the gate;
2. once all of that is seen, the gates go, one after the other.

So a keeper that is killed between any two of these patches leaves what the next one reads: a group
of which no gate is off and not enough members have an annotation waits as before; else the members
with an annotation get their nodes, as far as these still take them. What comes later, or could not
be placed with the others though these were enough, goes alone.

Pure: no clock is read here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.cluster.pod_groups import fitting_in_words, presence_in_words
from alignup.kubernetes.groups import POD_GROUP, GroupSizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.cluster.cluster import Ints
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod
    from alignup.kubernetes.groups import GroupObject, Membership
    from alignup.kubernetes.pod import Pod

# No node takes so many pods.
_MOST: Final = 1 << 31

_Key = tuple[str, str, str]


class WaitingGroup:
    """The members of a group.

    Attributes:
        size: how many have to run together; 0: nobody has said it yet, 1: each goes alone.
        waiting: those that have nothing but the keeper's gate, and no place, by uid.
        since: when each of these was seen first, by the caller's clock.
        plan: by uid, the nodes that are being written into members; empty: it needs none.
        releasing: the uids of those whose gates are being taken off.
        to_release: those of them whose patch is to be sent, again.
        begun: the uids of those without a gate, and whether they ask for something exclusive.
        uids: those of all, also of those that wait for themselves, or to be tried again.
        is_refused: no node but those that changed since has room for all.
        fitting: how many members had a place when it was tried last, of how many.
        gained: how many more may have one on the nodes that changed since, at most.
        left_out: a member that had none then.
    """

    __slots__ = (
        "begun",
        "fitting",
        "gained",
        "is_refused",
        "left_out",
        "membership",
        "plan",
        "releasing",
        "since",
        "size",
        "to_release",
        "uids",
        "waiting",
    )

    def __init__(self, membership: Membership, size: int) -> None:
        self.membership = membership
        self.size = size
        self.waiting: dict[str, WaitingPod] = {}
        self.since: dict[str, float] = {}
        self.plan: dict[str, str] = {}
        self.releasing: set[str] = set()
        self.to_release: set[str] = set()
        self.begun: dict[str, bool] = {}
        self.uids: set[str] = set()
        self.is_refused = False
        self.fitting = (0, 0)
        self.gained = 0
        self.left_out: WaitingPod | None = None

    @property
    def candidates(self) -> dict[str, WaitingPod]:
        """Those that wait and need a place, by uid."""
        return {uid: pod for uid, pod in self.waiting.items() if pod.needs_place}

    @property
    def has_begun(self) -> bool:
        """Whether a member that needs a place is on its way, so that the others wait for nobody."""
        return bool(self.releasing) or any(self.begun.values())

    @property
    def goes_alone(self) -> bool:
        """Whether each member that waits goes for itself."""
        return self.has_begun or self.size == 1

    @property
    def is_pending(self) -> bool:
        """Whether something is still to be done for a member."""
        return bool(self.waiting or self.plan or self.releasing)

    @property
    def lacking(self) -> int:
        """How many members have yet to come; 1 at least where nobody says how many there are."""
        present = len(self.waiting) + len(self.begun)
        return max(0, self.size - present) if self.size else 1

    @property
    def needed(self) -> int:
        """How many of those that wait have to get places.

        Of a PodGroup all that there are: while one has a gate, its scheduler lets none go.
        """
        if self.membership.kind == POD_GROUP:
            return len(self.waiting)
        return self.size - len(self.begun)

    @property
    def is_written(self) -> bool:
        """Whether a plan stands in as many members as have to run together."""
        ready = [pod for pod in self.waiting.values() if pod.planned or not pod.needs_place]
        is_begun = any(pod.planned for pod in ready)
        return is_begun and not self.lacking and len(ready) >= self.needed

    @property
    def priority(self) -> int:
        """The highest one of a member that waits."""
        return max(pod.watched.priority for pod in self.waiting.values())

    @property
    def needs_places(self) -> bool:
        """Whether a member waits that needs a place, and none has one."""
        return not self.plan and any(pod.needs_place for pod in self.waiting.values())

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for groups of which one finds a place where the other does."""
        kinds = Counter(pod.kind for pod in self.waiting.values())
        return self.priority, self.needed, frozenset(kinds.items())

    def words(self) -> str:
        """Return what the members wait for."""
        if self.membership.fault:
            return self.membership.fault
        if not self.size:
            return f"the {self.membership.kind} {self.membership.object_name} was not seen yet"
        if self.lacking:
            present = len(self.waiting) + len(self.begun)
            return presence_in_words(present, self.size)
        if not self.fitting[1]:
            return "its place was not looked for yet"
        return fitting_in_words(*self.fitting)


class WaitingGroups:
    """Groups by their keys, as long as a member of them is there."""

    def __init__(self) -> None:
        self.sizes = GroupSizes()
        self._groups: dict[_Key, WaitingGroup] = {}
        # By uid, the group of each member.
        self._of_pod: dict[str, _Key] = {}
        # The kinds of objects that say how many members a group has, of which one was named.
        self.object_kinds: set[str] = set()
        # Those of which members may wait: of most groups of a cluster all are bound.
        self._pending: dict[_Key, WaitingGroup] = {}

    def __iter__(self) -> Iterator[WaitingGroup]:
        """Yield the groups of which a member has its gate, as of now."""
        self._pending = {key: group for key, group in self._pending.items() if group.is_pending}
        return iter(list(self._pending.values()))

    @property
    def may_wait(self) -> bool:
        """Whether a member of some group may wait; false: none does."""
        return bool(self._pending)

    @property
    def uids(self) -> Iterable[str]:
        """The uids of all members."""
        return self._of_pod.keys()

    @property
    def waiting(self) -> list[WaitingPod]:
        """All members that wait for a place."""
        return [pod for group in self for pod in group.waiting.values()]

    def since(self, uid: str) -> float:
        """Return since when a member waits, by the clock of those who added it."""
        return self._groups[self._of_pod[uid]].since[uid]

    def of(self, uid: str) -> WaitingGroup | None:
        """Return the group of a member; None: it is of none."""
        key = self._of_pod.get(uid)
        return None if key is None else self._groups[key]

    def add(self, membership: Membership, pod: WaitingPod, now: float) -> None:
        """Add a member that waits, or put it in the place of the one of its uid."""
        uid = pod.uid
        group = self._group(membership, uid)
        before = group.waiting.get(uid)
        group.waiting[uid] = pod
        group.since.setdefault(uid, now)
        group.begun.pop(uid, None)
        group.releasing.discard(uid)
        if before is None or before.kind is not pod.kind:
            group.is_refused = False
        if membership != group.membership or (before is not None and before is not pod):
            self._resize(group)

    def begins(self, membership: Membership, uid: str, *, is_exclusive: bool) -> None:
        """Take in that a member has no gate, or is bound."""
        group = self._group(membership, uid)
        self._unwait(group, uid)
        group.plan.pop(uid, None)
        group.releasing.discard(uid)
        if uid not in group.begun:
            group.begun[uid] = is_exclusive
            group.is_refused = False

    def gone(self, uid: str) -> None:
        """Take in that a member has ended or was deleted; one that is of no group is no error."""
        key = self._of_pod.pop(uid, None)
        if key is None:
            return

        group = self._groups[key]
        self._unwait(group, uid)
        group.begun.pop(uid, None)
        group.releasing.discard(uid)
        group.is_refused = False  # the others may need less
        group.uids.discard(uid)
        if not any(self._size_by(pod) == group.size for pod in group.waiting.values()):
            self._resize(group)  # that of the one that is gone
        if not group.uids:
            del self._groups[key]
            self._pending.pop(key, None)

    def planned(self, group: WaitingGroup, plan: Mapping[str, str]) -> None:
        """Take in that members have places, which are being written into them."""
        for uid in plan:
            self._unwait(group, uid)
        group.plan = dict(plan)

    def alone(self, group: WaitingGroup, uid: str) -> float:
        """Take a member out that goes alone; return since when it waits."""
        since = group.since.get(uid, 0.0)
        self._unwait(group, uid)
        return since

    def sizes_changed(self) -> None:
        """Take in that the objects of groups say something else."""
        for group in self._groups.values():
            self._resize(group)

    def listed(self, kind: type[GroupObject], items: Sequence[GroupObject]) -> None:
        """Take in all objects of one kind."""
        self.sizes.listed(kind, items)
        self.sizes_changed()

    def seen(self, item: GroupObject) -> None:
        """Take in an object that is new or changed."""
        self.sizes.seen(item)
        self.sizes_changed()

    def object_gone(self, item: GroupObject) -> None:
        """Take in that an object was deleted."""
        self.sizes.gone(item)
        self.sizes_changed()

    def room_on(self, free: Mapping[str, int]) -> None:
        """Take in that a node has changed, which leaves these amounts.

        A group is tried again once all nodes that changed may take as many members as had no place.
        """
        for group in self:
            if group.is_refused:
                kinds = {pod.kind for pod in group.waiting.values() if pod.needs_place}
                group.gained += sum(kind.most_in(free) for kind in kinds)
                group.is_refused = group.fitting[0] + group.gained < group.needed

    def to_place(self, charged: Callable[[str], float]) -> list[WaitingGroup]:
        """Return the groups that may get places now, in their order.

        Those of the highest priority come first, then that of the namespace which was charged
        least, then the oldest.
        """
        ready = [
            group
            for group in self
            if group.waiting
            and not group.plan
            and not group.is_refused
            and not group.goes_alone
            and not group.lacking
        ]
        return sorted(ready, key=lambda group: _order(group, charged))

    def overdue(self, moment: float, charged: Callable[[str], float]) -> WaitingGroup | None:
        """Return the first group whose members all are there since a moment, or before it."""
        late = [
            group
            for group in self
            if group.needs_places
            and not group.goes_alone
            and not group.lacking
            and max(group.since.values()) <= moment
        ]
        return min(late, key=lambda group: _order(group, charged), default=None)

    def _group(self, membership: Membership, uid: str) -> WaitingGroup:
        """Return the group of a membership, with that uid as one of its members."""
        if membership.object_name:
            self.object_kinds.add(membership.kind)

        key = membership.key
        before = self._of_pod.get(uid)
        if before is not None and before != key:
            self.gone(uid)

        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = WaitingGroup(membership, self.sizes.size(membership))

        self._pending[key] = group
        self._of_pod[uid] = key
        group.uids.add(uid)
        return group

    def _resize(self, group: WaitingGroup) -> None:
        """Take the number of members anew; where members differ, the largest one counts."""
        sizes = map(self._size_by, group.waiting.values())
        size = max(sizes, default=self.sizes.size(group.membership))
        if size != group.size:
            group.size = size
            group.is_refused = False

    def _size_by(self, pod: WaitingPod) -> int:
        """Return how many members its group has by what one of them says."""
        membership = pod.watched.membership
        return 0 if membership is None else self.sizes.size(membership)

    @staticmethod
    def _unwait(group: WaitingGroup, uid: str) -> None:
        group.waiting.pop(uid, None)
        group.since.pop(uid, None)


def _order(group: WaitingGroup, charged: Callable[[str], float]) -> tuple[object, ...]:
    created = min(pod.created for pod in group.waiting.values())
    namespace = group.membership.namespace
    return -group.priority, charged(namespace), created, group.membership.key


class GroupRoom:
    """How many members of each kind a node may take, by all that is no matter of NUMA nodes.

    In which order a node's kubelet gets the members that came to it is not known.

    Args:
        count: how many nodes there are.
        pods: the members by uid.
        most_of: returns by the index of a node how many pods like a member it takes at most; nodes
            that take none are left out.
        most_beside: returns how many pods like a member a node takes at most beside others, in
            whatever order they come: an index, the member, the others, and the most to return.
        mixes: put members of different demands on a node, too.
    """

    def __init__(
        self,
        count: int,
        pods: Mapping[str, WaitingPod],
        most_of: Callable[[WaitingPod], Mapping[int, int]],
        most_beside: Callable[[int, WaitingPod, Sequence[WaitingPod], int], int],
        *,
        mixes: bool = False,
    ) -> None:
        self._count = count
        self._pods = pods
        self._most_of = most_of
        self._most_beside = most_beside
        self._mixes = mixes
        # By kind, what `most_of` says of the nodes as they are.
        self._empty: dict[Kind, Ints] = {}
        # By index, kind and the kinds that came to the node, what `most_beside` says.
        self._beside: dict[tuple[int, Kind, frozenset[tuple[Kind, int]]], int] = {}
        # By index, the members that came to a node.
        self._taken: dict[int, list[WaitingPod]] = {}

    def most(self, pod: Pod) -> Ints:
        """See `Room`."""
        member = self._pods[pod.uid]
        kind = member.kind
        if kind not in self._empty:
            most = np.zeros(self._count, np.int64)
            for index, count in self._most_of(member).items():
                most[index] = min(count, _MOST)
            self._empty[kind] = most

        left: Ints = self._empty[kind].copy()
        for index, others in self._taken.items():
            if all(other.kind is kind for other in others):
                left[index] = max(0, left[index] - len(others))
            elif left[index] and self._may_join(member, others):
                left[index] = min(left[index], self._count_beside(index, member, others))
            else:
                left[index] = 0
        return left

    def _count_beside(self, index: int, member: WaitingPod, others: Sequence[WaitingPod]) -> int:
        """Return how many members of a kind a node takes beside others, of those that there are."""
        kinds = Counter(other.kind for other in others)
        key = index, member.kind, frozenset(kinds.items())
        if key not in self._beside:
            equal = sum(each.kind is member.kind for each in self._pods.values())
            self._beside[key] = self._most_beside(index, member, others, equal)
        return self._beside[key]

    def _may_join(self, member: WaitingPod, others: Sequence[WaitingPod]) -> bool:
        demand = member.kind.demand
        return self._mixes or all(other.kind.demand == demand for other in others)

    def add(self, index: int, pod: Pod) -> None:
        """See `Room`."""
        self._taken.setdefault(index, []).append(self._pods[pod.uid])

    def fresh(self) -> GroupRoom:
        """See `Room`."""
        return self._copy(mixes=self._mixes)

    def mixing(self) -> GroupRoom:
        """Return such a room for members of different demands."""
        return self._copy(mixes=True)

    def _copy(self, *, mixes: bool) -> GroupRoom:
        room = GroupRoom(self._count, self._pods, self._most_of, self._most_beside, mixes=mixes)
        room._empty = self._empty
        room._beside = self._beside
        return room
