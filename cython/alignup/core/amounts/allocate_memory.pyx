"""Take a container's memory from the amounts of a node exactly as the memory manager would.

Which nodes it comes from, what earlier init containers hand over, and how nodes are bound afterwards all follow
from amounts, so nothing here is unsure; beyond 8 nodes only single nodes are looked at.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.bits cimport NARROW_NODES, is_single, lowest, popcount
from alignup.core.narrow.family cimport Family, has
from alignup.core.amounts.node_hints cimport memory_candidates, memory_family
from alignup.core.amounts.state cimport (
    ADMITTED, MOST_DONORS, UNDECIDED, UNEXPECTED_ADMISSION_ERROR, Demand, Donor, Hint, MemoryRule, Outcome, Plan,
    State, holds_memory, knows_memory, memory_rule, rule_allows,
)


cdef Outcome charge_memory(
    State* state, const Demand* demand, const Plan* plan, const Hint* hint, bint last
) noexcept nogil:
    """Return whether the container gets its memory; take it unless the container is the last one."""
    cdef uint64_t mask = hint.mask
    cdef bint preferred = hint.preferred
    cdef MemoryRule rule
    cdef Outcome outcome
    if not knows_memory(state.shape, demand):
        return UNEXPECTED_ADMISSION_ERROR
    if hint.anywhere:
        outcome = best_memory(state, demand, plan, 0, &mask, &preferred)
        if outcome != ADMITTED:
            return outcome
    if not holds_memory(state, demand, mask):
        outcome = best_memory(state, demand, plan, mask, &mask, &preferred)
        if outcome != ADMITTED:
            return outcome
    if not is_single(mask):
        rule = memory_rule(state)
        if not rule_allows(&rule, mask):
            return UNEXPECTED_ADMISSION_ERROR
    if last:
        return ADMITTED
    return take_memory(state, demand, mask)


cdef Outcome best_memory(
    const State* state, const Demand* demand, const Plan* plan, uint64_t inner, uint64_t* mask, bint* preferred
) noexcept nogil:
    """Find the best hint that includes `inner`; it must be preferred if `preferred` is set."""
    cdef Family family
    cdef uint64_t found
    cdef int candidate, best = 0
    cdef bint is_preferred, best_is_preferred = False
    if state.shape.numa_nodes > NARROW_NODES:
        found = memory_candidates(state, demand) & memory_rule(state).alone
        if inner or plan.memory_size != 1 or not found or state.donors:
            return UNDECIDED
        mask[0] = found & (~found + 1)
        preferred[0] = True
        return ADMITTED
    if not memory_family(state, demand, plan, &family):
        return UNEXPECTED_ADMISSION_ERROR
    for candidate in range(1, 1 << state.shape.numa_nodes):
        is_preferred = has(family.preferred, candidate)
        if <uint64_t>candidate & inner != inner or not (is_preferred or has(family.other, candidate)):
            continue
        if best and (best_is_preferred and not is_preferred):
            continue
        if best and best_is_preferred == is_preferred and popcount(best) <= popcount(candidate):
            continue
        best = candidate
        best_is_preferred = is_preferred
    if not best or (preferred[0] and not best_is_preferred):
        return UNEXPECTED_ADMISSION_ERROR
    mask[0] = best
    preferred[0] = best_is_preferred
    return ADMITTED


cdef Outcome take_memory(State* state, const Demand* demand, uint64_t mask) noexcept nogil:
    """Take the memory, first what init containers hold on the same nodes, and bind these."""
    cdef Donor holding
    cdef int index, donor, node
    cdef int64_t missing, part
    cdef int64_t* free
    cdef uint64_t rest
    if state.shape.numa_nodes > NARROW_NODES and (demand.hands_on or state.donors):
        return UNDECIDED
    if demand.hands_on and state.donors == MOST_DONORS:
        return UNDECIDED
    holding.mask = mask
    holding.kinds = demand.kinds
    for index in range(demand.kinds):
        holding.kind[index] = demand.kind[index]
        for node in range(NARROW_NODES):
            holding.taken[index][node] = 0
        missing = demand.size[index]
        for donor in range(state.donors):
            if state.donor[donor].mask == mask:
                missing = hand_over(&state.donor[donor], &holding, index, missing)
        free = state.memory + demand.kind[index] * state.layout.width
        rest = mask
        while rest and missing > 0:
            node = lowest(rest)
            rest &= rest - 1
            part = min(missing, free[node])
            if node < NARROW_NODES:
                holding.taken[index][node] += part
            free[node] -= part
            missing -= part
    bind(state, mask)
    if demand.hands_on:
        state.donor[state.donors] = holding
        state.donors += 1
    return ADMITTED


cdef int64_t hand_over(Donor* donor, Donor* heir, int index, int64_t missing) noexcept nogil:
    """Move up to `missing` bytes of one type from one holding to another, lowest node first."""
    cdef int kind, node
    cdef int64_t moved
    for kind in range(donor.kinds):
        if donor.kind[kind] != heir.kind[index]:
            continue
        for node in range(NARROW_NODES):
            moved = min(donor.taken[kind][node], missing)
            donor.taken[kind][node] -= moved
            heir.taken[index][node] += moved
            missing -= moved
    return missing


cdef void bind(State* state, uint64_t mask) noexcept nogil:
    """Bind the nodes of a container that now holds memory on them."""
    cdef uint64_t rest = mask
    while rest:
        state.bound[lowest(rest)] = mask
        rest &= rest - 1
    state.used |= mask
