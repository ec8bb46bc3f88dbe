"""Replays scenarios: one node, and pods that come and go on it.

A scenario is the JSON of `Node.from_dict` with `name` and `steps`, each `{"admit": Pod}`,
`{"start": uid, "container": name}`, `{"resize": uid, ...}`, `{"remove": uid}` or
`{"restart": true}`. The answers are plain data; `alignup.cli.replay` prints them.
`docs/scenarios.md` lists all keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import AlignupError, AllocationError, ConfigError, InputError
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.versions import KubeletVersion, parse_version
from alignup.node import Node
from alignup.node.holdings import HintScores, amounts_of, scores_of
from alignup.node.restart import readmitted, successor
from alignup.records import Record, replace
from alignup.topology_manager.admission import Admission, affinity_dict
from alignup.topology_manager.hints import HintList
from alignup.topology_manager.provider import HintProvider, RecordingProvider, ResourceHints
from alignup.topology_manager.scope import KUBELET, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.kubernetes.pod import Container, Pod

__all__ = ["RecordingProvider", "replay", "replay_steps"]


# The reason in the status of a pod that gave way to a critical one
# (`pkg/kubelet/preemption/preemption.go`).
_PREEMPTED: Final = "Preempting"
_NOT_THERE: Final = "the pod is not on the node: its kubelet refused or preempted it before"
# The keys of a scenario's steps, of which each has one.
STEPS: Final = ("admit", "start", "resize", "remove", "restart")
_RESTART_KEYS: Final = ("restart", "kubeletVersion")

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


class Restart(Record):
    """The kubelet stops and starts on the state that it has written, and admits its pods again.

    Attributes:
        version: the release that starts; None: the same one.
    """

    version: KubeletVersion | None = None


PodStep = Admit | Start | Resize | Remove
Step = PodStep | Restart
# By container (None: the pod as a whole) and name of the provider.
Hints = dict[str | None, dict[str, ResourceHints]]
# By container (None: the pod as a whole), in a release whose hints have scores.
Scores = Mapping[str | None, HintScores]
# What remembers the hints of each provider, with the provider's name.
Recorders = list[tuple[str, RecordingProvider]]


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
            '{"resize": uid, "containers": {...}}, {"remove": uid} or {"restart": true}'
        )
        raise InputError.at("the step", expected, step)

    if "admit" in step:
        return Admit(read_pod(step["admit"]))
    if "restart" in step:
        return _read_restart(step)

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


def _read_restart(step: Mapping[str, Any]) -> Restart:
    """Return a restart of the kubelet.

    Raises:
        InputError: it is malformed.
    """
    if step["restart"] is not True:
        raise InputError.at("restart", "true", step["restart"])

    unknown_keys = [key for key in step if key not in _RESTART_KEYS]
    if unknown_keys:
        expected = f"no keys but {' and '.join(_RESTART_KEYS)}"
        raise InputError.at("a restart", expected, unknown_keys)

    version = step.get("kubeletVersion")
    return Restart(None if version is None else parse_version(version))


def apply_step(node: Node, step: PodStep, refused: dict[str, str]) -> Admission | None:
    """Let a step happen on a node, if it is no restart of the kubelet.

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
    recorders: Recorders = []
    wrap = partial(_recorded, recorders) if with_hints else None
    try:
        node = Node.from_dict(scenario, wrap=wrap, kubelet_version=kubelet_version)
    except ConfigError as error:
        return {"name": name, "configError": str(error)}

    return {
        "name": name,
        "steps": list(
            replay_steps(node, steps_of(scenario), recorders, with_faults=with_faults, wrap=wrap)
        ),
    }


