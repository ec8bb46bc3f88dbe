"""Reads `sys/devices/system/cpu/cpuN/cache`: which CPUs share an L3 cache, and which of them a kubelet sees.

A kubelet learns of caches from cadvisor, which leaves some out. Other levels do not matter to placement.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from alignup.machine.sysfs.cpus import CPU_FOLDER, partition, siblings
from alignup.machine.sysfs.text import first_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.machine.numa_node import Core
    from alignup.machine.sysfs.tree import KernelTree

__all__ = ["l3_groups", "with_uncore_caches"]

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
