"""The scheduler extender: watches an API server, keeps the state, binds pods, and wakes those that were refused.

HTTP is spoken by `alignup.control_plane.scheduler.extender_server`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from alignup.claims.read import read_claim, read_class, read_slice
from alignup.control_plane.api_server import api_client, objects
from alignup.control_plane.api_server.watch import Calls, Follower, list_objects
from alignup.control_plane.scheduler.extender_answers import keep_newest
from alignup.errors import AlignupError, warn
from alignup.kubelet.node_resource_topology.report import Report, decode_report
from alignup.kubernetes.pod import Pod
from alignup.records import replace
from alignup.text.json_text import decode_json

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
NOT_LISTED: Final = "alignup has not listed the whole cluster yet"
# Seconds between two looks for a node that can take a pod that waits, and between two wakings, each
# of which tries all.
_LOOK_SECONDS: Final = 0.05
_TICK_SECONDS: Final = 5.0
_TERM_SECONDS: Final = 0.05


class Extender:
    """Everything but HTTP.

    Args:
        api: the API server.
        answers: about the state that is kept here.
        synced: called once, when all objects were listed.
        clock: seconds that never go back.
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
        clock: Callable[[], float] = time.monotonic,
        leader: Leader | None = None,
        led: Callable[[], Awaitable[None]] | None = None,
        writes_events: bool = True,
    ) -> None:
        self.api, self.answers, self.clock = api, answers, clock
        self.state = state = answers.state
        self._leader, self._led, self._term = leader, led, 0
        if leader is not None:
            leader.settle = self._settle

        self._synced = synced
        # by node, while a binding to it is under way or waits
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._writes_events = writes_events
        self._told: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._events: asyncio.Queue[tuple[Metadata, str]] = asyncio.Queue(api_client.MOST_EVENTS)
        self.read = objects.PodReader().read
        nodes: Calls[objects.NodeObject] = Calls(
            lambda found: state.nodes_listed(
                {one.metadata.name: one.metadata.labels or {} for one in found}
            ),
            lambda one: state.node_seen(one.metadata.name, one.metadata.labels or {}),
            lambda one: state.node_gone(one.metadata.name),
        )
        pods: Calls[objects.WatchedPod] = Calls(
            lambda found: state.pods_listed(
                [one for one in found if one.node], clock(), self.pods.list_began
            ),
            self._pod_seen,
            self._pod_gone,
        )
        reports: Calls[Report] = Calls(
            lambda found: state.reports_listed(found, clock()),
            lambda one: state.report_seen(one, clock()),
            lambda one: state.report_gone(one.name),
        )
        follow = partial(Follower, api, clock=clock)

        def decoder(read: Callable[[object, str], object]) -> Callable[[msgspec.Raw], Any]:
            return lambda data: read(decode_json(data, "an object"), "it")

        self.pods = follow(
            api_client.PODS, self._decode, pods, query=BOUND_PODS, kind=objects.PodObject
        )
        self._reports = follow(api_client.TOPOLOGIES, decode_report, reports)
        self.followers: tuple[Follower[Any], ...] = (
            follow(api_client.NODES, objects.decode_node, nodes, kind=objects.NodeObject),
            self.pods,
            self._reports,
            *(
                follow(f"{api_client.CLAIMS}/{kind}", decoder(read), sink, is_optional=True)
                for kind, read, sink in (
                    ("resourceslices", read_slice, state.claims.slices),
                    ("deviceclasses", read_class, state.claims.classes),
                    ("resourceclaims", read_claim, state.claims.claims),
                )
            ),
        )

    @property
    def is_synced(self) -> bool:
        """Whether all objects were listed once."""
        return all(follower.synced.is_set() for follower in self.followers)

    def check_ready(self) -> None:
        """Check that questions can be answered: all objects are listed, and this extender leads.

        Raises:
            AlignupError: they cannot be yet.
        """
        if not self.is_synced:
            raise AlignupError(NOT_LISTED)
        if self._leader is not None and not self._leader.leads:
            raise AlignupError(f"this extender stands by: {self._leader.holder or 'nobody'} leads")
        if self._leader is not None and self._leader.term != self._term:
            raise AlignupError(
                "this extender has just begun to lead, and lists what was bound before"
            )

    def _decode(self, data: bytes | msgspec.Raw | objects.PodObject) -> objects.WatchedPod:
        """Return the record of a Pod; one that cannot be read asks for nothing, with a warning."""
        found = objects.decode_pod(data)
        try:
            return self.read(found)
        except AlignupError as error:
            metadata = found.metadata
            warn(f"the requests of pod {metadata.namespaced_name} are ignored: {error}")
            node = "" if found.has_ended else found.spec.node_name
            return objects.WatchedPod(
                Pod(metadata.uid, metadata.name, metadata.namespace), node=node
            )

    def _pod_seen(self, found: objects.WatchedPod) -> None:
        if not found.node:
            self._pod_gone(found)
            return
        self.state.pod_seen(found, self.clock())
        self.answers.forget(found.pod.uid)

    def _pod_gone(self, found: objects.WatchedPod) -> None:
        self.state.pod_gone(found.pod.uid, self.clock())
        self.answers.forget(found.pod.uid)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._say_synced, self._tick, self._wake, self._write_events):
                tasks.create_task(work())
            if self._leader is not None:
                tasks.create_task(self._leader.run())
                tasks.create_task(self._follow_terms(self._leader))
            for follower in self.followers:
                # reports: each node is made once, with the pods that it has
                if follower is self._reports:
                    await self.pods.synced.wait()
                tasks.create_task(follower.run())

    async def bind(self, binding: Binding) -> str:
        """Bind a pod to a node if the node can still take it; return what went wrong, empty if nothing did.

        Other pods may have been bound between the scheduler's question and its choice: it asks for
        the next pod while the last one is still being bound. Pods are bound to one node one after
        another: its kubelet admits them in the order in which the server took the bindings, which
        is that of the answers only if one waits for the other.
        """
        async with self._turns.setdefault(binding.node, asyncio.Lock()):
            is_first = binding.uid not in self.state.assumed
            try:
                pod = self.answers.asked.get(binding.uid) or await self._fetch(binding)
                # this process may have waited, or been stopped, since it was asked
                self.check_ready()
                known, is_assumed = (
                    self.state.pods.get(binding.uid),
                    binding.uid in self.state.assumed,
                )
                if known is not None and known.node != binding.node and is_assumed:
                    return f"NUMA: the pod may be bound to node {known.node}"
                if known is None and not self.answers.admits(pod, binding.node):
                    _LOG.warning(
                        "pod %r is not bound: node %r can no longer take it",
                        binding.name,
                        binding.node,
                    )
                    return f"NUMA: node {binding.node} can no longer take the pod"

                if known is None or is_assumed:  # else it was seen to be bound
                    self.state.assume(replace(pod, node=binding.node), self.clock())
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
                path = api_client.pod_path(binding.namespace, binding.name, api_client.BINDING)
                # that of a leader ends before another one can have listed what is bound
                seconds = (
                    None
                    if self._leader is None
                    else self._leader.terms.lease - self._leader.terms.renew
                )
                await self.api.request("POST", path, body, seconds=seconds)
                self.state.assumed_rightly(binding.uid, self.clock())
            except api_client.ApiError as error:
                return await self._after(binding, error, is_first=is_first)

        self.answers.forget(binding.uid)
        _LOG.debug("pod %r is bound to %r", binding.name, binding.node)
        return ""

    async def _after(self, binding: Binding, error: api_client.ApiError, *, is_first: bool) -> str:
        """Return what went wrong with a binding, empty if it was done all the same and only its answer got lost.

        After an answer that is no refusal, the server may still bind the pod: it counts on, and is
        asked again there.
        """
        is_refused = is_first and error.is_refusal
        try:
            found = await self._fetch(binding)
        except AlignupError as why:  # no answer, or not with a pod
            found = None
            is_refused |= isinstance(why, api_client.ApiError) and why.status == api_client.MISSING

        if found is None or not found.node or found.pod.uid != binding.uid:
            if is_refused or (found is not None and found.pod.uid != binding.uid):
                self.state.pod_gone(binding.uid, self.clock())
            _LOG.warning("pod %r is not bound to %r: %s", binding.name, binding.node, error)
            return str(error)

        self.state.pod_seen(found, self.clock())
        return "" if found.node == binding.node else str(error)

    async def _settle(self) -> bool:
        """Wait for the bindings under way; return whether the server has answered all, so that another may lead."""
        for turn in list(self._turns.values()):
            async with turn:
                pass
        return all(moment <= self.clock() for moment in self.state.assumed.values())

    async def _fetch(self, binding: Binding) -> objects.WatchedPod:
        return self._decode(
            await self.api.request("GET", api_client.pod_path(binding.namespace, binding.name))
        )

    def tell(self, pod: Metadata, found: Filtered) -> None:
        """Write an Event on a pod that no node takes, soon, if the causes are others than the last time."""
        causes = frozenset((*found.failed.values(), *found.unresolvable.values()))
        is_new = not found.passed and causes and self._told.get(pod.uid) != causes
        if is_new and self._writes_events and not self._events.full():
            keep_newest(self._told, pod.uid, causes)
            self._events.put_nowait((pod, found.words()))

    async def _write_events(self) -> None:
        while True:
            pod, sentence = await self._events.get()
            with self.api.complaining():
                await api_client.write_event(
                    self.api, pod, "NotAligned", sentence, "alignup-extender"
                )
            await asyncio.sleep(api_client.EVENT_SECONDS)

    async def budgets(self) -> list[objects.Budget]:
        """Return the disruption budgets as they are now; none, and a complaint, where they cannot be had."""
        with self.api.complaining("no disruption budgets are known: "):
            return [
                objects.decode_budget(one)
                async for one in list_objects(self.api, api_client.BUDGETS)
            ]
        return []

    async def _say_synced(self) -> None:
        for follower in self.followers:
            await follower.synced.wait()
        self._synced()

    async def _follow_terms(self, leader: Leader) -> None:
        """List again, at the beginning of each term, what earlier leaders may have bound at last."""
        while True:
            await asyncio.sleep(_TERM_SECONDS)
            term = leader.term
            if term != self._term and leader.leads and self.is_synced:
                await self.pods.list_again()
                self._term = term
                if self._led is not None:
                    with self.api.complaining():
                        await self._led()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.state.tick(self.clock())
            if self.state.is_overdue(self.clock()):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_SECONDS):
                        await self.pods.list_again()

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
