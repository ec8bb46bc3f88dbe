"""Replays scenarios for a report: every step is applied to the node, and nothing but numbers is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError
from alignup.machine.described import machine_with_devices_from_dict
from alignup.node import Node
from alignup.replay.meter import Meter
from alignup.replay.report import Counts, NodeReport
from alignup.replay.steps import Admit, apply_step, errors_of_step
from alignup.topology_manager.refusal_cause import blamed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.replay.steps import Step
    from alignup.topology_manager.admission import Admission
    from alignup.topology_manager.scope import Refusal

__all__ = ["summarized", "with_kubelet"]

_TICK: Final = 256
"""Progress is told after so many steps."""


def with_kubelet(scenario: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario whose kubelet has other values of some fields; a machine may bring the rest.

    Raises:
        InputError: the scenario describes no machine.
    """
    if "machine" not in scenario:
        return dict(scenario)
    return {**scenario, "kubelet": {**machine_with_devices_from_dict(scenario).kubelet, **fields}}


def summarized(
    scenario: Mapping[str, Any],
    steps: Sequence[Step],
    *,
    kubelet_version: KubeletVersion | str | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> NodeReport:
    """Return what came of a scenario.

    Args:
        scenario: the node.
        steps: what happens on it.
        kubelet_version: the kubelet's release, in place of the key `kubeletVersion`.
        tick: called now and then with the number of steps that were done since.

    Raises:
        InputError: the scenario is malformed, or a step cannot be.
    """
    name = str(scenario.get("name", ""))
    try:
        node = Node.from_dict(scenario, kubelet_version=kubelet_version)
    except ConfigError as error:
        tick(len(steps))
        return NodeReport(name, Counts(), config_error=str(error))
    tally = _Tally(node, len(steps))
    refused: set[str] = set()
    for index, step in enumerate(steps, 1):
        with errors_of_step(index - 1):
            tally.note(step, apply_step(node, step, refused))
        if index % _TICK == 0:
            tick(_TICK)
    tick(len(steps) % _TICK)
    return tally.report(name)


class _Tally:
    """Counts what happens on a node."""

    def __init__(self, node: Node, steps: int) -> None:
        self._node = node
        self._meter = Meter(node, steps)
        self._counts = Counts()
        there: dict[str, int] = {}
        for place in self._meter.places:
            there[place.resource] = there.get(place.resource, 0) + place.allocatable
        self._there = {resource: amount for resource, amount in there.items() if amount > 0}
        self._stranded = dict.fromkeys(self._there, 0.0)

    def note(self, step: Step, admission: Admission | None) -> None:
        """Count a step, and the verdict on the pod that came."""
        counts = self._counts
        counts.steps += 1
        if isinstance(step, Admit) and admission is not None:
            counts.arrivals += 1
            if admission.refusal is None:
                counts.admitted += 1
                self._note_placement(step.pod, admission)
            else:
                self._note_refusal(step.pod, admission.refusal)
        self._meter.note(changed=admission is None or admission.admitted)

    def _note_placement(self, pod: Pod, admission: Admission) -> None:
        """Count how well the containers of an admitted pod are aligned."""
        counts = self._counts
        for name, got in admission.containers.items():
            if got.affinity is not None:
                counts.aligned += 1
                counts.preferred += got.affinity.preferred
            used = self._node.numa_nodes(pod.uid, name).bit_count()
            if used:
                counts.placed += 1
                counts.numa_nodes += used

    def _note_refusal(self, pod: Pod, refusal: Refusal) -> None:
        """Count why a pod was refused, and what was stranded if the node had enough in sum."""
        counts = self._counts
        counts.reasons[refusal.reason] += 1
        counts.resources.update(set(_resources_of(self._node, pod, refusal)))
        free = self._meter.free_in_all()
        asked = _asked(self._node, pod)
        if all(amount <= free.get(resource, amount) for resource, amount in asked.items()):
            counts.fitting += 1
            for resource, there in self._there.items():
                self._stranded[resource] += free[resource] / there

    def report(self, name: str) -> NodeReport:
        """Return what was counted."""
        arrivals = max(1, self._counts.arrivals)
        stranded = {resource: total / arrivals for resource, total in self._stranded.items()}
        return NodeReport(name, self._counts, self._meter.uses(), stranded)


def _asked(node: Node, pod: Pod) -> dict[str, int]:
    """Return what a pod asks for of the resources that the managers of this node give out."""
    pod = pod.read_as(node.config.profile.pods)
    asked = dict(pod.devices)
    if node.memory is not None:
        asked.update(pod.memory)
    if node.cpu is not None:
        asked["cpu"] = pod.exclusive_cpus
    return asked


def _resources_of(node: Node, pod: Pod, refusal: Refusal) -> list[str]:
    """Return the resources because of which a pod was refused."""
    if not refusal.provider:
        return [resource for offer in blamed(refusal) for resource in offer.resources]
    container = next((one for one in pod.all_containers if one.name == refusal.container), None)
    if refusal.provider != "devices" or container is None or node.devices is None:
        return [refusal.provider]
    free = node.devices.free
    asked = {resource: count for resource, count in container.devices if resource in free}
    return [resource for resource, count in asked.items() if count > len(free[resource])] or list(asked)
