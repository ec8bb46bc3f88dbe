"""Groups whose members run together or not at all, with the real API server and scheduler.

PodGroups of scheduling.k8s.io need 1.37 or later (`ALIGNUP_RIG_BIN`, `ALIGNUP_RIG_RELEASE`).
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates.node_affinity import GATE
from alignup.control_plane.gates.waiting_pods import PLACE
from rig.control_plane import free_address
from rig.programs import BIN
from rig.servers import ALIGNUP, Server, alignup, control_plane
from rig.topology_kind import PATH as CRDS
from rig.workload import single_numa_nodes, write_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.rig]

PODS = "/api/v1/namespaces/default/pods"
POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
VOLCANO = "scheduling.volcano.sh"
VOLCANO_GROUPS = f"/apis/{VOLCANO}/v1beta1/namespaces/default/podgroups"
MEMBERS = ("m0", "m1", "m2", "m3")
# Seconds within which pods that could run have come to run.
SETTLED = 5.0
FEATURES = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}

# Stands for Volcano's own, of which the keeper reads one field.
VOLCANO_KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"podgroups.{VOLCANO}"},
    "spec": {
        "group": VOLCANO,
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"minMember": {"type": "integer"}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


def has_pod_groups() -> bool:
    """Return whether the release has PodGroups."""
    program = BIN / "kube-scheduler"
    if not program.exists():
        return False
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)  # noqa: S603  # ours
    return int(answer.stdout.split(".")[1]) >= 37


needs_pod_groups = pytest.mark.skipif(
    not has_pod_groups(), reason="PodGroups of v1beta1 came with Kubernetes 1.37"
)


def pod(name: str, cpus: int, seconds: float, *, by: str = "", gated: bool = False, **spec: Any):
    """Return a pod that runs for a while; `by` what it is a member: `label`, `object` or so."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    resources = {"limits": amounts, "requests": amounts}
    metadata: dict[str, Any] = {
        "name": name,
        "annotations": {"alignup.dev/duration": f"{seconds}s"},
    }
    if by == "label":
        metadata["labels"] = {"alignup.dev/group": "g"}
        metadata["annotations"]["alignup.dev/group-size"] = "4"
    if by == "volcano":
        metadata["annotations"]["scheduling.k8s.io/group-name"] = "g"
    if by == "object":
        spec["schedulingGroup"] = {"podGroupName": "g"}
    if gated:
        spec["schedulingGates"] = [{"name": GATE}]

    containers = [{"name": "a", "image": "none", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"terminationGracePeriodSeconds": 1, "containers": containers, **spec},
    }


