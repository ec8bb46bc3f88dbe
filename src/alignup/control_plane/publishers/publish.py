"""Publishes the node of a running kubelet: its NodeResourceTopology object.

The object has what its pods hold, too.

The node is read by `alignup.kubelet`; it is read again and again, and written when it has changed.
Needs the extra `cluster`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.control_plane.api_server import api_client, pod_events
from alignup.control_plane.api_server.objects import PodObject, decode_pod
from alignup.control_plane.api_server.watch import Backoff, Calls, Follower
from alignup.control_plane.scheduler.ask import WHY_REJECTED, why_refused
from alignup.errors import AlignupError, InputError
from alignup.kubelet.layout import open_node
from alignup.kubelet.node_resource_topology.report import (
    HOLDINGS,
    NODE,
    annotations_of,
    decode_report,
)
from alignup.kubelet.node_resource_topology.write import kubelet_topology_object
from alignup.kubelet.read import machine_of, make_node, read_records
from alignup.kubernetes.pod_documents import is_rejected
from alignup.kubernetes.wire import CONFIGURATION_FIELDS
from alignup.machine.device_inventory import inventory_to_dict
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from alignup.kubelet.read import KubeletNode

_LOG: Final = logging.getLogger(__name__)
_SETTLED: Final = 0.05
# `alignup.dev/node` and `alignup.dev/holdings`.
_Annotations = tuple[str | None, str | None]
_NO_ANNOTATIONS: Final = (None, None)


def read_running(root: str = "/", config: str | None = None) -> KubeletNode:
    """Return the node of a kubelet that runs.

    `read_kubelet` assumes more where something is missing.

    Raises:
        InputError: a file is damaged, or what pods hold is not known in full, as while the kubelet
            starts again.
    """
    files = open_node(root)
    records = read_records(files, {"config": config})

    def need(name: str, is_there: object) -> None:
        if not is_there:
            raise InputError(
                f"no {name} at {files.source}: what pods hold is not known, and not published"
            )

    # before all else, which would only be guessed without these
    need("configuration of the kubelet", records.configuration.source)
    need("PodResources answers", records.listed is not None and records.allocatable is not None)
    kubelet_node = make_node(records, machine_of(files))
    node = kubelet_node.node
    state = records.state
    need("cpu_manager_state", state.cpu or not node.cpu)
    need("memory_manager_state", state.memory or not node.memory)
    need("kubelet_internal_checkpoint", state.devices or not node.inventory)
    return kubelet_node


def described(kubelet_node: KubeletNode) -> dict[str, Any]:
    """Return the node as a line of `alignup rank --nodes` has it, without name and pods."""
    node = kubelet_node.node
    fields = kubelet_node.records.configuration.fields
    return {
        "machine": node.machine.to_dict(),
        "kubelet": {
            name: fields[name] for name in CONFIGURATION_FIELDS if fields.get(name) is not None
        },
        "devices": inventory_to_dict(node.inventory),
        "kubeletVersion": str(node.config.version),
    }


def published_object(name: str, kubelet_node: KubeletNode) -> dict[str, Any]:
    """Return the NodeResourceTopology object of a kubelet's node.

    Args:
        name: of the Node object.
        kubelet_node: the node.
    """
    topology = kubelet_topology_object(name, kubelet_node)
    description = msgspec.json.encode(described(kubelet_node)).decode()
    topology["metadata"]["annotations"] = annotations_of(description, kubelet_node.node)
    return topology


def _look(name: str, read: Callable[[], KubeletNode]) -> tuple[bytes, _Annotations]:
    """Return the object of a node as it is now, and its two annotations."""
    topology = published_object(name, read())
    annotations = topology["metadata"]["annotations"]
    return msgspec.json.encode(topology), (annotations[NODE], annotations[HOLDINGS])


def _annotations(data: bytes | msgspec.Raw) -> _Annotations:
    """Return the two annotations of an object; what cannot be read is as if they were missing."""
    try:
        report = decode_report(data)
    except InputError:
        return None, None
    return report.description, report.holdings


async def _write(api: api_client.Api, name: str, body: bytes, written: _Annotations) -> None:
    """Write the object of a node.

    Raises:
        ApiError: the server refuses, does not answer, or answers with other annotations.
    """
    answer = await api_client.write_object(api, api_client.TOPOLOGIES, name, body)
    if _annotations(answer) != written:
        raise api_client.ApiError(
            f"{api_client.TOPOLOGIES}: the answer is not the object {name} as it was sent"
        )


async def _has_settled(name: str, read: Callable[[], KubeletNode], body: bytes) -> bool:
    """Return whether a node is read a moment later as it was before."""
    await asyncio.sleep(_SETTLED)
    later_body, _ = await asyncio.to_thread(_look, name, read)
    return later_body == body


class _Published(Record, frozen=False):
    """What was published last.

    Attributes:
        body: the object as it was written.
        annotations: those that it has now, on the server.
    """

    body: bytes = b""
    annotations: _Annotations = _NO_ANNOTATIONS


async def publish_node(
    api: api_client.Api,
    name: str,
    read: Callable[[], KubeletNode],
    *,
    interval: float,
    once: bool = False,
    writes_events: bool = True,
) -> None:
    """Publish a node, and again whenever it or the object has changed, until cancelled.

    The state files of a kubelet are written one after another: a change is published when it is
    read twice alike. The object is watched: one that is deleted, or has other annotations, is
    written again at the next look.

    Args:
        api: the API server.
        name: of the Node object.
        read: reads the node.
        interval: seconds between looks.
        once: return after the node was published.
        writes_events: write an Event on each pod that the kubelet rejects meanwhile: the cause, and
            what would help.
    """
    published = _Published()

    def take(annotations: _Annotations) -> None:
        published.annotations = annotations

    sink: Calls[_Annotations] = Calls(
        lambda listed: take(listed[0] if listed else _NO_ANNOTATIONS),
        take,
        lambda _: take(_NO_ANNOTATIONS),
    )
    query = {"fieldSelector": f"metadata.name={name}"}
    follower = Follower(api, api_client.TOPOLOGIES, _annotations, sink, query=query)
    work = [] if once else [follower.run()]
    if writes_events and not once:
        work.append(_explain_rejections(api, name, read))

    async with _beside(work):
        backoff = Backoff(api.pauses)
        complaint = ""
        while True:
            try:
                # a kubelet that hangs keeps only this waiting
                body, annotations = await asyncio.to_thread(_look, name, read)
                complaint = ""
                is_new = body != published.body or annotations != published.annotations
                if is_new and await _has_settled(name, read, body):
                    published.annotations = annotations
                    await _write(api, name, body, annotations)
                    published.body = body
                    backoff.reset()
                    _LOG.info("published %s: %d bytes", name, len(body))
                    if once:
                        return
            except AlignupError as error:
                published.annotations = _NO_ANNOTATIONS  # nobody knows
                if once:
                    raise

                if str(error) != complaint:
                    api.complain(str(error))
                complaint = str(error)
                if isinstance(error, api_client.ApiError):
                    await backoff.pause()

            await asyncio.sleep(interval)


def _why_refused(read: Callable[[], KubeletNode], pod: PodObject) -> str:
    return why_refused(read().node, pod)


@asynccontextmanager
async def _beside(work: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Do some work as long as the block runs."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _explain_rejections(
    api: api_client.Api, name: str, read: Callable[[], KubeletNode]
) -> None:
    """Write an Event on each pod that a node rejects from now on.

    More than some at a time go without.
    """
    known_uids: set[str] = set()
    rejected: asyncio.Queue[PodObject] = asyncio.Queue(pod_events.MOST_EVENTS)

    def changed(pod: PodObject) -> None:
        uid = pod.metadata.uid
        status = pod.status
        if (
            uid not in known_uids
            and is_rejected(status.phase, status.reason)
            and not rejected.full()
        ):
            known_uids.add(uid)
            rejected.put_nowait(pod)

    def listed(pods: list[PodObject]) -> None:
        uids = {pod.metadata.uid for pod in pods}
        known_uids.intersection_update(uids)
        if not follower.synced.is_set():  # the first list has those that were rejected before
            known_uids.update(uids)
        for pod in pods:
            changed(pod)

    query = {"fieldSelector": f"spec.nodeName={name},status.phase=Failed"}
    sink = Calls(listed, changed, lambda pod: known_uids.discard(pod.metadata.uid))
    follower = Follower(api, api_client.PODS, decode_pod, sink, query=query)
    async with _beside([follower.run()]):
        while True:
            rejected_pod = await rejected.get()
            with api.complaining():
                message = await asyncio.to_thread(_why_refused, read, rejected_pod)
                await pod_events.write_event(
                    api, rejected_pod.metadata, WHY_REJECTED, message, "alignup-publish", once=True
                )

            await asyncio.sleep(pod_events.EVENT_SECONDS)
