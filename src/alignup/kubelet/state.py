"""Reads a kubelet's three checkpoints together, and takes entries out of them as the kubelet does.

The files of one manager each are read in `cpu_state`, `memory_state` and `device_checkpoint` beside this module.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from alignup.errors import InputError
from alignup.kubelet.cpu_state import CpuState, read_cpu_state
from alignup.kubelet.device_checkpoint import DeviceCheckpoint, read_device_checkpoint
from alignup.kubelet.layout import CPU_STATE, DEVICE_CHECKPOINT, MEMORY_STATE, NodeFiles
from alignup.kubelet.memory_state import MemoryState, NumaNodeState, read_memory_state
from alignup.kubernetes.versions import NEWEST, KubeletVersion
from alignup.machine.bits import union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from alignup.topology_manager.admission import MemoryBlock

_DAMAGED = "; alignup node check tells what a kubelet does about it"


class KubeletState(Record):
    """The checkpoints of a kubelet's managers; None where there is no file."""

    cpu: CpuState | None = None
    memory: MemoryState | None = None
    devices: DeviceCheckpoint | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no file at all."""
        return self.cpu is None and self.memory is None and self.devices is None

    def named(self, containers: Mapping[str, tuple[str, str]]) -> KubeletState:
        """Return the state with the names of containers in place of their ids; see `CpuState.named`."""
        return self if self.cpu is None else replace(self, cpu=self.cpu.named(containers))

    def containers(self) -> dict[str, list[str]]:
        """Return by pod uid the names of the containers that hold something."""
        found: dict[str, dict[str, None]] = {}
        for entries in (self.cpu and self.cpu.entries, self.memory and self.memory.entries):
            for uid, containers in (entries or {}).items():
                found.setdefault(uid, {}).update(dict.fromkeys(containers))
        for entry in self.devices.entries if self.devices else ():
            found.setdefault(entry.pod_uid, {})[entry.container] = None
        return {uid: list(names) for uid, names in found.items()}

    def is_whole(self, uid: str) -> bool:
        """Return whether a pod has CPUs or memory as a whole."""
        return bool((self.cpu and uid in self.cpu.pods) or (self.memory and uid in self.memory.pods))

    def whole(self, uid: str) -> tuple[CPUSet, tuple[MemoryBlock, ...]]:
        """Return the CPUs and memory that a pod has as a whole."""
        cpus = self.cpu.pods.get(uid) if self.cpu else None
        return cpus or CPUSet(), self.memory.pods.get(uid, ()) if self.memory else ()

    def cpus(self, uid: str, container: str) -> CPUSet | None:
        """Return the CPUs that a container has for itself; None: it has none."""
        return self.cpu.entries.get(uid, {}).get(container) if self.cpu else None

    def blocks(self, uid: str, container: str) -> tuple[MemoryBlock, ...]:
        """Return the memory that a container holds."""
        return self.memory.entries.get(uid, {}).get(container, ()) if self.memory else ()

    def device_ids(self) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
        """Return by pod uid and container name the ids of devices that the container holds, by resource."""
        found: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        for entry in self.devices.entries if self.devices else ():
            found.setdefault((entry.pod_uid, entry.container), {})[entry.resource] = entry.ids
        return found

    def without(self, is_stale: Callable[[str, str | None], bool]) -> KubeletState:
        """Return the state after the kubelet has dropped what nobody needs, as it does before each admission.

        Args:
            is_stale: says whether a container, by pod uid and name, is gone; with None for the name, the whole pod.
        """
        return KubeletState(
            None if self.cpu is None else _without_cpus(self.cpu, is_stale),
            None if self.memory is None else _without_memory(self.memory, is_stale),
            None
            if self.devices is None
            else replace(
                self.devices, entries=tuple(one for one in self.devices.entries if not is_stale(one.pod_uid, None))
            ),
        )


def read_checkpoints(
    files: NodeFiles, version: KubeletVersion = NEWEST
) -> Iterator[tuple[str, CpuState | MemoryState | DeviceCheckpoint | InputError]]:
    """Yield the path of each checkpoint of a node that is there, and what it says, or why it cannot be read.

    Args:
        files: the node's files.
        version: the release of the node's kubelet.
    """
    readers: dict[str, Callable[[bytes, str], CpuState | MemoryState | DeviceCheckpoint]] = {
        CPU_STATE: partial(read_cpu_state, version=version),
        MEMORY_STATE: partial(read_memory_state, version=version),
        DEVICE_CHECKPOINT: read_device_checkpoint,
    }
    for path, read in readers.items():
        try:
            data = files.read(path)
            if data is not None:
                yield path, read(data, files.place(path))
        except InputError as error:
            yield path, error


def state_of(checkpoints: Mapping[str, Any]) -> KubeletState:
    """Return the state that checkpoints by their paths say."""
    return KubeletState(*map(checkpoints.get, (CPU_STATE, MEMORY_STATE, DEVICE_CHECKPOINT)))


def read_state(files: NodeFiles, version: KubeletVersion = NEWEST) -> KubeletState:
    """Return the state of a node; see `read_checkpoints`.

    Raises:
        InputError: a file is damaged, or its checksum is wrong.
    """
    found = dict(read_checkpoints(files, version))
    for path, one in found.items():
        if isinstance(one, InputError):
            raise one
        if not one.is_intact:
            raise InputError(
                f"expected the checksum {one.expected_checksum} of what is written, got {one.checksum} "
                f"at {files.place(path)}{_DAMAGED}"
            )
    return state_of(found)


def _without_cpus(state: CpuState, is_stale: Callable[[str, str | None], bool]) -> CpuState:
    """Return the state after `RemoveContainer` of the static policy: CPUs that the pod's others share stay theirs."""
    kept = {
        uid: {name: cpus for name, cpus in containers.items() if not is_stale(uid, name)}
        for uid, containers in state.entries.items()
    }
    freed = 0
    for uid, containers in state.entries.items():
        if uid in state.pods:  # what a pod has as a whole stays its own until its last container is gone
            freed |= 0 if kept[uid] else int(state.pods[uid])
            continue
        held = union(map(int, kept[uid].values()))
        freed |= union(int(cpus) for name, cpus in containers.items() if name not in kept[uid]) & ~held
    pods = {uid: cpus for uid, cpus in state.pods.items() if kept.get(uid)}
    shared = CPUSet.from_int(int(state.shared) | freed)
    return replace(state, shared=shared, entries={uid: one for uid, one in kept.items() if one}, pods=pods)


