"""Judge a pod on a node: decide and allocate container by container, and change nothing.

Containers take from copies, by the kernels that the node's own providers use. Where these cannot tell,
the outcome is UNDECIDED, and the node itself has to be asked.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from alignup.core.amounts.alike cimport can_place_alike, place_alike, repeat_sums
from alignup.core.amounts.allocate cimport allocate
from alignup.core.amounts.cpus cimport choice_sets, cpu_bytes
from alignup.core.amounts.decide cimport decide
from alignup.core.amounts.devices cimport device_bytes
from alignup.core.amounts.halves cimport sum_of_all
from alignup.core.amounts.memory cimport memory_bytes
from alignup.core.amounts.offers cimport Offers
from alignup.core.amounts.score cimport score_of
from alignup.core.amounts.trial cimport (
    ADMITTED, MISMATCHED, POLICY_BEST_EFFORT, POLICY_NONE, UNDECIDED, UNEXPECTED_ADMISSION_ERROR, Answer, Hint,
    NodeRow, PodRequest, Request, Trial, has_devices,
)
from alignup.core.bits cimport NARROW_NODES, all_nodes


# Scratch: one block for a whole run over nodes, large enough for each of them

cdef void widen(Room* room, const NodeRow* row, int resources) noexcept nogil:
    """Make room for a node too; `resources` is how many the cluster knows."""
    cdef int resource
    if row.cpu != NULL:
        room.words = max(room.words, row.cpu.layout.groups.words)
        room.cpus = max(room.cpus, cpu_bytes(row.cpu.layout))
    if row.memory != NULL:
        room.taken = max(room.taken, row.memory.layout.types * row.nodes)
        room.memory = max(room.memory, (memory_bytes(row.memory.layout) + 7) & ~<size_t>7)
    for resource in range(resources):
        if row.devices[resource] != NULL:
            room.devices = max(room.devices, device_bytes(row.devices[resource].layout))
            room.words = max(room.words, row.devices[resource].layout.words)


cdef size_t scratch_bytes(const Room* room, const PodRequest* pod) noexcept nogil:
    """Return how many bytes `place_scratch` needs."""
    return (
        room.cpus + room.memory + pod.resources * room.devices
        + ((1 + pod.resources + choice_sets() + 2) * room.words + (3 + room.taken) * pod.containers) * sizeof(uint64_t)
    )


cdef void place_scratch(Trial* trial, const Room* room, const PodRequest* pod, char* scratch) noexcept nogil:
    """Let the working memory of a trial lie in a block of `scratch_bytes`."""
    cdef int resource
    memset(trial, 0, sizeof(Trial))
    trial.pod = pod
    trial.cpu_block = scratch
    trial.memory_block = scratch + room.cpus
    trial.reusable_cpus = <uint64_t*>(trial.memory_block + room.memory)
    trial.pending_count = <int64_t*>trial.reusable_cpus + room.words
    trial.pending_times = trial.pending_count + pod.containers
    trial.pending_node = <int*>(trial.pending_times + pod.containers)
    trial.taken = trial.pending_times + 2 * pod.containers
    trial.sets = <uint64_t*>(trial.taken + room.taken * pod.containers)
    scratch = <char*>(trial.sets + (choice_sets() + 2) * room.words)
    for resource in range(pod.resources):
        trial.device_blocks[resource] = scratch
        trial.reusable_devices[resource] = <uint64_t*>(scratch + room.devices)
        scratch += room.devices + room.words * sizeof(uint64_t)


# The trial

cdef void start_trial(Trial* trial, const NodeRow* row, int policy) noexcept nogil:
    """Let a trial look at a node; a policy other than -1 is the pod's own, which judges it as a whole."""
    cdef const PodRequest* pod = trial.pod
    cdef int index
    trial.row = row
    trial.policy = row.policy
    trial.pod_scope = row.pod_scope
    if policy > POLICY_NONE and policy != row.policy:
        trial.policy = policy
        trial.pod_scope = True
    trial.cpu, trial.memory = row.cpu, row.memory
    trial.copied_cpu = trial.copied_memory = trial.reuses_cpus = False
    trial.copied_devices = trial.reuses_devices = 0
    trial.holders = trial.pending = 0
    trial.sums_only = trial.policy == POLICY_NONE and not pod.hands_on and (
        row.cpu == NULL
        or not (row.cpu.layout.irregular or row.cpu.layout.distributes or row.cpu.layout.full_pcpus_only)
    )
    trial.cpus_left = 0 if row.cpu == NULL else row.cpu.free_in_all
    for index in range(pod.types):
        trial.type[index] = -1 if pod.type[index] < 0 or row.memory == NULL else row.type_of[pod.type[index]]
    for index in range(pod.resources):
        trial.devices[index] = row.devices[pod.resource[index]]
        trial.devices_left[index] = 0 if trial.devices[index] == NULL else trial.devices[index].free_in_all


