"""Koordinator's policies in a cluster.

Labels of nodes, annotations of pods, and exclusivity, by the extender.

The rules are checked once more here, on what the nodes publish: by the CPUs that pods hold, and not
by our code.
"""

from __future__ import annotations

import asyncio
import json
from random import Random

import msgspec
import pytest

from alignup.control_plane.api_server.api_client import TOPOLOGIES, Api
from alignup.kubelet.node_resource_topology.report import HOLDINGS
from alignup.machine.cpuset import CPUSet
from rig.outcome import Outcome, play
from rig.proof import EXTENDER, FLEET
from rig.servers import alignup, control_plane
from rig.workload import allocatable, span_for, workload, write_nodes

pytestmark = [pytest.mark.slow, pytest.mark.rig]

LABEL = "node.koordinator.sh/numa-topology-policy"
SPEC = "scheduling.koordinator.sh/numa-topology-spec"
NODES, PODS, SECONDS = 20, 160, 8.0
LABELS = ("SingleNUMANode", "Restricted", "BestEffort", "")
SPECS = (
    None,
    {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"},
    {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Preferred"},
    {"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Required"},
    {"numaTopologyPolicy": "BestEffort"},
)


class Watch:
    """Looks at what nodes publish, and notes what should not be there."""

    def __init__(self, nodes, pods) -> None:
        self.numa_of = {
            document["name"]: {
                cpu: zone["id"]
                for zone in document["machine"]["numaNodes"]
                for core in zone["cores"]
                for cpu in core["cpus"]
            }
            for document in nodes
        }
        self.specs = {
            document["metadata"]["name"]: json.loads(
                document["metadata"]["annotations"].get(SPEC, "{}")
            )
            for document in pods
        }
        self.wrong: set[str] = set()
        self.seen: set[str] = set()

    async def run(self, kubeconfig: str) -> None:
        """Look until cancelled."""
        api = await Api.connect(kubeconfig)
        try:
            while True:
                for report in msgspec.json.decode(await api.request("GET", TOPOLOGIES))["items"]:
                    holdings = json.loads(report["metadata"]["annotations"][HOLDINGS])
                    self.look(report["metadata"]["name"], holdings["pods"])
                await asyncio.sleep(0.3)
        finally:
            await api.close()

    def look(self, node: str, pods) -> None:
        """Check each pod against those that came before it and are still there."""
        earlier = []
        for pod in pods:
            spec = self.specs[pod["name"]]
            zones = [self.zones(node, holding) for holding in pod.get("containers", {}).values()]
            is_single = spec.get("numaTopologyPolicy") == "SingleNUMANode"
            if is_single and len(set().union(*zones)) > 1:
                self.wrong.add(f"{node}: {pod['name']} is on several NUMA nodes")

            if not is_single:
                zones = [numa_ids for numa_ids in zones if len(numa_ids) > 1]
            zone_ids = set().union(*zones)
            if spec.get("singleNUMANodeExclusive") == "Required":
                self.seen.add(pod["name"])
                for earlier_name, was_single, earlier_ids in earlier:
                    if was_single != is_single and earlier_ids & zone_ids:
                        self.wrong.add(
                            f"{node}: {pod['name']} shares a NUMA node with {earlier_name}"
                        )

            earlier.append((pod["name"], is_single, zone_ids))

    def zones(self, node: str, holding) -> set[int]:
        """Return the NUMA nodes of the CPUs that a container holds."""
        return {self.numa_of[node][cpu] for cpu in CPUSet.parse(holding.get("cpus", ""))}


def narrow(pod) -> None:
    """Let a pod ask for no more than a NUMA node has."""
    containers = pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    for amounts in containers[0]["resources"].values():
        if amounts["cpu"] == "8":
            amounts["cpu"] = "6"
        if "example.com/gpu" in amounts:
            amounts["example.com/gpu"] = "1"


@pytest.mark.parametrize(
    "profile", [(), ("--koordinator-profile", "document")], ids=["kubelets", "document"]
)
def test_policies_and_exclusivity_hold_on_watched_state(profile, capsys) -> None:
    nodes, pods = workload(NODES, PODS, SECONDS, seed=2)
    for number, node in enumerate(nodes):
        if LABELS[number % len(LABELS)]:
            node["labels"] = {LABEL: LABELS[number % len(LABELS)]}
        node["kubelet"].update(topologyManagerPolicy="none", topologyManagerScope="container")

    random = Random(4)
    for pod in pods:
        if spec := random.choice(SPECS):
            narrow(pod)
            pod["metadata"]["annotations"][SPEC] = json.dumps(spec)

    watch = Watch(nodes, pods)
    outcome = Outcome(allocatable=allocatable(nodes))

    async def both(kubeconfig: str) -> None:
        looking = asyncio.create_task(watch.run(kubeconfig))
        await play(kubeconfig, pods, span_for(nodes, pods, SECONDS, 0.9), outcome, 60)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await asyncio.sleep(0.25)  # connections under TLS take a moment to close

    with control_plane() as plane:
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        path = write_nodes(plane.folder, nodes)
        with (
            alignup("fleet", *listen, FLEET, "--nodes", path, ready=f"http://{FLEET}/healthz"),
            alignup("extender", *listen, EXTENDER, *profile, ready=f"http://{EXTENDER}/healthz"),
        ):
            plane.schedule_with(EXTENDER)
            asyncio.run(both(plane.kubeconfig))

    summary = outcome.summary()
    with capsys.disabled():
        numbers = {**summary, "exclusive pods looked at": len(watch.seen)}
        print(json.dumps(numbers))  # noqa: T201  # a campaign tells its numbers

    labels = {node["name"]: node.get("labels", {}).get(LABEL, "") for node in nodes}
    declared = {name: spec.get("numaTopologyPolicy", "") for name, spec in watch.specs.items()}
    elsewhere = {
        name: (declared[name], labels[record.node])
        for name, record in outcome.pods.items()
        if record.node and declared[name] and labels[record.node] not in {"", declared[name]}
    }
    assert elsewhere == {}
    assert watch.wrong == set()
    assert len(watch.seen) > PODS // 5
    assert summary["rejected"] == {}
    assert summary["never placed"] == 0
