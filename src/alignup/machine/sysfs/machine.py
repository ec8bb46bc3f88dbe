"""Reads a machine from the kernel's files: CPUs, NUMA nodes, PCI devices.

The files are those of this machine, or a copy of another's. A kubelet learns of caches from
cadvisor, which leaves some out. Sets of CPUs and of nodes are ints as bit sets.

The parsers at the end read numbers, CPU lists, masks and tables. Firmware and old kernels write odd
things, so a text that makes no sense is None: not known. Lists and masks may end in a newline, a
NUL, both or neither.
"""

from __future__ import annotations

import re
from contextlib import suppress

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, bit_set, union, unions
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
_PROCESSOR: Final = re.compile(r"^processor\s*+:?\s*+(\d{1,5})\b", re.MULTILINE)
_MODULE_FAMILIES: Final = frozenset({21, 22})
_CORE: Final = ("core_cpus", "core_cpus_list", "thread_siblings", "thread_siblings_list")
_PACKAGE: Final = ("package_cpus", "package_cpus_list", "core_siblings", "core_siblings_list")
_CACHE: Final = ("shared_cpu_map", "shared_cpu_list")
_INDEX: Final = re.compile(r"index\d{1,3}")
_L2: Final = 2
_L3: Final = 3
_BRIDGE: Final = 0x06
# The partitions of AMD's GPUs by `current_compute_partition`. In CPX each compute die is one; the
# numbers of PCI are those of the MI300A and the MI308X, other Instincts have eight dies.
_PARTITIONS: Final = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
_COMPUTE_DIES: Final = {0x74A0: 6, 0x74A2: 4, 0x74A8: 4, 0x74B6: 4}
_MOST_COMPUTE_DIES: Final = 8
_SPEED: Final = re.compile(r"\s*(\d{1,3}(?:\.\d)?) GT/s")
_GEN_3: Final = 8
_GEN_6: Final = 64
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INK: Final = " \t\r\n\0"
_FIRST_NUMBER: Final = re.compile(r"\s*(-?\d{1,18})")
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
        message = f"no {missing} at {tree.source}"
        inner_folder = next((name for name in ("devices", "system", "cpu") if tree.names(name)), "")
        if inner_folder:
            message += f"; {inner_folder} lies at its top, so a folder above it is probably meant"
        raise InputError(message)

    count = online.bit_count()
    if count > CPU_COUNT_LIMIT:
        raise InputError(
            f"{count} CPUs that are online are more than the {CPU_COUNT_LIMIT} supported at "
            f"{tree.source}"
        )

    core_groups = cores(tree, online)
    socket_groups = sockets(tree, online)
    all_cores = make_cores(core_groups, socket_groups, l3_groups(tree, online, core_groups))

    ids = node_ids(tree)
    check_node_count(len(ids))
    if ids:
        cpus_of_nodes = [node_cpus(tree, numa_id) & online for numa_id in ids]
        numa_nodes = _numa_nodes(tree, ids, cpus_of_nodes, all_cores)
    else:
        cpus_of_nodes = [online]
        numa_nodes = (_only_node(tree, cores_within(all_cores, online)),)

    assigned = union(cpus_of_nodes)
    if not assigned:
        raise InputError(f"no NUMA node has CPUs that are online at {tree.source}")

    isolated = number_list(tree.read(f"{CPU_FOLDER}/isolated")) or 0
    nohz_full = number_list(tree.read(f"{CPU_FOLDER}/nohz_full")) or 0
    return Machine(
        numa_nodes,
        offline_cpus=tuple(bit_numbers(offline)),
        pci_devices=pci_devices(tree, [node.id for node in numa_nodes], cpus_of_nodes),
        unassigned_cores=cores_within(all_cores, online & ~assigned),
        isolated_cpus=tuple(bit_numbers(isolated & online)),
        nohz_full_cpus=tuple(bit_numbers(nohz_full & online)),
    )


