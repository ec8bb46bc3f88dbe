"""Says why containers run in the shared pool of CPUs under a static CPU manager, instead of on CPUs of their own.

The rule itself is in `alignup.kubernetes.pod_requests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.kubernetes.qos import QOSClass

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Container, Pod

__all__ = ["why_not_guaranteed", "why_shared"]

_COMPUTE: Final = ("cpu", "memory")


def why_shared(pod: Pod, container: Container) -> str:
    """Return why a container gets no CPUs of its own, as a clause; empty if it does.

    Args:
        pod: as the kubelet reads it that decides.
        container: one of its containers.
    """
    if container.exclusive_cpus:
        return ""
    if pod.qos is not QOSClass.GUARANTEED:
        return f"its pod is {pod.qos}: {why_not_guaranteed(pod)}"
    asked = container.requests.get("cpu", 0)
    if asked % 1000:
        return f"it requests {asked}m CPU, which is not a whole number"
    return "spec.resources of its pod, or its pod's status, count instead of its own requests"


def why_not_guaranteed(pod: Pod) -> str:
    """Return what makes a pod Burstable or BestEffort, as a clause: the first container and resource that do."""
    of_pod = "the resources of the pod as a whole (spec.resources) decide that"
    if any(
        other.qos != pod.qos for other in pod.readings.values()
    ):  # kubelets that do not know them see another class
        return of_pod
    for container in pod.all_containers:
        for resource in _COMPUTE:
            limit, request = container.limits.get(resource, 0), container.requests.get(resource, 0)
            if not limit:
                return f"container {container.name!r} has no limit of {resource}"
            if request != limit:
                return f"container {container.name!r} requests less {resource} than its limit"
    return of_pod
