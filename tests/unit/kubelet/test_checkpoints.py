"""A kubelet's checkpoints, in all their versions, and what is left of a state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup.errors import InputError
from alignup.kubelet.checkpoints import (
    CpuState,
    DeviceCheckpoint,
    DeviceEntry,
    KubeletState,
    MemoryState,
    MemoryTable,
    NumaNodeState,
    checksum_of,
    go_text,
    read_cpu_state,
    read_device_checkpoint,
    read_memory_state,
)
from alignup.kubelet.layout import CPU_STATE, DEVICE_CHECKPOINT, MEMORY_STATE, ArchiveFiles
from alignup.kubelet.pod_resources import plain_answer, pods_from_wire
from alignup.kubelet.read import pods_by_uid
from alignup.kubernetes.versions import KubeletVersion
from alignup.machine.cpuset import CPUSet
from alignup.topology_manager.admission import MemoryBlock
from inputs.kubelet_files import EXAMPLE

FILES = ArchiveFiles(EXAMPLE / "root.tar.xz")

TABLE = {"total": 100, "systemReserved": 10, "allocatable": 90, "reserved": 30, "free": 60}

BLOCK = {"numaAffinity": [0, 1], "type": "memory", "size": 30}

WRITTEN = [
    json.loads(line) for line in (EXAMPLE / "checkpoints-1.37.2.jsonl").read_text().splitlines()
]
"""What the state packages of a kubelet 1.37.2 wrote, by the feature gate that was on."""

BY_GATE = {record["gate"]: record for record in WRITTEN}

CPUS = {"uid-a": {"main": CPUSet([1, 2]), "side": CPUSet([3])}, "uid-b": {"c": CPUSet([6])}}

NEWEST, OLDER = KubeletVersion(37), KubeletVersion(36)

RUNNING = [json.loads(line) for line in (EXAMPLE / "rig-1.37.2.jsonl").read_text().splitlines()]
"""What a kubelet 1.37.2 with three pods, and with that gate one more, wrote.

And what it told over PodResources.
"""


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)]
)
def test_fnv_1a_of_known_texts(text, expected):
    """The vectors of the algorithm's authors."""
    assert checksum_of(text) == expected


def test_maps_are_sorted_and_nil_is_told_apart():
    assert go_text({10: "b", 9: "a"}) == "map[9:a 10:b]"
    assert go_text({}) == "map[]"
    assert go_text(None) == "<nil>"
    assert go_text([1, 2]) == "[1 2]"


@pytest.mark.parametrize(
    ("path", "read", "key"),
    [
        (CPU_STATE, read_cpu_state, "checksum"),
        (MEMORY_STATE, read_memory_state, "checksum"),
        (DEVICE_CHECKPOINT, read_device_checkpoint, "Checksum"),
    ],
)
def test_files_of_a_kubelet_are_intact_and_any_change_is_seen(path, read, key):
    data = FILES.read(path)
    assert read(data).is_intact

    document = json.loads(data)
    document[key] += 1
    assert not read(json.dumps(document).encode()).is_intact


def test_devices_that_no_pod_holds_are_nil_in_the_sum():
    """A kubelet without pods writes null, which Go prints unlike an empty list."""
    empty, null = (
        read_device_checkpoint(
            json.dumps(
                {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 0}
            ).encode()
        )
        for entries in ([], None)
    )
    assert empty.expected_checksum != null.expected_checksum


def cpu_file(**fields):
    return json.dumps(
        {"policyName": "static", "defaultCpuSet": "0-7", "checksum": 0, **fields}
    ).encode()


def test_version_2_of_cpus_is_keyed_by_pod_and_container():
    state = read_cpu_state(cpu_file(defaultCpuSet="0,4-7", entries={"u": {"c": "1-3"}}))
    assert (state.version, state.policy) == (2, "static")
    assert state.shared == CPUSet.parse("0,4-7")
    assert state.entries == {"u": {"c": CPUSet.parse("1-3")}}


def test_version_1_of_cpus_needs_to_know_whose_containers_they_are():
    """As in the kubelet, which takes the containers from its runtime."""
    state = read_cpu_state(cpu_file(entries={"abc": "1-3"}), version=KubeletVersion(36))
    assert state.version == 1
    assert state.named({"abc": ("u", "c")}).entries == {"u": {"c": CPUSet.parse("1-3")}}
    with pytest.raises(InputError, match="ids of containers that are known, got 'abc'"):
        state.named({})


def test_version_1_of_cpus_is_not_read_by_newer_kubelets():
    with pytest.raises(
        InputError, match=r"kubelet 1\.37 reads states of version 2 or later, and this is version 1"
    ):
        read_cpu_state(cpu_file(entries={"abc": "1-3"}), version=KubeletVersion(37))


def test_version_3_of_cpus_has_cpus_of_pods_and_a_sum_over_them():
    """The sum is told apart from that of version 2 even where no pod has any."""
    fields = {"entries": {"u": {"c": "1"}}, "podEntries": {"u": {"cpuSet": "1-3"}}}
    state = read_cpu_state(cpu_file(**fields))
    assert (state.version, state.pods) == (3, {"u": CPUSet.parse("1-3")})
    again = read_cpu_state(cpu_file(**fields, checksum=state.expected_checksum))
    assert (again.version, again.is_intact) == (3, True)


