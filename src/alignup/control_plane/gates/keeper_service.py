"""The keeper but for its decisions: it follows the cluster, and writes what was decided.

Only the leader writes, and what an earlier one sent is made void first (`fence`). It need not be
where the leader before gave the lease back: all that it had sent was answered, and nothing of
earlier ones was to come.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from alignup.control_plane.api_server import api_client
from alignup.control_plane.api_server.objects import PLACE
from alignup.control_plane.api_server.watch import Backoff, Calls, Follower
from alignup.control_plane.gates.decisions import Label, Release, patch_of
from alignup.control_plane.gates.fence import Fence
from alignup.control_plane.gates.gathering import Gathering
from alignup.control_plane.gates.keeper_metrics import KeeperMetrics
from alignup.control_plane.gates.patches import Patches
from alignup.control_plane.gates.status_server import metrics_text
from alignup.control_plane.gates.waiting_pods import (
    SEEN_BY,
    GatedPodObject,
    GatedPodReader,
    WaitingPod,
)
from alignup.control_plane.scheduler.cluster_watch import NOT_LISTED, ClusterWatch, Feed
from alignup.errors import AlignupError
from alignup.kubernetes.groups import GROUP_OBJECTS
from alignup.kubernetes.node_fit import NodeObject, node_of_wire
from alignup.kubernetes.wire import NodeMetadataWire, NodeWire
from alignup.records import Record
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import msgspec

    from alignup.control_plane.api_server.leader import Leader
    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.decisions import Decision, Plan
    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.status_server import Pages
    from alignup.kubernetes.groups import GroupObject

_LOG: Final = logging.getLogger(__name__)

PRESENT_PODS: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}

# Seconds between two decisions, at least where events bring them about, and at most without any.
_GATHERING: Final = 0.005
_LONGEST_PAUSE: Final = 1.0

# Seconds between two looks at why pods wait.
_LOOK_SECONDS: Final = 1.0

# Letters of the name of a node, at most.
_LONGEST_NAME: Final = 253


class WatchedNode(Record):
    """A node, and the leader that has written into it when it began to lead; empty: none has."""

    node: NodeObject
    seen_by: str = ""


def decode_node(data: bytes | msgspec.Raw | NodeWire) -> WatchedNode:
    """Return a Node that an API server sent, also if it is decoded already.

    Raises:
        InputError: it is none.
    """
    wire = data if isinstance(data, NodeWire) else decode_json(data, "a Node", kind=NodeWire)
    annotations = (wire.metadata or NodeMetadataWire()).annotations or {}
    return WatchedNode(node_of_wire(wire, "a Node"), annotations.get(SEEN_BY, ""))


def _touched(pod: WaitingPod) -> tuple[str, tuple[str, ...]]:
    """Return the path of a pod that waits, and the annotations that it is to have no more."""
    path = api_client.pod_path(pod.watched.pod.namespace, pod.watched.pod.name)
    # no keeper's, and it may be too long to be kept
    return path, (PLACE,) if len(pod.planned) > _LONGEST_NAME else ()


class KeeperService:
    """A keeper with an API server.

    Args:
        api: the API server.
        keeper: decides.
        reader: of pods.
        leader: decisions are written only while it leads; None: always.
        synced: called once, when all objects were listed.
    """

    def __init__(
        self,
        api: api_client.Api,
        keeper: Keeper,
        reader: GatedPodReader,
        *,
        leader: Leader | None = None,
        synced: Callable[[], None] = lambda: None,
    ) -> None:
        self.api = api
        self.keeper = keeper
        self.clock = time.monotonic
        # What the metrics are made of.
        self.observed = KeeperMetrics(keeper)
        # What else is done while this process leads, which each asks the function for.
        self.beside: list[Callable[[Callable[[], bool]], Coroutine[Any, Any, None]]] = []
        # Further metrics than the keeper's, by name: the type, what it means, and its value.
        self.counters: dict[str, tuple[str, str, Callable[[], float]]] = {}
        self._reader = reader
        self._synced = synced

        self._leader = leader
        # The term of the leader of which all is listed and fenced.
        self._term = 0
        # The newest term in which nothing of earlier leaders is still to come.
        self._fenced_term = 0
        self._until_next_try = Backoff(api.pauses)
        if leader is None:
            self._patches = Patches(api, None, self._now)
            self._fence = None
        else:
            leader.settle = self._settle
            self._patches = Patches(api, leader.terms.lease - leader.terms.renew, self._now)
            self._fence = Fence(api, leader, self._patches, self._now)

        self._gathering = Gathering(_GATHERING, _LONGEST_PAUSE)
        self._requests: set[asyncio.Task[None]] = set()
        # By key, the labels that are being written.
        self._labelling: dict[str, set[asyncio.Task[None]]] = {}
        # By kind, set once a pod has named such an object: most clusters have none.
        self._group_kinds = {kind: asyncio.Event() for kind in GROUP_OBJECTS}

        self.watch: ClusterWatch[WatchedPod | WaitingPod] = ClusterWatch(
            api,
            keeper.state,
            nodes=Feed(decode_node, self._node_sink(), NodeWire),
            pods=Feed(reader.decode, self._pod_sink(), GatedPodObject, PRESENT_PODS),
            clock=self.clock,
            reported=self._reported,
        )

    def _now(self) -> float:
        return self.clock()

    def _reported(self, names: list[str]) -> None:
        if self.keeper.reported(names):
            self.observed.nodes_changed(names, self.clock())
            self._note_change()

    def _note_change(self, pod: WatchedPod | WaitingPod | None = None) -> None:
        """Let it be decided soon, if that matters to anybody: else it is done within a second.

        The argument is the pod that has changed, if it is one.
        """
        if isinstance(pod, WaitingPod) or self.keeper.waits_for_changes:
            self._gathering.event()

    def _node_sink(self) -> Calls[WatchedNode]:
        keeper = self.keeper

        def listed(nodes: list[WatchedNode]) -> None:
            for watched in nodes:
                self._look_for_other_leader(watched.seen_by)
            keeper.nodes_listed([watched.node for watched in nodes], self.clock())
            self._gathering.event()

        def seen(watched: WatchedNode) -> None:
            self._look_for_other_leader(watched.seen_by)
            self.observed.nodes_changed((watched.node.name,), self.clock())
            keeper.node_seen(watched.node, self.clock())
            self._gathering.event()

        def gone(watched: WatchedNode) -> None:
            keeper.node_gone(watched.node.name)
            self._gathering.event()

        return Calls(listed, seen, gone)

    def _pod_sink(self) -> Calls[WatchedPod | WaitingPod]:
        keeper = self.keeper

        def listed(pods: list[WatchedPod | WaitingPod]) -> None:
            self.observed.pods_listed(pods, self.clock())
            for pod in pods:
                if isinstance(pod, WaitingPod):
                    self._look_for_other_leader(pod.seen_by)
            follower = self.watch.pods
            keeper.pods_listed(
                pods, self.clock(), follower.list_began, is_cached=follower.list_is_cached
            )
            self._note_group_kinds()
            self._gathering.event()

        def gone(pod: WatchedPod | WaitingPod) -> None:
            watched = pod.watched if isinstance(pod, WaitingPod) else pod
            self.observed.pod_gone(watched.pod.uid, self.clock())
            if isinstance(pod, WaitingPod):  # it was never bound
                keeper.pod_gone(pod.uid, self.clock())
            elif pod.has_ended:
                keeper.pod_gone(pod.pod.uid, self.clock())
            else:
                # the event shows it as it was before, also where it has ended since
                keeper.pod_vanished(pod.pod.uid, self.clock())
                self.watch.look_for(pod.pod)
            self._note_change(pod)

        return Calls(listed, self._pod_seen, gone)

    def _pod_seen(self, pod: WatchedPod | WaitingPod) -> None:
        if isinstance(pod, WaitingPod):
            self._look_for_other_leader(pod.seen_by)

        is_news = self.keeper.is_news(pod)
        if is_news:
            self.observed.pod_seen(pod, self.clock())
        self.keeper.pod_seen(pod, self.clock())
        if is_news:
            self._note_group_kinds()
            self._note_change(pod)

    def _look_for_other_leader(self, seen_by: str) -> None:
        if self._fence is not None:
            self._fence.seen(seen_by)

    def _note_group_kinds(self) -> None:
        for kind in self.keeper.groups.object_kinds:
            self._group_kinds[kind].set()

    async def _follow_groups(self, kind: str) -> None:
        """Follow the objects that say how many members groups of a kind have."""
        await self._group_kinds[kind].wait()
        groups = self.keeper.groups
        object_type, path = GROUP_OBJECTS[kind]

        def listed(items: list[GroupObject]) -> None:
            groups.listed(object_type, items)
            self._gathering.event()

        def seen(item: GroupObject) -> None:
            groups.seen(item)
            self._gathering.event()

        def gone(item: GroupObject) -> None:
            groups.object_gone(item)
            self._gathering.event()

        def decode(data: bytes | msgspec.Raw) -> GroupObject:
            return decode_json(data, f"a {object_type.__name__}", kind=object_type)

        sink = Calls(listed, seen, gone)
        await Follower(self.api, path, decode, sink, is_optional=True).run()

    @property
    def leads(self) -> bool:
        """Whether decisions of this process count: it leads, and has listed and fenced all."""
        if self._leader is None:
            return True
        return self._leader.leads and self._leader.term == self._term

    @property
    def pages(self) -> Pages:
        """What is answered over HTTP."""
        return {"/healthz": self._health, "/metrics": self._metrics}

    def _health(self) -> tuple[HTTPStatus, str]:
        """Return whether the whole cluster has been seen, be it as a standby."""
        if self.watch.is_synced:
            return HTTPStatus.OK, "ok"
        return HTTPStatus.SERVICE_UNAVAILABLE, NOT_LISTED

    def _metrics(self) -> tuple[HTTPStatus, str]:
        metrics = self.observed.values(self.clock(), leads=self.leads, lists=self.watch.lists)
        for name, (kind, meaning, count) in self.counters.items():
            metrics[name] = kind, meaning, count()
        return HTTPStatus.OK, metrics_text(
            {f"alignup_gates_{name}": metric for name, metric in metrics.items()}
        )

    async def run(self) -> None:
        """Keep pods until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch.run())
            tasks.create_task(self._decide())
            tasks.create_task(self._look_around())
            for kind in GROUP_OBJECTS:
                tasks.create_task(self._follow_groups(kind))
            for work in self.beside:
                tasks.create_task(work(lambda: self.leads))
            if self._leader is not None:
                tasks.create_task(self._leader.run())

    async def _decide(self) -> None:
        await self.watch.synced()
        self._synced()
        while True:
            await self._gathering.pause()
            if self._fence is not None:
                await self._fence.confirm()
            if not self.leads:
                self.keeper.stand_by(self.clock())
                self.observed.stood_by()
                await self._begin_term()
            if self.leads:
                now = self.clock()
                decisions = self.keeper.decide(now)
                self.observed.decided(decisions, now)
                for decision in decisions:
                    self._start(decision)

    async def _look_around(self) -> None:
        """Find out in turn what pods wait for, for metrics, and warn of pods without a gate."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self.leads and self.watch.is_synced:
                self.observed.reasons.look()
                if warning := self.observed.warning(self.clock()):
                    self.api.complain(warning)

    async def _begin_term(self) -> None:
        """Make sure that nothing of an earlier leader is still to come, if this process leads."""
        leader, fence = self._leader, self._fence
        if leader is None or fence is None or not leader.leads:
            return

        term = leader.term
        try:
            await self._list_and_fence(leader, fence)
        except AlignupError as error:
            self.api.complain(str(error))
            await self._until_next_try.pause()
            return

        self._until_next_try.reset()
        if leader.term != term:
            return

        fence.begin(pod.seen_by for pod in self.keeper.pods.gated)
        self._term = self._fenced_term = term
        self._patches.has_unanswered = False

    async def _list_and_fence(self, leader: Leader, fence: Fence) -> None:
        """List what earlier leaders have left, and make void what they may still send.

        Raises:
            AlignupError: that cannot be done.
        """
        await self.watch.pods.list_again()
        self.keeper.begin_term(self.clock())
        # what this process itself sent when it led before may be under way, too
        has_sent = self._requests or self._patches.has_unanswered
        is_fenced = leader.was_handed_over and not has_sent
        if not is_fenced:
            pods = dict(map(_touched, self.keeper.pods.gated))
            await fence.write_into("pods that wait", pods)
            await self.watch.pods.list_again()

        # the place of a pod that follows a label stands in nodes, too: there is mostly none, as
        # others with the gate come to nodes by name, and those without it are soon bound
        if not self.keeper.giver.pods_for_late_labels():
            return

        await self.watch.nodes.list_again()
        if not is_fenced:
            names = self.keeper.nodes_for_late_labels()
            paths = [api_client.object_path(api_client.NODES, name) for name in names]
            await fence.write_into("nodes", dict.fromkeys(paths, ()))
            await self.watch.nodes.list_again()

    async def _settle(self) -> bool:
        """Wait for the requests under way.

        Return whether the server has answered them, and nothing of earlier leaders is to come.
        """
        while self._requests:
            await asyncio.wait(self._requests)

        leader = self._leader
        is_fenced = leader is None or leader.was_handed_over or leader.term == self._fenced_term
        return is_fenced and not self._patches.has_unanswered

    def _start(self, decision: Decision) -> None:
        """Carry a decision out; labels come first among decisions of the same moment."""
        task = asyncio.create_task(self._carry_out(decision))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        if isinstance(decision, Label):
            self._labelling.setdefault(decision.key, set()).add(task)
            task.add_done_callback(partial(self._is_labelled, decision.key))

    def _is_labelled(self, key: str, task: asyncio.Task[None]) -> None:
        """Take in that writing a label has ended."""
        tasks = self._labelling[key]
        tasks.discard(task)
        if not tasks:
            del self._labelling[key]

    def _is_in(self, term: int) -> bool:
        """Return whether decisions of a term count still."""
        return self.leads and self._term == term

    async def _carry_out(self, decision: Decision) -> None:
        term = self._term
        is_done = False
        try:
            # a pod that only reaches its place by a label is tried once if that is there
            if isinstance(decision, Release) and decision.label in self._labelling:
                await asyncio.wait(self._labelling[decision.label])

            async with self._patches.turns:
                if not self._is_in(term):  # it has waited: whoever leads now looks at all anew
                    return
                if isinstance(decision, Label):
                    is_done = await self._write_label(decision)
                else:
                    is_done = await self._change(decision, term)
        except AlignupError as error:
            self.api.complain(str(error))

        if not is_done:  # else what was written comes as an event
            self._gathering.event()

    async def _write_label(self, label: Label) -> bool:
        """Change a label of a node; return whether the server has done so."""
        path = api_client.object_path(api_client.NODES, label.node)
        try:
            await self._patches.send(path, patch_of(label), partial(self._is_in, self._term))
        except api_client.ApiError as error:
            # kubelets write into their nodes: the newest version is seen soon
            is_outdated = error.status == api_client.CONFLICT
            self.keeper.label_refused(label, is_outdated=is_outdated)
            if not is_outdated:
                raise
            return False

        return True

    async def _change(self, decision: Release | Plan, term: int) -> bool:
        """Let a pod go, or write its plan into it; return whether the server has done so.

        An answer that comes in a later term says nothing of what was decided about the pod there.
        """
        pod = decision.pod
        if isinstance(decision, Release) and self.keeper.has_other_label(decision):
            # it was to be taken away first
            self.keeper.refused(pod, self.clock())
            return False

        path = api_client.pod_path(pod.watched.pod.namespace, pod.watched.pod.name)
        try:
            await self._patches.send(path, patch_of(decision), partial(self._is_in, term))
        except api_client.ApiError as error:
            if not self._is_in(term):
                return False  # whoever leads next looks at all pods first

            if error.status not in {api_client.CONFLICT, api_client.MISSING}:
                self.keeper.refused(pod, self.clock(), for_good=True)
                raise

            await self._look_again(pod, path, term)
            return False

        _LOG.debug("written into pod %s", pod.watched.pod.namespaced_name)
        return True

    async def _look_again(self, pod: WaitingPod, path: str, term: int) -> None:
        """Take in a pod that is not as it was decided about.

        It may be so by an answer that was lost: then it was let go.
        """
        try:
            newest = self._reader.decode(await self.api.request("GET", path))
        except AlignupError as error:  # no answer, or not with a pod
            if not self._is_in(term):
                return
            if not isinstance(error, api_client.ApiError) or error.status != api_client.MISSING:
                self.keeper.refused(pod, self.clock())
                raise
            self._is_deleted(pod)
            return

        if isinstance(newest, WaitingPod):
            self._look_for_other_leader(newest.seen_by)
        if not self._is_in(term):
            return

        if not isinstance(newest, WaitingPod):
            self.keeper.pod_seen(newest, self.clock())
        elif newest.uid != pod.uid:
            self._is_deleted(pod)
        else:
            self.keeper.pod_seen(newest, self.clock())
            if newest.is_gated:
                self.keeper.refused(pod, self.clock())

    def _is_deleted(self, pod: WaitingPod) -> None:
        """Take in that a pod was looked for and is not there.

        It may have been let go by a patch whose answer was lost, and bound.
        """
        self.keeper.pod_vanished(pod.uid, self.clock())
        self.keeper.state.pod_missing(pod.uid, self.clock())