class _ScoreRecorder(RecordingProvider):
    """Remembers with the hints how full the node was, of which a kubelet 1.38 makes their scores.

    Attributes:
        node: whose providers are asked; None: hints of its release have no scores.
        scores: by container; None: the pod as a whole.
    """

    __slots__ = ("node", "scores")

    def __init__(self, provider: HintProvider) -> None:
        super().__init__(provider)
        self.node: Node | None = None
        self.scores: dict[str | None, HintScores] = {}

    def forget(self) -> None:
        """Discard the hints and scores of the current pod."""
        super().forget()
        self.scores = {}

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Ask the provider and remember the answer, and how full the node is."""
        self._note_scores(container.name)
        return super().topology_hints(pod, container)

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Ask the provider and remember the answer, and how full the node is."""
        self._note_scores(None)
        return super().pod_topology_hints(pod)

    def _note_scores(self, container: str | None) -> None:
        if self.node is not None:
            ids = self.node.machine.numa_node_ids
            self.scores[container] = scores_of(amounts_of(self.node), ids)


def _prepare(node: Node, recorders: Recorders) -> None:
    """Forget the hints of the last pod, and let the next ones be those of a node."""
    has_scores = node.config.profile.hints_carry_scores
    for _, recorder in recorders:
        recorder.forget()
        if isinstance(recorder, _ScoreRecorder):
            recorder.node = node if has_scores else None


def _recorded(recorders: Recorders, provider: HintProvider) -> RecordingProvider:
    """Return what remembers a provider's hints, after it is added to the others."""
    recorder = _ScoreRecorder(provider)
    recorders.append((recorder.name, recorder))
    return recorder


