"""Reads `memory_manager_state`: each NUMA node's amounts and group, and the memory blocks of containers.

All formats are read (`pkg/kubelet/cm/memorymanager/state/checkpoint.go`); the second one (feature gate
PodLevelResourceManagers) has blocks of whole pods too, and the third one (from Kubernetes 1.37 on) is the first with a
text beside it that has everything and counts alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec

from alignup.errors import InputError
from alignup.kubelet.checkpoints import Checkpoint, DataWire, decode_with_data, list_text, map_text, matching
from alignup.kubernetes.versions import NEWEST, KubeletVersion, release_of
from alignup.machine.machine import MEMORY_LIMIT, NUMA_NODE_LIMIT
from alignup.topology_manager.admission import MemoryBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_Bytes = Annotated[int, msgspec.Meta(ge=0, le=MEMORY_LIMIT // NUMA_NODE_LIMIT)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_NodeId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class MemoryTable(msgspec.Struct, frozen=True):
    """The bytes of one type of memory on one NUMA node."""

    total: _Bytes = 0
    system_reserved: _Bytes = msgspec.field(name="systemReserved", default=0)
    allocatable: _Bytes = 0
    reserved: _Bytes = 0
    """Bytes that containers hold."""
    free: _Bytes = 0


class NumaNodeState(msgspec.Struct, frozen=True):
    """One NUMA node."""

    assignments: _Count = msgspec.field(name="numberOfAssignments", default=0)
    """How many blocks lie on it."""
    tables: dict[str, MemoryTable | None] | None = msgspec.field(name="memoryMap", default=None)
    """By type."""
    cells: tuple[_NodeId, ...] | None = None
    """The ids of the NUMA nodes that it is used together with, itself included."""

    def table(self, kind: str) -> MemoryTable:
        """Return the amounts of a type; zeros where the node has none."""
        return (self.tables or {}).get(kind) or MemoryTable()


@dataclass(frozen=True, slots=True)
class MemoryState(Checkpoint):
    """The state that a memory manager has written."""

    policy: str
    """`None` or `Static`; empty in the file that the policy None leaves alone."""
    nodes: Mapping[int, NumaNodeState]
    """By kernel node id."""
    entries: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]]
    """By pod uid and container name."""
    pods: Mapping[str, tuple[MemoryBlock, ...]] = field(default_factory=dict)
    """By pod uid, the memory of a pod that has it as a whole; of versions 2 and 3 only."""

    @property
    def types(self) -> tuple[str, ...]:
        """The types of memory that some NUMA node has."""
        return tuple(sorted({kind for node in self.nodes.values() for kind in node.tables or ()}))


class _Block(msgspec.Struct, rename="camel"):
    """A block of memory on the wire."""

    numa_affinity: list[_NodeId] | None = None
    type: str = ""
    size: _Bytes = 0


class _PodEntry(msgspec.Struct, rename="camel"):
    """The memory of a pod on the wire."""

    memory_blocks: list[_Block] | None = None


class _Wire(DataWire, rename="camel"):
    """The file on the wire, in any version."""

    policy_name: str = ""
    machine_state: dict[str, NumaNodeState] | None = msgspec.field(default_factory=dict)
    entries: dict[str, dict[str, list[_Block] | None] | None] | None = msgspec.field(default_factory=dict)
    pod_entries: dict[str, _PodEntry] | None = msgspec.field(default_factory=dict)


def read_memory_state(
    data: bytes, source: str = "memory_manager_state", version: KubeletVersion = NEWEST
) -> MemoryState:
    """Return the state in a file; whether its checksum is right is left to the caller.

    Args:
        data: the content of the file.
        source: its name in errors.
        version: the release of the kubelet that reads it.

    Raises:
        InputError: it is no JSON, or of another shape.
    """
    what, known = "the JSON of a memory manager's state", release_of(version).checkpoints["memory_manager_state"]
    wire, told = decode_with_data(data, _Wire, what, source, known, 3)
    nodes: dict[int, NumaNodeState] = {}
    for key, node in (wire.machine_state or {}).items():
        if not (key.isascii() and key.isdigit()):
            raise InputError.at(f"machineState in {source}", "ids of NUMA nodes", key)
        nodes[int(key)] = node
    pods = {uid: _blocks(entry.memory_blocks) for uid, entry in (wire.pod_entries or {}).items()}
    told = told or matching(_texts(wire, nodes), wire.checksum, 2 if pods else 1)
    return MemoryState(
        policy=wire.policy_name,
        nodes=nodes,
        entries={
            uid: {name: _blocks(blocks) for name, blocks in (containers or {}).items()}
            for uid, containers in (wire.entries or {}).items()
        },
        pods=pods,
        **asdict(told),
    )


def _blocks(blocks: list[_Block] | None) -> tuple[MemoryBlock, ...]:
    """Return the records of blocks."""
    return tuple(MemoryBlock(tuple(one.numa_affinity or ()), one.type, one.size) for one in blocks or ())


def _texts(wire: _Wire, nodes: Mapping[int, NumaNodeState]) -> Iterator[tuple[int, str]]:
    """Yield (version, text to be hashed) for each format that a kubelet may take this file for."""
    machine = map_text(None if wire.machine_state is None else nodes, _node_text)
    entries = map_text(wire.entries, lambda containers: map_text(containers, _blocks_text))
    text = (
        f"{{PolicyName:(string){wire.policy_name} MachineState:(state.NUMANodeMap){machine} "
        f"Entries:(state.ContainerMemoryAssignments){entries} "
    )
    after = "Checksum:(checksum.Checksum)0}"
    yield 1, f"(*state.MemoryManagerCheckpoint){text}{after}"
    pods = map_text(
        wire.pod_entries, lambda entry: f"{{MemoryBlocks:([]state.Block){_blocks_text(entry.memory_blocks)}}}"
    )
    yield 2, f"(*state.MemoryManagerCheckpoint){text}PodEntries:(state.PodMemoryAssignments){pods} {after}"
    # a kubelet without PodLevelResourceManagers accepts the text under this name too
    yield 1, f"(*state.MemoryManagerCheckpointV1){text}{after}"


def _node_text(node: NumaNodeState) -> str:
    return (
        f"<*>{{NumberOfAssignments:(int){node.assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){map_text(node.tables, _table_text)} "
        f"Cells:([]int){list_text(node.cells)}}}"
    )


def _table_text(table: MemoryTable | None) -> str:
    if table is None:
        return "<nil>"
    return (
        f"<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
        f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
    )


def _blocks_text(blocks: list[_Block] | None) -> str:
    return list_text(
        blocks,
        lambda one: (
            f"{{NUMAAffinity:([]int){list_text(one.numa_affinity)} Type:(v1.ResourceName){one.type} "
            f"Size:(uint64){one.size}}}"
        ),
    )
