"""The scheduler extender but for HTTP.

It watches an API server, keeps the state, binds pods, and wakes those that were refused. HTTP is
spoken by `alignup.control_plane.scheduler.extender_server`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from alignup.control_plane.api_server import api_client, objects, pod_events
from alignup.control_plane.api_server.watch import Backoff, Calls, list_objects
from alignup.control_plane.scheduler.cluster_watch import NOT_LISTED, ClusterWatch, Feed
from alignup.control_plane.scheduler.extender_answers import keep_newest
from alignup.errors import AlignupError
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import msgspec

    from alignup.control_plane.api_server.leader import Leader
    from alignup.control_plane.scheduler.extender_answers import Answers, Filtered
    from alignup.control_plane.scheduler.extender_wire import Binding
    from alignup.kubernetes.wire import Metadata

_LOG: Final = logging.getLogger(__name__)
# The annotation of a Node that is set when a refused pod may fit there; schedulers try their pods
# again then.
WOKEN: Final = "alignup.dev/woken-at"

BOUND_PODS: Final = {
    "fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
}
# Seconds between two looks for a node that can take a pod that waits, and between two wakings, each
# of which tries all.
_LOOK_SECONDS: Final = 0.05
_TERM_SECONDS: Final = 0.05


class Extender:
    """Everything but HTTP.

    Args:
        api: the API server.
        answers: about the state that is kept here.
        synced: called once, when all objects were listed.
        leader: questions are answered only while it leads; None: always.
        led: awaited when this extender has begun to lead and has seen all that others have bound.
        writes_events: write an Event on each pod of which the causes of refusal have changed.
    """

    def __init__(
        self,
        api: api_client.Api,
        answers: Answers,
        *,
        synced: Callable[[], None] = lambda: None,
        leader: Leader | None = None,
        led: Callable[[], Awaitable[None]] | None = None,
        writes_events: bool = True,
    ) -> None:
        self.api = api
        self.answers = answers
        self.state = answers.state
        # seconds that never go back
        self.clock = time.monotonic
        self.read = objects.PodReader().read
        self._synced = synced

        self._leader = leader
        self._led = led
        # The term of the leader of which all is listed.
        self._term = 0
        if leader is not None:
            leader.settle = self._settle

        # by node, while a binding to it is under way or waits
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

        self._writes_events = writes_events
        # By uid, the causes that the last Event on a pod told.
        self._told_causes: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._events: asyncio.Queue[tuple[Metadata, str]] = asyncio.Queue(pod_events.MOST_EVENTS)

        self.watch = ClusterWatch(
            api,
            self.state,
            nodes=Feed(objects.decode_node, self._node_sink(), objects.NodeObject),
            pods=Feed(
                self._decode,
                Calls(self._pods_listed, self._pod_seen, self._pod_gone),
                objects.PodObject,
                BOUND_PODS,
            ),
            clock=self.clock,
        )

    def _node_sink(self) -> Calls[objects.NodeObject]:
        """Return what takes in Node objects."""
        state = self.state

        def listed(nodes: list[objects.NodeObject]) -> None:
            state.nodes_listed({node.metadata.name: node.metadata.labels or {} for node in nodes})

        def seen(node: objects.NodeObject) -> None:
            state.node_seen(node.metadata.name, node.metadata.labels or {})

        def gone(node: objects.NodeObject) -> None:
            state.node_gone(node.metadata.name)

        return Calls(listed, seen, gone)

    def check_ready(self) -> None:
        """Check that questions can be answered: all objects are listed, and this extender leads.

        Raises:
            AlignupError: they cannot be yet.
        """
        if not self.watch.is_synced:
            raise AlignupError(NOT_LISTED)
        if self._leader is not None and not self._leader.leads:
            raise AlignupError(f"this extender stands by: {self._leader.holder or 'nobody'} leads")
        if self._leader is not None and self._leader.term != self._term:
            raise AlignupError(
                "this extender has just begun to lead, and lists what was bound before"
            )

    def _decode(self, data: bytes | msgspec.Raw | objects.PodObject) -> objects.WatchedPod:
        """Return the record of a Pod; one that cannot be read asks for nothing, with a warning."""
        pod_object = objects.decode_pod(data)
        try:
            return self.read(pod_object)
        except AlignupError as error:
            return objects.pod_without_requests(pod_object, error)

    def _pods_listed(self, pods: list[objects.WatchedPod]) -> None:
        bound = [pod for pod in pods if pod.node]
        self.state.pods_listed(
            bound,
            self.clock(),
            self.watch.pods.list_began,
            is_cached=self.watch.pods.list_is_cached,
        )

    def _pod_seen(self, pod: objects.WatchedPod) -> None:
        if pod.has_ended:
            self._pod_gone(pod)
        elif pod.node:
            self.state.pod_seen(pod, self.clock())
            self.answers.forget(pod.pod.uid)

        # one without a node is as it was before its binding: no server takes a binding back

    def _pod_gone(self, pod: objects.WatchedPod) -> None:
        """Take in that a pod is deleted, or not selected any more.

        The kubelet may be at it still. The event shows the pod as it was before, also where it has
        ended since: that is asked, unless a report tells.
        """
        uid = pod.pod.uid
        self.answers.forget(uid)
        if pod.has_ended:
            self.state.pod_gone(uid, self.clock())
            return

        self.state.pod_vanished(uid, self.clock())
        self.watch.look_for(pod.pod)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._say_synced, self.watch.run, self._wake, self._write_events):
                tasks.create_task(work())

            if self._leader is not None:
                tasks.create_task(self._leader.run())
                tasks.create_task(self._follow_terms(self._leader))

    async def bind(self, binding: Binding) -> str:
        """Bind a pod to a node if the node can still take it.

        Return what went wrong, empty if nothing did. Other pods may have been bound between the
        scheduler's question and its choice: it asks for the next pod while the last one is still
        being bound. Pods are bound to one node one after another: its kubelet admits them in the
        order in which the server took the bindings, which is that of the answers only if one waits
        for the other.
        """
        async with self._turns.setdefault(binding.node, asyncio.Lock()):
            # what its group was offered is judged anew: others may have been bound since
            self.answers.holds.end(binding.uid)
            is_first = binding.uid not in self.state.assumed
            try:
                pod = self.answers.asked.get(binding.uid) or await self._fetch(binding)
                # this process may have waited, or been stopped, since it was asked
                self.check_ready()

                bound_pod = self.state.pods.get(binding.uid)
                is_assumed = binding.uid in self.state.assumed
                if bound_pod is not None and bound_pod.node != binding.node and is_assumed:
                    return f"NUMA: the pod may be bound to node {bound_pod.node}"

                if bound_pod is None and not self.answers.admits(pod, binding.node):
                    _LOG.warning(
                        "pod %r is not bound: node %r can no longer take it",
                        binding.name,
                        binding.node,
                    )
                    return f"NUMA: node {binding.node} can no longer take the pod"

                if bound_pod is None or is_assumed:  # else it was seen to be bound
                    self.state.assume(replace(pod, node=binding.node), self.clock())
                await self._post(binding)
                self.state.assumed_rightly(binding.uid, self.clock())
            except api_client.ApiError as error:
                return await self._after(binding, error, is_first=is_first)

        self.answers.forget(binding.uid)
        _LOG.debug("pod %r is bound to %r", binding.name, binding.node)
        return ""

    async def _post(self, binding: Binding) -> None:
        """Ask the server to bind a pod.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": binding.name,
                "namespace": binding.namespace,
                "uid": binding.uid,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        # that of a leader ends before another one can have listed what is bound
        seconds = None
        if self._leader is not None:
            seconds = self._leader.terms.lease - self._leader.terms.renew

        path = api_client.pod_path(binding.namespace, binding.name, api_client.BINDING)
        await self.api.request("POST", path, body, seconds=seconds)

    async def _after(self, binding: Binding, error: api_client.ApiError, *, is_first: bool) -> str:
        """Return what went wrong with a binding.

        Empty: it was done all the same, and only its answer got lost. After an answer that is no
        refusal, the server may still bind the pod: it counts on, and is asked again there.
        """
        is_refused = is_first and error.is_refusal
        try:
            pod = await self._fetch(binding)
        except AlignupError as fetch_error:  # no answer, or not with a pod
            pod = None
            is_refused |= (
                isinstance(fetch_error, api_client.ApiError)
                and fetch_error.status == api_client.MISSING
            )

        if pod is None or not pod.node or pod.pod.uid != binding.uid:
            if is_refused or (pod is not None and pod.pod.uid != binding.uid):
                self.state.pod_gone(binding.uid, self.clock())
            _LOG.warning("pod %r is not bound to %r: %s", binding.name, binding.node, error)
            return str(error)

        self.state.pod_seen(pod, self.clock())
        return "" if pod.node == binding.node else str(error)

    async def _settle(self) -> bool:
        """Wait for the bindings under way.

        Return whether the server has answered all, so that another may lead.
        """
        for turn in list(self._turns.values()):
            async with turn:
                pass

        return all(moment <= self.clock() for moment in self.state.assumed.values())

    async def _fetch(self, binding: Binding) -> objects.WatchedPod:
        path = api_client.pod_path(binding.namespace, binding.name)
        return self._decode(await self.api.request("GET", path))

    def tell(self, pod: Metadata, filtered: Filtered) -> None:
        """Write an Event on a pod that no node takes, soon.

        There is none if the causes are those of the last time.
        """
        causes = frozenset((*filtered.failed.values(), *filtered.unresolvable.values()))
        is_new = not filtered.passed and causes and self._told_causes.get(pod.uid) != causes
        if is_new and self._writes_events and not self._events.full():
            keep_newest(self._told_causes, pod.uid, causes)
            self._events.put_nowait((pod, filtered.words()))

    async def _write_events(self) -> None:
        while True:
            pod, sentence = await self._events.get()
            with self.api.complaining():
                await pod_events.write_event(
                    self.api, pod, "NotAligned", sentence, "alignup-extender"
                )

            await asyncio.sleep(pod_events.EVENT_SECONDS)

    async def budgets(self) -> list[objects.Budget]:
        """Return the disruption budgets as they are now.

        There are none, and a complaint, where they cannot be had.
        """
        with self.api.complaining("no disruption budgets are known: "):
            return [
                objects.decode_budget(item)
                async for item in list_objects(self.api, api_client.BUDGETS)
            ]

        return []

    async def _say_synced(self) -> None:
        await self.watch.synced()
        self._synced()

    async def _follow_terms(self, leader: Leader) -> None:
        """List again, as each term begins, what earlier leaders may have bound at last."""
        while True:
            await asyncio.sleep(_TERM_SECONDS)
            term = leader.term
            if term != self._term and leader.leads and self.watch.is_synced:
                await self.watch.pods.list_again()
                self._term = term
                await self._announce(leader)

    async def _announce(self, leader: Leader) -> None:
        """Tell that this extender leads, again and again until that has succeeded or it does not.

        It is told in so short a time that the next leader, if there is one, tells it later.
        """
        if self._led is None:
            return

        seconds = leader.terms.lease - leader.terms.renew
        backoff = Backoff(self.api.pauses)
        while leader.leads and leader.term == self._term:
            try:
                async with asyncio.timeout(seconds):
                    await self._led()
            except (AlignupError, TimeoutError) as error:
                self.api.complain(str(error) or "the pod that leads is not labelled: no answer")
                await backoff.pause()
            else:
                break

    async def _wake(self) -> None:
        """Let schedulers try refused pods again when more fits on a node than before."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            leads = self._leader is None or self._leader.leads
            if not leads or not (name := self.answers.woken(self.clock())):
                continue
            body = {"metadata": {"annotations": {WOKEN: api_client.now(precise=True)}}}
            try:
                await self.api.request(
                    "PATCH", api_client.object_path(api_client.NODES, name), body
                )
            except api_client.ApiError as error:
                self.api.complain(str(error))
                self.state.changed.add(name)
