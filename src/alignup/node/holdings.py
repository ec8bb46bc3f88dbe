"""Reads the amounts of each resource on a node: capacity, reserved and free, and which containers hold the rest.

Amounts are told for each place: a NUMA node, or for devices the set of nodes that they are near to.
Nothing is decided here; `Holdings` is a record of one moment, and stays as it is when pods come and
go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.errors import one_line
from alignup.machine.bits import ids_of, union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field, json_fields, json_of, replace
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alignup.kubernetes.pod import Pod
    from alignup.node.node import Node


class PlaceAmounts(Record):
    """What there is of one resource in one place: CPUs, bytes, or devices.

    Attributes:
        numa_nodes: kernel ids. One id for CPUs and memory; devices may be near to several NUMA
            nodes, or to none: ().
        allocatable: the amount that containers can have for themselves: the capacity less what is
            reserved, or unhealthy.
    """

    numa_nodes: tuple[int, ...]
    capacity: int
    allocatable: int
    free: int

    @property
    def reserved(self) -> int:
        """The amount that no container can have for itself."""
        return self.capacity - self.allocatable

    @property
    def held(self) -> int:
        """The amount that containers hold; a held device that turned unhealthy is not counted."""
        return self.allocatable - self.free


_PLACE_FIELDS = ("numa_nodes", "capacity", "allocatable", "reserved", "held", "free")


class ResourceAmounts(Record):
    """What there is of one resource on a node, place by place.

    Attributes:
        resource: `cpu`, `memory`, `hugepages-<size>`, or the resource of a device plugin.
        places: CPUs and memory: one for each NUMA node, ascending. Devices: NUMA nodes ascending,
            those near to none last.
        devices: for the resource of a device plugin: the ids of its devices, each with the NUMA
            nodes that it is near to.
        unhealthy: the ids of devices that the plugin reports as unhealthy, or no more.
    """

    resource: str
    places: tuple[PlaceAmounts, ...]
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    unhealthy: tuple[str, ...] = ()

    @property
    def free(self) -> int:
        """The amount that is free in all places together."""
        return sum(place.free for place in self.places)

    @property
    def allocatable(self) -> int:
        """The amount that containers can have for themselves in all places together."""
        return sum(place.allocatable for place in self.places)

    @property
    def capacity(self) -> int:
        """The amount that there is in all places together."""
        return sum(place.capacity for place in self.places)

    def to_dict(self) -> dict[str, Any]:
        """Return the amounts in JSON's types."""
        return {
            "resource": self.resource,
            "places": [json_fields(place, *_PLACE_FIELDS) for place in self.places],
        }