cdef void judge(Trial* trial, const NodeRow* row, int policy, Answer* answer) noexcept nogil:
    """Judge the pod of a trial on a node.

    Args:
        policy: the policy that the pod brings; -1: none. It goes with a node without a policy, or with the same.
    """
    answer.affinity = answer.asked = 0
    answer.aligned = answer.preferred = False
    answer.outcome = UNDECIDED
    if row.asks_itself:
        return
    if policy > POLICY_NONE and policy != row.policy:
        if row.policy != POLICY_NONE or (row.upper_bound and row.nodes > NARROW_NODES):
            answer.outcome = MISMATCHED
            return
        if row.nodes > NARROW_NODES:
            return  # the node says whether its options allow so many NUMA nodes
    start_trial(trial, row, policy)
    judge_containers(trial, answer)


cdef bint falls_short(const Trial* trial) noexcept nogil:
    """Return whether some container will get nothing for sure, as the node has too little for all of them together.

    Only where no policy can refuse one before that, and no other reason can come first.
    """
    cdef const Request* total = &trial.pod.total
    cdef int index, type
    if trial.pod.containers < 2 or trial.pod.hands_on or trial.policy > POLICY_BEST_EFFORT:
        return False
    if trial.cpu != NULL and total.cpus:
        if trial.cpu.layout.full_pcpus_only:
            return False
        # where groups differ in size, one that is taken as a whole can have more CPUs than were counted as free
        if trial.cpu.free_in_all < total.cpus and not trial.cpu.layout.irregular:
            return True
    for index in range(total.resources):
        if has_devices(trial, total.resource[index]):
            if trial.devices[total.resource[index]].free_in_all < total.count[index]:
                return True
    if trial.memory != NULL:
        for index in range(total.types):
            type = trial.type[total.type[index]]
            if type >= 0 and total.size[index] > sum_of_all(
                trial.memory.free + type * trial.row.nodes, trial.row.nodes
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
    cdef int index = 1
    answer.aligned = answer.preferred = trial.policy != POLICY_NONE
    answer.outcome = UNEXPECTED_ADMISSION_ERROR if falls_short(trial) else ADMITTED
    if by_pod and answer.outcome == ADMITTED:
        answer.outcome = decide(trial, &pod.requests[0], &offers, &hint)
        note_hint(trial, &pod.requests[0], &hint, answer)
        hint.holds_memory = False  # of the pod's containers together, not of each in its turn
    while index <= pod.containers and answer.outcome == ADMITTED:
        request = &pod.requests[index]
        if not by_pod:
            answer.outcome = decide(trial, request, &offers, &hint)
            if answer.outcome != ADMITTED:
                return
            note_hint(trial, request, &hint, answer)
            if request.repeats and hint.singles and can_place_alike(trial, request, &hint):
                index += place_alike(
                    trial, request, &offers, &hint, index + request.repeats == pod.containers, answer
                )
                continue
        answer.outcome = allocate(trial, request, &hint, index == pod.containers)
        if trial.sums_only and request.repeats and answer.outcome == ADMITTED:
            index += repeat_sums(trial, request)
        index += 1


cdef bint asks_for_anything(const Trial* trial, const Request* request) noexcept nogil:
    """Return whether some provider has hints to give."""
    cdef int index
    if (trial.cpu != NULL and request.cpus) or (trial.memory != NULL and request.types):
        return True
    for index in range(request.resources):
        if has_devices(trial, request.resource[index]) and trial.devices[request.resource[index]].layout.universe:
            return True
    return False


cdef inline void note_hint(const Trial* trial, const Request* request, const Hint* hint, Answer* answer) noexcept nogil:
    """Add a hint to the answer."""
    if answer.outcome != ADMITTED:
        return
    answer.preferred = answer.preferred and hint.preferred
    if not hint.anywhere:
        answer.affinity |= hint.mask
    if asks_for_anything(trial, request):
        answer.asked |= all_nodes(trial.row.nodes) if hint.anywhere else hint.mask
        answer.aligned = answer.aligned and not (hint.anywhere and trial.row.nodes > 1)


cdef void judge_row(
    Trial* trial, const NodeRow* row, int policy, int strategy, uint8_t* admitted, uint8_t* reason,
    uint64_t* affinity, uint8_t* preferred, double* score, uint8_t* exact,
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
    score[0] = score_of(row, trial.pod, answer.asked, answer.aligned, strategy) if admitted[0] else -INFINITY
