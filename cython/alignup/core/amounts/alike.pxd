"""Nodes that are alike, where a pod gets the same answer.

They are the same machine with the same things given away. Most nodes of a cluster are of few
shapes, and many hold the same. Of those that were judged in a run, some are remembered by what
decides; one that is alike in every byte that a judgement may read is not judged again. Nodes that
were alike in all get the number of one state, which they have until they change: the next run
compares numbers.
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
    MOST_CACHED = 4096
    ENOUGH_TRIES = 512      # look-ups after which
    # ... one in so many must have found a node, as each costs a tenth of a judgement
    WORTH_TRIES = 16
    MOST_STATES = 0x7FFFFFFF    # that get a number


cdef struct CachedNode:
    uint64_t hash
    int64_t changes         # the count of its changes when it was judged
    Py_ssize_t node         # and 1; 0: nobody


cdef struct CachedState:
    uint32_t state
    int32_t node


cdef struct JudgementCache:
    CachedNode* nodes       # NULL: nothing is remembered
    CachedState* states     # [1 << bits] by state
    int bits                # the binary logarithm of how many there is room for
    int tries
    int hits


cdef inline size_t cache_bytes(Py_ssize_t nodes, int* bits) noexcept nogil:
    """Return the room, zeroed, that nodes to be judged take; 0: they are few."""
    bits[0] = 6
    if nodes < FEWEST_NODES:
        return 0
    while (<Py_ssize_t>1 << bits[0]) < 2 * nodes and 1 << bits[0] < MOST_CACHED:
        bits[0] += 1
    return (<size_t>1 << bits[0]) * (sizeof(CachedNode) + sizeof(CachedState))


cdef inline void place_cache(JudgementCache* cache, char* block) noexcept nogil:
    """Begin with nothing in a zeroed block; NULL: there is none."""
    cache.nodes = <CachedNode*>block
    cache.states = NULL
    if block != NULL:
        cache.states = <CachedState*>(block + (<size_t>1 << cache.bits) * sizeof(CachedNode))
    cache.tries = cache.hits = 0


# The number of a node's state, and the count of the node's changes for which it holds, are one word
# of 64 bits: other threads may judge the same nodes.

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
    cdef uint64_t entry = read_word(word)
    return <uint32_t>entry if <uint32_t>(entry >> 32) == <uint32_t>changes else 0


cdef inline void note_state(uint64_t* word, int64_t changes, uint32_t state) noexcept nogil:
    write_word(word, <uint64_t><uint32_t>changes << 32 | state)


cdef inline uint32_t new_state(uint64_t* states) noexcept nogil:
    """Return a number that no state has had; 0: there is none left."""
    if read_word(states) >= MOST_STATES:
        return 0
    return <uint32_t>count_up(states)


cdef inline CachedState* place_of_state(const JudgementCache* cache, uint32_t state) noexcept nogil:
    return &cache.states[<uint32_t>(state * <uint32_t>0x9E3779B1) >> (32 - cache.bits)]


cdef inline bint has_state(const JudgementCache* cache, uint32_t state) noexcept nogil:
    """Return whether a node in that state was judged."""
    return state != 0 and place_of_state(cache, state).state == state


cdef inline Py_ssize_t node_in_state(JudgementCache* cache, uint32_t state) noexcept nogil:
    """Return a node of that state that was judged; minus 1: none is known."""
    if not has_state(cache, state):
        return -1
    cache.tries += 1
    cache.hits += 1
    return place_of_state(cache, state).node


cdef inline void remember_state(
    const JudgementCache* cache, uint32_t state, Py_ssize_t node
) noexcept nogil:
    cdef CachedState* entry = place_of_state(cache, state)
    entry.state = state
    entry.node = <int32_t>node


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


cdef inline bint is_same_cpu(const CpuState* state, const CpuState* previous) noexcept nogil:
    if state == NULL or previous == NULL:
        return state == previous

    return (
        state.layout == previous.layout
        and state.free_in_all == previous.free_in_all
        and state.free_whole == previous.free_whole
        and not memcmp(
            state.allocated,
            previous.allocated,
            (state.layout.groups.words + state.layout.nodes) * sizeof(uint64_t),
        )
    )


cdef inline bint is_same_memory(
    const MemoryState* state, const MemoryState* previous
) noexcept nogil:
    if state == NULL or previous == NULL:
        return state == previous

    return (
        state.layout == previous.layout
        and state.group_count == previous.group_count
        and state.unused == previous.unused
        and state.alone == previous.alone
        and not memcmp(
            state.free,
            previous.free,
            <const char*>(state.lone_users + state.layout.nodes) - <const char*>state.free,
        )
    )


cdef inline bint has_same_devices(
    const DeviceState* state, const DeviceState* previous
) noexcept nogil:
    if state == NULL or previous == NULL:
        return state == previous
    return (
        state.layout == previous.layout
        and state.free_in_all == previous.free_in_all
        and not memcmp(
            state.allocated,
            previous.allocated,
            (state.layout.words + state.layout.places) * sizeof(uint64_t),
        )
    )


cdef inline bint is_alike(
    const NodeRow* row, const NodeRow* previous, const PodRequest* pod
) noexcept nogil:
    """Return whether two nodes are the same in all that a judgement of a pod may read."""
    cdef int index

    if (
        row.nodes != previous.nodes
        or row.policy != previous.policy
        or row.pod_scope != previous.pod_scope
        or row.needs_node != previous.needs_node
        or row.upper_bound != previous.upper_bound
        or row.distances != previous.distances
        or row.sums != previous.sums
        or row.nearest != previous.nearest
        or not is_same_cpu(row.cpu, previous.cpu)
        or not is_same_memory(row.memory, previous.memory)
    ):
        return False

    for index in range(pod.resources):
        if not has_same_devices(
            row.devices[pod.resource[index]], previous.devices[pod.resource[index]]
        ):
            return False

    return True


cdef inline bint is_alike_for_all(
    const NodeRow* row, const NodeRow* previous, int resources
) noexcept nogil:
    """Return whether nodes that are alike to a pod are so to every other pod."""
    cdef int index
    for index in range(resources):
        if not has_same_devices(row.devices[index], previous.devices[index]):
            return False
    return True


cdef inline Py_ssize_t alike_node(
    JudgementCache* cache,
    const NodeRow* rows,
    const NodeRow* row,
    const PodRequest* pod,
    uint64_t hash,
) noexcept nogil:
    """Return a node that was judged, is alike, and did not change since; minus 1: none is known."""
    cdef int way
    cdef CachedNode* cached
    cdef const NodeRow* previous

    cache.tries += 1
    for way in range(2):
        cached = &cache.nodes[(hash >> (64 - cache.bits)) ^ way]
        if not cached.node or cached.hash != hash:
            continue

        previous = &rows[cached.node - 1]
        if (
            is_alike(previous, row, pod)
            and (previous.changes == NULL or second_look(previous.changes) == cached.changes)
        ):
            cache.hits += 1
            return cached.node - 1

    if cache.tries == ENOUGH_TRIES and cache.hits * WORTH_TRIES < cache.tries:
        cache.nodes = NULL

    return -1


cdef inline void remember(
    JudgementCache* cache, Py_ssize_t node, int64_t changes, uint64_t hash
) noexcept nogil:
    """Remember a node that was judged."""
    cdef CachedNode* cached

    if cache.nodes == NULL:
        return
    cached = &cache.nodes[hash >> (64 - cache.bits)]
    if cached.node:
        cached = &cache.nodes[(hash >> (64 - cache.bits)) ^ 1]
    cached.node = node + 1
    cached.changes = changes
    cached.hash = hash
