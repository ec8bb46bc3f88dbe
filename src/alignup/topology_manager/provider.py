"""The interface between the Topology Manager and the providers that hand out resources.

The built-in providers (CPUs, memory, devices) implement it, and so may any object of a user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.topology_manager.hints import HintList, TopologyHint

__all__ = ["HintProvider", "ResourceHints"]

ResourceHints: TypeAlias = "Mapping[str, HintList | Sequence[TopologyHint] | None] | None"
"""The hints of a provider, by resource.

`None` or an empty mapping: no preference about anything. A resource that maps to `None`: no preference about
that resource. A resource that maps to an empty list: it cannot be satisfied on any set of NUMA nodes. The two
are easily confused in the kubelet, where both are spelled as an empty slice; inside alignup they are
`NO_PREFERENCE` and `IMPOSSIBLE`.
"""


@runtime_checkable
class HintProvider(Protocol):
    """Offers sets of NUMA nodes for a resource (hints), then allocates it near the set that was chosen.

    Optionally, a provider has `account(pod, container)`: for each resource, a function that returns the text "N asked
    for, M free on ...". It has to capture the amounts when `account` is called, since it runs only when the message is
    read; or, for memory, a `MemoryAccount`. `container` is None for the pod as a whole.

    A provider of licences that are bound to NUMA node 0:

        class Licences:
            def topology_hints(self, pod, container):
                wanted = dict(container.devices).get("example.com/licence")
                return {"example.com/licence": [TopologyHint(BitMask([0]), True)]} if wanted else None

            def pod_topology_hints(self, pod):
                wanted = dict(pod.devices).get("example.com/licence")
                return {"example.com/licence": [TopologyHint(BitMask([0]), True)]} if wanted else None

            def allocate(self, pod, container, affinity):
                pass

            def release(self, pod_uid, container_name):
                pass
    """

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return where each resource that the container asks for could come from, given what is free now."""

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for the pod's effective request, all containers together."""

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container what it asks for, near `affinity` (without a mask: anywhere).

        Raises:
            AllocationError: the request cannot be met; nothing was given to this container.
        """

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back what the container holds, if anything; unknown names are no error.

        After a refusal it is called for every container of the pod, also for those that got nothing.
        """
