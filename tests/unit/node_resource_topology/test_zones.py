"""Zones in the usual form and in any other are read by two readers, which must agree."""

from __future__ import annotations

import json
from random import Random

import pytest

from alignup.errors import InputError
from alignup.node_resource_topology.read import read_topologies, usual_zones

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
        random.choice(zones)[random.choice(["costs", "resources", "type"])] = random.choice(
            [None, [], "Node", 3]
        )
    attributes = [{"name": "topologyManagerPolicy", "value": "restricted"}]
    metadata = {"name": "a"}
    return {"kind": "NodeResourceTopology", "metadata": metadata, "attributes": attributes, "zones": zones}


def outcome(source):
    """Return what the reader makes of an object, or its complaint."""
    try:
        return read_topologies(source)[0].amounts
    except InputError as error:
        return str(error).partition(" in the objects")[0].replace("document 1, items[0]", "document 1")


@pytest.mark.parametrize("seed", range(3))
def test_both_readers_agree(seed):
    """Text goes to the careful one, plain objects to the fast one where it can."""
    random = Random(seed)
    usual = complaints = 0
    for _ in range(400):
        one = topology(random)
        text = json.dumps({"kind": "List", "items": [one]}).encode()
        assert outcome(one) == outcome(text)
        usual += usual_zones(one["zones"]) is not None
        complaints += isinstance(outcome(one), str)
    assert usual > 200
    assert 10 < complaints < 200
