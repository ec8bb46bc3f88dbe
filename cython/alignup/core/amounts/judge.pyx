"""Judge a pod on a node: decide and allocate container by container, and change nothing.

For each container (for the pod as a whole in pod scope): what the CPU, device and memory managers
offer, described by amounts; the decision of the Topology Manager's policy; and what the container
takes, from copies, by the kernels that the node's own providers use. Where these cannot tell, the
outcome is UNDECIDED, and the node itself has to be asked.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.amounts.cpu_allocation cimport (
    CPUS_CHOSEN,
    NEVER_IRREGULAR,
    CpuLayout,
    CpuOutcome,
    CpuState,
    add_reusable,
    check_whole_cores,
    choice_sets,
    choose_cpus,
    copy_cpus,
    cpu_bytes,
    cpu_family,
    mark_cpus,
    sockets_for,
)
from alignup.core.amounts.device_allocation cimport (
    DEVICES_ASK_ANY,
    DEVICES_ASK_NEAR,
    DEVICES_CHOSEN,
    DeviceLayout,
    DeviceOutcome,
    DeviceState,
    copy_devices,
    device_bytes,
    device_family,
    finish_choice,
    mark_devices,
    start_choice,
)
from alignup.core.amounts.halves cimport nodes_with, sum_of_all
from alignup.core.amounts.memory_allocation cimport (
    MEMORY_CHOSEN,
    MemoryHints,
    MemoryOutcome,
    best_memory_hint,
    bind_alone,
    choose_memory,
    copy_memory,
    has_memory_hint,
    holds_memory,
    lone_nodes_with,
    memory_bytes,
    memory_family,
    suffices_with_reuse,
    take_memory,
)
from alignup.core.amounts.memory_state cimport MemoryRequest, MemoryState, MemoryTaking
from alignup.core.amounts.merge_offers cimport (
    can_merge_amounts,
    common_mask,
    common_size,
    reach_best,
)
from alignup.core.amounts.score cimport score_of
from alignup.core.amounts.fewest_numa_nodes cimport (
    smallest_cpu_size,
    smallest_device_size,
    smallest_memory_size,
)
from alignup.core.amounts.trial cimport (
    ADMITTED,
    MISMATCHED,
    MOST_HOLDERS,
    MOST_OFFERS,
    POLICY_BEST_EFFORT,
    POLICY_NONE,
    POLICY_SINGLE_NUMA_NODE,
    SMT_ALIGNMENT_ERROR,
    TOPOLOGY_AFFINITY_ERROR,
    UNDECIDED,
    UNEXPECTED_ADMISSION_ERROR,
    Answer,
    Counted,
    Hint,
    NodeRow,
    Offer,
    Offers,
    Outcome,
    PodRequest,
    Request,
    Trial,
    has_devices,
    read_memory_request,
)
from alignup.core.bits cimport (
    NARROW_MASKS,
    NARROW_NODES,
    WIDEST,
    all_nodes,
    is_single,
    lowest,
    popcount,
)
from alignup.core.narrow.family cimport Family
from alignup.core.narrow.merge cimport Best, best_preferred, merge_families


# Scratch: one block for a whole run over nodes, large enough for each of them

cdef void widen(Room* room, const NodeRow* row, int resources) noexcept nogil:
    """Make room for a node too; `resources` is how many the cluster knows."""
    cdef int resource

    if row.cpu != NULL:
        room.words = max(room.words, row.cpu.layout.groups.words)
        room.cpus = max(room.cpus, cpu_bytes(row.cpu.layout))
    if row.memory != NULL:
        room.taking_amounts = max(room.taking_amounts, row.memory.layout.types * row.nodes)
        room.memory = max(room.memory, (memory_bytes(row.memory.layout) + 7) & ~<size_t>7)
    for resource in range(resources):
        if row.devices[resource] != NULL:
            room.devices = max(room.devices, device_bytes(row.devices[resource].layout))
            room.words = max(room.words, row.devices[resource].layout.words)


cdef size_t scratch_bytes(const Room* room, const PodRequest* pod) noexcept nogil:
    """Return how many bytes `place_scratch` needs."""
    cdef size_t words = (1 + pod.resources + choice_sets() + 2) * room.words
    cdef size_t entries = (1 + pod.resources) * pod.containers

    return (
        room.cpus
        + room.memory
        + pod.resources * room.devices
        + entries * sizeof(Counted)
        + (words + (2 + room.taking_amounts) * pod.containers) * sizeof(uint64_t)
    )


cdef void place_scratch(
    Trial* trial, const Room* room, const PodRequest* pod, char* scratch
) noexcept nogil:
    """Let the working memory of a trial lie in a block of `scratch_bytes`."""
    cdef int resource

    memset(trial, 0, sizeof(Trial))
    trial.pod = pod
    trial.cpu_block = scratch
    trial.memory_block = scratch + room.cpus
    trial.reusable_cpus = <uint64_t*>(trial.memory_block + room.memory)
    trial.counted = <Counted*>(trial.reusable_cpus + room.words)
    trial.singles = <uint64_t*>(trial.counted + (1 + pod.resources) * pod.containers)
    trial.lone = trial.singles + pod.containers
    trial.taking_amounts = <int64_t*>trial.lone + pod.containers
    trial.sets = <uint64_t*>(trial.taking_amounts + room.taking_amounts * pod.containers)
    scratch = <char*>(trial.sets + (choice_sets() + 2) * room.words)

    for resource in range(pod.resources):
        trial.device_blocks[resource] = scratch
        trial.reusable_devices[resource] = <uint64_t*>(scratch + room.devices)
        scratch += room.devices + room.words * sizeof(uint64_t)


# The trial

cdef bint is_irregular(const CpuLayout* layout, const PodRequest* pod) noexcept nogil:
    """Return whether some container may be given CPUs that were not counted as free."""
    cdef int number

    if layout.irregular_size == NEVER_IRREGULAR:
        return False
    for number in range(1, pod.containers + 1):
        if pod.requests[number].cpus >= layout.irregular_size:
            return True

    return False


cdef void start_trial(Trial* trial, const NodeRow* row, int policy) noexcept nogil:
    """Let a trial look at a node.

    A policy other than -1 is the pod's own, which judges it as a whole.
    """
    cdef const PodRequest* pod = trial.pod
    cdef int index

    trial.row = row
    trial.policy = row.policy
    trial.pod_scope = row.pod_scope
    if policy > POLICY_NONE and policy != row.policy:
        trial.policy = policy
        trial.pod_scope = True

    trial.cpu = row.cpu
    trial.memory = row.memory

    trial.copied_cpu = trial.copied_memory = trial.reuses_cpus = False
    trial.copied_devices = trial.reuses_devices = 0
    trial.holders = trial.counts = 0

    trial.irregular = row.cpu != NULL and is_irregular(row.cpu.layout, pod)
    trial.sums_only = (
        trial.policy == POLICY_NONE
        and not pod.is_reusable
        and (
            row.cpu == NULL
            or not (
                trial.irregular
                or row.cpu.layout.distributes
                or row.cpu.layout.full_pcpus_only
            )
        )
    )

    trial.counts_cpus = (
        row.cpu != NULL
        and not pod.is_reusable
        and not (
            row.cpu.layout.sockets
            or trial.irregular
            or (row.cpu.layout.full_pcpus_only and row.cpu.layout.split_cores)
        )
    )

    trial.repeats = (
        not pod.is_reusable
        and (
            row.cpu == NULL
            or (
                trial.counts_cpus
                and not row.cpu.layout.full_pcpus_only
                and not row.cpu.layout.distributes
            )
        )
    )

    trial.cpus_left = 0 if row.cpu == NULL else row.cpu.free_in_all
    memset(trial.singles, 0, 2 * pod.containers * sizeof(uint64_t))     # and `lone`
    for index in range(pod.types):
        trial.type[index] = -1
        if pod.type[index] >= 0 and row.memory != NULL:
            trial.type[index] = row.type_of[pod.type[index]]

    for index in range(pod.resources):
        trial.devices[index] = row.devices[pod.resource[index]]
        trial.devices_left[index] = 0
        if trial.devices[index] != NULL:
            trial.devices_left[index] = trial.devices[index].free_in_all


cdef void judge(Trial* trial, const NodeRow* row, int policy, Answer* answer) noexcept nogil:
    """Judge the pod of a trial on a node.

    Args:
        policy: the policy that the pod brings; -1: none. It goes with a node without a policy,
            or with the same.
    """
    answer.affinity = answer.requesting_affinity = 0
    answer.aligned = answer.preferred = False
    answer.outcome = UNDECIDED

    if row.needs_node:
        return

    if policy > POLICY_NONE and policy != row.policy:
        if row.policy != POLICY_NONE or (row.upper_bound and row.nodes > NARROW_NODES):
            answer.outcome = MISMATCHED
            return

        if row.nodes > NARROW_NODES:
            return  # the node says whether its options allow so many NUMA nodes

    start_trial(trial, row, policy)
    judge_containers(trial, answer)


cdef bint total_too_small(const Trial* trial) noexcept nogil:
    """Return whether some container will get nothing for sure.

    The node then has too little for all of them together. Only where no policy can refuse one
    before that, and no other reason can come first.
    """
    cdef const Request* total = &trial.pod.total
    cdef int index, type

    if trial.pod.containers < 2 or trial.pod.is_reusable or trial.policy > POLICY_BEST_EFFORT:
        return False

    if trial.cpu != NULL and total.cpus:
        if trial.cpu.layout.full_pcpus_only:
            return False

        # where groups differ in size, one that is taken as a whole can have more CPUs than were
        # counted as free
        if trial.cpu.free_in_all < total.cpus and not trial.irregular:
            return True

    for index in range(total.resources):
        if has_devices(trial, total.resource[index]):
            if trial.devices[total.resource[index]].free_in_all < total.count[index]:
                return True

    if trial.memory != NULL:
        for index in range(total.types):
            type = trial.type[total.type[index]]
            if (
                type >= 0
                and total.size[index] > sum_of_all(
                    trial.memory.free + type * trial.row.nodes, trial.row.nodes
                )
            ):
                return True

    return False


cdef void judge_containers(Trial* trial, Answer* answer) noexcept nogil:
    """Decide and allocate container by container, as the scope has it."""
    cdef const PodRequest* pod = trial.pod
    cdef const Request* request
    cdef bint by_pod = trial.pod_scope and trial.policy != POLICY_NONE
    cdef Offers offers
    cdef Hint hint
    cdef bint last
    cdef int index = 1

    answer.aligned = answer.preferred = trial.policy != POLICY_NONE
    answer.outcome = UNEXPECTED_ADMISSION_ERROR if total_too_small(trial) else ADMITTED
    if by_pod and answer.outcome == ADMITTED:
        answer.outcome = decide(trial, &pod.requests[0], &offers, &hint)
        note_hint(trial, &pod.requests[0], &hint, answer)
        hint.holds_memory = False  # of the pod's containers together, not of each in its turn

    while index <= pod.containers and answer.outcome == ADMITTED:
        request = &pod.requests[index]
        last = index == pod.containers
        index += 1
        if not by_pod:
            if place_like_earlier(trial, request, last, answer):
                continue

            answer.outcome = decide(trial, request, &offers, &hint)
            if answer.outcome != ADMITTED:
                return

            note_hint(trial, request, &hint, answer)
            note_singles(trial, request, &hint)

        answer.outcome = allocate(trial, request, &hint, last)


cdef inline void note_singles(
    Trial* trial, const Request* request, const Hint* hint
) noexcept nogil:
    """Keep the single NUMA nodes that all providers prefer, for containers that ask the same."""
    if trial.repeats and (hint.holds_memory or trial.memory == NULL or not request.types):
        trial.singles[request.same_as - 1] = hint.singles


cdef inline int64_t* memory_at(const Trial* trial, int type) noexcept nogil:
    """Return the free bytes of one of the pod's types on each NUMA node."""
    return trial.memory.free + trial.type[type] * trial.row.nodes


