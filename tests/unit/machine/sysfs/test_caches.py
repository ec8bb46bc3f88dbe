"""L3 groups."""

from __future__ import annotations

from alignup.machine.sysfs.caches import l3_groups
from alignup.machine.sysfs.cpus import cores
from alignup.machine.sysfs.tree import MemoryTree
from kernel_trees import CPU, server


def found(files, online=255):
    tree = MemoryTree("test", files)
    return l3_groups(tree, online, cores(tree, online))


def l3_files(files, name, text):
    """Change one file of the L3 cache of every CPU."""
    return files | {f"{CPU}/cpu{cpu}/cache/index3/{name}": text for cpu in range(8)}


def test_cpus_that_share_an_l3_are_a_group():
    """Without those that are offline."""
    assert found(server()) == [0b00110011, 0b11001100]
    assert found(server(), 0b11111101) == [0b00110001, 0b11001100]


def test_the_number_of_a_cache_is_not_its_level():
    """An L2 at index 3 is none, and an L3 at index 12 is one."""
    assert found(l3_files(server(), "level", "2\n")) == []
    moved = {path.replace("index3", "index12"): text for path, text in server().items()}
    assert len(found(moved)) == 2


def test_a_cache_of_instructions_or_of_no_size_is_none():
    """The latter is how Knights Landing shows a cache that it lacks."""
    assert found(l3_files(server(), "type", "Instruction\n")) == []
    assert found(l3_files(server(), "size", "0K\n")) == []


def test_lists_do_where_masks_are_missing():
    files = {path: text for path, text in server().items() if not path.endswith("shared_cpu_map")}

    assert found(l3_files(files, "shared_cpu_list", "0-7\n")) == [255]


def test_a_cache_that_nobody_shares_is_the_cores_own():
    """Itanium's masks are all zero."""
    assert found(l3_files(server(), "shared_cpu_map", "0\n")) == [0b10001, 0b100010, 0b1000100, 0b10001000]


def test_cpus_without_caches_are_in_no_group():
    """A machine may tell of the caches of one socket only."""
    silent = tuple(f"{CPU}/cpu{cpu}/cache" for cpu in (0, 1, 4, 5))
    files = {path: text for path, text in server().items() if not path.startswith(silent)}

    assert found(files) == [0b11001100]
    assert found({}) == []
