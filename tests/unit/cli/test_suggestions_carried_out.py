"""Every suggestion about a node with state files is carried out on a copy of them.

It is done as an operator would.
"""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from alignup.kubernetes.node_fit import requests_of
from inputs.kubelet_files import answers, cpu_document, device_document, memory_document, signed
from inputs.refusals import random_pod, random_story

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from alignup.node import Node

CPU, MEMORY, CONFIG = "cpu_manager_state", "memory_manager_state", "config.yaml"
# Nodes where less helps as the node is, so that more has to be drained.
PINNED = {
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
PINNED_OVERLAYS = (
    PINNED | {"topologyManagerPolicy": "best-effort"},
    PINNED | {"topologyManagerPolicy": "none"},
)
# Of so many refusals a suggestion needs a drain, at least.
DRAINS = 10
OVERLAYS = (
    {},
    *PINNED_OVERLAYS,
    {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
        "reservedSystemCPUs": "0-1",
    },
)


def manifest_on_api(manifest: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a pod that runs, as kubectl prints it."""
    metadata = {
        **manifest["metadata"],
        "namespace": "d",
        "creationTimestamp": f"2026-01-01T00:00:{number:02}Z",
    }
    containers = [*manifest["spec"].get("initContainers", ()), *manifest["spec"]["containers"]]
    for container in containers:
        resources = container["resources"]
        # as the API server adds them
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}

    return {
        **manifest,
        "metadata": metadata,
        "status": {"phase": "Running", "startTime": "2026-01-01T00:01:00Z"},
    }


class Place:
    """The files of a node in a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.state = root, root / "root/var/lib/kubelet"

    def write(
        self, node: Node, kubelet: dict[str, Any], machine: Any, pods: list[dict[str, Any]]
    ) -> None:
        """Write what the node's kubelet would have written."""
        (self.state / "device-plugins").mkdir(parents=True)
        (self.root / "root/podresources").mkdir()
        (self.root / "machine.json").write_text(json.dumps(machine))
        self.configure(kubelet)
        self.hold(node)
        for name, answer in zip(("list", "allocatable"), answers(node), strict=True):
            (self.root / f"root/podresources/{name}.json").write_text(json.dumps(answer))
        self.run(pods)

    def hold(self, node: Node) -> None:
        """Write the state files of a node."""
        cpu: dict[str, Any] = {"policyName": "none", "defaultCpuSet": ""}
        if node.cpu:
            cpu = cpu_document(node)

        memory: dict[str, Any] = {"policyName": "None", "machineState": {}}
        if node.memory:
            memory = memory_document(node)

        (self.state / CPU).write_text(signed(cpu, "cpu"))
        (self.state / MEMORY).write_text(signed(memory, "memory"))
        (self.state / "device-plugins/kubelet_internal_checkpoint").write_text(
            signed(device_document(node), "devices")
        )

    def configure(self, kubelet: dict[str, Any]) -> None:
        """Write the configuration."""
        (self.state / CONFIG).write_text(
            json.dumps({name: value for name, value in kubelet.items() if value is not None})
        )

    def run(self, pods: list[dict[str, Any]]) -> None:
        """Let the API server list these pods."""
        self.pods = pods
        (self.root / "root/pods.json").write_text(
            json.dumps({"kind": "PodList", "apiVersion": "v1", "items": pods})
        )

    @property
    def words(self) -> tuple[object, ...]:
        """The options that name the node."""
        return ("--node", self.root / "root", "--machine", self.root / "machine.json")


def place_of(
    chance: random.Random, root: Path, overlays: Sequence[dict[str, Any]]
) -> tuple[Place, Node] | None:
    """Return a node on which pods came and went, and its files.

    None where a kubelet would not start.

    Args:
        chance: draws.
        root: the folder of the files.
        overlays: configurations, of which one is drawn.
    """
    story = random_story(chance, 4, chance.choice(overlays))
    if story is None:
        return None

    kubelet = story.description["kubelet"]
    if kubelet["cpuManagerPolicy"] == "static" and not kubelet["reservedSystemCPUs"]:
        return None

    # without the options of alpha stage and those that need other gates
    if kubelet["memoryManagerPolicy"] == "Static":
        kubelet["systemReserved"] = {"memory": "924Mi"}

    kubelet["featureGates"] = {"CPUManagerPolicyAlphaOptions": True}
    node = story.now()
    for pod in node.pods:
        node.started(pod.uid, pod.containers[-1].name)

    place = Place(root)
    pods = [manifest_on_api(manifest, number) for number, manifest in enumerate(story.pods)]
    place.write(node, kubelet, story.description["machine"], pods)
    return place, node


def carry_out(
    alignup: Any,
    place: Place,
    node: Node,
    suggestion: dict[str, Any],
    manifest: dict[str, Any],
    root: Path,
) -> Any:
    """Do what a suggestion says on a copy of the files, and ask for the pod again."""
    shutil.copytree(place.root, root)
    copy = Place(root)
    copy.run(place.pods)
    attempt = suggestion["try"]
    before: list[dict[str, Any]] = []
    if "remove" in attempt:
        copy.run([pod for pod in place.pods if pod["metadata"]["uid"] not in attempt["remove"]])

    for resource in attempt.get("excludeTopology", ()):
        path = root / "root/podresources/allocatable.json"
        inventory = json.loads(path.read_text())
        for device in inventory["devices"]:
            if device["resource_name"] == resource:
                device.pop("topology", None)

        path.write_text(json.dumps(inventory))

    words = copy.words
    if "kubeletVersion" in attempt:
        words += ("--kubelet-version", attempt["kubeletVersion"])

    if suggestion["after"]:
        config = json.loads((copy.state / CONFIG).read_text()) | attempt.get("kubelet", {})
        copy.configure(config)
        if suggestion["after"] == "drain":
            copy.hold(
                node.emptied(node.config)
            )  # the state files of other policies go, as the text says, and only they
            for name in (CPU, MEMORY):
                if name in suggestion["text"]:
                    (copy.state / name).unlink()

            copy.run([])
            before = [{**pod, "status": {}} for pod in place.pods]

        restart = alignup("node", "restart", *words, "--json")
        assert restart.status == 0, (suggestion, restart.out, restart.err)

    admitted_pods = {
        "kind": "List",
        "apiVersion": "v1",
        "items": [*before, attempt.get("pod", manifest)],
    }
    (root / "asked.json").write_text(json.dumps(admitted_pods))
    return alignup("admit", *words, "--json", root / "asked.json")


def ask_for_memory(chance: random.Random, node: Node, manifest: dict[str, Any]) -> None:
    """Let a container ask for so much memory that a manager that pins none would help.

    Such a suggestion needs a drain; of other pods three in a hundred get one.
    """
    total = sum(numa_node.memory for numa_node in node.machine.numa_nodes)
    free = total - sum(requests_of(pod).get("memory", 0) for pod in node.pods)
    resources = chance.choice(manifest["spec"]["containers"])["resources"]
    resources["limits"]["memory"] = str(int(max(free, 1 << 20) * chance.uniform(0.7, 1)))


def check(alignup: Any, folder: Path, seed: int, count: int) -> None:
    """Carry out the suggestions about random refusals."""
    chance = random.Random(seed)
    refused = done = number = 0
    kinds: dict[str | None, int] = {}
    while refused < count or kinds.get("drain", 0) < count // DRAINS:
        number += 1
        lacks_drains = kinds.get("drain", 0) < refused // DRAINS
        overlays = PINNED_OVERLAYS if lacks_drains else OVERLAYS
        drawn_place = place_of(chance, folder / f"{number}", overlays)
        if drawn_place is None or alignup("node", "check", *drawn_place[0].words).out.count(
            "does not start"
        ):
            continue  # what the writer of the files cannot say
        place, node = drawn_place
        manifest = random_pod(chance, node, "new", large=chance.random() < 0.3)
        if lacks_drains and node.memory is not None:
            ask_for_memory(chance, node, manifest)

        (place.root / "new.json").write_text(json.dumps(manifest))
        ended = alignup("explain", *place.words, "--json", place.root / "new.json")
        assert ended.status in (0, 1), ended.err
        [explanation] = ended.lines
        suggestions = []
        if not explanation["admitted"]:
            refused += 1
            suggestions = explanation["suggestions"]

        for index, suggestion in enumerate(suggestions):
            ended = carry_out(
                alignup, place, node, suggestion, manifest, folder / f"{number}-{index}"
            )
            assert ended.status == 0, (
                number,
                suggestion["text"],
                explanation["cause"],
                ended.out,
                ended.err,
            )
            kinds[suggestion["after"]] = kinds.get(suggestion["after"], 0) + 1
            done += 1

        shutil.rmtree(place.root)

    assert done > count
    assert kinds.keys() == {None, "restart", "drain"}, kinds


def test_what_is_suggested_holds_on_the_files(alignup, tmp_path):
    check(alignup, tmp_path, seed=5, count=15)


@pytest.mark.slow
def test_what_is_suggested_holds_on_the_files_of_a_thousand_refusals(alignup, tmp_path):
    check(alignup, tmp_path, seed=2, count=1000)
