"""The record of a machine: its NUMA nodes, cores, hugepages and PCI devices; its form in JSON.

Cores are built from the groups of CPUs that a source found: cores, sockets and L3 caches.
Other sources (sysfs, snapshots, hwloc's XML, the catalog) have readers beside this module;
`load.py` knows them all. Sets of CPUs are ints as bit sets: bit i is the CPU that the kernel
numbers i. Masks of NUMA nodes are ints whose bit i is position i, `machine.numa_nodes[i]`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count, pairwise

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, bit_set, union
from alignup.records import Record, Shown, field, json_fields, replace
from alignup.text.counting import BYTE_SUFFIXES, counted, format_bytes, short_bytes

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Any, Final

    from alignup.machine.wire import CoreWire, MachineWire, NumaNodeWire


_PAGE_SIZE: Final = "([1-9][0-9]{0,8})(Ki|Mi|Gi|Ti)"

# A mask of NUMA nodes is one machine word.
NUMA_NODE_LIMIT: Final = 64

# Bytes of all NUMA nodes together, so that no sum of amounts leaves the 63 bits that the kernels
# count in.
MEMORY_LIMIT: Final = 1 << 61

# The distance of nodes that cannot reach each other (ACPI's SLIT); written for ids that do not
# exist.
UNREACHABLE: Final = 255


class Core(Record):
    """A physical core.

    Attributes:
        cpus: the kernel numbers of its CPUs (SMT siblings), ascending.
        socket: the kernel's `physical_package_id`, or a number unique in the machine where the
            kernel has none.
        l3: a number unique in the machine for each group of CPUs that share an L3 cache; None: not
            known.
        uncore_cache: the group of CPUs that a kubelet takes for an uncore cache: cadvisor's number
            of the cache, or the socket where cadvisor reports none; None: not known, `l3` stands
            for it.
        bits: the same CPUs as a bit set, computed once.
    """

    cpus: tuple[int, ...]
    socket: int
    l3: int | None = None
    uncore_cache: int | None = None
    bits: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", bit_set(self.cpus))

    @classmethod
    def of_bits(
        cls, bits: int, socket: int, l3: int | None = None, uncore_cache: int | None = None
    ) -> Core:
        """Return the core with the CPUs of a bit set."""
        return cls(tuple(bit_numbers(bits)), socket, l3, uncore_cache)

    @property
    def cache_group(self) -> int:
        """The number that the CPU manager groups cores by: the socket's where no cache is known."""
        if self.uncore_cache is not None:
            return self.uncore_cache
        if self.l3 is not None:
            return self.l3
        return self.socket

    def within(self, cpus: int) -> Core:
        """Return the core cut to the CPUs in the bit set `cpus`, some of which are its own."""
        inside = self.bits & cpus
        if inside == self.bits:
            return self
        return Core.of_bits(inside, self.socket, self.l3, self.uncore_cache)


class HugePages(Record):
    """Pages of one size in a NUMA node.

    Attributes:
        size: as in the name of a Kubernetes resource.
    """

    size: str
    size_bytes: int
    count: int

    @classmethod
    def of_bytes(cls, size_bytes: int, count: int) -> HugePages:
        """Return the record for pages of `size_bytes` bytes, named as Kubernetes names them.

        Examples:
            >>> HugePages.of_bytes(2 << 20, 512)
            HugePages(size='2Mi', size_bytes=2097152, count=512)
        """
        return cls(format_bytes(size_bytes), size_bytes, count)

    @classmethod
    def parse(cls, size: str, count: int, where: str = "a hugepage size") -> HugePages:
        """Return the record for pages of a size that is written as in `hugepages-2Mi`.

        Raises:
            InputError: `size` is not a whole number with one of the suffixes Ki, Mi, Gi, Ti.
        """
        matched = re.fullmatch(_PAGE_SIZE, size)
        if not matched:
            raise InputError.at(where, "a page size such as 2Mi, 1Gi or 64Ki", size)

        return cls.of_bytes(int(matched[1]) << dict(BYTE_SUFFIXES)[matched[2]], count)


