"""Judges annotated pods on one node by the policy that they bring, over the node's own providers.

This is the `document` profile on a machine instead of in a scheduler: the pod is judged as a whole
(pod scope) under the policy that its annotation names, and kept apart from pods of the other kind
as exclusively as it asks for. The rules are in `alignup.koordinator.effective`, and at the end here
as functions over masks.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from alignup.koordinator import effective
from alignup.koordinator.effective import PREFERRED, REQUIRED, Occupancy
from alignup.machine.bits import union
from alignup.records import Record, field, replace
from alignup.topology_manager.hints import HintList, TopologyHint
from alignup.topology_manager.policy import NonePolicy, Policy, SingleNUMANodePolicy, make_policy
from alignup.topology_manager.scope import TOPOLOGY_AFFINITY_ERROR, PodScope, Refusal, Scope, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.policy_options import TopologyOptions
    from alignup.machine.machine import Machine
    from alignup.topology_manager.manager import TopologyManager
    from alignup.topology_manager.provider import HintProvider, ResourceHints

# Longer lists are descriptions of what fits on over 12 NUMA nodes; they are asked node by node.
_MOST_LISTED: Final = 4096


class ExclusivePolicy(Record):
    """A policy that merges only the hints that exclusivity permits.

    Args:
        policy: the policy underneath.
        exclusive: `Required`, `Preferred`, or "".
        occupancy: what the pods on the node hold.
        all_nodes: the mask of all NUMA nodes.
    """

    policy: Policy
    exclusive: str
    occupancy: Occupancy
    all_nodes: int

    @property
    def name(self) -> str:
        """The name of the policy underneath."""
        return self.policy.name

    @property
    def is_single(self) -> bool:
        """True if the pod runs under SingleNUMANode."""
        return self.name == SingleNUMANodePolicy.name

    def merge(self, providers_hints: Iterable[ResourceHints]) -> tuple[TopologyHint, bool]:
        """Return the best hint, and whether to admit with it.

        Where nothing is bound to NUMA nodes, or a resource cannot be had at all, exclusivity
        changes nothing.
        """
        provider_hints = list(providers_hints)
        lists = _lists(provider_hints)
        if not lists or not all(lists):
            return self.policy.merge(provider_hints)

        fallback: TopologyHint | None = None
        for avoidance in rounds(
            self.exclusive, self.occupancy, self.all_nodes, single=self.is_single
        ):
            permitted_hints = [_permitted(resources, avoidance) for resources in provider_hints]
            best, admit = self.policy.merge(permitted_hints)
            if best.preferred:
                return best, admit
            mask = self.all_nodes if best.affinity is None else int(best.affinity)
            # every resource has hints left, and none of its nodes is shared with a pod of the other
            # kind
            if admit and fallback is None and all(_lists(permitted_hints)) and not self.mixes(mask):
                fallback = best

        if fallback is not None:
            return fallback, True
        return best, admit and self.exclusive != REQUIRED

    def mixes(self, mask: int) -> bool:
        """Return what `effective.mixes` does of this pod on these NUMA nodes."""
        return effective.mixes(mask, self.occupancy, single=self.is_single)


class ExclusiveScope(Record):
    """A scope that refuses what mixes after all, and names the pods that are kept apart.

    Args:
        scope: the scope underneath.
        ruled: the policy that the pod is judged under.
        occupancy_of: returns the NUMA nodes that a pod on the node holds, and as which kind.
        holders: returns the pods that hold any of the given nodes, as `exclusivity_sentence` takes
            them.
    """

    scope: Scope
    ruled: ExclusivePolicy
    occupancy_of: Callable[[Pod, str], Occupancy]
    holders: Callable[[Occupancy], Mapping[str, str]]

    @property
    def name(self) -> str:
        """The name of the scope underneath."""
        return self.scope.name

    def admit(
        self, pod: Pod, policy: Policy, providers: Sequence[HintProvider], store: Store
    ) -> Refusal | None:
        """Decide as the scope does; under `Required` also by what the containers got."""
        refusal = self.scope.admit(pod, policy, providers, store)
        if self.ruled.exclusive != REQUIRED:
            return refusal

        if refusal is None:
            # under best-effort a container may get more NUMA nodes than its affinity names
            occupancy = self.occupancy_of(pod, policy.name)
            mask = occupancy.single | occupancy.multi
            if not self.ruled.mixes(mask):
                return None
            return Refusal(TOPOLOGY_AFFINITY_ERROR, self._detail(mask), policy=policy.name)

        if refusal.detail:
            return refusal

        best, admit = self.ruled.policy.merge(refusal.hints)
        if not admit:
            return refusal

        mask = self.ruled.all_nodes
        if best.affinity is not None and self.ruled.mixes(int(best.affinity)):
            mask = int(best.affinity)
        # else without exclusivity the pod could have gone where nobody is in the way, were it not
        # for its other resources
        return replace(refusal, detail=self._detail(mask))

    def _detail(self, mask: int) -> str:
        """Return the sentence for a pod that would have got these NUMA nodes."""
        in_the_way = Occupancy(single=mask)
        if self.ruled.is_single:
            in_the_way = Occupancy(multi=mask)
        return effective.exclusivity_sentence(self.holders(in_the_way))


class PodPolicies(Record, frozen=False, eq=False):
    """The policies that pods bring to one node, and who holds which NUMA nodes there.

    Attributes:
        manager: the node's manager; its policy is the node's.
        machine: for the policies that pods bring.
        options: the node's topology options; they hold for the pods' policies as well.
        numa_nodes: returns the mask of the NUMA nodes that a container's CPUs, memory and devices
            lie in, by the uid of its pod and its name.
        default_exclusive: the exclusivity of pods that name a policy and no exclusivity.
        held_by: by uid, what pods hold.
        policies: by name, those that the node does not have itself.
    """

    manager: TopologyManager
    machine: Machine
    options: TopologyOptions
    numa_nodes: Callable[[str, str], int]
    default_exclusive: str = REQUIRED
    held_by: dict[str, Occupancy] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)

    def copy(self, manager: TopologyManager, numa_nodes: Callable[[str, str], int]) -> PodPolicies:
        """Return the same for a copy of the node, with its manager and its holdings."""
        return replace(self, manager=manager, numa_nodes=numa_nodes, held_by=self.held_by.copy())

    @property
    def occupancy(self) -> Occupancy:
        """The NUMA nodes that all pods hold.

        Pods without an annotation run under the node's policy.
        """
        for pod in self.manager.pods:
            if pod.uid not in self.held_by:
                self.held_by[pod.uid] = self._held(pod, self.manager.policy.name)

        return reduce(or_, self.held_by.values(), effective.NOTHING_HELD)

    def ruling(self, pod: Pod) -> ExclusiveScope | Refusal | None:
        """Return the scope, with the policy, that a pod's annotation asks for.

        None: it asks for nothing; a refusal: the two policies do not match.

        Raises:
            InputError: the annotation cannot be read.
            ConfigError: the machine has more NUMA nodes than the options allow.
        """
        pod_policy = effective.pod_policy(pod, self.default_exclusive)
        if pod_policy is None:
            return None

        node_policy = self.manager.policy
        policy = effective.joined_policy(pod_policy.policy, node_policy.name, none=NonePolicy.name)
        if policy is None:
            return Refusal(
                effective.StatusCode.UNRESOLVABLE.value,
                effective.mismatch_sentence(pod_policy.policy, node_policy.name),
            )

        if policy == NonePolicy.name:
            return None

        if policy == node_policy.name:
            rule = node_policy
            scope = self.manager.scope
        else:
            rule = self._policy(policy)
            scope = PodScope()

        ruled = ExclusivePolicy(rule, pod_policy.exclusive, self.occupancy, self._all_nodes)
        return ExclusiveScope(scope, ruled, self._held, self._holders)

    def mixes_unwillingly(self, pod: Pod, mask: int) -> bool:
        """Return whether a pod that prefers to keep apart would share one of these NUMA nodes.

        One whose exclusivity is not `Preferred` does not.

        Raises:
            InputError, ConfigError: as `ruling`.
        """
        ruling = self.ruling(pod)
        return (
            isinstance(ruling, ExclusiveScope)
            and ruling.ruled.exclusive == PREFERRED
            and ruling.ruled.mixes(mask)
        )

    def decide(self, pod: Pod, *, observed: bool) -> Refusal | None:
        """Admit or refuse a pod under the policy of its own, or the node's where it names none.

        None means admitted.

        Raises:
            InputError, ConfigError: as `ruling`.
            PodExistsError: a pod of this uid is admitted already.
        """
        manager, ruling = self.manager, self.ruling(pod)
        if ruling is None:
            return manager.decide(pod, manager.policy, manager.scope, observed=observed)

        if isinstance(ruling, Refusal):
            if observed:
                return manager.refuse(ruling)
            return ruling

        refusal = manager.decide(pod, ruling.ruled, ruling, observed=observed)
        if refusal is None:
            self.admitted(pod, ruling.ruled.name)

        return refusal

    def admitted(self, pod: Pod, policy: str) -> None:
        """Remember what an annotated pod got, under the policy that it was judged by."""
        self.held_by[pod.uid] = self._held(pod, policy)

    def removed(self, pod_uid: str) -> None:
        """Forget a pod; one that was never remembered is no error."""
        self.held_by.pop(pod_uid, None)

    def _policy(self, name: str) -> Policy:
        """Return a policy that the node does not have itself; made once."""
        if name not in self.policies:
            nodes, distances = len(self.machine.numa_nodes), self.machine.distance_matrix
            self.policies[name] = make_policy(name, nodes, distances, self.options)
        return self.policies[name]

    @property
    def _all_nodes(self) -> int:
        return (1 << len(self.machine.numa_nodes)) - 1

    def _held(self, pod: Pod, policy: str) -> Occupancy:
        """Return what a pod holds now."""
        affinities = self.manager.affinities(pod.uid)
        names = [container.name for container in pod.all_containers]
        parts = [(self.numa_nodes(pod.uid, name), affinities.get(name)) for name in names]
        return pod_occupancy(policy, parts, self._all_nodes)

    def _holders(self, occupancy: Occupancy) -> Mapping[str, str]:
        """Return the pods that hold any of these nodes, as `exclusivity_sentence` takes them."""
        names = {pod.uid: pod.namespaced_name for pod in self.manager.pods}
        numa_ids = self.machine.numa_node_ids
        is_single = bool(occupancy.single)

        holders = {}
        for uid, pod_nodes in self.held_by.items():
            if pod_nodes.single & occupancy.single or pod_nodes.multi & occupancy.multi:
                name = names.get(uid, uid)
                holders[name] = effective.holding_words(pod_nodes, numa_ids, single=is_single)

        return holders


def _lists(provider_hints: Iterable[ResourceHints]) -> list[HintList | Sequence[TopologyHint]]:
    """Return the hints of each resource that has a preference."""
    return [
        hints
        for resources in provider_hints
        for hints in (resources or {}).values()
        if hints is not None
    ]


def _permitted(resources: ResourceHints, avoidance: Avoidance) -> ResourceHints:
    """Return what is left of a provider's hints."""
    return resources and {
        resource: None if hints is None else permitted(hints, avoidance)
        for resource, hints in resources.items()
    }


