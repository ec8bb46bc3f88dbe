"""Reads the steps of a scenario, and applies them to a node: admissions, starts of containers, removals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import AlignupError, InputError
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node
    from alignup.topology_manager.admission import Admission

__all__ = [
    "Admit",
    "Remove",
    "Start",
    "Step",
    "apply_step",
    "errors_of_step",
    "read_step",
    "read_steps",
    "steps_of",
]

STEPS: Final = ("admit", "start", "remove")
"""The keys of a scenario's steps, of which each has one."""


class Admit(Record):
    """A pod is to be admitted."""

    pod: Pod


class Start(Record):
    """A container of a pod starts."""

    uid: str
    container: str


class Remove(Record):
    """A pod is removed."""

    uid: str


Step = Admit | Start | Remove


def steps_of(scenario: Mapping[str, Any]) -> Sequence[Any]:
    """Return the steps of a scenario, not decoded yet.

    Raises:
        InputError: they are no list.
    """
    steps = scenario.get("steps", [])
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        raise InputError.at("steps", "a list of steps", steps)
    return steps


def read_steps(steps: Sequence[Any]) -> list[Step]:
    """Return the steps of a scenario.

    Raises:
        InputError: one is malformed; the message names it.
    """
    found = []
    for index, step in enumerate(steps):
        with errors_of_step(index):
            found.append(read_step(step))
    return found


@contextmanager
def errors_of_step(index: int) -> Iterator[None]:
    """Name the step in errors.

    Raises:
        InputError: in place of any other error of this package.
    """
    try:
        yield
    except AlignupError as error:
        raise InputError(f"steps[{index}]: {error}") from error


def read_step(step: Any) -> Step:
    """Return one step.

    Raises:
        InputError: it is malformed.
    """
    if not isinstance(step, Mapping) or sum(name in step for name in STEPS) != 1:
        expected = 'either {"admit": Pod}, {"start": uid, "container": name} or {"remove": uid}'
        raise InputError.at("the step", expected, step)
    if "admit" in step:
        return Admit(pod_from_manifest(step["admit"]))
    name = "start" if "start" in step else "remove"
    uid = step[name]
    if not isinstance(uid, str):
        raise InputError.at(name, "the uid of a pod", uid)
    if name == "remove":
        return Remove(uid)
    container = step.get("container")
    if not isinstance(container, str):
        raise InputError.at("container", "the name of a container of the pod", container)
    return Start(uid, container)


def apply_step(node: Node, step: Step, refused: set[str]) -> Admission | None:
    """Let a step happen on a node, and return the verdict on a pod that came.

    To start or remove a pod that was refused or preempted is no error and changes nothing.

    Args:
        node: the node.
        step: the step.
        refused: uids of the pods that were refused or preempted and have not come again; kept up to date.

    Raises:
        PodExistsError: a pod is admitted that is admitted already.
        UnknownPodError: a pod is started or removed that was never admitted.
    """
    if isinstance(step, Admit):
        before = {pod.uid for pod in node.pods} if node.whole_verdict else set()
        admission = node.admit(step.pod)
        if admission.admitted:
            refused.discard(step.pod.uid)
            refused.update(before - {pod.uid for pod in node.pods})
        else:
            refused.add(step.pod.uid)
        return admission
    if isinstance(step, Start):
        if step.uid not in refused:
            node.started(step.uid, step.container)
    elif step.uid in refused:
        refused.discard(step.uid)
    else:
        node.remove(step.uid)
    return None
