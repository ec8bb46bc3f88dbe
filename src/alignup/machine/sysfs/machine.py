"""Reads a machine from the kernel's files, of this machine or of a copy: CPUs, NUMA nodes, PCI devices.

A kubelet learns of caches from cadvisor, which leaves some out. Sets of CPUs and of nodes are ints
as bit sets.

The parsers at the end read numbers, CPU lists, masks and tables. Firmware and old kernels write odd
things, so a text that makes no sense is None: not known. Lists and masks may end in a newline, a
NUL, both or neither.
"""

from __future__ import annotations

import re
from contextlib import suppress

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, bit_set, union
from alignup.machine.cpuset import CPU_COUNT_LIMIT, CPU_LIMIT, CPUSet
from alignup.machine.machine import (
    Core,
    HugePages,
    Machine,
    NumaNode,
    PciDevice,
    check_node_count,
    cores_within,
    make_cores,
    number_groups,
    pci_place,
)
from alignup.machine.sysfs.tree import (
    CPU_FOLDER,
    NODE_FOLDER,
    PCI_FOLDER,
    DirectoryTree,
    KernelTree,
)
from alignup.records import replace

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Final

_TIERS: Final = "sys/devices/virtual/memory_tiering"
_NVIDIA_GPUS: Final = "proc/driver/nvidia/gpus"
_HUGEPAGES: Final = re.compile(r"hugepages-(\d{1,15})kB")
_PROCESSOR: Final = re.compile(r"^processor\s*:?\s*(\d{1,5})\b", re.MULTILINE)
_MODULE_FAMILIES: Final = frozenset({21, 22})
_CORE: Final = ("core_cpus", "core_cpus_list", "thread_siblings", "thread_siblings_list")
_PACKAGE: Final = ("package_cpus", "package_cpus_list", "core_siblings", "core_siblings_list")
_CACHE: Final = ("shared_cpu_map", "shared_cpu_list")
_INDEX: Final = re.compile(r"index\d{1,3}")
_L2: Final = 2
_L3: Final = 3
_BRIDGE: Final = 0x06
_SPEED: Final = re.compile(r"\s*(\d{1,3}(?:\.\d)?) GT/s")
_GEN_3: Final = 8
_GEN_6: Final = 64
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INK: Final = " \t\r\n\0"
_MASK_WORD_DIGITS: Final = 8
_MEM_TOTAL: Final = re.compile(r"\bMemTotal:\s*(\d{1,18})\s*kB")
_MASK: Final = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*")
_HEX: Final = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")


def read_sysfs(root: str | os.PathLike[str] = "/") -> Machine:
    """Return the machine that `sys/` and `proc/` beneath `root` describe.

    Raises:
        InputError: `root` is no directory, or no CPU is described there, or more than 64 NUMA nodes
            are.
    """
    return describe(DirectoryTree(root))


