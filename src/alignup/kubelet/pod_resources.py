"""Gets the answers of a kubelet's PodResources service (v1).

They are recorded ones, or those of the kubelet that runs. That one is asked over its unix socket,
which needs the extra `kubelet`.
"""

from __future__ import annotations

import re
from stat import S_ISSOCK
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.errors import InputError, errors_in, needs_extra, warn
from alignup.kubelet import layout
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device, devices_near
from alignup.records import Record, field
from alignup.text.json_text import decode_json
from alignup.text.typed import decode
from alignup.topology_manager.admission import MemoryBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from alignup.kubelet.layout import NodeFiles

_SERVICE: Final = "/v1.PodResourcesLister/"

# As many bytes as the kubelet's own clients take.
_OPTIONS: Final = (("grpc.max_receive_message_length", 16 << 20), ("grpc.enable_retries", 0))

_SECONDS: Final = 5.0
SOCKET: Final = f"{layout.KUBELET}/pod-resources/kubelet.sock"


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


# Of names as protobuf's JSON has them by default (`deviceIds`); it can have those of the `.proto`
# file too.
_CAPITAL: Final = re.compile("(?<=[a-z])[A-Z]")


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


def find_answers(files: NodeFiles) -> tuple[tuple[PodResources, ...] | None, Allocatable | None]:
    """Return the recorded answers of a node, or else those of its kubelet.

    That is the one whose socket is in the kubelet's folder. The answer to List, then that to
    GetAllocatableResources; None where it was not asked, or has not answered.

    Raises:
        InputError: a recorded answer is damaged.
    """
    list_answer = read_answer(files, layout.LIST)
    allocatable_answer = read_answer(files, layout.ALLOCATABLE)
    if list_answer is None and allocatable_answer is None:
        list_answer, allocatable_answer = answers_of_kubelet(files) or (None, None)

    pods = None
    if list_answer is not None:
        pods = pods_from_wire(list_answer, files.place(layout.LIST))

    allocatable = None
    if allocatable_answer is not None:
        place = files.place(layout.ALLOCATABLE)
        allocatable = allocatable_from_wire(allocatable_answer, place)

    return pods, allocatable


def answers_of_kubelet(files: NodeFiles) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the answers of the kubelet whose socket is in its folder; None: there is none.

    A kubelet that does not answer, and a missing extra, are warned of.
    """
    if not isinstance(files, layout.FolderFiles):
        return None

    socket = files.path_of(SOCKET)
    try:
        if S_ISSOCK(socket.stat().st_mode):
            return ask_kubelet(socket)
    except OSError:
        return None
    except InputError as error:
        warn(f"no PodResources answers: {error}")

    return None


def ask_kubelet(socket: Path, seconds: float = _SECONDS) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answers to List and GetAllocatableResources as plain objects.

    They have the names of the `.proto` file.

    Args:
        socket: of the kubelet.
        seconds: how long each may take.

    Raises:
        InputError: the extra `kubelet` is not installed, or nobody answers in time, or with an
            error.
    """
    with needs_extra(
        "to ask a kubelet for its PodResources takes grpcio with protobuf", "'alignup[kubelet]'"
    ):
        import grpc  # noqa: PLC0415  # an extra
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415  # an extra

        from alignup.kubelet import pod_resources_pb2 as wire  # noqa: PLC0415  # an extra

    def ask(call: str, answer: Any) -> dict[str, Any]:
        question = channel.unary_unary(
            f"{_SERVICE}{call}", wire.Nothing.SerializeToString, answer.FromString
        )
        try:
            message = question(wire.Nothing(), seconds)
        except grpc.RpcError as error:
            raise InputError(
                f"{call} failed: {error.code().name.lower()}: {error.details()} at {socket}"
            ) from None

        plain: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
        return plain

    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        return ask("List", wire.ListAnswer), ask("GetAllocatableResources", wire.AllocatableAnswer)
