"""All masks of up to 8 NUMA nodes by size, in the order in which ties are broken, and how they include one another."""

from libc.stdint cimport uint8_t, uint64_t

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES


cdef uint8_t BY_SIZE[NARROW_MASKS]
# BY_SIZE[SIZE_STARTS[k]] is the first mask of k nodes.
cdef int SIZE_STARTS[NARROW_NODES + 2]
# The masks of each size as a set of masks: bit m of the 256 stands for mask m.
cdef uint64_t OF_SIZE[NARROW_NODES + 1][4]
# For each set of masks of three nodes (a byte, bit m for mask m): how many of its masks include mask m, one byte for
# each m in the order of memory.
cdef uint8_t SUPERSETS[NARROW_MASKS][8]
