"""One simulated kubelet: its verdicts and the words of a kubelet for them."""

from __future__ import annotations

import json

from alignup.control_plane.publishers.fleet import FleetNode, Rejection, rejected_status
from alignup.kubelet.node_resource_topology.report import decode_holdings
from alignup.node import Node
from inputs.watched_objects import description, watched


def node(**kubelet) -> FleetNode:
    found = description(**kubelet)
    return FleetNode("n", Node.from_dict(found), json.dumps(found))


def test_a_pod_that_cannot_be_aligned_is_rejected_as_a_kubelet_does() -> None:
    rejection = node().admit(watched("p", cpu=5).pod)
    status = rejected_status(rejection, "2026-01-01T00:00:00Z")
    assert (status["phase"], status["reason"]) == ("Failed", "TopologyAffinityError")
    assert (
        status["message"]
        == "Pod was rejected: Resources cannot be allocated with Topology locality"
    )


def test_whole_cores_that_cannot_be_had_have_a_reason_of_their_own() -> None:
    found = description(
        cpuManagerPolicyOptions={"full-pcpus-only": "true"}, topologyManagerPolicy="none"
    )
    for numa_node in found["machine"]["numaNodes"]:
        cpus = [core["cpus"][0] for core in numa_node["cores"]]
        numa_node["cores"] = [
            {"cpus": cpus[at : at + 2], "socket": numa_node["id"]} for at in (0, 2)
        ]
    found["kubelet"]["reservedSystemCPUs"] = "0,1"
    made = FleetNode("n", Node.from_dict(found), json.dumps(found))
    assert made.admit(watched("p", cpu=3).pod).reason == "SMTAlignmentError"


def test_after_the_managers_the_sums_are_checked_and_nothing_stays_taken() -> None:
    """Pods in the shared pool are not aligned, and yet more than there is cannot run."""
    made = node(topologyManagerPolicy="none")
    assert made.admit(watched("a", cpu="6500m").pod) is None
    assert made.admit(watched("b", cpu="600m").pod) == Rejection(
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 600, used: 6500, capacity: 7000",
    )
    assert not made.node.manager.has_pod("uid-b")
    assert made.admit(watched("c", cpu="500m").pod) is None


def test_a_pod_ends_once() -> None:
    made = node()
    made.admit(watched("p").pod)
    assert made.node.manager.has_pod("uid-p")
    assert made.end("uid-p")
    assert not made.end("uid-p")


def test_what_it_publishes_restores_it() -> None:
    made = node()
    made.admit(watched("p", cpu=2, gpu=1).pod)
    report = made.report(with_holdings=True)
    holdings = decode_holdings(report["metadata"]["annotations"]["alignup.dev/holdings"])
    other = node()
    other.restore(holdings)
    assert other.report(with_holdings=True) == report
    assert "annotations" not in made.report(with_holdings=False)["metadata"]


def test_the_node_has_what_a_kubelet_reports() -> None:
    status = node().node_status("2026-01-01T00:00:00Z")
    assert status["capacity"] == {
        "pods": "110",
        "cpu": "8000m",
        "memory": str(16 << 30),
        "example.com/gpu": "2",
    }
    assert status["allocatable"]["cpu"] == "7000m"
    assert status["allocatable"]["memory"] == str(15 << 30)
    assert status["nodeInfo"]["kubeletVersion"] == "v1.37.0"
