"""Reads the steps of a scenario, and applies them to a node: admissions, starts of containers, removals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import AlignupError, AllocationError, InputError
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.records import Record
from alignup.topology_manager.admission import Admission
from alignup.topology_manager.scope import KUBELET, Refusal

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

STEPS: Final = ("admit", "start", "resize", "remove")
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


class Resize(Record):
    """A pod is resized in place."""

    uid: str
    containers: Mapping[str, Any]
    pod: Mapping[str, Any] | None


Step = Admit | Start | Resize | Remove


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
        expected = (
            'either {"admit": Pod}, {"start": uid, "container": name}, {"resize": uid, "containers": {...}} or '
            '{"remove": uid}'
        )
        raise InputError.at("the step", expected, step)
    if "admit" in step:
        return Admit(pod_from_manifest(step["admit"]))
    name = next(one for one in STEPS if one in step)
    uid = step[name]
    if not isinstance(uid, str):
        raise InputError.at(name, "the uid of a pod", uid)
    if name == "remove":
        return Remove(uid)
    if name == "resize":
        containers, pod = step.get("containers", {}), step.get("pod")
        for where, value in (("containers", containers), ("pod", {} if pod is None else pod)):
            if not isinstance(value, Mapping):
                raise InputError.at(where, "an object", value)
        return Resize(uid, containers, pod)
    container = step.get("container")
    if not isinstance(container, str):
        raise InputError.at("container", "the name of a container of the pod", container)
    return Start(uid, container)


def apply_step(node: Node, step: Step, refused: set[str]) -> Admission | None:
    """Let a step happen on a node, and return the verdict on a pod that came, was resized, or could not start.

    To start, resize or remove a pod that was refused or preempted is no error and changes nothing.

    Args:
        node: the node.
        step: the step.
        refused: uids of the pods that were refused or preempted and have not come again; kept up to date.

    Raises:
        PodExistsError: a pod is admitted that is admitted already.
        UnknownPodError: a pod is started, resized or removed that was never admitted.
        InputError: the API server would refuse a resize.
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
    if step.uid in refused:
        if isinstance(step, Remove):
            refused.discard(step.uid)
    elif isinstance(step, Remove):
        node.remove(step.uid)
    elif isinstance(step, Resize):
        return resized(node, step.uid, step.containers, step.pod)
    else:
        try:
            node.started(step.uid, step.container)
        except AllocationError as error:  # it does not start; its pod stays
            return Admission(True, refusal=Refusal("", str(error), provider=KUBELET))
    return None


def resized(node: Node, uid: str, containers: Mapping[str, Any], whole: Mapping[str, Any] | None) -> Admission:
    """Resize a pod in place, and return the kubelet's answer as a verdict, with what its containers then hold.

    Raises:
        UnknownPodError: no such pod is admitted.
        InputError: the API server would refuse the resize.
    """
    answer = node.resize(uid, containers, whole)
    refusal = None if answer else Refusal(answer.status, answer.message, provider=KUBELET)
    pod = node.manager.pod(uid)
    got = {one.name: node.allocation(pod.uid, one.name) for one in pod.all_containers}
    return Admission(bool(answer), answer.status, got, refusal, node.machine.numa_node_ids)
