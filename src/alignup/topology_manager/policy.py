"""Policies: merge the providers' hints and decide whether the result is good enough to admit.

A policy knows no provider and no resource. The merge itself is compiled (`alignup.core.merge`,
imported only here).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from alignup.core.merge import Merger, flatten
from alignup.errors import ConfigError
from alignup.kubernetes.kubelet_config import DOCUMENTS, KUBELET, READINGS, TOPOLOGY_POLICIES
from alignup.kubernetes.policy_options import TopologyOptions, parse_topology_options, set_options
from alignup.records import Record
from alignup.topology_manager.hints import MAX_NUMA_NODES, BitMask, TopologyHint

if TYPE_CHECKING:
    from alignup.topology_manager.provider import ResourceHints

__all__ = [
    "BestEffortPolicy",
    "Merger",
    "NonePolicy",
    "Policy",
    "RestrictedPolicy",
    "SingleNUMANodePolicy",
    "flatten",
    "make_policy",
]

# NUMA nodes that the documents allow.
MAX_NODES_AS_WRITTEN: Final = 8


class Policy(Protocol):
    """The interface of a policy towards a scope.

    Examples:
        >>> make_policy("restricted", numa_nodes=2).name
        'restricted'
    """

    @property
    def name(self) -> str:
        """The kubelet's name for the policy."""

    def merge(self, providers_hints: Iterable[ResourceHints]) -> tuple[TopologyHint, bool]:
        """Return the best hint that combines those of all providers, and whether to admit."""


class NonePolicy(Record):
    """Align nothing and admit everything."""

    name: ClassVar[str] = "none"

    def merge(
        self,
        providers_hints: Iterable[ResourceHints],  # noqa: ARG002  # a policy is given them
    ) -> tuple[TopologyHint, bool]:
        """Return the hint without a mask, and admit."""
        return TopologyHint(None, False), True


class BestEffortPolicy(Record):
    """Align as well as possible, and always admit."""

    merger: Merger
    name: ClassVar[str] = "best-effort"

    def merge(self, providers_hints: Iterable[ResourceHints]) -> tuple[TopologyHint, bool]:
        """Return the best hint, and admit."""
        return self.merger.merge(flatten(providers_hints)), True


class RestrictedPolicy(Record):
    """Admit only pods that are aligned as well as they would be on the empty machine."""

    merger: Merger
    name: ClassVar[str] = "restricted"

    def merge(self, providers_hints: Iterable[ResourceHints]) -> tuple[TopologyHint, bool]:
        """Return the best hint, and admit if it is preferred."""
        best = self.merger.merge(flatten(providers_hints))
        return best, best.preferred


class SingleNUMANodePolicy(Record):
    """Admit only pods whose resources come from exactly one NUMA node."""

    merger: Merger
    name: ClassVar[str] = "single-numa-node"

    def merge(self, providers_hints: Iterable[ResourceHints]) -> tuple[TopologyHint, bool]:
        """Return the best hint of one node, and admit if it is preferred.

        A hint that names all nodes of the machine constrains nothing; its mask is dropped, as in
        the kubelet. As the documents have it, a result of several nodes is the default hint: all
        nodes, not preferred.
        """
        best = self.merger.merge(flatten(providers_hints), single_nodes=True)
        if self.merger.as_written:
            if best.affinity is None or best.affinity.count() > 1:
                best = TopologyHint(BitMask.from_int((1 << self.merger.numa_nodes) - 1), False)
            return best, best.preferred

        if best.affinity is not None and best.affinity.count() == self.merger.numa_nodes:
            best = TopologyHint(None, best.preferred)

        return best, best.preferred


def is_as_written(policy: Policy) -> bool:
    """Return whether a policy merges as the documents are written."""
    merger = getattr(policy, "merger", None)
    return isinstance(merger, Merger) and merger.as_written


_POLICIES: Final = {
    policy.name: policy for policy in (BestEffortPolicy, RestrictedPolicy, SingleNUMANodePolicy)
}


def make_policy(
    name: str,
    numa_nodes: int,
    distances: Sequence[Sequence[int]] | None = None,
    options: Mapping[str, str] | TopologyOptions | None = None,
    *,
    reading: str = KUBELET,
) -> Policy:
    """Return the policy of that name for a machine.

    Args:
        name: one of `TOPOLOGY_POLICIES`.
        numa_nodes: how many NUMA nodes the machine has.
        distances: a row for each node, needed for `prefer-closest-numa-nodes` only.
        options: `topologyManagerPolicyOptions` of a KubeletConfiguration, parsed or not.
        reading: one of `READINGS`: `kubelet`, or `documents` for the merge of KEP-693 and the
            article as written (`docs/documents.md`), which has no policy options and up to 8 NUMA
            nodes.

    Raises:
        ConfigError: the policy, an option or the reading is unknown, distances are needed and
            missing, the machine has more nodes than `max-allowable-numa-nodes` (8 unless set; at
            most 64), or the documents have no such options or nodes.

    Examples:
        >>> policy = make_policy("single-numa-node", numa_nodes=2)
        >>> policy.name
        'single-numa-node'
    """
    if name not in TOPOLOGY_POLICIES:
        raise ConfigError.at(
            "topologyManagerPolicy", f"one of {', '.join(TOPOLOGY_POLICIES)}", name
        )

    if reading not in READINGS:
        raise ConfigError.at("the reading", f"one of {', '.join(READINGS)}", reading)
    if name == NonePolicy.name:
        return NonePolicy()
    if not isinstance(numa_nodes, int):
        raise TypeError(f"expected a number of NUMA nodes, got {numa_nodes!r}")

    if not isinstance(options, TopologyOptions):
        options = parse_topology_options(options or {})

    max_nodes = min(options.max_allowable_numa_nodes, MAX_NUMA_NODES)
    if not 1 <= numa_nodes <= max_nodes:
        raise ConfigError(
            f"expected 1 to {max_nodes} NUMA nodes under policy {name!r}, got {numa_nodes}; "
            f"max-allowable-numa-nodes of topologyManagerPolicyOptions (up to {MAX_NUMA_NODES}) "
            "allows more"
        )

    if reading == DOCUMENTS:
        if options.prefer_closest_numa_nodes or numa_nodes > MAX_NODES_AS_WRITTEN:
            raise ConfigError(
                f"expected at most {MAX_NODES_AS_WRITTEN} NUMA nodes and no "
                "prefer-closest-numa-nodes where the documents are followed, "
                f"got {numa_nodes} NUMA nodes and {set_options(options)}"
            )

        return _POLICIES[name](Merger(numa_nodes, as_written=True))

    if not options.prefer_closest_numa_nodes:
        return _POLICIES[name](Merger(numa_nodes, None))

    rows = distances or ()
    _check_distances(rows, numa_nodes)
    return _POLICIES[name](Merger(numa_nodes, rows))


def _check_distances(rows: Sequence[Sequence[int]], numa_nodes: int) -> None:
    """Check that there is a distance between any two NUMA nodes.

    Raises:
        ConfigError: there is not.
    """
    if len(rows) != numa_nodes or any(len(row) != numa_nodes for row in rows):
        raise ConfigError(
            f"expected distances between all {numa_nodes} NUMA nodes for policy option "
            f'"prefer-closest-numa-nodes", got {[len(row) for row in rows]!r} a row'
        )
