"""Other configurations of the kubelet, and what alignment they cost."""

from __future__ import annotations

from explaining import by_kind, gpu_pod, node_of


def test_a_weaker_policy_says_what_alignment_is_lost() -> None:
    found = by_kind(node_of(memoryManagerPolicy="None"), gpu_pod("x", cpu="10"))["kubelet"]

    assert [one.attempt["kubelet"] for one in found] == [
        {"topologyManagerPolicy": "restricted"},
        {"topologyManagerPolicy": "best-effort"},
    ]
    assert found[0].text == (
        "configure the kubelet with topologyManagerPolicy restricted: "
        "it would run on NUMA nodes 0+1, where every resource prefers to be"
    )


def test_policy_none_is_told_of_a_policy_that_aligns() -> None:
    node = node_of(topologyManagerPolicy="none")
    assert node.admit(gpu_pod("a", cpu="3"))
    [one] = by_kind(node, gpu_pod("x", cpu="4"))["kubelet"]

    assert one.attempt["kubelet"]["topologyManagerPolicy"] == "best-effort"
