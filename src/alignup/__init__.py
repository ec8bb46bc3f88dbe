"""Decide which NUMA nodes, CPUs, memory and devices a workload gets.

The decisions are those of the Kubernetes Topology Manager. Public names are imported on first use,
so that `import alignup` is fast:

    BitMask, TopologyHint, HintList     sets of NUMA nodes, and hints over them
    Merger                              the merge alone, of one group of hint lists or of many
    make_policy, TopologyManager        the Topology Manager itself
    HintProvider, Observer              protocols: a provider of your own, and what is told about
                                        every admission
    Machine, Pod, KubeletConfig, Node   a machine, a pod, a configuration, and the node they make
    read_machine, read_pod, read_pods,  these read them: from this machine, files, manifests, a
        read_kubelet_node               kubelet
    machines                            the names of the machines in the catalog
    Admission, ContainerAllocation      the result of admitting a pod, and the allocation of a
                                        container
    explain, Explanation, Suggestion    why a pod is admitted or refused, and what would help
    bind, split, Part                   equal parts of a machine, one for each rank, and a rank
                                        bound to its own
    draw, Drawing                       pictures and pages, for notebooks and files
    Cluster, Evaluation, REASONS        one pod evaluated on thousands of nodes, and the reasons of
                                        those that refuse it
    plan_room, RoomPlan                 the fewest evictions after which waiting pods are admitted
    lease, Lease                        CPUs, memory and devices of this machine for a while
    AlignupError, AlignupWarning        the base of all errors, and of what is ignored
"""

from __future__ import annotations

from importlib import import_module
from sys import modules

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from alignup.cluster import REASONS as REASONS
    from alignup.cluster import Cluster as Cluster
    from alignup.cluster import Evaluation as Evaluation
    from alignup.cluster.evictions import RoomPlan as RoomPlan
    from alignup.cluster.evictions import Standing as Standing
    from alignup.cluster.evictions import plan_room as plan_room
    from alignup.errors import AlignupError as AlignupError
    from alignup.errors import AlignupWarning as AlignupWarning
    from alignup.errors import AllocationError as AllocationError
    from alignup.errors import ConfigError as ConfigError
    from alignup.errors import InputError as InputError
    from alignup.errors import PodExistsError as PodExistsError
    from alignup.errors import UnknownPodError as UnknownPodError
    from alignup.explanations.explanation import Explanation as Explanation
    from alignup.explanations.explanation import Suggestion as Suggestion
    from alignup.explanations.why import explain as explain
    from alignup.host.leases.lease import Lease as Lease
    from alignup.host.leases.lease import lease as lease
    from alignup.host.parts.part import Part as Part
    from alignup.host.parts.ranks import bind as bind
    from alignup.host.parts.ranks import split as split
    from alignup.kubelet.read import read_kubelet_node as read_kubelet_node
    from alignup.kubernetes.kubelet_config import KubeletConfig as KubeletConfig
    from alignup.kubernetes.manifest import read_pod as read_pod
    from alignup.kubernetes.manifest_files import read_pods as read_pods
    from alignup.kubernetes.pod import Container as Container
    from alignup.kubernetes.pod import Pod as Pod
    from alignup.kubernetes.pod import QOSClass as QOSClass
    from alignup.machine.cpuset import CPUSet as CPUSet
    from alignup.machine.device_inventory import Device as Device
    from alignup.machine.load import machines as machines
    from alignup.machine.load import read_machine as read_machine
    from alignup.machine.machine import Machine as Machine
    from alignup.node import Node as Node
    from alignup.pictures.drawing import Drawing as Drawing
    from alignup.pictures.drawing import draw as draw
    from alignup.topology_manager.admission import Admission as Admission
    from alignup.topology_manager.admission import ContainerAllocation as ContainerAllocation
    from alignup.topology_manager.admission import MemoryBlock as MemoryBlock
    from alignup.topology_manager.hints import BitMask as BitMask
    from alignup.topology_manager.hints import HintList as HintList
    from alignup.topology_manager.hints import TopologyHint as TopologyHint
    from alignup.topology_manager.manager import Observer as Observer
    from alignup.topology_manager.manager import TopologyManager as TopologyManager
    from alignup.topology_manager.policy import Merger as Merger
    from alignup.topology_manager.policy import Policy as Policy
    from alignup.topology_manager.policy import make_policy as make_policy
    from alignup.topology_manager.provider import HintProvider as HintProvider
    from alignup.topology_manager.provider import ResourceHints as ResourceHints

# The module that each public name lives in.
_HOMES = {
    name: home
    for home, names in {
        "cluster": ("REASONS", "Cluster", "Evaluation"),
        "cluster.evictions": ("RoomPlan", "Standing", "plan_room"),
        "errors": (
            "AlignupError",
            "AlignupWarning",
            "AllocationError",
            "ConfigError",
            "InputError",
            "PodExistsError",
            "UnknownPodError",
        ),
        "explanations.explanation": ("Explanation", "Suggestion"),
        "explanations.why": ("explain",),
        "host.leases.lease": ("Lease", "lease"),
        "kubelet.read": ("read_kubelet_node",),
        "kubernetes.kubelet_config": ("KubeletConfig",),
        "kubernetes.manifest": ("read_pod",),
        "kubernetes.manifest_files": ("read_pods",),
        "kubernetes.pod": ("Container", "Pod", "QOSClass"),
        "machine.cpuset": ("CPUSet",),
        "machine.device_inventory": ("Device",),
        "machine.load": ("machines", "read_machine"),
        "machine.machine": ("Machine",),
        "host.parts.part": ("Part",),
        "host.parts.ranks": ("bind", "split"),
        "node": ("Node",),
        "pictures.drawing": ("Drawing", "draw"),
        "topology_manager.admission": ("Admission", "ContainerAllocation", "MemoryBlock"),
        "topology_manager.hints": ("BitMask", "HintList", "TopologyHint"),
        "topology_manager.manager": ("Observer", "TopologyManager"),
        "topology_manager.policy": ("Merger", "Policy", "make_policy"),
        "topology_manager.provider": ("HintProvider", "ResourceHints"),
    }.items()
    for name in names
}

# the names are above
__all__ = sorted(_HOMES, key=lambda name: (name[0].islower(), name))  # noqa: PLE0605


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for."""
    if name == "__version__":
        from alignup.version import VERSION  # noqa: PLC0415  # as the others

        return VERSION

    if name not in _HOMES:
        raise AttributeError(f"module 'alignup' has no attribute {name!r}")

    if "IPython" in modules:  # in a notebook, which shows what can be drawn
        import_module("alignup.pictures.drawing").show_in_notebooks()

    value = getattr(import_module(f"alignup.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__version__"])
