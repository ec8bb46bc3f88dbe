"""A scope is the unit of alignment: one affinity for each container, or one for the whole pod.

It asks all providers for hints, has the policy merge them, keeps the affinity in the Store and has
the providers allocate. It knows no resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, Protocol

from alignup.core.shared_dict import SharedDict
from alignup.errors import AllocationError, ConfigError
from alignup.kubernetes.kubelet_config import TOPOLOGY_SCOPES
from alignup.records import Record, field
from alignup.topology_manager.hints import TopologyHint
from alignup.topology_manager.policy import NonePolicy, Policy
from alignup.topology_manager.provider import HintProvider, ResourceHints, allocate_pod, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.topology_manager.refusal_account import Account, Accounts, MemoryAccount

__all__ = [
    "KUBELET",
    "TOPOLOGY_AFFINITY_ERROR",
    "TOPOLOGY_AFFINITY_MESSAGE",
    "ContainerScope",
    "NoneScope",
    "PodScope",
    "Refusal",
    "Scope",
    "Store",
    "make_scope",
]

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
# What the kubelet writes into the status of such a pod.
TOPOLOGY_AFFINITY_MESSAGE: Final = "Resources cannot be allocated with Topology locality"
# Stands for a provider's name where the kubelet's own checks refused a pod.
KUBELET: Final = "kubelet"
# Any NUMA node, and not preferred.
NOTHING_DECIDED = TopologyHint(None, False)


class Refusal(Record):
    """The facts about a refusal, of which `refusal_message` makes a sentence.

    Attributes:
        reason: the reason in the pod's status.
        detail: the message of the provider that failed; empty when the policy refused.
        container: the container concerned; None when the pod was judged as a whole.
        best: the best merged hint.
        hints: the hints of each provider, in the order of the providers.
        accounts: by resource, the requested and free amounts at that moment; not compared.
        provider: the name of the provider that failed; empty when the policy refused. `KUBELET`:
            the providers admitted the pod, and the kubelet's own checks refused it.
        resources: those of which too little is left, where a provider failed or the kubelet's own
            checks refused the pod.
    """

    reason: str
    detail: str = ""
    container: str | None = None
    policy: str = ""
    best: TopologyHint | None = None
    hints: tuple[ResourceHints, ...] = field(default=(), repr=False)
    accounts: Accounts = field(default_factory=dict, compare=False, repr=False)
    provider: str = field(default="", compare=False)
    resources: tuple[str, ...] = field(default=(), compare=False)

    def __deepcopy__(self, _memo: object) -> Refusal:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "refusals keep their providers' hints and are not pickled: use Admission.to_dict()"
        )


class Scope(Protocol):
    """The interface of a scope towards the manager."""

    @property
    def name(self) -> str:
        """The kubelet's name for the scope."""

    def admit(
        self, pod: Pod, policy: Policy, providers: Sequence[HintProvider], store: Store
    ) -> Refusal | None:
        """Decide, store and allocate for each container; None means admitted.

        After a refusal the caller takes back what earlier containers were given.
        """


def allocate(
    pod: Pod, container: Container | None, affinity: TopologyHint, providers: Sequence[HintProvider]
) -> Refusal | None:
    """Have each provider allocate for a container, or for a pod with resources of its own.

    Args:
        pod: the pod.
        container: one of its containers; None: the pod as a whole.
        affinity: the hint that was decided.
        providers: they allocate in this order.

    Returns:
        None if all could.
    """
    for provider in providers:
        try:
            if container is None:
                allocate_pod(provider, pod, affinity)
            else:
                provider.allocate(pod, container, affinity)
        except AllocationError as error:
            return failed(error, container, affinity, provider)

    return None


def failed(
    error: AllocationError,
    container: Container | None,
    affinity: TopologyHint,
    provider: HintProvider,
) -> Refusal:
    """Return the refusal of a container that a provider could not allocate for.

    Without a container it is that of the pod as a whole.
    """
    concerned = None if container is None else container.name

    return Refusal(
        error.reason,
        error.detail,
        concerned,
        best=affinity,
        provider=name_of(provider),
        resources=error.resources,
    )


def merged(
    pod: Pod, container: Container | None, policy: Policy, providers: Sequence[HintProvider]
) -> tuple[TopologyHint, Refusal | None]:
    """Return the best hint for a container, and the policy's refusal if any.

    Without a container it is the hint for the pod as a whole.
    """
    if container is None:
        hints = [provider.pod_topology_hints(pod) for provider in providers]
    else:
        hints = [provider.topology_hints(pod, container) for provider in providers]

    best, admit = policy.merge(hints)
    if admit:
        return best, None

    accounts: dict[str, Account | MemoryAccount] = {}
    for provider in providers:  # now, before what earlier containers got is taken back
        if (account := getattr(provider, "account", None)) is not None:
            accounts.update(account(pod, container))

    concerned = None if container is None else container.name
    return best, Refusal(
        TOPOLOGY_AFFINITY_ERROR, "", concerned, policy.name, best, tuple(hints), accounts
    )