class NumaNode(Record):
    """A NUMA node. It may have no cores, no memory, or neither.

    Attributes:
        id: the kernel's number. Masks do not use it: bit i of a mask is `machine.numa_nodes[i]`.
        memory: bytes, hugepages included.
        distances: to each node of the machine in the order of `machine.numa_nodes`; empty: not
            known.
        memory_kind: `dram`, `hbm`, `gpu` (of a GPU), `far` (slower than DRAM, as behind CXL);
            empty: what is usual, or not known.
    """

    id: int
    memory: int
    cores: tuple[Core, ...]
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()
    memory_kind: str = ""

    def __repr__(self) -> str:
        cpus = sum(len(core.cpus) for core in self.cores)
        kind = f" {self.memory_kind}" if self.memory_kind else ""
        return f"<NumaNode {self.id} of {counted(cpus, 'CPU')}, {self.memory >> 20} MiB{kind}>"

    @property
    def memory_by_type(self) -> dict[str, int]:
        """Bytes of `memory` and of `hugepages-<size>`.

        Pages larger than the node's memory leave none of that.
        """
        page_bytes = {
            f"hugepages-{pages.size}": pages.size_bytes * pages.count for pages in self.hugepages
        }
        return {"memory": max(0, self.memory - sum(page_bytes.values())), **page_bytes}


class PciDevice(Record):
    """A PCI device. Class, vendor and device are numbers in hex.

    Attributes:
        address: `0000:17:00.0`; the domain can have more than four digits.
        class_: class and subclass, four digits: `0302`.
        vendor: four digits: `10de`; `0000` if the kernel does not say, as for the other two.
        device: four digits.
        numa_node: the id of its NUMA node; None: not known.
        buses: the first and last bus behind a bridge; None: it is none, or the kernel does not say.
        link: the GB/s of its link as it runs now, in one direction; None: not known.
        partitions: how many devices its runtime makes of it, as ROCm does of an MI300 in the mode
            CPX; None: its driver does not say.
    """

    address: str
    class_: str
    vendor: str
    device: str
    numa_node: int | None
    buses: tuple[int, int] | None = None
    link: float | None = None
    partitions: int | None = None


def pci_place(address: str) -> tuple[int, str]:
    """Return what two spellings of a PCI address share.

    It sorts domains of four digits before longer ones.
    """
    domain, _, place = address.lower().partition(":")
    return int(domain, 16), place


def cores_within(cores: Iterable[Core], cpus: int) -> tuple[Core, ...]:
    """Return the cores that have CPUs in the bit set `cpus`, cut to those CPUs, by first CPU."""
    inside = (core.within(cpus) for core in cores if core.bits & cpus)
    return tuple(sorted(inside, key=lambda core: core.cpus[0]))


def make_cores(
    groups: Iterable[int], sockets: Mapping[int, int], l3_groups: Iterable[int]
) -> tuple[Core, ...]:
    """Return a core for each group of CPUs, by lowest CPU.

    The socket and the L3 cache of a core are those of its lowest CPU. A core whose CPU is in no
    socket is in socket 0; one whose CPU shares no L3 cache has none.

    Args:
        groups: the CPUs of each core; empty ones are ignored.
        sockets: the CPUs of each socket, by the number of the socket.
        l3_groups: the CPUs that share each L3 cache.
    """
    socket_of = _group_of_cpu(sockets.items())
    l3_of = _group_of_cpu(enumerate(l3_groups))
    cores = []
    for group in sorted(filter(None, groups), key=lambda group: (group & -group).bit_length()):
        first = (group & -group).bit_length() - 1
        cores.append(Core.of_bits(group, socket_of.get(first, 0), l3_of.get(first)))

    return tuple(cores)


