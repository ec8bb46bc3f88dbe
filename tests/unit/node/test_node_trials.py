"""A trial gives the record of the admission that follows, of every kind of node.

It leaves the node as it was.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from alignup import read_pod
from alignup.errors import PodExistsError
from alignup.node import Node
from inputs.cluster_nodes import GIBI, node_of, pod_of
from inputs.strategies import seeds

NODE = {
    "machine": {"numaNodes": [{"id": 0, "memory": GIBI, "cores": [{"cpus": [0, 1], "socket": 0}]}]},
    "kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
}


def of_one_container(random, scenario):
    """Return a pod that suits the node, with its last container only."""
    pod = read_pod(pod_of(random, "new", scenario["machine"], scenario["devices"]))
    [*_, last] = pod.containers
    return replace(
        pod,
        init_containers=(),
        containers=(last,),
        all_containers=(),
        exclusive_cpus=last.exclusive_cpus,
        memory=last.memory,
        devices=last.devices,
        annotations={},
    )


def free_amounts(node):
    """Return the free devices and the free memory of a node."""
    providers = (node.devices, node.memory)
    return [None if provider is None else provider.free for provider in providers]


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_a_trial_is_what_admit_gives(seed):
    """Verdict, reason, sentence, affinity, CPUs, memory and devices.

    The next pod finds the node unchanged.
    """
    random = Random(seed)
    admitted = refused = 0
    for _ in range(60):
        scenario, node = node_of(random)
        for _ in range(4):
            pod = of_one_container(random, scenario)
            free, shared = free_amounts(node), node.shared_cpus

            tried = node.try_admit(pod)
            admission = node.copy().admit(pod)
            assert tried == admission
            assert tried.message == admission.message
            assert tried.to_dict() == admission.to_dict()
            assert (free_amounts(node), node.shared_cpus) == (free, shared)
            admitted += tried.admitted
            refused += not tried.admitted

    assert admitted > 50
    assert refused > 50


def pod(*names, **metadata):
    limits = {"cpu": "1", "memory": "1Mi"}
    containers = [{"name": name, "image": "i", "resources": {"limits": limits}} for name in names]
    return read_pod(
        {"metadata": {"name": "p", "uid": "p", **metadata}, "spec": {"containers": containers}}
    )


def test_several_containers_are_admitted_and_taken_back():
    """So is one with a policy of its own."""
    node = Node.from_dict(NODE)
    assert (
        set(node.try_admit(pod("a", "b")).containers) == {"a", "b"}
        or not node.try_admit(pod("a", "b")).admitted
    )
    asks = pod("a", annotations={"scheduling.koordinator.sh/numa-topology-spec": "{}"})
    assert node.try_admit(asks) == node.copy().admit(asks)
    assert node.pods == ()


def test_a_pod_that_is_there_is_refused_as_ever():
    node = Node.from_dict(NODE)
    node.admit(pod("a"))
    with pytest.raises(PodExistsError):
        node.try_admit(pod("a"))


def test_others_providers_are_asked_to_allocate():
    class Other:
        topology_hints = pod_topology_hints = allocate = release = staticmethod(lambda *_: None)

    node = Node.from_dict(NODE, providers=[Other()])
    assert node.try_admit(pod("a")).admitted


def test_a_plugin_that_changes_the_node_while_it_is_asked():
    """As in an admission, that is an error of the plugin's."""
    node = Node.from_dict(
        {**NODE, "devices": {"example.com/gpu": [{"id": f"g{n}", "numa": [0]} for n in range(3)]}},
        plugins={"example.com/gpu": lambda *_: node.remove("p")},
    )
    node.admit(pod("a"))

    asking = read_pod(
        {
            "metadata": {"name": "q", "uid": "q"},
            "spec": {
                "containers": [{"name": "a", "resources": {"limits": {"example.com/gpu": "1"}}}]
            },
        }
    )

    assert not node.try_admit(asking).admitted
    assert node.manager.has_pod("p")
