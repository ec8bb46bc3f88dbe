"""Replays scenarios: one node, and pods that come and go on it.

A scenario is the JSON of `Node.from_dict` with `name` and `steps`, each `{"admit": Pod}`,
`{"start": uid, "container": name}` or `{"remove": uid}`. The answers are plain data;
`alignup.cli.replay` prints them. `docs/scenarios.md` lists all keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import AlignupError, AllocationError, ConfigError, InputError
from alignup.kubernetes.manifest import read_pod
from alignup.node import Node
from alignup.records import Record
from alignup.topology_manager.admission import Admission, affinity_dict
from alignup.topology_manager.hints import HintList
from alignup.topology_manager.provider import HintProvider, RecordingProvider, ResourceHints
from alignup.topology_manager.scope import KUBELET, Refusal

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion

__all__ = ["RecordingProvider", "replay", "replay_steps"]


# The reason in the status of a pod that gave way to a critical one
# (`pkg/kubelet/preemption/preemption.go`).
_PREEMPTED: Final = "Preempting"
_NOT_THERE: Final = "the pod is not on the node: its kubelet refused or preempted it before"
# The keys of a scenario's steps, of which each has one.
STEPS: Final = ("admit", "start", "resize", "remove")

# Longer lists are shown as a sample with the total count; they exist only on machines of over 12
# NUMA nodes.
MOST_SHOWN_HINTS = 4096


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
# By container (None: the pod as a whole) and name of the provider.
Hints = dict[str | None, dict[str, ResourceHints]]
# What remembers the hints of each provider, with the provider's name.
Recorders = Sequence[tuple[str, RecordingProvider]]


def steps_of(scenario: Mapping[str, Any]) -> Sequence[Any]:
    """Return the steps of a scenario, not decoded yet.

    Raises:
        InputError: they are no list.
    """
    steps = scenario.get("steps", [])
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        raise InputError.at("steps", "a list of steps", steps)
    return steps


def read_steps(scenario: Mapping[str, Any]) -> list[Step]:
    """Return the steps of a scenario.

    Raises:
        InputError: they are no list, or one is malformed; the message names it.
    """
    steps = []
    for index, step in enumerate(steps_of(scenario)):
        with errors_of_step(index):
            steps.append(read_step(step))

    return steps


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
            'either {"admit": Pod}, {"start": uid, "container": name}, '
            '{"resize": uid, "containers": {...}} or {"remove": uid}'
        )
        raise InputError.at("the step", expected, step)

    if "admit" in step:
        return Admit(read_pod(step["admit"]))

    name = next(key for key in STEPS if key in step)
    uid = step[name]
    if not isinstance(uid, str):
        raise InputError.at(name, "the uid of a pod", uid)
    if name == "remove":
        return Remove(uid)
    if name == "resize":
        containers = step.get("containers", {})
        if not isinstance(containers, Mapping):
            raise InputError.at("containers", "an object", containers)

        pod = step.get("pod")
        if pod is not None and not isinstance(pod, Mapping):
            raise InputError.at("pod", "an object", pod)

        return Resize(uid, containers, pod)

    container = step.get("container")
    if not isinstance(container, str):
        raise InputError.at("container", "the name of a container of the pod", container)

    return Start(uid, container)


def apply_step(node: Node, step: Step, refused: dict[str, str]) -> Admission | None:
    """Let a step happen on a node.

    To start, resize or remove a pod that was refused or preempted is no error and changes nothing;
    to start or resize it is answered with the reason for which it is not there.

    Args:
        node: the node.
        step: the step.
        refused: by uid the reason of the pods that were refused or preempted and have not come
            again; kept up to date.

    Returns:
        the verdict on a pod that came, was resized, or could not start; or None.

    Raises:
        PodExistsError: a pod is admitted that is admitted already.
        UnknownPodError: a pod is started, resized or removed that was never admitted.
        InputError: the API server would refuse a resize.
    """
    if isinstance(step, Admit):
        uids_before = {pod.uid for pod in node.pods} if node.whole_verdict else set()
        admission = node.admit(step.pod)
        if admission.admitted:
            refused.pop(step.pod.uid, None)
            preempted_uids = uids_before - {pod.uid for pod in node.pods}
            refused.update(dict.fromkeys(preempted_uids, _PREEMPTED))
        else:
            refused[step.pod.uid] = admission.reason

        return admission

    if step.uid in refused:
        if not isinstance(step, Remove):
            reason = refused[step.uid]
            return Admission(False, reason, refusal=Refusal(reason, _NOT_THERE, provider=KUBELET))

        del refused[step.uid]
    elif isinstance(step, Remove):
        node.remove(step.uid)
    elif isinstance(step, Resize):
        return resized(node, step)
    else:
        try:
            node.started(step.uid, step.container)
        except AllocationError as error:  # it does not start; its pod stays
            return Admission(True, refusal=Refusal("", str(error), provider=KUBELET))

    return None


def resized(node: Node, resize: Resize) -> Admission:
    """Resize a pod in place.

    Returns:
        the kubelet's answer as a verdict, with what the pod's containers then hold.

    Raises:
        UnknownPodError: no such pod is admitted.
        InputError: the API server would refuse the resize.
    """
    answer = node.resize(resize.uid, resize.containers, resize.pod)
    refusal = None
    if not answer:
        refusal = Refusal(answer.status, answer.message, provider=KUBELET)

    pod = node.manager.pod(resize.uid)
    allocations = {
        container.name: node.allocation(pod.uid, container.name) for container in pod.all_containers
    }
    return Admission(bool(answer), answer.status, allocations, refusal, node.machine.numa_node_ids)


def replay(
    scenario: Mapping[str, Any],
    *,
    with_hints: bool = False,
    with_faults: bool = False,
    kubelet_version: KubeletVersion | str | None = None,
) -> dict[str, Any]:
    """Return the answer to each step of a scenario.

    Args:
        scenario: keys as in the module's docstring; `expect` is ignored.
        with_hints: add the hints of each provider.
        with_faults: say in the key `kubelet` where the kubelet would not answer, panic, or give
            CPUs twice.
        kubelet_version: the kubelet's release, in place of the key `kubeletVersion`.

    Returns:
        `{"name", "steps"}`, or `{"name", "configError"}` where a kubelet would refuse to start.

    Raises:
        InputError: the scenario is malformed; the message names the place.
    """
    if not isinstance(scenario, Mapping):
        raise InputError.at("the scenario", "an object with a machine and steps", scenario)

    name = scenario.get("name", "")
    recorders: list[tuple[str, RecordingProvider]] = []

    def record(provider: HintProvider) -> HintProvider:
        recorder = RecordingProvider(provider)
        recorders.append((recorder.name, recorder))
        return recorder

    try:
        node = Node.from_dict(
            scenario, wrap=record if with_hints else None, kubelet_version=kubelet_version
        )
    except ConfigError as error:
        return {"name": name, "configError": str(error)}

    return {
        "name": name,
        "steps": list(replay_steps(node, steps_of(scenario), recorders, with_faults=with_faults)),
    }


def replay_steps(
    node: Node, steps: Sequence[Any], recorders: Recorders, *, with_faults: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each step."""
    refused: dict[str, str] = {}
    for index, step in enumerate(steps):
        for _, recorder in recorders:
            recorder.forget()

        with errors_of_step(index):
            decoded_step = read_step(step)
            pod = decoded_step.pod if isinstance(decoded_step, Admit) else None
            faults = {}
            if with_faults and pod is not None:
                faults = fault_dict(node, pod)

            admission = apply_step(node, decoded_step, refused)
            if admission is None:
                admission = Admission(True)

            answer = admission_dict(node, pod, admission, recorders)

        yield answer | faults


