"""Which pod of PodResources is which uid of the state files."""

from __future__ import annotations

from alignup.kubelet.checkpoints import (
    CpuState,
    DeviceCheckpoint,
    DeviceEntry,
    KubeletState,
    MemoryState,
)
from alignup.kubelet.pod_resources import ContainerResources, PodResources
from alignup.kubelet.read import pods_by_uid
from alignup.machine.cpuset import CPUSet
from alignup.topology_manager.admission import MemoryBlock

GIB = MemoryBlock((0,), "memory", 2**30)


def pod(name, cpus="", memory=(), devices=(), container="c"):
    devices_by_resource = {"r": tuple(devices)} if devices else {}
    return PodResources(
        "n",
        name,
        (ContainerResources(container, CPUSet.parse(cpus), tuple(memory), devices_by_resource),),
    )


def state(cpus=(), memory=(), devices=()):
    return KubeletState(
        CpuState(
            "static", CPUSet(), {uid: {"c": CPUSet.parse(text)} for uid, text in dict(cpus).items()}
        ),
        MemoryState("Static", {}, {uid: {"c": blocks} for uid, blocks in dict(memory).items()}),
        DeviceCheckpoint(
            tuple(DeviceEntry(uid, "c", "r", {0: ids}, b"") for uid, ids in dict(devices).items()),
            {},
        ),
    )


def names(*arguments, **files):
    return {
        uid: pod_resources.name
        for uid, pod_resources in pods_by_uid(state(**files), arguments).items()
    }


def test_cpus_and_devices_tell_pods_apart():
    names_by_uid = names(
        pod("a", "1-2"),
        pod("b", "3"),
        pod("c", devices=("x",)),
        cpus={"1": "3", "2": "1-2"},
        devices={"3": ("x",)},
    )
    assert names_by_uid == {"1": "b", "2": "a", "3": "c"}


def test_pods_that_hold_the_same_memory_are_dealt_out():
    names_by_uid = names(
        pod("a", memory=[GIB]), pod("b", memory=[GIB]), memory={"1": (GIB,), "2": (GIB,)}
    )
    assert sorted(names_by_uid.values()) == ["a", "b"]


def test_another_container_or_amount_is_another_pod():
    assert names(pod("a", "1", container="d"), pod("b", "1-2"), pod("c"), cpus={"1": "1"}) == {}


def test_init_containers_are_in_the_files_only():
    files = state(cpus={"1": "1"})
    entries = {"1": {"c": CPUSet.parse("1"), "init": CPUSet.parse("1-4")}}
    files = KubeletState(CpuState("static", CPUSet(), entries), files.memory, files.devices)
    assert pods_by_uid(files, [pod("a", "1")])["1"].name == "a"