class ContainerHolding(Record):
    """What one container holds for itself.

    Attributes:
        pod: `namespace/name`.
        container: empty: what a pod with resources of its own has beyond those of its containers.
        cpus: exclusive CPUs; None: it runs in the shared pool. Later containers may have those of
            an init container too.
        memory: by type, the bytes on each NUMA node of its set, by kernel id; 0 where it took none.
        devices: device ids by resource.
    """

    pod_uid: str
    pod: str
    container: str
    cpus: CPUSet | None = None
    memory: Mapping[str, Mapping[int, int]] = field(default_factory=dict, hash=False)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        return bool(self.cpus or self.memory or self.devices)

    @property
    def label(self) -> str:
        """`namespace/name/container`."""
        return f"{self.pod}/{self.container}" if self.container else self.pod

    @property
    def blocks(self) -> list[tuple[str, int, int]]:
        """The bytes that it took of each type on each NUMA node: type, kernel id, bytes."""
        return [
            (kind, node, size)
            for kind, taken in self.memory.items()
            for node, size in taken.items()
            if size
        ]

    def cells(self, end: str = "\n") -> tuple[str, str, str]:
        """Return its CPUs, memory and devices in words, one thing after the other with `end` between them."""
        memory = [
            f"{kind} {short_bytes(size)} on NUMA node {node}" for kind, node, size in self.blocks
        ]
        devices = [f"{resource} {','.join(ids)}" for resource, ids in self.devices.items() if ids]
        return (
            "shared" if self.cpus is None else str(self.cpus),
            end.join(memory) or "-",
            end.join(devices) or "-",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the holding in JSON's types."""
        return {
            "uid": self.pod_uid,
            **json_fields(self, "pod", "container"),
            "cpus": None if self.cpus is None else str(self.cpus),
            "memory": [
                {"numaNode": node, "type": kind, "size": size} for kind, node, size in self.blocks
            ],
            "devices": {resource: list(ids) for resource, ids in self.devices.items()},
        }


def allocation_cells(got: Mapping[str, Any], end: str = "\n") -> tuple[str, str, str, str, str]:
    """Return a container's allocation in JSON's types as cells: NUMA nodes, preferred, CPUs, memory and devices."""
    affinity = got["affinity"]
    nodes = None if affinity is None else affinity["numaNodes"]
    blocks = [
        f"{one['type']} {short_bytes(one['size'])} @ {','.join(map(str, one['numaNodes']))}"
        for one in got["memory"]
        if one["size"]  # an init container may have handed all of it on
    ]
    devices = [
        one_line(f"{resource} {','.join(ids)}") for resource, ids in got["devices"].items() if ids
    ]
    return (
        "any" if nodes is None else ",".join(map(str, nodes)),
        "-" if affinity is None else "yes" if affinity["preferred"] else "no",
        got["cpus"] or "shared",
        end.join(blocks) or "-",
        end.join(devices) or "-",
    )


class MemoryGroup(Record):
    """NUMA nodes whose memory is bound together, or one that is bound to itself, and the pods that bind it.

    Attributes:
        numa_nodes: kernel ids, ascending.
        pods: `namespace/name` of those that hold memory on exactly these nodes; empty: a pod that
            is gone left the binding.
        usable: False: a smaller set has been cut out of it since, so no further pod gets memory on
            these nodes together.
    """

    numa_nodes: tuple[int, ...]
    pods: tuple[str, ...]
    usable: bool = True


class Holdings(Record):
    """Who holds what on a node at one moment.

    Attributes:
        resources: CPUs, then memory, then devices by name; a resource that no manager allocates is
            missing.
        containers: those of all pods in the order of admission, init containers first; also those
            that hold nothing.
        memory_groups: by mask. A NUMA node in none of them is unused, and combines freely.
        reserved_cpus: the CPUs that no container gets for itself; empty without a static CPU
            policy.
        shared_cpus: the CPUs of containers without their own; None without a static CPU policy.
        node_cpus: by kernel id of the NUMA node, the bit set of its CPUs.
    """

    numa_node_ids: tuple[int, ...]
    resources: tuple[ResourceAmounts, ...]
    containers: tuple[ContainerHolding, ...]
    memory_groups: tuple[MemoryGroup, ...] = ()
    reserved_cpus: CPUSet = CPUSet()
    shared_cpus: CPUSet | None = None
    node_cpus: Mapping[int, int] = field(default_factory=dict, repr=False, hash=False)

    def amounts(self, resource: str) -> ResourceAmounts | None:
        """Return the amounts of a resource; None where no manager allocates it."""
        return next((one for one in self.resources if one.resource == resource), None)

    def holders(
        self, amounts: ResourceAmounts, numa_nodes: tuple[int, ...]
    ) -> Iterator[tuple[ContainerHolding, int, int]]:
        """Yield who holds some of a resource in one place, how much, and how much of that others before hold too."""
        node = numa_nodes[0] if numa_nodes else -1
        counted: set[int | str] = set()
        for one in self.containers:
            held: set[int | str]
            if amounts.resource == "cpu":
                held = set(CPUSet.from_int(int(one.cpus or 0) & self.node_cpus.get(node, 0)))
            elif amounts.devices:
                ids = one.devices.get(amounts.resource, ())
                held = {identity for identity in ids if amounts.devices.get(identity) == numa_nodes}
            else:
                if amount := one.memory.get(amounts.resource, {}).get(node, 0):
                    yield one, amount, 0
                continue

            if held:
                yield one, len(held), len(held & counted)
                counted |= held

    def to_dict(self) -> dict[str, Any]:
        """Return the record in JSON's types; containers that hold nothing are left out."""
        return {
            "numaNodes": list(self.numa_node_ids),
            "resources": json_of(self.resources),
            "containers": [one.to_dict() for one in self.containers if one],
            "memoryGroups": json_of(self.memory_groups),
            "reservedCpus": str(self.reserved_cpus),
            "sharedCpus": None if self.shared_cpus is None else str(self.shared_cpus),
        }


def holdings_of(node: Node, judged: Pod | None = None) -> Holdings:
    """Return who holds what on a node now.

    Args:
        node: the node.
        judged: a pod that is being judged, whose earlier containers hold something already.
    """
    with node.manager.lock:
        pods = node.pods if judged is None else (*node.pods, judged)
        return Holdings(
            node.machine.numa_node_ids,
            (*_cpu_amounts(node), *_memory_amounts(node), *_device_amounts(node)),
            tuple(one for pod in pods for one in _holdings(node, pod)),
            tuple(_memory_groups(node, pods)),
            CPUSet.from_int(
                0 if node.cpu is None else node.machine.cpus & ~int(node.cpu.allocatable_cpus)
            ),
            node.shared_cpus,
            dict(zip(node.machine.numa_node_ids, node.machine.node_cpus, strict=True)),
        )


def _holdings(node: Node, pod: Pod) -> Iterator[ContainerHolding]:
    """Yield what the containers of an admitted pod hold, and what it has beyond that."""
    containers = [_holding(node, pod, one.name) for one in pod.all_containers]
    yield from containers
    if not pod.has_shared_pool:
        return
    cpus = 0 if node.cpu is None else int(node.cpu.pod_cpus(pod.uid) or 0)
    for one in containers:
        cpus &= ~int(one.cpus or 0)
    rest = replace(_holding(node, pod, ""), cpus=CPUSet.from_int(cpus) if cpus else None)
    if rest:
        yield rest


def _holding(node: Node, pod: Pod, container: str) -> ContainerHolding:
    """Return what a container of an admitted pod holds."""
    got = node.allocation(pod.uid, container)
    memory = {} if node.memory is None else node.memory.shares(pod.uid, container)
    return ContainerHolding(pod.uid, pod.namespaced_name, container, got.cpus, memory, got.devices)


def _cpu_amounts(node: Node) -> Iterator[ResourceAmounts]:
    """Yield the CPUs of each NUMA node, where there is a static CPU policy."""
    if node.cpu is None:
        return

    allocatable, free = int(node.cpu.allocatable_cpus), int(node.cpu.free_cpus)
    places = [
        PlaceAmounts(
            (numa_id,),
            cpus.bit_count(),
            (cpus & allocatable).bit_count(),
            (cpus & free).bit_count(),
        )
        for numa_id, cpus in zip(node.machine.numa_node_ids, node.machine.node_cpus, strict=True)
    ]
    yield ResourceAmounts("cpu", tuple(places))


def _memory_amounts(node: Node) -> Iterator[ResourceAmounts]:
    """Yield the bytes of each type on each NUMA node, where there is a Static memory policy."""
    if node.memory is None:
        return
    allocatable, free = node.memory.allocatable, node.memory.free
    there = [numa.memory_by_type for numa in node.machine.numa_nodes]
    for kind in ("memory", *sorted(node.machine.memory_by_type.keys() - {"memory"})):
        amounts = [one.get(kind, 0) for one in there]
        rows = zip(node.machine.numa_node_ids, amounts, allocatable[kind], free[kind], strict=True)
        yield ResourceAmounts(kind, tuple(PlaceAmounts((numa_id,), *row) for numa_id, *row in rows))


def _device_amounts(node: Node) -> Iterator[ResourceAmounts]:
    """Yield the devices of each resource by the NUMA nodes that they are near to."""
    ids = node.machine.numa_node_ids
    for resource, pool in sorted(node.pools.items()):
        whole = (1 << len(pool.devices)) - 1
        near = {**dict(pool.places), 0: whole & ~union(members for _, members in pool.places)}
        counted = (whole, pool.healthy, pool.ledger.free)
        places = [
            PlaceAmounts(ids_of(mask, ids), *((members & bits).bit_count() for bits in counted))
            for mask, members in sorted(near.items(), key=lambda item: (not item[0], item[0]))
            if members
        ]
        devices = {
            identity: ids_of(mask, ids)
            for mask, members in near.items()
            for identity in pool.ids(members)
        }
        yield ResourceAmounts(
            resource, tuple(places), dict(sorted(devices.items())), pool.ids(whole & ~pool.healthy)
        )


def _memory_groups(node: Node, holders: tuple[Pod, ...]) -> Iterator[MemoryGroup]:
    """Yield the NUMA nodes that are bound together, or to themselves, by mask."""
    if node.memory is None:
        return

    ledger, machine = node.memory.ledger, node.machine
    bound = {mask for mask in ledger.groups if mask & ~ledger.unused}
    bound |= {
        1 << bit
        for bit in range(len(machine.numa_nodes))
        if ledger.alone & ~ledger.unused & 1 << bit
    }
    pods: dict[int, dict[str, None]] = {mask: {} for mask in bound}
    for pod in holders:
        own = [node.memory.blocks(pod.uid, container.name) for container in pod.all_containers]
        for blocks in (*own, node.memory.pod_blocks(pod.uid)):
            for block in blocks:
                mask = sum(1 << machine.position(numa_id) for numa_id in block.numa_nodes)
                pods.setdefault(mask, {})[pod.namespaced_name] = None

    for mask, names in sorted(pods.items()):
        yield MemoryGroup(ids_of(mask, machine.numa_node_ids), tuple(names), mask in bound)
