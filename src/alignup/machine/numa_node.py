"""The parts of a machine: NUMA nodes with their cores and hugepages, and PCI devices.

Cores are built from the groups of CPUs that a source found: cores, sockets and L3 caches. Sets of CPUs are ints as bit
sets: bit i is the CPU that the kernel numbers i.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, bit_set
from alignup.records import Record, field
from alignup.text.byte_sizes import BYTE_SUFFIXES, format_bytes

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Final

_PAGE_SIZE: Final = "([1-9][0-9]{0,8})(Ki|Mi|Gi|Ti)"


class Core(Record):
    """A physical core: the kernel numbers of its CPUs (SMT siblings, ascending), its socket and L3 group.

    Attributes:
        socket: the kernel's `physical_package_id`, or a number unique in the machine where the kernel has none.
        l3: a number unique in the machine for each group of CPUs that share an L3 cache; None: not known.
        uncore_cache: the group of CPUs that a kubelet takes for an uncore cache: cadvisor's number of the cache, or the
            socket where cadvisor reports none; None: not known, `l3` stands for it.
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
    def of_bits(cls, bits: int, socket: int, l3: int | None = None, uncore_cache: int | None = None) -> Core:
        """Return the core with the CPUs of a bit set."""
        return cls(tuple(bit_numbers(bits)), socket, l3, uncore_cache)

    @property
    def cache_group(self) -> int:
        """The number that the CPU manager groups cores by: the socket's where no cache is known."""
        return next(number for number in (self.uncore_cache, self.l3, self.socket) if number is not None)

    def within(self, cpus: int) -> Core:
        """Return the core cut to the CPUs in the bit set `cpus`, some of which are its own."""
        inside = self.bits & cpus
        return self if inside == self.bits else Core.of_bits(inside, self.socket, self.l3, self.uncore_cache)


class HugePages(Record):
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
        matched = re.fullmatch(_PAGE_SIZE, size)
        if not matched:
            raise InputError.at(where, "a page size such as 2Mi, 1Gi or 64Ki", size)
        return cls.of_bytes(int(matched[1]) << dict(BYTE_SUFFIXES)[matched[2]], count)


class NumaNode(Record):
    """A NUMA node. It may have no cores, no memory, or neither.

    Attributes:
        id: the kernel's number. Masks do not use it: bit i of a mask is `machine.numa_nodes[i]`.
        memory: bytes, hugepages included.
        distances: to each node of the machine in the order of `machine.numa_nodes`; empty: not known.
        memory_kind: `dram`, `hbm`, `gpu` (of a GPU), `far` (slower than DRAM, as behind CXL); empty: what is usual, or
            not known.
    """

    id: int
    memory: int
    cores: tuple[Core, ...]
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()
    memory_kind: str = ""

    @property
    def memory_by_type(self) -> dict[str, int]:
        """Bytes of `memory` and of `hugepages-<size>`; pages larger than the node's memory leave none of that."""
        pages = {f"hugepages-{one.size}": one.size_bytes * one.count for one in self.hugepages}
        return {"memory": max(0, self.memory - sum(pages.values())), **pages}


class PciDevice(Record):
    """A PCI device: address, class, vendor and device numbers in hex, and the NUMA node id if it is known.

    Attributes:
        address: `0000:17:00.0`; the domain can have more than four digits.
        class_: class and subclass, four digits: `0302`.
        vendor: four digits: `10de`; `0000` if the kernel does not say, as for the other two.
        device: four digits.
        buses: the first and last bus behind a bridge; None: it is none, or the kernel does not say.
        link: the GB/s of its link as it runs now, in one direction; None: not known.
    """

    address: str
    class_: str
    vendor: str
    device: str
    numa_node: int | None
    buses: tuple[int, int] | None = None
    link: float | None = None


def pci_place(address: str) -> tuple[int, str]:
    """Return what two spellings of a PCI address share, and what sorts domains of four digits before longer ones."""
    domain, _, rest = address.lower().partition(":")
    return int(domain, 16), rest


def cores_within(cores: Iterable[Core], cpus: int) -> tuple[Core, ...]:
    """Return the cores that have CPUs in the bit set `cpus`, cut to those CPUs, by first CPU."""
    return tuple(sorted((core.within(cpus) for core in cores if core.bits & cpus), key=lambda core: core.cpus[0]))


def make_cores(groups: Iterable[int], sockets: Mapping[int, int], l3_groups: Iterable[int]) -> tuple[Core, ...]:
    """Return a core for each group of CPUs, by lowest CPU.

    The socket and the L3 cache of a core are those of its lowest CPU. A core whose CPU is in no socket is in
    socket 0; one whose CPU shares no L3 cache has none.

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
    found: dict[int, int] = {}
    seen = 0
    for number, group in reversed(list(groups)):
        for cpu in bit_numbers(group & ~seen):
            found[cpu] = number
        seen |= group
    return found
