"""Reads `sys/devices/system/cpu/cpuN/cache`: which CPUs share an L3 cache.

Other levels do not matter to placement and are not read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.machine.sysfs.cpus import CPU_FOLDER, partition, siblings
from alignup.machine.sysfs.text import first_number

if TYPE_CHECKING:
    from alignup.machine.sysfs.tree import KernelTree

__all__ = ["l3_groups"]

_INDEX: Final = re.compile(r"index\d{1,3}")
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
