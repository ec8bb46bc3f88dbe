"""Behaviour of `alignup.kubernetes.pod`."""

from __future__ import annotations

import pytest

from alignup import read_pod
from alignup.kubernetes.pod import why_shared
from alignup.kubernetes.versions import PodReading

WHOLE = {"limits": {"cpu": "2", "memory": "1Gi"}}


def pod_of(*resources, **spec):
    """Return a pod with these containers."""
    containers = [
        {"name": f"c{number}", "resources": section} for number, section in enumerate(resources)
    ]
    return read_pod({"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}})


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (pod_of(WHOLE), ""),
        (pod_of({}), "its pod is BestEffort: container 'c0' has no limit of cpu"),
        (
            pod_of(WHOLE, {"limits": {"cpu": "1"}}),
            "its pod is Burstable: container 'c1' has no limit of memory",
        ),
        (
            pod_of(WHOLE, {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
            "its pod is Burstable: container 'c1' requests less cpu than its limit",
        ),
        (
            pod_of({"limits": {"cpu": "2500m", "memory": "1Gi"}}),
            "it requests 2500m CPU, which is not a whole number",
        ),
        (
            pod_of(WHOLE, resources={}).read_as(PodReading(empty_pod_resources_ignored=False)),
            (
                "its pod is BestEffort: the resources of the pod as a whole (spec.resources) "
                "decide that"
            ),
        ),
        (
            pod_of(WHOLE, resources={"limits": {"cpu": "4", "memory": "2Gi"}}),
            (
                "its pod is Burstable: the resources of the pod as a whole (spec.resources) decide "
                "that"
            ),
        ),
        (
            pod_of(WHOLE, resources=WHOLE),
            (
                "the kubelet uses spec.resources or the status of its pod instead of the "
                "container's own requests"
            ),
        ),
    ],
)
def test_the_first_container_is_told_why_it_shares(pod, reason):
    assert why_shared(pod, pod.containers[0]) == reason
