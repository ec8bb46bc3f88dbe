"""The whole verdict beside the real kubelet's.

Every pod is compared, whoever refuses it, and whom the kubelet evicts.

Fewer pods by default; `ALIGNUP_RIG_PODS=200` is the whole campaign.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from alignup import KubeletConfig, Node, read_machine
from inputs.kernel_trees import server
from rig.lone_kubelet import NODE_NAME, KubeletRig, why_not
from rig.servers import control_plane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

PODS = int(os.environ.get("ALIGNUP_RIG_PODS") or 40)
LARGE = 0.25
"""The part of containers that may request more than is there."""
PATIENCE = 60
"""Seconds until the API server knows whom the kubelet has evicted."""
SHAPE = {"sockets": 2, "cores": 8, "nodes": 2, "memory": 16 << 20}
OVERLAYS = {
    "aligned": {"topologyManagerPolicy": "single-numa-node", "maxPods": 12},
    "not aligned": {
        "topologyManagerPolicy": "none",
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "reservedMemory": None,
        "reservedSystemCPUs": None,
        "kubeReserved": {"cpu": "700m", "memory": "300Mi"},
        "systemReserved": {"cpu": "150m", "memory": "500Mi"},
        "evictionHard": {"memory.available": "5%"},
        "podsPerCore": 1,
        "maxPods": 14,
    },
}
MACHINE = {**server(**SHAPE), "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "8\n"}
LABELS = {
    "kubernetes.io/hostname": NODE_NAME,
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
}


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # sockets need a short path
    yield made
    shutil.rmtree(made, ignore_errors=True)


def random_pod(rng, number, *, bound):
    """Return a pod that the managers, the sums, a port, a label or the OS may refuse.

    Bound ones have priorities.
    """
    containers = [container(rng, f"c{index}") for index in range(rng.choice([1, 1, 1, 2]))]
    spec = {"containers": containers, "restartPolicy": "Always"}
    if rng.random() < 0.2:
        spec["initContainers"] = [{**container(rng, "i"), "command": ["true"]}]

    if rng.random() < 0.15:
        spec["nodeSelector"] = {"kubernetes.io/arch": rng.choice(["amd64", "arm64"])}

    if rng.random() < 0.1:
        requirement = {"key": "disk", "operator": rng.choice(["DoesNotExist", "Exists"])}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }

    if rng.random() < 0.2:
        port = {
            "containerPort": 80,
            "hostPort": rng.choice([80, 81]),
            "protocol": rng.choice(["TCP", "UDP"]),
        }
        containers[0]["ports"] = [port]

    if rng.random() < 0.05:
        spec["os"] = {"name": "windows"}

    if bound and rng.random() < 0.35:
        spec["priorityClassName"] = rng.choice(["system-node-critical", "system-cluster-critical"])

    metadata = {"name": f"p{number:03}", "namespace": "default"}
    if rng.random() < 0.05:
        metadata["labels"] = {"kubernetes.io/os": rng.choice(["linux", "windows"])}

    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def container(rng, name):
    cpu, memory = (
        rng.choice(["100m", "500m", "1", "1500m", "2", "3"]),
        rng.choice(["64Mi", "1Gi", "2Gi", "5Gi"]),
    )
    if rng.random() < LARGE:
        cpu, memory = (
            rng.choice(["7", "20", "5000", cpu]),
            rng.choice(["9Gi", "30Gi", "900Gi", memory]),
        )

    amounts = {"cpu": cpu, "memory": memory}
    kind = rng.random()
    if kind < 0.1:
        return {"name": name, "image": "none"}
    if kind < 0.2:
        amounts["hugepages-2Mi"] = rng.choice(["2Mi", "8Mi", "16Mi"])
    elif kind < 0.3:
        amounts["example.com/none"] = "1"

    requests = dict(amounts)
    if kind > 0.6:
        return {"name": name, "image": "none", "resources": {"requests": requests}}

    return {"name": name, "image": "none", "resources": {"requests": requests, "limits": amounts}}


def node_of(kubelet, described):
    config = KubeletConfig.from_dict(kubelet.config)
    return Node(read_machine(kubelet.root), config, node_object=described, whole_verdict=True)


def compare(verdict, phase, reason, message, context):
    """The verdict is the kubelet's; where its own checks refused, its message too."""
    assert (verdict.admitted, verdict.reason) == (phase == "Running", reason), (
        message,
        verdict.message,
        context,
    )
    if verdict.refusal is not None and verdict.refusal.provider == "kubelet":
        assert f"Pod was rejected: {verdict.message}" == message, context


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("case", OVERLAYS)
def test_static_pods(folder, case):
    """All of them are critical, so that none can be evicted for another."""
    rng = random.Random(case)
    with KubeletRig(folder, MACHINE, OVERLAYS[case]) as rig:
        node = node_of(rig, {"metadata": {"name": NODE_NAME, "labels": LABELS}})
        reasons = []
        for number in range(PODS):
            while node.pods and rng.random() < 0.3:
                removed = rng.choice(node.pods)
                rig.remove(removed.name)
                node.remove(removed.uid)

            manifest = random_pod(rng, number, bound=False)
            status = rig.admit(manifest)
            manifest["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
            verdict = node.admit(manifest)
            compare(
                verdict,
                status["phase"],
                status.get("reason") or "",
                status.get("message"),
                manifest,
            )
            reasons.append(verdict.reason)
            if verdict.admitted:
                started(node, manifest)
            else:
                rig.remove(manifest["metadata"]["name"])

    assert len(set(reasons)) > 3
    counts = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    print(case, counts)  # noqa: T201  # with -s


def started(node, manifest):
    """Note that all containers of an admitted pod run.

    So the memory of its init containers is free.
    """
    uid = f"default/{manifest['metadata']['name']}"
    for container in manifest["spec"]["containers"]:
        node.started(uid, container["name"])


class Api:
    """What is asked of the API server about pods."""

    def __init__(self, client):
        self._client = client

    def delete(self, name):
        """Delete a pod, and wait until the kubelet has confirmed that it is gone."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        self._client.request("DELETE", f"{path}?gracePeriodSeconds=1")
        deadline = time.monotonic() + 120
        while self._client.get(path) is not None:
            assert time.monotonic() < deadline, f"{name} is not gone"
            time.sleep(0.05)

    def preempted(self):
        """Return the names of the pods that the kubelet has evicted.

        Those of the rig's runtime end with success.
        """
        pods = [
            pod
            for pod in self._client.get("/api/v1/namespaces/default/pods")["items"]
            if pod.get("status")
        ]
        return {
            pod["metadata"]["name"]
            for pod in pods
            if pod["status"].get("reason") == "Preempting"
            or pod["status"].get("phase") == "Succeeded"
        }


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("case", OVERLAYS)
def test_bound_pods(folder, case):
    """Pods that no scheduler looked at, some of them critical.

    The same pods are evicted for them.
    """
    rng = random.Random(f"bound {case}")
    reasons, evicted = [], 0
    with (
        control_plane() as plane,
        KubeletRig(folder, MACHINE, OVERLAYS[case], plane=plane) as kubelet,
    ):
        api = Api(plane.client)
        node = node_of(kubelet, plane.client.get(f"/api/v1/nodes/{NODE_NAME}"))
        for number in range(PODS):
            while node.pods and rng.random() < 0.2:
                removed = rng.choice(node.pods)
                api.delete(removed.name)
                node.remove(removed.uid)

            manifest = random_pod(rng, number, bound=True)
            status = kubelet.admit(manifest)
            verdict = node.admit(manifest)
            compare(
                verdict,
                status["phase"],
                status.get("reason") or "",
                status.get("message"),
                manifest,
            )
            reasons.append(verdict.reason)
            names = {evicted_pod.partition("/")[2] for evicted_pod in verdict.preempted}
            deadline = time.monotonic() + PATIENCE
            while (evicted_names := api.preempted()) != names and time.monotonic() < deadline:
                time.sleep(0.1)  # it tells the API server afterwards
            assert evicted_names == names, (manifest, verdict)
            evicted += len(names)
            if verdict.admitted:
                started(node, manifest)
            else:
                names.add(manifest["metadata"]["name"])
            for name in names:
                api.delete(name)

    counts = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    print(case, counts, f"{evicted} evicted")  # noqa: T201
