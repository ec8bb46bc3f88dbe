"""Decides on a resize in place: what a kubelet says to new requests of a running pod.

What the pod then holds follows from it. The kubelet's handlers are asked in its order: that for
resizes (`pkg/kubelet/allocation`), the Topology Manager, and the fit of the node as a whole. What
the API server refuses beforehand is an error here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from alignup.errors import InputError
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.node_fit import NodeObject, requests_of
from alignup.kubernetes.pod import Container, Pod, QOSClass
from alignup.kubernetes.policy_options import gate_is_on
from alignup.kubernetes.versions import release_of
from alignup.records import Record
from alignup.text.counting import counted, format_bytes, named, short_bytes
from alignup.topology_manager.admission import ALLOCATED, DEFERRED, ContainerAllocation, Resize
from alignup.topology_manager.scope import TOPOLOGY_AFFINITY_MESSAGE, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.machine.machine import Machine
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


class _Manager(Record):
    """A manager of the kubelet that its static policy can keep from resizes.

    Attributes:
        amount: what it gives, in a kubelet's words.
        gate: the feature gate that allows them.
    """

    name: str
    amount: str
    resource: str
    policy: str
    gate: str


_CPU_MANAGER: Final = _Manager(
    "CPU", "CPU", "cpu", "static", "InPlacePodVerticalScalingExclusiveCPUs"
)
_MEMORY_MANAGER: Final = _Manager(
    "Memory", "memory", "memory", "Static", "InPlacePodVerticalScalingExclusiveMemory"
)


class _Node(Protocol):
    """What matters of a node here."""

    config: KubeletConfig
    machine: Machine
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
    resized = resized_pod(pod, containers, resources).read_as(node.config.profile.pods)
    if resized.qos is not pod.qos:
        raise InputError.at("the resize", f"the QoS class to stay {pod.qos}", str(resized.qos))

    changed = _changed(pod, resized)
    if not changed:
        return Resize(ALLOCATED)

    refusal = _infeasible(node, resized, changed, changes_pod=resources is not None)
    if refusal:
        return Resize(_INFEASIBLE, refusal)

    allocations = {
        container.name: node.allocation(uid, container.name) for container in pod.all_containers
    }
    restore = node.bindings()
    return node.manager.lock.attempt(_resized, _undo, node, pod, resized, allocations, restore)


def kept_amounts(node: _Node, before: Pod) -> tuple[str, ...]:
    """Return what containers keep of their own although a resize asks for other amounts.

    A kubelet that allocates a resize leaves the CPUs and the memory that its managers have given as
    they are: `Allocate` of the static policies finds the container in its state, and returns.

    Args:
        node: the node after the resize.
        before: the pod before it.

    Returns:
        A sentence for each container and amount.
    """
    after = node.manager.pod(before.uid)
    sentences: list[str] = []
    for old, new in zip(before.all_containers, after.all_containers, strict=True):
        sentences += filter(None, (_kept_cpus(node, after, old, new),))
        sentences += _kept_memory(node, after, old, new)

    return tuple(sentences)


def _kept_cpus(node: _Node, pod: Pod, old: Container, new: Container) -> str:
    """Return that a container has other exclusive CPUs than it asks for; empty if it has not."""
    is_unchanged = old.requests.get("cpu") == new.requests.get("cpu")
    if is_unchanged or node.cpu is None or node.cpu.pod_cpus(pod.uid) is not None:
        return ""

    cpus = node.cpu.cpus(pod.uid, new.name)
    count = 0 if cpus is None else len(cpus)
    if count == new.exclusive_cpus:
        return ""

    wanted = counted(new.exclusive_cpus, "exclusive CPU")
    if not count:
        return f"{new.name} stays in the shared pool, and gets none of the {wanted} it asks for"

    kept = f"{new.name} keeps its {counted(count, 'exclusive CPU')} ({cpus})"
    if not new.exclusive_cpus:
        return f"{kept}, though what it asks for now is from the shared pool"
    return f"{kept}, and does not get the {new.exclusive_cpus} it asks for"


def _kept_memory(node: _Node, pod: Pod, old: Container, new: Container) -> Iterator[str]:
    """Yield the types of memory of which a container has another amount than it asks for."""
    if node.memory is None:
        return

    blocks = node.memory.blocks(pod.uid, new.name)
    sizes = {numa_node.id: numa_node.memory for numa_node in node.machine.numa_nodes}
    old_amounts, new_amounts = dict(old.memory), dict(new.memory)
    for kind in _differing(old_amounts, new_amounts):
        size = sum(block.size for block in blocks if block.type == kind)
        wanted = new_amounts.get(kind, 0)
        if size in (0, wanted):
            continue

        ids = sorted({id_ for block in blocks if block.type == kind for id_ in block.numa_nodes})
        place = named("NUMA node", ids)
        sentence = (
            f"{new.name} stays pinned to {place} with its {format_bytes(size)} of {kind}; the "
            f"{format_bytes(wanted)} it asks for are not reserved"
        )
        capacity = sum(sizes[id_] for id_ in ids)
        if kind == "memory" and capacity < wanted:
            have = "has" if len(ids) == 1 else "have"
            sentence += f", and {place} {have} only {short_bytes(capacity)}"

        yield sentence


def _resized(node: _Node, _pod: Pod, resized: Pod, *_: object) -> Resize:
    refusal = _deferred(node, resized)
    if refusal:
        return Resize(DEFERRED, refusal)

    node.manager.update_requests(resized)
    return Resize(ALLOCATED)


def _undo(
    node: _Node,
    pod: Pod,
    _resized_pod: Pod,
    allocations: Mapping[str, ContainerAllocation],
    restore: Callable[[], None],
) -> None:
    """Take back what a resize that was cut short gave to containers that had nothing."""
    for name, allocation in allocations.items():
        if node.cpu is not None and allocation.cpus is None:
            node.cpu.release(pod.uid, name)
        if node.memory is not None and not allocation.memory:
            node.memory.release(pod.uid, name)

    restore()
    node.manager.update_requests(pod)
    affinities = {
        name: allocation.affinity
        for name, allocation in allocations.items()
        if allocation.affinity is not None
    }
    node.manager.set_affinities(pod.uid, affinities)


def _changed(pod: Pod, resized: Pod) -> frozenset[str]:
    """Return the resources of which something changes.

    `pod` stands for those of the pod as a whole.
    """
    resources: set[str] = set()
    for old, new in zip(pod.all_containers, resized.all_containers, strict=True):
        resources |= _differing(old.requests, new.requests) | _differing(old.limits, new.limits)

    if pod.constraints.requests != resized.constraints.requests:
        resources.add("pod")

    return frozenset(resources)


def _differing(old: Mapping[str, int], new: Mapping[str, int]) -> set[str]:
    """Return the resources of which the amounts differ; one that is missing is 0."""
    return {name for name in {*old, *new} if old.get(name, 0) != new.get(name, 0)}


def _infeasible(node: _Node, resized: Pod, changed: frozenset[str], *, changes_pod: bool) -> str:
    """Return why a resize can never be; empty if it may be possible."""
    config = node.config

    def is_on(gate: str) -> bool:
        return gate_is_on(gate, config.feature_gates, config.version)

    if not is_on("InPlacePodVerticalScaling"):
        return "InPlacePodVerticalScaling is disabled"
    if changes_pod and "pod" in changed and not is_on("InPlacePodLevelResourcesVerticalScaling"):
        return "InPlacePodLevelResourcesVerticalScaling is disabled"

    by_kubelet = "kubelet_checks_capacity_of_resizes" in release_of(config.version).rules
    beyond = list(_beyond_node(node, resized, "capacity" if by_kubelet else "allocatable"))
    if beyond and not by_kubelet:  # the API server says so before the kubelet hears of the resize
        return f"node didn't have enough allocatable resources: {'; '.join(beyond)}"

    if resized.qos is QOSClass.GUARANTEED:
        refusal = _beside_static_policy(node, resized, is_on)
        if refusal:
            return refusal
    if beyond:
        return f"Node didn't have enough capacity: {beyond[-1]}"
    return ""


def _beside_static_policy(node: _Node, resized: Pod, is_on: Callable[[str], bool]) -> str:
    """Return that static policies of the managers do not go with a resize of a Guaranteed pod.

    Empty if they do.
    """
    static_managers = []
    if node.config.cpu_manager_policy == "static":
        static_managers.append(_CPU_MANAGER)
    if node.config.memory_manager_policy == "Static":
        static_managers.append(_MEMORY_MANAGER)

    rules = release_of(node.config.version).rules
    if "any_guaranteed_resize_refused" in rules:
        if not static_managers or is_on(_CPU_MANAGER.gate):
            return ""
        return (
            f"Resize is infeasible for Guaranteed Pods alongside {static_managers[0].name} Manager "
            "static policy"
        )

    # the words of who asks whether a manager gives anything to a container alone
    names_mode = "resizes_name_allocation_mode" in rules
    with_init = is_on("InPlacePodVerticalScalingInitContainers")
    old_containers = {
        container.name: container for container in node.manager.pod(resized.uid).all_containers
    }
    changed: set[str] = set()
    for container in resized.all_containers:
        if with_init or container.is_sidecar or not container.is_init:
            changed |= _differing(old_containers[container.name].requests, container.requests)

    for manager in static_managers:
        if manager.resource in changed and not is_on(manager.gate):
            infeasible = "Resize is infeasible for Guaranteed Pods"
            if names_mode:
                return f"{infeasible} when {manager.amount} allocation mode is exclusive"
            return f'{infeasible} alongside {manager.name} Manager policy "{manager.policy}"'

    return ""


def _beyond_node(node: _Node, resized: Pod, word: str) -> Iterator[str]:
    """Yield what the pod would request beyond what the node has, in the words of who says so.

    Memory is the last.
    """
    allocatable = node.limits(resized).allocatable
    requests = requests_of(resized)
    for resource in ("cpu", "memory"):
        amount = allocatable.get(resource)
        if amount is not None and requests.get(resource, 0) > amount:
            yield f"{resource}, requested: {requests[resource]}, {word}: {amount}"


def _deferred(node: _Node, resized: Pod) -> str:
    """Let the managers allocate, and return why they do not, or the node has no room now.

    Empty: the resize is done. As in the kubelet, what the managers gave before a refusal stays.
    """
    manager = node.manager
    providers = manager.providers
    if "managers_skip_resizes" in release_of(node.config.version).rules:
        skipping = [manager for manager in (node.cpu, node.memory) if manager is not None]
        # a provider may stand for one of them
        providers = tuple(
            provider
            for provider in providers
            if getattr(provider, "provider", provider) not in skipping
        )

    refusal = manager.allocate_again(resized, providers)
    if refusal is not None:
        if refusal.detail or not resized.has_shared_pool:
            return refusal.detail or TOPOLOGY_AFFINITY_MESSAGE
        return _POD_MESSAGES[manager.scope.name]

    if not node.whole_verdict:
        return ""

    refusal, _ = node.checked_as_whole(resized)
    return "" if refusal is None else refusal.detail