cdef inline bint has_left(const Trial* trial, const Request* request, int node) noexcept nogil:
    """Return whether a NUMA node has by itself what a container asks for."""
    cdef int index
    cdef const DeviceState* devices

    if trial.cpu != NULL and trial.cpu.free[node] < request.cpus:
        return False

    for index in range(request.resources):
        devices = trial.devices[request.resource[index]]
        if (
            devices != NULL
            and not (devices.layout.in_order and devices.free[node] >= request.count[index])
        ):
            return False

    return trial.memory == NULL or not request.types or has_memory_left(trial, request, node)


cdef inline bint has_memory_left(
    const Trial* trial, const Request* request, int node
) noexcept nogil:
    """Return whether a NUMA node has by itself the memory that a container asks for."""
    cdef int index
    if not (trial.memory.alone >> node) & 1:
        return False
    for index in range(request.types):
        if memory_at(trial, request.type[index])[node] < request.size[index]:
            return False
    return True


cdef bint place_like_earlier(
    Trial* trial, const Request* request, bint last, Answer* answer
) noexcept nogil:
    """Place a container like an earlier one with the same request, by counts alone.

    It goes to a single NUMA node. Allocations only reduce the set of nodes that all providers
    prefer, and never add a better one. Return False if no such node is left, and a full decision is
    needed.
    """
    cdef uint64_t* singles = &trial.singles[request.same_as - 1]
    cdef uint64_t mask
    cdef int index, node

    while singles[0]:
        mask = best_of_singles(trial, singles[0])
        node = lowest(mask)
        if has_left(trial, request, node):
            break

        singles[0] ^= mask
    else:
        return False

    answer.affinity |= mask
    answer.requesting_affinity |= mask
    if last:
        return True

    for index in range(request.resources):
        if has_devices(trial, request.resource[index]):
            take_count(trial, request.resource[index], node, request.count[index])

    if trial.cpu != NULL and request.cpus:
        take_count(trial, -1, node, request.cpus)

    if trial.memory != NULL and request.types:
        take_memory_alone(trial, request, node)

    return True