def test_a_state_without_a_checksum_counts_as_intact():
    assert read_cpu_state(cpu_file()).is_intact


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b'{"policyName":"static","defaultC', "JSON of a CPU manager's state"),
        (b"[]", "a mapping"),
        (cpu_file(defaultCpuSet="0-x"), "defaultCpuSet in cpu_manager_state"),
        (cpu_file(entries={"u": {"c": "3-1"}}), "the CPUs of 'c'"),
        (cpu_file(entries={"u": {"c": "1"}, "abc": "2"}), "entries of one version"),
        (cpu_file(entries={"u": 1}), "in cpu_manager_state"),
    ],
)
def test_a_damaged_state_of_cpus_is_one_line(data, message):
    with pytest.raises(InputError, match=message) as caught:
        read_cpu_state(data)
    assert "\n" not in str(caught.value)


def memory_file(**fields):
    numa_node_state = {"numberOfAssignments": 1, "memoryMap": {"memory": TABLE}, "cells": [0, 1]}
    document = {
        "policyName": "Static",
        "machineState": {"0": numa_node_state, "1": numa_node_state},
        "checksum": 0,
        **fields,
    }
    return json.dumps(document).encode()


def test_numa_nodes_and_blocks_of_memory_are_read():
    state = read_memory_state(memory_file(entries={"u": {"c": [BLOCK]}}))
    assert state.nodes[1].table("memory") == MemoryTable(100, 10, 90, 30, 60)
    assert state.nodes[1].cells == (0, 1)
    assert state.nodes[1].table("hugepages-2Mi") == MemoryTable()
    assert state.entries == {"u": {"c": (MemoryBlock((0, 1), "memory", 30),)}}
    assert (state.types, state.version) == (("memory",), 1)


def test_version_2_of_memory_has_that_of_pods():
    fields = {"entries": {"u": {"c": [BLOCK]}}, "podEntries": {"u": {"memoryBlocks": [BLOCK]}}}
    state = read_memory_state(memory_file(**fields))
    assert (state.version, state.pods) == (2, {"u": (MemoryBlock((0, 1), "memory", 30),)})
    assert read_memory_state(memory_file(**fields, checksum=state.expected_checksum)).is_intact


def test_the_file_of_policy_none_has_no_nodes():
    assert read_memory_state(b'{"policyName":"None","machineState":{},"checksum":0}').nodes == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "the file is empty"),
        (memory_file()[:-20], "JSON of a memory manager's state"),
        (memory_file(machineState={"one": {}}), "ids of NUMA nodes, got 'one'"),
        (memory_file(machineState={"9" * 5_000: {}}), "ids of NUMA nodes, got '9999"),
        (memory_file(machineState={"0": {"memoryMap": {"memory": {"free": -1}}}}), "free"),
        (memory_file(entries={"u": {"c": [{"size": 2**64}]}}), "size"),
        (memory_file(entries={"u": {"c": [{"numaAffinity": ["0"]}]}}), "numaAffinity"),
    ],
)
def test_a_damaged_state_of_memory_is_one_line(data, message):
    with pytest.raises(InputError, match=message) as caught:
        read_memory_state(data)
    assert "\n" not in str(caught.value)


def device_file(entry=None, **fields):
    entries = []
    if entry:
        names = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r"}
        entries.append({**names, "AllocResp": "Cg==", **entry})

    data = {"PodDeviceEntries": entries, "RegisteredDevices": {"r": ["b", "a"], "s": None}}
    return json.dumps({"Data": data, "Checksum": 1, **fields}).encode()


