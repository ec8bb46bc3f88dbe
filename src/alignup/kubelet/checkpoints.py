"""Reads a kubelet's checkpoints in all their versions, and drops entries as the kubelet does.

`cpu_manager_state` has the shared pool, and the CPUs that containers have for themselves
(`pkg/kubelet/cm/cpumanager/state/checkpoint.go`). Version 1 (before Kubernetes 1.18) is keyed by
container id, version 2 by pod uid and container name, version 3 (feature gate
PodLevelResourceManagers) has CPUs of whole pods too. Version 4 (from Kubernetes 1.37 on) is version
2 with a text beside it that has everything and counts alone.

`memory_manager_state` has each NUMA node's amounts and group, and the memory blocks of containers
(`pkg/kubelet/cm/memorymanager/state/checkpoint.go`). Its versions 1 to 3 are as 2 to 4 of the
other.

`device-plugins/kubelet_internal_checkpoint` has the devices that containers hold, grouped by NUMA
node, and those that are registered (`pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go`, of
Kubernetes 1.20 and later).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from msgspec import structs

from alignup.errors import InputError, errors_in
from alignup.kubelet.layout import CPU_STATE, DEVICE_CHECKPOINT, MEMORY_STATE, NodeFiles
from alignup.kubernetes.versions import NEWEST, KubeletVersion, release_of
from alignup.machine.bits import union
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import MEMORY_LIMIT, NUMA_NODE_LIMIT
from alignup.records import Record
from alignup.text.digits import number_of
from alignup.text.json_text import decode_json
from alignup.text.typed import decode
from alignup.topology_manager.admission import MemoryBlock

_T = TypeVar("_T")

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_MASK: Final = 0xFFFFFFFF

# The group of the devices whose plugin reported no NUMA node.
NO_NUMA_NODE: Final = -1

_NODE: Final = re.compile(r"-?[0-9]{1,9}")
_LARGEST_ID: Final = 10**9 - 1
_DAMAGED = "; alignup node check tells what a kubelet does about it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The version and the checksum of a file.

    Attributes:
        version: that whose checksum is right, else the one that the entries look like; 0: there is
            one only.
        is_data: whether a text in the file, and its own checksum, count (from Kubernetes 1.37 on).
        checksum: as it is written; 0: none.
        expected_checksum: the one that the kubelet computes of the content.
        other_outside: the keys of which the file says something else beside that text, such as
            `entries`; no kubelet that reads the text heeds them.
    """

    version: int = 0
    is_data: bool = False
    checksum: int = 0
    expected_checksum: int = 0
    other_outside: tuple[str, ...] = ()

    @property
    def is_intact(self) -> bool:
        """Whether the checksum is right, or missing where a kubelet accepts that.

        It does in older versions of some files.
        """
        return self.checksum == self.expected_checksum or (
            not self.checksum and self.version > 0 and not self.is_data
        )


class DataWire(msgspec.Struct, rename="camel"):
    """The fields of a file on the wire with which a text counts alone."""

    checksum: int = 0
    data: str = ""
    data_checksum: int = 0


_Wire = TypeVar("_Wire", bound=DataWire)


def decode_with_data(
    content: bytes,
    kind: type[_Wire],
    expected: str,
    source: str,
    versions: Sequence[str],
    data_version: int,
) -> tuple[_Wire, Checkpoint | None]:
    """Return the value of a checkpoint, or that of the text in it.

    Beside the latter, the checkpoint's version and checksum.

    Args:
        content: of the file.
        kind: the msgspec Struct that describes it.
        expected: what the file should hold, in an error.
        source: the file's name in errors.
        versions: those that the kubelet reads.
        data_version: the one in which the text counts.

    Raises:
        InputError: it is no JSON, or not of this shape.
    """
    wire = decode_checkpoint(content, kind, expected, source)
    if not (wire.data or wire.data_checksum) or f"V{data_version}" not in versions:
        return wire, None

    inner = decode_checkpoint(wire.data.encode(), kind, expected, f"data in {source}")
    checkpoint = Checkpoint(
        version=data_version,
        is_data=True,
        checksum=wire.data_checksum,
        expected_checksum=checksum_of(f"(string){wire.data}"),
        other_outside=tuple(_differing_keys(wire, inner)),
    )
    return inner, checkpoint