cdef bint asks_for_anything(const Trial* trial, const Request* request) noexcept nogil:
    """Return whether some provider has hints to give."""
    cdef int index

    if (trial.cpu != NULL and request.cpus) or (trial.memory != NULL and request.types):
        return True
    for index in range(request.resources):
        if (
            has_devices(trial, request.resource[index])
            and trial.devices[request.resource[index]].layout.universe
        ):
            return True
    return False


cdef inline void note_hint(
    const Trial* trial, const Request* request, const Hint* hint, Answer* answer
) noexcept nogil:
    """Add a hint to the answer."""
    if answer.outcome != ADMITTED:
        return
    answer.preferred = answer.preferred and hint.preferred
    if not hint.anywhere:
        answer.affinity |= hint.mask
    if asks_for_anything(trial, request):
        answer.requesting_affinity |= all_nodes(trial.row.nodes) if hint.anywhere else hint.mask
        answer.aligned = answer.aligned and not (hint.anywhere and trial.row.nodes > 1)


cdef void judge_row(
    Trial* trial,
    const NodeRow* row,
    int policy,
    int strategy,
    uint8_t* admitted,
    uint8_t* reason,
    uint64_t* affinity,
    uint8_t* preferred,
    double* score,
    uint8_t* exact,
) noexcept nogil:
    """Judge one node, score it, and write the answer."""
    cdef Answer answer

    judge(trial, row, policy, &answer)
    exact[0] = answer.outcome != UNDECIDED
    admitted[0] = answer.outcome == ADMITTED or answer.outcome == UNDECIDED
    if row.upper_bound and admitted[0]:
        exact[0] = 0

    reason[0] = 0 if admitted[0] else answer.outcome
    affinity[0] = answer.affinity if admitted[0] else 0
    preferred[0] = answer.preferred and answer.outcome == ADMITTED

    score[0] = -INFINITY
    if admitted[0]:
        score[0] = score_of(row, trial.pod, answer.requesting_affinity, answer.aligned, strategy)


# Offers: for each list of hints, which single NUMA nodes suffice, and from what the larger masks
# follow

cdef void collect_offers(const Trial* trial, const Request* request, Offers* offers) noexcept nogil:
    """Describe every list of hints that takes part in the merge.

    Providers without a preference do not change it.
    """
    cdef int index

    offers.count = 0
    offers.has_impossible = offers.has_memory = False
    if trial.cpu != NULL and request.cpus:
        offer_cpus(trial, request, offers)
    for index in range(request.resources):
        if has_devices(trial, request.resource[index]):
            offer_devices(trial, request, index, offers)
    if trial.memory != NULL and request.types:
        offer_memory(trial, request, offers)


# CPUs