def number_groups(groups: Iterable[tuple[int | None, int]]) -> dict[int, int]:
    """Return groups of CPUs by a number that is unique.

    A group that has no number, or one that an earlier group has, gets the lowest that no group has.

    Args:
        groups: the number of each group, as far as it has one, and its CPUs.
    """
    numbered: dict[int, int] = {}
    nameless: list[int] = []
    for number, group in groups:
        if number is None or number in numbered:
            nameless.append(group)
        else:
            numbered[number] = group

    free = (number for number in count() if number not in numbered)
    numbered.update(zip(free, nameless, strict=False))
    return numbered


def _group_of_cpu(groups: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the number of the group that each CPU is in: of several, the last."""
    number_of_cpu: dict[int, int] = {}
    later_cpus = 0
    for number, group in reversed(list(groups)):
        for cpu in bit_numbers(group & ~later_cpus):
            number_of_cpu[cpu] = number
        later_cpus |= group

    return number_of_cpu


class Machine(Shown):
    """A machine: its NUMA nodes by ascending id, and what else discovery found.

    The fields that no argument sets are indexes, worked out once when the record is made.

    Attributes:
        unassigned_cores: cores whose CPUs are online and belong to no NUMA node. Nothing is ever
            placed on them: a mask of nodes cannot name them. They are listed so that every CPU of
            the machine is accounted for.
        isolated_cpus: CPUs that the kernel's scheduler puts no process on (`isolcpus`); kubelets
            give them away like others.
        nohz_full_cpus: CPUs without a timer tick (`nohz_full`).
        knows_devices: False: a device that no inventory lists is not known, rather than not there.
            So it is of pasted text, of servers of the catalog that may have any cards, and of what
            `read_machine` returns of a machine that comes with devices.
        numa_node_ids: kernel ids by position.
        cpus: bit set of the CPUs of all NUMA nodes.
        node_cpus: bit set of the CPUs of each node, by position.
        overlapping_cpus: bit set of the CPUs that more than one node lists; see `disjoint`.
        sockets: ids of the sockets that have CPUs in a NUMA node, ascending.
        socket_cpus: bit set of the CPUs of each socket, in the order of `sockets`.
        socket_nodes: mask of the NUMA nodes that have CPUs of each socket, in the order of
            `sockets`.
        distance_matrix: rows and columns by position; None unless every node knows its distances.

    Raises:
        InputError: there is no NUMA node, there are more than `NUMA_NODE_LIMIT`, ids do not ascend,
            or a node knows the distances to more or fewer nodes than there are.

    Examples:
        >>> machine = read_machine("xeon-2s")
        >>> len(machine.numa_nodes), machine.cpu_count
        (2, 128)
    """

    numa_nodes: tuple[NumaNode, ...]
    offline_cpus: tuple[int, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()
    unassigned_cores: tuple[Core, ...] = ()
    isolated_cpus: tuple[int, ...] = ()
    nohz_full_cpus: tuple[int, ...] = ()
    knows_devices: bool = field(default=True, repr=False, compare=False)

    numa_node_ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    cpus: int = field(init=False, repr=False, compare=False)
    node_cpus: tuple[int, ...] = field(init=False, repr=False, compare=False)
    overlapping_cpus: int = field(init=False, repr=False, compare=False)
    sockets: tuple[int, ...] = field(init=False, repr=False, compare=False)
    socket_cpus: tuple[int, ...] = field(init=False, repr=False, compare=False)
    socket_nodes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    distance_matrix: tuple[tuple[int, ...], ...] | None = field(
        init=False, repr=False, compare=False
    )
    cpu_count: int = field(init=False, repr=False, compare=False)
    core_count: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = tuple(node.id for node in self.numa_nodes)
        _check_numa_nodes(self.numa_nodes, ids)
        node_cpus = tuple(union(core.bits for core in node.cores) for node in self.numa_nodes)
        cpus = overlapping = 0
        for bits in node_cpus:
            overlapping |= cpus & bits
            cpus |= bits

        socket_cpus: dict[int, int] = {}
        socket_nodes: dict[int, int] = {}
        for position, node in enumerate(self.numa_nodes):
            for core in node.cores:
                socket = core.socket
                socket_cpus[socket] = socket_cpus.get(socket, 0) | core.bits
                socket_nodes[socket] = socket_nodes.get(socket, 0) | 1 << position

        sockets = tuple(sorted(socket_cpus))
        rows = tuple(node.distances for node in self.numa_nodes)

        for name, value in (
            ("numa_node_ids", ids),
            ("cpus", cpus),
            ("node_cpus", node_cpus),
            ("overlapping_cpus", overlapping),
            ("sockets", sockets),
            ("socket_cpus", tuple(socket_cpus[socket] for socket in sockets)),
            ("socket_nodes", tuple(socket_nodes[socket] for socket in sockets)),
            ("distance_matrix", rows if all(rows) else None),
            ("cpu_count", cpus.bit_count()),
            ("core_count", sum(len(node.cores) for node in self.numa_nodes)),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"<Machine of {counted(len(self.numa_nodes), 'NUMA node')}, {self.cpu_count} CPUs, "
            f"{self.memory >> 20} MiB>"
        )

    def position(self, numa_id: int) -> int:
        """Return the position of the NUMA node of the id `numa_id`: its bit in a mask.

        Raises:
            InputError: the machine has no such node.
        """
        try:
            return self.numa_node_ids.index(numa_id)
        except ValueError:
            ids = ", ".join(map(str, self.numa_node_ids))
            raise InputError.at(
                "the machine", f"the id of one of its NUMA nodes ({ids})", numa_id
            ) from None

    @property
    def knows_memory(self) -> bool:
        """Whether the source of the machine told memory.

        Of a list of CPUs alone all NUMA nodes have 0 bytes.
        """
        return any(node.memory for node in self.numa_nodes)

    @property
    def memory(self) -> int:
        """Bytes of all NUMA nodes together, those of hugepages among them."""
        return sum(node.memory for node in self.numa_nodes)

    @property
    def memory_by_type(self) -> dict[str, int]:
        """Bytes of `memory` and of `hugepages-<size>` in all NUMA nodes."""
        totals: Counter[str] = Counter()
        for node in self.numa_nodes:
            totals.update(node.memory_by_type)

        return dict(totals)

    def disjoint(self) -> Machine:
        """Return this machine with every CPU in one NUMA node only: the first that lists it.

        Broken firmware, and emulated nodes (`numa=fake`), can make the kernel list a CPU in several
        nodes. Discovery reports what the kernel says; work can only be placed when each CPU is in
        one place.
        """
        if not self.overlapping_cpus:
            return self

        unassigned = self.cpus
        nodes = []
        for node, listed_cpus in zip(self.numa_nodes, self.node_cpus, strict=True):
            nodes.append(replace(node, cores=cores_within(node.cores, unassigned & listed_cpus)))
            unassigned &= ~listed_cpus

        return replace(self, numa_nodes=tuple(nodes))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Machine:
        """Return the machine that a decoded JSON document describes, in the schema of `to_dict`.

        `numaNodes[]` has `id`, `memory` in bytes, `cores[]` of `cpus`, `socket` and perhaps `l3`,
        and perhaps `hugepages` {size: pages} and `distances`: a row indexed by node id, or as long
        as there are nodes. `memoryKind`, `offlineCpus`, `pciDevices`, `unassignedCores`,
        `overlappingCpus`, `isolatedCpus` and `nohzFullCpus` may be missing; others are ignored.

        Raises:
            InputError: a field is missing or of the wrong kind, a number is negative, a node id or
                a CPU comes twice (and is not one of `overlappingCpus`), a node's hugepages are
                larger than its memory, or the machine has no CPUs.
        """
        return machine_from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the machine as plain data for JSON, as `from_dict` reads it.

        A row of distances is indexed by node id; where ids have gaps, it is 255 (unreachable, to
        ACPI) there.
        """
        extras = {
            "overlappingCpus": list(bit_numbers(self.overlapping_cpus)),
            **json_fields(self, "isolated_cpus", "nohz_full_cpus"),
            "unassignedCores": list(map(_known_fields, self.unassigned_cores)),
        }
        document = {
            "numaNodes": [_numa_node_to_dict(node, self.numa_node_ids) for node in self.numa_nodes],
            "offlineCpus": list(self.offline_cpus),
            "pciDevices": [
                {**_known_fields(pci), "numaNode": pci.numa_node} for pci in self.pci_devices
            ],
        }
        return document | {key: value for key, value in extras.items() if value}


def check_node_count(count: int) -> None:
    """Refuse a machine with more NUMA nodes than a mask can name.

    Raises:
        InputError: it has more.
    """
    if count > NUMA_NODE_LIMIT:
        raise InputError(
            f"machines may have up to {NUMA_NODE_LIMIT} NUMA nodes, and this one has {count}"
        )


def _check_numa_nodes(nodes: tuple[NumaNode, ...], ids: tuple[int, ...]) -> None:
    """Refuse nodes that masks could not number."""
    if not ids:
        raise InputError("a machine needs at least one NUMA node, and this one has none")

    check_node_count(len(ids))
    for lower, higher in pairwise(ids):
        if lower >= higher:
            raise InputError.at("the machine", f"NUMA node ids that ascend, after {lower}", higher)

    for node in nodes:
        if node.distances and len(node.distances) != len(ids):
            raise InputError.at(
                f"NUMA node {node.id}", f"{len(ids)} distances", list(node.distances)
            )

    total = sum(node.memory for node in nodes)
    if total > MEMORY_LIMIT:
        raise InputError.at("the machine", f"at most {MEMORY_LIMIT} bytes of memory in all", total)


def machine_from_dict(data: Mapping[str, Any], where: str = "machine") -> Machine:
    """Return the machine that `data` describes; see `Machine.from_dict`.

    Args:
        data: a decoded document.
        where: the name of the document in errors.

    Raises:
        InputError: it does not describe a machine that work can be placed on.
    """
    from msgspec.structs import astuple  # noqa: PLC0415  # slow to import

    from alignup.machine.wire import MachineWire  # noqa: PLC0415  # as above
    from alignup.text.typed import decode  # noqa: PLC0415  # as above

    wire = decode(data, MachineWire, where)
    if not any(node.cores for node in wire.numa_nodes):
        raise InputError(f"the machine has no CPUs at {where}.numaNodes")

    _check_cpus(wire, where)
    order = sorted(range(len(wire.numa_nodes)), key=lambda index: wire.numa_nodes[index].id)
    ids = [wire.numa_nodes[index].id for index in order]
    for index, (lower, numa_id) in enumerate(pairwise(ids)):
        if lower == numa_id:
            place = f"{where}.numaNodes[{order[index + 1]}].id"
            raise InputError.at(place, "an id that no other NUMA node has", numa_id)

    numa_nodes = [
        _numa_node(wire.numa_nodes[index], ids, f"{where}.numaNodes[{index}]") for index in order
    ]
    return Machine(
        tuple(numa_nodes),
        offline_cpus=tuple(sorted(set(wire.offline_cpus))),
        pci_devices=tuple(PciDevice(*astuple(device)) for device in wire.pci_devices),
        unassigned_cores=tuple(map(_core, wire.unassigned_cores)),
        isolated_cpus=tuple(sorted(set(wire.isolated_cpus))),
        nohz_full_cpus=tuple(sorted(set(wire.nohz_full_cpus))),
    )


def _check_cpus(wire: MachineWire, where: str) -> None:
    """Refuse a core of no CPUs, and a CPU that is listed twice without being said to be."""
    listed: set[int] = set()
    overlapping = set(wire.overlapping_cpus)
    lists_of_cores = [
        (f"{where}.numaNodes[{index}].cores", node.cores)
        for index, node in enumerate(wire.numa_nodes)
    ]
    lists_of_cores.append((f"{where}.unassignedCores", wire.unassigned_cores))
    for list_name, cores in lists_of_cores:
        for index, core in enumerate(cores):
            place = f"{list_name}[{index}].cpus"
            if not core.cpus:
                raise InputError.at(place, "a core's CPUs", core.cpus)

            for cpu in core.cpus:
                if cpu in listed and cpu not in overlapping:
                    raise InputError.at(place, "a CPU that is not listed before", cpu)
                listed.add(cpu)

    online_and_offline = listed.intersection(wire.offline_cpus)
    if online_and_offline:
        cpu = min(online_and_offline)
        raise InputError.at(f"{where}.offlineCpus", "a CPU that no NUMA node lists", cpu)


def _numa_node(wire: NumaNodeWire, ids: list[int], where: str) -> NumaNode:
    """Return the record of one node; `ids` are those of all nodes, ascending."""
    pages: dict[int, HugePages] = {}
    for size, number in wire.hugepages.items():
        record = HugePages.parse(size, number, f"{where}.hugepages")
        if record.size_bytes in pages:
            raise InputError.at(
                f"{where}.hugepages", f"one number of pages for {record.size}", size
            )

        pages[record.size_bytes] = record

    hugepage_bytes = sum(record.size_bytes * record.count for record in pages.values())
    if hugepage_bytes > wire.memory:
        raise InputError.at(
            f"{where}.memory", f"memory for its hugepages ({hugepage_bytes} bytes)", wire.memory
        )

    cores = tuple(sorted(map(_core, wire.cores), key=lambda core: core.cpus[0]))
    hugepages = tuple(pages[size] for size in sorted(pages))
    return NumaNode(
        wire.id, wire.memory, cores, hugepages, _row(wire.distances, ids, where), wire.memory_kind
    )


def _core(wire: CoreWire) -> Core:
    return Core(tuple(sorted(wire.cpus)), wire.socket, wire.l3, wire.uncore_cache)


def _row(row: list[int], ids: list[int], where: str) -> tuple[int, ...]:
    """Return the distances by position, from a row by position or by node id."""
    if len(row) in {0, len(ids)}:
        return tuple(row)
    if len(row) > ids[-1]:
        return tuple(row[numa_id] for numa_id in ids)

    expected = f"{len(ids)} distances, or {ids[-1] + 1} where they are indexed by node id"
    raise InputError.at(f"{where}.distances", expected, row)


def _numa_node_to_dict(node: NumaNode, ids: tuple[int, ...]) -> dict[str, Any]:
    """Return a node in JSON's types; `ids` are those of all nodes, ascending."""
    document: dict[str, Any] = {
        "id": node.id,
        "memory": node.memory,
        "hugepages": {pages.size: pages.count for pages in node.hugepages},
        "cores": list(map(_known_fields, node.cores)),
    }
    if node.distances:
        by_id = dict(zip(ids, node.distances, strict=True))
        document["distances"] = [by_id.get(numa_id, UNREACHABLE) for numa_id in range(ids[-1] + 1)]
    if node.memory_kind:
        document["memoryKind"] = node.memory_kind

    return document


def _known_fields(record: Core | PciDevice) -> dict[str, Any]:
    """Return the fields that its maker takes, but for those that are not known."""
    return {
        key: value
        for key, value in json_fields(record, *record.__match_args__).items()
        if value is not None
    }


def summary(machine: Machine) -> str:
    """Return the machine in one line."""
    l3_groups = {core.l3 for node in machine.numa_nodes for core in node.cores} - {None}
    parts = [
        counted(len(machine.numa_nodes), "NUMA node"),
        counted(len(machine.sockets), "socket"),
        counted(machine.core_count, "core"),
        counted(machine.cpu_count, "CPU"),
    ]
    if l3_groups:
        parts.append(counted(len(l3_groups), "L3 cache"))

    size = short_bytes(machine.memory)
    parts.append(f"{size} memory" if machine.knows_memory else "memory not known")
    return ", ".join(parts)
