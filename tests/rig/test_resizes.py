"""Resizes in place, drawn at random.

What a real kubelet says to them, word for word, and what is held afterwards.

A few by default; `ALIGNUP_RIG_RESIZES=60` is the whole campaign. `ALIGNUP_RIG_BIN` chooses the
release. The kubelet gets a tree of cgroups of its own, without which it ends at the first resize
that it allows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from pathlib import Path

import pytest

from alignup.errors import InputError
from alignup.kubelet.read import read_kubelet
from rig.lone_kubelet import NODE_NAME, KubeletRig, why_not
from rig.pretend_machine import files_of
from rig.servers import control_plane

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

RESIZES = int(os.environ.get("ALIGNUP_RIG_RESIZES") or 12)
SECONDS = 60
CPU = "InPlacePodVerticalScalingExclusiveCPUs"
MEMORY = "InPlacePodVerticalScalingExclusiveMemory"
BOTH = {CPU: True, MEMORY: True}
ROUNDS = (
    {"featureGates": {CPU: True}, "topologyManagerPolicy": "single-numa-node"},
    {},
    {"featureGates": BOTH, "topologyManagerPolicy": "best-effort"},
    {"featureGates": {"PodLevelResourceManagers": True}, "topologyManagerScope": "pod"},
    {
        "featureGates": {**BOTH, "PodLevelResourceManagers": True},
        "topologyManagerPolicy": "restricted",
    },
    {"topologyManagerPolicy": "none"},
)


@contextlib.contextmanager
def cgroups():
    """Make a tree of cgroups in every hierarchy, and remove it afterwards; yield its name."""
    mounted = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    tops = {
        kind: [Path(folder) for folder, mounted_kind in mounted if mounted_kind == kind]
        for kind in ("cgroup", "cgroup2")
    }
    name = f"alignup-rig-{os.getpid()}"
    for top in tops["cgroup"] or tops["cgroup2"]:
        (top / name).mkdir(exist_ok=True)

    try:
        yield name
    finally:
        for top in (*tops["cgroup"], *tops["cgroup2"]):
            folders = [Path(folder) for folder, _, _ in os.walk(top / name, topdown=False)]
            for folder in folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()


class Cluster:
    """The API server, and the kubelet that is its only node."""

    def __init__(self, plane, kubelet):
        self.plane, self.kubelet = plane, kubelet

    def call(self, method, path, body=None, content="application/json"):
        """Return the server's answer, or the Status of its refusal."""
        return self.plane.client.request(method, path, body, content)[1]

    def pods(self):
        return self.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={NODE_NAME}")

    def status(self, name):
        answer = self.call("GET", f"/api/v1/namespaces/default/pods/{name}")
        if answer["kind"] != "Pod":
            return {}
        return answer["status"]

    def admit(self, manifest):
        """Bind a pod to the node; return its uid and its phase when the kubelet has decided."""
        phase = self.kubelet.admit(manifest)["phase"]
        path = f"/api/v1/namespaces/default/pods/{manifest['metadata']['name']}"
        return self.call("GET", path)["metadata"]["uid"], phase

    def remove(self, name):
        self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
        until(lambda: not self.status(name))

    def allocated(self, uid):
        """Return what the kubelet has allocated to a pod, as its own file says it."""
        written = json.loads((self.kubelet.state / "allocated_pods_state").read_text())
        return json.loads(written["data"])["entries"].get(uid)

    def resize(self, name, uid, patch):
        """Ask for a resize; return the kubelet's status and message.

        Or return the API server's refusal.
        """
        before = self.allocated(uid)
        path = f"/api/v1/namespaces/default/pods/{name}/resize"
        answer = self.call("PATCH", path, patch, "application/strategic-merge-patch+json")
        if answer["kind"] == "Status":
            return "refused", answer["message"]

        def decided():
            conditions = self.status(name).get("conditions") or ()
            pending = next(
                (condition for condition in conditions if condition["type"] == "PodResizePending"),
                None,
            )
            if pending is not None:
                return pending["reason"], pending.get("message", "")
            return self.allocated(uid) != before and ("allocated", "")

        return until(decided)

    def read(self):
        """Return the node as it is read from the kubelet's files."""
        root = self.kubelet.root
        (root / "pods.json").write_text(json.dumps(self.pods()))
        (root / "node.json").write_text(json.dumps(self.call("GET", f"/api/v1/nodes/{NODE_NAME}")))
        node = read_kubelet(root, config=self.kubelet.config_file).node
        node.whole_verdict = True
        return node


def until(probe):
    """Return what a probe finds, when it finds something."""
    deadline = time.monotonic() + SECONDS
    while not (value := probe()):
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.1)
    return value


