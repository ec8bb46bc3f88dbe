"""Whether a node admits pods in whatever order they come, against each order tried."""

from __future__ import annotations

import json
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING

import pytest

from alignup import read_pod
from alignup.cluster.admission_orders import MOST_ORDERS, admits_in_any_order
from alignup.kubelet.node_resource_topology.report import Description
from inputs.watched_objects import description, pod_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node


def empty_node() -> Node:
    """Return a node of two NUMA nodes with 3 and 4 CPUs, a GPU each, and a NIC on the first."""
    described = description()
    described["devices"]["example.com/nic"] = [{"id": "nic0", "numa": 0}]
    return Description().template(json.dumps(described), {})


def pod_of(name: str, *containers: dict[str, object]) -> Pod:
    manifest = pod_object(name, "")
    manifest["spec"]["containers"] = [
        {**pod_object(name, "", **limits)["spec"]["containers"][0], "name": f"c{number}"}
        for number, limits in enumerate(containers)
    ]
    return read_pod(manifest)


def each_order_is_admitted(node: Node, pods: Sequence[Pod]) -> bool:
    """Try all orders, equal pods or not."""
    for order in permutations(pods):
        copy = node.copy()
        if not all(copy.admit(pod).admitted for pod in order):
            return False
    return True


@pytest.mark.parametrize("seed", range(60))
def test_it_is_so_where_each_order_is_admitted(seed) -> None:
    random = Random(seed)
    sizes = [
        {"cpu": random.randint(1, 3), random.choice(["memory", "example.com/gpu"]): 1}
        for _ in range(3)
    ]
    node = empty_node()
    for number in range(random.randint(0, 2)):
        node.admit(pod_of(f"old-{number}", {"cpu": 1}))
    before = node.copy()
    pods = [
        pod_of(f"p{number}", *random.choices(sizes, k=random.randint(1, 2)))
        for number in range(random.randint(1, 4))
    ]
    assert admits_in_any_order(node, pods) is each_order_is_admitted(before, pods)
    assert [pod.uid for pod in node.pods] == [pod.uid for pod in before.pods]


def test_an_order_may_be_admitted_where_another_one_is_not() -> None:
    small, large = pod_of("small", {"cpu": 3}), pod_of("large", {"cpu": 4})
    node = empty_node()
    assert admits_in_any_order(node, [small, large])
    two = [pod_of("a", {"cpu": 2}), pod_of("b", {"cpu": 2}), pod_of("c", {"cpu": 3})]
    assert admits_in_any_order(node, two) is each_order_is_admitted(node, two)


def test_of_too_many_orders_none_is_tried() -> None:
    pods = [pod_of(f"p{number}", {"memory": number + 1}) for number in range(5)]
    assert MOST_ORDERS < 5 * 4 * 3 * 2
    assert not admits_in_any_order(empty_node(), pods)
    copies = [pod_of(f"p{number}", {"cpu": 1}) for number in range(7)]
    assert admits_in_any_order(empty_node(), copies)
