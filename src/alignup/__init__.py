"""Decide which NUMA nodes, CPUs, memory and devices a workload gets, as the Kubernetes Topology Manager would.

The public names are imported when they are first used, so that `import alignup` costs next to nothing:

    BitMask, TopologyHint, HintList         sets of NUMA nodes, and hints over them
    make_policy, TopologyManager            the Topology Manager itself, for providers of your own
    Machine, Pod, KubeletConfig, Node       a machine, a pod, a configuration, and the node they make
    Admission                               what came of admitting a pod
    lease                                   CPUs, memory and devices of this machine for a while
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignup.admission import Admission
    from alignup.bitmask import BitMask
    from alignup.cluster import Cluster
    from alignup.config import KubeletConfig
    from alignup.cpuset import CPUSet
    from alignup.errors import (
        AlignupError,
        AllocationError,
        ConfigError,
        InputError,
        PodExistsError,
        UnknownPodError,
    )
    from alignup.hints import HintList, TopologyHint
    from alignup.leases.lease import lease
    from alignup.machine import Machine
    from alignup.manager import TopologyManager
    from alignup.node import Node
    from alignup.pod import Pod
    from alignup.policy import make_policy
    from alignup.provider import HintProvider

__all__ = [
    "Admission",
    "AlignupError",
    "AllocationError",
    "BitMask",
    "CPUSet",
    "Cluster",
    "ConfigError",
    "HintList",
    "HintProvider",
    "InputError",
    "KubeletConfig",
    "Machine",
    "Node",
    "Pod",
    "PodExistsError",
    "TopologyHint",
    "TopologyManager",
    "UnknownPodError",
    "lease",
    "make_policy",
]

_HOMES = {
    "Admission": "admission",
    "AlignupError": "errors",
    "AllocationError": "errors",
    "BitMask": "bitmask",
    "CPUSet": "cpuset",
    "Cluster": "cluster",
    "ConfigError": "errors",
    "HintList": "hints",
    "HintProvider": "provider",
    "InputError": "errors",
    "KubeletConfig": "config",
    "Machine": "machine",
    "Node": "node",
    "Pod": "pod",
    "PodExistsError": "errors",
    "TopologyHint": "hints",
    "TopologyManager": "manager",
    "UnknownPodError": "errors",
    "lease": "leases.lease",
    "make_policy": "policy",
}
"""The module that each public name lives in."""


def __getattr__(name: str) -> object:
    """Import a public name, or look up the version, when it is asked for."""
    if name == "__version__":
        from importlib import metadata  # noqa: PLC0415  # costs more than all the rest of this module

        return metadata.version("alignup")
    if name not in _HOMES:
        raise AttributeError(f"module 'alignup' has no attribute {name!r}")
    value = getattr(import_module(f"alignup.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*globals(), *__all__])
