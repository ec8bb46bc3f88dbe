"""The interface between the Topology Manager and the providers that hand out resources.

The built-in providers (CPUs, memory, devices) implement it, and so may any object of a user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.topology_manager.hints import HintList, TopologyHint
    from alignup.topology_manager.refusal_account import Accounts

# The hints of a provider, by resource. `None` or an empty mapping: no preference about anything. A
# resource that maps to `None`: no preference about that resource. A resource that maps to an empty
# list: it cannot be satisfied on any set of NUMA nodes. The two are easily confused in the kubelet,
# where both are spelled as an empty slice; inside alignup they are `NO_PREFERENCE` and
# `IMPOSSIBLE`.
ResourceHints: TypeAlias = "Mapping[str, HintList | Sequence[TopologyHint] | None] | None"


@runtime_checkable
class HintProvider(Protocol):
    """Offers sets of NUMA nodes for a resource (hints), then allocates it near the chosen one.

    Optionally, a provider has a method `account(pod, container)`, which is called when a policy
    refuses a container, or with `container` None the pod as a whole. It returns, for each resource
    asked for, a function that returns the words behind the resource's name in the sentence of the
    refusal: "1 asked, 0 free". The function runs only when somebody reads the sentence, and others
    may have taken or given back by then; so it must hold the amounts of the call. For memory a
    `MemoryAccount` may stand in its place.

    Optionally too, a method `allocate_pod(pod, affinity)`: it gives a pod with resources of its own
    (`spec.resources`, in pod scope with the feature gate PodLevelResourceManagers) all that its
    containers get. Without it, `allocate` is called for each container.

    A provider of two licences that are bound to NUMA node 0:

        class Licences:
            def __init__(self):
                self.free = 2
                self.held = {}

            def hints(self, devices):
                request = dict(devices).get("example.com/licence")
                if not request:
                    return None

                hints = []
                if request <= self.free:
                    hints.append(TopologyHint(BitMask([0]), True))
                return {"example.com/licence": hints}

            def topology_hints(self, pod, container):
                return self.hints(container.devices)

            def pod_topology_hints(self, pod):
                return self.hints(pod.devices)

            def allocate(self, pod, container, affinity):
                request = dict(container.devices).get("example.com/licence", 0)
                if request > self.free:
                    cause = f"expected {request} free licences, got {self.free}"
                    raise AllocationError(cause, resources=("example.com/licence",))

                self.free -= request
                self.held[pod.uid, container.name] = request

            def release(self, pod_uid, container_name):
                self.free += self.held.pop((pod_uid, container_name), 0)

            def account(self, pod, container):
                request = dict((container or pod).devices).get("example.com/licence")
                if not request:
                    return {}

                amounts = f"{request} asked, {self.free} free"
                return {"example.com/licence": lambda: amounts}
    """

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return where each resource that the container asks for could come from now."""

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for the pod's effective request, all containers together."""

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container what it asks for, near `affinity` (without a mask: anywhere).

        Raises:
            AllocationError: the request cannot be met; nothing was given to this container.
                Explanations blame the resources that the error names.
        """

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back what the container holds, if anything; unknown names are no error.

        After a refusal it is called for every container of the pod, also for those that got
        nothing.
        """


def allocate_pod(provider: HintProvider, pod: Pod, affinity: TopologyHint) -> None:
    """Have a provider allocate for a pod with resources of its own; see `HintProvider`.

    Raises:
        AllocationError: the request cannot be met.
    """
    if (allocate_whole_pod := getattr(provider, "allocate_pod", None)) is not None:
        allocate_whole_pod(pod, affinity)
        return

    for container in pod.all_containers:
        provider.allocate(pod, container, affinity)


def name_of(provider: HintProvider) -> str:
    """Return the name by which a provider is told from others: its own, or that of its type."""
    return str(getattr(provider, "name", type(provider).__name__))


class RecordingProvider:
    """A provider that delegates to another one and remembers its hints for the current pod.

    Examples:
        >>> recorders = []
        >>> def recorded(provider):
        ...     recorders.append(RecordingProvider(provider))
        ...     return recorders[-1]
        >>> kubelet = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "best-effort"}
        >>> node = Node(read_machine("xeon-2s"), kubelet, wrap=recorded)
        >>> container = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
        >>> _ = node.admit({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
        >>> [str(hint.affinity) for hint in recorders[0].by_container["c"]["cpu"]]
        ['01', '10', '11']
    """

    __slots__ = ("by_container", "by_pod", "provider")

    def __init__(self, provider: HintProvider) -> None:
        self.provider = provider
        self.by_container: dict[str, ResourceHints] = {}
        self.by_pod: ResourceHints = None

    @property
    def name(self) -> str:
        """The name of the provider that it delegates to."""
        return name_of(self.provider)

    def forget(self) -> None:
        """Discard the hints of the current pod."""
        self.by_container.clear()
        self.by_pod = None

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Ask the provider and remember the answer."""
        hints = self.provider.topology_hints(pod, container)
        self.by_container[container.name] = hints
        return hints

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Ask the provider and remember the answer."""
        self.by_pod = self.provider.pod_topology_hints(pod)
        return self.by_pod

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Let the provider allocate."""
        self.provider.allocate(pod, container, affinity)

    def account(self, pod: Pod, container: Container | None) -> Accounts:
        """Return the provider's descriptions of requested and free amounts, if it has any."""
        accounts: Accounts = {}
        if (account := getattr(self.provider, "account", None)) is not None:
            accounts = account(pod, container)
        return accounts

    def allocate_pod(self, pod: Pod, affinity: TopologyHint) -> None:
        """Let the provider allocate for a pod as a whole."""
        allocate_pod(self.provider, pod, affinity)

    def release(self, pod_uid: str, container_name: str) -> None:
        """Let the provider release."""
        self.provider.release(pod_uid, container_name)
