"""Devices by resource: read, near which CPUs, and with their machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alignup import read_machine
from alignup.errors import AlignupWarning, InputError
from alignup.machine.device_inventory import (
    Device,
    LoadedMachine,
    decode_inventory,
    decode_preferred_sets,
    inventory_to_dict,
    near_cpu_nodes,
    nearest_cpu_nodes,
    repeated,
)
from alignup.machine.machine import Core, Machine, NumaNode

MACHINE = Machine((NumaNode(0, 0, (Core((0,), 0),)), NumaNode(8, 0, ())))

INVENTORY = {"r": (Device("a", None), Device("b", None))}


def test_an_inventory_is_decoded():
    """Nodes, their absence and health are read; what is missing has its default."""
    inventory = {
        "example.com/gpu": [
            {"id": "a", "numa": [0, 8]},
            {"id": "b", "numa": None, "healthy": False},
            {"id": "c"},
        ],
        "example.com/nic": [],
    }

    assert decode_inventory(inventory, MACHINE) == {
        "example.com/gpu": (
            Device("a", (0, 8)),
            Device("b", None, healthy=False),
            Device("c", None),
        ),
        "example.com/nic": (),
    }


def test_ids_that_come_again_are_named_once():
    assert repeated(("b", "a", "c", "b", "a", "b")) == ["b", "a"]
    assert repeated(["a", "b"]) == repeated(()) == []


def test_one_numa_node_need_not_be_a_list():
    """`numa: 0` is what people write first."""
    assert decode_inventory({"r": [{"id": "a", "numa": 8}]}, MACHINE) == {"r": (Device("a", (8,)),)}


@pytest.mark.parametrize(
    ("inventory", "message"),
    [
        ([], r"a mapping of resources to lists of devices, got \[\] at devices"),
        ({1: []}, "the name of a resource, got 1"),
        ({"": []}, "the name of a resource, got ''"),
        ({"r": "gpu"}, r"a list of devices, got 'gpu' at devices\['r'\]"),
        ({"r": {}}, r"a list of devices, got \{\}"),
        (
            {"r": ["gpu-0"]},
            r"a device with an id and its NUMA nodes, got 'gpu-0' at devices\['r'\]\[0\]",
        ),
        ({"r": [{"numa": [0]}]}, r"the id of a device, got None at devices\['r'\]\[0\].id"),
        ({"r": [{"id": 3}]}, "the id of a device, got 3"),
        ({"r": [{"id": "a", "nodes": [0]}]}, "id, numa, healthy or pci, got 'nodes'"),
        ({"r": [{"id": "a", "healthy": "yes"}]}, "true or false, got 'yes'"),
        ({"r": [{"id": "a", "numa": True}]}, "a list of NUMA node ids, or null, got True"),
        ({"r": [{"id": "a", "numa": "0"}]}, "a list of NUMA node ids, or null, got '0'"),
        ({"r": [{"id": "a", "numa": [True]}]}, "a NUMA node id, got True"),
        (
            {"r": [{"id": "a"}, {"id": "a"}]},
            r"an id that no other device .*, got 'a' at devices\['r'\]\[1\].id",
        ),
    ],
)
def test_a_wrong_inventory_says_what_and_where(inventory, message):
    """Errors name the resource, the entry and the field."""
    with pytest.raises(InputError, match=message):
        decode_inventory(inventory, MACHINE)


def test_records_are_taken_as_they_are():
    """Beside plain data; they are checked against the machine all the same."""
    assert decode_inventory({"r": [Device("a", (8,)), {"id": "b"}]}, MACHINE) == {
        "r": (Device("a", (8,)), Device("b", None))
    }
    with pytest.warns(AlignupWarning, match="does not have: 3"):
        decode_inventory({"r": [Device("a", (3,))]}, MACHINE)


def test_an_inventory_survives_json():
    """As scenarios have it: health only where there is none."""
    plain = {
        "r": [{"id": "a", "numa": [0, 8]}, {"id": "b", "numa": None, "healthy": False}],
        "empty": [],
    }
    assert inventory_to_dict(decode_inventory(plain, MACHINE)) == plain


def test_preferred_sets_are_decoded():
    """In their order, which counts."""
    assert decode_preferred_sets({"r": [["b", "a"], []]}, INVENTORY) == {"r": (("b", "a"), ())}


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], r"a mapping of resources to lists of sets, got \[\] at preferredSets"),
        ({"r": "a"}, r"a list of lists of device ids, got 'a' at preferredSets\['r'\]"),
        ({"r": ["a"]}, "a list of lists"),
        ({"r": [["c"]]}, r"device ids of 'r' \(a, b\), got \['c'\]"),
        ({"r": [[["a"]]]}, "device ids of 'r'"),
        ({"other": [["a"]]}, r"device ids of 'other' \(\)"),
    ],
)
def test_wrong_preferred_sets_say_what_and_where(sets, message):
    """Sets are of devices that there are."""
    with pytest.raises(InputError, match=message):
        decode_preferred_sets(sets, INVENTORY)


def test_the_error_of_a_preferred_set_names_a_few_ids():
    """There may be thousands, and long ones."""
    inventory = {"x/y": [Device("d" * 4000 + str(number), None) for number in range(100)]}
    with pytest.raises(InputError) as refused:
        decode_preferred_sets({"x/y": [["z"]]}, inventory)
    assert len(str(refused.value)) < 600


def test_numa_nodes_that_the_machine_lacks_are_passed_over_with_a_warning():
    """As a kubelet does: -1 is what a plugin reports that did not look."""
    devices = [{"id": "a", "numa": [-1]}, {"id": "b", "numa": [8, 3]}, {"id": "c", "numa": [0]}]

    with pytest.warns(
        AlignupWarning, match=r"devices\['r'\] names .* this machine \(0, 8\) .*: -1, 3; ignored"
    ) as said:
        inventory = decode_inventory({"r": devices}, MACHINE)

    assert inventory == {
        "r": (Device("a", (), has_only_unknown_nodes=True), Device("b", (8,)), Device("c", (0,)))
    }
    assert len(said) == 1
    assert "no hint" not in str(said[0].message)
    assert inventory_to_dict(inventory)["r"][0] == {"id": "a", "numa": [-1]}


def test_a_resource_of_devices_on_unknown_nodes_only_is_warned_of_as_one_that_is_refused():
    with pytest.warns(
        AlignupWarning, match="restricted and single-numa-node refuse every pod that asks for it"
    ):
        inventory = decode_inventory({"r": [{"id": "a", "numa": -1}, {"id": "b"}]}, MACHINE)
    with pytest.warns(AlignupWarning, match="no hint"):
        assert decode_inventory(inventory_to_dict(inventory), MACHINE) == inventory


def gpu_machine():
    """Two nodes with CPUs, one GPU node near each, and one as far from either."""
    return Machine(
        (
            NumaNode(0, 1, (Core((0,), 0),), (), (10, 40, 80, 120, 99)),
            NumaNode(8, 1, (Core((1,), 1),), (), (40, 10, 120, 80, 99)),
            NumaNode(250, 1, (), (), (80, 120, 10, 160, 160)),
            NumaNode(255, 1, (), (), (120, 80, 160, 10, 160)),
            NumaNode(300, 1, (), (), (99, 99, 160, 160, 10)),
        )
    )


@pytest.mark.parametrize(
    ("numa_id", "near"), [(0, (0,)), (8, (8,)), (250, (0,)), (255, (8,)), (300, (0, 8))]
)
def test_the_nearest_nodes_with_cpus(numa_id, near):
    """A node with CPUs is its own; of several as close, all are."""
    assert nearest_cpu_nodes(gpu_machine(), numa_id) == near


def test_without_distances_every_node_with_cpus_is_near():
    machine = gpu_machine()
    blind = Machine(tuple(replace(node, distances=()) for node in machine.numa_nodes))

    assert nearest_cpu_nodes(blind, 250) == (0, 8)
    assert nearest_cpu_nodes(blind, 0) == (0,)


def test_gpus_of_a_gb200_are_near_their_socket():
    machine = read_machine("gb200")

    assert [nearest_cpu_nodes(machine, numa_id) for numa_id in (2, 10, 18, 26)] == [
        (0,),
        (0,),
        (1,),
        (1,),
    ]


def test_an_inventory_is_moved_as_a_whole():
    """Devices of no node stay so; health is kept."""
    inventory = {
        "a/gpu": (Device("g0", (250,)), Device("g1", (250, 255), healthy=False)),
        "a/key": (Device("k", None),),
    }

    assert near_cpu_nodes(gpu_machine(), inventory) == {
        "a/gpu": (Device("g0", (0,)), Device("g1", (0, 8), healthy=False)),
        "a/key": (Device("k", None),),
    }


def test_a_node_that_does_not_exist_is_named():
    with pytest.raises(InputError, match="got 7 at the machine"):
        nearest_cpu_nodes(gpu_machine(), 7)


def test_sets_go_with_their_devices():
    """Those of other resources are kept."""
    loaded = LoadedMachine(MACHINE, {"a": (), "b": ()}, {"a": ((),), "b": ((),)})
    assert loaded.with_devices({"a": ()}).preferred_sets == {"b": ((),)}
    assert replace(loaded, devices={}).with_devices({"c": ()}, {"c": ()}).preferred_sets == {
        "a": ((),),
        "b": ((),),
        "c": (),
    }


def test_a_document_completes_what_it_says_itself():
    """Devices without sets drop those of the machine's devices; what is null or missing is kept."""
    loaded = LoadedMachine(
        MACHINE, {"a": (Device("x", None),)}, {"a": (("x",),)}, {"cpuManagerPolicy": "none"}
    )
    assert loaded.completed({"devices": None, "other": 3}) == loaded
    with_own_devices = loaded.completed({"devices": {"b": [{"id": "y"}]}})
    assert with_own_devices == replace(
        loaded, devices={"b": (Device("y", None),)}, preferred_sets={}
    )
    assert loaded.completed({"preferredSets": {}, "kubelet": {}}) == replace(
        loaded, preferred_sets={}, kubelet={}
    )
