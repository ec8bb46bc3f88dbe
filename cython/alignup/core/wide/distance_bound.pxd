"""A lower bound on the distances within any set of so many nodes."""

from libc.stdint cimport int64_t, uint64_t


cdef struct Tree:
    # A leaf a candidate, then one inner node a merge, the last of them the root.
    int leaves
    int left[64]
    int right[64]
    int sizes[128]
    int64_t heights[64]         # what a pair across merge i costs at least
    int64_t single_costs[64]    # what candidate i costs by itself
    int64_t least_costs[128][65]    # [node][k]: the least cost of k leaves below the node


cdef void grow(Tree* tree, const int* nodes, int count, const int64_t* distances) noexcept nogil
cdef int64_t least_of(Tree* tree, uint64_t taken, uint64_t undecided, int size) noexcept nogil
