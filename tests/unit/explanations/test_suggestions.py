"""What would help: every change was tried, and another replay of it agrees."""

from __future__ import annotations

import json

import pytest

from alignup.node import Node
from explaining import KUBELET, by_kind, gpu_pod, node_of, refusals
from fakes import Licences
from machines import machine_of


def test_with_a_users_provider_no_other_configuration_is_suggested() -> None:
    """A new node would lack the provider; without a copy no pod is removed either."""
    node = Node.from_dict({"machine": machine_of(2, 4), "kubelet": KUBELET}, providers=[Licences([9, 9])])
    node.admit(gpu_pod("a", cpu="6"))
    node.admit(gpu_pod("b", cpu="6"))

    assert by_kind(node, gpu_pod("x", cpu="4")).keys() == {"request", "pod"}
    assert [pod.uid for pod in node.pods] == ["a", "b"]


def check(seed: int, count: int) -> None:
    """Check that another replay confirms every suggestion about random refusals."""
    confirmed = 0
    for story, wanted, explanation in refusals(seed, count):
        assert len(explanation.suggestions) <= 5
        for one in explanation.suggestions:
            told = json.loads(json.dumps(one.to_dict()))
            assert told["verified"] is True
            assert story.confirms(told["try"], wanted, told["after"]), (one.text, explanation.cause)
            confirmed += 1
    assert confirmed > count


def test_another_replay_confirms_every_suggestion() -> None:
    check(seed=1, count=30)


@pytest.mark.slow
def test_another_replay_confirms_a_thousand_refusals() -> None:
    check(seed=2, count=1000)


def test_a_weaker_policy_says_what_alignment_is_lost() -> None:
    found = by_kind(node_of(memoryManagerPolicy="None"), gpu_pod("x", cpu="10"))["kubelet"]

    assert [one.attempt["kubelet"] for one in found] == [
        {"topologyManagerPolicy": "restricted"},
        {"topologyManagerPolicy": "best-effort"},
    ]
    assert found[0].text == (
        "configure the kubelet with topologyManagerPolicy restricted: it would run on NUMA nodes 0+1, fully aligned"
    )


def test_policy_none_is_told_of_a_policy_that_aligns() -> None:
    node = node_of(topologyManagerPolicy="none")
    assert node.admit(gpu_pod("a", cpu="3"))
    [one] = by_kind(node, gpu_pod("x", cpu="4"))["kubelet"]

    assert one.attempt["kubelet"]["topologyManagerPolicy"] == "best-effort"


def test_a_container_is_split_where_nothing_else_helps() -> None:
    """It comes after everything else that was found."""
    splits = 0
    for _, _, explanation in refusals(seed=4, count=60):
        texts = [one.text for one in explanation.suggestions]
        first = next((place for place, text in enumerate(texts) if text.startswith("split ")), None)
        splits += first is not None
        assert first is None or all(text.startswith("split ") for text in texts[first:]), texts
    assert splits
