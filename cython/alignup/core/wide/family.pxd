"""Families of masks over up to 64 NUMA nodes, described by amounts instead of listed."""

from libc.stdint cimport int64_t, uint64_t


cdef struct Demand:
    # `request` units must be reached of `amounts`; a mask reaches amount i when it intersects place
    # i.
    int count
    uint64_t* places
    int64_t* amounts
    int64_t request


cdef struct Listed:
    uint64_t mask
    bint preferred


cdef struct Description:
    # All non-empty subsets of `universe` that hold every demand and intersect every mask in
    # `touching`.
    uint64_t universe
    int demand_count
    Demand* demands
    int touching_count
    uint64_t* touching
    # Preferred: of this size, or touching exactly so many of the sockets (-1: no such rule).
    int preferred_size
    int preferred_sockets
    int socket_count
    uint64_t* sockets


cdef class WideFamily:
    cdef int numa_nodes
    cdef int listed_count
    cdef Listed* listed
    cdef bint described
    cdef Description description
    cdef void list_masks(self, list masks, list preferred) except *
    cdef int membership(self, uint64_t mask) noexcept nogil


cdef int64_t reached(const Demand* demand, uint64_t mask) noexcept nogil
cdef bint holds(const Description* description, uint64_t mask) noexcept nogil
cdef bint prefers(const Description* description, uint64_t mask) noexcept nogil
cdef WideFamily family_avoiding(WideFamily family, uint64_t avoided)
cdef WideFamily listed_family(list masks, list preferred)
cdef WideFamily described_family(
    int numa_nodes,
    object demands,
    uint64_t universe,
    object touching,
    int preferred_size,
    object sockets,
    int preferred_sockets,
)
