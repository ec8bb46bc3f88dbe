"""Reads the amounts of each resource on a node, and which containers hold them.

Of each resource there are a capacity, and what is reserved and free of it. Amounts are told for
each place: a NUMA node, or for devices the set of nodes that they are near to. Nothing is decided
here; `Holdings` is a record of one moment, and stays as it is when pods come and go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from alignup.errors import one_line
from alignup.machine.bits import bit_numbers, bit_set, ids_of, union
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field, json_fields, json_of, replace
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from alignup.kubernetes.pod import Pod
    from alignup.node.node import Node

# Returns the score of a hint: by the name of its provider, its resource, and its mask of positions.
HintScores: TypeAlias = "Callable[[str, str, int], int]"
# The providers that give their hints a score, by name.
_SCORING: Final = ("devices", "cpu", "memory")


class PlaceAmounts(Record):
    """What there is of one resource in one place: CPUs, bytes, or devices.

    Attributes:
        numa_nodes: kernel ids. One id for CPUs and memory; devices may be near to several NUMA
            nodes, or to none: ().
        allocatable: the amount that containers can have for themselves: the capacity less what is
            reserved, or unhealthy.
        ill: how many devices are unhealthy and held all the same: not allocatable, since no other
            container can have them.
    """

    numa_nodes: tuple[int, ...]
    capacity: int
    allocatable: int
    free: int
    ill: int = 0

    @property
    def reserved(self) -> int:
        """The amount that no container has, or can have, for itself."""
        return self.capacity - self.allocatable - self.ill

    @property
    def held(self) -> int:
        """The amount that containers hold; devices that have turned unhealthy are among it."""
        return self.allocatable - self.free + self.ill

    @property
    def unavailable(self) -> int:
        """The amount that no container can have from now on; of devices: the unhealthy ones."""
        return self.capacity - self.allocatable


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

    def score(self, numa_nodes: Collection[int]) -> int:
        """Return the score of a hint for these NUMA nodes: how full they are, in percent.

        That is what containers hold of what they can have there, at least 1; 0: they can have
        nothing. Devices count where they are near to any of the nodes (`topologymanager/score.go`,
        UtilizationScore, from 1.38 on).
        """
        places = [
            place for place in self.places if not set(place.numa_nodes).isdisjoint(numa_nodes)
        ]
        allocatable = sum(place.allocatable for place in places)
        if not allocatable:
            return 0
        # as the kubelet counts, without what is unhealthy
        given = sum(place.allocatable - place.free for place in places)
        return max(1, 100 * given // allocatable)

    def to_dict(self) -> dict[str, Any]:
        """Return the amounts in JSON's types."""
        fields = {
            "resource": self.resource,
            "places": [json_fields(place, *_PLACE_FIELDS) for place in self.places],
        }
        if self.unhealthy:
            fields["unhealthy"] = list(self.unhealthy)
        return fields


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
            for kind, bytes_by_node in self.memory.items()
            for node, size in bytes_by_node.items()
            if size
        ]

    def cells(self, end: str = "\n") -> tuple[str, str, str]:
        """Return its CPUs, memory and devices in words, with `end` between the things of a cell."""
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
        memory = [
            {"numaNode": node, "type": kind, "size": size} for kind, node, size in self.blocks
        ]
        return {
            "uid": self.pod_uid,
            **json_fields(self, "pod", "container"),
            "cpus": None if self.cpus is None else str(self.cpus),
            "memory": memory,
            "devices": {resource: list(ids) for resource, ids in self.devices.items()},
        }


