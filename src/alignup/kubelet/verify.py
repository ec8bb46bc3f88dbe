"""Verifies that running processes are placed as the state of their node says.

That is their affinity, their memory and the device files that they see. For containers of a kubelet
and for leases alike. Where processes are is read in `alignup.kubelet.processes`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.kubelet.processes import Process, sees_device, status_of
from alignup.machine.bits import ids_of, overlapping
from alignup.machine.cpuset import CPUSet
from alignup.machine.sysfs.machine import read_sysfs
from alignup.records import Record
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from alignup.host.leases.record import LeaseRecord
    from alignup.kubelet.read import KubeletNode

_LEAST_BYTES: Final = 1 << 20
# Less memory elsewhere than either of these is not reported: a process has pages from before it was
# bound.
_LEAST_SHARE: Final = 100

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DEVICE_VARIABLES: Final = ("PCIDEVICE_", "ALIGNUP_DEVICE_")


class ExpectedPlacement(Record):
    """The place that a container or a lease has on the machine.

    Attributes:
        cpus: the CPUs that its processes may run on; None: any.
        is_exclusive: whether the CPUs are its own.
        numa_nodes: the kernel ids of the NUMA nodes of its memory; empty: any.
        must_be_confined: whether the kernel keeps its memory there (cpuset.mems), as a kubelet
            wants it.
        device_files: the paths of device files that its processes must see.
    """

    name: str
    cpus: CPUSet | None
    is_exclusive: bool
    numa_nodes: frozenset[int]
    must_be_confined: bool = True
    device_files: tuple[str, ...] = ()


class Misplaced(Record):
    """A process that is not placed as recorded.

    Attributes:
        kind: `cpus`, `mems`, `memory` or `device`.
        name: the container's or lease's.
    """

    kind: str
    pid: int
    name: str
    text: str


def placements_of_kubelet(
    kubelet_node: KubeletNode, processes: Iterable[Process]
) -> dict[int, ExpectedPlacement]:
    """Return by process id the placement of each process that is in a container of the node.

    Args:
        kubelet_node: the node.
        processes: all that run.
    """
    node = kubelet_node.node
    documents = kubelet_node.records.pods or ()
    containers = {
        container_id: (document.pod.uid, name)
        for document in documents
        for container_id, name in document.container_ids.items()
    }
    pods = {pod.uid: pod for pod in node.pods}
    files = _device_files(kubelet_node)

    placements: dict[int, ExpectedPlacement] = {}
    for process in processes:
        uid, container = containers.get(process.container_id, (process.pod_uid, ""))
        pod = pods.get(uid) or pods.get(uid.replace("-", ""))  # a static pod's uid has no dashes
        if pod is None:
            continue

        if not container and len(pod.all_containers) == 1:
            container = pod.all_containers[0].name
        if not container:
            continue

        allocation = node.allocation(pod.uid, container)
        placements[process.pid] = ExpectedPlacement(
            name=f"{pod.namespaced_name}/{container}",
            cpus=node.shared_cpus if allocation.cpus is None else allocation.cpus,
            is_exclusive=allocation.cpus is not None,
            numa_nodes=frozenset(
                numa_id for block in allocation.memory for numa_id in block.numa_nodes
            ),
            device_files=files.get((pod.uid, container), ()),
        )

    return placements


def _device_files(kubelet_node: KubeletNode) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return by pod uid and container the device files that plugins gave it.

    There are none without the extra `kubelet`.
    """
    checkpoint = kubelet_node.records.state.devices
    if checkpoint is None or not any(entry.response for entry in checkpoint.entries):
        return {}

    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415  # an extra

        from alignup.kubelet.allocate_response_pb2 import (  # noqa: PLC0415  # an extra
            AllocateResponse,
        )
    except ImportError:
        return {}

    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for entry in checkpoint.entries:
        key = (entry.pod_uid, entry.container)
        try:
            answer = AllocateResponse.FromString(entry.response)
        except DecodeError:  # as in the kubelet, such an answer has no device files
            continue

        paths[key] = (*paths.get(key, ()), *(file.container_path for file in answer.devices))

    return paths


def placements_of_leases(
    leases: Iterable[LeaseRecord], processes: Iterable[Process]
) -> dict[int, ExpectedPlacement]:
    """Return by process id the placement of each process of a lease.

    Those that such a process has started have its placement.

    Args:
        leases: all there are.
        processes: all that run.
    """
    placements = {}
    keepers = set()
    for lease in leases:
        placement = ExpectedPlacement(
            lease.name,
            cpus=lease.cpus or None,
            is_exclusive=True,
            numa_nodes=frozenset(share.numa_node for share in lease.memory),
            must_be_confined=False,
        )
        placements[lease.process.pid] = placement
        if lease.keeper is not None:
            # the kernel hands it what a command left; it is bound to nothing itself
            keepers.add(lease.keeper.pid)
            placements.setdefault(lease.keeper.pid, placement)

    parents = {process.pid: process.parent for process in processes}
    for pid in parents:
        ancestors = [pid]
        while (
            ancestors[-1] not in placements
            and parents.get(ancestors[-1])
            and len(ancestors) <= len(parents)
        ):
            ancestors.append(parents[ancestors[-1]])
        if ancestors[-1] in placements:
            placements.update(dict.fromkeys(ancestors, placements[ancestors[-1]]))

    for pid in keepers:
        del placements[pid]
    return placements


