"""The answers of a kubelet's PodResources service (v1), as records.

They are read from recorded ones, and from plain objects. `alignup.kubelet.pod_resources_client`
asks the kubelet that runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.errors import InputError, errors_in
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device, devices_near
from alignup.records import Record, field
from alignup.text.json_text import decode_json
from alignup.text.typed import decode
from alignup.topology_manager.admission import MemoryBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alignup.kubelet.layout import NodeFiles

# Of names as protobuf's JSON has them by default (`deviceIds`); it can have those of the `.proto`
# file too.
_CAPITAL: Final = re.compile("(?<=[a-z])[A-Z]")


class ContainerResources(Record):
    """The resources that a container has for itself, as the kubelet tells them.

    Attributes:
        cpus: those it has for itself.
        devices: ids by resource, sorted.
    """

    name: str
    cpus: CPUSet
    memory: tuple[MemoryBlock, ...]
    devices: Mapping[str, tuple[str, ...]]


class PodResources(Record):
    """The resources of a pod: of its containers and its sidecars, without other init containers.

    Attributes:
        cpus: those that the pod has as a whole, from Kubernetes 1.37 on; those of its containers
            are among them.
        memory: the same of memory.
    """

    namespace: str
    name: str
    containers: tuple[ContainerResources, ...]
    cpus: CPUSet = field(default_factory=CPUSet)
    memory: tuple[MemoryBlock, ...] = ()

    @property
    def holds_something(self) -> bool:
        """Whether the pod or a container has CPUs, memory or devices of its own."""
        return bool(self.cpus or self.memory) or any(
            container.cpus or container.memory or container.devices for container in self.containers
        )


class Allocatable(Record):
    """The allocatable resources of the node.

    Attributes:
        devices: by resource, the devices that are healthy; where they are to be told, all.
    """

    cpus: CPUSet
    memory: tuple[MemoryBlock, ...]
    devices: Mapping[str, tuple[Device, ...]]


class _NumaNode(msgspec.Struct):
    # protobuf leaves out a zero
    id: int = msgspec.field(name="ID", default=0)


class _Topology(msgspec.Struct):
    nodes: list[_NumaNode] | None = None


class _Devices(msgspec.Struct):
    resource_name: str = ""
    device_ids: list[str] | None = None
    topology: _Topology | None = None


class _Memory(msgspec.Struct):
    memory_type: str = ""
    size: int = 0
    topology: _Topology | None = None


class _Allocatable(msgspec.Struct):
    devices: list[_Devices] | None = None
    cpu_ids: list[int] | None = None
    memory: list[_Memory] | None = None


class _Container(_Allocatable):
    name: str = ""


class _Pod(_Container):
    namespace: str = ""
    containers: list[_Container] | None = None


class _List(msgspec.Struct):
    pod_resources: list[_Pod] | None = None


def read_answer(files: NodeFiles, path: str) -> Any:
    """Return a recorded answer with the names of the `.proto` file; None: there is none.

    Raises:
        InputError: it is no JSON, or no object.
    """
    data = files.read(path)
    if data is None:
        return None
    value: object = decode_json(data, "the JSON of a PodResources answer", files.place(path))
    if not isinstance(value, dict):
        raise InputError.at(files.place(path), "an object", value)
    return plain_answer(value)


def plain_answer(value: Any) -> Any:
    """Return an answer in protobuf's JSON with the names of the `.proto` file."""
    if isinstance(value, dict):
        return {
            _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", name): plain_answer(value[name])
            for name in value
        }
    if isinstance(value, list):
        return [plain_answer(item) for item in value]
    return value


def pods_from_wire(answer: object, where: str = "List") -> tuple[PodResources, ...]:
    """Return the pods of an answer to List.

    Args:
        answer: the answer as plain objects, with the names of the `.proto` file.
        where: its name in errors.

    Raises:
        InputError: it is of another shape.
    """
    with errors_in(where):
        wire = decode(answer, _List, strict=False)  # numbers of 64 bits are texts
        return tuple(map(_pod, wire.pod_resources or ()))


def _pod(wire: _Pod) -> PodResources:
    containers = tuple(map(_container, wire.containers or ()))
    return PodResources(
        wire.namespace, wire.name, containers, CPUSet(wire.cpu_ids or ()), _memory(wire.memory)
    )


def _container(wire: _Container) -> ContainerResources:
    ids = {
        resource: tuple(sorted(device.id for device in devices))
        for resource, devices in _devices(wire.devices).items()
    }
    return ContainerResources(wire.name, CPUSet(wire.cpu_ids or ()), _memory(wire.memory), ids)


def allocatable_from_wire(answer: object, where: str = "GetAllocatableResources") -> Allocatable:
    """Return an answer to GetAllocatableResources; see `pods_from_wire`.

    Raises:
        InputError: it is of another shape.
    """
    with errors_in(where):
        wire = decode(answer, _Allocatable, strict=False)
        return Allocatable(CPUSet(wire.cpu_ids or ()), _memory(wire.memory), _devices(wire.devices))


def _nodes(topology: _Topology | None) -> tuple[int, ...]:
    """Return the ids of NUMA nodes, ascending."""
    return tuple(sorted({node.id for node in (topology and topology.nodes) or ()}))


def _memory(blocks: Iterable[_Memory] | None) -> tuple[MemoryBlock, ...]:
    records = [
        MemoryBlock(_nodes(block.topology), block.memory_type, block.size) for block in blocks or ()
    ]
    return tuple(sorted(records, key=lambda block: (block.type, block.numa_nodes)))


def _devices(entries: Iterable[_Devices] | None) -> dict[str, tuple[Device, ...]]:
    """Return the devices of each resource by id.

    One that is in several entries is near the NUMA nodes of all.
    """
    return devices_near(
        (entry.resource_name, identity, _nodes(entry.topology))
        for entry in entries or ()
        for identity in entry.device_ids or ()
    )