def allocation_cells(
    allocation: Mapping[str, Any], end: str = "\n"
) -> tuple[str, str, str, str, str]:
    """Return a container's allocation in JSON's types as cells.

    They are of NUMA nodes, whether these are preferred, CPUs, memory and devices.
    """
    affinity = allocation["affinity"]
    numa_nodes = "any"
    preferred = "-"
    if affinity is not None:
        preferred = "yes" if affinity["preferred"] else "no"
        if affinity["numaNodes"] is not None:
            numa_nodes = ",".join(map(str, affinity["numaNodes"]))

    blocks = [
        f"{block['type']} {short_bytes(block['size'])} @ {','.join(map(str, block['numaNodes']))}"
        for block in allocation["memory"]
        if block["size"]  # an init container may have handed all of it on
    ]
    devices = [
        one_line(f"{resource} {','.join(ids)}")
        for resource, ids in allocation["devices"].items()
        if ids
    ]
    return (
        numa_nodes,
        preferred,
        allocation["cpus"] or "shared",
        end.join(blocks) or "-",
        end.join(devices) or "-",
    )


class MemoryGroup(Record):
    """NUMA nodes whose memory is bound together, and the pods that bind it.

    Attributes:
        numa_nodes: kernel ids, ascending; one alone is bound to itself.
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
        return next((amounts for amounts in self.resources if amounts.resource == resource), None)

    def holders(
        self, amounts: ResourceAmounts, numa_nodes: tuple[int, ...]
    ) -> Iterator[tuple[ContainerHolding, int, int]]:
        """Yield who holds some of a resource in one place, and how much.

        With it comes how much of that other containers before hold too.
        """
        node = numa_nodes[0] if numa_nodes else -1
        if amounts.resource != "cpu" and not amounts.devices:
            for holding in self.containers:
                amount = holding.memory.get(amounts.resource, {}).get(node, 0)
                if amount:
                    yield holding, amount, 0
            return

        counted_units: set[int | str] = set()
        for holding in self.containers:
            units: set[int | str]
            if amounts.resource == "cpu":
                units = set(CPUSet.from_int(int(holding.cpus or 0) & self.node_cpus.get(node, 0)))
            else:
                ids = holding.devices.get(amounts.resource, ())
                units = {device for device in ids if amounts.devices.get(device) == numa_nodes}

            if units:
                yield holding, len(units), len(units & counted_units)
                counted_units |= units

    def to_dict(self) -> dict[str, Any]:
        """Return the record in JSON's types; containers that hold nothing are left out."""
        return {
            "numaNodes": list(self.numa_node_ids),
            "resources": json_of(self.resources),
            "containers": [holding.to_dict() for holding in self.containers if holding],
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
    machine = node.machine
    with node.manager.lock.guard() as guard, guard.take():
        pods = node.pods
        if judged is not None:
            pods = (*pods, judged)

        reserved_cpus = CPUSet()
        if node.cpu is not None:
            reserved_cpus = CPUSet.from_int(machine.cpus & ~int(node.cpu.allocatable_cpus))

        return Holdings(
            machine.numa_node_ids,
            resources=tuple(amounts_of(node)),
            containers=tuple(holding for pod in pods for holding in _holdings(node, pod)),
            memory_groups=tuple(_memory_groups(node, pods)),
            reserved_cpus=reserved_cpus,
            shared_cpus=node.shared_cpus,
            node_cpus=dict(zip(machine.numa_node_ids, machine.node_cpus, strict=True)),
        )


def amounts_of(node: Node) -> Iterator[ResourceAmounts]:
    """Yield what there is of each resource that a manager allocates: CPUs, memory, devices."""
    yield from _cpu_amounts(node)
    yield from _memory_amounts(node)
    yield from _device_amounts(node)


def scores_of(resources: Iterable[ResourceAmounts], numa_node_ids: tuple[int, ...]) -> HintScores:
    """Return the scores that hints had when there were these amounts.

    A hint of a user's provider has none, which is 0.
    """
    amounts_by_resource = {amounts.resource: amounts for amounts in resources}

    def score_of(provider: str, resource: str, mask: int) -> int:
        amounts = amounts_by_resource.get(resource)
        if provider not in _SCORING or amounts is None:
            return 0
        return amounts.score(ids_of(mask, numa_node_ids))

    return score_of


def _holdings(node: Node, pod: Pod) -> Iterator[ContainerHolding]:
    """Yield what the containers of an admitted pod hold, and what it has beyond that."""
    holdings = [_holding(node, pod, container.name) for container in pod.all_containers]
    yield from holdings
    if not pod.has_shared_pool:
        return

    cpus = 0 if node.cpu is None else int(node.cpu.pod_cpus(pod.uid) or 0)
    for holding in holdings:
        cpus &= ~int(holding.cpus or 0)

    remainder = replace(_holding(node, pod, ""), cpus=CPUSet.from_int(cpus) if cpus else None)
    if remainder:
        yield remainder


def _holding(node: Node, pod: Pod, container: str) -> ContainerHolding:
    """Return what a container of an admitted pod holds."""
    allocation = node.allocation(pod.uid, container)
    memory = {} if node.memory is None else node.memory.shares(pod.uid, container)
    return ContainerHolding(
        pod.uid, pod.namespaced_name, container, allocation.cpus, memory, allocation.devices
    )


def _cpu_amounts(node: Node) -> Iterator[ResourceAmounts]:
    """Yield the CPUs of each NUMA node, where there is a static CPU policy."""
    if node.cpu is None:
        return

    allocatable = int(node.cpu.allocatable_cpus)
    free = int(node.cpu.free_cpus)
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

    ids = node.machine.numa_node_ids
    allocatable = node.memory.allocatable
    free = node.memory.free
    amounts_of_nodes = [numa_node.memory_by_type for numa_node in node.machine.numa_nodes]
    for kind in ("memory", *sorted(node.machine.memory_by_type.keys() - {"memory"})):
        capacity = [amounts.get(kind, 0) for amounts in amounts_of_nodes]
        rows = zip(ids, capacity, allocatable[kind], free[kind], strict=True)
        places = [PlaceAmounts((numa_id,), *amounts) for numa_id, *amounts in rows]
        yield ResourceAmounts(kind, tuple(places))


def _device_amounts(node: Node) -> Iterator[ResourceAmounts]:
    """Yield the devices of each resource by the NUMA nodes that they are near to."""
    ids = node.machine.numa_node_ids
    for resource, pool in sorted(node.pools.items()):
        all_devices = (1 << len(pool.devices)) - 1
        members_by_mask = dict(pool.places)
        members_by_mask[0] = all_devices & ~union(members_by_mask.values())
        places = []
        numa_nodes_of: dict[str, tuple[int, ...]] = {}
        for mask, members in sorted(members_by_mask.items(), key=lambda item: (not item[0], item)):
            numa_nodes = ids_of(mask, ids)
            numa_nodes_of |= dict.fromkeys(pool.ids(members), numa_nodes)
            if members:
                places.append(
                    PlaceAmounts(
                        numa_nodes,
                        capacity=members.bit_count(),
                        allocatable=(members & pool.healthy).bit_count(),
                        free=(members & pool.ledger.free).bit_count(),
                        ill=(members & pool.ledger.given & ~pool.healthy).bit_count(),
                    )
                )

        yield ResourceAmounts(
            resource,
            tuple(places),
            devices=dict(sorted(numa_nodes_of.items())),
            unhealthy=pool.ids(all_devices & ~pool.healthy),
        )


def _memory_groups(node: Node, holders: tuple[Pod, ...]) -> Iterator[MemoryGroup]:
    """Yield the NUMA nodes that are bound together, or to themselves, by mask."""
    if node.memory is None:
        return

    machine = node.machine
    ledger = node.memory.ledger
    bound = {mask for mask in ledger.groups if mask & ~ledger.unused}
    bound |= {1 << position for position in bit_numbers(ledger.alone & ~ledger.unused)}

    pods_by_mask: dict[int, dict[str, None]] = {mask: {} for mask in bound}
    for pod in holders:
        blocks = list(node.memory.pod_blocks(pod.uid))
        for container in pod.all_containers:
            blocks += node.memory.blocks(pod.uid, container.name)

        for block in blocks:
            mask = bit_set(map(machine.position, block.numa_nodes))
            pods_by_mask.setdefault(mask, {})[pod.namespaced_name] = None

    for mask, names in sorted(pods_by_mask.items()):
        yield MemoryGroup(ids_of(mask, machine.numa_node_ids), tuple(names), mask in bound)
