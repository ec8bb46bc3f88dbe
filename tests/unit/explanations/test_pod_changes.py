"""The largest request that would be admitted, and the smallest joint reduction."""

from __future__ import annotations

import pytest

from alignup import Node, explain, read_pod
from alignup.kubernetes.quantity import parse_quantity
from inputs.machines import machine_of
from inputs.refusals import EXAMPLE_GPU, by_kind, gpu_pod, node_of, wish


def test_the_largest_request_that_would_be_admitted() -> None:
    node = node_of()
    node.admit(gpu_pod("a", cpu="2"))
    node.admit(gpu_pod("b", cpu="3"))
    [suggestion] = by_kind(node, gpu_pod("x", cpu="9"))["request"]

    assert suggestion.text == "ask for 8 cpu instead of 9"
    limits = suggestion.attempt["pod"]["spec"]["containers"][0]["resources"]["limits"]
    assert node.try_admit(suggestion.attempt["pod"])
    more = gpu_pod("x", cpu=str(int(limits["cpu"]) + 1))
    assert not node.try_admit(more)


def test_devices_can_be_given_up_altogether() -> None:
    node = node_of()
    for uid in "abcd":
        assert node.admit(gpu_pod(uid, cpu="1", gpus=1))
    [suggestion] = by_kind(node, gpu_pod("x", cpu="1", gpus=1))["request"]

    assert suggestion.text == f"ask for no {EXAMPLE_GPU}"
    assert (
        EXAMPLE_GPU not in suggestion.attempt["pod"]["spec"]["containers"][0]["resources"]["limits"]
    )


def test_a_joint_reduction_where_no_single_one_does() -> None:
    node = node_of()
    texts = [
        suggestion.text for suggestion in by_kind(node, gpu_pod("x", cpu="9", gpus=3))["request"]
    ]

    assert texts == [f"ask for 8 cpu instead of 9 and 2 {EXAMPLE_GPU} instead of 3"]


def test_a_container_can_be_split() -> None:
    suggestions = by_kind(node_of(), gpu_pod("x", cpu="10", gpus=4, memory="4Gi"))["pod"]

    assert suggestions[0].text == (
        f"split container 'main' into 2 containers of 5 cpu, 2Gi memory, 2 {EXAMPLE_GPU} each"
    )
    names = [container["name"] for container in suggestions[0].attempt["pod"]["spec"]["containers"]]
    assert names == ["main-0", "main-1"]


def test_whole_cores() -> None:
    node = node_of(cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    [suggestion] = by_kind(node, gpu_pod("x", cpu="3"))["pod"]

    assert suggestion.text == "ask for whole cores: 4 cpu instead of 3 in container 'main'"


@pytest.mark.parametrize(
    ("limit", "requests", "steps"),
    [
        (
            "2",
            {"cpu": "1500m"},
            "request as much CPU and memory as the limits say and request whole CPUs",
        ),
        ("2", {"cpu": "1"}, "request as much CPU and memory as the limits say"),
        ("1500m", None, "request whole CPUs"),
    ],
)
def test_guaranteed_instead_of_burstable(limit, requests, steps) -> None:
    """Where that is why the container is not pinned."""
    [suggestion] = by_kind(node_of(), gpu_pod("x", cpu=limit, requests=requests))["pod"]

    assert suggestion.text == f"{steps}: then every container gets CPUs of its own"
    assert read_pod(suggestion.attempt["pod"]).exclusive_cpus == 2


def test_a_joint_reduction_gives_up_no_more_than_it_must() -> None:
    """Neither resource alone would do; each is raised again until one step more is refused."""
    node = node_of()
    manifest = gpu_pod("x", cpu="1000", memory="4000Gi")
    [suggestion] = by_kind(node, manifest)["request"]

    limits = suggestion.attempt["pod"]["spec"]["containers"][0]["resources"]["limits"]
    assert set(limits) == {"cpu", "memory"}
    cpus, memory = int(limits["cpu"]), parse_quantity(limits["memory"], "memory") // 10**9
    assert node.try_admit(suggestion.attempt["pod"])
    assert not node.try_admit(gpu_pod("x", cpu=str(cpus + 1), memory=str(memory)))
    assert not node.try_admit(gpu_pod("x", cpu=str(cpus), memory=str(memory + (1 << 20))))


@pytest.mark.parametrize(("taken", "shares"), [(1, True), (8, False)])
def test_a_container_is_to_share_cpus_only_where_the_node_has_enough_for_all(
    taken: int, *, shares: bool
) -> None:
    """The pod asks for 9 CPUs, of which one NUMA node has 8: of the 16 there, 15 or 8 are free."""
    node = node_of(topologyManagerScope="pod")
    assert node.admit(gpu_pod("a", cpu=f"{taken}"))
    pod = gpu_pod("x", cpu="7")
    pod["spec"]["containers"].append(
        {"name": "side", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    )
    texts = [suggestion.text for suggestion in explain(node, pod).suggestions]
    assert texts
    assert any("which then shares CPUs" in text for text in texts) is shares


def test_a_pod_is_told_to_ask_for_less_although_more_would_do() -> None:
    """Restricted takes two devices, which need both NUMA nodes as the CPUs do, and not one."""
    devices = {"b.com/gpu": [{"id": "g", "numa": [0]}, {"id": "h", "numa": [1]}]}
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    node = Node.from_dict({"machine": machine_of(2, 4), "kubelet": kubelet, "devices": devices})
    assert node.try_admit(wish("x", cpu="12", **{"b.com/gpu": "2"}))

    requests = by_kind(node, wish("x", cpu="12", **{"b.com/gpu": "1"}))["request"]
    assert [suggestion.text for suggestion in requests] == [
        "ask for 8 cpu instead of 12",
        "ask for no b.com/gpu",
    ]
