"""Finds what is wrong between a kubelet's files and the pods and devices of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.kubelet.findings import finding
from alignup.kubelet.layout import CPU_STATE, DEVICE_CHECKPOINT, MEMORY_STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from alignup.kubelet.device_checkpoint import DeviceCheckpoint
    from alignup.kubelet.findings import Finding
    from alignup.kubelet.pod_resources import Allocatable
    from alignup.kubelet.state import KubeletState
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Container, Pod

__all__ = ["check_devices", "check_pods", "check_stale"]


def check_devices(
    checkpoint: DeviceCheckpoint, file: str, allocatable: Allocatable | None
) -> Iterator[Finding]:
    """Yield devices that are held twice, or that no plugin reports.

    Args:
        checkpoint: what is written.
        file: its name.
        allocatable: what PodResources tells of the devices; None: not known.
    """
    holders: dict[tuple[str, str], str] = {}
    for entry in checkpoint.entries:
        for identity in entry.ids:
            other = holders.setdefault((entry.resource, identity), entry.pod_uid)
            if other != entry.pod_uid:
                text = f"{entry.resource} {identity} is both pod {other}'s and pod {entry.pod_uid}'s"
                yield finding("device-given-twice", file, text)
    if allocatable is None:
        return
    for resource in checkpoint.registered:
        if resource not in allocatable.devices:
            yield finding("resource-gone", file, f"{resource} is registered and has no healthy device")
    for entry in checkpoint.entries:
        there = {device.id for device in allocatable.devices.get(entry.resource, ())}
        gone = [identity for identity in entry.ids if identity not in there]
        if gone:
            what = f"{entry.resource} {', '.join(gone)}, which no plugin reports as healthy"
            text = f"container {entry.container} of pod {entry.pod_uid} holds {what}"
            yield finding("device-gone", file, text)


def check_stale(
    state: KubeletState, stale: Mapping[str, Sequence[str]], place: Callable[[str], str]
) -> Iterator[Finding]:
    """Yield entries of pods or containers that are gone."""
    devices = state.device_ids()
    for uid, names in stale.items():
        for name in names:
            words = f"container {name} of pod {uid}, which is gone, has"
            cpus, blocks = state.cpus(uid, name), state.blocks(uid, name)
            if cpus is not None:
                yield finding("stale-cpus", place(CPU_STATE), f"{words} CPUs {cpus}")
            if blocks:
                kinds = ", ".join(sorted({one.type for one in blocks}))
                yield finding("stale-memory", place(MEMORY_STATE), f"{words} {kinds}")
            for resource, ids in devices.get((uid, name), {}).items():
                text = f"{words} {resource} {', '.join(ids)}"
                yield finding("stale-devices", place(DEVICE_CHECKPOINT), text)


def check_pods(
    state: KubeletState,
    pods: Sequence[Pod],
    config: KubeletConfig,
    resources: frozenset[str],
    place: Callable[[str], str],
) -> Iterator[Finding]:
    """Yield pods that run and whose files have not what they ask for.

    Init containers are passed over: what they held may be others' by now.

    Args:
        state: what is written.
        pods: those that run.
        config: the kubelet's configuration.
        resources: those that plugins have devices of.
        place: returns where a file is.
    """
    devices = state.device_ids()
    wants_cpus = state.cpu is not None and config.cpu_manager_policy == "static"
    wants_memory = state.memory is not None and config.memory_manager_policy == "Static"
    for pod in pods:
        for one in pod.containers:
            words = f"container {one.name} of pod {pod.namespace}/{pod.name} ({pod.uid}) runs and has no"
            if wants_cpus and one.exclusive_cpus and state.cpus(pod.uid, one.name) is None:
                yield finding("pod-without-cpus", place(CPU_STATE), f"{words} CPUs of its own there")
            if wants_memory and one.memory and not state.blocks(pod.uid, one.name):
                yield finding("pod-without-memory", place(MEMORY_STATE), f"{words} memory there")
            if state.devices:
                missing = _missing(one, devices.get((pod.uid, one.name), {}), resources)
                if missing:
                    text = f"{words} {', '.join(missing)} there"
                    yield finding("pod-without-devices", place(DEVICE_CHECKPOINT), text)


def _missing(container: Container, held: Mapping[str, Sequence[str]], resources: frozenset[str]) -> list[str]:
    """Return the resources that a container asks for and has no device of."""
    return [name for name, count in container.devices if count and name in resources and not held.get(name)]
