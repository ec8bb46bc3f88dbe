"""Behaviour of `alignup.machine.device_inventory`."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.machine.device_inventory import Device, decode_inventory
from alignup.machine.machine import Core, Machine, NumaNode

MACHINE = Machine((NumaNode(0, 0, (Core((0,), 0),)), NumaNode(8, 0, ())))


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
        "example.com/gpu": (Device("a", (0, 8)), Device("b", None, healthy=False), Device("c", None)),
        "example.com/nic": (),
    }


@pytest.mark.parametrize(
    ("inventory", "message"),
    [
        ([], r"a mapping of resources to lists of devices, got \[\] at devices"),
        ({1: []}, "the name of a resource, got 1"),
        ({"": []}, "the name of a resource, got ''"),
        ({"r": "gpu"}, r"a list of devices, got 'gpu' at devices\['r'\]"),
        ({"r": {}}, r"a list of devices, got \{\}"),
        ({"r": ["gpu-0"]}, r"a device with an id and its NUMA nodes, got 'gpu-0' at devices\['r'\]\[0\]"),
        ({"r": [{"numa": [0]}]}, r"the id of a device, got None at devices\['r'\]\[0\].id"),
        ({"r": [{"id": 3}]}, "the id of a device, got 3"),
        ({"r": [{"id": "a", "nodes": [0]}]}, "id, numa or healthy, got 'nodes'"),
        ({"r": [{"id": "a", "healthy": "yes"}]}, "true or false, got 'yes'"),
        ({"r": [{"id": "a", "numa": 0}]}, "a list of NUMA node ids, or null, got 0"),
        ({"r": [{"id": "a", "numa": "0"}]}, "a list of NUMA node ids, or null, got '0'"),
        ({"r": [{"id": "a", "numa": [True]}]}, "a NUMA node id, got True"),
        ({"r": [{"id": "a", "numa": [0, 3]}]}, r"NUMA nodes of this machine \(0, 8\), got 3"),
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
