"""Admits a pod on a copy of a node and keeps what happened.

That is, question by question, what was there and what was offered. The decision is the node's own;
nothing is decided or put into words here.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from alignup.errors import AllocationError
from alignup.node.holdings import HintScores, Holdings, holdings_of, scores_of
from alignup.node.inputs import has_policy
from alignup.providers.cpu.topology import cpus_by_cache
from alignup.records import Record, field, replace
from alignup.topology_manager.provider import (
    HintProvider,
    RecordingProvider,
    ResourceHints,
    allocate_pod,
)
from alignup.topology_manager.scope import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alignup.kubernetes.node_fit import NodeObject
    from alignup.kubernetes.pod import Container, Pod
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission, ContainerAllocation
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.policy import Policy
    from alignup.topology_manager.refusal_account import Account, Accounts, MemoryAccount


class Question(Record, frozen=False):
    """One container, or the pod as a whole, at the moment when the providers were asked about it.

    Attributes:
        container: None: the pod as a whole.
        holdings: what was there when it was asked, with what earlier containers of the pod had been
            given.
        hints: by name of the provider; empty where no provider is asked for hints.
        scores: those of the hints; None: hints of the release have none.
        affinity: the merged hint; None if nothing was merged.
        failed: the name of the provider that could not allocate.
        failed_accounts: the amounts asked for and free when it could not, for the container that it
            was asked for.
    """

    container: Container | None
    holdings: Holdings
    accounts: Accounts
    hints: dict[str, ResourceHints] = field(default_factory=dict)
    affinity: TopologyHint | None = None
    failed: str = ""
    failed_accounts: Accounts = field(default_factory=dict)
    scores: HintScores | None = None


class Trial(Record):
    """What happened when a pod was admitted.

    Attributes:
        questions: in the order in which they were asked; a refusal is about the last one.
        policy: the policy that the pod was judged under: the node's, or the pod's own.
        after: what is held once the pod is admitted; if it is refused, what was held when that was
            decided.
        allocations: by container, what it was given before the refusal took it back.
        l3_groups: the CPUs of each L3 cache, where the CPU manager prefers to keep a container's
            together.
        limits: what the node as a whole offers, where the kubelet's own checks refused the pod.
        others: the pods on the node.
        far_devices: where devices of claims are near other NUMA nodes than their containers, these
            NUMA nodes.
        counts_use_as_reserved: the node's; so what containers can have if nobody holds any is
            unknown.
    """

    pod: Pod
    admission: Admission
    questions: tuple[Question, ...]
    policy: Policy
    scope: str
    before: Holdings
    after: Holdings
    allocations: dict[str, ContainerAllocation]
    cpus_per_core: int = 1
    l3_groups: tuple[int, ...] = ()
    limits: NodeObject | None = None
    others: tuple[Pod, ...] = ()
    far_devices: tuple[int, ...] = ()
    counts_use_as_reserved: bool = False


def tried(node: Node, pod: Pod) -> Trial:
    """Return what happens when the pod is admitted; the node stays as it is.

    Providers of users that cannot be copied are asked themselves, and to release what they gave.

    Raises:
        PodExistsError: a pod of this uid is admitted already.
    """
    notes = _Notes(pod)
    with (
        node.manager.lock.guard() as guard,
        guard.take(),
        node.scratch(partial(_Watched, notes=notes)) as scratch,
    ):
        notes.node = scratch
        policy, scope = _judged_by(scratch, pod)
        before = holdings_of(scratch)
        # the kubelet's own checks follow below, since no pod may be evicted
        scratch.whole_verdict = False
        admission = scratch.admit(pod)

        questions = notes.questions
        if not questions and not (admission.refusal and admission.refusal.detail):
            questions = [Question(container, before, {}) for container in pod.all_containers]
        if admission.refusal is not None and questions:
            questions[-1].affinity = admission.refusal.best

        after = questions[-1].holdings if questions else before
        limits = None
        far_devices: tuple[int, ...] = ()
        if admission:
            far_devices = _far_devices(scratch, pod, admission)
            _keep_affinities(questions, admission)
            notes.allocations = dict(admission.containers)
            after = holdings_of(scratch)
            if node.whole_verdict:
                limits = scratch.limits(pod)
                admission = scratch.admission(pod, *scratch.checked_as_whole(pod))
                after = after if admission else before

            scratch.remove(pod.uid)

        cpus_per_core, l3_groups = _cores_and_caches(node)
        return Trial(
            pod,
            admission,
            tuple(questions),
            policy,
            scope,
            before,
            after,
            notes.allocations,
            cpus_per_core,
            l3_groups,
            limits=None if admission else limits,
            others=node.pods,
            far_devices=far_devices,
            counts_use_as_reserved=node.counts_use_as_reserved,
        )


def _keep_affinities(questions: Sequence[Question], admission: Admission) -> None:
    """Note what was decided for each container of an admitted pod."""
    for question in questions:
        name = next(iter(admission.containers))
        if question.container is not None:
            name = question.container.name
        question.affinity = admission.containers[name].affinity


def _cores_and_caches(node: Node) -> tuple[int, tuple[int, ...]]:
    """Return how many CPUs a core has, and the CPUs of each L3 cache if the CPU manager minds."""
    if node.cpu is None:
        return 1, ()

    l3_groups: tuple[int, ...] = ()
    if node.config.cpu_manager_policy_options.prefer_align_cpus_by_uncorecache:
        l3_groups = tuple(cpus_by_cache(node.machine).values())
    return node.cpu.ledger.capacity.topology.cpus_per_core, l3_groups


def _far_devices(node: Node, pod: Pod, admission: Admission) -> tuple[int, ...]:
    """Return the NUMA nodes of an admitted pod's claims, if they are not those of its containers.

    Args:
        node: on which the pod is.
        pod: the pod.
        admission: what its containers got.
    """
    claims = node.claims
    if claims is None or claims.are_aligned(pod, admission.containers) is not False:
        return ()

    near = {device.numa_nodes[0] for device in claims.devices(pod.uid) if device.numa_nodes}
    return tuple(sorted(near))


def has_users_providers(node: Node, *, but_claims: bool = False) -> bool:
    """Return whether a provider takes part that another node would lack.

    Args:
        node: the node.
        but_claims: the provider of claims does not count, since the other node gets it too.
    """
    built_in: list[HintProvider | None] = [node.devices, node.cpu, node.memory]
    if but_claims:
        built_in.append(node.claims)

    return any(
        all(provider is not built_in_provider for built_in_provider in built_in)
        for provider in node.manager.providers
    )


def emptied(node: Node) -> Node:
    """Return the node without pods, bindings of memory and sick devices."""
    empty_node = node.emptied(node.config)
    if empty_node.devices is not None:
        for resource, pool in empty_node.pools.items():
            healthy_devices = [replace(device, healthy=True) for device in pool.reported]
            empty_node.devices.update(resource, healthy_devices)

    return empty_node


def _judged_by(node: Node, pod: Pod) -> tuple[Policy, str]:
    """Return the policy and the name of the scope that a pod is judged under."""
    ruling = node.pod_policies.ruling(pod) if has_policy(pod) else None
    if ruling is None or isinstance(ruling, Refusal):
        return node.manager.policy, node.scope_name
    return ruling.ruled, ruling.name


class _Notes(Record, frozen=False):
    """What the watched providers have answered so far.

    Attributes:
        node: set before any provider is asked.
    """

    pod: Pod
    node: Node = field(init=False)
    questions: list[Question] = field(default_factory=list)
    allocations: dict[str, ContainerAllocation] = field(default_factory=dict)

    def question(self, container: Container | None) -> Question:
        """Return the question about a container, or about the pod.

        The first provider that is asked opens it.
        """
        last = self.questions[-1] if self.questions else None
        if last is not None and last.container is container:
            return last

        self.note_allocations()
        accounts: dict[str, Account | MemoryAccount] = {}
        for provider in self.node.manager.providers:
            if isinstance(provider, _Watched):
                accounts |= provider.account(self.pod, container)

        holdings = holdings_of(self.node, self.pod)
        question = Question(container, holdings, accounts)
        if self.node.config.profile.hints_carry_scores:
            question.scores = scores_of(holdings.resources, holdings.numa_node_ids)

        self.questions.append(question)
        return question

    def note_allocations(self) -> None:
        """Keep what the containers before were given."""
        for question in self.questions:
            if question.container is not None:
                name = question.container.name
                allocation = self.node.allocation(self.pod.uid, name)
                self.allocations[name] = allocation
                question.affinity = allocation.affinity


class _Watched(RecordingProvider):
    """A provider whose answers are noted."""

    __slots__ = ("notes",)

    def __init__(self, provider: HintProvider, notes: _Notes) -> None:
        super().__init__(provider)
        self.notes = notes

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Ask the provider and note the answer."""
        question = self.notes.question(container)
        hints = self.provider.topology_hints(pod, container)
        question.hints[self.name] = hints
        return hints

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Ask the provider and note the answer."""
        question = self.notes.question(None)
        hints = self.provider.pod_topology_hints(pod)
        question.hints[self.name] = hints
        return hints

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Let the provider allocate, and note if it fails."""
        questions = self.notes.questions
        is_of_pod = bool(questions) and questions[-1].container is None
        question = self.notes.question(None if is_of_pod else container)
        with self._watching(question, pod, container):
            self.provider.allocate(pod, container, affinity)

    def allocate_pod(self, pod: Pod, affinity: TopologyHint) -> None:
        """Let the provider allocate for the pod as a whole, and note if it fails."""
        with self._watching(self.notes.question(None), pod, None):
            allocate_pod(self.provider, pod, affinity)

    @contextmanager
    def _watching(
        self, question: Question, pod: Pod, container: Container | None
    ) -> Iterator[None]:
        """Note if the provider fails."""
        try:
            yield
        except AllocationError:
            question.failed = self.name
            question.failed_accounts = self.account(pod, container)
            raise
