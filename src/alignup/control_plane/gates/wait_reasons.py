"""Sorts the pods that wait by a few reasons, for metrics.

Why a pod waits for a node is asked of its kind: pods of one kind are told the same. A kind is asked
about in turn, `_KINDS` of them at a look: all nodes are judged for it at once, in
compiled code, and of those that would align it `_NODES` at most are asked what else is in the way.
So a scrape looks at no node; it counts the pods of each kind.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.control_plane.gates.node_choice import KEPT, UNREPORTED
from alignup.errors import AlignupError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.waiting_groups import WaitingGroup
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod

# No node would align it as the nodes are.
UNALIGNED: Final = "no_node_aligns"

# Nodes would, which the scheduler's filters refuse.
FILTERED: Final = "scheduler_filters"

# Nodes would, which are kept for others.
KEPT_FOR_OTHERS: Final = "kept_for_others"

# Pods of its namespace keep many nodes that are refused for what only schedulers see, as it may be.
NAMESPACE_KEEPS: Final = "namespace_keeps_nodes"

# Nodes would, which have not reported all their pods, or are to take pods of another kind first.
NOT_REPORTED: Final = "not_reported"

# Fewer members have come than have to run together.
INCOMPLETE: Final = "group_incomplete"

# They have, and there is no place for all.
NO_GROUP_ROOM: Final = "group_has_no_room"

OTHER_GATE: Final = "other_gate"

# The API server refused to let it go: it is tried again.
REFUSED: Final = "patch_refused"

# It gets no place as it is, and an Event on it says why.
UNREADABLE: Final = "unreadable"

# It came a moment ago, or has a place on the way.
NEW: Final = "not_looked_at"

REASONS: Final = (
    UNALIGNED,
    FILTERED,
    KEPT_FOR_OTHERS,
    NAMESPACE_KEEPS,
    NOT_REPORTED,
    INCOMPLETE,
    NO_GROUP_ROOM,
    OTHER_GATE,
    REFUSED,
    UNREADABLE,
    NEW,
)

# The reasons of nodes that would align a pod: the first of these that one of them has is its own,
# as it is nearest to a place.
_NEAREST: Final = (NEW, NOT_REPORTED, KEPT_FOR_OTHERS, FILTERED)

_KINDS: Final = 2
_NODES: Final = 64


class WaitReasons:
    """The reasons of the kinds of pods that wait, found out in turn.

    The argument is the keeper with which they wait.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        # By kind, in the order in which they were looked at.
        self._of_kind: dict[Kind, str] = {}

    def look(self) -> None:
        """Find out the reasons of a few kinds, those first that were not looked at for longest."""
        queue = self._keeper.queue
        kinds = set(queue.kinds)
        self._of_kind = {kind: text for kind, text in self._of_kind.items() if kind in kinds}
        new = [kind for kind in queue.kinds if kind not in self._of_kind]
        for kind in [*new, *self._of_kind][:_KINDS]:
            self._of_kind.pop(kind, None)
            self._of_kind[kind] = self._reason(queue.firsts([kind])[0])

    def counts(self, other_gates: int) -> Mapping[str, int]:
        """Return how many pods wait for what; every reason is there.

        Args:
            other_gates: how many have further gates than the keeper's.
        """
        keeper = self._keeper
        counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        counts[OTHER_GATE] = other_gates
        counts[REFUSED] = keeper.pods.parked
        counts[UNREADABLE] = len(keeper.pods.faulty)
        for pod in keeper.queue:
            counts[self._of_kind.get(pod.kind, NEW)] += 1
        for group in keeper.groups:
            counts[_reason_of_group(group)] += len(group.waiting)

        return counts

    def _reason(self, pod: WaitingPod) -> str:
        """Return why a pod that waits alone has no place."""
        keeper = self._keeper
        if not keeper.places.may_have_one(pod):
            return NAMESPACE_KEEPS

        view = keeper.state.view
        try:
            admitted = view.verdicts(pod.watched.pod, keeper.state.strategy).admitted
        except AlignupError:  # it asks for more than anything here can be judged by
            return UNALIGNED

        aligning = np.flatnonzero(admitted)[:_NODES].tolist()
        names = view.names
        refusals = keeper.choice.why_not(pod, [names[number] for number in aligning])
        reasons = {_category(words) for words in refusals}
        return next((reason for reason in _NEAREST if reason in reasons), UNALIGNED)


def _reason_of_group(group: WaitingGroup) -> str:
    if group.goes_alone:
        return NEW
    if group.lacking:
        return INCOMPLETE
    return NO_GROUP_ROOM if group.is_refused else NEW


def _category(words: str) -> str:
    """Return the reason to which the words of a node belong that would align a pod."""
    if not words:
        return NEW
    return {UNREPORTED: NOT_REPORTED, KEPT: KEPT_FOR_OTHERS}.get(words, FILTERED)