def _without_memory(state: MemoryState, is_stale: Callable[[str, str | None], bool]) -> MemoryState:
    """Return the state after `RemoveContainer` of the Static policy."""
    kept: dict[str, dict[str, tuple[MemoryBlock, ...]]] = {}
    nodes = dict(state.nodes)
    for uid, containers in state.entries.items():
        for name, blocks in containers.items():
            if is_stale(uid, name):
                # of a pod that has memory as a whole, that is what is given back
                _give_back(nodes, () if uid in state.pods else blocks)
            else:
                kept.setdefault(uid, {})[name] = blocks
    pods = dict(state.pods)
    for uid in state.pods:
        if uid not in kept:
            _give_back(nodes, pods.pop(uid))
    return replace(state, nodes=nodes, entries=kept, pods=pods)


def _give_back(nodes: dict[int, NumaNodeState], blocks: Sequence[MemoryBlock]) -> None:
    """Give blocks back in place, to the lowest of their NUMA nodes on which anything is held, as the kubelet does."""
    for block in blocks:
        left = block.size
        for node_id in block.numa_nodes:
            node = nodes.get(node_id)
            if node is None:
                continue
            table = node.table(block.type)
            part = min(left, table.reserved)
            left -= part
            assignments = node.assignments - 1
            changed = structs.replace(table, reserved=table.reserved - part, free=table.free + part)
            nodes[node_id] = structs.replace(
                node,
                assignments=assignments,
                tables={**(node.tables or {}), block.type: changed},
                cells=(node_id,) if assignments == 0 else node.cells,
            )