cdef void offer_cpus(const Trial* trial, const Request* request, Offers* offers) noexcept nogil:
    cdef const CpuState* state = trial.cpu
    cdef Offer* offer = &offers.offer[offers.count]
    cdef int64_t total = state.free_in_all
    cdef uint64_t must = 0
    cdef int nodes = trial.row.nodes

    offer.amounts = state.free
    offer.by_node = True
    if trial.reuses_cpus:
        memcpy(offer.counted, state.free, nodes * sizeof(int64_t))
        offer.amounts = offer.counted
        must = add_reusable(state, trial.reusable_cpus, offer.counted, &total)
        offer.by_node = must == 0

    if total < request.cpus:
        offers.has_impossible = True
        return

    offer.request = request.cpus
    offer.universe = state.layout.universe
    offer.size = smallest_cpu_size(state.layout, request.cpus)
    offer.sockets = sockets_for(state.layout, offer.size) if state.layout.sockets else -1
    offer.resource = -1

    offer.singles = nodes_with(offer.amounts, nodes, request.cpus) & offer.universe
    if must:
        offer.singles = offer.singles & must if is_single(must) else 0

    offer.preferred_singles = offer.singles if offer.size == 1 else 0
    if offer.sockets >= 0 and offer.size != 1:
        offer.preferred_singles = touching(state, offer.singles, offer.sockets)

    offers.count += 1


cdef uint64_t touching(const CpuState* state, uint64_t singles, int sockets) noexcept nogil:
    """Return those of the nodes that have CPUs of exactly so many sockets."""
    cdef uint64_t nodes = 0, bit
    cdef int socket, touched

    while singles:
        bit = singles & (~singles + 1)
        singles ^= bit
        touched = 0
        for socket in range(state.layout.sockets):
            touched += state.layout.socket_nodes[socket] & bit != 0
        if touched == sockets:
            nodes |= bit
    return nodes


# Devices

cdef int64_t reusable_in(const Trial* trial, int resource) noexcept nogil:
    """Return how many devices earlier init containers leave that the plugin still reports."""
    cdef const DeviceLayout* layout = trial.devices[resource].layout
    cdef int64_t count = 0
    cdef int word
    for word in range(layout.words):
        count += popcount(trial.reusable_devices[resource][word] & layout.present[word])
    return count


cdef int64_t count_at(const Trial* trial, int resource, int place) noexcept nogil:
    """Return how many devices count at a place.

    They are the free ones, and those that are left by init containers.
    """
    cdef const DeviceState* state = trial.devices[resource]
    cdef const DeviceLayout* layout = state.layout
    cdef int64_t amount = state.free[place]
    cdef int word

    if (trial.reuses_devices >> resource) & 1:
        for word in range(layout.words):
            amount += popcount(
                trial.reusable_devices[resource][word]
                & layout.present[word]
                & layout.members[place * layout.words + word]
            )

    return amount


cdef void offer_devices(
    const Trial* trial, const Request* request, int index, Offers* offers
) noexcept nogil:
    cdef int resource = request.resource[index]
    cdef const DeviceState* state = trial.devices[resource]
    cdef const DeviceLayout* layout = state.layout
    cdef Offer* offer = &offers.offer[offers.count]
    cdef bint reuses = (trial.reuses_devices >> resource) & 1

    if not layout.universe:
        return

    if state.free_in_all + (reusable_in(trial, resource) if reuses else 0) < request.count[index]:
        offers.has_impossible = True
        return

    offer.by_node = layout.single_places and not reuses
    offer.request = request.count[index]
    offer.universe = layout.universe
    offer.size = smallest_device_size(layout, request.count[index])
    offer.sockets = -1
    offer.resource = resource
    if not offer.by_node:
        offer.singles = near_singles(trial, resource, request.count[index])
    else:
        offer.amounts = state.free if layout.in_order else counted_by_node(state, offer.counted)
        offer.singles = nodes_with(offer.amounts, layout.nodes, offer.request) & layout.universe
        if not offer.singles and sum_of_all(offer.amounts, layout.nodes) < offer.request:
            # the others are near to no node, so that no mask has enough
            offers.has_impossible = True
            return

    offer.preferred_singles = offer.singles if offer.size == 1 else 0
    offers.count += 1


cdef const int64_t* counted_by_node(const DeviceState* state, int64_t* counted) noexcept nogil:
    """Count what is free by node, where every place is one node."""
    cdef int place
    memset(counted, 0, state.layout.nodes * sizeof(int64_t))
    for place in range(state.layout.places):
        counted[lowest(state.layout.place[place])] = state.free[place]
    return counted


cdef uint64_t near_singles(const Trial* trial, int resource, int64_t request) noexcept nogil:
    """Return the nodes near to each of which enough devices are.

    Every device that must be taken over is near to them, too.
    """
    cdef const DeviceLayout* layout = trial.devices[resource].layout
    cdef uint64_t candidates, rest
    cdef int64_t near[WIDEST]
    cdef int64_t amount
    cdef int place, word

    candidates = layout.universe
    memset(near, 0, layout.nodes * sizeof(int64_t))
    for place in range(layout.places):
        rest = layout.place[place]
        amount = count_at(trial, resource, place)
        while rest:
            near[lowest(rest)] += amount
            rest &= rest - 1

    if (trial.reuses_devices >> resource) & 1:
        for word in range(layout.words):
            rest = trial.reusable_devices[resource][word] & layout.present[word]
            if rest & layout.nowhere[word]:
                return 0

            for place in range(layout.places):
                if rest & layout.members[place * layout.words + word]:
                    candidates &= layout.place[place]

    return candidates & nodes_with(near, layout.nodes, request)


# Memory

cdef void offer_memory(const Trial* trial, const Request* request, Offers* offers) noexcept nogil:
    cdef const MemoryState* state = trial.memory
    cdef uint64_t fitting
    cdef int donor

    read_memory_request(trial, request, &offers.memory)
    if offers.memory.unknown_type:
        return

    fitting = lone_nodes_with(state, &offers.memory)
    for donor in range(trial.holders):
        if is_single(trial.donors[donor].mask) and not fitting & trial.donors[donor].mask:
            if suffices_with_reuse(
                state, &offers.memory, trial.donors, trial.holders, trial.donors[donor].mask
            ):
                fitting |= trial.donors[donor].mask

    offers.memory_singles = fitting
    offers.has_memory = fitting != 0 or has_wide_memory_hint(trial, &offers.memory)
    if offers.has_memory:
        offers.memory_size = smallest_memory_size(state.layout, &offers.memory)


