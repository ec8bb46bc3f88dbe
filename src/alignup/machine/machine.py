"""Holds the record of a machine: NUMA nodes, their cores, memory and distances, and indexes over them.

Reading machines (from sysfs, snapshots, JSON, hwloc's XML, the catalog) is left to the modules beside this one.
Sets of CPUs are ints as bit sets: bit i is the CPU that the kernel numbers i. Masks of NUMA nodes are ints whose
bit i is position i, `machine.numa_nodes[i]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, bit_set, union
from alignup.text.byte_sizes import BYTE_SUFFIXES, format_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.leases.machine_parts import Part

__all__ = [
    "MEMORY_LIMIT",
    "NUMA_NODE_LIMIT",
    "Core",
    "HugePages",
    "Machine",
    "NumaNode",
    "PciDevice",
    "cores_within",
]

NUMA_NODE_LIMIT: Final = 64
"""A mask of NUMA nodes is one machine word."""

MEMORY_LIMIT: Final = 1 << 61
"""Bytes of all NUMA nodes together, so that no sum of amounts leaves the 63 bits that the kernels count in."""

_PAGE_SIZE: Final = re.compile("([1-9][0-9]{0,8})(Ki|Mi|Gi|Ti)")


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core: the kernel numbers of its CPUs (SMT siblings, ascending), its socket and L3 group."""

    cpus: tuple[int, ...]
    socket: int
    """The kernel's `physical_package_id`, or a number unique in the machine where the kernel has none."""
    l3: int | None = None
    """A number unique in the machine for each group of CPUs that share an L3 cache; None: not known."""
    uncore_cache: int | None = None
    """The group of CPUs that a kubelet takes for an uncore cache: cadvisor's number of the cache, or the socket where
    cadvisor reports none; None: not known, `l3` stands for it."""
    bits: int = field(init=False, repr=False, compare=False)
    """The same CPUs as a bit set, computed once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", bit_set(self.cpus))

    @classmethod
    def of_bits(cls, bits: int, socket: int, l3: int | None = None, uncore_cache: int | None = None) -> Core:
        """Return the core with the CPUs of a bit set."""
        return cls(tuple(bit_numbers(bits)), socket, l3, uncore_cache)

    @property
    def cache_group(self) -> int:
        """The number that the CPU manager groups cores by: the socket's where no cache is known."""
        if self.uncore_cache is not None:
            return self.uncore_cache
        return self.socket if self.l3 is None else self.l3

    def within(self, cpus: int) -> Core:
        """Return the core cut to the CPUs in the bit set `cpus`, some of which are its own."""
        inside = self.bits & cpus
        return self if inside == self.bits else Core.of_bits(inside, self.socket, self.l3, self.uncore_cache)