def _differing_keys(outer: DataWire, inner: DataWire) -> Iterator[str]:
    """Yield the keys of which a file says one thing, and the text in it another.

    What a kubelet writes into the text only, such as the CPUs of whole pods, is none of them.
    """
    own_names = set(DataWire.__struct_fields__)
    keys = zip(outer.__struct_fields__, outer.__struct_encode_fields__, strict=True)
    for name, key in keys:
        beside, within = getattr(outer, name), getattr(inner, name)
        is_in_text_only = name == "pod_entries" and not beside
        if name not in own_names and not is_in_text_only and (beside or {}) != (within or {}):
            yield key


def decode_checkpoint(data: bytes, kind: type[_T], expected: str, source: str) -> _T:
    """Return the value of a checkpoint.

    Args:
        data: the content of the file.
        kind: the msgspec Struct that describes it.
        expected: what the file should hold, in an error.
        source: the file's name in errors.

    Raises:
        InputError: it is no JSON, or not of this shape.
    """
    if not data.strip():
        raise InputError(f"expected {expected}, but the file is empty at {source}")

    value: object = decode_json(data, expected, source)
    with errors_in(source):
        return decode(value, kind)


def checksum_of(text: str) -> int:
    """Return the checksum of a value that Go prints as `text`."""
    checksum = _OFFSET
    for byte in text.encode():
        checksum = (checksum ^ byte) * _PRIME & _MASK
    return checksum


def matching(texts: Iterable[tuple[int, str]], written: int, likely: int) -> Checkpoint:
    """Return the version whose checksum is the written one, and that checksum.

    Where there is no such version, those of a likely one.

    Args:
        texts: version and text of each format that a file may have.
        written: the checksum in the file.
        likely: the version that it looks like.
    """
    expected: dict[int, int] = {}
    for version, text in texts:
        checksum = checksum_of(text)
        if checksum == written:
            return Checkpoint(version=version, checksum=written, expected_checksum=checksum)
        expected.setdefault(version, checksum)

    return Checkpoint(version=likely, checksum=written, expected_checksum=expected[likely])


def go_text(value: object) -> str:
    """Return a value as spew prints it.

    None is Go's nil, and a struct says by `go` how Go prints its fields.
    """
    if value is None:
        return "<nil>"
    if isinstance(value, Mapping):
        items = [f"{key}:{go_text(item)}" for key, item in sorted(value.items())]
        return f"map[{' '.join(items)}]"
    if isinstance(value, list | tuple | bytes):
        return f"[{' '.join(map(go_text, value))}]"
    if isinstance(value, _Printed):
        return value.go.format(*map(go_text, structs.astuple(value)))
    return str(value)


class _Printed(msgspec.Struct, frozen=True):
    """A struct of which Go's text is hashed."""

    go: ClassVar[str]


@dataclass(frozen=True, slots=True)
class CpuState(Checkpoint):
    """The state that a CPU manager has written.

    Attributes:
        policy: `none` or `static`.
        shared: the shared pool, reserved CPUs included.
        entries: by pod uid and container name, CPUs of its own.
        pods: by pod uid, the CPUs of a pod that has them as a whole; of versions 3 and 4 only.
        by_container_id: by the runtime's container id; of version 1 only.
    """

    policy: str
    shared: CPUSet
    entries: Mapping[str, Mapping[str, CPUSet]]
    pods: Mapping[str, CPUSet] = field(default_factory=dict)
    by_container_id: Mapping[str, CPUSet] = field(default_factory=dict)

    def named(self, containers: Mapping[str, tuple[str, str]]) -> CpuState:
        """Return version 1 as version 2; others as they are.

        Args:
            containers: by container id, the pod's uid and the container's name.

        Raises:
            InputError: a container is not among them; a kubelet would not start either.
        """
        if not self.by_container_id:
            return self

        entries: dict[str, dict[str, CPUSet]] = {}
        for identity, cpus in self.by_container_id.items():
            if identity not in containers:
                raise InputError.at("entries", "ids of containers that are known", identity)
            uid, name = containers[identity]
            entries.setdefault(uid, {})[name] = cpus

        return replace(self, entries=entries, by_container_id={})