cdef bint has_wide_memory_hint(const Trial* trial, const MemoryRequest* request) noexcept nogil:
    """Return whether the memory manager has any hint of several nodes.

    The largest masks are enough to look at.
    """
    cdef const MemoryState* state = trial.memory
    cdef int index

    if has_memory_hint(state, request, 0):
        return True
    for index in range(trial.holders):
        if suffices_with_reuse(
            state, request, trial.donors, trial.holders, trial.donors[index].mask
        ):
            return True
    return False


# Families

cdef inline void make_impossible(Family* family) noexcept nogil:
    """Make the family of a list without hints.

    It joins any other hint and spoils its preference.
    """
    memset(family, 0, sizeof(Family))
    family.any_unpreferred = True


cdef int families_of(
    const Trial* trial, const Request* request, const Offers* offers, Family* families
) noexcept nogil:
    """List all masks of every offer; return how many lists there are."""
    cdef MemoryHints hints
    cdef int index, count = 0

    for index in range(offers.count):
        if not family_of(trial, &offers.offer[index], &families[count]):
            make_impossible(&families[count])

        count += 1

    if offers.has_impossible:
        make_impossible(&families[count])
        count += 1

    if offers.has_memory:
        hints.state = trial.memory
        hints.request = &offers.memory
        hints.preferred_size = offers.memory_size
        hints.donors = <MemoryTaking**>trial.donors
        hints.donor_count = trial.holders
        memory_family(&hints, &families[count])
        for index in range(1, offers.memory.types):
            families[count + index] = families[count]

        count += offers.memory.types

    return count


cdef bint family_of(const Trial* trial, const Offer* offer, Family* family) noexcept nogil:
    cdef int64_t amounts[NARROW_MASKS]
    cdef int64_t total = 0
    cdef const DeviceLayout* layout
    cdef const uint64_t* reusable = NULL
    cdef uint64_t must = 0
    cdef int node, place

    if offer.resource < 0:
        if trial.reuses_cpus:
            for node in range(trial.row.nodes):
                amounts[node] = 0

            must = add_reusable(trial.cpu, trial.reusable_cpus, amounts, &total)

        return cpu_family(trial.cpu.layout, offer.amounts, must, offer.request, offer.size, family)

    layout = trial.devices[offer.resource].layout
    for place in range(layout.places):
        amounts[place] = count_at(trial, offer.resource, place)

    if (trial.reuses_devices >> offer.resource) & 1:
        reusable = trial.reusable_devices[offer.resource]

    return device_family(layout, amounts, reusable, offer.request, offer.size, family)


# Decisions, as a Topology Manager policy makes them on one request. The exits, in their order:
#
# 1. none: admitted without alignment.
# 2. A list is empty: nothing can be preferred; restricted and single-numa-node refuse.
# 3. Nobody has a preference: all nodes, preferred.
# 4. Some single node is preferred by all: the best such node. Nothing is narrower, so nothing
#    can beat it.
# 5. single-numa-node: refused.
# 6. Some larger mask is preferred by all: the best such mask.
# 7. restricted: refused. best-effort: the best mask that is reached.
#
# Beyond 8 NUMA nodes steps 6 and 7 need a search, and the outcome is UNDECIDED where it takes them.

cdef inline Outcome keep_hint(
    const Trial* trial, Hint* hint, uint64_t mask, bint preferred
) noexcept nogil:
    """Keep a merged hint; under single-numa-node one that names all nodes constrains nothing."""
    hint.mask = mask
    hint.preferred = preferred
    hint.anywhere = trial.policy == POLICY_SINGLE_NUMA_NODE and mask == all_nodes(trial.row.nodes)
    return ADMITTED


cdef inline uint64_t best_of_singles(const Trial* trial, uint64_t singles) noexcept nogil:
    """Return the mask of the best of some single nodes.

    It is the nearest to itself if distances count, then the lowest.
    """
    cdef const int64_t* distances = trial.row.distances
    cdef uint64_t bit, best = singles & (~singles + 1)

    if distances == NULL or trial.policy == POLICY_SINGLE_NUMA_NODE:
        return best
    while singles:
        bit = singles & (~singles + 1)
        if distances[bit] < distances[best]:
            best = bit
        singles ^= bit
    return best


cdef Outcome decide(
    const Trial* trial, const Request* request, Offers* offers, Hint* hint
) noexcept nogil:
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
    if offers.has_impossible:
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
        hint.holds_memory = offers.has_memory
        keep_hint(trial, hint, best_of_singles(trial, singles), True)
        hint.singles = 0 if hint.anywhere else singles
        return ADMITTED

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


cdef Outcome decide_merged(
    const Trial* trial, const Request* request, const Offers* offers, Hint* hint
) noexcept nogil:
    """Decide under best-effort or restricted, where no single node is preferred by all."""
    cdef Best best
    cdef int size

    if trial.row.nodes > NARROW_NODES:
        if trial.policy != POLICY_BEST_EFFORT and all_prefer_singles(offers):
            return TOPOLOGY_AFFINITY_ERROR

        return UNDECIDED

    if not can_merge_amounts(trial, offers):
        return decide_listed(trial, request, offers, hint)

    size = 0 if offers.has_impossible else common_size(offers)
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


