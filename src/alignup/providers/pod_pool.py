"""Says whether the containers that share a pod's CPUs and memory would be left with none (EmptyPodSharedPoolError).

Managers that give a pod its resources as a whole (`spec.resources`, feature gate PodLevelResourceManagers) give
containers that would be Guaranteed by themselves a part of their own; all others share the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import AllocationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.kubernetes.pod import Container, Pod

EMPTY_POD_SHARED_POOL_ERROR: Final = "EmptyPodSharedPoolError"


def empty_shared_pool(pod: Pod, total: Mapping[str, int]) -> str:
    """Return why nothing is left for containers that share, in the kubelet's words; empty if something is.

    Args:
        pod: a pod with resources of its own.
        total: what the pod has, CPUs or memory by type.
    """
    held = dict.fromkeys(total, 0)
    is_shared = False
    for container in pod.all_containers:
        amounts = _own(container, total)
        if container.is_init and not container.is_sidecar:
            exhausted = next((one for one, amount in total.items() if held[one] >= amount), None)
            if not amounts and exhausted is not None:
                what = "cpus" if exhausted == "cpu" else exhausted
                return f"pod rejected, pod has shared init containers but no {what} available for them"
            continue
        is_shared = is_shared or not amounts
        for resource, amount in amounts.items():
            held[resource] = held.get(resource, 0) + amount
    exhausted = next((one for one, amount in total.items() if held[one] >= amount), None)
    if not is_shared or exhausted is None:
        return ""
    what = "cpus" if exhausted == "cpu" else "memory"
    return (
        f"pod rejected, sum of exclusive container {exhausted} requests equals pod budget, "
        f"leaving no {what} for shared containers"
    )


def _own(container: Container, total: Mapping[str, int]) -> Mapping[str, int]:
    """Return the CPUs or memory that a container has for itself; nothing if it shares."""
    if "cpu" not in total:
        return dict(container.memory)
    return {"cpu": container.exclusive_cpus} if container.exclusive_cpus else {}


def check_shared_pool(pod: Pod, total: Mapping[str, int]) -> None:
    """Refuse a pod whose containers would have nothing to share; see `empty_shared_pool`.

    Raises:
        AllocationError: it is one.
    """
    if cause := empty_shared_pool(pod, total):
        raise AllocationError(cause, EMPTY_POD_SHARED_POOL_ERROR)
