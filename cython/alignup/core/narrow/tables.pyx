"""Fill the tables of all masks of up to 8 NUMA nodes, once, when this module is imported."""

from libc.stdint cimport uint8_t, uint64_t

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, popcount


cdef uint8_t BY_SIZE[NARROW_MASKS]
cdef int SIZE_STARTS[NARROW_NODES + 2]
cdef uint64_t OF_SIZE[NARROW_NODES + 1][4]
cdef uint8_t SUPERSETS[NARROW_MASKS][8]


cdef void fill_tables() noexcept nogil:
    cdef int size, mask, place = 0
    for size in range(NARROW_NODES + 1):
        SIZE_STARTS[size] = place
        for mask in range(NARROW_MASKS):
            if popcount(mask) == size:
                BY_SIZE[place] = mask
                OF_SIZE[size][mask >> 6] |= (<uint64_t>1) << (mask & 63)
                place += 1
    SIZE_STARTS[NARROW_NODES + 1] = place


fill_tables()


cdef void count_supersets() noexcept nogil:
    cdef int masks, subset, superset
    for masks in range(NARROW_MASKS):
        for subset in range(8):
            for superset in range(8):
                if subset & ~superset == 0:
                    SUPERSETS[masks][subset] += (masks >> superset) & 1


count_supersets()