cdef Outcome decide_listed(
    const Trial* trial, const Request* request, const Offers* offers, Hint* hint
) noexcept nogil:
    """Decide the same by listing the masks of every offer."""
    cdef Family families[MOST_OFFERS + 1]
    cdef int count = families_of(trial, request, offers, families)
    cdef Best best

    if trial.policy == POLICY_BEST_EFFORT:
        best = merge_families(families, count, trial.row.nodes, trial.row.distances)
        return keep_hint(trial, hint, best.mask, best.preferred)
    best = best_preferred(families, count, all_nodes(trial.row.nodes), trial.row.distances)
    return keep_hint(trial, hint, best.mask, True) if best.is_found else TOPOLOGY_AFFINITY_ERROR


# Allocation, in the kubelet's order: devices, CPUs, memory. Where it is enough to count, nothing
# more is done: under policy none nobody asks where anything is, and a container that is content
# with one NUMA node takes its CPUs there, whichever they are.

cdef Outcome allocate(
    Trial* trial, const Request* request, const Hint* hint, bint last
) noexcept nogil:
    """Return whether every provider can give the container its share.

    Take it unless the container is the last one.
    """
    cdef Outcome outcome = ADMITTED
    cdef int index

    if trial.sums_only:
        outcome = allocate_sums(trial, request)
        if outcome != ADMITTED or trial.memory == NULL or not request.types:
            return outcome

        return allocate_memory(trial, request, hint, last)

    for index in range(request.resources):
        if has_devices(trial, request.resource[index]):
            outcome = allocate_devices(trial, request, index, hint, last)
            if outcome != ADMITTED:
                return outcome

    if trial.cpu != NULL and request.cpus:
        outcome = allocate_cpus(trial, request, hint, last)
        if outcome != ADMITTED:
            return outcome

    if trial.memory != NULL and request.types and not (last and hint.holds_memory):
        outcome = allocate_memory(trial, request, hint, last)

    return outcome


cdef inline void take_count(Trial* trial, int resource, int node, int64_t count) noexcept nogil:
    """Take CPUs (-1) or devices of a NUMA node as a count.

    Which ones is settled when it matters.
    """
    cdef Counted* entry = &trial.counted[trial.counts]
    entry.resource = resource
    entry.node = node
    entry.count = count
    trial.counts += 1
    correct_counts(trial, entry, -count)


cdef inline void correct_counts(Trial* trial, const Counted* entry, int64_t change) noexcept nogil:
    cdef DeviceState* devices

    if entry.resource < 0:
        trial.cpu_copy.free[entry.node] += change
        trial.cpu_copy.free_in_all += change
        trial.cpu_copy.free_whole += change
    else:
        devices = &trial.device_copies[entry.resource]
        devices.free[entry.node] += change
        devices.free_in_all += change


cdef void settle(Trial* trial, int resource) noexcept nogil:
    """Choose the CPUs (-1) or devices that were only counted so far.

    They are chosen in the order in which they were taken.
    """
    cdef int index
    cdef Counted* entry

    for index in range(trial.counts):
        if trial.counted[index].resource == resource:
            correct_counts(trial, &trial.counted[index], trial.counted[index].count)

    for index in range(trial.counts):
        entry = &trial.counted[index]
        if entry.resource == resource:
            if resource < 0:
                settle_cpus(trial, entry)
            else:
                settle_devices(trial, entry)

            entry.resource = -2


cdef void settle_cpus(Trial* trial, const Counted* entry) noexcept nogil:
    choose_cpus(
        &trial.cpu_copy,
        entry.count,
        NULL,
        False,
        (<uint64_t>1) << entry.node,
        trial.sets,
        trial.sets + trial.cpu.layout.groups.words,
    )
    mark_cpus(&trial.cpu_copy, trial.sets, True)


cdef void settle_devices(Trial* trial, const Counted* entry) noexcept nogil:
    cdef DeviceState* devices = &trial.device_copies[entry.resource]
    cdef uint64_t* choice = trial.sets + devices.layout.words
    cdef DeviceOutcome outcome

    outcome = start_choice(
        devices, entry.count, NULL, False, (<uint64_t>1) << entry.node, trial.sets, choice
    )
    if outcome != DEVICES_CHOSEN:
        finish_choice(devices, outcome, entry.count, False, trial.sets, choice)
    mark_devices(devices, trial.sets, True)


cdef Outcome allocate_devices(
    Trial* trial, const Request* request, int index, const Hint* hint, bint last
) noexcept nogil:
    cdef int resource = request.resource[index], word
    cdef const DeviceLayout* layout = trial.devices[resource].layout
    cdef bint reuses = (trial.reuses_devices >> resource) & 1
    cdef uint64_t* reusable = trial.reusable_devices[resource]
    cdef uint64_t* chosen = trial.sets
    cdef uint64_t* choice = trial.sets + layout.words
    cdef DeviceOutcome outcome

    if last and not reuses:
        if not layout.any_healthy or trial.devices[resource].free_in_all < request.count[index]:
            return UNEXPECTED_ADMISSION_ERROR

        return ADMITTED

    if not layout.words:
        return take_counted_devices(
            trial, resource, request.count[index], hint, request.is_reusable
        )

    if (
        layout.in_order
        and layout.any_healthy
        and not trial.pod.is_reusable
        and not hint.anywhere
        and is_single(hint.mask)
        and trial.devices[resource].free[lowest(hint.mask)] >= request.count[index]
    ):
        own_devices(trial, resource)
        take_count(trial, resource, lowest(hint.mask), request.count[index])
        return ADMITTED

    settle(trial, resource)
    outcome = start_choice(
        trial.devices[resource],
        request.count[index],
        reusable if reuses else NULL,
        hint.anywhere,
        hint.mask,
        chosen,
        choice,
    )
    if outcome == DEVICES_ASK_NEAR or outcome == DEVICES_ASK_ANY:
        finish_choice(
            trial.devices[resource], outcome, request.count[index], hint.anywhere, chosen, choice
        )
    elif outcome != DEVICES_CHOSEN:
        return UNEXPECTED_ADMISSION_ERROR

    if last:
        return ADMITTED

    own_devices(trial, resource)
    mark_devices(&trial.device_copies[resource], chosen, True)
    if request.is_reusable and not reuses:
        memset(reusable, 0, layout.words * sizeof(uint64_t))
        trial.reuses_devices |= (<uint64_t>1) << resource

    if request.is_reusable or reuses:
        for word in range(layout.words):
            if request.is_reusable:
                reusable[word] |= chosen[word]
            else:
                reusable[word] &= ~chosen[word]

    return ADMITTED


