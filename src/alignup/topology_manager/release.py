"""Releases all that a pod was given: after a refusal, where some container could not be admitted, or on removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.topology_manager.provider import HintProvider


def release_pod(pod: Pod, providers: Sequence[HintProvider], *, in_pod_order: bool = False) -> None:
    """Release all containers of a pod, and of each the providers in reverse.

    If a provider fails, the others are still called; the first error is raised at the end.

    Args:
        pod: the pod; what a container was never given is no error.
        providers: in the order in which they allocate.
        in_pod_order: release containers in the pod's order, init containers first; by default in reverse, so that each
            provider retraces its states.
    """
    failed: BaseException | None = None
    for container in pod.all_containers[:: 1 if in_pod_order else -1]:
        for provider in providers[::-1]:
            try:
                provider.release(pod.uid, container.name)
            except BaseException as error:  # noqa: BLE001 - raised below
                failed = failed or error
    if failed is not None:
        raise failed
