"""Sets of CPUs or devices as arrays of 64-bit words.

Here are the helpers that the loops over them inline. Loops look at the words where a set can have
CPUs: from `first` on every `step`-th, up to but not with `end`. The siblings of a core are numbered
far apart on most machines, so that the words between have none of it.
"""

from libc.stdint cimport uint64_t

from alignup.core.bits cimport popcount


cdef inline int count_in(const uint64_t* members, int words) noexcept nogil:
    """Return how many members the set of so many words has."""
    cdef int word, count = 0
    for word in range(words):
        count += popcount(members[word])
    return count


cdef inline uint64_t flip(uint64_t* allocated, uint64_t members, bint give) noexcept nogil:
    """Mark members of one word as given, or as no longer given.

    Return those of which that was not so yet.
    """
    cdef uint64_t changed = members & (~allocated[0] if give else allocated[0])
    allocated[0] ^= changed
    return changed


cdef inline int count_common(
    const uint64_t* cpus, const uint64_t* mask, int first, int end, int step
) noexcept nogil:
    """Return how many CPUs the sets have in common in these words."""
    cdef int word = first, count = 0
    while word < end:
        count += popcount(cpus[word] & mask[word])
        word += step
    return count


cdef inline bint overlap(
    const uint64_t* cpus, const uint64_t* mask, int first, int end, int step
) noexcept nogil:
    """Return whether the sets have a CPU in common in these words."""
    cdef int word = first
    while word < end:
        if cpus[word] & mask[word]:
            return True
        word += step
    return False


cdef inline void add_cpus(
    uint64_t* cpus, const uint64_t* added, int first, int end, int step
) noexcept nogil:
    """Add to a set what the other one has in these words."""
    cdef int word = first
    while word < end:
        cpus[word] |= added[word]
        word += step


cdef inline void remove_cpus(
    uint64_t* cpus, const uint64_t* removed, int first, int end, int step
) noexcept nogil:
    """Remove from a set what the other one has in these words."""
    cdef int word = first
    while word < end:
        cpus[word] &= ~removed[word]
        word += step


cdef inline uint64_t lowest_of(uint64_t word, int count) noexcept nogil:
    """Return the `count` lowest CPUs of the word, which must have so many."""
    cdef uint64_t rest = word
    for _ in range(count):
        rest &= rest - 1
    return word ^ rest


cdef inline uint64_t highest_of(uint64_t word) noexcept nogil:
    """Return the word with nothing but its highest CPU; the word must have one."""
    cdef int place = 0, step = 32
    while step:
        if word >> (place + step):
            place += step
        step >>= 1
    return (<uint64_t>1) << place
