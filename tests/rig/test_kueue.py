"""Pods in the queues of Kueue that have the keeper's gate as well: Kueue's goes first."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates.node_affinity import GATE
from rig.control_plane import free_address
from rig.gated_play import until
from rig.group_controllers import KUEUE, start_kueue
from rig.proof import metrics_of
from rig.servers import Server, alignup, control_plane, only_where_built
from rig.workload import single_numa_nodes, write_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    only_where_built(KUEUE, "kube-controller-manager"),
    pytest.mark.skipif(os.geteuid() != 0, reason="Kueue's folder below /etc takes root"),
]

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
KUEUE_GATE = "kueue.x-k8s.io/admission"
QUEUE = {"kueue.x-k8s.io/queue-name": "train"}
CPUS = 5
"""Those of a pod: of each NUMA node one takes one."""


def pod(name: str, seconds: float = 600, **metadata: Any) -> dict[str, Any]:
    """Return a pod in the queue, with the gate of the keeper."""
    amounts = {"cpu": str(CPUS), "memory": "1Gi"}
    resources = {"limits": amounts, "requests": amounts}
    labels = {**QUEUE, **metadata.pop("labels", {})}
    annotations = {"alignup.dev/duration": f"{seconds}s", **metadata.pop("annotations", {})}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [{"name": "a", "image": "none", "resources": resources}],
        },
    }


def group(size: int, first: int = 0) -> list[dict[str, Any]]:
    """Return the pods of a group of Kueue, whose names are numbered."""
    labels = {"kueue.x-k8s.io/pod-group-name": "gang"}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(size)}
    return [
        pod(f"member{number}", labels=labels, annotations=annotations)
        for number in range(first, first + size)
    ]


class Rig:
    """Two nodes of which each has room for two pods, by NUMA nodes, when it is empty."""

    def __init__(self, server: Server, keeper: str) -> None:
        self.server = server
        self._keeper = keeper
        self.nodes = [item["metadata"]["name"] for item in server.get("/api/v1/nodes")["items"]]

    def create(self, path: str, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            status, answer = self.server.asked("POST", path, manifest)
            assert status == 201, answer

    def open_queue(self, cpus: int) -> None:
        """Let pods of the queue have so many CPUs together."""
        cpu = {"name": "cpu", "nominalQuota": str(cpus)}
        memory = {"name": "memory", "nominalQuota": "64Gi"}
        flavor = {"name": "any", "resources": [cpu, memory]}
        resource_group = {"coveredResources": ["cpu", "memory"], "flavors": [flavor]}
        spec = {"namespaceSelector": {}, "resourceGroups": [resource_group]}
        self.create(f"{QUEUES}/resourceflavors", queue_object("ResourceFlavor", "any", {}))
        self.create(f"{QUEUES}/clusterqueues", queue_object("ClusterQueue", "all", spec))
        self.create(
            f"{QUEUES}/namespaces/default/localqueues",
            queue_object("LocalQueue", "train", {"clusterQueue": "all"}),
        )

    def occupy(self, seconds: int) -> None:
        """Let a pod that is in no queue run on each node."""
        for name in self.nodes:
            occupant = pod(f"there-{name}", seconds)
            del occupant["metadata"]["labels"], occupant["spec"]["schedulingGates"]
            occupant["spec"]["nodeName"] = name
            self.create(PODS, occupant)

        until(lambda: all(item["status"]["phase"] == "Running" for item in self.pods()))

    def pods(self) -> list[dict[str, Any]]:
        return self.server.get(PODS)["items"]

    def queued(self) -> list[dict[str, Any]]:
        """Return the pods of the queue."""
        return [
            item
            for item in self.pods()
            if QUEUE.items() <= item["metadata"].get("labels", {}).items()
        ]

    def gates(self) -> dict[str, set[str]]:
        """Return the gates of each pod of the queue that is there."""
        return {
            item["metadata"]["name"]: {
                gate["name"] for gate in item["spec"].get("schedulingGates", ())
            }
            for item in self.queued()
        }

    def running(self) -> set[str]:
        """Return the pods of the queue that run; no kubelet may reject one."""
        phases = {item["metadata"]["name"]: item["status"]["phase"] for item in self.queued()}
        assert "Failed" not in phases.values()
        return {name for name, phase in phases.items() if phase == "Running"}

    def occupants(self) -> list[dict[str, Any]]:
        """Return the pods that run beside the queue."""
        return [
            item
            for item in self.pods()
            if item["metadata"]["name"].startswith("there") and item["status"]["phase"] == "Running"
        ]

    def metrics(self) -> dict[str, float]:
        """Return what the keeper counts."""
        return metrics_of(self._keeper)


def queue_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object of Kueue."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@contextmanager
def rig(**configuration: Any) -> Iterator[Rig]:
    """Run a control plane with two nodes, a keeper, and Kueue."""
    with control_plane() as plane, ExitStack() as stack:
        plane.schedule({})
        described = single_numa_nodes(2)
        path = write_nodes(plane.folder, described)
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        fleet, keeper = free_address(), free_address()
        ready = f"http://{fleet}/healthz"
        stack.enter_context(alignup("fleet", *listen, fleet, "--nodes", path, ready=ready))
        stack.enter_context(alignup("gates", *listen, keeper, ready=f"http://{keeper}/healthz"))
        start_kueue(plane, **configuration)
        yield Rig(Server(plane.kubeconfig), keeper)


def test_a_pod_without_quota_keeps_both_gates_and_gets_its_place_after_kueue_admits_it() -> None:
    with rig() as here:
        here.open_queue(2 * CPUS + 2)
        here.create(PODS, *(pod(name, 25) for name in "abc"))
        until(lambda: len(here.running()) == 2)
        (waiting,) = here.gates().keys() - here.running()
        assert here.gates()[waiting] >= {GATE, KUEUE_GATE}
        name = 'alignup_gates_waiting_by_reason_pods{reason="other_gate"}'
        until(lambda: here.metrics()[name] == 1)
        assert here.metrics()["alignup_gates_waiting_pods"] == 0

        until(lambda: waiting in here.running())
        assert not here.gates()[waiting]


def test_a_group_that_kueue_admits_before_there_is_room_runs_whole_once_there_is() -> None:
    with rig() as here:
        here.open_queue(100)
        here.occupy(25)
        here.create(PODS, *group(4))
        until(lambda: list(here.gates().values()) == [{GATE}] * 4)
        while here.occupants():
            assert not any(item["spec"].get("nodeName") for item in here.queued())
            time.sleep(0.2)

        until(lambda: len(here.running()) == 4)


def test_a_group_that_kueue_admits_by_its_first_pod_waits_for_no_other() -> None:
    """Its pods may come one after another, each once the one before runs."""
    members = group(3)
    with rig() as here:
        here.open_queue(100)
        for number, member in enumerate(members, 1):
            member["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true"
            here.create(PODS, member)
            until(lambda count=number: len(here.running()) == count)


def test_a_job_that_kueue_lets_begin_runs_behind_the_gate() -> None:
    template = pod("unnamed")
    with rig() as here:
        here.open_queue(100)
        template = {"spec": template["spec"], "metadata": {"labels": QUEUE}}
        job = {
            "metadata": {"name": "job", "labels": QUEUE},
            "spec": {"parallelism": 3, "completions": 3, "suspend": True, "template": template},
        }
        here.create(JOBS, job)
        until(lambda: len(here.running()) == 3)


def test_a_group_that_waits_for_longer_than_kueue_lets_it_is_evicted_and_may_come_again() -> None:
    """`waitForPodsReady` runs while pods wait here, as the page on gates says.

    Kueue keeps the deleted pods until others take their places in the group.
    """
    patience = {"timeout": "8s", "requeuingStrategy": {"backoffBaseSeconds": 1}}
    with rig(waitForPodsReady=patience) as here:
        here.open_queue(100)
        here.occupy(600)
        here.create(PODS, *group(4))
        until(lambda: list(here.gates().values()) == [{GATE}] * 4)
        until(lambda: all("deletionTimestamp" in item["metadata"] for item in here.queued()), 60)
        until(lambda: here.metrics()["alignup_gates_waiting_pods"] == 0)

        for item in here.occupants():
            assert here.server.ask("DELETE", f"{PODS}/{item['metadata']['name']}") == 200
        here.create(PODS, *group(4, first=4))
        until(lambda: here.running() == {f"member{number}" for number in range(4, 8)})
