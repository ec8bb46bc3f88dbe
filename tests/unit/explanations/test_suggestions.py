"""What would help: every change was tried, and another replay of it agrees."""

from __future__ import annotations

import json

import pytest

from alignup import explain
from alignup.node import Node
from fakes.hint_providers import Licences
from inputs.machines import machine_of
from inputs.refusals import KUBELET, by_kind, gpu_pod, node_of, refusals
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
