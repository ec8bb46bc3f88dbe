"""Other shapes of the same pod: split, whole cores, Guaranteed."""

from __future__ import annotations

from alignup.kubernetes.pod import Pod
from explaining import EXAMPLE_GPU, by_kind, gpu_pod, node_of


def test_a_container_can_be_split() -> None:
    found = by_kind(node_of(), gpu_pod("x", cpu="10", gpus=4, memory="4Gi"))["pod"]

    assert found[0].text == (
        f"split container 'main' into 2 containers of 5 cpu, 2Gi memory, 2 {EXAMPLE_GPU} each"
    )
    names = [one["name"] for one in found[0].attempt["pod"]["spec"]["containers"]]
    assert names == ["main-0", "main-1"]


def test_whole_cores() -> None:
    node = node_of(cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    [one] = by_kind(node, gpu_pod("x", cpu="3"))["pod"]

    assert one.text == "ask for whole cores: 4 cpu instead of 3 in container 'main'"


def test_guaranteed_instead_of_burstable() -> None:
    """Where that is why the container is not pinned."""
    [one] = by_kind(node_of(), gpu_pod("x", cpu="2", requests={"cpu": "1500m"}))["pod"]

    assert "then every container gets CPUs of its own" in one.text
    assert Pod.from_manifest(one.attempt["pod"]).exclusive_cpus == 2
