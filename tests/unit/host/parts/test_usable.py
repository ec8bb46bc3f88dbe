"""What of a machine work may be placed on, and which memory is near its CPUs.

Memory is compared with a model that looks at every byte's place one by one.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.host.parts import usable as module
from alignup.host.parts.usable import (
    MemoryRule,
    equal_cores,
    memory_shares,
    reachable,
    take_near,
    usable,
)
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Core, Machine, NumaNode
from alignup.machine.sysfs.machine import read_sysfs
from alignup.records import replace
from inputs import kernel_trees, leasing

GI = leasing.GI
KINDS = ("", "hbm", "far", "gpu")


def cpus(machine):
    return str(CPUSet.from_int(machine.cpus))


@pytest.fixture
def allow(monkeypatch):
    """Let the kernel allow this process some CPUs and the memory of some nodes."""

    def allow(cpus, memory_nodes):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: cpus)
        monkeypatch.setattr(module, "_allowed_memory_nodes", lambda: memory_nodes)

    return allow


def test_cpus_and_memory_out_of_reach_are_cut(allow):
    """Nodes stay, so that masks mean the same."""
    machine = leasing.machine()

    allow({0, 1, 4}, 0b10)
    cut = reachable(machine)
    assert [[core.cpus for core in node.cores] for node in cut.numa_nodes] == [[(0,), (1,)], [(4,)]]
    assert [node.memory for node in cut.numa_nodes] == [0, 16 * leasing.GI]

    allow(set(range(99)), -1)
    assert reachable(machine) is machine


def test_where_no_cpu_is_left_the_error_says_where_work_is_placed(allow, monkeypatch):
    """The CPUs that the process may use are reserved, or are no isolated ones."""
    machine = leasing.machine()
    allow({0, 1}, -1)
    with pytest.raises(InputError, match=r"CPUs 0-1 only, and work is placed on CPUs 4-15 only$"):
        reachable(usable(machine, reserve=0b1111))

    # a kernel whose cpuset allows none of the isolated ones
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    machine = replace(machine, isolated_cpus=(6, 7))
    with pytest.raises(InputError, match=r"CPUs 0-1 only, and work is placed on CPUs 6-7 only$"):
        reachable(usable(machine, isolated=True))

    allow({99}, -1)
    with pytest.raises(InputError, match="may use CPUs 99 only"):
        reachable(machine)


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
    assert reachable(machine).cpus >> kept & 1
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


def machine(*nodes, distances=()):
    """Return a machine of nodes, each (memory, number of CPUs, kind)."""
    made, first = [], 0
    for position, (memory, count, kind) in enumerate(nodes):
        cores = tuple(Core((first + i,), position) for i in range(count))
        first += count
        row = tuple(distances[position]) if distances else ()
        made.append(NumaNode(position, memory, cores, (), row, kind))

    return Machine(tuple(made))


@st.composite
def machines(draw):
    """Draw a machine with random distances; some nodes have no memory, others no CPUs."""
    count = draw(st.integers(1, 6))
    nodes = [
        (draw(st.sampled_from((0, 1, 3, 8))), draw(st.integers(0, 3)), draw(st.sampled_from(KINDS)))
        for _ in range(count)
    ]
    nodes[0] = (4, 2, "")

    rows = draw(
        st.lists(
            st.lists(st.integers(11, 15), min_size=count, max_size=count),
            min_size=count,
            max_size=count,
        )
    )
    return machine(
        *nodes,
        distances=[[10 if i == j else rows[i][j] for j in range(count)] for i in range(count)],
    )


RULES = st.sampled_from(
    [(source, kind) for source in ("near", "cpus", "any") for kind in (None, "any", "dram")]
)


@settings(deadline=None)
@given(machines(), RULES, st.integers(0, 63), st.integers(0, 30), st.data())
def test_nothing_farther_is_used_while_something_nearer_is_free(made, rule, home, size, data):
    """Nor anything that the rule excludes."""
    count = len(made.numa_nodes)
    home &= (1 << count) - 1
    free = [data.draw(st.integers(0, node.memory)) for node in made.numa_nodes]
    chosen = MemoryRule.parse(*rule)
    taken = take_near(made, chosen, home, free, size)
    places = [i for i in range(count) if chosen.open_nodes(made) >> i & 1]
    if rule[0] == "cpus" and home:
        places = [i for i in places if home >> i & 1]

    assert set(taken) <= set(places)
    assert all(0 < amount <= free[i] for i, amount in taken.items())
    assert sum(taken.values()) == min(size, sum(free[i] for i in places))

    def rank(i):
        if not home or home >> i & 1 or rule[0] == "any":
            return 0, -free[i], i

        row = [made.numa_nodes[h].distances[i] for h in range(count) if home >> h & 1 and i != h]
        return min(row), -free[i], i

    open_places = [i for i in places if taken.get(i, 0) < free[i]]
    assert all(
        rank(i) <= rank(unused) for i in taken for unused in open_places if unused not in taken
    )
    assert list(taken) == sorted(taken, key=rank)


@settings(deadline=None)
@given(
    machines(),
    st.sampled_from([MemoryRule(), MemoryRule.parse(None, "any")]),
    st.integers(1, 4),
    st.integers(),
)
def test_shares_are_of_the_nearest_and_never_more_than_there_is(made, rule, parts, seed):
    random = Random(seed)
    cpus = [0] * parts
    for node in made.numa_nodes:
        for core in node.cores:
            cpus[random.randrange(parts)] |= core.bits

    shares = memory_shares(made, cpus, rule)
    places = {i for i in range(len(made.numa_nodes)) if rule.open_nodes(made) >> i & 1}
    for i, node in enumerate(made.numa_nodes):
        given_out = sum(dict(share).get(i, 0) for share in shares)
        assert given_out <= node.memory * (i in places)
        if i in places and node.cores:
            assert given_out > node.memory - len(cpus) * 2
        if i in places and rule != MemoryRule():
            assert given_out > node.memory - len(cpus) * 2  # nothing is left over

    for mine, share in zip(cpus, shares, strict=True):
        own = {i for i, node in enumerate(made.numa_nodes) if made.node_cpus[i] & mine}
        # a part on nodes with memory has some of each, however small
        assert own & places <= {node for node, _ in share}
        if rule == MemoryRule():
            for node in own - places:
                nearest = min(made.numa_nodes[node].distances[i] for i in places)
                assert {i for i in places if made.numa_nodes[node].distances[i] == nearest} <= dict(
                    share
                ).keys()


def test_memory_is_asked_for_by_kind_or_node():
    """Nodes with CPUs have DRAM where nothing else is known."""
    made = machine((4, 2, ""), (8, 0, "hbm"), (8, 0, ""), (8, 0, "gpu"))
    for options, expected in (
        ((None, None), 0b0111),
        ((None, "any"), 0b1111),
        ((None, "dram"), 0b0001),
        ((None, "hbm"), 0b0010),
        (("2-3", None), 0b1100),
        (("1-3", "hbm"), 0b0010),
    ):
        assert MemoryRule.parse(*options).open_nodes(made) == expected

    with pytest.raises(
        InputError, match=r"expected some of the machine's \(0: dram\), got 'hbm' at the memory"
    ):
        MemoryRule.parse(None, "hbm").open_nodes(machine((4, 2, "")))
    with pytest.raises(InputError, match=r"\(0: dram\), got 'hbm of NUMA nodes 0' at the memory"):
        MemoryRule.parse("0", "hbm").open_nodes(machine((4, 2, "")))
    with pytest.raises(InputError, match="got 'any memory of NUMA nodes 7' at"):
        MemoryRule.parse("7", None).open_nodes(machine((4, 2, "")))

    for options, place in ((("x", None), "--memory-from"), ((None, "nvm"), "--memory-kind")):
        with pytest.raises(InputError, match=place):
            MemoryRule.parse(*options)


def test_the_smallest_case_of_memory_away_from_its_cpus():
    """A virtual machine of three nodes: CPUs of node 2, and more memory than node 2 has."""
    made = machine(*[(896, 2, "")] * 3)
    assert take_near(made, MemoryRule(), 0b100, [896, 896, 896], 1200) == {2: 896, 0: 304}
    assert take_near(made, MemoryRule(), 0b100, [896, 897, 896], 1200) == {2: 896, 1: 304}
