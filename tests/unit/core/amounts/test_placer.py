"""Placing a pod in one call gives what its providers give when each is asked.

The node is left in the same state.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup import read_pod
from alignup.core.amounts.placer import Placer
from alignup.errors import ConfigError
from alignup.node import Node
from alignup.node.holdings import holdings_of
from inputs.cluster_nodes import devices_of, kubelet_of, machine_of, pod_of
from inputs.strategies import seeds

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

PODS = int(os.environ.get("ALIGNUP_PLACED_PODS", "500000"))
"""How many pods the long comparison takes."""
SEED = int(os.environ.get("ALIGNUP_PLACED_SEED", "44"))


def nodes_of(random: Random) -> tuple[dict[str, Any], Node, Node] | None:
    """Return what two nodes were made from, and both.

    One that places in one call, one that asks each provider.
    """
    machine = machine_of(random)
    inventory, sets = devices_of(random, machine)

    scenario = {
        "machine": machine,
        "kubelet": kubelet_of(random, machine),
        "devices": inventory,
        "preferredSets": sets if random.random() < 0.1 else {},
        "keepRefusedBindings": random.random() < 0.5,
        "kubeletVersion": random.choice(["1.31", "1.33", "1.36", "1.38"]),
    }

    try:
        return (
            scenario,
            Node.from_dict(scenario),
            Node.from_dict(scenario, wrap=lambda provider: provider),
        )
    except ConfigError:  # a kubelet would not start with it
        return None


def state(node: Node) -> tuple[object, ...]:
    """Return what the ledgers and the managers keep."""
    ledger = None if node.memory is None else node.memory.ledger
    return (
        [pod.uid for pod in node.pods],
        node.cpu and (node.cpu.ledger.given, node.cpu.ledger.free_by_node()),
        {resource: pool.ledger.given for resource, pool in node.pools.items()},
        ledger and (ledger.free, ledger.groups, ledger.alone, ledger.unused),
        {pod.uid: dict(node.manager.affinities(pod.uid)) for pod in node.pods},
    )


def plainly(random: Random, scenario: dict[str, Any], uid: str) -> Pod:
    """Return a pod that suits the node, mostly without init containers and a policy of its own.

    Such policies are for up to 8 NUMA nodes.
    """
    manifest = pod_of(random, uid, scenario["machine"], scenario["devices"])
    if random.random() < 0.9 or len(scenario["machine"]["numaNodes"]) > 8:
        manifest["metadata"]["annotations"] = {}
    if random.random() < 0.9:
        manifest["spec"]["initContainers"] = []
    return read_pod(manifest)


def compare(random: Random, pods: int) -> tuple[int, int]:
    """Let pods come to two nodes and go; return how many were admitted and refused."""
    nodes = nodes_of(random)
    if nodes is None:
        return 0, 0

    scenario, quick, slow = nodes
    assert slow.manager.placer is None
    verdicts = [0, 0]
    live: list[str] = []
    for number in range(pods):
        pod = plainly(random, scenario, f"u{number}")
        if random.random() < 0.3:
            assert quick.try_admit(pod) == slow.try_admit(pod)
        got, expected = quick.admit(pod), slow.admit(pod)
        assert (got, got.message, got.to_dict()) == (expected, expected.message, expected.to_dict())
        verdicts[not got.admitted] += 1
        if got.admitted:
            live.append(pod.uid)
        if live and random.random() < 0.4:
            uid = live.pop(random.randrange(len(live)))
            quick.remove(uid)
            slow.remove(uid)

        if random.random() < 0.05:
            before = quick.copy()
            pod = plainly(random, scenario, "copied")
            quick.try_admit(pod)
            assert state(before) == state(quick)
            before.admit(pod)

        assert state(quick) == state(slow)

    assert holdings_of(quick) == holdings_of(slow)
    assert all(quick.allocation(uid, "c0") == slow.allocation(uid, "c0") for uid in live)
    for uid in live:
        quick.remove(uid)
        slow.remove(uid)
        assert state(quick) == state(slow)

    return verdicts[0], verdicts[1]


@pytest.mark.parametrize("seed", seeds(1, 12))
def test_one_call_gives_what_each_provider_gives(seed: int) -> None:
    random = Random(seed)
    verdicts = [compare(random, 12) for _ in range(20)]
    assert sum(admitted for admitted, _ in verdicts) > 40
    assert sum(refused for _, refused in verdicts) > 40


@pytest.mark.slow
def test_one_call_gives_the_same_for_long() -> None:
    random = Random(SEED)
    remaining = PODS
    while remaining > 0:
        remaining -= sum(compare(random, 40))


def node_of(**more: Any) -> Node:
    limits = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0-1",
    }
    devices = {"example.com/gpu": [{"id": f"g{number}", "numa": number % 2} for number in range(8)]}
    return Node.from_dict({"machine": "xeon-2s", "kubelet": limits, "devices": devices}, **more)


def pod(uid: str, *requests: dict[str, str]) -> Pod:
    containers = [
        {"name": f"c{number}", "resources": {"limits": {"memory": "1Gi", **limits}}}
        for number, limits in enumerate(requests)
    ]
    return read_pod({"metadata": {"uid": uid, "name": uid}, "spec": {"containers": containers}})


def test_what_is_not_plain_is_left_to_the_providers() -> None:
    """Wrapped providers, those of users, and pods that a manager knows already."""
    assert node_of(wrap=lambda provider: provider).manager.placer is None

    class Other:
        topology_hints = pod_topology_hints = allocate = release = staticmethod(lambda *_: None)

    assert node_of(providers=[Other()]).manager.placer is None
    node = node_of()
    assert node.manager.placer is not None
    assert node.copy().manager.placer is not None
    assert node.copy(wrap=lambda provider: provider).manager.placer is None
    known_pod = pod("a", {"cpu": "2"})
    assert node.admit(known_pod).admitted
    assert node.manager.placer.preview(known_pod) is None
    assert node.manager.placer.preview(pod("b", {"cpu": "200"})) is None


def test_a_later_container_that_fails_leaves_nothing_of_the_earlier() -> None:
    node = node_of()
    before = state(node)
    placer = node.manager.placer
    assert placer is not None
    assert placer.preview(pod("a", {"cpu": "2", "example.com/gpu": "1"}, {"cpu": "200"})) is None
    assert placer.preview(pod("a", {"cpu": "2", "example.com/gpu": "1"}, {"cpu": "4"})) is not None
    assert state(node) == before


def test_a_record_shows_the_moment_of_the_admission() -> None:
    """Though it is read when the pod, and a device, are gone, and the same CPUs are another's."""
    node, twin = node_of(), node_of(wrap=lambda provider: provider)
    asking = pod("a", {"cpu": "4", "example.com/gpu": "2"})
    got, expected = node.admit(asking), twin.admit(asking)
    node.remove("a")
    assert node.devices is not None
    node.devices.update("example.com/gpu", node.devices.pools["example.com/gpu"].devices[3:])
    node.admit(pod("b", {"cpu": "8"}))
    assert got.containers == expected.containers
    assert replace(got, reason="other").containers == expected.containers


