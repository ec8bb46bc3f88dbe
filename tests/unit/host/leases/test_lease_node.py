"""What a request gets, given what others hold, and how the node keeps that."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError, InputError
from alignup.host.leases.lease_node import LeaseNode, NearMemory, cut, cut_machine, notes
from alignup.host.leases.record import MemoryShare, PartOf
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.parts.usable import MemoryRule
from alignup.host.parts.visible_devices import Sight
from alignup.host.processes.identity import identify
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Machine
from inputs import leasing
from inputs.leasing import Placer
from inputs.strategies import examples

GI = leasing.GI
SITE = leasing.site()
ME = identify(1)


def place(request, leases=(), site=SITE):
    return Placer(site, request).place(ME, "new", "a command", tuple(leases))


def test_cpus_memory_and_devices_are_aligned():
    """All of one node, where one has them all."""
    got = place(make_request(cpus=4, memory="4Gi", devices={leasing.GPU: 2}))

    assert (got.name, got.process, got.command, got.policy) == (
        "new",
        ME,
        "a command",
        "best-effort",
    )
    assert (str(got.cpus), got.numa_nodes) == ("0-1,8-9", (0,))
    assert got.memory == (MemoryShare(0, "memory", 4 * GI),)
    assert got.devices == {leasing.GPU: ("gpu0", "gpu1")}


def test_what_others_hold_is_not_given_again():
    """CPUs, memory and devices."""
    first = place(make_request(cpus=6, memory="12Gi", devices={leasing.GPU: 1}))
    second = place(make_request(cpus=4, memory="8Gi", devices={leasing.GPU: 1}), [first])

    assert second.numa_nodes == (1,)
    assert not first.cpus & second.cpus
    assert second.devices == {leasing.GPU: ("gpu2",)}


def test_an_empty_request_gets_nothing():
    """And is none the worse for it."""
    got = place(make_request())
    assert (str(got.cpus), got.numa_nodes, got.memory, got.devices) == ("", (), (), {})


def test_devices_alone_say_which_nodes_they_are_near_to():
    """There is nothing else to go by."""
    assert place(make_request(devices={leasing.GPU: 3})).numa_nodes == (0, 1)


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (
            {"cpus": 11},
            "11 asked, 10 free: 2 on NUMA node 0, 8 on NUMA node 1; held now: new (pid 1)",
        ),
        ({"cpus": 9, "policy": "single-numa-node"}, "policy single-numa-node: "),
        ({"cpus": 4, "devices": {leasing.GPU: 2}, "policy": "restricted"}, ""),
        ({"devices": {leasing.GPU: 5}}, "5 asked, the machine has 4"),
        (
            {"memory": "40Gi"},
            "too little memory is free: 40Gi asked, free: 16Gi on each of NUMA nodes 0, 1",
        ),
    ],
)
def test_a_refusal_says_why_and_who_has_it(wishes, why):
    """In one sentence."""
    lease = place(make_request(cpus=6))
    if not why:
        place(make_request(**wishes), [lease])
        return
    with pytest.raises(AllocationError) as caught:
        place(make_request(**wishes), [lease])
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nobody_is_named_where_nobody_holds_anything():
    """The machine is too small, that is all."""
    with pytest.raises(AllocationError) as caught:
        place(make_request(cpus=17))
    assert (
        str(caught.value)
        == "too few CPUs are free: 17 asked, 16 free: 8 on NUMA node 0, 8 on NUMA node 1"
    )


def test_nodes_without_memory_to_use_give_none():
    """The message is about the argument."""
    with pytest.raises(InputError, match="at memory"):
        place(make_request(memory=1), site=leasing.site(leasing.machine(memory=0), {}))


def test_a_device_by_another_name_is_not_given():
    """It might be one that somebody has."""
    lease = msgspec.structs.replace(place(make_request()), devices={leasing.GPU: ("0000:01:00.0",)})
    with pytest.raises(InputError, match=r"lease 'new' has them \(0000:01:00.0\), got others"):
        place(make_request(devices={leasing.GPU: 1}), [lease])
    assert place(make_request(cpus=1), [lease]).cpus == {0}


def test_sets_that_belong_together_are_given_together():
    """Where there is a choice."""
    site = leasing.site(
        devices={leasing.GPU: [{"id": f"g{i}", "numa": [0]} for i in range(4)]},
        preferred_sets={leasing.GPU: [["g1", "g3"]], "other": [["x"]]},
    )
    assert place(make_request(devices={leasing.GPU: 2}), site=site).devices == {
        leasing.GPU: ("g1", "g3")
    }


def test_machines_of_many_nodes_and_without_distances_will_do():
    """Placing has no limit of eight nodes."""
    data = leasing.machine(nodes=12, cores=1).to_dict()
    for node in data["numaNodes"]:
        del node["distances"]

    assert place(
        make_request(cpus=2, policy="restricted"), site=leasing.site(Machine.from_dict(data), {})
    )


def part(rank, parts=2, **wishes):
    return make_request(part=PartOf(rank, parts), **wishes)


def test_a_part_is_the_same_whoever_else_is_there():
    """Each rank can work it out for itself."""
    first = place(part(0, devices={leasing.GPU: 2}, memory="8Gi"))
    second = place(part(1, devices={leasing.GPU: 2}, memory="8Gi"), [first])

    assert (str(first.cpus), str(second.cpus)) == ("0-3,8-11", "4-7,12-15")
    assert second.devices == {leasing.GPU: ("gpu2", "gpu3")}
    assert second.memory == (MemoryShare(1, "memory", 8 * GI),)
    assert second.numa_nodes == (1,)


def test_the_memory_of_a_part_is_of_its_nodes_by_whatever_numbers_they_have():
    site = leasing.site(leasing.machine(ids=(0, 3)), {})
    got = place(part(1, memory="8Gi"), site=site)
    assert (got.memory, got.numa_nodes) == ((MemoryShare(3, "memory", 8 * GI),), (3,))


def test_a_part_of_which_somebody_has_something_is_refused():
    """CPUs, devices or memory."""
    lease = place(make_request(cpus=1))
    with pytest.raises(
        AllocationError, match=r"part 0 .* is not free: CPUs 0 are in use by 'new'; held now: new"
    ):
        place(part(0), [lease])

    lease = place(make_request(devices={leasing.GPU: 1}))
    with pytest.raises(AllocationError, match=r"nvidia.com/gpu gpu0 in use by 'new'"):
        place(part(0, devices={leasing.GPU: 1}), [lease])

    lease = place(make_request(memory="10Gi"))
    with pytest.raises(
        AllocationError, match=r"is free on the NUMA nodes of its CPUs \(0\), and policy"
    ):
        place(part(0, memory="10Gi", policy="restricted"), [lease])

    assert [
        (share.numa_node, share.size) for share in place(part(0, memory="10Gi"), [lease]).memory
    ] == [
        (0, 6 * GI),
        (1, 4 * GI),
    ]


def test_parts_that_cannot_be_are_refused():
    """The machine has 16 CPUs."""
    with pytest.raises(InputError, match="16 CPUs"):
        place(part(0, 17))


wishes = st.fixed_dictionaries(
    {
        "cpus": st.integers(0, 7),
        "memory": st.integers(0, 12).map(lambda size: size * GI),
        "devices": st.integers(0, 2).map(lambda count: {leasing.GPU: count}),
        "policy": st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    }
)


@examples(60)
@given(st.lists(st.tuples(wishes, st.booleans()), max_size=12))
def test_nothing_is_ever_given_twice(steps):
    """Whoever comes and goes; and each gets just what it asked for, or a sentence."""
    leases = []
    for number, (wish, leaves) in enumerate(steps):
        try:
            got = msgspec.structs.replace(place(make_request(**wish), leases), name=f"l{number}")
        except AllocationError:
            continue

        assert len(got.cpus) == wish["cpus"]
        assert sum(got.memory_sizes.values()) == wish["memory"]
        assert sum(map(len, got.devices.values())) == wish["devices"][leasing.GPU]
        leases.append(got)
        cpus = [cpu for lease in leases for cpu in lease.cpus]
        gpus = [gpu for lease in leases for ids in lease.devices.values() for gpu in ids]
        assert len(set(cpus)) == len(cpus)
        assert len(set(gpus)) == len(gpus)
        for node in SITE.machine.numa_nodes:
            shares = (
                share for lease in leases for share in lease.memory if share.numa_node == node.id
            )
            assert sum(share.size for share in shares) <= node.memory

        if leaves:
            leases.pop(0)


def test_what_is_held_on_cpus_that_are_gone_is_no_trouble():
    """A CPU can be taken away while somebody has it."""
    lease = place(make_request(cpus=8))
    smaller = replace(SITE, machine=leasing.machine(cores=3))
    assert place(make_request(cpus=2), [lease], smaller)


def request(lease_id="new", **wishes):
    return LeaseRequest(make_request(**wishes), ME, command="", name="", id=lease_id)


def everything_free(node):
    """Return what a node gives to who asks for all that the machine has."""
    lease = node.place(request("all", cpus=16, memory="32Gi", devices={leasing.GPU: 4}))
    node.release("all")
    return lease.cpus, lease.memory_by_node, lease.devices


def test_what_is_released_can_be_had_again():
    """Whether it was decided here or elsewhere; who has nothing gives nothing back."""
    node = LeaseNode(SITE)
    before = everything_free(node)
    lease = node.place(request("a", cpus=3, memory="20Gi", devices={leasing.GPU: 3}))
    with pytest.raises(AllocationError):
        everything_free(node)

    node.release("a")
    node.release("unknown")
    assert everything_free(node) == before

    node.adopt(lease)
    with pytest.raises(AllocationError):
        everything_free(node)
    node.release("a")
    assert everything_free(node) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"cpus": CPUSet([1, 5]), "devices": {leasing.GPU: ("gpu3",)}},
        {"cpus": CPUSet([5]), "devices": {leasing.GPU: ("gpu0",)}},
        {"cpus": CPUSet([5]), "devices": {leasing.GPU: ("gpu3", "gpu3")}},
    ],
)
def test_of_a_lease_that_overlaps_another_or_itself_nothing_is_noted(fields):
    node = LeaseNode(SITE)
    first = leasing.record("a", cpus=CPUSet([1]), devices={leasing.GPU: ("gpu0",)})
    node.adopt(first)
    second = leasing.record("b", memory=(MemoryShare(0, "memory", GI),), **fields)
    with pytest.raises(AllocationError):
        node.adopt(second)

    lease = node.place(request(cpus=15, memory="32Gi", devices={leasing.GPU: 3}))
    assert 1 not in lease.cpus
    assert lease.devices == {leasing.GPU: ("gpu1", "gpu2", "gpu3")}


def test_a_request_that_memory_refuses_leaves_its_cpus_to_others():
    """Memory is taken last, once the CPUs are known."""
    node = LeaseNode(replace(SITE, memory_rule=MemoryRule.parse("cpus", None)))
    before = everything_free(node)
    with pytest.raises(AllocationError, match=r"on the NUMA nodes of its CPUs \(0\): 20Gi asked"):
        node.place(request("a", cpus=2, memory="20Gi"))
    assert everything_free(node) == before


def test_devices_that_are_reported_later_can_be_asked_for():
    node = LeaseNode(SITE)
    assert (node.resources, node.has_memory) == ({leasing.GPU}, True)

    node.update("a.b/nic", [Device("n0", (0,)), Device("n1", (1,))], None)
    assert node.resources == {leasing.GPU, "a.b/nic"}
    assert node.place(request(devices={"a.b/nic": 2})).devices == {"a.b/nic": ("n0", "n1")}

    with pytest.raises(InputError, match="n2"):
        node.update("a.b/nic", [Device("n2", None), Device("n2", None)], None)
    assert not LeaseNode(leasing.site(leasing.machine(memory=0), {})).has_memory


def test_near_memory_is_taken_from_home_first():
    memory = NearMemory(SITE.machine, MemoryRule())
    memory.take("a", 20 * GI, 0b10, "none", strict=False)
    assert memory.shares("a") == {"memory": {1: 16 * GI, 0: 4 * GI}}

    with pytest.raises(AllocationError, match=r"\(1\), and policy restricted takes none elsewhere"):
        memory.take("b", GI, 0b10, "restricted", strict=True)
    assert memory.shares("b") == {}

    memory.release("a", "command")
    memory.take("b", 16 * GI, 0b10, "restricted", strict=True)
    assert memory.shares("b") == {"memory": {1: 16 * GI}}


def test_memory_that_a_lease_has_of_other_rules_is_none_to_be_given():
    """It may be more than there is, or of nodes that the machine has no more."""
    memory = NearMemory(SITE.machine, MemoryRule())
    memory.adopt("a", {0: 40 * GI, 7: GI})
    assert memory.shares("a") == {"memory": {0: 40 * GI}}

    memory.take("b", 16 * GI, 0b01, "none", strict=False)
    assert memory.shares("b") == {"memory": {1: 16 * GI}}
    with pytest.raises(AllocationError, match="too little memory is free: 1 asked, 0 free"):
        memory.take("c", 1, 0, "none", strict=False)


def test_commands_of_idle_siblings_run_on_one_cpu_of_each_core():
    """The part has the whole cores, and as many of them as are asked for."""
    site = replace(SITE, idle_siblings=True)
    parts = cut(site, site.inventory, 2, 0, {leasing.GPU: 1})
    assert [str(part.cpus) for part in parts] == ["0-3", "4-7"]
    assert [part.visible["CUDA_VISIBLE_DEVICES"] for part in parts] == ["0", "2"]
    assert [str(part.cpus) for part in cut(site, {}, 2, 3, {})] == ["0-2", "4-6"]


def test_parts_that_share_cores_are_told_of():
    assert list(notes(SITE, cut_machine(SITE, {}, 8, 0, {}))) == []
    (sentence,) = notes(SITE, cut_machine(SITE, {}, 16, 0, {}))
    assert sentence.startswith("CPUs 0-15 are of cores that several parts have")


def test_parts_are_near_the_devices_that_are_seen():
    """As ranks of `alignup.bind` are, whatever the others of the machine are used for."""
    gpus = SITE.inventory[leasing.GPU]
    seen = Sight(gpus, gpus[2:], "V ('2,3') lists no others")
    inventory = {leasing.GPU: tuple(replace(gpu, healthy=gpu in gpus[2:]) for gpu in gpus)}
    site = replace(SITE, inventory=inventory, sights={leasing.GPU: seen})
    parts = cut(site, inventory, 2, 0, {leasing.GPU: 1})
    assert [str(part.cpus) for part in parts] == ["4-5,12-13", "6-7,14-15"]
    assert [part.devices[leasing.GPU] for part in parts] == [("gpu2",), ("gpu3",)]
    with pytest.raises(
        InputError, match=r"3 parts of 1 .* for the 2 that this process sees: V .*s$"
    ):
        cut(site, inventory, 3, 0, {leasing.GPU: 1})
    with pytest.raises(InputError, match=r"5 CPUs are too many for the share of .*13$"):
        cut(site, inventory, 1, 5, {leasing.GPU: 1})
    # a layout deals out the whole machine
    parts = cut(replace(site, layout="core"), inventory, 2, 0, {leasing.GPU: 1})
    assert [str(part.cpus) for part in parts] == ["0-3,8-11", "4-7,12-15"]