class _PodCpus(msgspec.Struct, rename={"cpus": "cpuSet"}):
    """The CPUs of a pod on the wire."""

    cpus: str = ""


class _CpuWire(DataWire, rename="camel"):
    """The file on the wire, in any version."""

    policy_name: str = ""
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str] | str] | None = msgspec.field(default_factory=dict)
    pod_entries: dict[str, _PodCpus] | None = msgspec.field(default_factory=dict)


def read_cpu_state(
    data: bytes, source: str = "cpu_manager_state", version: KubeletVersion = NEWEST
) -> CpuState:
    """Return the state in a file; whether its checksum is right is left to the caller.

    Args:
        data: the content of the file.
        source: its name in errors.
        version: the release of the kubelet that reads it.

    Raises:
        InputError: it is no JSON, or of another shape, or a set of CPUs is none; or a version that
            the kubelet does not read.
    """
    versions = release_of(version).checkpoints["cpu_manager_state"]
    wire, checkpoint = decode_with_data(
        data, _CpuWire, "the JSON of a CPU manager's state", source, versions, 4
    )

    entries = wire.entries or {}
    by_id = {key: value for key, value in entries.items() if isinstance(value, str)}
    by_pod = {key: value for key, value in entries.items() if not isinstance(value, str)}
    if by_id and by_pod:
        raise InputError.at(f"entries in {source}", "entries of one version", sorted(entries))

    pods = {uid: entry.cpus for uid, entry in (wire.pod_entries or {}).items()}
    state = CpuState(
        policy=wire.policy_name,
        shared=CPUSet.parse(wire.default_cpu_set, f"defaultCpuSet in {source}"),
        entries={uid: _sets(containers, source) for uid, containers in by_pod.items()},
        pods=_sets(pods, source),
        by_container_id=_sets(by_id, source),
    )
    if checkpoint is None:
        likely = 2
        if by_id:
            likely = 1
        elif pods:
            likely = 3
        checkpoint = matching(_cpu_texts(wire, state), wire.checksum, likely)

    if checkpoint.version == 1 and "V1" not in versions:
        reads = f"kubelet {version.title} reads states of version {versions[0][1:]} or later"
        raise InputError(f"{reads}, and this is version 1 at {source}")

    return replace(state, **asdict(checkpoint))


def _sets(lists: Mapping[str, str], source: str) -> dict[str, CPUSet]:
    """Return the sets of CPUs in lists, by key."""
    return {
        key: CPUSet.parse(text, f"the CPUs of {key!r} in {source}") for key, text in lists.items()
    }


def _cpu_texts(wire: _CpuWire, state: CpuState) -> Iterator[tuple[int, str]]:
    """Yield (version, text to be hashed) for each format that a kubelet may take this file for."""
    before = (
        f"PolicyName:(string){wire.policy_name} DefaultCPUSet:(string){wire.default_cpu_set} "
        "Entries:"
    )
    after = "Checksum:(checksum.Checksum)0}"
    if state.by_container_id:
        entries = f"{before}(map[string]string){go_text(wire.entries)}"
        yield 1, f"(*state.CPUManagerCheckpoint){{{entries} {after}"
        return

    entries = f"{before}(map[string]map[string]string){go_text(wire.entries)}"
    yield 2, f"(*state.CPUManagerCheckpoint){{{entries} {after}"

    pods = go_text(None)
    if wire.pod_entries is not None:
        elements = {uid: go_text(dict.fromkeys(cpus, "{}")) for uid, cpus in state.pods.items()}
        pods = go_text(
            {
                uid: f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){text}}}}}"
                for uid, text in elements.items()
            }
        )

    with_pods = f"{entries} PodEntries:(state.PodCPUAssignments){pods}"
    yield 3, f"(*state.CPUManagerCheckpoint){{{with_pods} {after}"

    # a kubelet without PodLevelResourceManagers accepts the text under this name too
    yield 2, f"(*state.CPUManagerCheckpointV2){{{entries} {after}"


