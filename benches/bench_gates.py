"""The keeper alone: what it does for each pod that ends, while many wait and hardly anything fits.

5,000 nodes of two NUMA nodes, single-numa-node, with 100,000 pods, and 2,000 that wait. And how
long a group takes to be planned on 200 of them that are nearly full.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from alignup import read_pod
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.node_affinity import GATE
from alignup.control_plane.gates.waiting_pods import GatedPodReader, WaitingPod
from alignup.control_plane.publishers.fleet import read_fleet
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubelet.node_resource_topology.report import decode_report
from alignup.kubernetes.node_fit import NodeObject
from rig.workload import GIBI, node, pod

if TYPE_CHECKING:
    from alignup.control_plane.publishers.fleet import FleetNode

NODES = 5_000
PODS_OF_A_NODE = 20
CAME = 8_000
"""Pods that want a place at first, of which those wait that find none."""

WAITING = 2_000
ENDS = 400
CHECKED = 3

GROUP = 8
GROUP_NODES = 200
ENDED = 0.04
"""The part of the pods of full nodes that end before a group is planned: ends of CPUs on most."""

ROOM = {"cpu": 15_000, "memory": 63 * GIBI, "pods": 110, "example.com/gpu": 2, "example.com/nic": 1}


class Scene:
    """The cluster, its keeper, and pods that will end."""

    def __init__(self, nodes: int, waiting: int) -> None:
        self.random = Random(1)
        self.reader = GatedPodReader()
        self.keeper = Keeper(ClusterState())
        self.now = 0.0
        self.ending: list[tuple[FleetNode, str]] = []
        self._count = 0

        lines = []
        for number in range(nodes):
            described = node(3 * number, self.random)
            described["kubelet"]["topologyManagerPolicy"] = "single-numa-node"
            lines.append(json.dumps(described))

        fleet = read_fleet("\n".join(lines).encode(), "nodes")
        pods = [self.reader.decode(manifest) for node in fleet for manifest in self._filled(node)]
        self.keeper.nodes_listed([NodeObject(node.name, allocatable=ROOM) for node in fleet], 0)
        self.keeper.pods_listed(pods, 0)
        self.keeper.state.reports_listed([self._report(node) for node in fleet], 0)
        for _ in range(waiting):
            self.keeper.pod_seen(self.reader.decode(self._waiting()), 0)

        self.decide()
        self.now = 60.0
        self.decide()
        self.random.shuffle(self.ending)

    def _exclusive(self) -> dict[str, Any]:
        """Return a pod that is Guaranteed."""
        while True:
            self._count += 1
            manifest = pod(self._count, 1.0, self.random)
            if read_pod(manifest).qos == "Guaranteed":
                manifest["metadata"] |= {"uid": manifest["metadata"]["name"]}
                return manifest

    def _filled(self, fleet_node: FleetNode) -> list[bytes]:
        """Return the pods of a node, of which so many are exclusive that three more do not fit."""
        manifests = []
        refused = 0
        while refused < 3 and len(manifests) < PODS_OF_A_NODE:
            manifest = self._exclusive()
            if fleet_node.admit(read_pod(manifest)) is not None:
                refused += 1
                continue
            manifests.append(manifest)
            self.ending.append((fleet_node, manifest["metadata"]["uid"]))

        while len(manifests) < PODS_OF_A_NODE:
            self._count += 1
            container = {"name": "c", "resources": {"requests": {"cpu": "10m"}}}
            name = f"shared-{self._count}"
            manifests.append(
                {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}
            )

        for manifest in manifests:
            manifest["spec"]["nodeName"] = fleet_node.name
        return [msgspec.json.encode(manifest) for manifest in manifests]

    def _waiting(self) -> bytes:
        manifest = self._exclusive()
        manifest["metadata"]["namespace"] = f"team-{self._count % 5}"
        manifest["spec"]["schedulingGates"] = [{"name": GATE}]
        return msgspec.json.encode(manifest)

    @staticmethod
    def _report(fleet_node: FleetNode) -> Any:
        return decode_report(msgspec.json.encode(fleet_node.report(with_holdings=True)))

    def decide(self) -> None:
        """Let the keeper decide, a moment later."""
        self.now += 0.01
        self.keeper.decide(self.now)

    def next_end(self) -> tuple[tuple[str, bytes], dict[str, Any]]:
        """Let a kubelet end a pod, and return what the keeper will hear of it."""
        fleet_node, uid = self.ending.pop()
        assert fleet_node.end(uid)
        text = msgspec.json.encode(fleet_node.report(with_holdings=True))
        return (uid, text), {}

    def end(self, uid: str, text: bytes) -> None:
        """Hear of the end of a pod from the API server, then from its node."""
        self.keeper.pod_vanished(uid, self.now)
        self.decide()
        report = decode_report(text)
        self.keeper.state.report_seen(report, self.now)
        self.keeper.reported([report.name])
        self.decide()


@pytest.mark.slow
def test_a_pod_ends_while_many_wait(benchmark, promise) -> None:
    """All that wait are asked for anew at some moments: no node takes any of them then."""
    scene = Scene(NODES, CAME)
    keeper = scene.keeper
    assert len(keeper.state.pods) >= NODES * PODS_OF_A_NODE
    assert len(keeper.queue) >= WAITING

    placed = keeper.counts.placed
    benchmark.pedantic(scene.end, setup=scene.next_end, rounds=ENDS)
    if benchmark.stats is not None:
        assert keeper.counts.placed > placed

    for waiting in scene.random.sample(list(keeper.queue), CHECKED):
        verdicts = keeper.state.view.verdicts(waiting.watched.pod, keeper.state.strategy)
        names = keeper.state.view.names
        taking = [names[index] for index in verdicts.best()]
        free = [name for name in taking if keeper.choice.takes(waiting, name)]
        assert free == []
    promise(2_000)


def member(reader: GatedPodReader, number: int) -> WaitingPod:
    """Return a member of a group, of two CPUs."""
    amounts = {"cpu": "2", "memory": "1Gi"}
    name = f"member-{number}"
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    manifest = {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {"alignup.dev/group": "g"},
            "annotations": {"alignup.dev/group-size": str(GROUP)},
        },
        "spec": {"schedulingGates": [{"name": GATE}], "containers": [container]},
    }
    pod = reader.decode(msgspec.json.encode(manifest))
    assert isinstance(pod, WaitingPod)
    return pod


def test_a_group_is_planned_on_crowded_nodes(benchmark, promise) -> None:
    scene = Scene(GROUP_NODES, 0)
    for _ in range(int(len(scene.ending) * ENDED)):
        (uid, text), _ = scene.next_end()
        scene.end(uid, text)

    keeper = scene.keeper
    members = [member(scene.reader, number) for number in range(GROUP)]
    by_uid = {pod.uid: pod for pod in members}
    plan = keeper.group_places.plan(by_uid)
    assert {place.pod.uid for place in plan.places} == by_uid.keys()

    members_of_state = keeper.state.members
    copies = {name: members_of_state[name].node.copy() for name in plan.nodes}
    for place in plan.places:
        assert keeper.choice.takes(by_uid[place.pod.uid], place.node)
        assert copies[place.node].admit(place.pod).admitted

    # no node takes all of them, and one node less would not do
    most = sorted((_most(keeper, members[0], name) for name in members_of_state), reverse=True)
    assert sum(most[: len(plan.nodes) - 1]) < GROUP

    benchmark(keeper.group_places.plan, by_uid)
    promise(5_000)


def _most(keeper: Keeper, pod: WaitingPod, name: str) -> int:
    """Return how many copies of a pod a node takes."""
    copy = keeper.state.members[name].node.copy()
    count = 0
    while (
        keeper.choice.takes(pod, name)
        and count < GROUP
        and copy.admit(pod.watched.pod.renamed(uid=f"copy-{count}")).admitted
    ):
        count += 1
    return count