def _numa_nodes(
    tree: KernelTree, ids: list[int], cpus_of_nodes: list[int], all_cores: tuple[Core, ...]
) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes that the kernel knows, each with the cores of its CPUs."""
    kinds = _memory_kinds(tree, ids, cpus_of_nodes)
    rows = distances(tree, ids) or [()] * len(ids)
    numa_nodes = []
    for numa_id, cpus, row in zip(ids, cpus_of_nodes, rows, strict=True):
        folder = f"{NODE_FOLDER}/node{numa_id}"
        numa_nodes.append(
            NumaNode(
                numa_id,
                memory=meminfo_bytes(tree.read(f"{folder}/meminfo")),
                cores=with_uncore_caches(tree, cores_within(all_cores, cpus)),
                hugepages=hugepages(tree, f"{folder}/hugepages"),
                distances=row,
                memory_kind=kinds.get(numa_id, ""),
            )
        )

    return tuple(numa_nodes)


def _only_node(tree: KernelTree, cores: tuple[Core, ...]) -> NumaNode:
    """Return the one node of a kernel without NUMA, whose files are those of the machine."""
    return NumaNode(
        0,
        memory=meminfo_bytes(tree.read("proc/meminfo")),
        cores=with_uncore_caches(tree, cores),
        hugepages=hugepages(tree, "sys/kernel/mm/hugepages"),
    )


def _memory_kinds(tree: KernelTree, ids: list[int], cpus_of_nodes: list[int]) -> dict[int, str]:
    """Return the kinds of memory of the nodes without CPUs of which something is known, by id.

    NVIDIA's driver names the nodes of its GPUs' memory. Of the others, the bandwidth that firmware
    tells (ACPI's HMAT) and the kernel's memory tiers say which are faster than those of the CPUs,
    and which slower.
    """
    kinds: dict[int, str] = {}
    memory_nodes = [numa_id for numa_id, cpus in zip(ids, cpus_of_nodes, strict=True) if not cpus]
    if not memory_nodes:
        return kinds

    for speeds in (_memory_tiers(tree), _bandwidths(tree, ids)):
        usual = max(
            (
                speeds[numa_id]
                for numa_id in ids
                if numa_id not in memory_nodes and speeds.get(numa_id)
            ),
            default=0,
        )
        for numa_id in memory_nodes:
            speed = speeds.get(numa_id, 0)
            if usual and speed not in {0, usual}:
                kinds[numa_id] = "hbm" if speed > usual else "far"

    for name in tree.names(_NVIDIA_GPUS):
        status = tree.read(f"{_NVIDIA_GPUS}/{name}/numa_status") or ""
        matched = re.search(r"Node:\s*(\d{1,5})", status)
        if matched and int(matched[1]) in memory_nodes:
            kinds[int(matched[1])] = "gpu"

    return kinds


def _memory_tiers(tree: KernelTree) -> dict[int, int]:
    """Return the memory tier of each node, negated, so that faster memory has a higher number."""
    tiers: dict[int, int] = {}
    for tier in bit_numbers(_present(tree, _TIERS, "memory_tier")):
        nodes = number_list(tree.read(f"{_TIERS}/memory_tier{tier}/nodelist")) or 0
        tiers |= dict.fromkeys(bit_numbers(nodes), -tier)

    return tiers


def _bandwidths(tree: KernelTree, ids: list[int]) -> dict[int, int]:
    """Return the read bandwidth of each node; 0: firmware does not tell it."""
    bandwidths = {}
    for numa_id in ids:
        text = tree.read(f"{NODE_FOLDER}/node{numa_id}/access0/initiators/read_bandwidth")
        bandwidths[numa_id] = first_number(text) or 0

    return bandwidths


def _present(tree: KernelTree, folder: str, name: str) -> int:
    """Return the numbers of CPUs, nodes or tiers that have a folder, `cpu0` by the name `cpu`."""
    form = re.compile(rf"{name}(\d{{1,5}})")
    matches = map(form.fullmatch, tree.names(folder))
    numbers = (int(matched[1]) for matched in matches if matched)
    return bit_set(number for number in numbers if number < CPU_LIMIT)


def node_ids(tree: KernelTree) -> list[int]:
    """Return the ids of the NUMA nodes, ascending; none on kernels that were built without NUMA.

    They have gaps, and 0 may be missing. A node counts if it is `online` and has a folder; kernels
    that have no `online` have folders for the nodes they use.
    """
    present = _present(tree, NODE_FOLDER, "node")
    online = number_list(tree.read(f"{NODE_FOLDER}/online")) or 0
    return list(bit_numbers(present & online or present))


def node_cpus(tree: KernelTree, numa_id: int) -> int:
    """Return the CPUs that a node lists, offline ones too; empty for a node of memory only."""
    return cpu_set(tree, f"{NODE_FOLDER}/node{numa_id}", "cpumap", "cpulist") or 0


def distances(tree: KernelTree, ids: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the row of distances of each node in `ids`; no rows if one makes no sense.

    `distance` has a column for each node that was online, ascending, not for each number. A row
    that is missing, holds zeros, or is longer or shorter than the nodes there are leaves all
    distances unknown, since the columns of one cannot be told from those of another.
    """
    online = list(bit_numbers(number_list(tree.read(f"{NODE_FOLDER}/online")) or 0))
    rows = []
    for numa_id in ids:
        columns = number_row(tree.read(f"{NODE_FOLDER}/node{numa_id}/distance")) or []
        row = _columns(columns, ids, online)
        if not row or 0 in row:
            return []
        rows.append(row)

    return rows


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
    matches = map(_HUGEPAGES.fullmatch, tree.names(folder))
    kibibytes = sorted(int(matched[1]) for matched in matches if matched)
    pages = []
    for size in filter(None, kibibytes):
        # a file that cannot be read is no pages
        count = first_number(tree.read(f"{folder}/hugepages-{size}kB/nr_hugepages")) or 0
        pages.append(HugePages.of_bytes(size << 10, max(count, 0)))

    return tuple(pages)


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
        if not listed:
            numbers = map(int, _PROCESSOR.findall(tree.read("proc/cpuinfo") or ""))
            listed = bit_set(number for number in numbers if number < CPU_LIMIT)
        return listed, 0

    if listed:
        offline = present & ~listed
    else:
        offline = bit_set(
            cpu
            for cpu in bit_numbers(present)
            if first_number(tree.read(f"{CPU_FOLDER}/cpu{cpu}/online")) == 0
        )

    return present & ~offline, offline


def cpu_set(tree: KernelTree, folder: str, *names: str) -> int | None:
    """Return the set of CPUs that the first readable file among `names` in `folder` holds.

    It is a list where the name ends in it, else a mask. Masks are named first: old kernels have
    these only, and where a copied tree was edited by hand, the mask counts.
    """
    for name in names:
        parse = number_list if name.endswith("list") else number_mask
        cpus = parse(tree.read(f"{folder}/{name}"))
        if cpus is not None:
            return cpus

    return None


def partition(cpus: int, group_of: Callable[[int], int | None]) -> Iterator[tuple[int, int]]:
    """Yield (first CPU, group) for each group of `cpus`, ascending.

    `group_of` is asked about the first CPU of each group only, which is what makes discovery quick.
    A CPU is in one group, whatever its files say; a CPU of which nothing is known is a group of its
    own.
    """
    remaining = cpus
    for cpu in bit_numbers(cpus):
        if remaining >> cpu & 1:
            group = ((group_of(cpu) or 0) | 1 << cpu) & remaining
            remaining ^= group
            yield cpu, group


def cores(tree: KernelTree, online: int) -> list[int]:
    """Return the cores, as sets of SMT siblings among the CPUs of `online`.

    (package id, core id) does not identify a core, so it is not used. AMD's families 15h and 16h
    call the two cores of a module siblings: there, each CPU is a core.
    """

    def siblings_of(cpu: int) -> int | None:
        return cpu_set(tree, f"{CPU_FOLDER}/cpu{cpu}/topology", *_CORE)

    siblings = [group for _, group in partition(online, siblings_of)]
    several_cpus = next((group for group in siblings if group & (group - 1)), 0)
    if several_cpus and _are_modules(tree, several_cpus):
        return [1 << cpu for cpu in bit_numbers(online)]
    return siblings


def _are_modules(tree: KernelTree, group: int) -> bool:
    """Return whether the siblings in `group` are cores of an AMD module.

    These have ids of their own.
    """
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

    packages = [(ids[first], group) for first, group in partition(online, package_of)]
    if not has_siblings:
        # CPUs whose id is not known are one socket together
        packages = list(unions(packages).items())

    return number_groups(packages)


def l3_groups(tree: KernelTree, online: int, cores: list[int]) -> list[int]:
    """Return the sets of CPUs of `online` that share an L3 cache; CPUs without one are in none.

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
    """Return the cores of a NUMA node with the uncore cache that a kubelet sees.

    Where it sees none, that is the socket. As cadvisor (0.56, `addCacheInfo`) does: a cache above
    level 2 that is shared by as many CPUs as the node has belongs to the node. Any other is an
    uncore cache of its core, and a core's first one counts. If a file of a cache is missing, as
    `id` is on many machines, the core has no uncore cache, and neither have the cores that are read
    after it.
    """
    cores = tuple(cores)
    caches: dict[int, list[tuple[int, int]] | None] = {}
    numbers: dict[int, int] = {}
    # the order in which cadvisor finds them
    for core in sorted(cores, key=lambda core: str(core.cpus[0])):
        key = -1 - core.cpus[0] if core.l3 is None else core.l3
        if key not in caches:
            caches[key] = _cadvisor_caches(tree, f"{CPU_FOLDER}/cpu{core.cpus[0]}/cache")

        core_caches = caches[key]
        if core_caches is None:
            break

        node_cpu_count = len(cores) * len(core.cpus)
        uncore_caches = (number for number, cpu_count in core_caches if cpu_count != node_cpu_count)
        numbers[core.cpus[0]] = next(uncore_caches, core.socket)

    return tuple(
        replace(core, uncore_cache=numbers.get(core.cpus[0], core.socket)) for core in cores
    )


def _cadvisor_caches(tree: KernelTree, folder: str) -> list[tuple[int, int]] | None:
    """Return id and number of CPUs of each cache above level 2.

    None where a file is missing that cadvisor reads.
    """
    caches = []
    for index in sorted(filter(_INDEX.fullmatch, tree.names(folder))):
        cache = f"{folder}/{index}"
        number = first_number(tree.read(f"{cache}/id"))
        level = first_number(tree.read(f"{cache}/level"))
        cpus = cpu_set(tree, cache, *_CACHE)
        if number is None or number < 0 or level is None or cpus is None:
            return None
        if level > _L2:
            caches.append((number, cpus.bit_count()))

    return caches


def _l3_of(tree: KernelTree, folder: str) -> int | None:
    """Return the CPUs that share the L3 cache described in a CPU's `cache`; None if it has none."""
    # the highest index first: that is where the L3 mostly is
    indexes = filter(_INDEX.fullmatch, tree.names(folder))
    for index in sorted(indexes, key=lambda name: -int(name[5:])):
        cache = f"{folder}/{index}"
        is_l3 = first_number(tree.read(f"{cache}/level")) == _L3
        has_data = is_l3 and not (tree.read(f"{cache}/type") or "").startswith("Instruction")
        if has_data and first_number(tree.read(f"{cache}/size")) != 0:
            return cpu_set(tree, cache, *_CACHE)

    return None


def pci_devices(
    tree: KernelTree, ids: Sequence[int], node_cpus: Sequence[int]
) -> tuple[PciDevice, ...]:
    """Return the PCI devices by address.

    `ids` and `node_cpus` are the machine's nodes and their CPUs. An entry of which no file can be
    read (a link that leads nowhere) is left out.
    """
    addresses = sorted(filter(_ADDRESS.fullmatch, tree.names(PCI_FOLDER)), key=pci_place)
    devices = (_pci_device(tree, address, ids, node_cpus) for address in addresses)
    return tuple(device for device in devices if device)


def _pci_device(
    tree: KernelTree, address: str, ids: Sequence[int], node_cpus: Sequence[int]
) -> PciDevice | None:
    """Return the PCI device at an address; None: its files cannot be read."""
    folder = f"{PCI_FOLDER}/{address}"
    class_ = hex_number(tree.read(f"{folder}/class"))
    vendor = hex_number(tree.read(f"{folder}/vendor"))
    device = hex_number(tree.read(f"{folder}/device"))
    if class_ is None and vendor is None:
        return None

    class_ = class_ or 0
    buses = None
    if class_ >> 16 == _BRIDGE:
        buses = _buses(tree, folder)

    return PciDevice(
        address,
        class_=f"{class_ >> 8:04x}",
        vendor=f"{vendor or 0:04x}",
        device=f"{device or 0:04x}",
        numa_node=_numa_node(tree, folder, ids, node_cpus),
        buses=buses,
        link=_link(tree, folder),
        partitions=_partitions(tree, folder, device or 0),
    )


def _buses(tree: KernelTree, folder: str) -> tuple[int, int] | None:
    """Return the first and the last bus behind the bridge in `folder`.

    None: the kernel does not say, or firmware has set none up.
    """
    first = first_number(tree.read(f"{folder}/secondary_bus_number"))
    last = first_number(tree.read(f"{folder}/subordinate_bus_number"))
    return (first, last) if first and last and first <= last else None


def _partitions(tree: KernelTree, folder: str, device: int) -> int | None:
    """Return into how many partitions AMD's driver has cut a GPU; None: it does not say."""
    mode = (tree.read(f"{folder}/current_compute_partition") or "").strip()
    if mode == "CPX":
        return _COMPUTE_DIES.get(device, _MOST_COMPUTE_DIES)
    return _PARTITIONS.get(mode)


def _link(tree: KernelTree, folder: str) -> float | None:
    """Return the GB/s of a link, such as `16.0 GT/s PCIe` of 16 lanes, less what encoding takes."""
    speed = _SPEED.match(tree.read(f"{folder}/current_link_speed") or "")
    if not speed:
        return None

    lanes = first_number(tree.read(f"{folder}/current_link_width"))
    if not lanes or lanes < 0:
        return None

    transfers = float(speed[1])
    if transfers < _GEN_3:
        payload = 8 / 10
    elif transfers < _GEN_6:
        payload = 128 / 130
    else:
        payload = 242 / 256

    return round(transfers * payload * lanes / 8, 2) or None


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
    near_nodes = [node for node, cpus in zip(ids, node_cpus, strict=True) if cpus & local]
    if len(near_nodes) == 1 and len(ids) > 1:
        return near_nodes[0]
    return None


def number_list(text: str | None) -> int | None:
    """Return the bit set that a list such as `0-3,8` describes; an empty list is the empty set."""
    if text is None:
        return None

    with suppress(InputError):
        return int(CPUSet.parse(text.strip(_INK)))
    return None


def number_mask(text: str | None) -> int | None:
    """Return the bit set that a mask such as `ff,00000000` describes.

    It is written as 32-bit words in hexadecimal, most significant first; the first may be shorter.
    """
    stripped = (text or "").strip(_INK)
    if not _MASK.fullmatch(stripped):
        return None
    return int("".join(word.zfill(_MASK_WORD_DIGITS) for word in stripped.split(",")), 16)


def first_number(text: str | None) -> int | None:
    """Return the number that a text starts with: `-1`, `10240K`, `512`."""
    matched = _FIRST_NUMBER.match(text or "")
    return int(matched[1]) if matched else None


def number_row(text: str | None) -> list[int] | None:
    """Return the numbers of a row such as `10 21`, or None if anything else is in it."""
    columns = (text or "").strip(_INK).split()
    if not columns or not all(column.isascii() and column.isdigit() for column in columns):
        return None
    return [int(column[:18]) for column in columns]


def hex_number(text: str | None) -> int | None:
    """Return the number that a text such as `0x030200` is in hexadecimal."""
    matched = _HEX.fullmatch((text or "").strip(_INK))
    return int(matched[1], 16) if matched else None


def meminfo_bytes(text: str | None) -> int:
    """Return `MemTotal` of a node's `meminfo`, or the machine's, in bytes; 0 if it is missing."""
    matched = _MEM_TOTAL.search(text or "")
    return int(matched[1]) << 10 if matched else 0
