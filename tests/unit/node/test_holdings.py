"""What a node has, what is reserved and free, and who holds the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.machine.device_inventory import Device
from alignup.node import Node
from alignup.node.holdings import (
    ContainerHolding,
    PlaceAmounts,
    amounts_of,
    holdings_of,
    scores_of,
)
from alignup.records import json_of
from inputs.machines import GIBI, busy_node, machine_of, manifest
from inputs.strategies import examples


def two_nodes(**changes: Any) -> Node:
    """Return a node of 2 NUMA nodes, 4 CPUs and 32 GiB each, CPU 0 and a GiB of node 0 reserved."""
    description = {
        "machine": machine_of(2, 2),
        "kubelet": {
            "topologyManagerPolicy": "best-effort",
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        },
        "devices": {
            "a/gpu": [
                {"id": "g0", "numa": [0]},
                {"id": "g1", "numa": [1]},
                {"id": "g2", "numa": [0, 1]},
                {"id": "g3"},
                {"id": "g4", "numa": [1], "healthy": False},
            ]
        },
    }

    return Node.from_dict({**description, **changes})


def wish(uid: str, **limits: str) -> dict[str, Any]:
    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "c0", "resources": {"limits": limits}}]},
    }


def test_an_empty_node_has_all_but_what_is_reserved() -> None:
    holdings = holdings_of(two_nodes())

    assert [amounts.resource for amounts in holdings.resources] == ["cpu", "memory", "a/gpu"]
    assert holdings.amounts("cpu").places == (
        PlaceAmounts((0,), 4, 3, 3),
        PlaceAmounts((1,), 4, 4, 4),
    )
    assert [place.reserved for place in holdings.amounts("memory").places] == [GIBI, 0]
    assert (holdings.containers, holdings.memory_groups, str(holdings.reserved_cpus)) == (
        (),
        (),
        "0",
    )
    assert str(holdings.shared_cpus) == "0-7"


def test_devices_are_told_by_the_nodes_that_they_are_near_to() -> None:
    gpus = holdings_of(two_nodes()).amounts("a/gpu")

    assert gpus.places == (
        PlaceAmounts((0,), 1, 1, 1),
        PlaceAmounts((1,), 2, 1, 1),
        PlaceAmounts((0, 1), 1, 1, 1),
        PlaceAmounts((), 1, 1, 1),
    )
    assert gpus.devices == {"g0": (0,), "g1": (1,), "g2": (0, 1), "g3": (), "g4": (1,)}
    assert gpus.unhealthy == ("g4",)
    assert (gpus.capacity, gpus.allocatable, gpus.free) == (5, 4, 4)


def test_a_device_that_is_gone_is_still_held() -> None:
    node = two_nodes()
    node.admit(wish("p", cpu="1", memory="1Gi", **{"a/gpu": "1"}))
    [device] = node.allocation("p", "c0").devices["a/gpu"]
    node.devices.update("a/gpu", [Device("new", (0,))])

    holdings = holdings_of(node)

    assert holdings.amounts("a/gpu").unhealthy == (device,)
    assert [
        container.label for container in holdings.containers if device in container.devices["a/gpu"]
    ] == ["default/p/c0"]

    gpus = holdings.amounts("a/gpu")
    [place] = gpus.places
    assert (place.capacity, place.allocatable, place.held, place.free) == (2, 1, 1, 1)
    assert (place.reserved, place.unavailable) == (0, 1)
    # the score of a hint is the kubelet's, which does not count it
    assert gpus.score({0, 1}) == 1
    assert gpus.to_dict()["unhealthy"] == [device]


def test_containers_hold_what_they_were_given() -> None:
    node = two_nodes()
    allocation = node.admit(wish("p", cpu="2", memory="40Gi", **{"a/gpu": "1"})).containers["c0"]
    node.admit(wish("q", cpu="500m"))

    holdings = holdings_of(node)

    first, second = holdings.containers
    assert (first.pod, first.container, first.cpus) == ("default/p", "c0", allocation.cpus)
    assert first.devices == allocation.devices
    assert first.memory == {"memory": {0: 31 * GIBI, 1: 9 * GIBI}}
    assert second == ContainerHolding("q", "default/q", "c0")
    assert (bool(first), bool(second)) == (True, False)
    assert [container for container in holdings.containers if container.cpus] == [first]
    assert json_of(holdings.memory_groups) == [
        {"numaNodes": [0, 1], "pods": ["default/p"], "usable": True}
    ]


def test_a_node_bound_to_itself_breaks_the_group() -> None:
    node = two_nodes()
    node.admit(wish("small", cpu="1", memory="1Gi"))
    holdings = holdings_of(node)

    assert [(group.numa_nodes, group.pods) for group in holdings.memory_groups] == [
        ((0,), ("default/small",))
    ]


def test_a_pod_that_is_removed_leaves_nothing() -> None:
    node = two_nodes()
    before = holdings_of(node)
    node.admit(wish("p", cpu="2", memory="40Gi", **{"a/gpu": "2"}))
    assert holdings_of(node) != before
    node.remove("p")
    assert holdings_of(node) == before


def test_without_managers_there_is_nothing_to_tell() -> None:
    node = two_nodes(kubelet={}, devices={})
    node.admit(wish("p", cpu="1", memory="1Gi"))
    holdings = holdings_of(node)

    assert (holdings.resources, holdings.memory_groups, holdings.shared_cpus) == ((), (), None)
    assert holdings.amounts("cpu") is None
    assert [bool(container) for container in holdings.containers] == [False]


def test_a_record_is_plain_json() -> None:
    node = busy_node()
    node.admit(manifest("p", 2, 1, 1))
    described = holdings_of(node).to_dict()

    assert json.loads(json.dumps(described)) == described
    assert described["containers"][0]["memory"] == [{"numaNode": 0, "type": "memory", "size": GIBI}]
    assert described["resources"][1]["places"][0]["free"] == 30 * GIBI


@examples(30)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 50), st.integers(0, 3)), min_size=1, max_size=6
    ),
    st.integers(0, 5),
)
def test_held_and_free_add_up(wishes: list[tuple[int, int, int]], removed: int) -> None:
    """Whatever came and went, what containers hold is what is not free."""
    node = busy_node()
    for index, (cpus, gibi, devices) in enumerate(wishes):
        node.admit(manifest(f"p{index}", cpus, gibi, devices))

    if f"p{removed}" in [pod.uid for pod in node.pods]:
        node.remove(f"p{removed}")

    holdings = holdings_of(node)

    for amounts in holdings.resources:
        for place in amounts.places:
            assert 0 <= place.free <= place.allocatable <= place.capacity
        allocated = sum(place.held for place in amounts.places)
        if amounts.resource == "cpu":
            cpus = {cpu for container in holdings.containers for cpu in container.cpus or ()}
            assert allocated == len(cpus)
        elif amounts.resource == "memory":
            assert allocated == sum(
                sum(container.memory.get("memory", {}).values())
                for container in holdings.containers
            )
        else:
            devices = {
                device
                for container in holdings.containers
                for device in container.devices.get(amounts.resource, ())
            }
            assert allocated == len(devices)


@pytest.mark.parametrize("name", ["memory", "cpu"])
def test_nodes_without_cpus_or_memory_are_places_too(name: str) -> None:
    """A place for each NUMA node, in the order of their ids.

    As on a machine with accelerators' memory.
    """
    machine = machine_of(2, 2)
    machine["numaNodes"].append({"id": 9, "memory": GIBI, "cores": [], "distances": None})
    for numa_node in machine["numaNodes"]:
        numa_node.pop("distances")
    holdings = holdings_of(two_nodes(machine=machine, devices={}))

    assert [place.numa_nodes for place in holdings.amounts(name).places] == [(0,), (1,), (9,)]


def test_a_score_is_the_percentage_that_is_held_of_what_can_be_had() -> None:
    """Devices count on each NUMA node that they are near to, unless they are unhealthy."""
    node = two_nodes()
    assert node.admit(wish("p", cpu="2", memory="12Gi", **{"a/gpu": "1"})).admitted
    score_of = scores_of(amounts_of(node), node.machine.numa_node_ids)

    scores = {
        (provider, resource): [score_of(provider, resource, mask) for mask in (0b01, 0b10, 0b11)]
        for provider, resource in (("cpu", "cpu"), ("memory", "memory"), ("devices", "a/gpu"))
    }
    assert scores == {
        ("cpu", "cpu"): [66, 1, 28],  # 2 of 3, 0 of 4, 2 of 7
        ("memory", "memory"): [38, 1, 19],  # 12 of 31 GiB, 0 of 32, 12 of 63
        ("devices", "a/gpu"): [50, 1, 33],  # 1 of g0 and g2, 0 of g1 and g2
    }


def test_nothing_has_no_score() -> None:
    """Neither what can be had nowhere, nor what a user's provider offers."""
    node = two_nodes(devices={"a/gpu": [{"id": "g0", "numa": [0], "healthy": False}]})
    score_of = scores_of(amounts_of(node), node.machine.numa_node_ids)

    assert score_of("devices", "a/gpu", 0b01) == 0
    assert score_of("licences", "cpu", 0b01) == 0
    assert score_of("devices", "a/nic", 0b01) == 0
    assert score_of("cpu", "cpu", 0b01) == 1
