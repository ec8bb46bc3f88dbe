"""Replays scenarios: one node, and pods that come and go on it; the steps are read in `alignup.replay.steps`.

A scenario is the JSON of `Node.from_dict` with `name` and `steps`, each `{"admit": Pod}`,
`{"start": uid, "container": name}` or `{"remove": uid}`. The answers are plain data; `alignup.cli.replay` prints them.
`docs/scenarios.md` lists all keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alignup.errors import ConfigError, InputError
from alignup.node import Node
from alignup.replay.steps import Admit, Step, apply_step, errors_of_step, read_step, steps_of
from alignup.topology_manager.admission import Admission, affinity_dict
from alignup.topology_manager.admission import admission_dict as verdict_dict
from alignup.topology_manager.hints import HintList
from alignup.topology_manager.provider import HintProvider, RecordingProvider, ResourceHints

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion

__all__ = ["RecordingProvider", "replay", "replay_steps"]

MOST_SHOWN_HINTS = 4096
"""Longer lists are shown as a sample with the total count; they exist only on machines of over 12 NUMA nodes."""


def replay(
    scenario: Mapping[str, Any], *, with_hints: bool = False, kubelet_version: KubeletVersion | str | None = None
) -> dict[str, Any]:
    """Return the answer to each step of a scenario.

    Args:
        scenario: keys as in the module's docstring; `expect` is ignored.
        with_hints: add the hints of each provider.
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
        recorders.append((getattr(provider, "name", type(provider).__name__), recorder))
        return recorder

    try:
        node = Node.from_dict(scenario, wrap=record if with_hints else None, kubelet_version=kubelet_version)
    except ConfigError as error:
        return {"name": name, "configError": str(error)}
    return {"name": name, "steps": list(replay_steps(node, steps_of(scenario), recorders))}


def replay_steps(
    node: Node, steps: Sequence[Any], recorders: Sequence[tuple[str, RecordingProvider]]
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each step."""
    refused: set[str] = set()
    for index, step in enumerate(steps):
        for _, recorder in recorders:
            recorder.forget()
        with errors_of_step(index):
            answer = replay_step(node, read_step(step), recorders, refused)
        yield answer


def replay_step(
    node: Node, step: Step, recorders: Sequence[tuple[str, RecordingProvider]], refused: set[str]
) -> dict[str, Any]:
    """Return the answer to one step; to start or remove a pod that was refused is no error and changes nothing."""
    admission = apply_step(node, step, refused)
    if isinstance(step, Admit) and admission is not None:
        return admission_dict(node, step.pod, admission, recorders)
    if admission is not None:
        return {**verdict_dict(admission, node.machine.numa_node_ids), "sharedCpus": shared(node)}
    return {"admitted": True, "reason": "", "message": "", "sharedCpus": shared(node), "containers": {}}


def shared(node: Node) -> str:
    """Return the shared pool as a cpulist; empty without a static CPU policy."""
    cpus = node.shared_cpus
    return "" if cpus is None else str(cpus)


def admission_dict(
    node: Node, pod: Pod, admission: Admission, recorders: Sequence[tuple[str, RecordingProvider]] = ()
) -> dict[str, Any]:
    """Return an admission in JSON's types."""
    answer = {**verdict_dict(admission, node.machine.numa_node_ids), "sharedCpus": shared(node)}
    if node.claims is not None and pod.constraints.claims:
        answer["claims"] = {"devices": [one.to_dict() for one in node.claims.devices(pod.uid)]}
    containers = answer["containers"]
    if not recorders:
        return answer
    ids = node.machine.numa_node_ids
    for container in pod.all_containers:
        offered = {
            name: hints_dict(recorder.by_container[container.name], ids)
            for name, recorder in recorders
            if container.name in recorder.by_container
        }
        if offered:
            containers.setdefault(container.name, {})["hints"] = offered
    if node.scope_name == "pod":
        answer["podHints"] = {name: hints_dict(recorder.by_pod, ids) for name, recorder in recorders}
    return answer


def hints_dict(resources: ResourceHints, ids: Sequence[int]) -> dict[str, Any] | None:
    """Return a provider's hints by resource; of a long list a sample, followed by the total count."""
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
