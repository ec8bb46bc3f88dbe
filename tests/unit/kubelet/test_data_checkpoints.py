"""State files of Kubernetes 1.37.

A text beside the older format has everything, and counts alone.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup.errors import InputError
from alignup.kubelet.checkpoints import KubeletState, read_cpu_state, read_memory_state
from alignup.kubelet.pod_resources import plain_answer, pods_from_wire
from alignup.kubelet.read import pods_by_uid
from alignup.kubernetes.versions import KubeletVersion
from alignup.machine.cpuset import CPUSet
from alignup.topology_manager.admission import MemoryBlock
from inputs.kubelet_files import EXAMPLE

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


@pytest.mark.parametrize("gate", BY_GATE)
@pytest.mark.parametrize("version", [NEWEST, OLDER])
def test_files_of_a_real_kubelet_are_intact_to_it_and_to_the_one_before(gate, version):
    cpu = read_cpu_state(BY_GATE[gate]["cpu"].encode(), version=version)
    memory = read_memory_state(BY_GATE[gate]["memory"].encode(), version=version)
    assert (cpu.is_intact, memory.is_intact) == (True, True)
    assert (cpu.version, memory.version) == ((4, 3) if version == NEWEST else (2, 1))
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
def test_the_text_counts_alone(kind, read):
    """Changes beside it do nothing.

    A wrong or missing sum over it is an error, without a way back.
    """
    wire: dict[str, Any] = json.loads(BY_GATE[""][kind])
    before = read(json.dumps(wire).encode())
    beside = read(json.dumps({**wire, "entries": {}, "checksum": 1}).encode())
    assert (beside.entries, beside.is_intact) == (before.entries, True)
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


@pytest.mark.parametrize("written", RUNNING, ids=["default gates", "PodLevelResourceManagers"])
def test_what_a_running_kubelet_wrote_is_read_and_verified(written):
    cpu = read_cpu_state(written["cpu"].encode())
    memory = read_memory_state(written["memory"].encode())
    assert (cpu.is_intact, cpu.version, memory.is_intact, memory.version) == (True, 4, True, 3)

    listed = pods_from_wire(plain_answer(written["list"]))
    pods = pods_by_uid(KubeletState(cpu, memory), listed)
    holding = {pod.name for pod in listed if pod.holds_something}
    assert {pod.name for pod in pods.values()} == holding

    whole = [pod.name for uid, pod in pods.items() if uid in cpu.pods]
    assert whole == (["w-node-real"] if written["gate"] else [])
    for uid in cpu.pods:
        assert pods[uid].cpus == cpu.pods[uid]
        assert pods[uid].memory == memory.pods[uid]