def verify(
    root: Path,
    placements: Mapping[int, ExpectedPlacement],
    processes: Iterable[Process],
    pids: Iterable[int] = (),
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
        if pid not in running:
            raise InputError(f"process {pid} does not run")
        if pid not in placements:
            raise InputError(f"process {pid} belongs to no container and to no lease")

    chosen = list(pids) or sorted(placements.keys() & running.keys())
    faults: list[Misplaced] = []
    for pid in chosen:
        faults += _misplaced(root, running[pid], placements[pid])
    return faults


def _misplaced(root: Path, process: Process, placement: ExpectedPlacement) -> Iterator[Misplaced]:
    """Yield what is wrong with one process."""
    who = f"process {process.pid} ({process.name})"
    if placement.cpus is not None and not process.cpus <= placement.cpus:
        extra = CPUSet(process.cpus - placement.cpus)
        allowance = f"shares CPUs {placement.cpus}"
        if placement.is_exclusive:
            allowance = f"has CPUs {placement.cpus} for itself"
        text = f"{who} may run on CPUs {extra}, and {allowance}"
        yield Misplaced("cpus", process.pid, placement.name, text)

    if placement.numa_nodes:
        yield from _misplaced_memory(process, placement)

    for path in placement.device_files:
        if not sees_device(root, process.pid, path):
            text = f"{who} does not see the device file {path}"
            yield Misplaced("device", process.pid, placement.name, text)


def _misplaced_memory(process: Process, placement: ExpectedPlacement) -> Iterator[Misplaced]:
    """Yield what is wrong with the memory of one process, which some NUMA nodes are to have."""
    who = f"process {process.pid} ({process.name})"
    numa_nodes = ",".join(map(str, sorted(placement.numa_nodes)))
    if (
        placement.must_be_confined
        and process.mems
        and not set(process.mems) <= placement.numa_nodes
    ):
        text = (
            f"{who} may have memory of NUMA nodes {process.mems}, and its container has NUMA "
            f"nodes {numa_nodes}"
        )
        yield Misplaced("mems", process.pid, placement.name, text)

    total = sum(process.memory.values())
    away = {node: size for node, size in process.memory.items() if node not in placement.numa_nodes}
    elsewhere = sum(away.values())
    if elsewhere >= _LEAST_BYTES and elsewhere * _LEAST_SHARE >= total:
        where = ", ".join(
            f"{short_bytes(size)} on NUMA node {node}" for node, size in sorted(away.items())
        )
        text = (
            f"{who} has {where} of its {short_bytes(total)}, and should have all on NUMA nodes "
            f"{numa_nodes}"
        )
        yield Misplaced("memory", process.pid, placement.name, text)


# ---- this process itself


def look_at_self(root: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return in JSON's types what this process is bound to, and whether its devices are near.

    Its devices are those that device plugins name in its environment, those of its network
    namespace, and the GPUs of NVIDIA whose device files it has. `aligned` is null where that is
    unknown.

    Args:
        root: below which `sys`, `proc` and `dev` are.
        environment: of the process.

    Raises:
        InputError: the machine cannot be read.
    """
    machine = read_sysfs(root)
    status = status_of(root / "proc/self")
    cpus = CPUSet.parse(status.get("Cpus_allowed_list", "")) & CPUSet.from_int(machine.cpus)
    numa_ids = list(ids_of(overlapping(machine.node_cpus, int(cpus)), machine.numa_node_ids))

    origins = devices_of_self(root, environment)
    near_ids: dict[str, int | None] = dict.fromkeys(origins)
    if len(machine.numa_nodes) == 1:
        near_ids = dict.fromkeys(origins, machine.numa_node_ids[0])
    else:
        near_ids |= {device.address: device.numa_node for device in machine.pci_devices}

    devices = [
        {"address": address, "from": origin, "numaNode": near_ids[address]}
        for address, origin in sorted(origins.items())
    ]
    aligned, text = _alignment(numa_ids, {near_ids[address] for address in origins})
    return {
        "cpus": str(cpus),
        "numaNodes": numa_ids,
        "memoryNumaNodes": [*CPUSet.parse(status.get("Mems_allowed_list", ""))],
        "devices": devices,
        "aligned": aligned,
        "text": text,
    }


def _alignment(
    numa_ids: Sequence[int], device_ids: AbstractSet[int | None]
) -> tuple[bool | None, str]:
    """Return whether CPUs and devices are on one NUMA node, and that in words.

    Args:
        numa_ids: the NUMA nodes of the CPUs.
        device_ids: those of the devices; None: that of a device is not known.
    """
    if not numa_ids:
        return None, "unknown: no CPU of a NUMA node may be used"
    if len(numa_ids) > 1:
        return False, f"not aligned: CPUs of {len(numa_ids)} NUMA nodes may be used"
    if device_ids - {*numa_ids, None}:
        return False, "not aligned: a device is on another NUMA node than the CPUs"
    if None in device_ids:
        return None, "unknown: the NUMA node of a device is not known"
    return True, "aligned: all of it is on one NUMA node"


def devices_of_self(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the PCI addresses of the devices that this process was given, and what says so."""
    origins: dict[str, str] = {}
    for name, value in environment.items():
        if name.startswith(_DEVICE_VARIABLES):
            origins |= dict.fromkeys(_ADDRESS.findall(value.lower()), name)

    for folder in ("net", "infiniband"):
        for link in sorted((root / "sys/class" / folder).glob("*/device")):
            address = link.resolve().name
            if _ADDRESS.fullmatch(address):
                origins.setdefault(address, f"{folder} {link.parent.name}")

    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        minor = re.search(r"Device Minor:\s*(\d+)", information.read_text("utf-8", "replace"))
        if minor and (root / f"dev/nvidia{minor[1]}").exists():
            origins.setdefault(information.parent.name.lower(), f"/dev/nvidia{minor[1]}")

    return origins
