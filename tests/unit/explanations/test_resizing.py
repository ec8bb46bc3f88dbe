"""Explanations of resizes: each cause has a sentence, and each suggestion is true."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from alignup.explanations.pod_changes import explain_resize
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.manifest import resized_pod, resources_of
from alignup.node import Node
from inputs.strategies import seeds

RECORDED = Path(__file__).parents[2] / "recorded" / "kubernetes"
DECLARED = (RECORDED / "declared-features.txt").read_text().splitlines()

MACHINE = {
    "numaNodes": [
        {
            "id": node,
            "memory": 16 << 30,
            "cores": [{"id": core, "socket": node, "cpus": [4 * node + core]} for core in range(4)],
        }
        for node in range(2)
    ]
}

BURSTABLE = {"requests": {"cpu": "1", "memory": "1Gi"}}


def node_of(version: str = "1.37", **fields: Any) -> Node:
    kubelet = {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "systemReserved": {"memory": "924Mi"},
        **fields,
    }
    node = Node.from_dict({"machine": MACHINE, "kubelet": kubelet, "kubeletVersion": version})
    node.whole_verdict = True
    return node


def amounts(cpu: str, memory: str = "1Gi") -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def pod(name: str, resources: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


@pytest.mark.parametrize("version", ["1.37", "1.38"])
@pytest.mark.parametrize(
    ("resources", "cause"),
    [(amounts("3"), "static CPU policy"), (amounts("2", "2Gi"), "Static memory policy")],
)
def test_the_words_of_each_release_have_a_cause(version, resources, cause) -> None:
    node = node_of(version)
    assert node.admit(pod("a", amounts("2")))
    assert cause in explain_resize(node, "a", {"c": resources}).cause


@pytest.mark.parametrize(("version", "is_named"), [("1.35", False), ("1.36", True), ("1.37", True)])
def test_that_no_node_declares_such_resizes_is_named(version, is_named) -> None:
    """As the features of the packages of these releases, recorded, say."""
    node = node_of(version)
    assert node.admit(pod("a", amounts("2")))
    cause = explain_resize(node, "a", {"c": amounts("3")}).cause
    assert ("GuaranteedQoSPodCPUResize" in cause) is is_named

    memory = explain_resize(node, "a", {"c": amounts("2", "2Gi")}).cause
    assert "GuaranteedQoSPodCPUResize" not in memory

    release = next(line for line in DECLARED if line.startswith(f"0.{version.split('.')[1]}."))
    assert ("GuaranteedQoSPodCPUResize" in release) is not is_named


def test_a_guaranteed_pod_may_be_made_anew() -> None:
    """A gate would have the kubelet allocate the resize, and the container keeps its CPUs."""
    node = node_of()
    assert node.admit(pod("a", amounts("2")))
    explanation = explain_resize(node, "a", {"c": amounts("3")})

    assert (bool(explanation), explanation.answer.status) == (False, "Infeasible")
    assert "static CPU policy" in explanation.cause
    assert [suggestion.kind for suggestion in explanation.suggestions] == ["pod"]
    assert "c would get CPUs 1-3" in explanation.suggestions[0].text
    facts = json.loads(json.dumps(explanation.to_dict()))
    assert (facts["reason"], facts["admitted"], facts["kept"]) == ("Infeasible", False, [])
    assert len(facts["suggestions"]) == 1
    assert node.allocation("a", "c").cpus is not None
    assert node.pods[0].containers[0].requests["cpu"] == 2000


@pytest.mark.parametrize(
    ("resources", "has_gate"),
    [
        (amounts("700m"), True),
        (amounts("3500m"), True),
        (amounts("500m", "2Gi"), False),
        (amounts("700m", "2Gi"), False),
    ],
)
def test_a_gate_is_offered_where_the_container_gets_what_it_asks_for(resources, has_gate) -> None:
    node = node_of()
    assert node.admit(pod("a", amounts("500m")))
    explanation = explain_resize(node, "a", {"c": resources})

    gates = [made for made in explanation.suggestions if made.kind == "kubelet"]
    assert bool(gates) is has_gate
    for suggestion in gates:
        gate = "InPlacePodVerticalScalingExclusiveCPUs"
        assert suggestion.attempt == {"kubelet": {"featureGates": {gate: True}}}
        assert suggestion.text == f"turn on {gate} in the kubelet's featureGates"


@pytest.mark.parametrize("version", ["1.36", "1.37", "1.38"])
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("2", amounts("3"), ["c keeps its 2 exclusive CPUs (1-2), and does not get the 3"]),
        ("2", amounts("1"), ["c keeps its 2 exclusive CPUs (1-2), and does not get the 1"]),
        ("2", amounts("1500m"), ["c keeps its 2 exclusive CPUs (1-2), though what it asks"]),
        ("2", amounts("2", "2Gi"), ["c stays pinned to NUMA node 0 with its 1Gi of memory; "]),
        ("2", amounts("2", "17Gi"), ["NUMA node 0 has only 16Gi"]),
        ("2", amounts("3", "2Gi"), ["c keeps its 2 exclusive", "the 2Gi it asks for are not"]),
        ("500m", amounts("600m"), []),
    ],
)
def test_what_a_container_keeps_after_a_resize_is_said(version, before, after, words) -> None:
    names = ("InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory")
    node = node_of(version, topologyManagerPolicy="none", featureGates=dict.fromkeys(names, True))
    assert node.admit(pod("a", amounts(before)))
    explanation = explain_resize(node, "a", {"c": after})
    assert explanation
    assert len(explanation.kept) == len(words)
    for sentence, part in zip(explanation.kept, words, strict=True):
        assert part in sentence

    assert explanation.to_dict()["kept"] == list(explanation.kept)
    kinds = [suggestion.kind for suggestion in explanation.suggestions]
    assert kinds in ([], ["pod"]) if words else not kinds


def test_a_container_of_the_shared_pool_stays_there() -> None:
    node = node_of("1.37", featureGates={"InPlacePodVerticalScalingExclusiveCPUs": True})
    assert node.admit(pod("a", amounts("1500m")))
    explanation = explain_resize(node, "a", {"c": amounts("2")})
    assert explanation.kept == (
        "c stays in the shared pool, and gets none of the 2 exclusive CPUs it asks for",
    )
    assert "c would get CPUs 1-2" in explanation.suggestions[0].text


def test_another_pod_may_go_or_less_be_wanted() -> None:
    node = node_of()
    assert node.admit(pod("a", BURSTABLE))
    assert node.admit(pod("b", {"requests": {"cpu": "5", "memory": "1Gi"}}))
    explanation = explain_resize(node, "a", {"c": {"requests": {"cpu": "4"}}})

    assert explanation.answer.status == "Deferred"
    assert "other pods" in explanation.cause
    texts = {suggestion.kind: suggestion.text for suggestion in explanation.suggestions}
    assert texts == {"request": "request 2 cpu for c", "remove": "remove pod default/b"}


def test_more_than_the_node_has_helps_nothing_but_less() -> None:
    node = node_of()
    assert node.admit(pod("a", BURSTABLE))
    explanation = explain_resize(node, "a", {"c": {"requests": {"cpu": "100"}}})

    assert "more than the whole node has" in explanation.cause
    (only,) = explanation.suggestions
    assert only.kind == "request"
    assert node.resize("a", only.attempt["containers"])


def test_what_is_allocated_needs_no_help() -> None:
    node = node_of()
    assert node.admit(pod("a", BURSTABLE))
    explanation = explain_resize(node, "a", {"c": {"requests": {"cpu": "1500m"}}})
    assert (bool(explanation), explanation.cause, explanation.suggestions) == (True, "", ())


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_every_suggestion_is_true(seed: int) -> None:
    """Tried as it says, the resources are allocated; the node that is asked stays as it is."""
    rng = random.Random(seed)
    node = node_of(
        rng.choice(["1.33", "1.35", "1.36", "1.37"]),
        topologyManagerPolicy=rng.choice(["restricted", "none"]),
    )
    for number in range(rng.randrange(1, 5)):
        wish = amounts(rng.choice(["1", "2", "500m"]), rng.choice(["1Gi", "3Gi"]))
        node.admit(pod(f"p{number}", rng.choice([wish, {"requests": wish["requests"]}])))

    resident = rng.choice(node.pods)
    new_resources = {"c": {"requests": {"cpu": str(rng.randrange(3, 9))}}}
    if resident.containers[0].limits:
        new_resources["c"]["limits"] = new_resources["c"]["requests"]

    before = repr(node.pods)
    explanation = explain_resize(node, resident.uid, new_resources)
    assert repr(node.pods) == before
    for suggestion in explanation.suggestions:
        changed_node = node.copy()
        if suggestion.kind == "kubelet":
            fields = {
                "topologyManagerPolicy": node.config.topology_manager_policy,
                **suggestion.attempt["kubelet"],
            }
            assert KubeletConfig.from_dict(fields, version=node.config.version)
            continue

        if suggestion.kind == "pod":
            changed_node.remove(resident.uid)
            assert changed_node.admit(resized_pod(resident, new_resources))
            continue

        for uid in suggestion.attempt.get("remove", ()):
            changed_node.remove(uid)

        resources = suggestion.attempt.get("containers", new_resources)
        assert changed_node.resize(resident.uid, resources)


def test_the_resources_of_a_pod_are_those_it_was_made_of() -> None:
    node = node_of()
    assert node.admit(pod("a", amounts("1500m")))
    resident = node.pods[0]
    assert resized_pod(resident, *resources_of(resident)).containers == resident.containers
