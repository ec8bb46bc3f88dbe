"""Take what a container of a tried pod gets, in the order of the kubelet: devices, CPUs, memory.

Everything is taken from copies, by the kernels that a node's own providers use. Where it is enough to count, nothing
more is done: under policy none nobody asks where anything is, and a container that is content with one NUMA node takes
its CPUs there, whichever they are.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from alignup.core.amounts.cpus cimport CPUS_CHOSEN, CpuLayout, check_whole_cores, choose_cpus, copy_cpus, give_cpus
from alignup.core.amounts.devices cimport (
    DEVICES_ASK_ANY, DEVICES_ASK_NEAR, DEVICES_CHOSEN, DeviceLayout, DeviceOutcome, copy_devices, finish_choice,
    give_devices, start_choice,
)
from alignup.core.amounts.memory cimport (
    MEMORY_CHOSEN, MemoryHints, best_memory_hint, choose_memory, copy_memory, has_memory_hint, holds_memory,
    memory_size,
)
from alignup.core.amounts.memory_state cimport MemoryRequest, MemoryTaking
from alignup.core.amounts.memory_taking cimport take_memory
from alignup.core.amounts.trial cimport (
    ADMITTED, MOST_HOLDERS, SMT_ALIGNMENT_ERROR, UNDECIDED, UNEXPECTED_ADMISSION_ERROR, Hint, Outcome, Request,
    Trial, has_devices, read_memory_request,
)
from alignup.core.bits cimport NARROW_NODES, is_single, lowest, popcount


cdef Outcome allocate(Trial* trial, const Request* request, const Hint* hint, bint last) noexcept nogil:
    """Return whether every provider can give the container its share; take it unless the container is the last one."""
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


cdef bint can_count_cpus(const Trial* trial, const Request* request, const Hint* hint) noexcept nogil:
    """Return whether it is enough to count the CPUs that a container gets: all are of the one NUMA node of its hint."""
    cdef const CpuLayout* layout = trial.cpu.layout
    return (
        not hint.anywhere and is_single(hint.mask) and not trial.pod.hands_on and not layout.sockets
        and not layout.irregular and not (layout.full_pcpus_only and layout.split_cores)
    )


cdef void count_cpus(Trial* trial, int node, int64_t count, int64_t times) noexcept nogil:
    """Take CPUs of a NUMA node as a count, several times in turn; which ones is settled when it matters."""
    trial.pending_node[trial.pending] = node
    trial.pending_count[trial.pending] = count
    trial.pending_times[trial.pending] = times
    trial.pending += 1
    correct_counts(trial, node, -count * times)


cdef inline void correct_counts(Trial* trial, int node, int64_t change) noexcept nogil:
    trial.cpu_copy.free[node] += change
    trial.cpu_copy.free_in_all += change
    trial.cpu_copy.free_whole += change


cdef void settle_cpus(Trial* trial) noexcept nogil:
    """Choose the CPUs that were only counted so far, request by request, in the order in which they were taken."""
    cdef int index, words = trial.cpu.layout.groups.words
    cdef int64_t _
    for index in range(trial.pending):
        correct_counts(trial, trial.pending_node[index], trial.pending_count[index] * trial.pending_times[index])
    for index in range(trial.pending):
        for _ in range(trial.pending_times[index]):
            choose_cpus(
                &trial.cpu_copy, trial.pending_count[index], NULL, False, (<uint64_t>1) << trial.pending_node[index],
                trial.sets, trial.sets + words,
            )
            give_cpus(&trial.cpu_copy, trial.sets)
    trial.pending = 0


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
        return take_counted_devices(trial, resource, request.count[index], hint, request.hands_on)
    outcome = start_choice(
        trial.devices[resource], request.count[index], reusable if reuses else NULL, hint.anywhere, hint.mask, chosen,
        choice,
    )
    if outcome == DEVICES_ASK_NEAR or outcome == DEVICES_ASK_ANY:
        finish_choice(trial.devices[resource], outcome, request.count[index], hint.anywhere, chosen, choice)
    elif outcome != DEVICES_CHOSEN:
        return UNEXPECTED_ADMISSION_ERROR
    if last:
        return ADMITTED
    own_devices(trial, resource)
    give_devices(&trial.device_copies[resource], chosen)
    if request.hands_on and not reuses:
        memset(reusable, 0, layout.words * sizeof(uint64_t))
        trial.reuses_devices |= (<uint64_t>1) << resource
    if request.hands_on or reuses:
        for word in range(layout.words):
            reusable[word] = reusable[word] | chosen[word] if request.hands_on else reusable[word] & ~chosen[word]
    return ADMITTED


cdef inline void own_devices(Trial* trial, int resource) noexcept nogil:
    """Let the trial take from a copy."""
    if not (trial.copied_devices >> resource) & 1:
        copy_devices(&trial.device_copies[resource], trial.devices[resource], trial.device_blocks[resource])
        trial.devices[resource] = &trial.device_copies[resource]
        trial.copied_devices |= (<uint64_t>1) << resource


cdef Outcome take_counted_devices(
    Trial* trial, int resource, int64_t count, const Hint* hint, bint hands_on
) noexcept nogil:
    """Take devices of which only counts are known; where these do not tell from where, nothing is certain any more."""
    cdef int node = 0 if hint.anywhere else lowest(hint.mask)
    if trial.devices[resource].free_in_all < count:
        return UNEXPECTED_ADMISSION_ERROR
    if hint.anywhere or not is_single(hint.mask) or hands_on or trial.devices[resource].free[node] < count:
        return UNDECIDED
    own_devices(trial, resource)
    trial.device_copies[resource].free[node] -= count
    trial.device_copies[resource].free_in_all -= count
    return ADMITTED


cdef inline void own_cpus(Trial* trial) noexcept nogil:
    """Let the trial take from a copy."""
    if not trial.copied_cpu:
        copy_cpus(&trial.cpu_copy, trial.cpu, trial.cpu_block)
        trial.cpu = &trial.cpu_copy
        trial.copied_cpu = True


cdef Outcome take_counted_cpus(Trial* trial, const Request* request, const Hint* hint) noexcept nogil:
    """Take CPUs of which only counts are known, in the manner of `take_counted_devices`."""
    cdef int node = 0 if hint.anywhere else lowest(hint.mask)
    if hint.anywhere or not is_single(hint.mask) or request.hands_on or trial.cpu.free[node] < request.cpus:
        return UNDECIDED
    own_cpus(trial)
    count_cpus(trial, node, request.cpus, 1)
    return ADMITTED


cdef Outcome allocate_sums(Trial* trial, const Request* request) noexcept nogil:
    """Take devices and CPUs from their sums: nobody will ask where they are."""
    cdef int index, resource
    for index in range(request.resources):
        resource = request.resource[index]
        if not has_devices(trial, resource):
            continue
        if not trial.devices[resource].layout.any_healthy or trial.devices_left[resource] < request.count[index]:
            return UNEXPECTED_ADMISSION_ERROR
        trial.devices_left[resource] -= request.count[index]
    if trial.cpu != NULL and request.cpus:
        if trial.cpus_left < request.cpus:
            return UNEXPECTED_ADMISSION_ERROR
        trial.cpus_left -= request.cpus
    return ADMITTED


cdef Outcome allocate_cpus(Trial* trial, const Request* request, const Hint* hint, bint last) noexcept nogil:
    cdef const CpuLayout* layout = trial.cpu.layout
    cdef int words = layout.groups.words
    cdef uint64_t* chosen = trial.sets
    if check_whole_cores(trial.cpu, request.cpus) != CPUS_CHOSEN:
        return SMT_ALIGNMENT_ERROR
    if not trial.reuses_cpus and trial.cpu.free_in_all < request.cpus and not layout.irregular:
        return UNEXPECTED_ADMISSION_ERROR
    if layout.distributes:
        if not last or trial.reuses_cpus or layout.irregular or may_be_misplaced(trial, request, hint):
            return UNDECIDED
        return ADMITTED
    if last and not trial.reuses_cpus and not layout.irregular:
        return ADMITTED
    if not words:
        return take_counted_cpus(trial, request, hint)
    if can_count_cpus(trial, request, hint) and trial.cpu.free[lowest(hint.mask)] >= request.cpus:
        own_cpus(trial)
        count_cpus(trial, lowest(hint.mask), request.cpus, 1)
        return ADMITTED
    if trial.pending:
        settle_cpus(trial)
    if choose_cpus(
        trial.cpu, request.cpus, trial.reusable_cpus if trial.reuses_cpus else NULL, hint.anywhere, hint.mask, chosen,
        trial.sets + words,
    ) != CPUS_CHOSEN:
        return UNEXPECTED_ADMISSION_ERROR
    if last:
        return ADMITTED
    own_cpus(trial)
    give_cpus(&trial.cpu_copy, chosen)
    note_reusable_cpus(trial, request.hands_on, chosen)
    return ADMITTED


cdef void note_reusable_cpus(Trial* trial, bint hands_on, const uint64_t* chosen) noexcept nogil:
    """Leave the CPUs of an init container that ends to the containers after it, but no others."""
    cdef int word, words = trial.cpu.layout.groups.words
    if hands_on and not trial.reuses_cpus:
        memset(trial.reusable_cpus, 0, words * sizeof(uint64_t))
        trial.reuses_cpus = True
    if trial.reuses_cpus:
        for word in range(words):
            if hands_on:
                trial.reusable_cpus[word] |= chosen[word]
            else:
                trial.reusable_cpus[word] &= ~chosen[word]


cdef bint may_be_misplaced(const Trial* trial, const Request* request, const Hint* hint) noexcept nogil:
    """Return whether CPUs may be spread over four nodes or more: the kubelet then forgets some of its plan.

    It cannot happen where one of the nodes in reach could give an even share of the whole machine or less.
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


