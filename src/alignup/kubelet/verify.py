"""Verifies that running processes are placed as the state of their node says: affinity, memory, device files.

For containers of a kubelet and for leases alike. Where processes are is read in `alignup.kubelet.processes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import InputError
from alignup.kubelet.processes import Process, sees_device
from alignup.machine.cpuset import CPUSet
from alignup.records import Record
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from alignup.kubelet.read import KubeletNode
    from alignup.leases.record import LeaseRecord

_LEAST_BYTES: Final = 1 << 20
_LEAST_SHARE: Final = 100
"""Less memory elsewhere than either of these is not reported: a process has pages from before it was bound."""


class ExpectedPlacement(Record):
    """The place that a container or a lease has on the machine."""

    name: str
    cpus: CPUSet | None
    """The CPUs that its processes may run on; None: any."""
    is_exclusive: bool
    """Whether the CPUs are its own."""
    numa_nodes: frozenset[int]
    """The kernel ids of the NUMA nodes of its memory; empty: any."""
    must_be_confined: bool = True
    """Whether the kernel keeps its memory there (cpuset.mems), as a kubelet wants it."""
    device_files: tuple[str, ...] = ()
    """The paths of device files that its processes must see."""


class Misplaced(Record):
    """A process that is not placed as recorded."""

    kind: str
    """`cpus`, `mems`, `memory` or `device`."""
    pid: int
    name: str
    """The container's or lease's."""
    text: str


def placements_of_kubelet(found: KubeletNode, processes: Iterable[Process]) -> dict[int, ExpectedPlacement]:
    """Return by process id the placement of each process that is in a container of the node.

    Args:
        found: the node.
        processes: all that run.
    """
    containers = {
        identity: (one.pod.uid, name)
        for one in found.records.pods or ()
        for identity, name in one.container_ids.items()
    }
    names = {pod.uid: pod for pod in found.node.pods}
    files = _device_files(found)
    placements: dict[int, ExpectedPlacement] = {}
    for process in processes:
        uid, container = containers.get(process.container_id, (process.pod_uid, ""))
        pod = names.get(uid) or names.get(uid.replace("-", ""))  # a static pod's uid has no dashes
        if pod is None:
            continue
        if not container and len(pod.all_containers) == 1:
            container = pod.all_containers[0].name
        if container:
            held = found.node.allocation(pod.uid, container)
            placements[process.pid] = ExpectedPlacement(
                f"{pod.namespaced_name}/{container}",
                found.node.shared_cpus if held.cpus is None else held.cpus,
                held.cpus is not None,
                frozenset(numa_id for block in held.memory for numa_id in block.numa_nodes),
                device_files=files.get((pod.uid, container), ()),
            )
    return placements


def _device_files(found: KubeletNode) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return by pod uid and container the device files that plugins gave it; none without the extra `kubelet`."""
    checkpoint = found.records.state.devices
    if checkpoint is None or not any(entry.response for entry in checkpoint.entries):
        return {}
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415  # an extra

        from alignup.kubelet.allocate_response_pb2 import AllocateResponse  # noqa: PLC0415  # an extra
    except ImportError:
        return {}
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for entry in checkpoint.entries:
        key = (entry.pod_uid, entry.container)
        try:
            answer = AllocateResponse.FromString(entry.response)
        except DecodeError:  # as in the kubelet, such an answer has no device files
            continue
        paths[key] = (*paths.get(key, ()), *(one.container_path for one in answer.devices))
    return paths


def placements_of_leases(leases: Iterable[LeaseRecord], processes: Iterable[Process]) -> dict[int, ExpectedPlacement]:
    """Return by process id the placement of each process of a lease, and of those that it has started.

    Args:
        leases: all there are.
        processes: all that run.
    """
    placements = {}
    for lease in leases:
        nodes = frozenset(share.numa_node for share in lease.memory)
        placements[lease.process.pid] = ExpectedPlacement(
            lease.name, lease.cpus or None, True, nodes, must_be_confined=False
        )
    parents = {process.pid: process.parent for process in processes}
    for pid in parents:
        line = [pid]
        while line[-1] not in placements and parents.get(line[-1]) and len(line) <= len(parents):
            line.append(parents[line[-1]])
        if line[-1] in placements:
            placements.update(dict.fromkeys(line, placements[line[-1]]))
    return placements


def verify(
    root: Path, placements: Mapping[int, ExpectedPlacement], processes: Iterable[Process], pids: Iterable[int] = ()
) -> list[Misplaced]:
    """Return the processes that are not placed as recorded.

    Args:
        root: the root of the machine.
        placements: by process id.
        processes: all that run.
        pids: those to look at; none: all that have a placement.

    Raises:
        InputError: one of `pids` does not run, or is in no container and no lease.
    """
    running = {process.pid: process for process in processes}
    for pid in pids:
        if pid not in running or pid not in placements:
            why = "does not run" if pid not in running else "belongs to no container and to no lease"
            raise InputError(f"process {pid} {why}")
    found: list[Misplaced] = []
    for pid in list(pids) or sorted(placements.keys() & running.keys()):
        found += _misplaced(root, running[pid], placements[pid])
    return found


def _misplaced(root: Path, process: Process, placement: ExpectedPlacement) -> Iterator[Misplaced]:
    """Yield what is wrong with one process."""
    who = f"process {process.pid} ({process.name})"
    if placement.cpus is not None and not process.cpus <= placement.cpus:
        whose = f"has CPUs {placement.cpus} for itself" if placement.is_exclusive else f"shares CPUs {placement.cpus}"
        extra = CPUSet(process.cpus - placement.cpus)
        yield Misplaced("cpus", process.pid, placement.name, f"{who} may run on CPUs {extra}, and {whose}")
    if not placement.numa_nodes:
        return
    wanted = ",".join(map(str, sorted(placement.numa_nodes)))
    if placement.must_be_confined and process.mems and not set(process.mems) <= placement.numa_nodes:
        text = f"{who} may have memory of NUMA nodes {process.mems}, and its container has NUMA nodes {wanted}"
        yield Misplaced("mems", process.pid, placement.name, text)
    total = sum(process.memory.values())
    away = {node: size for node, size in process.memory.items() if node not in placement.numa_nodes}
    elsewhere = sum(away.values())
    if elsewhere >= _LEAST_BYTES and elsewhere * _LEAST_SHARE >= total:
        where = ", ".join(f"{short_bytes(size)} on NUMA node {node}" for node, size in sorted(away.items()))
        text = f"{who} has {where} of its {short_bytes(total)}, and should have all on NUMA nodes {wanted}"
        yield Misplaced("memory", process.pid, placement.name, text)
    for path in placement.device_files:
        if not sees_device(root, process.pid, path):
            yield Misplaced("device", process.pid, placement.name, f"{who} does not see the device file {path}")
