"""Finds out which pod of PodResources answers has which uid in the state files, by what both say it holds.

The answers have no uids, and the files no names. Where pods are known by their manifests, this is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.kubelet.pod_resources import ContainerResources, PodResources
    from alignup.kubelet.state import KubeletState

__all__ = ["pods_by_uid"]

_Holding = tuple[str, int, tuple[object, ...], tuple[object, ...]]


def pods_by_uid(state: KubeletState, pods: Iterable[PodResources]) -> dict[str, PodResources]:
    """Return the pod of each uid that some pod's answer fits.

    A pod fits a uid if both name the same CPUs, memory and devices for each of its containers, and any at all. Pods
    that hold the same amounts of memory, and nothing else, cannot be told apart; they are dealt out in order.
    """
    waiting: dict[frozenset[_Holding], list[PodResources]] = {}
    for pod in pods:
        key = frozenset(filter(None, map(_told, pod.containers)))
        if key:
            waiting.setdefault(key, []).append(pod)
    devices = state.device_ids()
    found = {}
    for uid, names in state.containers().items():
        written = [_written(state, uid, name, devices.get((uid, name), {})) for name in names]
        holdings = frozenset(filter(None, written))
        fitting = next((key for key in _candidates(holdings, waiting) if waiting[key]), None)
        if fitting is not None:
            found[uid] = waiting[fitting].pop(0)
    return found


def _candidates(
    holdings: frozenset[_Holding], waiting: dict[frozenset[_Holding], list[PodResources]]
) -> Iterable[frozenset[_Holding]]:
    """Yield the answers that fit: the same holdings, or fewer, since init containers are not in the answers."""
    if holdings in waiting:
        yield holdings
    else:
        yield from (key for key in waiting if key < holdings)


def _told(container: ContainerResources) -> _Holding | None:
    """Return what an answer says of a container, in a form that can be compared; None: nothing."""
    memory = tuple(sorted((one.type, one.numa_nodes, one.size) for one in container.memory))
    devices = tuple(sorted(container.devices.items()))
    if not (container.cpus or memory or devices):
        return None
    return container.name, int(container.cpus), memory, devices


def _written(
    state: KubeletState, uid: str, name: str, devices: dict[str, tuple[str, ...]]
) -> _Holding | None:
    """Return what the files say of a container, in the same form."""
    cpus = int(state.cpus(uid, name) or 0)
    memory = tuple(
        sorted((one.type, tuple(sorted(one.numa_nodes)), one.size) for one in state.blocks(uid, name))
    )
    held = tuple(sorted((resource, ids) for resource, ids in devices.items() if ids))
    if not (cpus or memory or held):
        return None
    return name, cpus, memory, held
