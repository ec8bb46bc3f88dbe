"""How well an admitted pod is aligned, and which better placement it missed."""

from __future__ import annotations

from alignup.node import Node
from explaining import article, wish
from machines import machine_of


def test_an_admitted_pod_says_where_it_is() -> None:
    explanation = article().explain(wish("x", cpu="2"))

    assert explanation.admitted
    assert (explanation.cause, explanation.cause_kind) == ("admitted, aligned on NUMA node 0", "aligned")
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
    explanation = node.explain(wish("x", cpu="3"))

    assert explanation.admitted
    assert explanation.cause_kind == "missed"
    assert explanation.containers[0].missed == (
        "cpu can now come only from nodes 0+1 (3 asked, 3 free: 2 on NUMA node 0, 1 on NUMA node 1)"
    )
