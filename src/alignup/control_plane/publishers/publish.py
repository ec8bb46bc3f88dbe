"""Publishes the node of a running kubelet: its NodeResourceTopology object, with what its pods hold.

The node is read by `alignup.kubelet`; it is read again and again, and written when it has changed.
Needs the extra `cluster`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.control_plane.api_server import api_client
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from alignup.kubelet.read import KubeletNode

_LOG: Final = logging.getLogger(__name__)
_SETTLED: Final = 0.05
# `alignup.dev/node` and `alignup.dev/holdings`.
_Annotations = tuple[str | None, str | None]


def read_running(root: str = "/", config: str | None = None) -> KubeletNode:
    """Return the node of a kubelet that runs; see `read_kubelet`, which assumes more where something is missing.

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
    found = make_node(records, machine_of(files))
    node, state = found.node, records.state
    need("cpu_manager_state", state.cpu or not node.cpu)
    need("memory_manager_state", state.memory or not node.memory)
    need("kubelet_internal_checkpoint", state.devices or not node.inventory)
    return found


def described(found: KubeletNode) -> dict[str, Any]:
    """Return the node as a line of `alignup rank --nodes` has it, without name and pods."""
    node, fields = found.node, found.records.configuration.fields
    return {
        "machine": node.machine.to_dict(),
        "kubelet": {
            name: fields[name] for name in CONFIGURATION_FIELDS if fields.get(name) is not None
        },
        "devices": inventory_to_dict(node.inventory),
        "kubeletVersion": str(node.config.version),
    }


def published_object(name: str, found: KubeletNode) -> dict[str, Any]:
    """Return the NodeResourceTopology object of a kubelet's node.

    Args:
        name: of the Node object.
        found: the node.
    """
    made = kubelet_topology_object(name, found)
    made["metadata"]["annotations"] = annotations_of(
        msgspec.json.encode(described(found)).decode(), found.node
    )
    return made


def _look(name: str, read: Callable[[], KubeletNode]) -> tuple[bytes, _Annotations]:
    """Return the object of a node as it is now, and its two annotations."""
    made = published_object(name, read())
    annotations = made["metadata"]["annotations"]
    return msgspec.json.encode(made), (annotations[NODE], annotations[HOLDINGS])


def _annotations(data: bytes | msgspec.Raw) -> _Annotations:
    """Return the two annotations of an object; what cannot be read is as if they were missing."""
    try:
        found = decode_report(data)
    except InputError:
        return None, None
    return found.description, found.holdings


async def _write(api: api_client.Api, name: str, made: bytes, written: _Annotations) -> None:
    """Write the object of a node.

    Raises:
        ApiError: the server refuses, does not answer, or answers with other annotations.
    """
    answer = await api_client.write_object(api, api_client.TOPOLOGIES, name, made)
    if _annotations(answer) != written:
        raise api_client.ApiError(
            f"{api_client.TOPOLOGIES}: the answer is not the object {name} as it was sent"
        )


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
    there: _Annotations = (None, None)
    backoff = Backoff(api.pauses)

    def take(found: _Annotations) -> None:
        nonlocal there
        there = found

    watched: Calls[_Annotations] = Calls(
        lambda found: take(found[0] if found else (None, None)), take, lambda _: take((None, None))
    )
    query = {"fieldSelector": f"metadata.name={name}"}
    follower = Follower(api, api_client.TOPOLOGIES, _annotations, watched, query=query)
    work = [] if once else [follower.run()]
    if writes_events and not once:
        work.append(_explain_rejections(api, name, read))

    async with _beside(work):
        last, told = b"", ""
        while True:
            try:
                # a kubelet that hangs keeps only this waiting
                seen, written = await asyncio.to_thread(_look, name, read)
                told = ""
                if seen != last or there != written:
                    await asyncio.sleep(_SETTLED)
                    if (await asyncio.to_thread(_look, name, read))[0] == seen:
                        there = written
                        await _write(api, name, seen, written)
                        last = seen
                        backoff.reset()
                        _LOG.info("published %s: %d bytes", name, len(seen))
                        if once:
                            return
            except AlignupError as error:
                there = None, None  # nobody knows
                if once:
                    raise
                if str(error) != told:
                    api.complain(str(error))
                told = str(error)
                await (
                    backoff.pause() if isinstance(error, api_client.ApiError) else asyncio.sleep(0)
                )

            await asyncio.sleep(interval)


@asynccontextmanager
async def _beside(work: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Do some work as long as the block runs."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _explain_rejections(
    api: api_client.Api, name: str, read: Callable[[], KubeletNode]
) -> None:
    """Write an Event on each pod that a node rejects from now on; more than some at a time go without."""
    known: set[str] = set()
    rejected: asyncio.Queue[PodObject] = asyncio.Queue(api_client.MOST_EVENTS)

    def changed(found: PodObject) -> None:
        uid, status = found.metadata.uid, found.status
        if uid not in known and is_rejected(status.phase, status.reason) and not rejected.full():
            known.add(uid)
            rejected.put_nowait(found)

    def listed(found: list[PodObject]) -> None:
        first = not follower.synced.is_set()
        known.intersection_update({one.metadata.uid for one in found})
        for one in found:
            known.add(one.metadata.uid) if first else changed(one)

    query = {"fieldSelector": f"spec.nodeName={name},status.phase=Failed"}
    sink = Calls(listed, changed, lambda found: known.discard(found.metadata.uid))
    follower = Follower(api, api_client.PODS, decode_pod, sink, query=query)
    async with _beside([follower.run()]):
        while True:
            found = await rejected.get()
            with api.complaining():
                message = await asyncio.to_thread(lambda: why_refused(read().node, found))  # noqa: B023  # awaited here
                await api_client.write_event(
                    api, found.metadata, WHY_REJECTED, message, "alignup-publish", once=True
                )

            await asyncio.sleep(api_client.EVENT_SECONDS)