class Rig:
    """Two nodes of which each has room for two members, by NUMA nodes, when it is empty."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self.server = Server(kubeconfig)
        self.nodes: list[str] = []

    def create(self, *pods: dict[str, Any]) -> None:
        for body in pods:
            status, answer = self.server.asked("POST", PODS, body)
            assert status == 201, answer

    def create_group(self) -> None:
        body = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        }
        status, answer = self.server.asked("POST", POD_GROUPS, body)
        assert status == 201, answer

    def create_volcano_group(self) -> None:
        """Create a PodGroup of Volcano, of a kind that the keeper may not have found yet."""
        status, answer = self.server.asked("POST", CRDS, VOLCANO_KIND)
        assert status == 201, answer
        deadline = time.monotonic() + 30
        body = {
            "apiVersion": f"{VOLCANO}/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"minMember": 4},
        }
        while self.server.ask("POST", VOLCANO_GROUPS, body) != 201:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def occupy(self, seconds: float) -> None:
        """Let a pod of 5 CPUs run on each node, beside which sums leave room for two members."""
        self.create(
            *[pod(f"there-{name}", 5, seconds, nodeName=name) for name in self.nodes],
        )
        time.sleep(3)

    def members(self) -> list[dict[str, Any]]:
        items = self.server.get(PODS)["items"]
        return [item for item in items if item["metadata"]["name"] in MEMBERS]

    def bound(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.members() if item["spec"].get("nodeName")]

    def check_all_run(self, seconds: float) -> None:
        """Check that all members come to run, and that at no moment the kubelets reject one."""
        deadline = time.monotonic() + seconds
        while True:
            phases = [item["status"]["phase"] for item in self.members()]
            assert "Failed" not in phases
            if phases == ["Running"] * len(MEMBERS):
                return
            assert time.monotonic() < deadline, json.dumps(self.members())
            time.sleep(0.1)


@contextmanager
def rig(way: str, *, by: str) -> Iterator[Rig]:
    """Run a control plane with two nodes and `extender` or `gates`."""
    served = {}
    if by == "object":
        gates = ",".join(f"{name}=true" for name in FEATURES)
        apis = "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
        served = {"feature_gates": gates, "runtime_config": apis}

    with control_plane(**served) as plane, ExitStack() as stack:
        plane.gates = FEATURES if by == "object" else {}
        described = single_numa_nodes(2)
        for line in described:
            line["kubelet"]["topologyManagerScope"] = "container"

        path = write_nodes(plane.folder, described)
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        fleet, program = free_address(), free_address()
        for name, address, *options in (("fleet", fleet, "--nodes", path), (way, program)):
            ready = f"http://{address}/healthz"
            stack.enter_context(alignup(name, *listen, address, *options, ready=ready))

        if way == "extender":
            plane.schedule_with(program)
        else:
            plane.schedule({})

        here = Rig(plane.kubeconfig)
        nodes = here.server.get("/api/v1/nodes")["items"]
        here.nodes = sorted(item["metadata"]["name"] for item in nodes)
        yield here


@pytest.mark.parametrize(
    ("way", "by"),
    [
        ("gates", "label"),
        ("gates", "volcano"),
        pytest.param("gates", "object", marks=needs_pod_groups),
        pytest.param("extender", "object", marks=needs_pod_groups),
    ],
)
def test_none_of_four_is_bound_while_two_fit_and_all_four_later(way, by) -> None:
    with rig(way, by=by) as here:
        here.occupy(25)
        begun = time.monotonic()
        if by == "object":
            here.create_group()
        if by == "volcano":
            here.create_volcano_group()

        here.create(*[pod(name, 5, 600, by=by, gated=way == "gates") for name in MEMBERS])
        while time.monotonic() < begun + 15:
            assert here.bound() == []
            time.sleep(0.3)
        here.check_all_run(60)


def test_a_keeper_that_is_killed_between_two_patches_is_followed_by_one_that_finishes() -> None:
    with control_plane() as plane:
        plane.schedule({})
        described = single_numa_nodes(4)
        path = write_nodes(plane.folder, described)
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        fleet = free_address()
        with alignup("fleet", *listen, fleet, "--nodes", path, ready=f"http://{fleet}/healthz"):
            here = Rig(plane.kubeconfig)
            for patches in range(9):
                kill_after(here, listen, patches)
                remove(here)


def kill_after(here: Rig, listen: tuple[str, ...], patches: int) -> None:
    """Kill a keeper once so many patches of members are seen, and start another one."""
    here.create(*[pod(name, 5, 600, by="label", gated=True) for name in MEMBERS])
    keeper = start(listen)
    try:
        deadline = time.monotonic() + 30
        while written(here.members()) < patches:
            assert time.monotonic() < deadline
    finally:
        keeper.kill()
        keeper.wait()

    left = here.members()
    gates_off = [item for item in left if not item["spec"].get("schedulingGates")]
    if gates_off:
        assert all(PLACE in item["metadata"]["annotations"] for item in left)

    keeper = start(listen)
    try:
        here.check_all_run(30)
    finally:
        keeper.terminate()
        keeper.wait(30)


def start(listen: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start a keeper."""
    return subprocess.Popen([*ALIGNUP, "gates", *listen, free_address()])  # noqa: S603  # ours


def written(members: list[dict[str, Any]]) -> int:
    """Return how many patches of members there were: a plan, and a gate that went."""
    plans = sum(PLACE in item["metadata"]["annotations"] for item in members)
    return plans + sum(not item["spec"].get("schedulingGates") for item in members)


def remove(here: Rig) -> None:
    """Delete the members, and wait until the nodes report that they are gone."""
    for name in MEMBERS:
        here.server.ask("DELETE", f"{PODS}/{name}")
    deadline = time.monotonic() + 30
    while here.members():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
