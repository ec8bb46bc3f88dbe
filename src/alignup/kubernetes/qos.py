"""Decides the quality of service class of a pod from what its containers request and are limited to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class QOSClass(StrEnum):
    """The quality of service class that Kubernetes derives from requests and limits.

    >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    >>> pod.qos is QOSClass.BEST_EFFORT
    True
    """

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def qos_class(resources: Iterable[tuple[Mapping[str, int], Mapping[str, int]]]) -> QOSClass:
    """Return the QoS class of a pod whose containers have these resources, as `ComputePodQOS` does.

    Only positive amounts of CPU and memory count. Guaranteed: each container limits both, and what the
    containers request in total is what they are limited to in total. Init containers count like the others.

    Args:
        resources: requests and limits of every container; or only the pod's own, where it has some of its own.
    """
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    is_limited = True
    for requested, limited in resources:
        for resource in ("cpu", "memory"):
            request, limit = requested.get(resource, 0), limited.get(resource, 0)
            if request > 0:
                requests[resource] = requests.get(resource, 0) + request
            if limit > 0:
                limits[resource] = limits.get(resource, 0) + limit
            else:
                is_limited = False
    if not requests and not limits:
        return QOSClass.BEST_EFFORT
    return QOSClass.GUARANTEED if is_limited and requests == limits else QOSClass.BURSTABLE