_Bytes = Annotated[int, msgspec.Meta(ge=0, le=MEMORY_LIMIT // NUMA_NODE_LIMIT)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_NodeId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class MemoryTable(_Printed, frozen=True):
    """The bytes of one type of memory on one NUMA node.

    Attributes:
        reserved: bytes that containers hold.
    """

    go = (
        "<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} "
        "Allocatable:(uint64){} Reserved:(uint64){} Free:(uint64){}}}"
    )
    total: _Bytes = 0
    system_reserved: _Bytes = msgspec.field(name="systemReserved", default=0)
    allocatable: _Bytes = 0
    reserved: _Bytes = 0
    free: _Bytes = 0


class NumaNodeState(_Printed, frozen=True):
    """One NUMA node.

    Attributes:
        assignments: how many blocks lie on it.
        tables: by type.
        cells: the ids of the NUMA nodes that it is used together with, itself included.
    """

    go = (
        "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable){} "
        "Cells:([]int){}}}"
    )
    assignments: _Count = msgspec.field(name="numberOfAssignments", default=0)
    tables: dict[str, MemoryTable | None] | None = msgspec.field(name="memoryMap", default=None)
    cells: tuple[_NodeId, ...] | None = None

    def table(self, kind: str) -> MemoryTable:
        """Return the amounts of a type; zeros where the node has none."""
        return (self.tables or {}).get(kind) or MemoryTable()


@dataclass(frozen=True, slots=True)
class MemoryState(Checkpoint):
    """The state that a memory manager has written.

    Attributes:
        policy: `None` or `Static`; empty in the file that the policy None leaves alone.
        nodes: by kernel node id.
        entries: by pod uid and container name.
        pods: by pod uid, the memory of a pod that has it as a whole; of versions 2 and 3 only.
    """

    policy: str
    nodes: Mapping[int, NumaNodeState]
    entries: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]]
    pods: Mapping[str, tuple[MemoryBlock, ...]] = field(default_factory=dict)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of memory that some NUMA node has."""
        return tuple(sorted({kind for node in self.nodes.values() for kind in node.tables or ()}))


class _Block(_Printed, frozen=True, rename="camel"):
    """A block of memory on the wire."""

    go = "{{NUMAAffinity:([]int){} Type:(v1.ResourceName){} Size:(uint64){}}}"
    numa_affinity: list[_NodeId] | None = None
    type: str = ""
    size: _Bytes = 0


class _PodBlocks(_Printed, frozen=True, rename="camel"):
    """The memory of a pod on the wire."""

    go = "{{MemoryBlocks:([]state.Block){}}}"
    memory_blocks: list[_Block] | None = None


class _MemoryWire(DataWire, rename="camel"):
    """The file on the wire, in any version."""

    policy_name: str = ""
    machine_state: dict[str, NumaNodeState] | None = msgspec.field(default_factory=dict)
    entries: dict[str, dict[str, list[_Block] | None] | None] | None = msgspec.field(
        default_factory=dict
    )
    pod_entries: dict[str, _PodBlocks] | None = msgspec.field(default_factory=dict)


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
    versions = release_of(version).checkpoints["memory_manager_state"]
    wire, checkpoint = decode_with_data(
        data, _MemoryWire, "the JSON of a memory manager's state", source, versions, 3
    )

    nodes: dict[int, NumaNodeState] = {}
    for key, node in (wire.machine_state or {}).items():
        numa_id = number_of(key, _LARGEST_ID)
        if numa_id is None:
            raise InputError.at(f"machineState in {source}", "ids of NUMA nodes", key)
        nodes[numa_id] = node

    pods = {uid: _blocks(entry.memory_blocks) for uid, entry in (wire.pod_entries or {}).items()}
    if checkpoint is None:
        checkpoint = matching(_memory_texts(wire, nodes), wire.checksum, 2 if pods else 1)

    entries = {
        uid: {name: _blocks(blocks) for name, blocks in (containers or {}).items()}
        for uid, containers in (wire.entries or {}).items()
    }
    return MemoryState(
        policy=wire.policy_name, nodes=nodes, entries=entries, pods=pods, **asdict(checkpoint)
    )


def _blocks(blocks: list[_Block] | None) -> tuple[MemoryBlock, ...]:
    """Return the records of blocks."""
    return tuple(
        MemoryBlock(tuple(block.numa_affinity or ()), block.type, block.size)
        for block in blocks or ()
    )


def _memory_texts(
    wire: _MemoryWire, nodes: Mapping[int, NumaNodeState]
) -> Iterator[tuple[int, str]]:
    """Yield (version, text to be hashed) for each format that a kubelet may take this file for."""
    machine = go_text(None if wire.machine_state is None else nodes)
    text = (
        f"{{PolicyName:(string){wire.policy_name} MachineState:(state.NUMANodeMap){machine} "
        f"Entries:(state.ContainerMemoryAssignments){go_text(wire.entries)} "
    )
    after = "Checksum:(checksum.Checksum)0}"
    yield 1, f"(*state.MemoryManagerCheckpoint){text}{after}"

    pods = f"PodEntries:(state.PodMemoryAssignments){go_text(wire.pod_entries)}"
    yield 2, f"(*state.MemoryManagerCheckpoint){text}{pods} {after}"

    # a kubelet without PodLevelResourceManagers accepts the text under this name too
    yield 1, f"(*state.MemoryManagerCheckpointV1){text}{after}"


class DeviceEntry(Record):
    """The devices of one resource that one container holds.

    Attributes:
        devices: ids by kernel id of the NUMA node; see `NO_NUMA_NODE`. A device near several nodes
            is in several groups.
        response: the plugin's ContainerAllocateResponse, as protobuf.
    """

    pod_uid: str
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]
    response: bytes

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all devices, each once, sorted."""
        return tuple(sorted({identity for ids in self.devices.values() for identity in ids}))


