"""The keeper in numbers: who waits, for what and how long, and how quickly places become bindings.

It is told what the keeper is told, and before it. A scrape passes over the pods that wait, and over
no nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.control_plane.gates.decisions import Plan, Release
from alignup.control_plane.gates.room_times import RoomTimes
from alignup.control_plane.gates.ungated_pods import UngatedPods
from alignup.control_plane.gates.wait_reasons import WaitReasons
from alignup.control_plane.gates.waiting_pods import WaitingPod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.decisions import Decision
    from alignup.control_plane.gates.keeper import Keeper

# Seconds after which a pod counts as one that has waited long.
_LONG_WAIT: Final = 60.0

# The type of a metric, what it means, and its value, or several by what follows the name.
Metric = tuple[str, str, "float | Mapping[str, float]"]


class KeeperMetrics:
    """What the metrics of a keeper are made of.

    Attributes:
        reasons: what pods wait for.
        room_times: how long it takes to bind pods once there is room.
        ungated: bound pods with something exclusive that had no gate.
    """

    def __init__(self, keeper: Keeper) -> None:
        self.reasons = WaitReasons(keeper)
        self.room_times = RoomTimes()
        self.ungated = UngatedPods()
        self._keeper = keeper
        # The uids of pods with the keeper's gate and further ones.
        self._other_gates: set[str] = set()

    def nodes_changed(self, names: Iterable[str], now: float) -> None:
        """Take in events of nodes, or reports."""
        for name in names:
            self.room_times.node_changed(name, now)

    def pods_listed(self, pods: Sequence[WatchedPod | WaitingPod], now: float) -> None:
        """Take in all pods that have not ended at one moment."""
        self._other_gates.clear()
        for pod in pods:
            self.pod_seen(pod, now)

        uids = {(pod.watched if isinstance(pod, WaitingPod) else pod).pod.uid for pod in pods}
        self.room_times.forget_all_but(uids)
        self.ungated.forget_all_but(uids)

    def pod_seen(self, pod: WatchedPod | WaitingPod, now: float) -> None:
        """Take in a pod that is new or changed."""
        if not isinstance(pod, WaitingPod):
            self._other_gates.discard(pod.pod.uid)
            self.ungated.seen(pod)
            if pod.node:
                self.room_times.node_changed(pod.node, now)
                self.room_times.bound(pod.pod.uid, now)
            else:
                self.pod_gone(pod.pod.uid, now)
            return

        if pod.is_gated and pod.other_gates:
            self._other_gates.add(pod.uid)
        else:
            self._other_gates.discard(pod.uid)

        if pod.waits:
            self.room_times.pod_waits(pod.uid, now)
        elif pod.is_gated or not pod.place:  # one that was let go to a place is to be bound yet
            self.room_times.gone(pod.uid)

    def pod_gone(self, uid: str, now: float) -> None:
        """Take in that a pod has ended or was deleted, before the keeper does."""
        self._other_gates.discard(uid)
        self.room_times.gone(uid)
        self.ungated.gone(uid)
        bound = self._keeper.state.pods.get(uid)
        if bound is not None:
            self.room_times.node_changed(bound.node, now)

    def decided(self, decisions: Sequence[Decision], now: float) -> None:
        """Take in what was decided, after all events so far."""
        times = self.room_times
        members: dict[object, list[str]] = {}
        for decision in decisions:
            if isinstance(decision, Plan):
                members.setdefault(_group(decision.pod), []).append(decision.pod.uid)

        for decision in decisions:
            if isinstance(decision, Plan):
                if decision.node:
                    group = members[_group(decision.pod)]
                    times.placed(decision.pod.uid, decision.node, now, group)
                else:
                    times.place_lost(decision.pod.uid)
            elif isinstance(decision, Release) and decision.nodes:
                uid = decision.pod.uid
                # the place of a member was counted with the plan of its group
                if not decision.pod.planned or times.has_room_since(uid) is None:
                    times.placed(uid, decision.nodes[0], now)

        times.decided()

    def warning(self, now: float) -> str:
        """Return what to say of ungated pods beside gated ones; empty: nothing now."""
        keeper = self._keeper
        is_used = keeper.counts.placed or len(keeper.places) or len(keeper.queue)
        return self.ungated.warning(now) if is_used or keeper.groups.waiting else ""

    def stood_by(self) -> None:
        """Take in that another keeper decides about what has changed so far."""
        self.room_times.decided()

    def values(self, now: float, *, leads: bool, lists: int) -> dict[str, Metric]:
        """Return the metrics by their names.

        Args:
            now: by the clock of those who told the keeper of pods.
            leads: whether this process gives places; only then it says what pods wait for.
            lists: how often all objects were listed.
        """
        keeper = self._keeper
        counts = keeper.counts
        waits = [now - keeper.queue.since(pod.uid) for pod in keeper.queue]
        members = keeper.groups.waiting
        waits += [now - keeper.groups.since(pod.uid) for pod in members]
        groups = [group for group in keeper.groups if group.waiting]
        incomplete = sum(bool(group.lacking) and not group.goes_alone for group in groups)
        by_reason = self.reasons.counts(len(self._other_gates))
        return {
            "waiting_pods": ("gauge", "Pods that wait for a place.", len(waits)),
            "waiting_members": ("gauge", "Those of them that wait with a group.", len(members)),
            "waiting_groups": ("gauge", "Groups of which members wait.", len(groups)),
            "incomplete_groups": (
                "gauge",
                "Those of them whose members are not all there.",
                incomplete,
            ),
            "waiting_by_reason_pods": (
                "gauge",
                "Pods with the gate, by what they wait for; of the leader.",
                {
                    f'{{reason="{reason}"}}': count if leads else 0
                    for reason, count in by_reason.items()
                },
            ),
            "unreadable_pods": (
                "gauge",
                "Pods behind the gate that get no place, as Events on them say.",
                len(keeper.pods.faulty),
            ),
            "waiting_for_minutes_pods": (
                "gauge",
                "Pods that have waited for more than a minute.",
                sum(wait > _LONG_WAIT for wait in waits),
            ),
            "longest_wait_seconds": ("gauge", "For which a pod has waited.", max(waits, default=0)),
            "room_to_bound_seconds": (
                "histogram",
                "From the event that made room for a pod until it was bound.",
                self.room_times.histogram.samples(),
            ),
            "places": ("gauge", "Pods with a place that are not bound yet.", len(keeper.places)),
            "ungated_pods": (
                "gauge",
                "Bound pods with something exclusive that had no gate.",
                len(self.ungated),
            ),
            "nodes": ("gauge", "Nodes that report.", len(keeper.state.members)),
            "pods": ("gauge", "Bound pods known.", len(keeper.state.pods)),
            "leads": ("gauge", "Whether this process gives places.", int(leads)),
            "places_total": ("counter", "Places given.", counts.placed),
            "released_pods_total": ("counter", "Pods that were let go.", counts.released),
            "other_places_total": ("counter", "Places given again elsewhere.", counts.mended),
            "refused_patches_total": ("counter", "Pods not let go.", counts.refused),
            "judged_total": ("counter", "Questions for a place.", counts.judged),
            "lists_total": ("counter", "Lists of all objects.", lists),
        }


def _group(pod: WaitingPod) -> object:
    membership = pod.watched.membership
    return None if membership is None else membership.key
