"""The cross product of hint lists over up to 8 NUMA nodes, merged into the best hint."""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.narrow.family cimport Family


cdef struct Best:
    uint64_t mask
    bint preferred
    bint is_found


cdef Best best_preferred(
    const Family* families, int count, uint64_t full, const int64_t* distances
) noexcept nogil
cdef Best merge_families(
    const Family* families, int count, int nodes, const int64_t* distances
) noexcept nogil
cdef Best merge_as_written(const Family* families, int count, int nodes) noexcept nogil
cdef void keep_single_nodes(Family* family) noexcept nogil
cdef void keep_single_nodes_as_written(Family* family) noexcept nogil