@dataclass(frozen=True, slots=True)
class DeviceCheckpoint(Checkpoint):
    """The checkpoint that a device manager has written.

    Attributes:
        registered: by resource, the ids of the devices that were healthy when the file was written.
    """

    entries: tuple[DeviceEntry, ...]
    registered: Mapping[str, tuple[str, ...]]


class _Entry(_Printed, frozen=True, rename="pascal"):
    """The devices of a container on the wire."""

    go = (
        "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} "
        "DeviceIDs:(checkpoint.DevicesPerNUMA){} AllocResp:([]uint8){}}}"
    )
    pod_uid: str = msgspec.field(name="PodUID", default="")
    container_name: str = ""
    resource_name: str = ""
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: bytes | None = None


class _Data(_Printed, frozen=True, rename="pascal"):
    """The part that the checksum is of."""

    go = (
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){} "
        "RegisteredDevices:(map[string][]string){}}}"
    )
    pod_device_entries: list[_Entry] | None = msgspec.field(default_factory=list)
    registered_devices: dict[str, list[str] | None] | None = msgspec.field(default_factory=dict)


class _DeviceWire(msgspec.Struct, rename="pascal"):
    """The file on the wire."""

    data: _Data
    checksum: int = 0


def read_device_checkpoint(
    data: bytes, source: str = "kubelet_internal_checkpoint"
) -> DeviceCheckpoint:
    """Return the checkpoint in a file; whether its checksum is right is left to the caller.

    Args:
        data: the content of the file.
        source: its name in errors.

    Raises:
        InputError: it is no JSON, or of another shape.
    """
    wire = decode_checkpoint(data, _DeviceWire, "the JSON of a device manager's checkpoint", source)
    entries = []
    printed = []  # the groups of devices by numbers, which Go sorts otherwise than texts
    for entry in wire.data.pod_device_entries or ():
        by_node = {_node(key, source): ids for key, ids in (entry.device_ids or {}).items()}
        devices = {node: tuple(ids or ()) for node, ids in by_node.items()}
        entries.append(
            DeviceEntry(
                entry.pod_uid,
                entry.container_name,
                entry.resource_name,
                devices,
                entry.alloc_resp or b"",
            )
        )
        if entry.device_ids is None:
            printed.append(entry)
        else:
            printed.append(structs.replace(entry, device_ids=by_node))

    registered = {
        resource: tuple(ids or ()) for resource, ids in (wire.data.registered_devices or {}).items()
    }

    content = wire.data
    if content.pod_device_entries is not None:
        content = structs.replace(content, pod_device_entries=printed)

    return DeviceCheckpoint(
        tuple(entries),
        registered,
        checksum=wire.checksum,
        expected_checksum=checksum_of(go_text(content)),
    )