cdef Outcome allocate_memory(Trial* trial, const Request* request, const Hint* hint, bint last) noexcept nogil:
    cdef MemoryRequest memory
    cdef MemoryHints hints
    cdef MemoryTaking* taking
    cdef uint64_t mask = 0 if hint.anywhere else hint.mask
    read_memory_request(trial, request, &memory)
    hints.state = trial.memory
    hints.request = &memory
    hints.donors = trial.donors
    hints.donor_count = trial.holders
    if trial.row.nodes > NARROW_NODES and (hint.anywhere or not holds_memory(trial.memory, &memory, mask)):
        return UNDECIDED  # it takes a search to find the best hint
    if last and not hint.preferred and not trial.holders:
        if hint.anywhere or not holds_memory(trial.memory, &memory, mask):  # then any hint will do
            return ADMITTED if has_memory_hint(trial.memory, &memory, mask) else UNEXPECTED_ADMISSION_ERROR
    hints.preferred_size = 0 if memory.unknown_type else memory_size(trial.memory.layout, &memory)
    if choose_memory(
        trial.memory, &memory, best_memory_hint, &hints, hint.anywhere, hint.preferred, &mask
    ) != MEMORY_CHOSEN:
        return UNEXPECTED_ADMISSION_ERROR
    if last:
        return ADMITTED
    if not trial.copied_memory:
        copy_memory(&trial.memory_copy, trial.memory, trial.memory_block)
        trial.memory = &trial.memory_copy
        trial.copied_memory = True
    if trial.holders == MOST_HOLDERS:
        return UNDECIDED
    taking = &trial.holder[trial.holders]
    taking.mask = mask
    taking.nodes = popcount(mask)
    taking.types = 0
    taking.taken = trial.taken + trial.holders * trial.memory.layout.types * trial.row.nodes
    memset(taking.taken, 0, trial.memory.layout.types * taking.nodes * sizeof(int64_t))
    take_memory(&trial.memory_copy, &memory, trial.donors, trial.holders, taking)
    if request.hands_on:
        trial.donors[trial.holders] = taking
        trial.holders += 1
    return ADMITTED
