"""Decides on a resize in place: what a kubelet says to new requests of a running pod, and what it then holds.

The kubelet's handlers are asked in its order: that for resizes (`pkg/kubelet/allocation`), the
Topology Manager, and the fit of the node as a whole. What the API server refuses beforehand is an
error here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from alignup.errors import InputError
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.node_fit import NodeObject, requests_of
from alignup.kubernetes.pod import Pod, QOSClass
from alignup.kubernetes.policy_options import gate_is_on
from alignup.kubernetes.versions import release_of
from alignup.topology_manager.admission import ALLOCATED, DEFERRED, ContainerAllocation, Resize
from alignup.topology_manager.scope import TOPOLOGY_AFFINITY_MESSAGE, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.providers.cpu.provider import CpuProvider
    from alignup.providers.memory.provider import MemoryProvider
    from alignup.topology_manager.manager import TopologyManager

_INFEASIBLE: Final = "Infeasible"
_POD_MESSAGES: Final = {
    "pod": (
        "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
    ),
    "container": (
        "Pod Scope pod with pod-level resources failed admission with a container-level "
        "topology manager"
    ),
}


class _Node(Protocol):
    """What matters of a node here."""

    config: KubeletConfig
    cpu: CpuProvider | None
    memory: MemoryProvider | None
    manager: TopologyManager
    whole_verdict: bool

    def allocation(self, pod_uid: str, container_name: str) -> ContainerAllocation: ...

    def bindings(self) -> Callable[[], None]: ...

    def limits(self, pod: Pod) -> NodeObject: ...

    def checked_as_whole(self, pod: Pod) -> tuple[Refusal | None, tuple[Pod, ...]]: ...


def resize(
    node: _Node, uid: str, containers: Mapping[str, Any], resources: Mapping[str, Any] | None = None
) -> Resize:
    """Resize a pod in place, or say why not; see `Node.resize`. The manager's lock must be held.

    Raises:
        UnknownPodError: no such pod is admitted.
        InputError: the API server would refuse the new resources.
    """
    pod = node.manager.pod(uid)
    wanted = resized_pod(pod, containers, resources).read_as(node.config.profile.pods)
    if wanted.qos is not pod.qos:
        raise InputError.at("the resize", f"the QoS class to stay {pod.qos}", str(wanted.qos))
    if not (changed := _changed(pod, wanted)):
        return Resize(ALLOCATED)
    if refused := _infeasible(node, wanted, changed, changes_pod=resources is not None):
        return Resize(_INFEASIBLE, refused)

    before = {one.name: node.allocation(uid, one.name) for one in pod.all_containers}
    return node.manager.lock.attempt(_resized, _undo, node, pod, wanted, before, node.bindings())


def _resized(node: _Node, _pod: Pod, wanted: Pod, *_: object) -> Resize:
    if refused := _deferred(node, wanted):
        return Resize(DEFERRED, refused)
    node.manager.update_requests(wanted)
    return Resize(ALLOCATED)


def _undo(
    node: _Node,
    pod: Pod,
    _wanted: Pod,
    before: Mapping[str, ContainerAllocation],
    restore: Callable[[], None],
) -> None:
    """Take back what a resize that was cut short gave to containers that had nothing."""
    for name, had in before.items():
        if node.cpu is not None and had.cpus is None:
            node.cpu.release(pod.uid, name)
        if node.memory is not None and not had.memory:
            node.memory.release(pod.uid, name)

    restore()
    node.manager.update_requests(pod)
    affinities = {name: had.affinity for name, had in before.items() if had.affinity is not None}
    node.manager.set_affinities(pod.uid, affinities)


def _changed(pod: Pod, wanted: Pod) -> frozenset[str]:
    """Return the resources of which something changes; `pod` stands for those of the pod as a whole."""
    found: set[str] = set()
    for old, new in zip(pod.all_containers, wanted.all_containers, strict=True):
        for before, after in ((old.requests, new.requests), (old.limits, new.limits)):
            found |= {
                name for name in {*before, *after} if before.get(name, 0) != after.get(name, 0)
            }
    if pod.constraints.requests != wanted.constraints.requests:
        found.add("pod")
    return frozenset(found)


def _infeasible(node: _Node, wanted: Pod, changed: frozenset[str], *, changes_pod: bool) -> str:
    """Return why a resize can never be; empty if it may be possible."""
    config = node.config

    def is_on(gate: str) -> bool:
        return gate_is_on(gate, config.feature_gates, config.version)

    if not is_on("InPlacePodVerticalScaling"):
        return "InPlacePodVerticalScaling is disabled"
    if changes_pod and "pod" in changed and not is_on("InPlacePodLevelResourcesVerticalScaling"):
        return "InPlacePodLevelResourcesVerticalScaling is disabled"

    by_kubelet = "kubelet_checks_capacity_of_resizes" in release_of(config.version).rules
    beyond = list(_beyond_node(node, wanted, "capacity" if by_kubelet else "allocatable"))
    if beyond and not by_kubelet:  # the API server says so before the kubelet hears of the resize
        return f"node didn't have enough allocatable resources: {'; '.join(beyond)}"
    if wanted.qos is QOSClass.GUARANTEED and (
        refused := _beside_static_policy(node, wanted, is_on)
    ):
        return refused

    return f"Node didn't have enough capacity: {beyond[-1]}" if beyond else ""


def _beside_static_policy(node: _Node, wanted: Pod, is_on: Any) -> str:
    """Return that static policies of the managers do not go with a resize of a Guaranteed pod; empty if they do."""
    rules = release_of(node.config.version).rules
    old = {one.name: one for one in node.manager.pod(wanted.uid).all_containers}
    is_cpu_static = node.config.cpu_manager_policy == "static"
    is_memory_static = node.config.memory_manager_policy == "Static"
    if "any_guaranteed_resize_refused" in rules:
        if is_on("InPlacePodVerticalScalingExclusiveCPUs"):
            return ""
        static = "CPU" if is_cpu_static else "Memory" if is_memory_static else ""
        return (
            static
            and f"Resize is infeasible for Guaranteed Pods alongside {static} Manager static policy"
        )

    with_init = is_on("InPlacePodVerticalScalingInitContainers")
    resizable = [
        one for one in wanted.all_containers if with_init or one.is_sidecar or not one.is_init
    ]
    for resource, is_static, manager, policy, gate in (
        ("cpu", is_cpu_static, "CPU", "static", "InPlacePodVerticalScalingExclusiveCPUs"),
        (
            "memory",
            is_memory_static,
            "Memory",
            "Static",
            "InPlacePodVerticalScalingExclusiveMemory",
        ),
    ):
        changes = any(
            one.requests.get(resource, 0) != old[one.name].requests.get(resource, 0)
            for one in resizable
        )
        if is_static and changes and not is_on(gate):
            return (
                f"Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy "
                f'"{policy}"'
            )

    return ""


def _beyond_node(node: _Node, wanted: Pod, word: str) -> Iterator[str]:
    """Yield what the pod would request beyond what the node has, in the words of who says so; memory is the last."""
    allocatable, asked = node.limits(wanted).allocatable, requests_of(wanted)
    for resource in ("cpu", "memory"):
        there = allocatable.get(resource)
        if there is not None and asked.get(resource, 0) > there:
            yield f"{resource}, requested: {asked[resource]}, {word}: {there}"


def _deferred(node: _Node, wanted: Pod) -> str:
    """Let the managers allocate, and return why they do not, or the node has no room now; empty: the resize is done.

    As in the kubelet, what the managers gave before a refusal stays.
    """
    manager, providers = node.manager, node.manager.providers
    if "managers_skip_resizes" in release_of(node.config.version).rules:
        skipping = tuple(one for one in (node.cpu, node.memory) if one is not None)
        # a provider may stand for one of them
        providers = tuple(one for one in providers if getattr(one, "provider", one) not in skipping)

    refusal = manager.allocate_again(wanted, providers)
    if refusal is not None:
        if refusal.detail or not wanted.has_shared_pool:
            return refusal.detail or TOPOLOGY_AFFINITY_MESSAGE
        return _POD_MESSAGES[manager.scope.name]

    if not node.whole_verdict:
        return ""

    refusal, _ = node.checked_as_whole(wanted)
    return "" if refusal is None else refusal.detail
