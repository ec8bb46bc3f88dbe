"""How long pods that wait take from the moment in which there is room until they are bound.

There is room for a pod from the later of two moments: when it began to wait with nothing but the
keeper's gate, of a group its last member, and when the node of its place changed, by a pod that
ended, a report, or a change of the node itself. Of several changes of a node between two decisions
the first counts: any of them may have made the room. Where neither the pod nor the node is new,
time alone made it, and it is the moment of the decision. What happened while another keeper led is
not counted.

Pure: no clock is read here. What is kept is bounded by the pods that wait and by the nodes that
changed since the last decision.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Upper bounds of the histogram, in seconds.
_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts of seconds by upper bounds, as Prometheus has them."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a time."""
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._sum += seconds

    def samples(self) -> Mapping[str, float]:
        """Return the values by what follows the name: labels, or a suffix with labels."""
        samples: dict[str, float] = {}
        count = 0
        for bound, number in zip((*_BOUNDS, None), self._counts, strict=True):
            count += number
            samples[f'_bucket{{le="{"+Inf" if bound is None else bound}"}}'] = count

        return {**samples, "_sum": round(self._sum, 6), "_count": count}


class RoomTimes:
    """When there was room for the pods that have places, and how long it took to bind them.

    Attributes:
        histogram: the seconds from room to binding, of the pods that were bound.
    """

    def __init__(self) -> None:
        self.histogram = Histogram()
        # By uid, since when a pod waits.
        self._waiting: dict[str, float] = {}
        # The uids of those that began to since the last decision.
        self._new: set[str] = set()
        # By node, its first change since the last decision.
        self._changed: dict[str, float] = {}
        # By uid of those with places, since when there was room for each.
        self._room: dict[str, float] = {}

    def __len__(self) -> int:
        """Return of how many pods and nodes something is kept."""
        return len(self._waiting) + len(self._new) + len(self._changed) + len(self._room)

    def node_changed(self, name: str, now: float) -> None:
        """Take in an event of a node, or of a pod on it."""
        self._changed.setdefault(name, now)

    def decided(self) -> None:
        """Take in that all changes so far were looked at."""
        self._changed.clear()
        self._new.clear()

    def pod_waits(self, uid: str, now: float) -> None:
        """Take in that a pod has nothing but the keeper's gate."""
        if uid not in self._waiting:
            self._waiting[uid] = now
            self._new.add(uid)

    def placed(self, uid: str, node: str, now: float, members: Iterable[str] = ()) -> None:
        """Take in that a pod was given a place.

        Args:
            uid: of the pod.
            node: of the place.
            now: seconds.
            members: the uids of all pods of its group that were given places with it.
        """
        uids = {uid, *members}
        came = max(self._waiting.get(member, now) for member in uids)
        if node in self._changed:
            self._room[uid] = max(came, self._changed[node])
        else:
            self._room[uid] = now if self._new.isdisjoint(uids) else came

    def has_room_since(self, uid: str) -> float | None:
        """Return since when there was room for a pod; None: it has no place."""
        return self._room.get(uid)

    def place_lost(self, uid: str) -> None:
        """Take in that a pod has no place after all; one that had none is no error."""
        self._room.pop(uid, None)

    def bound(self, uid: str, now: float) -> None:
        """Take in that a pod is bound; one that had no place is not counted."""
        began = self._room.pop(uid, None)
        self._waiting.pop(uid, None)
        self._new.discard(uid)
        if began is not None:
            self.histogram.observe(now - began)

    def gone(self, uid: str) -> None:
        """Take in that a pod waits no more."""
        self._room.pop(uid, None)
        self._waiting.pop(uid, None)
        self._new.discard(uid)

    def forget_all_but(self, uids: Iterable[str]) -> None:
        """Forget pods that are not among some."""
        kept = set(uids)
        for kept_by_uid in (self._room, self._waiting):
            for uid in kept_by_uid.keys() - kept:
                del kept_by_uid[uid]
        self._new &= kept