def replay_steps(
    node: Node,
    steps: Sequence[Any],
    recorders: Recorders,
    *,
    with_faults: bool = False,
    wrap: Callable[[HintProvider], HintProvider] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each step.

    Args:
        node: the node; a restart of its kubelet puts another one in its place.
        steps: what happens on it.
        recorders: remember the hints of the node's providers; after a restart, those of the new
            node's.
        with_faults: as in `replay`.
        wrap: called with each built-in provider of a new node; returns the provider to use in its
            place, and appends it to `recorders`; None: `recorders` are made as they are there.
    """
    if wrap is None and recorders:
        wrap = partial(_recorded, recorders)

    course = _Course(node, recorders, wrap, with_faults=with_faults)
    for index, step in enumerate(steps):
        with errors_of_step(index):
            answer = course.answer(read_step(step))

        yield answer


class _Course:
    """What has become of a node in the steps so far.

    Attributes:
        node: the node, as its kubelet is now.
        recorders: of its providers.
        wrap: makes them for the node that a restart puts in its place.
        with_faults: say where the kubelet would not answer, panic, or give CPUs twice.
        refused: as for `apply_step`.
        stopped: why the kubelet does not run; empty: it runs.
    """

    def __init__(
        self,
        node: Node,
        recorders: Recorders,
        wrap: Callable[[HintProvider], HintProvider] | None,
        *,
        with_faults: bool,
    ) -> None:
        self.node = node
        self.recorders = recorders
        self.wrap = wrap
        self.with_faults = with_faults
        self.refused: dict[str, str] = {}
        self.stopped = ""

    def answer(self, step: Step) -> dict[str, Any]:
        """Let a step happen, and return the answer to it in JSON's types."""
        _prepare(self.node, self.recorders)
        if isinstance(step, Restart):
            return self._restart(step)
        if self.stopped:
            return admission_dict(self.node, None, not_running(self.stopped))

        pod = step.pod if isinstance(step, Admit) else None
        faults = {}
        if self.with_faults and pod is not None:
            faults = fault_dict(self.node, pod)

        admission = apply_step(self.node, step, self.refused)
        if admission is None:
            admission = Admission(True)

        return admission_dict(self.node, pod, admission, self.recorders) | faults

    def _restart(self, restart: Restart) -> dict[str, Any]:
        """Restart the kubelet, and return its answer with those to the pods that it admits again.

        If it does not start, the node stays as it is.
        """
        earlier_recorders = self.recorders.copy()
        self.recorders.clear()
        try:
            self.node = next_node(self.node, restart, self.wrap)
        except ConfigError as error:
            self.recorders += earlier_recorders
            self.stopped = str(error)
            answer = admission_dict(self.node, None, not_running(self.stopped))
            return {**answer, "again": []}

        self.stopped = ""
        again = list(self._again())
        return {**admission_dict(self.node, None, Admission(True)), "again": again}

    def _again(self) -> Iterator[dict[str, Any]]:
        """Yield the answers to the pods that a restarted kubelet admits again."""
        node = self.node
        _prepare(node, self.recorders)
        for readmission in readmitted(node, node.pods):
            pod = readmission.pod
            if readmission.refusal is not None:
                self.refused[pod.uid] = readmission.refusal.reason

            admission = node.admission(pod, readmission.refusal)
            yield {"uid": pod.uid, **admission_dict(node, pod, admission, self.recorders)}
            _prepare(node, self.recorders)


def next_node(
    node: Node, restart: Restart, wrap: Callable[[HintProvider], HintProvider] | None = None
) -> Node:
    """Return the node whose kubelet has started in the place of this one's.

    Its pods are not admitted again yet; this node stays as it is.

    Raises:
        ConfigError: the kubelet does not start; the message is its own.
    """
    config = node.config
    if restart.version is not None:
        config = replace(config, version=restart.version)

    return successor(node, config, wrap=wrap)


def not_running(cause: str) -> Admission:
    """Return the answer of a kubelet that did not start."""
    message = f"the kubelet does not start: {cause}"
    return Admission(False, refusal=Refusal("", message, provider=KUBELET))


def fault_dict(node: Node, pod: Pod) -> dict[str, str]:
    """Return under the key `kubelet` the known fault that a pod's admission comes upon, if any."""
    from alignup.node.faults import known_faults  # noqa: PLC0415  # few ask for it

    faults = known_faults(node, pod)
    return {"kubelet": faults[0].does} if faults else {}


def admission_dict(
    node: Node,
    pod: Pod | None,
    admission: Admission,
    recorders: Sequence[tuple[str, RecordingProvider]] = (),
) -> dict[str, Any]:
    """Return an admission in JSON's types: of a pod, or None for what came of another step."""
    cpus = node.shared_cpus  # None without a static CPU policy
    answer = {**admission.to_dict(), "sharedCpus": "" if cpus is None else str(cpus)}
    if pod is None:
        return answer
    if node.claims is not None and node.read(pod).constraints.claims:
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

    scores: dict[str | None, HintScores] = {}
    for _, recorder in recorders:
        if isinstance(recorder, _ScoreRecorder):
            scores |= recorder.scores

    return with_hints_of(answer, hints, scores, node.machine.numa_node_ids)


def with_hints_of(
    answer: dict[str, Any], hints: Hints, scores: Scores, ids: Sequence[int]
) -> dict[str, Any]:
    """Return an answer in JSON's types, to which what was offered is added."""
    for name, offered in hints.items():
        by_provider = {}
        for provider, resources in offered.items():
            score_of = None
            if name in scores:
                score_of = partial(scores[name], provider)
            by_provider[provider] = hints_dict(resources, ids, score_of)

        if name is None:
            answer["podHints"] = by_provider
        else:
            answer["containers"].setdefault(name, {})["hints"] = by_provider

    return answer


def hints_dict(
    resources: ResourceHints,
    ids: Sequence[int],
    score_of: Callable[[str, int], int] | None = None,
) -> dict[str, Any] | None:
    """Return a provider's hints by resource; of a long list a sample, and then the total count.

    Args:
        resources: the hints.
        ids: of the NUMA nodes, by position.
        score_of: returns the score of a hint for a resource by its mask; None: it has none.
    """
    if resources is None:
        return None

    shown: dict[str, Any] = {}
    for resource, hints in sorted(resources.items()):
        if hints is None:
            shown[resource] = None
            continue

        packed = hints if isinstance(hints, HintList) else HintList(hints)
        shown[resource] = []
        for hint in packed.sample(MOST_SHOWN_HINTS):
            fields = affinity_dict(hint, ids)
            if fields is not None and score_of is not None:
                mask = hint.affinity
                fields["score"] = 0 if mask is None else score_of(resource, int(mask))
            shown[resource].append(fields)

        total = packed.total()
        if total is None or total > MOST_SHOWN_HINTS:
            shown[resource].append({"sampled": MOST_SHOWN_HINTS, "total": total})

    return shown
