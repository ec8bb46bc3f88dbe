"""Lets a pod's own policy decide on one node, with the node's CPU, memory and device providers underneath.

This is the `document` profile on a machine instead of in a scheduler: the pod is judged as a whole (pod scope)
under the policy that its annotation names, and kept apart from SingleNUMANode pods as exclusively as it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from alignup.koordinator.annotation import REQUIRED
from alignup.koordinator.effective import PolicyMismatch, effective_policy, pod_policy
from alignup.koordinator.exclusivity import ExclusivityTracker
from alignup.topology_manager.policy import NonePolicy, Policy, make_policy
from alignup.topology_manager.scope import PodScope, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.kubernetes.kubelet_config import TopologyOptions
    from alignup.kubernetes.pod import Pod
    from alignup.machine.machine import Machine
    from alignup.topology_manager.hints import HintList, TopologyHint
    from alignup.topology_manager.manager import TopologyManager
    from alignup.topology_manager.provider import ResourceHints
    from alignup.topology_manager.scope import Scope

__all__ = ["ExclusivePolicy", "PodPolicies", "Ruling"]


@dataclass(frozen=True, slots=True)
class ExclusivePolicy:
    """A policy that merges what is left of the hints when those that mix with SingleNUMANode pods are gone."""

    policy: Policy
    tracker: ExclusivityTracker
    exclusive: str

    @property
    def name(self) -> str:
        """The name of the policy underneath."""
        return self.policy.name

    def merge(self, providers_hints: Iterable[ResourceHints]) -> tuple[TopologyHint, bool]:
        """Return the best hint, and whether to admit with it."""
        offered = list(providers_hints)
        best, admit = None, False
        for exclusive in self.tracker.attempts(self.exclusive):
            best, admit = self.policy.merge([self._filtered(hints, exclusive) for hints in offered])
            if best.preferred:
                break
        assert best is not None  # noqa: S101  # there is always at least one attempt
        return best, admit

    def _filtered(self, resources: ResourceHints, exclusive: str) -> ResourceHints:
        filtered: dict[str, HintList | Sequence[TopologyHint] | None] = {}
        for resource, hints in (resources or {}).items():
            filtered[resource] = None if hints is None else self.tracker.filtered(hints, exclusive)
        return filtered


@dataclass(frozen=True, slots=True)
class Ruling:
    """Under what an annotated pod is to be judged."""

    policy: Policy
    scope: Scope


class PodPolicies:
    """The pod policies of one node.

    Args:
        manager: the node's manager; its policy is the node's.
        machine: for the policies that pods bring.
        options: the node's topology options; they hold for the pods' policies as well.
        default_exclusive: the exclusivity of pods that name a policy and no exclusivity.
    """

    __slots__ = ("_default", "_distances", "_manager", "_numa_nodes", "_options", "_policies", "tracker")

    def __init__(
        self,
        manager: TopologyManager,
        machine: Machine,
        options: TopologyOptions,
        default_exclusive: str = REQUIRED,
    ) -> None:
        self._default = default_exclusive
        self.tracker = ExclusivityTracker()
        self._manager = manager
        self._numa_nodes = len(machine.numa_nodes)
        self._distances = machine.distance_matrix
        self._options = options
        self._policies: dict[str, Policy] = {}

    def ruling(self, pod: Pod) -> Ruling | Refusal | None:
        """Return what a pod's annotation asks for; None when it says nothing, a refusal on a mismatch.

        Raises:
            InputError: the annotation cannot be read.
            ConfigError: the machine has more NUMA nodes than the options allow.
        """
        wanted = pod_policy(pod, self._default)
        if wanted is None:
            return None
        own = self._manager.policy
        effective = effective_policy(wanted, own.name)
        if isinstance(effective, PolicyMismatch):
            return Refusal(effective.status.code.value, effective.reason)
        if effective.policy == NonePolicy.name:
            return None
        if effective.policy == own.name:
            return Ruling(ExclusivePolicy(own, self.tracker, effective.exclusive), self._manager.scope)
        policy = self._policies.get(effective.policy)
        if policy is None:
            policy = make_policy(effective.policy, self._numa_nodes, self._distances, self._options)
            self._policies[effective.policy] = policy
        return Ruling(ExclusivePolicy(policy, self.tracker, effective.exclusive), PodScope())

    def admitted(self, pod_uid: str, policy: str, affinities: Mapping[str, TopologyHint]) -> None:
        """Remember which NUMA nodes an annotated pod got."""
        self.tracker.add(pod_uid, [hint.affinity for hint in affinities.values()], policy)

    def removed(self, pod_uid: str) -> None:
        """Forget a pod; one that was never remembered is no error."""
        self.tracker.remove(pod_uid)