cdef inline void own_devices(Trial* trial, int resource) noexcept nogil:
    """Let the trial take from a copy."""
    if not (trial.copied_devices >> resource) & 1:
        copy_devices(
            &trial.device_copies[resource], trial.devices[resource], trial.device_blocks[resource]
        )
        trial.devices[resource] = &trial.device_copies[resource]
        trial.copied_devices |= (<uint64_t>1) << resource


cdef Outcome take_counted_devices(
    Trial* trial, int resource, int64_t count, const Hint* hint, bint is_reusable
) noexcept nogil:
    """Take devices of which only counts are known.

    Where these do not tell from where, nothing is certain any more.
    """
    cdef int node = 0 if hint.anywhere else lowest(hint.mask)

    if trial.devices[resource].free_in_all < count:
        return UNEXPECTED_ADMISSION_ERROR
    if (
        hint.anywhere
        or not is_single(hint.mask)
        or is_reusable
        or trial.devices[resource].free[node] < count
    ):
        return UNDECIDED

    own_devices(trial, resource)
    take_count(trial, resource, node, count)
    return ADMITTED


cdef inline void own_cpus(Trial* trial) noexcept nogil:
    """Let the trial take from a copy."""
    if not trial.copied_cpu:
        copy_cpus(&trial.cpu_copy, trial.cpu, trial.cpu_block)
        trial.cpu = &trial.cpu_copy
        trial.copied_cpu = True


cdef Outcome take_counted_cpus(
    Trial* trial, const Request* request, const Hint* hint
) noexcept nogil:
    """Take CPUs of which only counts are known, in the manner of `take_counted_devices`."""
    cdef int node = 0 if hint.anywhere else lowest(hint.mask)

    if (
        hint.anywhere
        or not is_single(hint.mask)
        or request.is_reusable
        or trial.cpu.free[node] < request.cpus
    ):
        return UNDECIDED
    own_cpus(trial)
    take_count(trial, -1, node, request.cpus)
    return ADMITTED


cdef Outcome allocate_sums(Trial* trial, const Request* request) noexcept nogil:
    """Take devices and CPUs from their sums: nobody will ask where they are."""
    cdef int index, resource

    for index in range(request.resources):
        resource = request.resource[index]
        if not has_devices(trial, resource):
            continue
        if (
            not trial.devices[resource].layout.any_healthy
            or trial.devices_left[resource] < request.count[index]
        ):
            return UNEXPECTED_ADMISSION_ERROR

        trial.devices_left[resource] -= request.count[index]

    if trial.cpu != NULL and request.cpus:
        if trial.cpus_left < request.cpus:
            return UNEXPECTED_ADMISSION_ERROR

        trial.cpus_left -= request.cpus

    return ADMITTED


cdef Outcome allocate_cpus(
    Trial* trial, const Request* request, const Hint* hint, bint last
) noexcept nogil:
    cdef const CpuLayout* layout = trial.cpu.layout
    cdef int words = layout.groups.words
    cdef uint64_t* chosen = trial.sets
    cdef CpuOutcome outcome

    if check_whole_cores(trial.cpu, request.cpus) != CPUS_CHOSEN:
        return SMT_ALIGNMENT_ERROR
    if not trial.reuses_cpus and trial.cpu.free_in_all < request.cpus and not trial.irregular:
        return UNEXPECTED_ADMISSION_ERROR

    if layout.distributes:
        if (
            not last
            or trial.reuses_cpus
            or trial.irregular
            or may_be_misplaced(trial, request, hint)
        ):
            return UNDECIDED

        return ADMITTED

    if last and not trial.reuses_cpus and not trial.irregular:
        return ADMITTED
    if not words:
        return take_counted_cpus(trial, request, hint)

    if (
        trial.counts_cpus
        and not hint.anywhere
        and is_single(hint.mask)
        and trial.cpu.free[lowest(hint.mask)] >= request.cpus
    ):
        own_cpus(trial)
        take_count(trial, -1, lowest(hint.mask), request.cpus)
        return ADMITTED

    settle(trial, -1)
    outcome = choose_cpus(
        trial.cpu,
        request.cpus,
        trial.reusable_cpus if trial.reuses_cpus else NULL,
        hint.anywhere,
        hint.mask,
        chosen,
        trial.sets + words,
    )
    if outcome != CPUS_CHOSEN:
        return UNEXPECTED_ADMISSION_ERROR
    if last:
        return ADMITTED

    own_cpus(trial)
    mark_cpus(&trial.cpu_copy, chosen, True)
    note_reusable_cpus(trial, request.is_reusable, chosen)

    return ADMITTED


cdef void note_reusable_cpus(Trial* trial, bint is_reusable, const uint64_t* chosen) noexcept nogil:
    """Leave the CPUs of an init container that ends to the containers after it, but no others."""
    cdef int word, words = trial.cpu.layout.groups.words

    if is_reusable and not trial.reuses_cpus:
        memset(trial.reusable_cpus, 0, words * sizeof(uint64_t))
        trial.reuses_cpus = True
    if trial.reuses_cpus:
        for word in range(words):
            if is_reusable:
                trial.reusable_cpus[word] |= chosen[word]
            else:
                trial.reusable_cpus[word] &= ~chosen[word]