@dataclass(frozen=True, slots=True)
class HugePages:
    """Pages of one size in a NUMA node: the size as in a Kubernetes resource name and in bytes, how many."""

    size: str
    size_bytes: int
    count: int

    @classmethod
    def of_bytes(cls, size_bytes: int, count: int) -> HugePages:
        """Return the record for pages of `size_bytes` bytes, named as Kubernetes names them.

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
        matched = _PAGE_SIZE.fullmatch(size)
        if not matched:
            raise InputError.at(where, "a page size such as 2Mi, 1Gi or 64Ki", size)
        return cls.of_bytes(int(matched[1]) << dict(BYTE_SUFFIXES)[matched[2]], count)


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node. It may have no cores, no memory, or neither."""

    id: int
    """The kernel's number. Masks do not use it: bit i of a mask is `machine.numa_nodes[i]`."""
    memory: int
    """Bytes, hugepages included."""
    cores: tuple[Core, ...]
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()
    """To each node of the machine in the order of `machine.numa_nodes`; empty: not known."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI device: address, class, vendor and device numbers in hex, and the NUMA node id if it is known."""

    address: str
    """`0000:17:00.0`; the domain can have more than four digits."""
    class_: str
    """Class and subclass, four digits: `0302`."""
    vendor: str
    """Four digits: `10de`; `0000` if the kernel does not say, as for the other two."""
    device: str
    """Four digits."""
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its NUMA nodes by ascending id, and what else discovery found.

    The fields that no argument sets are indexes, worked out once when the record is made.

    Raises:
        InputError: there is no NUMA node, there are more than `NUMA_NODE_LIMIT`, ids do not ascend, or a node
            knows the distances to more or fewer nodes than there are.
    """

    numa_nodes: tuple[NumaNode, ...]
    offline_cpus: tuple[int, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()
    unassigned_cores: tuple[Core, ...] = ()
    """Cores whose CPUs are online and belong to no NUMA node. Nothing is ever placed on them: a mask of nodes
    cannot name them. They are listed so that every CPU of the machine is accounted for."""

    numa_node_ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Kernel ids by position."""
    cpus: int = field(init=False, repr=False, compare=False)
    """Bit set of the CPUs of all NUMA nodes."""
    node_cpus: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Bit set of the CPUs of each node, by position."""
    overlapping_cpus: int = field(init=False, repr=False, compare=False)
    """Bit set of the CPUs that more than one node lists; see `disjoint`."""
    sockets: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Ids of the sockets that have CPUs in a NUMA node, ascending."""
    socket_cpus: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Bit set of the CPUs of each socket, in the order of `sockets`."""
    socket_nodes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Mask of the NUMA nodes that have CPUs of each socket, in the order of `sockets`."""
    distance_matrix: tuple[tuple[int, ...], ...] | None = field(init=False, repr=False, compare=False)
    """Rows and columns by position; None unless every node knows its distances."""
    cpu_count: int = field(init=False, repr=False, compare=False)
    core_count: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = tuple(node.id for node in self.numa_nodes)
        _check_numa_nodes(self.numa_nodes, ids)
        node_cpus = tuple(union(core.bits for core in node.cores) for node in self.numa_nodes)
        socket_cpus, socket_nodes = _by_socket(self.numa_nodes)
        rows = tuple(node.distances for node in self.numa_nodes)
        cpus = overlapping = 0
        for bits in node_cpus:
            overlapping |= cpus & bits
            cpus |= bits
        for name, value in (
            ("numa_node_ids", ids),
            ("cpus", cpus),
            ("node_cpus", node_cpus),
            ("overlapping_cpus", overlapping),
            ("sockets", tuple(socket_cpus)),
            ("socket_cpus", tuple(socket_cpus.values())),
            ("socket_nodes", tuple(socket_nodes.values())),
            ("distance_matrix", rows if all(rows) else None),
            ("cpu_count", cpus.bit_count()),
            ("core_count", sum(len(node.cores) for node in self.numa_nodes)),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        nodes = len(self.numa_nodes)
        return (
            f"<Machine of {nodes} NUMA node{'' if nodes == 1 else 's'}, {self.cpu_count} CPUs, "
            f"{sum(node.memory for node in self.numa_nodes) >> 20} MiB>"
        )

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        from alignup.node.pictures.notebook import machine_svg  # noqa: PLC0415  # only notebooks ask

        return machine_svg(self)

    def position(self, numa_id: int) -> int:
        """Return the position of the NUMA node that the kernel numbers `numa_id`: its bit in a mask.

        Raises:
            InputError: the machine has no such node.
        """
        try:
            return self.numa_node_ids.index(numa_id)
        except ValueError:
            known = ", ".join(map(str, self.numa_node_ids))
            raise InputError.at(
                "the machine", f"the id of one of its NUMA nodes ({known})", numa_id
            ) from None

    def disjoint(self) -> Machine:
        """Return this machine with every CPU in one NUMA node only: the first of those that list it.

        Broken firmware, and emulated nodes (`numa=fake`), can make the kernel list a CPU in several nodes.
        Discovery reports what the kernel says; work can only be placed when each CPU is in one place.
        """
        if not self.overlapping_cpus:
            return self
        left = self.cpus
        nodes = []
        for node, listed in zip(self.numa_nodes, self.node_cpus, strict=True):
            nodes.append(replace(node, cores=cores_within(node.cores, left & listed)))
            left &= ~listed
        return replace(self, numa_nodes=tuple(nodes))

    def split(
        self,
        parts: int,
        *,
        cpus_per_part: int = 0,
        devices: Mapping[str, int] | None = None,
        inventory: Mapping[str, Sequence[Any]] | None = None,
        preferred_sets: Mapping[str, Sequence[Sequence[str]]] | None = None,
    ) -> tuple[Part, ...]:
        """Return equal, disjoint, aligned parts of this machine, by rank; `alignup.leases.machine_parts` has the rule.

        Args:
            parts: how many.
            cpus_per_part: how many CPUs each; 0: as many whole cores as there are for everybody.
            devices: by resource, how many devices each.
            inventory: by resource, the devices of this machine: `Device` records, or mappings with `id` and `numa`.
            preferred_sets: by resource, ids of devices that belong together.

        Raises:
            InputError: the machine has too few CPUs or devices, or a device is described wrongly.
        """
        # lazily, since both are built on this module
        from alignup.leases.machine_parts import split_machine  # noqa: PLC0415
        from alignup.machine.device_inventory import decode_inventory  # noqa: PLC0415

        return split_machine(
            self,
            parts,
            cpus_per_part=cpus_per_part,
            devices=devices,
            inventory=decode_inventory(inventory or {}, self),
            preferred_sets=preferred_sets,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Machine:
        """Return the machine that a decoded JSON document describes, in the schema of `to_dict`.

        `numaNodes[]` has `id`, `memory` in bytes, `cores[]` of `cpus`, `socket` and perhaps `l3`, and perhaps
        `hugepages` {size: pages} and `distances`: a row indexed by node id, or as long as there are nodes.
        `offlineCpus`, `pciDevices`, `unassignedCores` and `overlappingCpus` may be missing; others are
        ignored.

        Raises:
            InputError: a field is missing or of the wrong kind, a number is negative, a node id or a CPU
                comes twice (and is not one of `overlappingCpus`), a node's hugepages are larger than its
                memory, or the machine has no CPUs.
        """
        from alignup.machine.machine_json import machine_from_dict  # noqa: PLC0415  # keeps `import alignup` light

        return machine_from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the machine as plain data for JSON, as `from_dict` reads it.

        A row of distances is indexed by node id; where ids have gaps, it is 255 (unreachable, to ACPI) there.
        """
        from alignup.machine.machine_json import machine_to_dict  # noqa: PLC0415  # keeps `import alignup` light

        return machine_to_dict(self)

    @classmethod
    def from_sysfs(cls, root: str | os.PathLike[str] = "/") -> Machine:
        """Return the machine that the kernel describes in `sys/` and `proc/` beneath `root`.

        Raises:
            InputError: there is nothing to read there, or it describes no machine.
        """
        from alignup.machine.sysfs.machine import read_machine  # noqa: PLC0415  # keeps `import alignup` light

        return read_machine(root)

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Machine:
        """Return the machine that a name, a folder or a file describes: what `--machine` takes.

        Devices and a configuration that came with it are not part of the record; `Node.from_dict` keeps them.

        Args:
            source: the name of a machine of the catalog, the root of a sysfs tree, or a file: a snapshot, hwloc's
                XML, or JSON as `alignup machine --json` prints it.

        Raises:
            InputError: there is no such machine, or it cannot be read.
        """
        from alignup.machine.load import load_machine  # noqa: PLC0415  # keeps `import alignup` light

        return load_machine(str(source)).machine

    @staticmethod
    def catalog() -> Mapping[str, Machine]:
        """Return the machines that come with the package, by name; each is read when it is looked up."""
        from alignup.machine.catalog import catalog_machines  # noqa: PLC0415  # keeps `import alignup` light

        return catalog_machines()


def cores_within(cores: Iterable[Core], cpus: int) -> tuple[Core, ...]:
    """Return the cores that have CPUs in the bit set `cpus`, cut to those CPUs, by first CPU."""
    chosen = [core.within(cpus) for core in cores if core.bits & cpus]
    return tuple(sorted(chosen, key=lambda core: core.cpus[0]))


def check_node_count(count: int) -> None:
    """Refuse a machine with more NUMA nodes than a mask can name.

    Raises:
        InputError: it has more.
    """
    if count > NUMA_NODE_LIMIT:
        raise InputError(f"machines may have up to {NUMA_NODE_LIMIT} NUMA nodes, and this one has {count}")


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
            raise InputError.at(f"NUMA node {node.id}", f"{len(ids)} distances", list(node.distances))
    total = sum(node.memory for node in nodes)
    if total > MEMORY_LIMIT:
        raise InputError.at("the machine", f"at most {MEMORY_LIMIT} bytes of memory in all", total)


def _by_socket(nodes: tuple[NumaNode, ...]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the CPUs and the NUMA nodes of each socket, by ascending socket id."""
    cpus: dict[int, int] = {}
    masks: dict[int, int] = {}
    for position, node in enumerate(nodes):
        for core in node.cores:
            cpus[core.socket] = cpus.get(core.socket, 0) | core.bits
            masks[core.socket] = masks.get(core.socket, 0) | 1 << position
    return dict(sorted(cpus.items())), dict(sorted(masks.items()))
