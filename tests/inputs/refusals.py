"""Random nodes that refuse pods, and an independent replay of what an explanation suggests."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from alignup import explain
from alignup.errors import AlignupError
from alignup.machine.load import catalog_entries
from alignup.node import Node
from alignup.node.restart import restarted
from alignup.records import replace
from inputs.machines import machine_of

GPU = "nvidia.com/gpu"
EXAMPLE_GPU = "example.com/gpu"
DEVICES = (EXAMPLE_GPU, "example.com/nic")
CPU_OPTIONS = (
    {},
    {},
    {"full-pcpus-only": "true"},
    {"strict-cpu-reservation": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"align-by-socket": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
)

KUBELET = {
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}


def article() -> Node:
    """Return the node of the article's example."""
    entry = catalog_entries()["align-up-article"]
    return Node.from_dict(
        {"machine": entry.machine.to_dict(), "kubelet": entry.kubelet, "devices": entry.devices}
    )


def wish(uid: str, **limits: str) -> dict[str, Any]:
    """Return a Guaranteed pod of one container."""
    resources = {"limits": {"memory": "1Gi", **limits}}
    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
    }


def in_conflict() -> Node:
    """Return the article's node with its GPU left on node 1, and two CPUs only on node 0."""
    node = article()
    for manifest in (wish("trainer", cpu="1", **{GPU: "1"}), wish("batch", cpu="4")):
        assert node.admit(manifest)
    return node


