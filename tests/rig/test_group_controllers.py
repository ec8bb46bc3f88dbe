"""JobSets and LeaderWorkerSets as their own controllers make them, behind the gate.

The labels and annotations are theirs, and so is the order in which they make pods.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates.node_affinity import GATE
from rig.control_plane import free_address
from rig.gated_play import until
from rig.group_controllers import CONTROLLERS, start_controllers
from rig.servers import Server, alignup, control_plane, only_where_built
from rig.workload import single_numa_nodes, write_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    only_where_built(*CONTROLLERS, "kube-controller-manager"),
]

PODS = "/api/v1/namespaces/default/pods"
SETS = {
    "jobset": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
    "lws": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets",
}
HOST = "kubernetes.io/hostname"
EXCLUSIVE = {
    "jobset": {"alpha.jobset.sigs.k8s.io/exclusive-topology": HOST},
    "lws": {"leaderworkerset.sigs.k8s.io/exclusive-topology": HOST},
}


def template(cpus: int = 5) -> dict[str, Any]:
    """Return the template of a pod with the gate."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    resources = {"limits": amounts, "requests": amounts}
    return {
        "metadata": {"annotations": {"alignup.dev/duration": "600s"}},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "a", "image": "none", "resources": resources}],
        },
    }


def job_set(**spec: Any) -> dict[str, Any]:
    """Return a JobSet of two jobs of two pods."""
    pod = template()
    pod["spec"]["restartPolicy"] = "Never"
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": pod}
    jobs = [{"name": "workers", "replicas": 2, "template": {"spec": job}}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": jobs, **spec},
    }


def leader_worker_set(size: int = 4, **spec: Any) -> dict[str, Any]:
    """Return a LeaderWorkerSet of one group."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "set"},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": template()},
            **spec,
        },
    }


class Rig:
    """Two nodes of which each has room for two members, by NUMA nodes, when it is empty."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.label = CONTROLLERS[name]
        self._path = SETS[name]
        self.nodes = [item["metadata"]["name"] for item in server.get("/api/v1/nodes")["items"]]

    def create(self, manifest: dict[str, Any]) -> None:
        status, answer = self.server.asked("POST", self._path, manifest)
        assert status == 201, answer

    def occupy(self, seconds: int) -> None:
        """Let a pod run on each node, beside which sums leave room for two members."""
        for name in self.nodes:
            pod = template()
            pod["metadata"] = {
                "name": f"there-{name}",
                "annotations": {"alignup.dev/duration": f"{seconds}s"},
            }
            del pod["spec"]["schedulingGates"]
            pod["spec"]["nodeName"] = name
            assert self.server.ask("POST", PODS, pod) == 201

        until(lambda: all(pod["status"]["phase"] == "Running" for pod in self.pods()))

    def pods(self) -> list[dict[str, Any]]:
        return self.server.get(PODS)["items"]

    def members(self) -> list[dict[str, Any]]:
        return [pod for pod in self.pods() if self.label in pod["metadata"].get("labels", {})]

    def occupants(self) -> list[dict[str, Any]]:
        """Return the pods that run beside the group."""
        return [
            pod
            for pod in self.pods()
            if pod["metadata"]["name"].startswith("there") and pod["status"]["phase"] == "Running"
        ]

    def all_run(self) -> bool:
        """Return whether all four members run; no kubelet may reject one."""
        phases = [pod["status"]["phase"] for pod in self.members()]
        assert "Failed" not in phases
        return phases == ["Running"] * 4


@contextmanager
def rig(name: str) -> Iterator[Rig]:
    """Run a control plane with two nodes, a keeper, and a controller of groups."""
    with control_plane() as plane, ExitStack() as stack:
        plane.schedule({})
        described = single_numa_nodes(2)
        for line in described:
            line["kubelet"]["topologyManagerScope"] = "container"

        path = write_nodes(plane.folder, described)
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        fleet, keeper = free_address(), free_address()
        ready = f"http://{fleet}/healthz"
        stack.enter_context(alignup("fleet", *listen, fleet, "--nodes", path, ready=ready))
        stack.enter_context(alignup("gates", *listen, keeper, ready=f"http://{keeper}/healthz"))
        start_controllers(plane, name)
        yield Rig(Server(plane.kubeconfig), name)


@pytest.mark.parametrize(
    ("name", "manifest"), [("jobset", job_set()), ("lws", leader_worker_set())]
)
def test_all_four_members_come_to_run_together_once_there_is_room(name, manifest) -> None:
    with rig(name) as here:
        here.occupy(30)
        here.create(manifest)
        until(lambda: len(here.members()) == 4)
        while here.occupants():
            assert not any(pod["spec"].get("nodeName") for pod in here.members())
            time.sleep(0.2)
        until(here.all_run)


@pytest.mark.parametrize("name", SETS)
def test_a_group_whose_pods_follow_a_leader_comes_to_run(name) -> None:
    """With exclusive placement other pods are made once their leader has a node."""
    manifest = {"jobset": job_set, "lws": leader_worker_set}[name]()
    if name == "lws":
        # one node takes two
        manifest["spec"]["replicas"] = 2
        manifest["spec"]["leaderWorkerTemplate"]["size"] = 2

    manifest["metadata"]["annotations"] = EXCLUSIVE[name]
    with rig(name) as here:
        here.create(manifest)
        until(here.all_run)


@pytest.mark.parametrize(
    ("name", "manifest"),
    [
        ("lws", leader_worker_set(startupPolicy="LeaderReady")),
        ("jobset", job_set(startupPolicy={"startupPolicyOrder": "InOrder"})),
    ],
)
def test_a_group_that_starts_in_order_comes_to_run(name, manifest) -> None:
    with rig(name) as here:
        here.create(manifest)
        until(here.all_run)
