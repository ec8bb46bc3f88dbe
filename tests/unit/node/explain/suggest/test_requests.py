"""The largest request that would be admitted, and the smallest joint reduction."""

from __future__ import annotations

from explaining import EXAMPLE_GPU, by_kind, gpu_pod, node_of


def test_the_largest_request_that_would_be_admitted() -> None:
    node = node_of()
    node.admit(gpu_pod("a", cpu="2"))
    node.admit(gpu_pod("b", cpu="3"))
    [one] = by_kind(node, gpu_pod("x", cpu="9"))["request"]

    assert one.text == "ask for 8 cpu instead of 9"
    limits = one.attempt["pod"]["spec"]["containers"][0]["resources"]["limits"]
    assert node.try_admit(one.attempt["pod"])
    more = gpu_pod("x", cpu=str(int(limits["cpu"]) + 1))
    assert not node.try_admit(more)


def test_devices_can_be_given_up_altogether() -> None:
    node = node_of()
    for uid in "abcd":
        assert node.admit(gpu_pod(uid, cpu="1", gpus=1))
    [one] = by_kind(node, gpu_pod("x", cpu="1", gpus=1))["request"]

    assert one.text == f"ask for no {EXAMPLE_GPU}"
    assert EXAMPLE_GPU not in one.attempt["pod"]["spec"]["containers"][0]["resources"]["limits"]


def test_a_joint_reduction_where_no_single_one_does() -> None:
    node = node_of()
    texts = [one.text for one in by_kind(node, gpu_pod("x", cpu="9", gpus=3))["request"]]

    assert texts == [f"ask for 8 cpu instead of 9 and 2 {EXAMPLE_GPU} instead of 3"]