class Avoidance(Record):
    """The NUMA nodes, as masks, that hints may not name.

    Attributes:
        alone: for hints of exactly one node.
        across: for hints of several nodes.
    """

    alone: int = 0
    across: int = 0

    def allows(self, mask: int) -> bool:
        """Return whether a hint with this mask may stay."""
        if mask.bit_count() == 1:
            return not mask & self.alone
        return not mask & self.across


NOTHING_AVOIDED: Final = Avoidance()


def rounds(
    exclusive: str, occupancy: Occupancy, all_nodes: int, *, single: bool
) -> tuple[Avoidance, ...]:
    """Return what to leave out of the hints, one merge after the other.

    The first preferred result is taken.

    A kubelet's merge has no scores, so what the document says in scores becomes an order of merges:

    - `Required` skips hints that mix (see `mixes`), in every round.
    - `Preferred` scores them 0, the worst: they are left out at first, and taken when nothing else
      is preferred.
    - Pods under SingleNUMANode attract each other, so that room remains for pods across NUMA nodes:
      the first round leaves them only nodes that such pods hold already.

    Args:
        exclusive: `Required`, `Preferred`, or "" for a pod without an annotation: nothing is left
            out.
        occupancy: what the other pods hold.
        all_nodes: the mask of all NUMA nodes.
        single: the pod runs under SingleNUMANode.
    """
    if exclusive not in (REQUIRED, PREFERRED):
        return (NOTHING_AVOIDED,)

    avoidances = []
    if single:
        together = occupancy.single & ~occupancy.multi
        apart = Avoidance(alone=occupancy.multi)
        if together:
            avoidances.append(Avoidance(alone=all_nodes & ~together))
    else:
        apart = Avoidance(across=occupancy.single)

    avoidances.append(apart)
    if exclusive == PREFERRED and apart != NOTHING_AVOIDED:
        avoidances.append(NOTHING_AVOIDED)

    return tuple(avoidances)