def test_arguments_are_checked() -> None:
    for numbers in ((0, 1), (65, 1), (2, 4), (2, -1)):
        with pytest.raises(ValueError, match="expected 1 to 64 NUMA nodes and one of 4 policies"):
            Placer(*numbers, False, None, None, None, None, None)


def unequal_sockets(version: str) -> Node:
    """Return a node with two NUMA nodes of 8 CPUs in one socket, and one in another."""
    numa = [
        {
            "id": node,
            "memory": 8 << 30,
            "distances": [10, 21, 21],
            "cores": [{"cpus": [8 * node + cpu], "socket": node // 2} for cpu in range(8)],
        }
        for node in range(3)
    ]
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    return Node.from_dict(
        {"machine": {"numaNodes": numa}, "kubelet": kubelet}, kubelet_version=version
    )


@pytest.mark.parametrize(
    ("version", "cpus", "is_placed"),
    [
        ("1.37", 4, True),
        ("1.37", 15, True),
        ("1.37", 16, False),  # the larger socket counts as free while 12 of its CPUs are
        ("1.38", 16, True),
    ],
)
def test_requests_smaller_than_the_larger_socket_are_placed_in_one_call(
    version: str, cpus: int, is_placed: bool
) -> None:
    node = unequal_sockets(version)
    limits = {"cpu": str(cpus), "memory": "1Gi"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    pod = read_pod({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}})
    assert node.manager.placer is not None
    assert (node.manager.placer.preview(pod) is not None) is is_placed
    assert node.admit(pod).admitted


@pytest.mark.parametrize("version", ["1.37", "1.38"])
@pytest.mark.parametrize("seed", seeds(2, 12))
def test_pods_on_unequal_sockets_are_placed_as_each_provider_would(version: str, seed: int) -> None:
    random = Random(seed)
    quick = unequal_sockets(version)
    slow = unequal_sockets(version)
    slow.manager.placer = None
    for number in range(20):
        containers = [
            {
                "name": f"c{place}",
                "image": "i",
                "resources": {"limits": {"cpu": str(random.choice([1, 2, 4, 9])), "memory": "1Gi"}},
            }
            for place in range(random.choice([1, 1, 2]))
        ]
        pod = {
            "metadata": {"name": "p", "uid": f"u{number}"},
            "spec": {"containers": containers},
        }
        assert quick.admit(pod).to_dict() == slow.admit(pod).to_dict()
        if random.random() < 0.5:
            for node in (quick, slow):
                for admitted in list(node.pods)[:1]:
                    node.remove(admitted.uid)

        assert state(quick) == state(slow)
