"""Follows what a cluster's state is made of: nodes, pods, reports, and claims.

Whoever decides about pods needs all of it: the extender and the keeper of gated pods. What they
want of a node or a pod differs, and so they bring what reads these.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from alignup.claims.read import read_claim, read_class, read_slice
from alignup.control_plane.api_server import api_client
from alignup.control_plane.api_server.watch import Calls, Follower, Sink
from alignup.errors import AlignupError
from alignup.kubelet.node_resource_topology.report import Report, ReportObject, decode_report
from alignup.records import Record, field
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from alignup.control_plane.scheduler.cluster_state import ClusterState
    from alignup.kubernetes.pod import Pod

_T = TypeVar("_T")
_P = TypeVar("_P")

NOT_LISTED: Final = "alignup has not listed the whole cluster yet"

# Seconds between two looks for reports that should have come.
_TICK_SECONDS: Final = 5.0

# Seconds between two lists that look for pods which went without a word, at least and at most; they
# differ, so that extenders do not all ask at once.
_RELIST_SECONDS: Final = (20.0, 40.0)
# Of the time, at most this part goes into these lists.
_RELIST_PART: Final = 0.05

# Pods that are looked for after they vanished; further ones wait for a list.
_MOST_LOOKED_FOR: Final = 1_000


class Feed(Record, Generic[_T]):
    """How the objects of one kind are read, and where they go.

    Attributes:
        decode: makes an object of its JSON, or of a value of `kind`.
        kind: the type of which pages are read in one step.
        query: selectors.
    """

    decode: Callable[[Any], _T]
    sink: Sink[_T]
    kind: Any
    query: Mapping[str, str] = field(default_factory=dict)


def _decoder(read: Callable[[object, str], object]) -> Callable[[msgspec.Raw], Any]:
    """Return what reads an object of its JSON."""
    return lambda data: read(decode_json(data, "an object"), "it")


class ClusterWatch(Generic[_P]):
    """Followers of all kinds.

    Args:
        api: the API server.
        state: takes in reports and claims.
        nodes: of Node objects; the sink hands them to the state.
        pods: of pods; the sink hands those that are bound to the state.
        clock: seconds that never go back.
        reported: called with the names of nodes whose reports were taken in.
    """

    def __init__(
        self,
        api: api_client.Api,
        state: ClusterState,
        *,
        nodes: Feed[Any],
        pods: Feed[_P],
        clock: Callable[[], float] = time.monotonic,
        reported: Callable[[list[str]], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._state = state
        self._pod_feed = pods
        self.clock = clock
        self._reported = reported
        # Pods that are seen no longer, and whose end nobody has told of.
        self._vanished: asyncio.Queue[Pod] = asyncio.Queue(_MOST_LOOKED_FOR)

        follow = partial(Follower, api)
        self.pods: Follower[_P] = follow(
            api_client.PODS, pods.decode, pods.sink, query=pods.query, kind=pods.kind
        )
        self.nodes = follow(api_client.NODES, nodes.decode, nodes.sink, kind=nodes.kind)
        self._reports = follow(
            api_client.TOPOLOGIES, decode_report, self._report_sink(), kind=ReportObject
        )
        claims = state.claims
        claimed = (
            ("resourceslices", read_slice, claims.slices),
            ("deviceclasses", read_class, claims.classes),
            ("resourceclaims", read_claim, claims.claims),
        )
        self.followers: tuple[Follower[Any], ...] = (
            self.nodes,
            self.pods,
            self._reports,
            *(
                follow(f"{api_client.CLAIMS}/{kind}", _decoder(read), sink, is_optional=True)
                for kind, read, sink in claimed
            ),
        )

    def _report_sink(self) -> Calls[Report]:
        """Return what takes in NodeResourceTopology objects."""
        state = self._state

        def listed(reports: list[Report]) -> None:
            state.reports_listed(reports, self.clock())
            self._reported([report.name for report in reports])

        def seen(report: Report) -> None:
            state.report_seen(report, self.clock())
            self._reported([report.name])

        def gone(report: Report) -> None:
            state.report_gone(report.name)

        return Calls(listed, seen, gone)

    @property
    def is_synced(self) -> bool:
        """Whether all objects were listed once."""
        return all(follower.synced.is_set() for follower in self.followers)

    @property
    def lists(self) -> int:
        """How many times objects of some kind were listed."""
        return sum(follower.lists for follower in self.followers)

    async def synced(self) -> None:
        """Wait until all objects were listed once."""
        for follower in self.followers:
            await follower.synced.wait()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._tick, self._relist, self._look_for_vanished):
                tasks.create_task(work())
            for follower in self.followers:
                # reports: each node is made once, with the pods that it has
                if follower is self._reports:
                    await self.pods.synced.wait()
                tasks.create_task(follower.run())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._state.tick(self.clock())
            if self._state.is_overdue(self.clock()):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_SECONDS):
                        await self.pods.list_again()

    async def _relist(self) -> None:
        """List pods from time to time, while one that went without a word would be held."""
        seconds = 0.0
        while True:
            pause = random.uniform(*_RELIST_SECONDS)  # noqa: S311  # nothing secret
            await asyncio.sleep(max(pause, seconds / _RELIST_PART))
            if self._state.has_unreported(self.clock()):
                began = self.clock()
                await self.pods.list_again(cached=True)
                seconds = self.clock() - began

    def look_for(self, pod: Pod) -> None:
        """Ask soon for a pod, if it vanished and no report lists what it holds.

        What there is goes to the sink of pods. Where too many are asked for, a list tells.
        """
        if self._state.is_vanished(pod.uid) and not self._vanished.full():
            self._vanished.put_nowait(pod)

    async def _look_for_vanished(self) -> None:
        state = self._state
        while True:
            pod = await self._vanished.get()
            path = api_client.pod_path(pod.namespace, pod.name)
            try:
                answer = self._pod_feed.decode(await self._api.request("GET", path))
            except AlignupError as error:
                if isinstance(error, api_client.ApiError) and error.status == api_client.MISSING:
                    state.pod_missing(pod.uid, self.clock())
                continue  # else a list will tell

            if state.is_vanished(pod.uid):  # nothing was seen of it meanwhile
                self._pod_feed.sink.changed(answer)
                # it was another one of its name, or without a node
                state.pod_missing(pod.uid, self.clock())
