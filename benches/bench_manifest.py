"""Reading a manifest that an agent hands to `Node.admit`: microseconds."""

from __future__ import annotations

import pytest

from alignup.kubernetes.manifest import read_pod


@pytest.mark.benchmark(group="manifest")
def test_one_pod_of_one_container(benchmark, promise):
    """CPUs, memory and a device."""
    limits = {"cpu": 2, "memory": "1Gi", "example.com/nic": "1"}
    containers = [{"name": "app", "image": "app:1", "resources": {"limits": limits}}]
    pod = benchmark(read_pod, {"metadata": {"name": "p"}, "spec": {"containers": containers}})

    assert pod.exclusive_cpus == 2
    promise(50)
