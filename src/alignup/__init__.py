"""Decide which NUMA nodes, CPUs, memory and devices a workload gets, as the Kubernetes Topology Manager would.

Public names are imported on first use, so that `import alignup` is fast:

    BitMask, TopologyHint, HintList         sets of NUMA nodes, and hints over them
    Merger                                  the merge alone, of one group of hint lists or of many at once
    make_policy, TopologyManager            the Topology Manager itself, for providers of your own
    Machine, Pod, KubeletConfig, Node       a machine, a pod, a configuration, and the node they make
    Admission, ContainerAllocation          the result of admitting a pod, and the allocation of a container
    Explanation, Suggestion                 why a pod is admitted or refused, and what would help
    Cluster, Evaluation                     one pod evaluated on thousands of nodes
    plan_room, RoomPlan                     the fewest evictions after which waiting pods are admitted
    lease, Lease                            CPUs, memory and devices of this machine for a while
    AlignupError, AlignupWarning            the base of all errors, and of what is ignored
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignup.cluster import Cluster, Evaluation
    from alignup.cluster.room import RoomPlan, Standing, plan_room
    from alignup.errors import (
        AlignupError,
        AlignupWarning,
        AllocationError,
        ConfigError,
        InputError,
        PodExistsError,
        UnknownPodError,
    )
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Container, Pod
    from alignup.kubernetes.qos import QOSClass
    from alignup.leases.lease import Lease, lease
    from alignup.machine.cpuset import CPUSet
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.node import Node
    from alignup.node.explain.explanation import Explanation, Suggestion
    from alignup.topology_manager.admission import Admission, ContainerAllocation, MemoryBlock
    from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
    from alignup.topology_manager.manager import TopologyManager
    from alignup.topology_manager.policy import Merger, Policy, make_policy
    from alignup.topology_manager.provider import HintProvider, ResourceHints

__all__ = [
    "Admission",
    "AlignupError",
    "AlignupWarning",
    "AllocationError",
    "BitMask",
    "CPUSet",
    "Cluster",
    "ConfigError",
    "Container",
    "ContainerAllocation",
    "Device",
    "Evaluation",
    "Explanation",
    "HintList",
    "HintProvider",
    "InputError",
    "KubeletConfig",
    "Lease",
    "Machine",
    "MemoryBlock",
    "Merger",
    "Node",
    "Pod",
    "PodExistsError",
    "Policy",
    "QOSClass",
    "ResourceHints",
    "RoomPlan",
    "Standing",
    "Suggestion",
    "TopologyHint",
    "TopologyManager",
    "UnknownPodError",
    "lease",
    "make_policy",
    "plan_room",
]

_HOMES = {
    "Admission": "topology_manager.admission",
    "AlignupError": "errors",
    "AlignupWarning": "errors",
    "AllocationError": "errors",
    "BitMask": "topology_manager.hints",
    "CPUSet": "machine.cpuset",
    "Cluster": "cluster",
    "ConfigError": "errors",
    "Container": "kubernetes.pod",
    "ContainerAllocation": "topology_manager.admission",
    "Device": "machine.device_inventory",
    "Evaluation": "cluster",
    "Explanation": "node.explain.explanation",
    "HintList": "topology_manager.hints",
    "HintProvider": "topology_manager.provider",
    "InputError": "errors",
    "KubeletConfig": "kubernetes.kubelet_config",
    "Lease": "leases.lease",
    "Machine": "machine.machine",
    "Merger": "topology_manager.policy",
    "MemoryBlock": "topology_manager.admission",
    "Node": "node",
    "Pod": "kubernetes.pod",
    "PodExistsError": "errors",
    "Policy": "topology_manager.policy",
    "QOSClass": "kubernetes.qos",
    "ResourceHints": "topology_manager.provider",
    "RoomPlan": "cluster.room",
    "Standing": "cluster.room",
    "Suggestion": "node.explain.explanation",
    "TopologyHint": "topology_manager.hints",
    "TopologyManager": "topology_manager.manager",
    "UnknownPodError": "errors",
    "lease": "leases.lease",
    "make_policy": "topology_manager.policy",
    "plan_room": "cluster.room",
}
"""The module that each public name lives in."""


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for."""
    if name == "__version__":
        from alignup.version import VERSION  # noqa: PLC0415  # as the others

        return VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'alignup' has no attribute {name!r}")
    value = getattr(import_module(f"alignup.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__version__"])
