"""Where each pod stands that the keeper looks after, by what was seen of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.control_plane.gates.decisions import Release
from alignup.control_plane.gates.places import LATE_SECONDS
from alignup.control_plane.gates.waiting_groups import WaitingGroups
from alignup.control_plane.gates.waiting_pods import asks_exclusively
from alignup.control_plane.gates.waiting_queue import KindTable, WaitingQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.kept_nodes import KeptNodes
    from alignup.control_plane.gates.place_labels import PlaceLabels
    from alignup.control_plane.gates.places import Place, Places
    from alignup.control_plane.gates.waiting_pods import Kind, WaitingPod
    from alignup.control_plane.scheduler.cluster_state import ClusterState

# Seconds after which a pod whose patch was refused for what it says is tried as it is.
_REFUSED_SECONDS: Final = 30.0


class GatedPods:
    """The pods that are bound to no node, each in one place of these at most.

    - In the queue, or in its group, it waits for a place.
    - It needs none: it is let go, at once or with its group.
    - It is parked: its patch was refused, and it is tried again when it changes or later.
    - It has a place (`Places`): its gate goes, or it waits for its binding.
    - It gets none, whatever comes free, as it cannot be read or asks for too much.

    Attributes:
        queue: those that wait, each for itself.
        groups: those that wait together, and what is known of other members.
        unasked: the kinds in the queue for which not all nodes were asked.
        refused_kinds: those that all nodes have refused, but for those that changed.
        hopeless_kinds: those that all nodes would refuse if no pod were there, until other nodes
            come.
        faulty: by uid, those that get no place whatever comes free, and since when each is seen.
    """

    def __init__(
        self, state: ClusterState, places: Places, kept: KeptNodes, labels: PlaceLabels
    ) -> None:
        self.queue = WaitingQueue()
        self.groups = WaitingGroups()
        self.unasked: set[Kind] = set()
        self.refused_kinds = KindTable()
        self.hopeless_kinds: set[Kind] = set()
        # Of the nodes for which these are hopeless.
        self._generation = state.view.generation
        self.faulty: dict[str, tuple[WaitingPod, float]] = {}
        self._state = state
        self._places = places
        self._kept = kept
        self._labels = labels
        # By uid, those that need no place, and whether their release is under way, or waits for
        # that of their group.
        self._placeless: dict[str, tuple[WaitingPod, bool]] = {}
        # By uid, the version of a pod whose patch was refused, and when it is tried again as it is.
        self._parked: dict[str, tuple[WaitingPod, float]] = {}

    @property
    def uids(self) -> list[str]:
        """The uids of all of them, and of bound members of groups."""
        return [
            *(*self._places.uids, *self._placeless, *self._parked),
            *(*(pod.uid for pod in self.queue), *self.groups.uids, *self.faulty),
        ]

    @property
    def parked(self) -> int:
        """How many wait to be tried again whose patch was refused."""
        return len(self._parked)

    @property
    def gated(self) -> list[WaitingPod]:
        """The pods that somebody may be about to let go."""
        pods = [*self.queue, *self.groups.waiting]
        pods += [pod for pod, _ in (*self._placeless.values(), *self._parked.values())]
        pods += [place.newest for place in self._places if not place.is_open]
        return pods

    def seen(self, pod: WaitingPod, now: float) -> None:
        """Take in a pod that is bound to no node, and is new or changed."""
        uid = pod.uid
        place = self._places.get(uid)
        if place is not None:
            self._placed_seen(place, pod, now)
            return

        # as it was before its binding, which no server takes back
        if self._state.was_bound(uid):
            return

        if not pod.waits:
            _, since = self.faulty.get(uid, (pod, now))
            self.forget(uid)
            self._member_waits_no_more(pod)
            if pod.has_only_our_gate:
                self.faulty[uid] = pod, since
            if pod.place and not pod.is_gated and not pod.watched.is_leaving:
                self._restore(pod, now)
            return

        self.faulty.pop(uid, None)
        parked = self._parked.get(uid)
        if parked is not None and parked[0].version == pod.version:
            return
        self._parked.pop(uid, None)

        membership = pod.watched.membership
        if membership is None:
            self._leave_group(uid)
        if membership is not None and uid not in self.queue and uid not in self._placeless:
            self.groups.add(membership, pod, now)
        elif pod.needs_place:
            self.enqueue(pod, now)
        else:
            self._placeless[uid] = pod, self._placeless.get(uid, (pod, False))[1]

    def _leave_group(self, uid: str) -> None:
        """Take in that a pod is no member any more: it waits for no group, if it did."""
        group = self.groups.of(uid)
        if group is not None and uid in group.plan:
            self.take_placeless(uid)
        self.groups.gone(uid)

    def is_waiting(self, uid: str) -> bool:
        """Return whether a pod waits for a place, alone or with its group."""
        group = self.groups.of(uid)
        return uid in self.queue or (group is not None and uid in group.waiting)

    def enqueue(self, pod: WaitingPod, since: float) -> None:
        """Let a pod wait for itself."""
        before = self.queue.add(pod, since)
        if pod.kind not in self.refused_kinds and pod.kind not in self.hopeless_kinds:
            self.unasked.add(pod.kind)

        # where less important ones of its kind were refused for another one's sake
        self._kept.ask_below(pod.watched.priority)
        if before is not None:
            self._forget_kind(before.kind)

    def forget(self, uid: str) -> None:
        """Let a pod wait for itself no longer; one that does not is no error."""
        self._placeless.pop(uid, None)
        self._parked.pop(uid, None)
        self.faulty.pop(uid, None)
        pod = self.queue.remove(uid)
        if pod is not None:
            self._forget_kind(pod.kind)
            self._kept.forget(uid)

    def all_refuse(self, kind: Kind, *, is_hopeless: bool) -> None:
        """Take in that no node but those that change from now on takes pods of a kind.

        Where it is hopeless, no node of now will, however it changes.
        """
        self.unasked.discard(kind)
        if is_hopeless:
            self.refused_kinds.discard(kind)
            self.hopeless_kinds.add(kind)
        else:
            self.refused_kinds.add(kind)

    @property
    def _has_other_nodes(self) -> bool:
        return self._generation != self._state.view.generation

    def hope_again(self) -> None:
        """Let all nodes be asked again for hopeless kinds, if there are other nodes now."""
        if self._has_other_nodes:
            self._generation = self._state.view.generation
            self.unasked |= self.hopeless_kinds
            self.hopeless_kinds.clear()

    @property
    def hopes(self) -> bool:
        """Whether a pod that waits may get a place once a node has more to give."""
        return (
            self.groups.may_wait
            or bool(self.unasked or self.refused_kinds or self._placeless)
            or (bool(self.hopeless_kinds) and self._has_other_nodes)
        )

    def ask_all(self, kind: Kind) -> None:
        """Let all nodes be asked for a kind with the next decisions: some were not asked now."""
        self.unasked.add(kind)

    def members_begin(self, pods: Iterable[WatchedPod]) -> None:
        """Take in that those of some pods that are members are bound, or have no gate."""
        for pod in pods:
            if pod.membership is None:
                self.groups.gone(pod.pod.uid)
            else:
                is_exclusive = asks_exclusively(pod.pod)
                self.groups.begins(pod.membership, pod.pod.uid, is_exclusive=is_exclusive)

    # Pods that need no place.

    def let_go(self, pod: WaitingPod) -> None:
        """Let a pod go that needs no place, with the next decisions."""
        self._placeless[pod.uid] = pod, False

    def let_go_later(self, pod: WaitingPod) -> None:
        """Let a pod that needs no place wait until its group goes."""
        self._placeless[pod.uid] = pod, True

    def let_go_with_group(self, uid: str) -> None:
        """Let a pod go that waited for its group, as it was seen last."""
        pod, _ = self._placeless[uid]
        self._placeless[uid] = pod, False

    def is_placeless(self, uid: str) -> bool:
        """Return whether a pod that needs no place is let go, or waits until its group goes."""
        return uid in self._placeless

    def take_placeless(self, uid: str) -> WaitingPod | None:
        """Return a pod that needs no place, which is not let go for now; None: it is none."""
        pod, _ = self._placeless.pop(uid, (None, False))
        return pod

    def releases(self) -> list[Release]:
        """Return those that are to be let go now, each once."""
        pods = [pod for pod, is_under_way in self._placeless.values() if not is_under_way]
        for pod in pods:
            self._placeless[pod.uid] = pod, True
        return [Release(pod) for pod in pods]

    def forget_releases(self) -> None:
        """Take what was asked to have come to nothing."""
        self._placeless = {uid: (pod, False) for uid, (pod, _) in self._placeless.items()}

    # Pods whose patch was refused.

    def refused(self, pod: WaitingPod, now: float, *, for_good: bool) -> None:
        """Take in that the API server did not let a pod go; arguments as for `Keeper.refused`.

        It gives its place up, and waits again, once it has changed or some time later.
        """
        place = self._places.get(pod.uid)
        placeless = self.take_placeless(pod.uid)
        newest = placeless or pod
        if place is not None:
            newest = place.newest
            self._places.end(pod.uid)
        elif placeless is None and (self.is_waiting(pod.uid) or self.groups.of(pod.uid) is None):
            return  # it waits again, or has ended

        if newest.version != pod.version:
            self.seen(newest, now)
        else:
            seconds = _REFUSED_SECONDS if for_good else LATE_SECONDS
            self._parked[pod.uid] = pod, now + seconds

    def try_parked_again(self, now: float) -> None:
        """Let those wait again that were parked for long enough."""
        for uid, (pod, moment) in list(self._parked.items()):
            if now >= moment:
                del self._parked[uid]
                self.seen(pod, now)

    def _placed_seen(self, place: Place, pod: WaitingPod, now: float) -> None:
        """Take in a pod that has a place: how far it is."""
        if pod.place and not place.is_open and set(pod.place) != set(place.nodes):
            # another keeper was faster
            self._places.end(pod.uid)
            self._restore(pod, now)
            return

        if pod.watched.is_leaving or (not pod.is_gated and not pod.place):
            # it will not come, or a user has taken the gate off
            self._places.end(pod.uid)
            self._member_waits_no_more(pod)
            return

        place.newest = pod
        if pod.is_gated:  # the patch is under way
            was_written = place.is_written
            place.is_written = bool(pod.planned) and pod.planned == place.nodes[0]
            group = self.groups.of(pod.uid)
            is_planned = group is not None and pod.uid in group.plan
            if is_planned and was_written and not place.is_written:
                self._places.misplaced.add(pod.uid)  # nobody writes it once more
        else:
            place.opened(pod, now)
            self._member_waits_no_more(pod)

    def _restore(self, pod: WaitingPod, now: float) -> None:
        """Keep the place that a pod has by what stands in it, and in the labels of nodes.

        A label that it cannot do without may not be there yet.
        """
        labelled = set(self._labels.nodes_with(pod.label))
        names = (*pod.place, *sorted(labelled - set(pod.place)))
        if pod.goes_by_label_only:
            labelled.update(pod.place)
        self._places.restore(pod, names, now).labelled = labelled

    def _member_waits_no_more(self, pod: WaitingPod) -> None:
        """Take in that a member is leaving, has another gate, or none."""
        if pod.is_gated or pod.watched.is_leaving:
            self.groups.gone(pod.uid)
        else:
            self.members_begin([pod.watched])

    def _forget_kind(self, kind: Kind) -> None:
        """Let all nodes be asked again for a kind of which no pod waits now."""
        if kind not in self.queue.kinds:
            self.refused_kinds.discard(kind)
            self.hopeless_kinds.discard(kind)
            self.unasked.discard(kind)
