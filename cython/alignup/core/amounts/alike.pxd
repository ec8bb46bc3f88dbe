"""Nodes that are alike: the same machine and the same things given away, so that a pod gets the same answer there.

Most nodes of a cluster are of few shapes, and many hold the same. Of those that were judged in a run, some are
remembered by what decides; one that is alike in every byte that a judgement may read is not judged again. Nodes that
were alike in all get the number of one state, which they have until they change: the next run compares numbers.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from alignup.core.amounts.changes cimport second_look
from alignup.core.amounts.cpu_allocation cimport CpuState
from alignup.core.amounts.device_allocation cimport DeviceState
from alignup.core.amounts.memory_state cimport MemoryState
from alignup.core.amounts.trial cimport NodeRow, PodRequest


cdef enum:
    FEWEST_NODES = 64       # below, nothing is remembered
    MOST_SEEN = 4096
    ENOUGH_TRIES = 512      # look-ups after which
    WORTH_TRIES = 16        # ... one in so many must have found a node, as each costs a tenth of a judgement
    MOST_STATES = 0x7FFFFFFF    # that get a number


cdef struct Seen:
    uint64_t hash
    int64_t changes         # the count of its changes when it was judged
    Py_ssize_t node         # and 1; 0: nobody


cdef struct Judged:
    uint32_t state
    int32_t node


cdef struct Lately:
    Seen* seen              # NULL: nothing is remembered
    Judged* judged          # [1 << bits] by state
    int bits                # the binary logarithm of how many there is room for
    int tries
    int hits


cdef inline size_t lately_bytes(Py_ssize_t nodes, int* bits) noexcept nogil:
    """Return the room, zeroed, that nodes to be judged take; 0: they are few."""
    bits[0] = 6
    if nodes < FEWEST_NODES:
        return 0
    while (<Py_ssize_t>1 << bits[0]) < 2 * nodes and 1 << bits[0] < MOST_SEEN:
        bits[0] += 1
    return (<size_t>1 << bits[0]) * (sizeof(Seen) + sizeof(Judged))


cdef inline void place_lately(Lately* lately, char* block) noexcept nogil:
    """Begin with nothing in a zeroed block; NULL: there is none."""
    lately.seen = <Seen*>block
    lately.judged = NULL if block == NULL else <Judged*>(block + (<size_t>1 << lately.bits) * sizeof(Seen))
    lately.tries = lately.hits = 0


# The number of a node's state, and the count of the node's changes for which it holds, are one word of 64 bits: other
# threads may judge the same nodes.

cdef extern from *:
    """
    #define alignup_read_word(word) __atomic_load_n(word, __ATOMIC_RELAXED)
    #define alignup_write_word(word, value) __atomic_store_n(word, value, __ATOMIC_RELAXED)
    #define alignup_count_up(word) __atomic_add_fetch(word, 1, __ATOMIC_RELAXED)
    """
    uint64_t read_word "alignup_read_word"(const uint64_t* word) noexcept nogil
    void write_word "alignup_write_word"(uint64_t* word, uint64_t value) noexcept nogil
    uint64_t count_up "alignup_count_up"(uint64_t* word) noexcept nogil


cdef inline uint32_t state_at(const uint64_t* word, int64_t changes) noexcept nogil:
    """Return the state of a node after so many changes; 0: it is not known."""
    cdef uint64_t found = read_word(word)
    return <uint32_t>found if <uint32_t>(found >> 32) == <uint32_t>changes else 0


cdef inline void note_state(uint64_t* word, int64_t changes, uint32_t state) noexcept nogil:
    write_word(word, <uint64_t><uint32_t>changes << 32 | state)


cdef inline uint32_t new_state(uint64_t* states) noexcept nogil:
    """Return a number that no state has had; 0: there is none left."""
    if read_word(states) >= MOST_STATES:
        return 0
    return <uint32_t>count_up(states)


cdef inline Judged* place_of_state(const Lately* lately, uint32_t state) noexcept nogil:
    return &lately.judged[<uint32_t>(state * <uint32_t>0x9E3779B1) >> (32 - lately.bits)]


cdef inline bint has_state(const Lately* lately, uint32_t state) noexcept nogil:
    """Return whether a node in that state was judged."""
    return state != 0 and place_of_state(lately, state).state == state


cdef inline Py_ssize_t node_in_state(Lately* lately, uint32_t state) noexcept nogil:
    """Return a node of that state that was judged; minus 1: none is known."""
    if not has_state(lately, state):
        return -1
    lately.tries += 1
    lately.hits += 1
    return place_of_state(lately, state).node


cdef inline void remember_state(const Lately* lately, uint32_t state, Py_ssize_t node) noexcept nogil:
    cdef Judged* found = place_of_state(lately, state)
    found.state, found.node = state, <int32_t>node


cdef inline uint64_t mixed(const void* layout, const int64_t* amounts, int count) noexcept nogil:
    cdef uint64_t hash = <uint64_t>layout
    cdef int index
    for index in range(count):
        hash = (hash ^ <uint64_t>amounts[index]) * <uint64_t>0x9E3779B97F4A7C15
    return hash ^ hash >> 29


cdef inline uint64_t hash_of(const NodeRow* row, const PodRequest* pod) noexcept nogil:
    """Return a hash of what is free; the parts do not wait for each other."""
    cdef uint64_t hash = (4 * row.nodes + row.policy + 1) * <uint64_t>0xC2B2AE3D27D4EB4F
    cdef const DeviceState* devices
    cdef int index
    if row.cpu != NULL:
        hash += mixed(row.cpu.layout, row.cpu.free, row.nodes)
    if row.memory != NULL:
        hash += mixed(row.memory.layout, row.memory.free, row.nodes) * 3
    for index in range(pod.resources):
        devices = row.devices[pod.resource[index]]
        if devices != NULL:
            hash += mixed(devices.layout, devices.free, devices.layout.places) * (2 * index + 5)
    return hash * <uint64_t>0x9E3779B97F4A7C15


cdef inline bint is_same_cpu(const CpuState* one, const CpuState* other) noexcept nogil:
    if one == NULL or other == NULL:
        return one == other
    return (
        one.layout == other.layout and one.free_in_all == other.free_in_all and one.free_whole == other.free_whole
        and not memcmp(one.given, other.given, (one.layout.groups.words + one.layout.nodes) * sizeof(uint64_t))
    )


cdef inline bint is_same_memory(const MemoryState* one, const MemoryState* other) noexcept nogil:
    if one == NULL or other == NULL:
        return one == other
    return (
        one.layout == other.layout and one.group_count == other.group_count
        and one.unused == other.unused and one.alone == other.alone
        and not memcmp(
            one.free, other.free, <const char*>(one.lone_users + one.layout.nodes) - <const char*>one.free
        )
    )


cdef inline bint has_same_devices(const DeviceState* one, const DeviceState* other) noexcept nogil:
    if one == NULL or other == NULL:
        return one == other
    return (
        one.layout == other.layout and one.free_in_all == other.free_in_all
        and not memcmp(one.given, other.given, (one.layout.words + one.layout.places) * sizeof(uint64_t))
    )


cdef inline bint is_alike(const NodeRow* one, const NodeRow* other, const PodRequest* pod) noexcept nogil:
    """Return whether two nodes are the same in all that a judgement of a pod may read."""
    cdef int index
    if (
        one.nodes != other.nodes or one.policy != other.policy or one.pod_scope != other.pod_scope
        or one.needs_node != other.needs_node or one.upper_bound != other.upper_bound
        or one.distances != other.distances or one.sums != other.sums or one.nearest != other.nearest
        or not is_same_cpu(one.cpu, other.cpu) or not is_same_memory(one.memory, other.memory)
    ):
        return False
    for index in range(pod.resources):
        if not has_same_devices(one.devices[pod.resource[index]], other.devices[pod.resource[index]]):
            return False
    return True


cdef inline bint is_alike_for_all(const NodeRow* one, const NodeRow* other, int resources) noexcept nogil:
    """Return whether nodes that are alike to a pod are so to every other pod."""
    cdef int index
    for index in range(resources):
        if not has_same_devices(one.devices[index], other.devices[index]):
            return False
    return True


cdef inline Py_ssize_t alike_node(
    Lately* lately, const NodeRow* rows, const NodeRow* row, const PodRequest* pod, uint64_t hash
) noexcept nogil:
    """Return a node that was judged, is alike, and did not change since; minus 1: none is known."""
    cdef int way
    cdef Seen* seen
    cdef const NodeRow* other
    lately.tries += 1
    for way in range(2):
        seen = &lately.seen[(hash >> (64 - lately.bits)) ^ way]
        if not seen.node or seen.hash != hash:
            continue
        other = &rows[seen.node - 1]
        if is_alike(other, row, pod) and (other.changes == NULL or second_look(other.changes) == seen.changes):
            lately.hits += 1
            return seen.node - 1
    if lately.tries == ENOUGH_TRIES and lately.hits * WORTH_TRIES < lately.tries:
        lately.seen = NULL
    return -1


cdef inline void remember(Lately* lately, Py_ssize_t node, int64_t changes, uint64_t hash) noexcept nogil:
    """Remember a node that was judged."""
    cdef Seen* seen
    if lately.seen == NULL:
        return
    seen = &lately.seen[hash >> (64 - lately.bits)]
    if seen.node:
        seen = &lately.seen[(hash >> (64 - lately.bits)) ^ 1]
    seen.node, seen.changes, seen.hash = node + 1, changes, hash
