"""Reading a manifest that an agent hands to `Node.admit`: microseconds."""

from __future__ import annotations

import pytest

from alignup.kubernetes.manifest import pod_from_manifest

LIMIT = 250e-6


@pytest.mark.benchmark(group="manifest")
def test_one_pod_of_one_container(benchmark):
    """The limit is ten times what it takes."""
    limits = {"cpu": 2, "memory": "1Gi", "example.com/nic": "1"}
    containers = [{"name": "app", "image": "app:1", "resources": {"limits": limits}}]
    pod = benchmark(pod_from_manifest, {"metadata": {"name": "p"}, "spec": {"containers": containers}})

    assert pod.exclusive_cpus == 2
    if benchmark.stats is not None:
        assert benchmark.stats["min"] < LIMIT