def node_of(nodes: int = 2, cores: int = 4, **changes: Any) -> Node:
    """Return a node with two GPUs a NUMA node.

    It is under single-numa-node unless the changes say otherwise.
    """
    devices = {
        EXAMPLE_GPU: [{"id": f"g{number}", "numa": [number // 2]} for number in range(2 * nodes)]
    }
    kubelet = {name: value for name, value in {**KUBELET, **changes}.items() if value is not None}
    return Node.from_dict(
        {"machine": machine_of(nodes, cores), "kubelet": kubelet, "devices": devices}
    )


def gpu_pod(
    uid: str, *, gpus: int = 0, requests: dict[str, str] | None = None, **limits: str
) -> dict[str, Any]:
    """Return a pod of one container for such a node.

    It is Guaranteed unless it requests less than its limits.
    """
    more = {}
    if gpus:
        more = {EXAMPLE_GPU: str(gpus)}

    resources: dict[str, Any] = {"limits": {"memory": "1Gi", **limits, **more}}
    if requests:
        resources["requests"] = requests
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": uid, "uid": uid, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "image", "resources": resources}]},
    }


def by_kind(node: Node, manifest: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the suggestions about a pod by their kind."""
    suggestions: dict[str, list[Any]] = {}
    for suggestion in explain(node, manifest).suggestions:
        suggestions.setdefault(suggestion.kind, []).append(suggestion)
    return suggestions


@dataclass
class Story:
    """A node's description and what happened on it so far.

    The node itself is rebuilt for every question.
    """

    description: dict[str, Any]
    pods: list[dict[str, Any]] = field(default_factory=list)
    """Manifests of the pods that are present, in the order in which they came."""
    steps: list[dict[str, Any]] = field(default_factory=list)

    def node(self, version: str | None = None, **kubelet: Any) -> Node:
        """Return the empty node, with other fields of the kubelet's configuration.

        None deletes one. The kubelet is of the release that is named, or of the story's own.
        """
        fields = {**self.description["kubelet"], **kubelet}
        fields = {name: value for name, value in fields.items() if value is not None}
        description = {**self.description, "kubelet": fields}
        if version is not None:
            description["kubeletVersion"] = version
        return Node.from_dict(description)

    def now(self) -> Node:
        """Return the node after all steps, refusals included."""
        node = self.node()
        for step in self.steps:
            if "remove" in step:
                node.remove(step["remove"])
            else:
                node.admit(step["admit"])
        return node

    def do(self, node: Node, step: dict[str, Any]) -> None:
        """Take one step, on the node at hand and in the story."""
        self.steps.append(step)
        if "remove" in step:
            node.remove(step["remove"])
            self.pods = [pod for pod in self.pods if pod["metadata"]["uid"] != step["remove"]]
        elif node.admit(step["admit"]):
            self.pods.append(step["admit"])

    def confirms(
        self, attempt: dict[str, Any], manifest: dict[str, Any], after: str | None = None
    ) -> bool:
        """Return whether the pod is admitted under a suggested change.

        The change is replayed as the documentation says.
        """
        keys = {"pod", "kubelet", "remove", "excludeTopology", "kubeletVersion"}
        assert attempt.keys() <= keys
        assert len(attempt) == 1 or attempt.keys() == {"kubelet", "kubeletVersion"}
        node = self.now()
        fields = attempt.get("kubelet", {})
        version = attempt.get("kubeletVersion")
        if after == "restart":
            again = restarted(node, self.node(version, **fields).config)
            assert not again.refused
            node = again.node
        elif "kubelet" in attempt or version:
            node = self.node(version, **fields)
            assert all(node.admit(pod).admitted for pod in self.pods)

        for resource in attempt.get("excludeTopology", ()):
            devices = [replace(device, numa_nodes=None) for device in node.inventory[resource]]
            node.devices.update(resource, devices)

        for uid in attempt.get("remove", ()):
            node.remove(uid)

        return node.admit(attempt.get("pod", manifest)).admitted


def random_story(
    chance: random.Random, most_nodes: int = 8, overlay: Mapping[str, Any] | None = None
) -> Story | None:
    """Return a node on which some pods came and went; None where a kubelet would not start.

    `overlay` is laid over the configuration that is drawn.
    """
    nodes = chance.randint(1, most_nodes)
    machine = machine_of(nodes, chance.choice((2, 4, 6)))
    if chance.random() < 0.3:
        for node in machine["numaNodes"]:
            node["hugepages"] = {"2Mi": chance.choice((0, 512)), "1Gi": chance.choice((0, 4))}

    cpu_manager = "none"
    if chance.random() < 0.85:
        cpu_manager = "static"

    memory_manager = "Static" if chance.random() < 0.6 else "None"
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": chance.choice(
            (
                "none",
                "best-effort",
                "restricted",
                "restricted",
                "single-numa-node",
                "single-numa-node",
            )
        ),
        "topologyManagerScope": chance.choice(("container", "pod")),
        "cpuManagerPolicy": cpu_manager,
        "memoryManagerPolicy": memory_manager,
    }
    if cpu_manager == "static":
        kubelet["reservedSystemCPUs"] = chance.choice(("0", "0-1", ""))
        kubelet["cpuManagerPolicyOptions"] = chance.choice(CPU_OPTIONS)

    if memory_manager == "Static":
        kubelet["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "1Gi"}}]

    if chance.random() < 0.2:
        kubelet["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}

    kubelet |= overlay or {}
    devices = {
        resource: [
            {"id": f"{resource[12:]}{index}", "numa": _places(chance, nodes)}
            for index in range(chance.randint(1, 2 * nodes))
        ]
        for resource in DEVICES
    }
    story = Story({"machine": machine, "kubelet": kubelet, "devices": devices})
    try:
        node = story.node()
    except AlignupError:
        return None

    for number in range(chance.randint(0, 12)):
        if story.pods and chance.random() < 0.2:
            story.do(node, {"remove": chance.choice(story.pods)["metadata"]["uid"]})
        else:
            story.do(node, {"admit": random_pod(chance, node, f"pod-{number}")})

    return story


def _places(chance: random.Random, nodes: int) -> list[int] | None:
    """Return the NUMA nodes that a device is near to: mostly one."""
    if chance.random() < 0.1:
        return None
    return sorted(chance.sample(range(nodes), min(nodes, 1 if chance.random() < 0.85 else 2)))


def random_pod(
    chance: random.Random, node: Node, uid: str, *, large: bool = False
) -> dict[str, Any]:
    """Return a manifest, mostly of a Guaranteed pod, with a few containers of any kind."""
    spec: dict[str, Any] = {
        "containers": [
            random_container(chance, node, f"c{number}", large=large)
            for number in range(chance.choice((1, 1, 1, 2, 3)))
        ]
    }
    if chance.random() < 0.2:
        init = random_container(chance, node, "init", large=large)
        spec["initContainers"] = [{**init, **chance.choice(({}, {"restartPolicy": "Always"}))}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": uid, "uid": uid}, "spec": spec}


def random_container(
    chance: random.Random, node: Node, name: str, *, large: bool = False
) -> dict[str, Any]:
    """Return a container that asks for some of everything."""
    per_node = max(1, node.machine.cpu_count // len(node.machine.numa_nodes))
    most = node.machine.cpu_count if large else per_node
    limits = {
        "cpu": str(chance.randint(1, max(1, most))) if chance.random() < 0.9 else "1500m",
        "memory": f"{chance.choice((1, 2, 8, 20, 40 if large else 4))}Gi",
    }
    for resource in DEVICES:
        if chance.random() < 0.5:
            limits[resource] = str(chance.randint(1, 4 if large else 2))

    if node.machine.numa_nodes[0].hugepages and chance.random() < 0.3:
        limits["hugepages-2Mi"] = f"{2 * chance.randint(1, 256)}Mi"

    resources: dict[str, Any] = {"limits": limits}
    if chance.random() < 0.05:
        resources["requests"] = {"cpu": "100m"}

    return {"name": name, "image": "image", "resources": resources}


def refusals(seed: int, count: int, *, suggest: bool = True):
    """Yield (story, manifest, explanation) of random refusals, with or without suggestions."""
    chance = random.Random(seed)
    refused = 0
    while refused < count:
        story = random_story(chance)
        if story is None:
            continue

        node = story.now()
        for attempt in range(3):
            manifest = random_pod(chance, node, f"new-{attempt}", large=True)
            explanation = explain(node, manifest, suggest=suggest)
            if not explanation.admitted:
                refused += 1
                yield story, manifest, explanation
                if refused == count:
                    return