def drawn(rng, number, *, pod_level):
    """Return a pod.

    It is Guaranteed with whole CPUs or a fraction, Burstable, or with resources as a whole.
    """

    def wish(cpu, memory):
        return {
            "requests": {"cpu": cpu, "memory": memory},
            "limits": {"cpu": cpu, "memory": memory},
        }

    kind = rng.choice(["whole", "whole", "fraction", "burstable", *(["level"] * pod_level)])
    spec = {}
    resources = [
        wish(str(rng.randrange(1, 4)), f"{rng.randrange(1, 4)}Gi")
        for _ in range(rng.choice([1, 1, 2]))
    ]
    if kind == "fraction":
        resources[0] = wish("1500m", "1Gi")
    elif kind == "burstable":
        resources[0] = {
            "requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": "20", "memory": "8Gi"},
        }
    elif kind == "level":
        spec["resources"] = wish("6", "8Gi")
        resources = [resources[0], {}]

    containers = [
        {"name": f"c{i}", "image": "none", "resources": wishes}
        for i, wishes in enumerate(resources)
    ]
    metadata = {"name": f"p{number:03}", "namespace": "default"}
    spec.update(nodeName=NODE_NAME, terminationGracePeriodSeconds=0, containers=containers)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def change(rng, manifest):
    """Return other CPUs or memory that keep the QoS class.

    They are by container, and of the pod as a whole.
    """
    spec = manifest["spec"]
    if "resources" in spec and rng.random() < 0.6:  # its containers stay
        amounts = {"cpu": str(rng.choice([5, 7, 8])), "memory": rng.choice(["8Gi", "9Gi"])}
        return {}, {"requests": amounts, "limits": amounts}

    container = rng.choice(
        [candidate for candidate in spec["containers"] if candidate["resources"]]
    )
    old = container["resources"]
    new = {}
    if rng.random() < 0.75:
        new["cpu"] = rng.choice(
            sorted({"1", "2", "4", "2500m", "6", "15", "100"} - {old["requests"]["cpu"]})
        )

    if not new or rng.random() < 0.4:
        new["memory"] = rng.choice(
            sorted({"1Gi", "2Gi", "5Gi", "60Gi"} - {old["requests"]["memory"]})
        )

    both = old["requests"] == old["limits"]
    if not both:
        new = {key: value for key, value in new.items() if value not in {"100", "60Gi"}} or {
            "cpu": "750m"
        }

    changed = {"requests": new}
    if both:
        changed["limits"] = new
    return {container["name"]: changed}, None


def holdings(node):
    return {
        pod.name: {
            container.name: (
                str(allocation.cpus),
                sorted((b.type, b.numa_nodes, b.size) for b in allocation.memory),
            )
            for container in pod.all_containers
            if (allocation := node.allocation(pod.uid, container.name))
        }
        for pod in node.pods
    }


def judge(cluster, manifest, uid, rng):
    """Resize a pod on the node and on our reading of it; return the status."""
    containers, whole = change(rng, manifest)
    node = cluster.read()
    try:
        result = node.resize(uid, containers, whole)
        expected = (result.status, result.message)
    except InputError as error:
        expected = ("refused", str(error))

    spec = {}
    if whole:
        spec["resources"] = whole
    if containers:
        spec["containers"] = [
            {"name": name, "resources": resources} for name, resources in containers.items()
        ]

    patch = {"spec": spec}
    answer = cluster.resize(manifest["metadata"]["name"], uid, patch)
    context = (manifest["spec"], containers, whole, expected, answer)
    if answer[0] == "refused":
        assert expected[0] == "refused" or expected[1] in answer[1], context
    else:
        assert expected == answer, context

    if answer != expected:  # refused by the API server
        return answer[0]

    deadline = time.monotonic() + 10  # files are written behind
    while holdings(cluster.read()) != holdings(node) and time.monotonic() < deadline:
        time.sleep(0.3)

    assert holdings(cluster.read()) == holdings(node), context
    return answer[0]


@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_a_resize_is_answered_as_the_kubelet_answers_it(number):
    rng = random.Random(number)
    overlay = ROUNDS[number]
    statuses = []
    with cgroups() as group, control_plane() as plane:
        fields = {
            "cgroupsPerQOS": True,
            "cgroupRoot": f"/{group}",
            "enforceNodeAllocatable": [],
            **overlay,
        }
        with KubeletRig(plane.folder / "k", files_of(MACHINE), fields, plane=plane) as kubelet:
            cluster = Cluster(plane, kubelet)
            present = []
            for index in range(max(1, RESIZES // len(ROUNDS))):
                while len(present) > 2:
                    cluster.remove(present.pop(rng.randrange(len(present))))
                manifest = drawn(
                    rng,
                    index,
                    pod_level="PodLevelResourceManagers" in overlay.get("featureGates", {}),
                )
                uid, phase = cluster.admit(manifest)
                if phase == "Failed":
                    cluster.remove(manifest["metadata"]["name"])
                    continue

                statuses.append(judge(cluster, manifest, uid, rng))
                present.append(manifest["metadata"]["name"])

    assert statuses
    print(f"{overlay}: {statuses}")  # noqa: T201  # with -s


MACHINE = {
    "numaNodes": [
        {
            "id": node,
            "memory": 24 << 30,
            "cores": [
                {
                    "id": core,
                    "socket": node,
                    "cpus": [16 * node + 2 * core, 16 * node + 2 * core + 1],
                }
                for core in range(8)
            ],
            "distances": [10, 21] if node == 0 else [21, 10],
        }
        for node in range(2)
    ]
}