def test_devices_are_grouped_by_numa_node():
    """A device near several nodes is in several groups, and counts once."""
    checkpoint = read_device_checkpoint(
        device_file({"DeviceIDs": {"0": ["b", "a"], "1": ["a"], "-1": None}})
    )
    (entry,) = checkpoint.entries
    assert entry.devices == {0: ("b", "a"), 1: ("a",), -1: ()}
    assert (entry.ids, entry.response) == (("a", "b"), b"\n")
    assert checkpoint.registered == {"r": ("b", "a"), "s": ()}
    assert not checkpoint.is_intact


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"{}", "the field 'Data', which is missing"),
        (device_file({"DeviceIDs": {"x": []}}), "ids of NUMA nodes, got 'x'"),
        (device_file({"DeviceIDs": ["a"]}), "DeviceIDs"),
        (device_file({"AllocResp": "=="}), "in kubelet_internal_checkpoint"),
    ],
)
def test_a_damaged_checkpoint_of_devices_is_one_line(data, message):
    with pytest.raises(InputError, match=message) as caught:
        read_device_checkpoint(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("gate", BY_GATE)
@pytest.mark.parametrize(("version", "formats"), [(NEWEST, (4, 3)), (OLDER, (2, 1))])
def test_files_of_a_real_kubelet_are_intact_to_it_and_to_the_one_before(gate, version, formats):
    cpu = read_cpu_state(BY_GATE[gate]["cpu"].encode(), version=version)
    memory = read_memory_state(BY_GATE[gate]["memory"].encode(), version=version)
    assert (cpu.is_intact, memory.is_intact) == (True, True)
    assert (cpu.version, memory.version) == formats
    assert cpu.entries == CPUS
    assert cpu.shared == CPUSet([0, 4, 5, 7])
    assert memory.entries["uid-a"]["side"] == (MemoryBlock((0,), "memory", 1 << 30),)


def test_only_the_text_says_what_pods_have_as_a_whole():
    written = BY_GATE["PodLevelResourceManagers"]
    assert read_cpu_state(written["cpu"].encode()).pods == {"uid-a": CPUSet([1, 2, 3])}
    assert read_cpu_state(written["cpu"].encode(), version=OLDER).pods == {}
    assert read_memory_state(written["memory"].encode()).pods == {
        "uid-a": (MemoryBlock((0,), "memory", 3 << 30),)
    }


@pytest.mark.parametrize(("kind", "read"), [("cpu", read_cpu_state), ("memory", read_memory_state)])
def test_the_text_beside_the_older_format_counts_alone(kind, read):
    """Changes beside it do nothing.

    A wrong or missing sum over it is an error, without a way back.
    """
    wire: dict[str, Any] = json.loads(BY_GATE[""][kind])
    before = read(json.dumps(wire).encode())
    beside = read(json.dumps({**wire, "entries": {}, "checksum": 1}).encode())
    assert (beside.entries, beside.is_intact) == (before.entries, True)
    assert (before.other_outside, beside.other_outside) == ((), ("entries",))
    assert not read(
        json.dumps({**wire, "dataChecksum": wire["dataChecksum"] ^ 1}).encode()
    ).is_intact
    assert not read(json.dumps({**wire, "dataChecksum": 0}).encode()).is_intact
    assert not read(json.dumps({**wire, "data": wire["data"] + " "}).encode()).is_intact
    for torn in ("", wire["data"][:-1]):
        with pytest.raises(InputError, match="data in"):
            read(json.dumps({**wire, "data": torn}).encode())

    without = {key: value for key, value in wire.items() if not key.startswith("data")}
    assert read(json.dumps(without).encode()).is_intact


@pytest.mark.parametrize("gate", BY_GATE)
@pytest.mark.parametrize(("kind", "read"), [("cpu", read_cpu_state), ("memory", read_memory_state)])
def test_what_a_kubelet_writes_beside_the_text_is_no_edit(gate, kind, read):
    """It writes the CPUs and memory of whole pods into the text only."""
    assert read(BY_GATE[gate][kind].encode()).other_outside == ()


@pytest.mark.parametrize(
    ("kind", "read", "key", "value"),
    [
        ("cpu", read_cpu_state, "policyName", "none"),
        ("cpu", read_cpu_state, "defaultCpuSet", "0-7"),
        ("cpu", read_cpu_state, "podEntries", {"uid-z": {"cpuSet": "7"}}),
        ("memory", read_memory_state, "policyName", "None"),
        ("memory", read_memory_state, "machineState", {}),
    ],
)
def test_each_key_that_was_edited_beside_the_text_is_told(kind, read, key, value):
    wire = {**json.loads(BY_GATE[""][kind]), key: value}
    assert read(json.dumps(wire).encode()).other_outside == (key,)


def test_a_pod_keeps_what_it_has_as_a_whole_until_its_last_container_is_gone():
    written = BY_GATE["PodLevelResourceManagers"]
    state = KubeletState(
        read_cpu_state(written["cpu"].encode()), read_memory_state(written["memory"].encode())
    )
    for stale, shared in ((("side",), [0, 4, 5, 7]), (("main", "side"), [0, 1, 2, 3, 4, 5, 7])):
        remaining = state.without(lambda uid, name, stale=stale: uid == "uid-a" and name in stale)
        cpu, memory = remaining.cpu, remaining.memory
        assert cpu is not None
        assert memory is not None
        assert cpu.shared == CPUSet(shared)
        assert ("uid-a" in cpu.pods) is ("uid-a" in memory.pods) is (len(stale) == 1)


@pytest.mark.parametrize(
    ("written", "whole"),
    list(zip(RUNNING, ([], ["w-node-real"]), strict=True)),
    ids=["default gates", "PodLevelResourceManagers"],
)
def test_what_a_running_kubelet_wrote_is_read_and_verified(written, whole):
    cpu = read_cpu_state(written["cpu"].encode())
    memory = read_memory_state(written["memory"].encode())
    assert (cpu.is_intact, cpu.version, memory.is_intact, memory.version) == (True, 4, True, 3)

    listed = pods_from_wire(plain_answer(written["list"]))
    pods = pods_by_uid(KubeletState(cpu, memory), listed)
    holding = {pod.name for pod in listed if pod.holds_something}
    assert {pod.name for pod in pods.values()} == holding

    assert [pod.name for uid, pod in pods.items() if uid in cpu.pods] == whole
    for uid in cpu.pods:
        assert pods[uid].cpus == cpu.pods[uid]
        assert pods[uid].memory == memory.pods[uid]


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
