"""Previews the admission of a pod of one container: asks the providers, and changes nothing.

With a single container, the result is known without allocating anything. `Node.try_admit` admits all other
pods, and takes them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from alignup.errors import AllocationError
from alignup.node.inputs import has_policy
from alignup.topology_manager.admission import Admission, ContainerAllocation
from alignup.topology_manager.scope import NOTHING_DECIDED, ContainerScope, NoneScope, PodScope, failed, merged

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.providers.cpu.provider import CpuProvider
    from alignup.providers.devices.provider import DeviceProvider
    from alignup.providers.memory.provider import MemoryProvider
    from alignup.topology_manager.manager import TopologyManager

_SCOPES: Final = (NoneScope, ContainerScope, PodScope)

# The providers that a node has of its own, in the order in which they are asked.
Own: TypeAlias = "tuple[DeviceProvider | None, CpuProvider | None, MemoryProvider | None]"


def can_preview(manager: TopologyManager, own: Own, pod: Pod) -> bool:
    """Return whether the node's own providers and scope decide on the pod, which is new and has one container."""
    return (
        len(pod.all_containers) == 1
        and not has_policy(pod)
        and not pod.has_shared_pool
        and type(manager.scope) in _SCOPES
        and manager.providers == tuple([one for one in own if one is not None])
        and not manager.has_pod(pod.uid)
    )


def preview(manager: TopologyManager, own: Own, pod: Pod, numa_node_ids: tuple[int, ...]) -> Admission:
    """Return the admission that `Node.admit` would give; the manager's lock must be held."""
    # as a change: a device plugin that is asked must not change the node
    return manager.lock.change(_preview, None, manager, own, pod, numa_node_ids)


def _preview(manager: TopologyManager, own: Own, pod: Pod, numa_node_ids: tuple[int, ...]) -> Admission:
    [container] = pod.all_containers
    best, refusal = NOTHING_DECIDED, None
    if type(manager.scope) is not NoneScope:
        asked = None if type(manager.scope) is PodScope else container
        best, refusal = merged(pod, asked, manager.policy, manager.providers)
    got: dict[str, Any] = {}
    for provider in own:
        if provider is None or refusal is not None:
            continue
        try:
            got[provider.name] = provider.preview(pod, container, best)
        except AllocationError as error:
            refusal = failed(error, container, best, provider)
    if refusal is not None:
        return Admission(False, refusal.reason, refusal=refusal, numa_node_ids=numa_node_ids)
    affinity = None if best is NOTHING_DECIDED else best
    allocation = ContainerAllocation(affinity, got.get("cpu"), got.get("memory", ()), got.get("devices", {}))
    return Admission(True, containers={container.name: allocation}, numa_node_ids=numa_node_ids)
