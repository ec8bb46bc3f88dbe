"""PodResources answers in protobuf's JSON."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.kubelet.layout import LIST, FolderFiles
from alignup.kubelet.pod_resources import (
    ContainerResources,
    PodResources,
    allocatable_from_wire,
    pods_from_wire,
    read_answer,
)
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.topology_manager.admission import MemoryBlock

CPUS, NO_CPUS, MEMORY = CPUSet([1]), CPUSet(), (MemoryBlock((0,), "memory", 1),)
TOPOLOGY = {"nodes": [{"ID": "1"}, {}]}
ORIGINAL = {
    "pod_resources": [
        {
            "name": "p",
            "namespace": "n",
            "containers": [
                {
                    "name": "c",
                    "cpu_ids": ["3", "1"],
                    "memory": [{"memory_type": "memory", "size": "1024", "topology": TOPOLOGY}],
                    "devices": [
                        {"resource_name": "r", "device_ids": ["b"], "topology": TOPOLOGY},
                        {"resource_name": "r", "device_ids": ["a"]},
                    ],
                }
            ],
        }
    ]
}
CAMEL = json.loads(
    json.dumps(ORIGINAL)
    .replace("pod_resources", "podResources")
    .replace("cpu_ids", "cpuIds")
    .replace("memory_type", "memoryType")
    .replace("resource_name", "resourceName")
    .replace("device_ids", "deviceIds")
)


def answer(root, document):
    (root / "podresources").mkdir(exist_ok=True)
    text = document
    if not isinstance(document, str):
        text = json.dumps(document)

    (root / LIST).write_text(text)
    return read_answer(FolderFiles(root), LIST)


@pytest.mark.parametrize("document", [ORIGINAL, CAMEL], ids=["names of the file", "names of JSON"])
def test_a_list_is_read_in_both_spellings(tmp_path, document):
    """NUMA node 0 is left out by protobuf, and 64 bits are text."""
    (pod,) = pods_from_wire(answer(tmp_path, document))
    (container,) = pod.containers
    assert (pod.namespace, pod.name, container.name) == ("n", "p", "c")
    assert container.cpus == CPUSet([1, 3])
    assert container.memory == (MemoryBlock((0, 1), "memory", 1024),)
    assert container.devices == {"r": ("a", "b")}


def test_a_device_in_several_entries_is_near_all_their_nodes():
    wire = {
        "devices": [
            {"resource_name": "r", "device_ids": ["a"], "topology": {"nodes": [{"ID": 1}]}},
            {"resource_name": "r", "device_ids": ["a", "b"], "topology": {"nodes": [{}]}},
            {"resource_name": "s", "device_ids": ["x"]},
        ],
        "cpu_ids": [0, 2],
    }

    allocatable = allocatable_from_wire(wire)
    assert allocatable.devices == {
        "r": (Device("a", (0, 1)), Device("b", (0,))),
        "s": (Device("x", None),),
    }
    assert allocatable.cpus == CPUSet([0, 2])


def test_a_missing_answer_is_none(tmp_path):
    assert read_answer(FolderFiles(tmp_path), LIST) is None


@pytest.mark.parametrize(
    "document",
    [
        "[]",
        "{",
        '{"pod_resources": 3}',
        '{"pod_resources": [{"containers": [{"cpu_ids": ["x"]}]}]}',
    ],
)
def test_damage_is_one_line(tmp_path, document):
    with pytest.raises(InputError) as caught:
        pods_from_wire(answer(tmp_path, document))
    assert "\n" not in str(caught.value)


def test_cpus_beyond_all_machines_are_refused():
    with pytest.raises(InputError, match="a CPU number"):
        allocatable_from_wire({"cpu_ids": [2**40]})


@pytest.mark.parametrize(
    ("resources", "holds"),
    [
        (PodResources("n", "p", ()), False),
        (PodResources("n", "p", (), CPUS), True),
        (PodResources("n", "p", (), NO_CPUS, MEMORY), True),
        (PodResources("n", "p", (ContainerResources("c", NO_CPUS, (), {}),)), False),
        (PodResources("n", "p", (ContainerResources("c", CPUS, (), {}),)), True),
        (PodResources("n", "p", (ContainerResources("c", NO_CPUS, MEMORY, {}),)), True),
        (PodResources("n", "p", (ContainerResources("c", NO_CPUS, (), {"r": ("a",)}),)), True),
    ],
)
def test_a_pod_holds_something_itself_or_by_a_container(resources, holds: bool) -> None:
    assert resources.holds_something is holds
