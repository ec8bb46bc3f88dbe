"""Scopes: for what a policy decides at once, each container or the pod as a whole.

A scope asks all providers for hints, lets the policy merge them, keeps the answer in the Store and lets the
providers allocate. It knows no resource.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from alignup.errors import AllocationError, ConfigError
from alignup.topology_manager.hints import TopologyHint
from alignup.topology_manager.policy import NonePolicy, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.topology_manager.provider import HintProvider, ResourceHints
    from alignup.topology_manager.store import Store

__all__ = [
    "SCOPE_NAMES",
    "TOPOLOGY_AFFINITY_ERROR",
    "ContainerScope",
    "NoneScope",
    "PodScope",
    "Refusal",
    "Scope",
    "make_scope",
]

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
ANYWHERE = TopologyHint(None, False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod was not admitted: the facts, from which `alignup.topology_manager.refusal_message` makes sentences."""

    reason: str
    """The word that goes into the pod's status."""
    detail: str = ""
    """What the failing provider said; empty when the policy refused."""
    container: str | None = None
    """The container concerned; None when the pod was judged as a whole."""
    policy: str = ""
    best: TopologyHint | None = None
    """The best hint there was."""
    hints: tuple[ResourceHints, ...] = field(default=())
    """What each provider offered, in the order of the providers."""
    accounts: Mapping[str, Callable[[], str]] = field(default_factory=dict, compare=False)
    """By resource, what says in words what was asked for and what was free where at that moment; not compared."""


class Scope(Protocol):
    """What a manager needs of a scope."""

    @property
    def name(self) -> str:
        """The kubelet's name for the scope."""

    def admit(
        self, pod: Pod, policy: Policy, providers: Sequence[HintProvider], store: Store
    ) -> Refusal | None:
        """Decide, keep and allocate for each container; None if all went well.

        After a refusal the caller undoes what earlier containers got.
        """


def accounts_of(
    pod: Pod, container: Container | None, providers: Sequence[HintProvider]
) -> Mapping[str, Callable[[], str]]:
    """Return by resource what will say what was asked for and free, from the providers that can.

    It has to be asked at the moment of the refusal, before what earlier containers got is taken back.
    """
    accounts: dict[str, Callable[[], str]] = {}
    for provider in providers:
        account = getattr(provider, "account", None)
        if account is not None:
            accounts.update(account(pod, container))
    return accounts


def refused(
    pod: Pod,
    container: Container | None,
    policy: Policy,
    best: TopologyHint,
    hints: Sequence[ResourceHints],
    providers: Sequence[HintProvider],
) -> Refusal:
    """Return the refusal of a policy; `container` None: of the pod as a whole."""
    name = None if container is None else container.name
    accounts = accounts_of(pod, container, providers)
    return Refusal(TOPOLOGY_AFFINITY_ERROR, "", name, policy.name, best, tuple(hints), accounts)


def allocate(
    pod: Pod, container: Container, affinity: TopologyHint, providers: Sequence[HintProvider]
) -> Refusal | None:
    """Let each provider give the container its share; None if all did."""
    try:
        for provider in providers:
            provider.allocate(pod, container, affinity)
    except AllocationError as error:
        return Refusal(error.reason, error.detail, container.name, best=affinity)
    return None


@dataclass(frozen=True, slots=True)
class NoneScope:
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
            refusal = allocate(pod, container, ANYWHERE, providers)
            if refusal is not None:
                return refusal
        return None


@dataclass(frozen=True, slots=True)
class ContainerScope:
    """Each container is aligned by itself, given what the earlier ones got."""

    name: ClassVar[str] = "container"

    def admit(
        self, pod: Pod, policy: Policy, providers: Sequence[HintProvider], store: Store
    ) -> Refusal | None:
        """Ask, merge, keep and allocate, container by container."""
        for container in pod.all_containers:
            hints = [provider.topology_hints(pod, container) for provider in providers]
            best, admit = policy.merge(hints)
            if not admit:
                return refused(pod, container, policy, best, hints, providers)
            store.set(pod.uid, container.name, best)
            if (refusal := allocate(pod, container, best, providers)) is not None:
                return refusal
        return None


@dataclass(frozen=True, slots=True)
class PodScope:
    """All containers of a pod share one affinity, found for the pod's effective request."""

    name: ClassVar[str] = "pod"

    def admit(
        self, pod: Pod, policy: Policy, providers: Sequence[HintProvider], store: Store
    ) -> Refusal | None:
        """Ask and merge once, then keep and allocate for each container."""
        hints = [provider.pod_topology_hints(pod) for provider in providers]
        best, admit = policy.merge(hints)
        if not admit:
            return refused(pod, None, policy, best, hints, providers)
        for container in pod.all_containers:
            store.set(pod.uid, container.name, best)
            if (refusal := allocate(pod, container, best, providers)) is not None:
                return refusal
        return None


SCOPE_NAMES = (ContainerScope.name, PodScope.name)


def make_scope(name: str, policy: Policy) -> Scope:
    """Return the scope of that name; under policy none the scope does not matter.

    Raises:
        ConfigError: the scope is not known.
    """
    if name not in SCOPE_NAMES:
        raise ConfigError.at("topologyManagerScope", f"one of {', '.join(SCOPE_NAMES)}", name)
    if policy.name == NonePolicy.name:
        return NoneScope()
    return ContainerScope() if name == ContainerScope.name else PodScope()