cdef bint may_be_misplaced(
    const Trial* trial, const Request* request, const Hint* hint
) noexcept nogil:
    """Return whether CPUs may be spread over four nodes or more.

    The kubelet then forgets some of its plan. It cannot happen where one of the nodes in reach
    could give an even share of the whole machine or less.
    """
    cdef const CpuLayout* layout = trial.cpu.layout
    cdef uint64_t region = 0 if hint.anywhere else hint.mask
    cdef int64_t near = 0, total = 0
    cdef int node, socket, reached = 0
    cdef bint fits = False

    for socket in range(layout.sockets):
        if not hint.anywhere and layout.socket_nodes[socket] & hint.mask:
            region |= layout.socket_nodes[socket]

    for node in range(layout.nodes):
        near += trial.cpu.free[node] if (region >> node) & 1 else 0
        total += layout.capacity[node]

    if near < request.cpus:
        region = ~<uint64_t>0

    for node in range(layout.nodes):
        if (region >> node) & 1 and trial.cpu.free[node]:
            reached += 1
            fits = fits or trial.cpu.free[node] >= request.cpus

    return reached > 3 and not (fits and request.cpus * popcount(layout.universe) <= total)


cdef Outcome allocate_memory(
    Trial* trial, const Request* request, const Hint* hint, bint last
) noexcept nogil:
    cdef uint64_t mask = 0 if hint.anywhere else hint.mask
    cdef Outcome outcome = ADMITTED

    if hint.anywhere and not trial.holders and trial.row.nodes <= NARROW_NODES:
        mask = lone_node(trial, request)

    if not mask or not (hint.holds_memory or hint.anywhere):
        outcome = choose_memory_nodes(trial, request, hint, last, &mask)

    if last or outcome != ADMITTED:
        return outcome

    if not trial.copied_memory:
        copy_memory(&trial.memory_copy, trial.memory, trial.memory_block)
        trial.memory = &trial.memory_copy
        trial.copied_memory = True

    if is_single(mask) and not trial.pod.is_reusable:
        take_memory_alone(trial, request, lowest(mask))
        return ADMITTED

    return take_memory_of(trial, request, mask)


cdef inline uint64_t lone_node(Trial* trial, const Request* request) noexcept nogil:
    """Return the mask of the lowest NUMA node that has a container's memory by itself; 0: none has.

    No mask is narrower, and of single nodes the lowest is preferred. Allocations only reduce the
    number of such nodes, so a container with the request of an earlier one looks only at the nodes
    that were left for the earlier one.
    """
    cdef uint64_t* lone = &trial.lone[request.same_as - 1]
    cdef MemoryRequest memory

    if not lone[0]:
        read_memory_request(trial, request, &memory)
        lone[0] = lone_nodes_with(trial.memory, &memory)
    while lone[0] and not has_memory_left(trial, request, lowest(lone[0])):
        lone[0] &= lone[0] - 1
    return lone[0] & (~lone[0] + 1)


cdef Outcome choose_memory_nodes(
    const Trial* trial, const Request* request, const Hint* hint, bint last, uint64_t* mask
) noexcept nogil:
    """Choose the NUMA nodes that give a container's memory.

    The last container's need not be known.
    """
    cdef MemoryRequest memory
    cdef MemoryHints hints
    cdef MemoryOutcome outcome

    read_memory_request(trial, request, &memory)
    hints.state = trial.memory
    hints.request = &memory
    hints.donors = <MemoryTaking**>trial.donors
    hints.donor_count = trial.holders
    if (
        trial.row.nodes > NARROW_NODES
        and (hint.anywhere or not holds_memory(trial.memory, &memory, mask[0]))
    ):
        return UNDECIDED  # it takes a search to find the best hint

    if last and not hint.preferred and not trial.holders:
        # then any hint will do
        if hint.anywhere or not holds_memory(trial.memory, &memory, mask[0]):
            if has_memory_hint(trial.memory, &memory, mask[0]):
                return ADMITTED

            return UNEXPECTED_ADMISSION_ERROR

    hints.preferred_size = smallest_memory_size(trial.memory.layout, &memory)
    outcome = choose_memory(
        trial.memory, &memory, best_memory_hint, &hints, hint.anywhere, hint.preferred, mask
    )
    return ADMITTED if outcome == MEMORY_CHOSEN else UNEXPECTED_ADMISSION_ERROR


cdef inline void take_memory_alone(Trial* trial, const Request* request, int node) noexcept nogil:
    """Take a container's memory from one NUMA node, which has it.

    There are no init containers to hand it over to.
    """
    cdef int index
    for index in range(request.types):
        memory_at(trial, request.type[index])[node] -= request.size[index]
    bind_alone(&trial.memory_copy, node)


cdef Outcome take_memory_of(Trial* trial, const Request* request, uint64_t mask) noexcept nogil:
    """Take a container's memory from some NUMA nodes."""
    cdef MemoryRequest memory
    cdef MemoryTaking* taking

    if trial.holders == MOST_HOLDERS:
        return UNDECIDED

    read_memory_request(trial, request, &memory)

    taking = &trial.holder[trial.holders]
    taking.mask = mask
    taking.nodes = popcount(mask)
    taking.types = 0
    taking.amounts = (
        trial.taking_amounts + trial.holders * trial.memory.layout.types * trial.row.nodes
    )
    memset(taking.amounts, 0, trial.memory.layout.types * taking.nodes * sizeof(int64_t))

    take_memory(&trial.memory_copy, &memory, trial.donors, trial.holders, taking)
    if request.is_reusable:
        trial.donors[trial.holders] = taking
        trial.holders += 1

    return ADMITTED