def _node(key: str, source: str) -> int:
    """Return the NUMA node of a group of devices."""
    if not _NODE.fullmatch(key):
        raise InputError.at(f"DeviceIDs in {source}", "ids of NUMA nodes", key)
    return int(key)


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
        """Return the state with names of containers in place of their ids; see `CpuState.named`."""
        if self.cpu is None:
            return self
        return replace(self, cpu=self.cpu.named(containers))

    def containers(self) -> dict[str, list[str]]:
        """Return by pod uid the names of the containers that hold something."""
        names_by_uid: dict[str, dict[str, None]] = {}
        for state in (self.cpu, self.memory):
            if state is not None:
                for uid, containers in state.entries.items():
                    names_by_uid.setdefault(uid, {}).update(dict.fromkeys(containers))

        if self.devices is not None:
            for entry in self.devices.entries:
                names_by_uid.setdefault(entry.pod_uid, {})[entry.container] = None

        return {uid: list(names) for uid, names in names_by_uid.items()}

    def uids(self) -> frozenset[str]:
        """Return the uids of the pods that hold something, as a whole or in a container."""
        whole: set[str] = set()
        for state in (self.cpu, self.memory):
            if state is not None:
                whole.update(state.pods)

        return frozenset(whole | self.containers().keys())

    def is_whole(self, uid: str) -> bool:
        """Return whether a pod has CPUs or memory as a whole."""
        return bool(
            (self.cpu and uid in self.cpu.pods) or (self.memory and uid in self.memory.pods)
        )

    def whole(self, uid: str) -> tuple[CPUSet, tuple[MemoryBlock, ...]]:
        """Return the CPUs and memory that a pod has as a whole."""
        cpus = CPUSet()
        if self.cpu is not None:
            cpus = self.cpu.pods.get(uid, cpus)

        blocks: tuple[MemoryBlock, ...] = ()
        if self.memory is not None:
            blocks = self.memory.pods.get(uid, ())

        return cpus, blocks

    def cpus(self, uid: str, container: str) -> CPUSet | None:
        """Return the CPUs that a container has for itself; None: it has none."""
        if self.cpu is None:
            return None
        return self.cpu.entries.get(uid, {}).get(container)

    def blocks(self, uid: str, container: str) -> tuple[MemoryBlock, ...]:
        """Return the memory that a container holds."""
        if self.memory is None:
            return ()
        return self.memory.entries.get(uid, {}).get(container, ())

    def device_ids(self) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
        """Return by pod uid and container name the ids of its devices by resource."""
        if self.devices is None:
            return {}

        ids_by_container: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        for entry in self.devices.entries:
            ids = ids_by_container.setdefault((entry.pod_uid, entry.container), {})
            ids[entry.resource] = entry.ids

        return ids_by_container

    def without(self, is_stale: Callable[[str, str | None], bool]) -> KubeletState:
        """Return the state after the kubelet has dropped what nobody needs.

        It does so before each admission.

        Args:
            is_stale: says whether a container, by pod uid and name, is gone; with None for the
                name, the whole pod.
        """
        cpu, memory, devices = self.cpu, self.memory, self.devices
        if cpu is not None:
            cpu = _without_cpus(cpu, is_stale)
        if memory is not None:
            memory = _without_memory(memory, is_stale)
        if devices is not None:
            kept = tuple(entry for entry in devices.entries if not is_stale(entry.pod_uid, None))
            devices = replace(devices, entries=kept)

        return KubeletState(cpu, memory, devices)

    def without_nowhere(self, is_stale: Callable[[str, str | None], bool]) -> KubeletState:
        """Return the state without the memory on no NUMA node that gone pods and containers have.

        A kubelet starts on such blocks and passes over them (`validateState` and `RemoveContainer`
        go by NUMA node): they hold nothing.

        Args:
            is_stale: as for `without`.
        """
        if self.memory is None:
            return self

        def blocks_somewhere(
            uid: str, name: str | None, blocks: tuple[MemoryBlock, ...]
        ) -> tuple[MemoryBlock, ...]:
            if not is_stale(uid, name):
                return blocks
            return tuple(block for block in blocks if block.numa_nodes)

        entries = {
            uid: {name: blocks_somewhere(uid, name, blocks) for name, blocks in containers.items()}
            for uid, containers in self.memory.entries.items()
        }
        pods = {
            uid: blocks_somewhere(uid, None, blocks) for uid, blocks in self.memory.pods.items()
        }
        return replace(self, memory=replace(self.memory, entries=entries, pods=pods))


