"""Reading a manifest that an agent hands to `Node.admit`: microseconds."""

from __future__ import annotations

import pytest

from alignup.kubernetes.manifest import pod_from_manifest


@pytest.mark.benchmark(group="manifest")
def test_one_pod_of_one_container(benchmark, promise):
    """CPUs, memory and a device."""
    limits = {"cpu": 2, "memory": "1Gi", "example.com/nic": "1"}
    containers = [{"name": "app", "image": "app:1", "resources": {"limits": limits}}]
    pod = benchmark(pod_from_manifest, {"metadata": {"name": "p"}, "spec": {"containers": containers}})

    assert pod.exclusive_cpus == 2
    promise(50)
