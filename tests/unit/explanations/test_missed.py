"""How well an admitted pod is aligned, and which better placement it missed."""

from __future__ import annotations

from alignup import explain
from alignup.node import Node
from inputs.machines import machine_of
from inputs.refusals import article, node_of, wish


def test_an_admitted_pod_says_where_it_is() -> None:
    explanation = explain(article(), wish("x", cpu="2"))

    assert explanation.admitted
    assert (explanation.cause, explanation.cause_kind) == (
        "admitted, aligned on NUMA node 0",
        "aligned",
    )
    assert explanation.suggestions == ()


def test_an_admitted_pod_says_what_it_missed_and_why() -> None:
    node = Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": {"topologyManagerPolicy": "best-effort", "cpuManagerPolicy": "static"},
        }
    )
    node.admit(wish("a", cpu="2"))
    node.admit(wish("b", cpu="3"))
    explanation = explain(node, wish("x", cpu="3"))

    assert explanation.admitted
    assert explanation.cause_kind == "missed"
    assert explanation.containers[0].missed == ("3 cpu need 2 NUMA nodes (at most 2 free on one)")


def test_containers_on_different_nodes_are_named_though_some_share_one() -> None:
    node = node_of(topologyManagerPolicy="single-numa-node")
    spec = {
        "containers": [
            {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}
            for name, cpu in (("a", "4"), ("b", "3"), ("c", "6"))
        ]
    }
    explanation = explain(node, {"metadata": {"name": "p", "uid": "p"}, "spec": spec})
    assert explanation.cause == (
        "admitted, aligned on NUMA node 0 (a), NUMA node 0 (b), NUMA node 1 (c), "
        "every container with all its resources on its preferred NUMA nodes"
    )


def test_a_device_near_to_several_nodes_is_on_none_of_them() -> None:
    node = Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": {"topologyManagerPolicy": "best-effort"},
            "devices": {
                "x/near": [{"id": "a", "numa": [1]}],
                "x/between": [{"id": "b", "numa": [0, 1]}],
            },
        }
    )

    assert (
        explain(node, wish("x", **{"x/near": "1", "x/between": "1"})).cause
        == "admitted, aligned on NUMA node 1"
    )