def permitted(
    hints: HintList | Sequence[TopologyHint], avoidance: Avoidance
) -> HintList | Sequence[TopologyHint]:
    """Return the hints that may stay; the same object if nothing is to be avoided.

    Where nodes are closed to hints of one node, as for pods under single-numa-node only, hints of
    several nodes go too: that policy ignores them anyway. The result may be empty, which a merge
    reads as "cannot be satisfied". Hints without a mask stay.
    """
    if avoidance == NOTHING_AVOIDED:
        return hints

    packed = hints if isinstance(hints, HintList) else HintList(hints)
    if not avoidance.alone:
        return packed.avoiding(avoidance.across)

    total = packed.total()
    # a description is sampled narrowest first, and has a hint of one node for each NUMA node at
    # most
    is_listed = total is not None and total <= _MOST_LISTED
    narrow = packed.hints() if is_listed else packed.sample(_MOST_LISTED)
    return HintList(
        [
            hint
            for hint in narrow
            if hint.affinity is None
            or (hint.affinity.count() == 1 and avoidance.allows(int(hint.affinity)))
        ]
    )


def pod_occupancy(
    policy: str, containers: Iterable[tuple[int, TopologyHint | None]], all_nodes: int
) -> Occupancy:
    """Return which NUMA nodes a pod holds, and as which kind of pod.

    A pod under single-numa-node holds the nodes of all its containers as a single-node pod. Of
    another pod every container that spans several NUMA nodes counts, and where nothing was aligned,
    the pod as a whole. A pod in one NUMA node by chance holds nothing: the document protects and
    restrains only these two.

    Args:
        policy: the policy that the pod runs under, by the kubelet's name.
        containers: of each container the NUMA nodes that its CPUs, memory and devices lie in, and
            its affinity; None: nothing was aligned.
        all_nodes: the mask of all NUMA nodes.
    """
    parts = list(containers)
    masks = [nodes | _affinity_mask(hint, nodes, all_nodes) for nodes, hint in parts]
    pod_mask = union(masks)
    if policy == "single-numa-node":
        return Occupancy(single=pod_mask)

    if all(hint is None for _, hint in parts):
        masks = [pod_mask]

    return Occupancy(multi=union(mask for mask in masks if mask.bit_count() > 1))


def _affinity_mask(hint: TopologyHint | None, held_nodes: int, all_nodes: int) -> int:
    """Return the NUMA nodes that an affinity adds to what is held.

    An affinity that is not preferred says little of what a container got, and neither does that of
    all nodes for a container without anything: that is how a merge without any hint ends.
    """
    if hint is None or hint.affinity is None or not hint.preferred:
        return 0

    mask = int(hint.affinity)
    if mask == all_nodes and not held_nodes:
        return 0
    return mask
