"""Groups of pods in a trace: how many of their members have come, wait, and run.

Whether a group runs is asked the same way whoever places its members: a scheduler that knows groups
places all or none, another one may leave half of a group bound.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from alignup.cluster.pod_groups import (
    causes_of_left_out,
    fitting_in_words,
    presence_in_words,
    shortfall_in_words,
)
from alignup.kubernetes.groups import POD_GROUP
from alignup.records import Record, json_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from alignup.cluster.cluster import Cluster
    from alignup.cluster.pod_groups import GroupPlan
    from alignup.cluster.traces import Arrival
    from alignup.kubernetes.groups import Membership

# So many groups are told which nodes refuse the member that was left out, of each all nodes.
_MOST_EXPLAINED: Final = 20


class GroupOutcome(Record):
    """A group of which fewer members ran at once than have to.

    Attributes:
        group: namespace and name.
        kind: who made it; see `Membership`.
        members: how many came.
        needed: how many have to run together.
        placed: the most that ran at once.
        reason: why there were not more, in a sentence.
    """

    group: str
    kind: str
    members: int
    needed: int
    placed: int
    reason: str


class GroupCounts(Record):
    """What came of the groups of a trace.

    Attributes:
        groups: how many there were.
        whole: of which as many members ran at once as have to.
        partly: of which some ran, and fewer than have to; their members hold what others could use.
        none: of which no member ran.
        not_whole: those that were not whole, in the order in which they came.
    """

    groups: int
    whole: int
    partly: int
    none: int
    not_whole: tuple[GroupOutcome, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON can hold them."""
        return json_fields(self, "groups", "whole", "partly", "none") | {
            "notWhole": [json_fields(outcome) for outcome in self.not_whole]
        }


class SimulatedGroup:
    """The members of a group, from the first that comes until none is left.

    Attributes:
        size: how many have to run together.
        waiting: by uid, those that wait for a place with the others.
        running: the uids of those with a place.
        came: how many have come.
        most: the most that ran at once.
        reason: why it was given up; empty: it was not.
        was_refused: its members have all come, and there was no place for all.
    """

    def __init__(self, membership: Membership, size: int) -> None:
        self.membership = membership
        self.size = size
        self.waiting: dict[str, Arrival] = {}
        self.running: set[str] = set()
        self.came = 0
        self.most = 0
        self.reason = ""
        self.was_refused = False

    @property
    def is_complete(self) -> bool:
        """Whether as many wait as have to run together."""
        return len(self.waiting) >= self.size

    @property
    def is_over(self) -> bool:
        """Whether a member that comes now is one of another group of the same name."""
        return self.came >= self.size and not self.waiting and not self.running

    @property
    def needed(self) -> int:
        """How many of those that wait have to get places: of a PodGroup all that there are."""
        return len(self.waiting) if self.membership.kind == POD_GROUP else self.size

    def placed(self, uid: str) -> None:
        """Take in that a member has a place."""
        self.waiting.pop(uid, None)
        self.running.add(uid)
        self.most = max(self.most, len(self.running))

    def outcome(self, reason: str) -> GroupOutcome:
        """Return what came of it."""
        membership = self.membership
        name = f"{membership.namespace}/{membership.name}"
        return GroupOutcome(name, membership.kind, self.came, self.size, self.most, reason)


class SimulatedGroups:
    """The groups of a trace.

    The argument is its arrivals: of a group of which nobody says how many have to run together,
    these are all that come.
    """

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        memberships = (arrival.membership for arrival in arrivals)
        self._totals = Counter(each.key for each in memberships if each is not None)
        self._groups: dict[tuple[str, str, str], SimulatedGroup] = {}
        # Those that came before another one of the same name.
        self._over: list[SimulatedGroup] = []
        # By uid, the group of each member that waits or runs.
        self._of_pod: dict[str, SimulatedGroup] = {}
        self._explained = 0

    def __iter__(self) -> Iterator[SimulatedGroup]:
        """Yield the groups of which members wait, in the order in which they began to come."""
        return iter([group for group in self._groups.values() if group.waiting])

    @property
    def waiting(self) -> list[Arrival]:
        """The members that wait."""
        return [arrival for group in self for arrival in group.waiting.values()]

    def of(self, uid: str) -> SimulatedGroup | None:
        """Return the group of a member that waits or runs; None: there is none."""
        return self._of_pod.get(uid)

    def came(self, arrival: Arrival, membership: Membership) -> SimulatedGroup:
        """Take in that a member has come; return its group."""
        key = membership.key
        group = self._groups.get(key)
        if group is not None and group.is_over:
            self._over.append(self._groups.pop(key))
            group = None
        if group is None:
            size = membership.size or self._totals[key]
            group = self._groups[key] = SimulatedGroup(membership, size)

        group.came += 1
        self._of_pod[arrival.pod.uid] = group
        return group

    def gone(self, uid: str) -> Arrival | None:
        """Take in that a pod has ended or was removed; return it if it is a member that waited."""
        group = self._of_pod.pop(uid, None)
        if group is None:
            return None

        group.running.discard(uid)
        group.was_refused = False
        return group.waiting.pop(uid, None)

    def given_up(self, group: SimulatedGroup, reason: str) -> list[Arrival]:
        """Let the members of a group wait no more; return them."""
        arrivals = list(group.waiting.values())
        group.reason = reason
        group.waiting.clear()
        for arrival in arrivals:
            self._of_pod.pop(arrival.pod.uid)
        return arrivals

    def shortfall(self, cluster: Cluster, plan: GroupPlan, strategy: str) -> str:
        """Return why a group has no place for all, in a sentence: of the first ones at length."""
        fitting = len(plan.places)
        members = fitting + len(plan.left_out)
        if self._explained >= _MOST_EXPLAINED:
            return fitting_in_words(fitting, members)

        self._explained += 1
        left_out = plan.left_out[0]
        causes = causes_of_left_out(cluster, plan, left_out, strategy)
        return shortfall_in_words(fitting, members, left_out.name, causes)

    def counts(self) -> GroupCounts | None:
        """Return what came of the groups; None: there were none."""
        groups = [*self._over, *self._groups.values()]
        if not groups:
            return None

        whole = sum(group.most >= group.size for group in groups)
        none = sum(not group.most for group in groups)
        return GroupCounts(
            groups=len(groups),
            whole=whole,
            partly=len(groups) - whole - none,
            none=none,
            not_whole=tuple(
                group.outcome(_reason(group)) for group in groups if group.most < group.size
            ),
        )


def _reason(group: SimulatedGroup) -> str:
    """Return why fewer members of a group ran than have to."""
    if group.reason:
        return group.reason
    if group.most:
        return f"{group.most} of {group.size} members ran at once"
    return presence_in_words(len(group.waiting), group.size)
