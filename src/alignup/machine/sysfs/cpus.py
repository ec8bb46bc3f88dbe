"""Reads `sys/devices/system/cpu`: which CPUs there are, and which share a core, a socket and an L3 cache.

A kubelet learns of caches from cadvisor, which leaves some out. Sets of CPUs are ints as bit sets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.machine.bits import bit_numbers, bit_set
from alignup.machine.cpu_groups import number_groups
from alignup.machine.cpuset import CPU_LIMIT
from alignup.machine.sysfs.tree import KernelTree, first_number, number_list, number_mask
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from alignup.machine.numa_node import Core

CPU_FOLDER: Final = "sys/devices/system/cpu"

_CPU_NAME: Final = re.compile(r"cpu(\d{1,5})")
_PROCESSOR: Final = re.compile(r"^processor\s*:?\s*(\d{1,5})\b", re.MULTILINE)
_MODULE_FAMILIES: Final = frozenset({21, 22})
_CORE: Final = ("core_cpus", "thread_siblings")
_PACKAGE: Final = ("package_cpus", "core_siblings")


def cpu_numbers(tree: KernelTree) -> tuple[int, int]:
    """Return the CPUs that have a `cpuN` folder: those that are online, and the others.

    `online` may still name CPUs that were taken away, so only those with a folder count. On old kernels it is
    missing, and `cpuN/online` says it; where that is missing too, the CPU cannot be unplugged. A tree without
    any such folder is from a kernel so old that `proc/cpuinfo` is all there is.
    """
    present = 0
    for name in tree.names(CPU_FOLDER):
        matched = _CPU_NAME.fullmatch(name)
        if matched and int(matched[1]) < CPU_LIMIT:
            present |= 1 << int(matched[1])
    listed = number_list(tree.read(f"{CPU_FOLDER}/online"))
    if not present:
        return listed or _cpuinfo_processors(tree), 0
    online = present & listed if listed else _online_one_by_one(tree, present)
    return online, present & ~online


def _online_one_by_one(tree: KernelTree, present: int) -> int:
    """Return the CPUs of `present` whose own `online` does not say 0."""
    online = present
    for cpu in bit_numbers(present):
        if first_number(tree.read(f"{CPU_FOLDER}/cpu{cpu}/online")) == 0:
            online ^= 1 << cpu
    return online


def _cpuinfo_processors(tree: KernelTree) -> int:
    """Return the CPUs that `proc/cpuinfo` has a record of."""
    numbers = set(map(int, _PROCESSOR.findall(tree.read("proc/cpuinfo") or "")))
    return bit_set(number for number in numbers if number < CPU_LIMIT)


def siblings(tree: KernelTree, folder: str, *names: str) -> int | None:
    """Return the set of CPUs that the first readable file among `names` in `folder` holds.

    Each name is tried as a mask, then as the list of the same name. Old kernels have the mask only, and where a
    copied tree was edited by hand, the mask counts.
    """
    for name in names:
        found = number_mask(tree.read(f"{folder}/{name}"))
        if found is None:
            found = number_list(tree.read(f"{folder}/{name}_list"))
        if found is not None:
            return found
    return None


def partition(cpus: int, group_of: Callable[[int], int | None]) -> Iterator[tuple[int, int]]:
    """Yield (first CPU, group) for each group of `cpus`, ascending.

    `group_of` is asked about the first CPU of each group only, which is what makes discovery quick. A CPU is
    in one group, whatever its files say; a CPU of which nothing is known is a group of its own.
    """
    left = cpus
    for cpu in bit_numbers(cpus):
        if left >> cpu & 1:
            group = ((group_of(cpu) or 0) | 1 << cpu) & left
            left ^= group
            yield cpu, group


def cores(tree: KernelTree, online: int) -> list[int]:
    """Return the cores, as sets of SMT siblings among the CPUs of `online`.

    (package id, core id) does not identify a core, so it is not used. AMD's families 15h and 16h call the two
    cores of a module siblings: there, each CPU is a core.
    """

    def core_of(cpu: int) -> int | None:
        return siblings(tree, f"{CPU_FOLDER}/cpu{cpu}/topology", *_CORE)

    found = [group for _, group in partition(online, core_of)]
    shared = next((group for group in found if group & (group - 1)), 0)
    if shared and _are_modules(tree, shared):
        return [1 << cpu for cpu in bit_numbers(online)]
    return found


def _are_modules(tree: KernelTree, group: int) -> bool:
    """Return whether the siblings in `group` are cores of an AMD module: they have ids of their own."""
    ids = {first_number(tree.read(f"{CPU_FOLDER}/cpu{cpu}/topology/core_id")) for cpu in bit_numbers(group)}
    if len(ids) == 1:
        return False
    # only here, since proc/cpuinfo of a large machine takes longer to read than everything else
    cpuinfo = tree.read("proc/cpuinfo", whole=False) or ""
    family = re.search(r"^cpu family\s*:\s*(\d{1,9})\b", cpuinfo, re.MULTILINE)
    is_amd = re.search(r"^vendor_id\s*:\s*AuthenticAMD", cpuinfo, re.MULTILINE)
    return bool(is_amd and family and int(family[1]) in _MODULE_FAMILIES)


def sockets(tree: KernelTree, online: int) -> dict[int, int]:
    """Return the set of CPUs of each socket, by a number for it.

    The number is `physical_package_id`. Where that is missing or -1, or where two groups of `core_siblings`
    claim the same, it is the lowest number that no socket has. Where there are no siblings, CPUs of one id
    share it.
    """
    ids: dict[int, int | None] = {}
    has_siblings = False

    def package_of(cpu: int) -> int | None:
        nonlocal has_siblings
        folder = f"{CPU_FOLDER}/cpu{cpu}/topology"
        number = first_number(tree.read(f"{folder}/physical_package_id"))
        ids[cpu] = None if number is None or number < 0 else number
        group = siblings(tree, folder, *_PACKAGE)
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


_INDEX: Final = re.compile(r"index\d{1,3}")
_L2: Final = 2
_L3: Final = 3


def l3_groups(tree: KernelTree, online: int, cores: list[int]) -> list[int]:
    """Return the sets of CPUs of `online` that share an L3 cache; CPUs without one are in none of them.

    The number in `indexN` is not the level, so `level` and `type` decide. An L3 that no CPU shares, as
    the kernel says on Itanium, is the core's own; one of size 0 (Knights Landing) does not exist.
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

    As cadvisor (0.56, `addCacheInfo`) does: a cache above level 2 that as many CPUs share as the node has is the
    node's, and any other one a core's uncore cache, of which the first counts. Where a file of a cache is missing, as
    `id` is on many machines, the core has none, nor have those that are read after it.
    """
    cores = tuple(cores)
    caches: dict[int, list[tuple[int, int]] | None] = {}
    found: dict[int, int] = {}
    for core in sorted(cores, key=lambda core: str(core.cpus[0])):  # the order in which cadvisor finds them
        key = -1 - core.cpus[0] if core.l3 is None else core.l3
        if key not in caches:
            caches[key] = _cadvisor_caches(tree, f"{CPU_FOLDER}/cpu{core.cpus[0]}/cache")
        of_core = caches[key]
        if of_core is None:
            break
        of_node = len(cores) * len(core.cpus)
        found[core.cpus[0]] = next((number for number, cpus in of_core if cpus != of_node), core.socket)
    return tuple(replace(core, uncore_cache=found.get(core.cpus[0], core.socket)) for core in cores)


def _cadvisor_caches(tree: KernelTree, folder: str) -> list[tuple[int, int]] | None:
    """Return id and number of CPUs of each cache above level 2; None where a file is missing that cadvisor reads."""
    found = []
    for index in sorted(filter(_INDEX.fullmatch, tree.names(folder))):
        cache = f"{folder}/{index}"
        number, level = first_number(tree.read(f"{cache}/id")), first_number(tree.read(f"{cache}/level"))
        cpus = _shared(tree, cache)
        if number is None or number < 0 or level is None or cpus is None:
            return None
        if level > _L2:
            found.append((number, cpus.bit_count()))
    return found


def _l3_of(tree: KernelTree, folder: str) -> int | None:
    """Return the CPUs that share the L3 cache described in a CPU's `cache`, or None if it has none."""
    # the highest index first: that is where the L3 mostly is
    for index in sorted(filter(_INDEX.fullmatch, tree.names(folder)), key=lambda name: -int(name[5:])):
        cache = f"{folder}/{index}"
        if first_number(tree.read(f"{cache}/level")) != _L3:
            continue
        if (tree.read(f"{cache}/type") or "").startswith("Instruction"):
            continue
        if first_number(tree.read(f"{cache}/size")) == 0:
            continue
        return _shared(tree, cache)
    return None


def _shared(tree: KernelTree, cache: str) -> int | None:
    """Return `shared_cpu_map`, or else `shared_cpu_list`."""
    return siblings(tree, cache, "shared_cpu_map", "shared_cpu")
