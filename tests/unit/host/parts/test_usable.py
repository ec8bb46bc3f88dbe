"""What of a machine work may be placed on."""

from __future__ import annotations

import os

import pytest

from alignup.errors import InputError
from alignup.host.parts import usable as module
from alignup.host.parts.usable import equal_cores, reachable, usable
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Core, Machine, NumaNode
from alignup.machine.sysfs.machine import read_sysfs
from alignup.records import replace
from inputs import kernel_trees, leasing


def cpus(machine):
    return str(CPUSet.from_int(machine.cpus))


def test_cpus_and_memory_out_of_reach_are_cut():
    """Nodes stay, so that masks mean the same."""
    machine = leasing.machine()

    cut = reachable(machine, 0b10011, 0b10)

    assert [[core.cpus for core in node.cores] for node in cut.numa_nodes] == [[(0,), (1,)], [(4,)]]
    assert [node.memory for node in cut.numa_nodes] == [0, 16 * leasing.GI]
    assert reachable(machine, -1, -1) is machine
    with pytest.raises(InputError, match="may use CPUs 99 only"):
        reachable(machine, 1 << 99, -1)


def test_the_kernel_may_not_tell_about_memory(tmp_path):
    """Then all of it counts as allowed."""
    (tmp_path / "status").write_text("Name:\tx\nMems_allowed_list:\t0,2-3\n")
    assert module._allowed_memory_nodes(str(tmp_path / "status")) == 0b1101
    (tmp_path / "status").write_text("Name:\tx\n")
    assert module._allowed_memory_nodes(str(tmp_path / "status")) == -1
    assert module._allowed_memory_nodes(str(tmp_path / "none")) == -1


@pytest.fixture
def isolating():
    """A machine of 16 CPUs of which some are isolated."""
    return replace(leasing.machine(), isolated_cpus=(3, 11), nohz_full_cpus=(2, 3, 10, 11))


def test_isolated_cpus_are_left_alone_unless_they_are_wanted(isolating):
    """Then they alone are used."""
    assert cpus(usable(isolating)) == "0-1,4-9,12-15"
    assert cpus(usable(isolating, isolated=True)) == "2-3,10-11"
    assert cpus(usable(isolating, reserve=0b11)) == "4-9,12-15"
    assert usable(leasing.machine()) == leasing.machine()
    with pytest.raises(InputError, match=r"no CPU is left for work by --isolated \(isolated: none"):
        usable(leasing.machine(), isolated=True)
    with pytest.raises(
        InputError, match=r"no CPU is left for work by the machine .* reserved: 0-15"
    ):
        usable(leasing.machine(), reserve=0xFFFF)


def test_isolated_cpus_are_reached_where_the_kernel_takes_them():
    """No process has them in its affinity from the start; a cpuset may still allow them.

    The affinity stays.
    """
    here = os.sched_getaffinity(0)
    machine = replace(leasing.machine(), isolated_cpus=tuple(here))
    kept = min(here)
    assert reachable(machine, memory_nodes=-1).cpus >> kept & 1
    assert os.sched_getaffinity(0) == here


def test_sysfs_tells_isolated_cpus(tmp_path):
    """In two files, of which kernels without isolation have `(null)` in one."""
    files = kernel_trees.server()
    machine = read_sysfs(
        kernel_trees.write(tmp_path, {**files, f"{kernel_trees.CPU}/isolated": "1,5-6\n"})
    )
    assert (machine.isolated_cpus, machine.nohz_full_cpus) == ((1, 5, 6), ())
    assert Machine.from_dict(machine.to_dict()) == machine
    more = {f"{kernel_trees.CPU}/isolated": "\n", f"{kernel_trees.CPU}/nohz_full": "  (null)\n"}
    machine = read_sysfs(kernel_trees.write(tmp_path, {**files, **more}))
    assert (machine.isolated_cpus, machine.nohz_full_cpus) == ((), ())


def test_an_empty_sys_is_an_error(tmp_path):
    """It is a container without sysfs, not a kernel without NUMA nodes."""
    (tmp_path / "sys").mkdir()
    kernel_trees.write(tmp_path, {"proc/cpuinfo": "processor : 0\n"})
    with pytest.raises(InputError, match=r"sys is empty at .*: sysfs is not mounted there"):
        read_sysfs(tmp_path)


def test_cores_of_one_size_are_those_of_most_cpus():
    """Of hybrid cores, and where a sibling is offline."""
    pairs, singles = (Core((0, 1), 0), Core((2, 3), 0)), (Core((4,), 0), Core((5,), 0))
    assert cpus(equal_cores(Machine((NumaNode(0, 1, (*pairs, *singles)),)))) == "0-3"
    assert cpus(equal_cores(Machine((NumaNode(0, 1, (*pairs[:1], *singles)),)))) == "0-1"
    assert (
        cpus(equal_cores(Machine((NumaNode(0, 1, (*pairs[:1], *singles, Core((6,), 0))),))))
        == "4-6"
    )
    assert equal_cores(leasing.machine()) == leasing.machine()
