"""What would help: every change was tried, and another replay of it agrees."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup import explain, read_pod
from alignup.claims.preview import preview_claims
from alignup.explanations.attempts import Attempts
from alignup.explanations.suggestions import reservations_near_claims
from alignup.kubernetes.versions import NEWEST
from alignup.node import Node
from alignup.records import replace
from fakes.hint_providers import Licences
from inputs.claims_on_nodes import pod_with_claim
from inputs.machines import machine_of
from inputs.refusals import KUBELET, by_kind, gpu_pod, node_of, refusals, wish
from inputs.small_claims import class_of, slice_of, template
from inputs.strategies import counts


def test_with_a_users_provider_no_other_configuration_is_suggested() -> None:
    """A new node would lack the provider; without a copy no pod is removed either."""
    node = Node.from_dict(
        {"machine": machine_of(2, 4), "kubelet": KUBELET}, providers=[Licences([9, 9])]
    )
    node.admit(gpu_pod("a", cpu="6"))
    node.admit(gpu_pod("b", cpu="6"))

    assert by_kind(node, gpu_pod("x", cpu="4")).keys() == {"request", "pod"}
    assert [pod.uid for pod in node.pods] == ["a", "b"]


def check(seed: int, count: int) -> None:
    """Check that another replay confirms every suggestion about random refusals."""
    confirmed = 0
    for story, manifest, explanation in refusals(seed, count):
        assert len(explanation.suggestions) <= 5
        for suggestion in explanation.suggestions:
            facts = json.loads(json.dumps(suggestion.to_dict()))
            assert facts["verified"] is True
            assert story.confirms(facts["try"], manifest, facts["after"]), (
                suggestion.text,
                explanation.cause,
            )
            confirmed += 1
    assert confirmed > count


def test_another_replay_confirms_every_suggestion() -> None:
    check(seed=1, count=20)


@pytest.mark.slow
def test_another_replay_confirms_a_thousand_refusals() -> None:
    check(seed=2, count=1000)


def test_a_weaker_policy_says_what_alignment_is_lost() -> None:
    suggestions = by_kind(node_of(memoryManagerPolicy="None"), gpu_pod("x", cpu="10"))["kubelet"]

    assert [suggestion.attempt["kubelet"] for suggestion in suggestions] == [
        {"topologyManagerPolicy": "restricted"},
        {"topologyManagerPolicy": "best-effort"},
    ]
    assert suggestions[0].text == (
        "configure the kubelet with topologyManagerPolicy restricted: it would run on NUMA nodes "
        "0+1, fully aligned"
    )


def test_policy_none_is_told_of_a_policy_that_aligns() -> None:
    node = node_of(topologyManagerPolicy="none")
    assert node.admit(gpu_pod("a", cpu="3"))
    [suggestion] = by_kind(node, gpu_pod("x", cpu="4"))["kubelet"]

    assert suggestion.attempt["kubelet"]["topologyManagerPolicy"] == "best-effort"


class TestWholeCores:
    """Reserved parts of cores cost full-pcpus-only the rest of these cores."""

    @staticmethod
    def suggested(options, reserved, cpus):
        kubelet = {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": options,
            "reservedSystemCPUs": reserved,
            "topologyManagerPolicy": "best-effort",
        }

        # CPU n and n + 8 share a core
        node = Node.from_dict({"machine": machine_of(2, 4), "kubelet": kubelet})
        resources = {"limits": {"cpu": str(cpus), "memory": "1Gi"}}
        pod = {
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "resources": resources}]},
        }

        suggestions = explain(node, pod).suggestions
        return (
            {
                suggestion.attempt["kubelet"]["reservedSystemCPUs"]: suggestion
                for suggestion in suggestions
                if "reserved" in suggestion.text
            },
            node,
            pod,
        )

    def test_as_many_cpus_of_each_numa_node_in_whole_cores(self):
        suggestions, node, pod = self.suggested({"full-pcpus-only": "true"}, "0-1,4-5", 12)
        [(reserved, suggestion)] = suggestions.items()
        assert (reserved, suggestion.after) == ("0,4,8,12", "restart")
        assert not node.admit(pod)

    def test_the_state_file_has_to_go_where_it_leaves_out_what_is_reserved(self):
        options = {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
        [(reserved, suggestion)] = self.suggested(options, "0-1,4-5", 12)[0].items()
        assert (reserved, suggestion.after) == ("0,4,8,12", "drain")
        assert suggestion.text.startswith(
            "after draining the node and deleting /var/lib/kubelet/cpu_manager_state: "
        )

    def test_nothing_where_whole_cores_are_reserved(self):
        assert self.suggested({"full-pcpus-only": "true"}, "0,4,8,12", 14)[0] == {}


@pytest.mark.parametrize("count", counts(30, 600))
def test_a_container_is_split_where_nothing_else_helps(count: int) -> None:
    """It comes after everything else that was found."""
    splits = 0
    for _, _, explanation in refusals(4, count):
        texts = [suggestion.text for suggestion in explanation.suggestions]
        first = next((place for place, text in enumerate(texts) if text.startswith("split ")), None)
        splits += first is not None
        assert first is None or all(text.startswith("split ") for text in texts[first:]), texts
    assert splits


class TestUpdates:
    """Another release of the kubelet, where the rules or faults of the one in use are the cause."""

    @staticmethod
    def shared_by_the_pod(version, gates, **fields):
        kubelet = {**KUBELET, "featureGates": gates, **fields}
        node = Node.from_dict(
            {"machine": machine_of(2, 4), "kubelet": kubelet, "kubeletVersion": version}
        )
        pod = gpu_pod("x", cpu="12")
        pod["spec"]["resources"] = {"limits": {"cpu": "12", "memory": "1Gi"}}
        return node, pod

    def test_of_a_rule_that_refuses(self):
        """From 1.34 on, a pod with resources of its own shares CPUs."""
        node, pod = self.shared_by_the_pod("1.33", {"PodLevelResources": True})
        assert not node.try_admit(pod)
        [suggestion] = by_kind(node, pod)["update"]
        assert suggestion.text.startswith("update the kubelet to 1.34: it would ")
        assert suggestion.attempt == {"kubeletVersion": "1.34"}
        assert suggestion.after == "restart"

    def test_without_gates_that_the_release_lacks(self):
        gates = {"PodLevelResources": True, "HPAScaleToZero": False, "ElasticIndexedJob": True}
        node, pod = self.shared_by_the_pod("1.32", gates)
        [suggestion] = by_kind(node, pod)["update"]
        assert "1.34 without the feature gate ElasticIndexedJob: it would" in suggestion.text
        assert suggestion.attempt == {
            "kubeletVersion": "1.34",
            "kubelet": {"featureGates": {"PodLevelResources": True, "HPAScaleToZero": False}},
        }

    def test_not_where_every_release_refuses(self):
        node = node_of(memoryManagerPolicy="None")
        assert "update" not in by_kind(node, gpu_pod("x", cpu="10"))
        assert node.config.version == NEWEST

    def test_not_where_a_restart_alone_helps(self, monkeypatch):
        node, pod = self.shared_by_the_pod("1.33", {"PodLevelResources": True})
        monkeypatch.setattr(Attempts, "on_release", lambda attempts, *_, **__: attempts.node)
        monkeypatch.setattr(Attempts, "on", lambda attempts, _: attempts.node.admission)
        assert "update" not in by_kind(node, pod)

    def test_of_a_fault(self):
        """Up to 1.35 a kubelet walks all sets of NUMA nodes for the hints of devices."""
        devices = {"example.com/gpu": [{"id": "g0", "numa": [0]}]}
        kubelet = {"topologyManagerPolicy": "best-effort"}
        node = Node.from_dict(
            {
                "machine": machine_of(24, 1),
                "kubelet": {
                    **kubelet,
                    "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "24"},
                },
                "devices": devices,
                "kubeletVersion": "1.35",
            }
        )
        [suggestion] = by_kind(node, gpu_pod("x", gpus=1, cpu="1"))["update"]
        assert suggestion.text.startswith("update the kubelet to 1.36, which answers: it would run")
        assert suggestion.attempt == {"kubeletVersion": "1.36"}


def small_node(**fields: Any) -> Node:
    """Return a node of two NUMA nodes of 4 CPUs, of which CPU 0 is reserved."""
    machine = [
        {
            "id": node,
            "memory": 1 << 34,
            "cores": [{"cpus": [4 * node + core], "socket": 0} for core in range(4)],
        }
        for node in range(2)
    ]
    kubelet = {
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": "0",
        **fields.pop("kubelet", {}),
    }
    return Node.from_dict(
        {"machine": {"numaNodes": machine}, "kubelet": kubelet, "devices": {}, **fields}
    )


def claims_node(numa_nodes: list[int], *, hints: bool = True, **kubelet: str) -> Node:
    """Return such a node with devices of claims near some NUMA nodes."""
    resources = [slice_of(numa_nodes), class_of(), template()]
    return small_node(resources=resources, draHints=hints, kubelet=kubelet)


def test_of_a_pod_with_claims_all_kinds_of_changes_are_tried() -> None:
    node = claims_node([0, 0])
    explanation = explain(node, pod_with_claim(cpu=4))
    assert not explanation
    texts = [suggestion.text for suggestion in explanation.suggestions]
    assert texts[0].startswith("configure the kubelet with other CPUs reserved: reservedSystemCPUs")
    assert "fully aligned" in texts[0]
    assert "ask for 3 cpu instead of 4" in texts
    assert any("topologyManagerPolicy best-effort" in text for text in texts)

    # as it says
    reserved = claims_node([0, 0], reservedSystemCPUs="4")
    assert reserved.admit(pod_with_claim(cpu=4))
    fewer = next(made for made in explanation.suggestions if made.kind == "request")
    with pytest.warns(UserWarning, match="claims"):
        changed = read_pod(fewer.attempt["pod"])

    assert changed.constraints.claims == pod_with_claim(cpu=4).constraints.claims
    assert node.admit(changed)


def test_pods_with_claims_stay_where_the_kubelet_is_configured_anew() -> None:
    node = claims_node([0, 0])
    assert node.admit(pod_with_claim("first", cpu=2))
    explanation = explain(node, pod_with_claim("second", cpu=2))
    kinds = {suggestion.kind for suggestion in explanation.suggestions}
    assert kinds >= {"remove", "request", "kubelet"}
    attempts = [suggestion.attempt for suggestion in explanation.suggestions]
    assert {"kubelet": {"reservedSystemCPUs": "4"}} in attempts
    assert node.claims is not None
    assert len(node.claims.devices("default/first")) == 1


def test_reserved_cpus_of_the_other_numa_node_help_without_claims_too() -> None:
    node = small_node(devices={"example.com/nic": [{"id": "n", "numa": 0}]})
    suggestions = by_kind(node, wish("p", cpu="4", **{"example.com/nic": "1"}))["kubelet"]
    assert suggestions[0].attempt == {"kubelet": {"reservedSystemCPUs": "4"}}
    assert suggestions[0].after == "restart"


def test_what_was_tried_is_told_where_nothing_helps() -> None:
    requests, pods = "smaller requests", "fewer pods"
    settings = "other settings of the kubelet"
    node = claims_node([])
    assert explain(node, pod_with_claim()).tried == (requests, settings)
    assert explain(node, pod_with_claim(), suggest=False).tried == ()
    node.admit(wish("other", cpu="1"))
    assert explain(node, pod_with_claim()).tried == (requests, pods, settings)
    assert explain(node, wish("next", cpu="1")).tried == ()
    assert explain(small_node(), wish("more", cpu="9")).tried == ()  # something helps


@pytest.mark.parametrize(("small", "memory"), [("1Gi", "4Gi"), ("14Gi", "10Gi")])
def test_a_removal_lets_memory_lie_where_the_cpus_do(small: str, memory: str) -> None:
    kubelet = {
        "topologyManagerPolicy": "best-effort",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    node = small_node(kubelet=kubelet)
    assert node.admit(wish("small", cpu="1", memory=small))
    assert node.admit(wish("other", cpu="1", memory="100Mi"))
    wide = wish("wide", cpu="5", memory=memory)
    explanation = explain(node, wide)

    removals = [made for made in explanation.suggestions if made.kind == "remove"]
    for suggestion in removals:
        assert "memory and CPUs would both be on NUMA nodes 0+1" in suggestion.text
        emptier = node.copy()
        for uid in suggestion.attempt["remove"]:
            emptier.remove(uid)

        [block] = emptier.admit(wide).containers["main"].memory
        assert block.numa_nodes == (0, 1)

    alone = small_node(kubelet=kubelet)
    assert alone.admit(wish("small", cpu="1", memory=small))
    assert len([made for made in explain(alone, wide).suggestions if made.kind == "remove"]) == 1
    assert not [
        made
        for made in explain(small_node(kubelet=kubelet), wide).suggestions
        if (made.kind == "remove")
    ]


def test_the_plugin_that_would_help_is_named_whatever_comes_before_it() -> None:
    """The pod's first resource is where its CPUs are; of the second that is not so."""
    devices = {"a.com/nic": [{"id": "n", "numa": [1]}], "b.com/gpu": [{"id": "g", "numa": [0]}]}
    node = Node.from_dict({"machine": machine_of(2, 4), "kubelet": KUBELET, "devices": devices})
    assert node.admit(wish("first", cpu="3"))

    [suggestion] = by_kind(node, wish("x", cpu="6", **dict.fromkeys(devices, "1")))["plugin"]
    assert suggestion.to_dict()["try"] == {"excludeTopology": ["b.com/gpu"]}