def read_checkpoints(
    files: NodeFiles, version: KubeletVersion = NEWEST
) -> Iterator[tuple[str, CpuState | MemoryState | DeviceCheckpoint | InputError]]:
    """Yield the path of each checkpoint of a node, and what it says, or why it cannot be read.

    Those that are not there are left out.

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
    checkpoints = dict(read_checkpoints(files, version))
    for path, checkpoint in checkpoints.items():
        if isinstance(checkpoint, InputError):
            raise checkpoint
        if not checkpoint.is_intact:
            sums = (
                f"the checksum in the file is {checkpoint.checksum}, and its content has "
                f"{checkpoint.expected_checksum}"
            )
            raise InputError(f"{sums} at {files.place(path)}{_DAMAGED}")

    return state_of(checkpoints)


def _without_cpus(state: CpuState, is_stale: Callable[[str, str | None], bool]) -> CpuState:
    """Return the state after `RemoveContainer` of the static policy.

    CPUs that the pod's other containers share stay theirs.
    """
    kept = {
        uid: {name: cpus for name, cpus in containers.items() if not is_stale(uid, name)}
        for uid, containers in state.entries.items()
    }

    freed = 0
    for uid, containers in state.entries.items():
        if uid not in state.pods:
            removed = union(int(cpus) for name, cpus in containers.items() if name not in kept[uid])
            freed |= removed & ~union(map(int, kept[uid].values()))
        elif not kept[uid]:
            # what a pod has as a whole stays its own until its last container is gone
            freed |= int(state.pods[uid])

    return replace(
        state,
        shared=CPUSet.from_int(int(state.shared) | freed),
        entries={uid: containers for uid, containers in kept.items() if containers},
        pods={uid: cpus for uid, cpus in state.pods.items() if kept.get(uid)},
    )


def _without_memory(state: MemoryState, is_stale: Callable[[str, str | None], bool]) -> MemoryState:
    """Return the state after `RemoveContainer` of the Static policy."""
    kept: dict[str, dict[str, tuple[MemoryBlock, ...]]] = {}
    nodes = dict(state.nodes)
    for uid, containers in state.entries.items():
        for name, blocks in containers.items():
            if not is_stale(uid, name):
                kept.setdefault(uid, {})[name] = blocks
            elif uid not in state.pods:  # else what the pod has as a whole is given back, below
                _give_back(nodes, blocks)

    pods = dict(state.pods)
    for uid in state.pods:
        if uid not in kept:
            _give_back(nodes, pods.pop(uid))

    return replace(state, nodes=nodes, entries=kept, pods=pods)


def _give_back(nodes: dict[int, NumaNodeState], blocks: Sequence[MemoryBlock]) -> None:
    """Give blocks back in place, as the kubelet does.

    To the lowest of their NUMA nodes on which anything is held.
    """
    for block in blocks:
        to_give = block.size
        for node_id in block.numa_nodes:
            node = nodes.get(node_id)
            if node is None:
                continue

            table = node.table(block.type)
            part = min(to_give, table.reserved)
            to_give -= part
            changed = structs.replace(table, reserved=table.reserved - part, free=table.free + part)

            assignments = node.assignments - 1
            nodes[node_id] = structs.replace(
                node,
                assignments=assignments,
                tables={**(node.tables or {}), block.type: changed},
                cells=node.cells if assignments else (node_id,),
            )
