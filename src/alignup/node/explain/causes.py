"""Finds every cause of a refusal: without the resources that one cause names, the pod is tried again for the next.

So the container passes, or the pod as a whole does, if none of the resources named were asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from alignup.kubernetes.pod_requests import effective_request
from alignup.node.explain.cause import cause_of
from alignup.node.explain.trial import tried

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.node.explain.cause import Cause
    from alignup.node.explain.trial import Trial
    from alignup.node.node import Node

__all__ = ["causes_of", "sentence_of", "without_requests"]

MOST_CAUSES: Final = 8


def causes_of(node: Node, trial: Trial) -> tuple[Cause, ...]:
    """Return why the pod was refused, the first cause first; each holds without those before it."""
    found: list[Cause] = []
    pod = trial.pod
    refusal = trial.admission.refusal
    where = refusal.container if refusal else None
    while (refusal := trial.admission.refusal) is not None and refusal.container == where:
        cause = cause_of(trial)
        found.append(cause)
        if not cause.resources or len(found) == MOST_CAUSES:
            break
        fewer = without_requests(pod, where, cause.resources)
        if fewer == pod:
            break
        pod, trial = fewer, tried(node, fewer)
    return tuple(found)


def sentence_of(causes: Sequence[Cause], pod: Pod, container: str | None) -> str:
    """Return all causes in one sentence, which names the container where there are several."""
    text = "; besides, ".join(cause.sentence for cause in causes)
    return (
        f"container {container!r}: {text}" if container is not None and len(pod.all_containers) > 1 else text
    )


def without_requests(pod: Pod, container: str | None, resources: Collection[str]) -> Pod:
    """Return the pod as if some resources were not asked for.

    Args:
        pod: the pod.
        container: the one that does not ask for them; None: all of them.
        resources: the resources.
    """

    def strip(one: Container) -> Container:
        if container not in (None, one.name):
            return one
        return replace(
            one,
            exclusive_cpus=0 if "cpu" in resources else one.exclusive_cpus,
            memory=tuple(item for item in one.memory if item[0] not in resources),
            devices=tuple(item for item in one.devices if item[0] not in resources),
            fractional_memory="" if one.fractional_memory in resources else one.fractional_memory,
        )

    init_containers, containers = tuple(map(strip, pod.init_containers)), tuple(map(strip, pod.containers))
    cpus, memory, devices = effective_request(init_containers, containers)
    return replace(
        pod,
        init_containers=init_containers,
        containers=containers,
        all_containers=init_containers + containers,
        exclusive_cpus=cpus,
        memory=memory,
        devices=devices,
    )
