"""Takes one pod past one node as a scheduler plugin would: PreFilter, Filter, Reserve.

The steps are Koordinator's, and so are the rules that both profiles share; where they part, the profile
answers. `alignup.koordinator.koordinator` is the door for those who have a case in JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from alignup.errors import InputError
from alignup.koordinator.annotation import BEST_EFFORT, RESTRICTED, NumaTopologySpec
from alignup.koordinator.effective import default_exclusive, joined_policy
from alignup.koordinator.merging import merge
from alignup.koordinator.placement import Demand, Split, offered_hints, split
from alignup.koordinator.profiles import Exclusivity, Profile
from alignup.koordinator.status import SUCCESS, Status, StatusCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.koordinator.occupancy import Occupancy
    from alignup.koordinator.scored_merge import ScoredHint

__all__ = ["NodeView", "Verdict", "evaluate"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a scheduler knows of a node: its declared policy, how many NUMA nodes, and who holds them."""

    policy: str
    numa_nodes: int
    occupancy: Occupancy


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far a pod came. None: not reached, or refused there."""

    prefilter: Status
    filter: Status | None = None
    reserve: Status | None = None
    policy: str | None = None
    """The effective policy."""
    hints: Mapping[str, Sequence[ScoredHint]] = field(default_factory=dict)
    affinity_after_filter: ScoredHint | None = None
    affinity: ScoredHint | None = None
    allocation: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """By NUMA node and resource; empty if no NUMA node is charged."""


def evaluate(
    annotations: Mapping[str, str], demands: Sequence[Demand], node: NodeView, profile: Profile
) -> Verdict:
    """Return what becomes of a pod on a node.

    Args:
        annotations: The pod's annotations.
        demands: For each resource what the node's NUMA nodes have, and the pod's request (0: none).
        node: The node.
        profile: Whose rules to follow.

    Raises:
        InputError: The effective policy does not exist, the node's policy is one that the profile does not
            know, or the node has more NUMA nodes than can be looked at (`alignup.koordinator.placement`).
    """
    try:
        spec = profile.spec(annotations)
    except InputError as error:
        return Verdict(Status(StatusCode.ERROR, (str(error),)))
    if not any(demand.request for demand in demands):
        return Verdict(Status(StatusCode.SKIP))
    node_policy = profile.node_policy(node.policy)
    policy = joined_policy(spec.policy, node_policy)
    if policy is None:
        reason = profile.mismatch(spec.policy, node_policy)
        return Verdict(SUCCESS, Status(StatusCode.UNRESOLVABLE, (reason,)))
    if not policy:
        return Verdict(SUCCESS, SUCCESS, SUCCESS, policy)
    return _Alignment(demands, node, profile, spec).verdict(policy)


@dataclass(frozen=True, slots=True)
class _Alignment:
    """One pod, one node, and a policy that is not empty."""

    demands: Sequence[Demand]
    node: NodeView
    profile: Profile
    spec: NumaTopologySpec

    def verdict(self, policy: str) -> Verdict:
        """Return the outcome: BestEffort aligns in Reserve, the others in Filter."""
        reached = Verdict(SUCCESS, SUCCESS, policy=policy)
        aligned, status = self._aligned(reached, policy)
        if policy == BEST_EFFORT:
            return replace(aligned, reserve=status)
        if status is SUCCESS:
            return replace(aligned, reserve=SUCCESS, affinity_after_filter=aligned.affinity)
        return replace(aligned, filter=status)

    def _aligned(self, reached: Verdict, policy: str) -> tuple[Verdict, Status]:
        """Return the verdict with hints, and affinity and allocation if all goes well; and whether it did."""
        nodes = self.node.numa_nodes
        if not nodes:
            return reached, Status(StatusCode.UNRESOLVABLE, ("node(s) missing NUMA resources",))
        wanted = default_exclusive(self.spec.policy, self.spec.exclusive)
        exclusivity = Exclusivity(wanted, self.node.occupancy)
        hints = offered_hints(
            self.demands,
            nodes,
            score=lambda mask, used: self.profile.score(mask, used, exclusivity),
            skips=lambda mask: self.profile.skips(mask, exclusivity),
            all_preferred=policy == RESTRICTED,
        )
        hints = {resource: sorted(offers, key=self.profile.rank) for resource, offers in hints.items()}
        offered = replace(reached, hints=hints)
        all_nodes = (1 << nodes) - 1
        merged = merge(policy, [hints], all_nodes, lambda mask: self.profile.violates(mask, exclusivity))
        if not merged.admitted:
            return offered, Status(StatusCode.UNSCHEDULABLE, merged.reasons)
        given = Split({}, ()) if merged.hint.mask is None else split(self.demands, merged.hint.mask)
        if given.insufficient:
            reasons = tuple(f"Insufficient NUMA {resource}" for resource in given.insufficient)
            return offered, Status(StatusCode.UNSCHEDULABLE, reasons)
        return replace(offered, affinity=merged.hint, allocation=given.amounts), SUCCESS