def fault_dict(node: Node, pod: Pod) -> dict[str, str]:
    """Return under the key `kubelet` the known fault that a pod's admission comes upon, if any."""
    from alignup.node.faults import known_faults  # noqa: PLC0415  # few ask for it

    faults = known_faults(node, pod)
    return {"kubelet": faults[0].does} if faults else {}


def admission_dict(
    node: Node, pod: Pod | None, admission: Admission, recorders: Recorders = ()
) -> dict[str, Any]:
    """Return an admission in JSON's types: of a pod, or None for what came of another step."""
    cpus = node.shared_cpus  # None without a static CPU policy
    answer = {**admission.to_dict(), "sharedCpus": "" if cpus is None else str(cpus)}
    if pod is None:
        return answer
    if node.claims is not None and pod.constraints.claims:
        devices = node.claims.devices(pod.uid)
        answer["claims"] = {"devices": [device.to_dict() for device in devices]}

    if not recorders:
        return answer

    hints: Hints = {}
    for container in pod.all_containers:
        by_provider = {
            name: recorder.by_container[container.name]
            for name, recorder in recorders
            if container.name in recorder.by_container
        }
        if by_provider:
            hints[container.name] = by_provider

    if node.scope_name == "pod":
        hints[None] = {name: recorder.by_pod for name, recorder in recorders}

    return with_hints_of(answer, hints, node.machine.numa_node_ids)


def with_hints_of(answer: dict[str, Any], hints: Hints, ids: Sequence[int]) -> dict[str, Any]:
    """Return an answer in JSON's types, to which what was offered is added."""
    for name, offered in hints.items():
        by_provider = {
            provider: hints_dict(resources, ids) for provider, resources in offered.items()
        }
        if name is None:
            answer["podHints"] = by_provider
        else:
            answer["containers"].setdefault(name, {})["hints"] = by_provider

    return answer


def hints_dict(resources: ResourceHints, ids: Sequence[int]) -> dict[str, Any] | None:
    """Return a provider's hints by resource; of a long list a sample, and then the total count."""
    if resources is None:
        return None

    shown: dict[str, Any] = {}
    for resource, hints in sorted(resources.items()):
        if hints is None:
            shown[resource] = None
            continue

        packed = hints if isinstance(hints, HintList) else HintList(hints)
        shown[resource] = [affinity_dict(hint, ids) for hint in packed.sample(MOST_SHOWN_HINTS)]
        total = packed.total()
        if total is None or total > MOST_SHOWN_HINTS:
            shown[resource].append({"sampled": MOST_SHOWN_HINTS, "total": total})

    return shown
