"""The contract between the Topology Manager and whoever hands out a resource.

The built-in providers (CPUs, memory, devices) follow it, and so may any object of yours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.topology_manager.hints import HintList, TopologyHint

__all__ = ["HintProvider", "ResourceHints"]

ResourceHints: TypeAlias = "Mapping[str, HintList | Sequence[TopologyHint] | None] | None"
"""What a provider can offer, by resource.

`None` or an empty mapping: no preference about anything. A resource that maps to `None`: no preference about
that resource. A resource that maps to an empty list: it cannot be satisfied on any set of NUMA nodes. The two
are easily confused in the kubelet, where both are spelled as an empty slice; inside alignup they are
`NO_PREFERENCE` and `IMPOSSIBLE`.
"""


@runtime_checkable
class HintProvider(Protocol):
    """Somebody who can say where a resource could come from, and then hands it out.

    A provider may also have `account(pod, container)`, which returns by resource a function that says, in words,
    what is asked for and what is free where now; it is called when somebody reads the refusal. `container` None
    asks for the pod as a whole.
    """

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return where each resource that the container asks for could come from, given what is free now."""

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for the pod's effective request, all containers together."""

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container what it asks for, near `affinity` (null: anywhere).

        Raises:
            AllocationError: it cannot be had; nothing was given to this container.
        """

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back what the container holds, if anything; unknown names are no error.

        After a refusal it is called for every container of the pod, also for those that got nothing.
        """
