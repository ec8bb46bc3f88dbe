"""Best hints over more than 8 NUMA nodes, by search."""

from libc.stdint cimport int64_t, uint64_t


cdef struct Searched:
    uint64_t mask
    bint preferred
    bint exact      # False: a stated limit ended the search, and this is the best so far


cdef Searched search_best(
    list lists, int numa_nodes, bint single_nodes, const int64_t* distances
) except *
