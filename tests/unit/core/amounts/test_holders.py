"""What pods and containers hold, and copies of it that go their own way."""

from __future__ import annotations

import pytest

from alignup.core.amounts.holders import CpuHolders, DeviceHolders, MemoryHolders, PodDevices
from alignup.core.amounts.memory_ledger import MemoryCapacity, MemoryLedger
from inputs.boards import cpus, devices


def test_new_holders_hold_nothing() -> None:
    cpu, memory, device = CpuHolders(), MemoryHolders(), DeviceHolders()

    assert (len(cpu.held), len(cpu.whole_pods), cpu.reusing_pod, cpu.reusable) == (0, 0, "", 0)
    assert [
        len(mapping)
        for mapping in (
            memory.holdings,
            memory.names,
            memory.init_holdings,
            memory.pod_holdings,
            memory.pod_parts,
        )
    ] == [0] * 5
    assert (device.pools, len(device.pods), device.last_pod) == ({}, 0, "")


def test_a_copy_of_held_cpus_goes_its_own_way() -> None:
    """All of it is copied, and what either gives or forgets later the other does not see."""
    first, second = CpuHolders(), CpuHolders()
    first.ledger = cpus(4, 4)
    first.held["p"] = {"c": 0b11}
    first.whole_pods["q"] = 0b1100
    first.reusing_pod, first.reusable = "p", 0b1

    second.hold_as(first)
    first.held["r"] = {"c": 0b100}
    del second.whole_pods["q"]
    second.reusable = 0

    assert (dict(second.held.items()), dict(first.whole_pods.items())) == (
        {"p": {"c": 0b11}},
        {"q": 0b1100},
    )
    assert (second.reusing_pod, first.reusable) == ("p", 1)
    assert second.ledger is not first.ledger
    assert second.ledger.capacity is first.ledger.capacity


def test_a_copy_of_held_memory_goes_its_own_way() -> None:
    first, second = MemoryHolders(), MemoryHolders()
    first.ledger = MemoryLedger(MemoryCapacity({"memory": (10, 10)}))
    holding = first.ledger.allocate((("memory", 4),), (), 1, True)
    first.holdings["p", "c"] = holding
    first.names["p", "c"] = "default/p"
    first.init_holdings["p"] = (holding,)
    first.pod_holdings["q"] = holding
    first.pod_parts["q"] = {"c": (True, (("memory", 1),))}

    second.hold_as(first)
    second.ledger.release(holding)
    for mapping in (second.holdings, second.names):
        del mapping["p", "c"]
    del first.init_holdings["p"]
    del first.pod_holdings["q"]
    del first.pod_parts["q"]

    assert first.ledger.free == {"memory": (6, 10)}
    assert second.ledger.free == {"memory": (10, 10)}
    assert (first.holdings["p", "c"], first.names["p", "c"]) == (holding, "default/p")
    assert (second.init_holdings["p"], second.pod_holdings["q"]) == ((holding,), holding)
    assert second.pod_parts["q"] == {"c": (True, (("memory", 1),))}


def test_a_copy_of_held_devices_goes_its_own_way() -> None:
    """Each pool is copied, so that a resource of one is given without the other."""
    first, second = DeviceHolders(), DeviceHolders()
    first.pools = {"gpu": devices()}
    first.pods["p"] = PodDevices({"c": {"gpu": 0b1}}, {})
    first.last_pod = "p"

    second.hold_as(first)
    second.pools["gpu"].give(0b10)
    second.pods.pop("p")

    assert (first.pools["gpu"].given, second.pools["gpu"].given) == (0, 0b10)
    assert first.pods["p"].held("gpu") == 0b1
    assert second.last_pod == "p"


def test_a_pod_holds_what_any_of_its_containers_does() -> None:
    pod = PodDevices({"i": {"gpu": 0b11, "nic": 0b1}, "c": {"gpu": 0b110}}, {"gpu": 0b1})

    assert [pod.held(resource) for resource in ("gpu", "nic", "fpga")] == [0b111, 0b1, 0]


def test_more_devices_make_another_record() -> None:
    """A container keeps its other resources; who has the first record still sees what it was."""
    pod = PodDevices({"c": {"gpu": 0b1}}, {"gpu": 0b1})
    with_nic = pod.with_more("c", {"nic": 0b10}, {})
    with_second = with_nic.with_more("d", {"gpu": 0b100}, {"nic": 0b10})

    assert pod.containers == {"c": {"gpu": 0b1}}
    assert with_nic.containers == {"c": {"gpu": 0b1, "nic": 0b10}}
    assert with_second.containers == {"c": {"gpu": 0b1, "nic": 0b10}, "d": {"gpu": 0b100}}
    assert [record.reusable for record in (pod, with_nic, with_second)] == [
        {"gpu": 0b1},
        {},
        {"nic": 0b10},
    ]


def test_what_is_no_record_of_devices_is_refused() -> None:
    for arguments in ((None, {}), ({}, None), ([], {})):
        with pytest.raises(TypeError):
            PodDevices(*arguments)
    with pytest.raises(TypeError):
        CpuHolders().hold_as(None)
    with pytest.raises(TypeError):
        MemoryHolders().hold_as(CpuHolders())
