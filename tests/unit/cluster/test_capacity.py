"""Behaviour of `alignup.cluster.ranking`."""

from __future__ import annotations

import pytest

from alignup import read_machine, read_pod
from alignup.cluster.ranking import MOST_PODS, replicas_that_fit
from alignup.node import Node

FIELDS = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}


def pod(name="p", **limits):
    """Return a Guaranteed pod, or one that asks for nothing."""
    resources = {"limits": limits} if limits else {}
    return read_pod(
        {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c0", "resources": resources}]},
        }
    )


def node(policy="restricted"):
    """Return a node of 2 NUMA nodes of 4 CPUs, one of which is reserved."""
    return Node(read_machine("align-up-article"), {**FIELDS, "topologyManagerPolicy": policy})


@pytest.mark.parametrize(
    ("policy", "cpus", "count"),
    [
        ("restricted", "3", 2),
        ("restricted", "4", 1),
        ("best-effort", "5", 1),
        ("single-numa-node", "5", 0),
    ],
)
def test_as_many_as_the_node_admits_one_after_the_other(policy, cpus, count):
    asked = node(policy)
    assert replicas_that_fit([asked, asked], pod(cpu=cpus, memory="1Mi")) == [count, count]
    assert not asked.pods


def test_pods_that_are_there_count():
    asked = node()
    asked.admit(pod("old", cpu="3", memory="1Mi"))
    assert replicas_that_fit([asked], pod(cpu="3", memory="1Mi")) == [1]


def test_totals_count_where_nothing_is_pinned():
    """Fractions of CPUs are shared, and there are 8 to share, of which one is reserved."""
    assert replicas_that_fit([node()], pod(cpu="1500m", memory="1Mi")) == [4]


def test_pods_that_ask_for_nothing_are_as_many_as_a_kubelet_runs():
    asked = node()
    asked.admit(pod("old"))
    assert replicas_that_fit([asked], pod()) == [MOST_PODS - 1]


def test_what_no_node_has_fits_nowhere():
    assert replicas_that_fit([node()], pod(cpu="1", memory="1Mi", **{"a/gpu": "1"})) == [0]


def test_a_pod_may_come_where_too_much_is_requested_of_what_it_does_not_request():
    """Without a Static memory manager a kubelet admits more memory than there is."""
    asked = node()
    assert asked.admit(pod("old", cpu="1", memory="1Ti"))
    assert replicas_that_fit([asked], pod(cpu="1")) == [6]
