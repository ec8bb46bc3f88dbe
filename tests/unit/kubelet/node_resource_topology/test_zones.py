"""Amounts and costs of zones: from text and from plain objects alike, and what a missing one means."""

from __future__ import annotations

import json
from random import Random

import pytest

from alignup.errors import InputError
from alignup.kubelet.node_resource_topology.read import read_topologies
from strategies import seeds

AMOUNTS = ("0", "1", "7", "16", "4096", 3, "2k", "1Gi", "1500m", None, "9" * 16, "9" * 17, -1, 2.5, "x")


def topology(random):
    """Return an object as exporters write it, with something unusual now and then."""

    def amount():
        return random.choice(AMOUNTS[:5] if random.random() < 0.98 else AMOUNTS)

    count = random.randint(1, 4)
    names = [f"node-{number}" for number in random.sample(range(12), count)]
    zones = []
    for name in names:
        others = random.sample(names, count) if random.random() < 0.3 else names
        costs = [{"name": other, "value": random.choice([10, 20, 32])} for other in others]
        resources = []
        for resource in random.sample(["cpu", "memory", "hugepages-2Mi", "example.com/gpu", "storage"], 3):
            keys = random.sample(["capacity", "allocatable", "available"], random.choice([3, 3, 3, 2, 1, 0]))
            resources.append({"name": resource, **{key: amount() for key in keys}})
        zones.append({"name": name, "type": "Node", "costs": costs, "resources": resources})
    if random.random() < 0.2:
        zones.append({"name": "socket-0", "type": "Socket"})
    if random.random() < 0.1:
        random.choice(zones)[random.choice(["costs", "resources", "type"])] = random.choice([None, [], "Node", 3])
    attributes = [{"name": "topologyManagerPolicy", "value": "restricted"}]
    metadata = {"name": "a"}
    return {"kind": "NodeResourceTopology", "metadata": metadata, "attributes": attributes, "zones": zones}


def outcome(source):
    """Return what the reader makes of an object, or its complaint."""
    try:
        return read_topologies(source)[0].amounts
    except InputError as error:
        return str(error).partition(" in the objects")[0].replace("document 1, items[0]", "document 1")


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_text_and_objects_read_alike(seed):
    random = Random(seed)
    complaints = 0
    for _ in range(400):
        one = topology(random)
        text = json.dumps({"kind": "List", "items": [one]}).encode()
        assert outcome(one) == outcome(text)
        complaints += isinstance(outcome(one), str)
    assert 10 < complaints < 200


def zone(number, **changes):
    made = {
        "name": f"node-{number}",
        "type": "Node",
        "costs": [{"name": "node-0", "value": 10 + number}, {"name": "node-10", "value": 21 - number}],
        "resources": [{"name": "cpu", "capacity": "8", "allocatable": "6", "available": "3"}],
    }
    return {**made, **changes}


def amounts(*zones):
    return read_topologies({"kind": "NodeResourceTopology", "metadata": {"name": "a"}, "zones": zones})[0].amounts


def test_columns_and_costs_are_in_the_order_of_numbers():
    read = amounts(zone(10), zone(2), zone(0))
    assert read.numa_nodes == 3
    assert read.resources == {"cpu": ((8, 8, 8), (6, 6, 6), (3, 3, 3))}
    assert read.distances == ((10, 255, 21), (12, 255, 19), (20, 255, 11))


def test_a_missing_amount_is_the_next_larger_one():
    resources = [
        {"name": "a/a", "capacity": "8"},
        {"name": "b/b", "capacity": 8, "allocatable": "7"},
        {"name": "c/c", "available": "5"},
        {"name": "d/d", "allocatable": "4", "capacity": None},
        {"name": "e/e"},
        {"name": "f/f", "capacity": "9", "available": "2"},
        {"name": "storage", "capacity": "strange"},
        {"name": "cpu", "allocatable": "4", "available": "1"},
    ]
    read = amounts(zone(0, resources=resources, costs=None), zone(1, resources=None, costs=[]))
    assert (read.numa_nodes, read.distances) == (2, None)
    assert read.resources == {
        "a/a": ((8, 0), (8, 0), (8, 0)),
        "b/b": ((8, 0), (7, 0), (7, 0)),
        "c/c": ((5, 0), (5, 0), (5, 0)),
        "cpu": ((4, 0), (4, 0), (1, 0)),
        "d/d": ((4, 0), (4, 0), (4, 0)),
        "e/e": ((0, 0), (0, 0), (0, 0)),
        "f/f": ((9, 0), (9, 0), (2, 0)),
    }