def describe(tree: KernelTree) -> Machine:
    """Return the machine that the files in `tree` describe.

    A kernel that knows no NUMA nodes has one node 0 with everything in it. Where the lists of two
    nodes name the same CPU, both have it, as the kernel says: see `Machine.disjoint`.

    Raises:
        InputError: no CPU is described there, or more than 64 NUMA nodes are.
    """
    if "sys" in tree.names("") and not tree.names("sys"):
        raise InputError(f"sys is empty at {tree.source}: sysfs is not mounted there")

    online, offline = cpu_numbers(tree)
    if not online or not tree.names("sys"):  # an empty /sys, of a container for one, says nothing
        missing = "kernel files that describe CPUs, such as sys/devices/system/cpu/cpu0,"
        inside = next((name for name in ("devices", "system", "cpu") if tree.names(name)), "")
        hint = (
            f"; {inside} lies at its top, so a folder above it is probably meant" if inside else ""
        )
        raise InputError(f"no {missing} at {tree.source}{hint}")

    count = online.bit_count()
    if count > CPU_COUNT_LIMIT:
        raise InputError(
            f"{count} CPUs that are online are more than the {CPU_COUNT_LIMIT} supported at "
            f"{tree.source}"
        )

    groups = cores(tree, online)
    found = make_cores(groups, sockets(tree, online), l3_groups(tree, online, groups))
    ids = node_ids(tree)
    check_node_count(len(ids))
    # without NUMA, the files of the machine are those of its only node
    folders = [(one, f"{NODE_FOLDER}/node{one}", f"{NODE_FOLDER}/node{one}") for one in ids]
    folders = folders or [(0, "proc", "sys/kernel/mm")]
    listed = [node_cpus(tree, numa_id) & online for numa_id in ids] or [online]
    kinds = _memory_kinds(tree, ids, listed) if ids else {}
    rows = distances(tree, ids) or [()] * len(folders)
    nodes = []
    for (numa_id, of_memory, of_pages), cpus, row in zip(folders, listed, rows, strict=True):
        seen = with_uncore_caches(tree, cores_within(found, cpus))
        memory, pages = (
            meminfo_bytes(tree.read(f"{of_memory}/meminfo")),
            hugepages(tree, f"{of_pages}/hugepages"),
        )
        nodes.append(NumaNode(numa_id, memory, seen, pages, row, kinds.get(numa_id, "")))

    assigned = union(listed)
    if not assigned:
        raise InputError(f"no NUMA node has CPUs that are online at {tree.source}")

    pci, apart = (
        pci_devices(tree, [node.id for node in nodes], listed),
        cores_within(found, online & ~assigned),
    )
    alone = (
        number_list(tree.read(f"{CPU_FOLDER}/{name}")) or 0 for name in ("isolated", "nohz_full")
    )
    isolated, nohz_full = (tuple(bit_numbers(cpus & online)) for cpus in alone)
    return Machine(tuple(nodes), tuple(bit_numbers(offline)), pci, apart, isolated, nohz_full)


def _memory_kinds(tree: KernelTree, ids: list[int], listed: list[int]) -> dict[int, str]:
    """Return the kinds of memory of the nodes without CPUs of which something is known, by id.

    NVIDIA's driver names the nodes of its GPUs' memory. Of the others, the bandwidth that firmware
    tells (ACPI's HMAT) and the kernel's memory tiers say which are faster than those of the CPUs,
    and which slower.
    """
    found: dict[int, str] = {}
    alone = [numa_id for numa_id, cpus in zip(ids, listed, strict=True) if not cpus]
    if not alone:
        return found

    bandwidths = {
        one: tree.read(f"{NODE_FOLDER}/node{one}/access0/initiators/read_bandwidth") for one in ids
    }
    speeds = {one: first_number(text) or 0 for one, text in bandwidths.items()}
    numbers = [
        name
        for name in (name.removeprefix("memory_tier") for name in tree.names(_TIERS))
        if name.isdigit()
    ]
    lists = {
        -int(tier): number_list(tree.read(f"{_TIERS}/memory_tier{tier}/nodelist")) or 0
        for tier in numbers
    }
    tiers = {one: tier for tier, nodes in lists.items() for one in bit_numbers(nodes)}
    for fast in (tiers, speeds):
        usual = max(
            (fast[numa_id] for numa_id in ids if numa_id not in alone and fast.get(numa_id)),
            default=0,
        )
        for numa_id in alone:
            if usual and fast.get(numa_id) not in {None, 0, usual}:
                found[numa_id] = "hbm" if fast[numa_id] > usual else "far"

    for name in tree.names(_NVIDIA_GPUS):
        told = re.search(
            r"Node:\s*(\d{1,5})", tree.read(f"{_NVIDIA_GPUS}/{name}/numa_status") or ""
        )
        if told and int(told[1]) in alone:
            found[int(told[1])] = "gpu"

    return found


def _present(tree: KernelTree, folder: str, name: str) -> int:
    """Return the numbers of the CPUs or nodes that have a folder, such as `cpu0` by the name `cpu`."""
    form = re.compile(rf"{name}(\d{{1,5}})")
    numbers = (int(found[1]) for found in map(form.fullmatch, tree.names(folder)) if found)
    return bit_set(number for number in numbers if number < CPU_LIMIT)