class NoneScope(Record):
    """No alignment: providers allocate without hints."""

    name: ClassVar[str] = "none"

    def admit(
        self,
        pod: Pod,
        policy: Policy,  # noqa: ARG002  # a scope is given it
        providers: Sequence[HintProvider],
        store: Store,  # noqa: ARG002  # a scope is given it
    ) -> Refusal | None:
        """Allocate for each container, anywhere."""
        for container in pod.all_containers:
            if (refusal := allocate(pod, container, NOTHING_DECIDED, providers)) is not None:
                return refusal
        return None


class ContainerScope(Record):
    """Each container is aligned by itself, with the resources that earlier containers left.

    Attributes:
        policies: by the names of containers, policies of their own, which no kubelet knows.
    """

    name: ClassVar[str] = "container"
    policies: Mapping[str, Policy] = field(default_factory=dict)

    def admit(
        self, pod: Pod, policy: Policy, providers: Sequence[HintProvider], store: Store
    ) -> Refusal | None:
        """Ask, merge, store and allocate, container by container."""
        policies = self.policies
        container_policy = policy
        for container in pod.all_containers:
            if policies:
                container_policy = policies.get(container.name, policy)

            best, refusal = merged(pod, container, container_policy, providers)
            if refusal is not None:
                return refusal

            store.set(pod.uid, container.name, best)
            if (refusal := allocate(pod, container, best, providers)) is not None:
                return refusal

        return None


class PodScope(Record):
    """All containers of a pod share one affinity, decided for the pod's effective request."""

    name: ClassVar[str] = "pod"

    def admit(
        self, pod: Pod, policy: Policy, providers: Sequence[HintProvider], store: Store
    ) -> Refusal | None:
        """Ask and merge once, then store and allocate for each container.

        Where the pod has resources of its own, allocate once for all.
        """
        best, refusal = merged(pod, None, policy, providers)
        if refusal is not None:
            return refusal

        is_shared = pod.has_shared_pool
        for container in pod.all_containers:
            store.set(pod.uid, container.name, best)
            if not is_shared and (refusal := allocate(pod, container, best, providers)) is not None:
                return refusal

        if is_shared:
            return allocate(pod, None, best, providers)
        return None


def make_scope(name: str, policy: Policy) -> Scope:
    """Return the scope of that name; under policy none it is always `NoneScope`.

    Raises:
        ConfigError: the scope is unknown.
    """
    if name not in TOPOLOGY_SCOPES:
        raise ConfigError.at("topologyManagerScope", f"one of {', '.join(TOPOLOGY_SCOPES)}", name)
    if policy.name == NonePolicy.name:
        return NoneScope()
    if name == ContainerScope.name:
        return ContainerScope()
    return PodScope()


class Store:
    """Affinities by pod uid and container name, and the container ids associated with them."""

    __slots__ = ("_containers", "affinities")

    def __init__(self) -> None:
        # By pod uid and container name; those of a pod are replaced as a whole.
        self.affinities: SharedDict[str, dict[str, TopologyHint]] = SharedDict()
        self._containers: SharedDict[str, tuple[str, str]] = SharedDict()

    def copy(self) -> Store:
        """Return an independent store with the same affinities and container ids."""
        duplicate = Store()
        duplicate.affinities = self.affinities.copy()
        duplicate._containers = self._containers.copy()
        return duplicate

    def set(self, pod_uid: str, container_name: str, affinity: TopologyHint) -> None:
        """Keep the affinity of a container."""
        self.affinities[pod_uid] = {**self.affinities.get(pod_uid, {}), container_name: affinity}

    def set_pod(self, pod_uid: str, affinities: Mapping[str, TopologyHint]) -> None:
        """Keep these affinities of a pod, and no others."""
        self.affinities[pod_uid] = dict(affinities)

    def affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        """Return the affinity of a container; no mask and not preferred if none was decided."""
        return self.affinities.get(pod_uid, {}).get(container_name, NOTHING_DECIDED)

    def pod_affinities(self, pod_uid: str) -> Mapping[str, TopologyHint]:
        """Return the affinities of a pod by container name."""
        return self.affinities.get(pod_uid, {})

    def forget_pod(self, pod_uid: str) -> None:
        """Forget all affinities and container ids of a pod."""
        self.affinities.pop(pod_uid)
        container_ids = [
            container_id for container_id, (uid, _) in self._containers.items() if uid == pod_uid
        ]
        for container_id in container_ids:
            del self._containers[container_id]

    def add_container(self, pod_uid: str, container_name: str, container_id: str) -> None:
        """Associate a container id with a container of a pod."""
        self._containers[container_id] = (pod_uid, container_name)

    def remove_container(self, container_id: str) -> None:
        """Forget a container id, and the affinity of the container unless it has a newer id.

        A restarted container has a new id before the old one is removed; its affinity must outlive
        the old id.
        """
        container = self._containers.pop(container_id, None)
        if container is None or container in self._containers.values():
            return

        pod_uid, container_name = container
        remaining = {
            name: affinity
            for name, affinity in self.affinities.get(pod_uid, {}).items()
            if name != container_name
        }
        if remaining:
            self.affinities[pod_uid] = remaining
        else:
            self.affinities.pop(pod_uid)
