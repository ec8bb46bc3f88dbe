"""Sums over a whole node, as the default scheduler knows it: allocatable amounts, and the requests of a pod.

NUMA nodes play no part here; `alignup.node` decides what a kubelet would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.kubernetes.pod_requests import is_device, is_pinned_memory, peak

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Pod
    from alignup.machine.machine import Machine


def requested(pod: Pod) -> dict[str, int]:
    """Return the most that the containers of a pod request at one time; CPUs in thousandths, memory in bytes."""
    asked = peak(pod.init_containers, pod.containers, lambda one: one.requests.items())
    return {
        name: amount
        for name, amount in asked.items()
        if amount and (name == "cpu" or is_pinned_memory(name) or is_device(name))  # nodes are not described with disks
    }


def allocatable_sums(machine: Machine, config: KubeletConfig, devices: Mapping[str, int]) -> dict[str, int]:
    """Return what a kubelet reports as allocatable: what there is less what is reserved.

    Args:
        machine: the machine.
        config: the kubelet's configuration.
        devices: how many healthy devices of each resource there are.
    """
    reserved_cpus = len(config.reserved_system_cpus) or config.reserved_cpu_count
    found = {"cpu": 1000 * (machine.cpu_count - reserved_cpus), **machine.memory_by_type}
    for entry in config.reserved_memory:
        for name, amount in entry.limits:
            found[name] = found.get(name, 0) - amount
    return {name: max(0, amount) for name, amount in found.items()} | dict(devices)
