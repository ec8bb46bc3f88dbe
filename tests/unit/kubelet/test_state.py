"""What is left of a state when the kubelet drops entries of pods that are gone."""

from __future__ import annotations

from alignup.kubelet.checkpoints import (
    CpuState,
    DeviceCheckpoint,
    DeviceEntry,
    KubeletState,
    MemoryState,
    MemoryTable,
    NumaNodeState,
)
from alignup.machine.cpuset import CPUSet
from alignup.topology_manager.admission import MemoryBlock


def cpus(text):
    return CPUSet.parse(text)


def numa_node(reserved, assignments, cells, total=100):
    table = MemoryTable(total, 0, total, reserved, total - reserved)
    return NumaNodeState(assignments=assignments, tables={"memory": table}, cells=cells)


def gone(*uids):
    return lambda uid, _name: uid in uids


def test_cpus_come_back_unless_another_container_of_the_pod_has_them():
    entries = {"a": {"i": cpus("1-4"), "c": cpus("1-2")}, "b": {"c": cpus("5")}}
    state = KubeletState(CpuState("static", cpus("0,6"), entries))
    assert state.without(gone("b")).cpu.shared == cpus("0,5-6")
    assert state.without(gone("b")).cpu.entries == {"a": entries["a"]}
    without_init = state.without(lambda uid, name: (uid, name) == ("a", "i"))
    assert without_init.cpu.shared == cpus("0,3-4,6")
    assert without_init.cpu.entries["a"] == {"c": cpus("1-2")}


def test_memory_comes_off_the_lowest_node_on_which_anything_is_held():
    """As in the kubelet, which does not know whose bytes they were.

    A node that nobody uses leaves its group.
    """
    blocks = {
        "a": {"c": (MemoryBlock((0, 1), "memory", 60),)},
        "b": {"c": (MemoryBlock((0, 1), "memory", 80),)},
    }
    nodes = {0: numa_node(100, 2, (0, 1)), 1: numa_node(40, 2, (0, 1))}
    state = KubeletState(memory=MemoryState("Static", nodes, blocks))
    remaining = state.without(gone("b")).memory
    assert [remaining.nodes[node_id].table("memory").reserved for node_id in (0, 1)] == [20, 40]
    assert [remaining.nodes[node_id].cells for node_id in (0, 1)] == [(0, 1), (0, 1)]
    empty = state.without(gone("a", "b")).memory
    assert [empty.nodes[node_id].table("memory").free for node_id in (0, 1)] == [100, 100]
    assert [empty.nodes[node_id].cells for node_id in (0, 1)] == [(0,), (1,)]
    assert empty.entries == {}


def test_memory_of_a_pod_as_a_whole_comes_back_with_its_last_container():
    block = MemoryBlock((0,), "memory", 30)
    nodes = {0: numa_node(30, 1, (0,))}
    state = KubeletState(
        memory=MemoryState("Static", nodes, {"a": {"c": (block,), "d": ()}}, {"a": (block,)})
    )
    assert state.without(lambda _, name: name == "d").memory.nodes[0].table("memory").reserved == 30
    assert state.without(gone("a")).memory.nodes[0].table("memory").reserved == 0


def test_devices_are_dropped_with_the_whole_pod_only():
    entries = tuple(DeviceEntry(uid, "c", "r", {0: (uid,)}, b"") for uid in "ab")
    state = KubeletState(devices=DeviceCheckpoint(entries, {}))
    remaining_state = state.without(lambda uid, name: uid == "a" and name is None)
    assert [entry.pod_uid for entry in remaining_state.devices.entries] == ["b"]
    assert len(state.without(lambda _, name: name == "c").devices.entries) == 2


def test_what_is_empty_and_who_holds_something():
    assert KubeletState().is_empty
    state = KubeletState(
        CpuState("static", cpus("0"), {"a": {"c": cpus("1")}}),
        devices=DeviceCheckpoint((DeviceEntry("b", "d", "r", {}, b""),), {}),
    )
    assert not state.is_empty
    assert state.containers() == {"a": ["c"], "b": ["d"]}
