"""Says whether containers that share a pod's resources are left with none.

Such a pod is refused with EmptyPodSharedPoolError.

Managers that give a pod its resources as a whole (`spec.resources`, feature gate
PodLevelResourceManagers) give containers that would be Guaranteed by themselves a part of their
own; all others share the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import AllocationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.kubernetes.pod import Pod

EMPTY_POD_SHARED_POOL_ERROR: Final = "EmptyPodSharedPoolError"


def empty_shared_pool(pod: Pod, total: Mapping[str, int]) -> str:
    """Return why nothing is left for containers that share, in the kubelet's words.

    The text is empty if something is left.

    Args:
        pod: a pod with resources of its own.
        total: what the pod has, CPUs or memory by type.
    """
    remaining = dict(total)
    is_shared = False

    def exhausted() -> str | None:
        return next((resource for resource, amount in remaining.items() if amount <= 0), None)

    for container in pod.all_containers:
        if "cpu" not in total:
            amounts = dict(container.memory)
        elif container.exclusive_cpus:
            amounts = {"cpu": container.exclusive_cpus}
        else:
            amounts = {}

        if container.is_init and not container.is_sidecar:
            if not amounts and (resource := exhausted()):
                noun = "cpus" if resource == "cpu" else resource
                return (
                    f"pod rejected, pod has shared init containers but no {noun} available for them"
                )
            continue

        is_shared = is_shared or not amounts
        for resource in remaining:
            remaining[resource] -= amounts.get(resource, 0)

    resource = exhausted()
    if not is_shared or resource is None:
        return ""

    noun = "cpus" if resource == "cpu" else "memory"
    return (
        f"pod rejected, sum of exclusive container {resource} requests equals pod budget, "
        f"leaving no {noun} for shared containers"
    )


def check_shared_pool(pod: Pod, total: Mapping[str, int]) -> None:
    """Refuse a pod whose containers would have nothing to share; see `empty_shared_pool`.

    Raises:
        AllocationError: it is one.
    """
    if cause := empty_shared_pool(pod, total):
        raise AllocationError(cause, EMPTY_POD_SHARED_POOL_ERROR, resources=tuple(total))
