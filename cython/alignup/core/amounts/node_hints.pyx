"""What the providers of a node would offer for a demand, worked out from amounts.

Either only the single NUMA nodes from which everything could be had, or the whole families of masks, built by the
same kernels as the providers' own (`alignup.core.narrow.family`). What a policy makes of them is said in
`alignup.core.amounts.policy`.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, is_single, lowest
from alignup.core.narrow.family cimport Family, keep_holding
from alignup.core.amounts.state cimport (
    Demand, MemoryRule, Plan, Shape, State, holds_memory, knows_memory, memory_rule, rule_allows, sum_of, sum_over,
)
from alignup.core.narrow.tables cimport OF_SIZE


cdef uint64_t cpu_candidates(const State* state, const Demand* demand) noexcept nogil:
    """Return the nodes each of which could give all CPUs."""
    cdef uint64_t found = 0
    cdef int node
    for node in range(state.shape.numa_nodes):
        found |= (<uint64_t>(state.cpu[node] >= demand.cpu)) << node
    if state.reuses:
        for node in range(state.shape.numa_nodes):
            if state.left_least[node]:
                found &= (<uint64_t>1) << node
    return found


cdef uint64_t memory_candidates(const State* state, const Demand* demand) noexcept nogil:
    """Return the nodes each of which has all memory free, whatever the group rule says."""
    cdef uint64_t found = all_nodes(state.shape.numa_nodes), fitting
    cdef const int64_t* free
    cdef int index, node
    for index in range(demand.kinds):
        free = state.memory + demand.kind[index] * state.layout.width
        fitting = 0
        for node in range(state.shape.numa_nodes):
            fitting |= (<uint64_t>(free[node] >= demand.size[index])) << node
        found &= fitting
    return found


cdef uint64_t device_candidates(const State* state, const Demand* demand, const Plan* plan, int index) noexcept nogil:
    """Return the nodes each of which is near to enough devices of a resource."""
    cdef int resource = demand.resource[index]
    cdef int first = state.layout.starts[resource], end = state.layout.starts[resource + 1], column, node
    cdef int64_t near[64]
    cdef int64_t amount
    cdef uint64_t place, found = 0, touched = ~<uint64_t>0
    for node in range(state.shape.numa_nodes):
        near[node] = 0
    for column in range(first, end):
        place = state.shape.places[column]
        amount = state.devices[column]
        if place and state.left != NULL and state.left[column]:
            touched &= place
            amount += state.left[column]
        if amount:
            while place:
                near[lowest(place)] += amount
                place &= place - 1
    for node in range(state.shape.numa_nodes):
        found |= (<uint64_t>(near[node] >= demand.count[index])) << node
    return found & touched & plan.universe[index]


cdef uint64_t candidates(const State* state, const Demand* demand, const Plan* plan, bint with_memory) noexcept nogil:
    """Return the nodes from each of which everything could be had."""
    cdef const Shape* shape = state.shape
    cdef uint64_t found = all_nodes(shape.numa_nodes), fitting
    cdef int index
    if shape.has_cpu and demand.cpu:
        found = cpu_candidates(state, demand)
    if with_memory:
        fitting = memory_candidates(state, demand)
        if fitting & state.used:
            fitting &= memory_rule(state).alone
        if state.donors:
            fitting |= single_donors(state, demand, fitting)
        found &= fitting
    for index in range(demand.resources):
        if not found:
            return 0
        if plan.universe[index]:
            found &= device_candidates(state, demand, plan, index)
    return found


cdef uint64_t single_donors(const State* state, const Demand* demand, uint64_t found) noexcept nogil:
    """Return the nodes of init containers that suffice together with what those hold there."""
    cdef uint64_t more = 0
    cdef int index
    for index in range(state.donors):
        if is_single(state.donor[index].mask) and not state.donor[index].mask & found:
            if suffices_with_reuse(state, demand, state.donor[index].mask):
                more |= state.donor[index].mask
    return more


cdef bint suffices_with_reuse(const State* state, const Demand* demand, uint64_t mask) noexcept nogil:
    """Tell whether free memory and what init containers hold on exactly these nodes are enough."""
    cdef MemoryRule rule = memory_rule(state)
    cdef int index, donor, kind
    cdef int64_t missing
    if not rule_allows(&rule, mask):
        return False
    for index in range(demand.kinds):
        missing = demand.size[index]
        for donor in range(state.donors):
            if state.donor[donor].mask != mask:
                continue
            for kind in range(state.donor[donor].kinds):
                if state.donor[donor].kind[kind] == demand.kind[index]:
                    missing -= sum_of(state.donor[donor].taken[kind], 8)
        if missing > 0 and sum_over(state.memory + demand.kind[index] * state.layout.width, mask) < missing:
            return False
    return True


cdef void pack(Family* family, const uint8_t* keeps, int size, int preferred_size) noexcept nogil:
    """Pack the kept masks, 1 each, those of one size as preferred; `keeps` is 8 long at least, and 0 past its size."""
    cdef uint64_t kept[4]
    cdef uint64_t eight
    cdef int mask, word
    memset(family, 0, sizeof(Family))
    memset(kept, 0, sizeof(kept))
    for mask in range(0, size, 8):
        memcpy(&eight, keeps + mask, 8)
        # one multiplication gathers the lowest bits of eight bytes in the highest byte
        kept[mask >> 6] |= (eight * <uint64_t>0x0102040810204080) >> 56 << (mask & 63)
    kept[0] &= ~<uint64_t>1
    for word in range(4):
        if 0 <= preferred_size <= NARROW_NODES:
            family.preferred[word] = kept[word] & OF_SIZE[preferred_size][word]
        family.other[word] = kept[word] & ~family.preferred[word]


cdef inline bint holds_nothing(const Family* family) noexcept nogil:
    cdef int word
    for word in range(4):
        if family.preferred[word] | family.other[word]:
            return False
    return True


cdef inline void make_impossible(Family* family) noexcept nogil:
    """Make the family of a list without hints: it joins any other hint and spoils its preference."""
    memset(family, 0, sizeof(Family))
    family.any_other = True


cdef inline void start_keeping(uint8_t* keeps, int size) noexcept nogil:
    memset(keeps, 0, 8)
    memset(keeps, 1, size)


cdef void cpu_family(const State* state, const Demand* demand, const Plan* plan, Family* family) noexcept nogil:
    cdef uint8_t keeps[NARROW_MASKS]
    cdef const Shape* shape = state.shape
    cdef int node, mask, socket, touched, size = 1 << shape.numa_nodes
    cdef uint64_t without = 0, must = 0
    for node in range(shape.numa_nodes):
        if not shape.cpu_capacity[node]:
            without |= (<uint64_t>1) << node
        if state.reuses and state.left_least[node]:
            must |= (<uint64_t>1) << node
    start_keeping(keeps, size)
    keep_holding(keeps, shape.numa_nodes, shape.numa_nodes, NULL, state.cpu, demand.cpu)
    if without or must:
        for mask in range(size):
            keeps[mask] &= not (<uint64_t>mask) & without and (<uint64_t>mask) & must == must
    pack(family, keeps, size, plan.cpu_size)
    if plan.cpu_sockets < 0:
        return
    for mask in range(1, size):
        touched = 0
        for socket in range(shape.sockets):
            touched += shape.socket_nodes[socket] & <uint64_t>mask != 0
        if keeps[mask] and touched == plan.cpu_sockets:
            family.preferred[mask >> 6] |= (<uint64_t>1) << (mask & 63)
            family.other[mask >> 6] &= ~((<uint64_t>1) << (mask & 63))


cdef bint memory_family(const State* state, const Demand* demand, const Plan* plan, Family* family) noexcept nogil:
    """Pack the masks that hold the memory; return False where none does."""
    cdef uint8_t keeps[NARROW_MASKS]
    cdef MemoryRule rule
    cdef int index, mask, size = 1 << state.shape.numa_nodes
    if not knows_memory(state.shape, demand):
        return False
    start_keeping(keeps, size)
    for index in range(demand.kinds):
        keep_holding(
            keeps, state.shape.numa_nodes, state.shape.numa_nodes, NULL,
            state.memory + demand.kind[index] * state.layout.width, demand.size[index],
        )
    if state.used:
        rule = memory_rule(state)
        for mask in range(1, size):
            keeps[mask] = keeps[mask] and rule_allows(&rule, mask)
    for index in range(state.donors):
        if suffices_with_reuse(state, demand, state.donor[index].mask):
            keeps[state.donor[index].mask] = 1
    pack(family, keeps, size, plan.memory_size)
    return not holds_nothing(family)


cdef void device_family(
    const State* state, const Demand* demand, const Plan* plan, int index, Family* family
) noexcept nogil:
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int64_t amounts[NARROW_MASKS]
    cdef const Shape* shape = state.shape
    cdef int first = state.layout.starts[demand.resource[index]]
    cdef int end = state.layout.starts[demand.resource[index] + 1]
    cdef int column, mask, size = 1 << shape.numa_nodes
    for column in range(first, end):
        amounts[column - first] = state.devices[column]
        if state.left != NULL:
            amounts[column - first] += state.left[column]
    start_keeping(keeps, size)
    keep_holding(keeps, shape.numa_nodes, end - first, shape.places + first, amounts, demand.count[index])
    if plan.universe[index] != <uint64_t>(size - 1):
        for mask in range(size):
            keeps[mask] &= not (<uint64_t>mask) & ~plan.universe[index]
    if state.left != NULL:
        for column in range(first, end):
            if shape.places[column] and state.left[column]:
                for mask in range(size):
                    keeps[mask] &= (<uint64_t>mask) & shape.places[column] != 0
    pack(family, keeps, size, plan.device_size[index])


cdef int families_of(const State* state, const Demand* demand, const Plan* plan, Family* families) noexcept nogil:
    """Build the lists that take part in a merge; those without any preference do not change it."""
    cdef int index, copies, count = 0
    if state.shape.has_cpu and demand.cpu:
        cpu_family(state, demand, plan, &families[count])
        if holds_nothing(&families[count]):
            make_impossible(&families[count])
        count += 1
    for index in range(demand.resources):
        if plan.universe[index]:
            device_family(state, demand, plan, index, &families[count])
            if holds_nothing(&families[count]):
                make_impossible(&families[count])
            count += 1
    if state.shape.has_memory and demand.kinds and memory_family(state, demand, plan, &families[count]):
        for copies in range(1, demand.kinds):
            families[count + copies] = families[count]
        count += demand.kinds
    return count


cdef bint has_memory_anywhere(const State* state, const Demand* demand) noexcept nogil:
    """Tell whether the memory provider has any hint: the largest masks that its rule allows are enough to look at."""
    cdef MemoryRule rule
    cdef int index
    if not knows_memory(state.shape, demand):
        return False
    rule = memory_rule(state)
    if rule.unbound and holds_memory(state, demand, rule.unbound):
        return True
    if memory_candidates(state, demand) & rule.alone:
        return True
    for index in range(rule.groups):
        if holds_memory(state, demand, rule.group[index]):
            return True
    for index in range(state.donors):
        if suffices_with_reuse(state, demand, state.donor[index].mask):
            return True
    return False


cdef bint asks_for_anything(const State* state, const Demand* demand, const Plan* plan) noexcept nogil:
    """Tell whether any provider has hints to give."""
    cdef int index
    if (state.shape.has_cpu and demand.cpu) or (state.shape.has_memory and demand.kinds):
        return True
    for index in range(demand.resources):
        if plan.universe[index]:
            return True
    return False
