"""Place containers of a pod that ask for the same, all at once: which NUMA nodes they come to is a division.

The best single node for a container is the best one for the next like it too, as long as it has as much left, since the
other nodes did not change; then the next best one follows. Only where the last container of the pod is not among these
is anything taken, from the copies of `alignup.core.amounts.allocate`.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.allocate cimport allocate, can_count_cpus, count_cpus
from alignup.core.amounts.cpus cimport CPUS_CHOSEN, check_whole_cores
from alignup.core.amounts.decide cimport all_prefer_singles
from alignup.core.amounts.devices cimport DEVICES_ASK_NEAR, finish_choice, give_devices, start_choice
from alignup.core.amounts.halves cimport sum_of_all
from alignup.core.amounts.memory_state cimport MemoryTaking
from alignup.core.amounts.merge_offers cimport best_single
from alignup.core.amounts.offers cimport Offers
from alignup.core.amounts.trial cimport (
    ADMITTED, POLICY_BEST_EFFORT, POLICY_SINGLE_NUMA_NODE, TOPOLOGY_AFFINITY_ERROR, UNEXPECTED_ADMISSION_ERROR,
    Answer, Hint, Outcome, Request, Trial, has_devices,
)
from alignup.core.bits cimport WIDEST, is_single, lowest


cdef struct Plan:
    # How many containers come to which node, in the order in which they come.
    int nodes
    int node[WIDEST]
    int count[WIDEST]
    uint64_t used
    int missing                 # containers that do not fit on a single node any more
    bint short_of_memory        # some node would do for more of them if it had more memory


cdef bint can_place_alike(const Trial* trial, const Request* request, const Hint* hint) noexcept nogil:
    """Return whether amounts tell what containers get that ask for what this one does, which got a single node."""
    cdef int index, resource
    if hint.anywhere or trial.pod.hands_on:
        return False
    if trial.cpu != NULL and request.cpus:
        if not can_count_cpus(trial, request, hint) or trial.cpu.layout.distributes:
            return False
        if check_whole_cores(trial.cpu, request.cpus) != CPUS_CHOSEN:
            return False
    for index in range(request.resources):
        resource = request.resource[index]
        if has_devices(trial, resource):
            if not trial.devices[resource].layout.single_places or not trial.devices[resource].layout.universe:
                return False
    return hint.holds_memory or trial.memory == NULL or not request.types


cdef int place_alike(
    Trial* trial, const Request* request, const Offers* offers, const Hint* hint, bint final, Answer* answer
) noexcept nogil:
    """Place a container and those of the next ones that are alike; return for how many that is decided.

    Args:
        trial: the pod on the node; `can_place_alike` is true of it.
        request: what each of the containers asks for.
        offers: what the node offers to the first.
        hint: the affinity of the first.
        final: no other container follows, so that nothing needs to be taken for the last ones.
        answer: gets the nodes of the containers, and the outcome if one is refused.
    """
    cdef Plan plan
    cdef int index
    cdef Hint own = hint[0]
    make_plan(trial, request, offers, hint, &plan)
    answer.affinity |= plan.used
    answer.asked |= plan.used
    if final and not plan.missing:
        return request.repeats + 1
    if plan.missing:
        answer.outcome = next_is_refused(trial, request, offers, &plan)
    for index in range(plan.nodes):
        if answer.outcome != ADMITTED:
            break
        own.mask = (<uint64_t>1) << plan.node[index]
        answer.outcome = allocate(trial, request, &own, False)
        if plan.count[index] > 1 and answer.outcome == ADMITTED:
            take_alike(trial, request, plan.node[index], plan.count[index] - 1)
    return request.repeats + 1 - plan.missing


cdef inline int64_t times(int64_t amount, int64_t request, int64_t most) noexcept nogil:
    """Return how many times a request is met by an amount, up to some number; mostly it takes no division."""
    if request <= 0:
        return most
    if amount < 2 * request:
        return min(most, <int64_t>(amount >= request))
    return min(most, amount // request)


cdef void make_plan(
    const Trial* trial, const Request* request, const Offers* offers, const Hint* hint, Plan* plan
) noexcept nogil:
    """Fill the single nodes, the best one first."""
    cdef const int64_t* distances = NULL if trial.policy == POLICY_SINGLE_NUMA_NODE else trial.row.distances
    cdef uint64_t rest = hint.singles, bit, others = ~<uint64_t>0
    cdef int index, node
    cdef int64_t count, with_memory
    plan.nodes = 0
    plan.used = 0
    plan.missing = request.repeats + 1
    for index in range(offers.count):
        others &= offers.offer[index].preferred_singles
    plan.short_of_memory = others & ~hint.singles != 0
    while rest and plan.missing:
        bit = best_single(rest, distances)
        rest ^= bit
        node = lowest(bit)
        count = plan.missing
        for index in range(offers.count):
            count = times(offers.offer[index].amounts[node], offers.offer[index].request, count)
        with_memory = count
        if hint.holds_memory:
            for index in range(offers.memory.types):
                with_memory = times(
                    trial.memory.free[offers.memory.type[index] * trial.row.nodes + node], offers.memory.size[index],
                    with_memory,
                )
        plan.short_of_memory = plan.short_of_memory or with_memory < count
        plan.node[plan.nodes], plan.count[plan.nodes] = node, with_memory
        plan.nodes += 1
        plan.used |= bit
        plan.missing -= with_memory


cdef Outcome next_is_refused(
    const Trial* trial, const Request* request, const Offers* offers, const Plan* plan
) noexcept nogil:
    """Return why the next container is refused that no single node can take; ADMITTED where that is not certain yet.

    Where a policy insists and all lists prefer single nodes, CPUs or devices that none of them has any more settle it.
    Memory does not: a manager that has nothing left has no preference either. Under best-effort nobody is refused but
    for what the whole node has too little of.
    """
    if trial.policy != POLICY_BEST_EFFORT:
        if offers.count and not plan.short_of_memory and all_prefer_singles(offers):
            return TOPOLOGY_AFFINITY_ERROR
        return ADMITTED
    return UNEXPECTED_ADMISSION_ERROR if is_exhausted(trial, request, offers, plan) else ADMITTED


cdef bint is_exhausted(
    const Trial* trial, const Request* request, const Offers* offers, const Plan* plan
) noexcept nogil:
    """Return whether all of the node together has too little for one more container.

    Not with full-pcpus-only, where the reason can be another one.
    """
    cdef int64_t placed = request.repeats + 1 - plan.missing
    cdef int index, resource
    if trial.cpu != NULL and request.cpus:
        if trial.cpu.layout.full_pcpus_only:
            return False
        if trial.cpu.free_in_all - placed * request.cpus < request.cpus:
            return True
    for index in range(request.resources):
        resource = request.resource[index]
        if has_devices(trial, resource):
            if trial.devices[resource].free_in_all - placed * request.count[index] < request.count[index]:
                return True
    if offers.has_memory:
        for index in range(offers.memory.types):
            if sum_of_all(
                trial.memory.free + offers.memory.type[index] * trial.row.nodes, trial.row.nodes
            ) - placed * offers.memory.size[index] < offers.memory.size[index]:
                return True
    return False


cdef void take_alike(Trial* trial, const Request* request, int node, int count) noexcept nogil:
    """Take for some more containers like the one before, which had the same NUMA node; there is enough."""
    cdef int index, resource
    cdef uint64_t* chosen = trial.sets
    cdef uint64_t mask = (<uint64_t>1) << node
    if trial.cpu != NULL and request.cpus:
        count_cpus(trial, node, request.cpus, count)
    if trial.memory != NULL:
        for index in range(request.types):
            trial.memory_copy.free[trial.type[request.type[index]] * trial.row.nodes + node] -= (
                count * request.size[index]
            )
    for index in range(request.resources):
        resource = request.resource[index]
        if not has_devices(trial, resource):
            continue
        if not trial.devices[resource].layout.words:
            trial.device_copies[resource].free[node] -= count * request.count[index]
            trial.device_copies[resource].free_in_all -= count * request.count[index]
            continue
        # one choice of all is what several in turn come to: the first devices of the inventory
        start_choice(
            trial.devices[resource], count * request.count[index], NULL, False, mask, chosen,
            chosen + trial.devices[resource].layout.words,
        )
        finish_choice(
            trial.devices[resource], DEVICES_ASK_NEAR, count * request.count[index], False, chosen,
            chosen + trial.devices[resource].layout.words,
        )
        give_devices(&trial.device_copies[resource], chosen)


# Without a policy

cdef int repeat_sums(Trial* trial, const Request* request) noexcept nogil:
    """Take for the next containers that ask for the same, where no policy asks where anything is; return how many.

    Memory comes from the lowest NUMA node that holds it, as it did for the one before.
    """
    cdef const MemoryTaking* before = &trial.holder[trial.holders]
    cdef int64_t* free = NULL
    cdef int index, resource, node = 0, count = request.repeats
    if trial.memory != NULL and request.types:
        if request.types > 1 or trial.type[request.type[0]] < 0 or not is_single(before.mask):
            return 0
        node = lowest(before.mask)
        free = trial.memory_copy.free + trial.type[request.type[0]] * trial.row.nodes
        count = times(free[node], request.size[0], count)
    if trial.cpu != NULL:
        count = times(trial.cpus_left, request.cpus, count)
    for index in range(request.resources):
        resource = request.resource[index]
        if has_devices(trial, resource):
            count = times(trial.devices_left[resource], request.count[index], count)
    if count <= 0:
        return 0
    if free != NULL:
        free[node] -= count * request.size[0]
    trial.cpus_left -= count * request.cpus
    for index in range(request.resources):
        trial.devices_left[request.resource[index]] -= count * request.count[index]
    return count