def node_ids(tree: KernelTree) -> list[int]:
    """Return the ids of the NUMA nodes, ascending; none on kernels that were built without NUMA.

    They have gaps, and 0 may be missing. A node counts if it is `online` and has a folder; kernels
    that have no `online` have folders for the nodes they use.
    """
    present = _present(tree, NODE_FOLDER, "node")
    online = number_list(tree.read(f"{NODE_FOLDER}/online"))
    return list(bit_numbers(present & online if online and present & online else present))


def node_cpus(tree: KernelTree, numa_id: int) -> int:
    """Return the CPUs that a node lists, offline ones too; empty for a node of memory only."""
    return cpu_set(tree, f"{NODE_FOLDER}/node{numa_id}", "cpumap", "cpulist") or 0


def distances(tree: KernelTree, ids: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the row of distances of each node in `ids`, in that order; no rows if one makes no sense.

    `distance` has a column for each node that was online, ascending, not for each number. A row
    that is missing, holds zeros, or is longer or shorter than the nodes there are leaves all
    distances unknown, since the columns of one cannot be told from those of another.
    """
    online = list(bit_numbers(number_list(tree.read(f"{NODE_FOLDER}/online")) or 0))
    found = (
        number_row(tree.read(f"{NODE_FOLDER}/node{numa_id}/distance")) or [] for numa_id in ids
    )
    rows = [_columns(row, ids, online) for row in found]
    return rows if all(row and 0 not in row for row in rows) else []


def _columns(row: list[int], ids: Sequence[int], online: list[int]) -> tuple[int, ...]:
    """Return the columns of `row` that belong to `ids`; none if they cannot be told."""
    if len(row) == len(ids):
        return tuple(row)
    if len(row) == len(online):
        by_id = dict(zip(online, row, strict=True))
        return tuple(by_id[numa_id] for numa_id in ids if numa_id in by_id)
    return ()


def hugepages(tree: KernelTree, folder: str) -> tuple[HugePages, ...]:
    """Return the pages of each size that `folder` has a `hugepages-<KiB>kB` for, by size.

    A node without the folder has none: the kernel has kept pages by node for as long as there are
    such folders, and the machine's total does not tell which node they are in.
    """
    sizes = sorted(
        int(found[1]) << 10 for found in map(_HUGEPAGES.fullmatch, tree.names(folder)) if found
    )
    # a file that cannot be read is no pages
    counts = (
        first_number(tree.read(f"{folder}/hugepages-{size >> 10}kB/nr_hugepages")) or 0
        for size in sizes
    )
    return tuple(
        HugePages.of_bytes(size, max(count, 0))
        for size, count in zip(sizes, counts, strict=True)
        if size
    )


def cpu_numbers(tree: KernelTree) -> tuple[int, int]:
    """Return the CPUs that have a `cpuN` folder: those that are online, and the others.

    `online` may still name CPUs that were taken away, so only those with a folder count. On old
    kernels it is missing, and `cpuN/online` says it; where that is missing too, the CPU cannot be
    unplugged. A tree without any such folder is from a kernel so old that `proc/cpuinfo` is all
    there is.
    """
    present = _present(tree, CPU_FOLDER, "cpu")
    listed = number_list(tree.read(f"{CPU_FOLDER}/online"))
    if not present:
        numbers = (
            map(int, _PROCESSOR.findall(tree.read("proc/cpuinfo") or "")) if not listed else ()
        )
        return listed or bit_set(number for number in numbers if number < CPU_LIMIT), 0

    if listed:
        offline = present & ~listed
    else:
        own = ((cpu, tree.read(f"{CPU_FOLDER}/cpu{cpu}/online")) for cpu in bit_numbers(present))
        offline = bit_set(cpu for cpu, text in own if first_number(text) == 0)

    return present & ~offline, offline


def cpu_set(tree: KernelTree, folder: str, *names: str) -> int | None:
    """Return the set of CPUs that the first readable file among `names` in `folder` holds.

    It is a list where the name ends in it, else a mask. Masks are named first: old kernels have
    these only, and where a copied tree was edited by hand, the mask counts.
    """
    for name in names:
        read = number_list if name.endswith("list") else number_mask
        if (found := read(tree.read(f"{folder}/{name}"))) is not None:
            return found
    return None


def partition(cpus: int, group_of: Callable[[int], int | None]) -> Iterator[tuple[int, int]]:
    """Yield (first CPU, group) for each group of `cpus`, ascending.

    `group_of` is asked about the first CPU of each group only, which is what makes discovery quick.
    A CPU is in one group, whatever its files say; a CPU of which nothing is known is a group of its
    own.
    """
    left = cpus
    for cpu in bit_numbers(cpus):
        if left >> cpu & 1:
            group = ((group_of(cpu) or 0) | 1 << cpu) & left
            left ^= group
            yield cpu, group


def cores(tree: KernelTree, online: int) -> list[int]:
    """Return the cores, as sets of SMT siblings among the CPUs of `online`.

    (package id, core id) does not identify a core, so it is not used. AMD's families 15h and 16h
    call the two cores of a module siblings: there, each CPU is a core.
    """
    by_first = partition(
        online, lambda cpu: cpu_set(tree, f"{CPU_FOLDER}/cpu{cpu}/topology", *_CORE)
    )
    found = [group for _, group in by_first]
    shared = next((group for group in found if group & (group - 1)), 0)
    return (
        [1 << cpu for cpu in bit_numbers(online)]
        if shared and _are_modules(tree, shared)
        else found
    )


def _are_modules(tree: KernelTree, group: int) -> bool:
    """Return whether the siblings in `group` are cores of an AMD module: they have ids of their own."""
    ids = {
        first_number(tree.read(f"{CPU_FOLDER}/cpu{cpu}/topology/core_id"))
        for cpu in bit_numbers(group)
    }
    if len(ids) == 1:
        return False
    # only here, since proc/cpuinfo of a large machine takes longer to read than everything else
    cpuinfo = tree.read("proc/cpuinfo", whole=False) or ""
    family = re.search(r"^cpu family\s*:\s*(\d{1,9})\b", cpuinfo, re.MULTILINE)
    is_amd = re.search(r"^vendor_id\s*:\s*AuthenticAMD", cpuinfo, re.MULTILINE)
    return bool(is_amd and family and int(family[1]) in _MODULE_FAMILIES)


def sockets(tree: KernelTree, online: int) -> dict[int, int]:
    """Return the set of CPUs of each socket, by a number for it.

    The number is `physical_package_id`. Where that is missing or -1, or where two groups of
    `core_siblings` claim the same, it is the lowest number that no socket has. Where there are no
    siblings, CPUs of one id share it.
    """
    ids: dict[int, int | None] = {}
    has_siblings = False

    def package_of(cpu: int) -> int | None:
        nonlocal has_siblings
        folder = f"{CPU_FOLDER}/cpu{cpu}/topology"
        number = first_number(tree.read(f"{folder}/physical_package_id"))
        ids[cpu] = None if number is None or number < 0 else number
        group = cpu_set(tree, folder, *_PACKAGE)
        has_siblings = has_siblings or group is not None
        return group

    groups = list(partition(online, package_of))
    found = groups if has_siblings else _by_id(groups, ids)
    return number_groups((ids[first], group) for first, group in found)


def _by_id(groups: list[tuple[int, int]], ids: dict[int, int | None]) -> list[tuple[int, int]]:
    """Return `groups` with those of one package id joined; ids that are not known are one socket together."""
    joined: dict[int | None, tuple[int, int]] = {}
    for first, group in groups:
        earlier = joined.get(ids[first], (first, 0))
        joined[ids[first]] = (earlier[0], earlier[1] | group)
    return list(joined.values())


def l3_groups(tree: KernelTree, online: int, cores: list[int]) -> list[int]:
    """Return the sets of CPUs of `online` that share an L3 cache; CPUs without one are in none of them.

    The number in `indexN` is not the level, so `level` and `type` decide. An L3 that no CPU shares,
    as the kernel says on Itanium, is the core's own; one of size 0 (Knights Landing) does not
    exist.
    """
    with_l3 = 0
    core_of = {core & -core: core for core in cores}

    def shared_by(cpu: int) -> int | None:
        nonlocal with_l3
        shared = _l3_of(tree, f"{CPU_FOLDER}/cpu{cpu}/cache")
        if shared is None:
            return None
        with_l3 |= 1 << cpu
        return shared or core_of.get(1 << cpu)

    return [group for cpu, group in partition(online, shared_by) if with_l3 >> cpu & 1]


def with_uncore_caches(tree: KernelTree, cores: Iterable[Core]) -> tuple[Core, ...]:
    """Return the cores of a NUMA node with the uncore cache that a kubelet sees; the socket where it sees none.

    As cadvisor (0.56, `addCacheInfo`) does: a cache above level 2 that is shared by as many CPUs as
    the node has belongs to the node. Any other is an uncore cache of its core, and a core's first
    one counts. If a file of a cache is missing, as `id` is on many machines, the core has no uncore
    cache, and neither have the cores that are read after it.
    """
    cores = tuple(cores)
    caches: dict[int, list[tuple[int, int]] | None] = {}
    found: dict[int, int] = {}
    # the order in which cadvisor finds them
    for core in sorted(cores, key=lambda core: str(core.cpus[0])):
        key = -1 - core.cpus[0] if core.l3 is None else core.l3
        if key not in caches:
            caches[key] = _cadvisor_caches(tree, f"{CPU_FOLDER}/cpu{core.cpus[0]}/cache")
        of_core = caches[key]
        if of_core is None:
            break
        of_node = len(cores) * len(core.cpus)
        found[core.cpus[0]] = next(
            (number for number, cpus in of_core if cpus != of_node), core.socket
        )

    return tuple(replace(core, uncore_cache=found.get(core.cpus[0], core.socket)) for core in cores)


def _cadvisor_caches(tree: KernelTree, folder: str) -> list[tuple[int, int]] | None:
    """Return id and number of CPUs of each cache above level 2; None where a file is missing that cadvisor reads."""
    found = []
    for index in sorted(filter(_INDEX.fullmatch, tree.names(folder))):
        cache = f"{folder}/{index}"
        number, level = (
            first_number(tree.read(f"{cache}/id")),
            first_number(tree.read(f"{cache}/level")),
        )
        cpus = cpu_set(tree, cache, *_CACHE)
        if number is None or number < 0 or level is None or cpus is None:
            return None
        if level > _L2:
            found.append((number, cpus.bit_count()))

    return found


def _l3_of(tree: KernelTree, folder: str) -> int | None:
    """Return the CPUs that share the L3 cache described in a CPU's `cache`, or None if it has none."""
    # the highest index first: that is where the L3 mostly is
    for index in sorted(
        filter(_INDEX.fullmatch, tree.names(folder)), key=lambda name: -int(name[5:])
    ):
        cache = f"{folder}/{index}"
        is_l3 = first_number(tree.read(f"{cache}/level")) == _L3
        has_data = is_l3 and not (tree.read(f"{cache}/type") or "").startswith("Instruction")
        if has_data and first_number(tree.read(f"{cache}/size")) != 0:
            return cpu_set(tree, cache, *_CACHE)
    return None


def pci_devices(
    tree: KernelTree, ids: Sequence[int], node_cpus: Sequence[int]
) -> tuple[PciDevice, ...]:
    """Return the PCI devices by address; `ids` and `node_cpus` are the machine's nodes and their CPUs.

    An entry of which no file can be read (a link that leads nowhere) is left out.
    """
    addresses = sorted(filter(_ADDRESS.fullmatch, tree.names(PCI_FOLDER)), key=pci_place)
    found = (_device(tree, address, ids, node_cpus) for address in addresses)
    return tuple(device for device in found if device)


def _device(
    tree: KernelTree, address: str, ids: Sequence[int], node_cpus: Sequence[int]
) -> PciDevice | None:
    folder = f"{PCI_FOLDER}/{address}"
    kind, vendor, device = (
        hex_number(tree.read(f"{folder}/{name}")) for name in ("class", "vendor", "device")
    )
    if kind is None and vendor is None:
        return None
    kind, near = kind or 0, _numa_node(tree, folder, ids, node_cpus)
    buses = _buses(tree, folder) if kind >> 16 == _BRIDGE else None
    class_, maker, model = (f"{number:04x}" for number in (kind >> 8, vendor or 0, device or 0))
    return PciDevice(address, class_, maker, model, near, buses, _link(tree, folder))


def _buses(tree: KernelTree, folder: str) -> tuple[int, int] | None:
    """Return the buses behind the bridge in `folder`; None: the kernel does not say, or firmware has set none up."""
    first = first_number(tree.read(f"{folder}/secondary_bus_number"))
    last = first_number(tree.read(f"{folder}/subordinate_bus_number"))
    return (first, last) if first and last and first <= last else None


def _link(tree: KernelTree, folder: str) -> float | None:
    """Return the GB/s of a link such as `16.0 GT/s PCIe` of 16 lanes, less what the encoding takes."""
    speed = _SPEED.match(tree.read(f"{folder}/current_link_speed") or "")
    lanes = first_number(tree.read(f"{folder}/current_link_width")) if speed else None
    if not speed or not lanes or lanes < 0:
        return None
    transfers = float(speed[1])
    carried = 8 / 10 if transfers < _GEN_3 else 128 / 130 if transfers < _GEN_6 else 242 / 256
    return round(transfers * carried * lanes / 8, 2) or None


def _numa_node(
    tree: KernelTree, folder: str, ids: Sequence[int], node_cpus: Sequence[int]
) -> int | None:
    """Return the node of the device in `folder`.

    `numa_node` is -1 where the firmware does not say, and missing on some kernels. Then it is the
    node whose CPUs `local_cpus` names, if that is one node only: a device that is near all CPUs is
    near none in particular.
    """
    numa_id = first_number(tree.read(f"{folder}/numa_node"))
    if numa_id in ids:
        return numa_id

    local = cpu_set(tree, folder, "local_cpus", "local_cpulist") or 0
    near = [node for node, cpus in zip(ids, node_cpus, strict=True) if cpus & local]
    return near[0] if len(near) == 1 and len(ids) > 1 else None


def number_list(text: str | None) -> int | None:
    """Return the bit set that a list such as `0-3,8` describes; an empty list is the empty set."""
    with suppress(InputError):
        return None if text is None else int(CPUSet.parse(text.strip(_INK)))
    return None


def number_mask(text: str | None) -> int | None:
    """Return the bit set that a mask such as `ff,00000000` describes.

    It is written as 32-bit words in hexadecimal, most significant first; the first may be shorter.
    """
    stripped = text.strip(_INK) if text is not None else ""
    if not _MASK.fullmatch(stripped):
        return None
    return int("".join(word.zfill(_MASK_WORD_DIGITS) for word in stripped.split(",")), 16)


def first_number(text: str | None) -> int | None:
    """Return the number that a text starts with: `-1`, `10240K`, `512`."""
    found = re.match(r"\s*(-?\d{1,18})", text) if text is not None else None
    return int(found[1]) if found else None


def number_row(text: str | None) -> list[int] | None:
    """Return the numbers of a row such as `10 21`, or None if anything else is in it."""
    words = text.strip(_INK).split() if text is not None else []
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        return None
    return [int(word[:18]) for word in words]


def hex_number(text: str | None) -> int | None:
    """Return the number that a text such as `0x030200` is in hexadecimal."""
    found = _HEX.fullmatch(text.strip(_INK)) if text is not None else None
    return int(found[1], 16) if found else None


def meminfo_bytes(text: str | None) -> int:
    """Return `MemTotal` of a `meminfo`, a node's or the machine's, in bytes; 0 if it is not there."""
    found = _MEM_TOTAL.search(text) if text is not None else None
    return int(found[1]) << 10 if found else 0
