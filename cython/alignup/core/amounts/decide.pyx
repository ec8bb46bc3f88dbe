"""Decide on one request as a Topology Manager policy does: merge what the providers offer, admit or not.

The exits, in their order:

1. none: admitted without alignment.
2. A list is empty: nothing can be preferred; restricted and single-numa-node refuse.
3. Nobody has a preference: all nodes, preferred.
4. Some single node is preferred by all: the best such node. Nothing is narrower, so nothing can beat it.
5. single-numa-node: refused.
6. Some larger mask is preferred by all: the best such mask.
7. restricted: refused. best-effort: the best mask that is reached.

Beyond 8 NUMA nodes steps 6 and 7 need a search, and the outcome is UNDECIDED where it takes them.
"""

from libc.stdint cimport uint64_t

from alignup.core.amounts.merge_offers cimport best_single, can_merge_amounts, common_mask, common_size, reach_best
from alignup.core.amounts.offers cimport MOST_OFFERS, Offers, collect_offers, families_of
from alignup.core.amounts.trial cimport (
    ADMITTED, POLICY_BEST_EFFORT, POLICY_NONE, POLICY_SINGLE_NUMA_NODE, TOPOLOGY_AFFINITY_ERROR, UNDECIDED, Hint,
    Outcome, Request, Trial,
)
from alignup.core.bits cimport NARROW_NODES, all_nodes
from alignup.core.merge cimport Best, best_preferred, merge_families
from alignup.core.narrow.family cimport Family


cdef inline Outcome keep_hint(const Trial* trial, Hint* hint, uint64_t mask, bint preferred) noexcept nogil:
    """Keep a merged hint; under single-numa-node one that names all nodes constrains nothing."""
    hint.mask = mask
    hint.preferred = preferred
    hint.anywhere = trial.policy == POLICY_SINGLE_NUMA_NODE and mask == all_nodes(trial.row.nodes)
    return ADMITTED


cdef Outcome decide(const Trial* trial, const Request* request, Offers* offers, Hint* hint) noexcept nogil:
    """Return ADMITTED with the merged hint, TOPOLOGY_AFFINITY_ERROR, or UNDECIDED.

    `offers` is what was merged; without a policy nothing is.
    """
    cdef uint64_t singles = all_nodes(trial.row.nodes)
    cdef int index
    hint.mask = hint.singles = 0
    hint.anywhere = True
    hint.preferred = hint.holds_memory = False
    if trial.policy == POLICY_NONE:
        return ADMITTED
    collect_offers(trial, request, offers)
    if offers.spoiled:
        if trial.policy != POLICY_BEST_EFFORT:
            return TOPOLOGY_AFFINITY_ERROR
        return decide_merged(trial, request, offers, hint)
    if not offers.count and not offers.has_memory:
        return keep_hint(trial, hint, singles, True)
    for index in range(offers.count):
        singles &= offers.offer[index].preferred_singles
    if offers.has_memory:
        singles &= offers.memory_singles if offers.memory_size == 1 else 0
    if singles:
        hint.singles, hint.holds_memory = singles, offers.has_memory
        singles = best_single(singles, NULL if trial.policy == POLICY_SINGLE_NUMA_NODE else trial.row.distances)
        return keep_hint(trial, hint, singles, True)
    if trial.policy == POLICY_SINGLE_NUMA_NODE:
        return TOPOLOGY_AFFINITY_ERROR
    return decide_merged(trial, request, offers, hint)


cdef bint all_prefer_singles(const Offers* offers) noexcept nogil:
    """Return whether every list prefers single nodes only."""
    cdef int index
    if offers.has_memory and offers.memory_size != 1:
        return False
    for index in range(offers.count):
        if offers.offer[index].size != 1 or offers.offer[index].sockets >= 0:
            return False
    return True


cdef Outcome decide_merged(const Trial* trial, const Request* request, const Offers* offers, Hint* hint) noexcept nogil:
    """Decide under best-effort or restricted, where no single node is preferred by all."""
    cdef Best best
    cdef int size
    if trial.row.nodes > NARROW_NODES:
        if trial.policy != POLICY_BEST_EFFORT and all_prefer_singles(offers):
            return TOPOLOGY_AFFINITY_ERROR
        return UNDECIDED
    if not can_merge_amounts(trial, offers):
        return decide_listed(trial, request, offers, hint)
    size = 0 if offers.spoiled else common_size(offers)
    best.mask = common_mask(trial, offers, size, trial.row.distances) if size > 1 else 0
    if best.mask:
        hint.holds_memory = offers.has_memory
        return keep_hint(trial, hint, best.mask, True)
    if trial.policy != POLICY_BEST_EFFORT:
        return TOPOLOGY_AFFINITY_ERROR
    if not offers.count and not offers.has_memory:
        return keep_hint(trial, hint, all_nodes(trial.row.nodes), False)
    if not reach_best(trial, offers, trial.row.distances, &best):
        return decide_listed(trial, request, offers, hint)
    return keep_hint(trial, hint, best.mask, False)


cdef Outcome decide_listed(const Trial* trial, const Request* request, const Offers* offers, Hint* hint) noexcept nogil:
    """Decide the same by listing the masks of every offer."""
    cdef Family families[MOST_OFFERS + 1]
    cdef int count = families_of(trial, request, offers, families)
    cdef Best best
    if trial.policy == POLICY_BEST_EFFORT:
        best = merge_families(families, count, trial.row.nodes, trial.row.distances)
        return keep_hint(trial, hint, best.mask, best.preferred)
    best = best_preferred(families, count, all_nodes(trial.row.nodes), trial.row.distances)
    return keep_hint(trial, hint, best.mask, True) if best.found else TOPOLOGY_AFFINITY_ERROR