def node_with_a_claim(device_node: int, reserved: str, options: dict[str, str]) -> Node:
    """Return a node of two NUMA nodes of eight CPUs, and a claim's device near one of them."""
    return Node.from_dict(
        {
            "machine": machine_of(2, 4),
            "kubelet": {
                "cpuManagerPolicy": "static",
                "cpuManagerPolicyOptions": options or None,
                "topologyManagerPolicy": "single-numa-node",
                "reservedSystemCPUs": reserved,
            },
            "devices": {},
            "resources": [slice_of([device_node]), class_of(), template()],
        }
    )


@pytest.mark.parametrize("options", [{}, {"strict-cpu-reservation": "true"}])
@pytest.mark.parametrize("device_node", [0, 1])
@pytest.mark.parametrize("reserved", ["0,8", "4,12"])
@pytest.mark.parametrize("cpus", [1, 6, 8])
def test_cpus_are_reserved_elsewhere_where_a_claims_device_is_far(
    options: dict[str, str], device_node: int, reserved: str, cpus: int
) -> None:
    """Each was tried: a node that is configured so from the start aligns the pod and its device."""
    node = node_with_a_claim(device_node, reserved, options)
    pod = pod_with_claim(cpu=cpus)
    preview = preview_claims(node, pod)
    assert preview is not None

    offered = list(reservations_near_claims(node, pod))
    if preview.meet is False and cpus == 8:
        other = "4,12" if device_node == 0 else "0,8"
        text = f"configure the kubelet with other CPUs reserved: reservedSystemCPUs {other}"
        assert offered == [f"after draining the node: {text}" if options else text]

        changed = preview_claims(node_with_a_claim(device_node, other, options), pod)
        assert changed is not None
        assert changed.meet is True
    for text in offered:
        moved = text.rpartition(" ")[2]
        again = preview_claims(node_with_a_claim(device_node, moved, options), pod)
        assert again is not None
        assert again.meet is True


def test_no_reservation_is_offered_that_brings_nothing() -> None:
    """More CPUs than a NUMA node has, a pod of the shared pool, a CPU held by another pod."""
    node = node_with_a_claim(0, "0,8", {})
    assert list(reservations_near_claims(node, pod_with_claim(cpu=9))) == []

    assert list(reservations_near_claims(node, replace(pod_with_claim(), exclusive_cpus=0))) == []

    assert node.admit(held_pod())
    assert list(reservations_near_claims(node, pod_with_claim(cpu=8))) == []


def held_pod() -> dict[str, Any]:
    """Return a pod of six CPUs, which are those of NUMA node 0 that are free."""
    limits = {"cpu": "6", "memory": "1Gi"}
    return {
        "metadata": {"name": "held", "uid": "held"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
