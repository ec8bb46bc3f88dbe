"""Which of the free CPUs are taken."""

from libc.stdint cimport uint64_t

from alignup.core.cpu.groups cimport CpuGroup, CpuGroups


cdef enum:
    PACK_SETS = 4       # sets of CPUs that `pack` needs as scratch


cdef enum L3Rule:
    # prefer-align-cpus-by-uncorecache, and what becomes of an odd rest on cores of several CPUs
    L3_IGNORED = 0
    L3_ROUNDS_UP = 1        # it stays in one L3 group (kubelets from 1.34 on)
    L3_ROUNDS_DOWN = 2      # it is taken from anywhere


cdef int pack(
    const CpuGroups* groups,
    const uint64_t* free,
    int count,
    const uint64_t* allocated,
    bint spread,
    L3Rule l3_rule,
    uint64_t* chosen,
    uint64_t* scratch,
) noexcept nogil


# NUMA nodes that have free CPUs, fewest free first, socket by socket if sockets are larger

cdef struct Order:
    const CpuGroup* groups
    const int* members          # NULL: all groups
    int size
    const uint64_t* free        # must not change while the order is followed
    const CpuGroup* within      # only groups with free CPUs in this one; NULL: anywhere
    int count                   # free CPUs of the groups that are coming now
    int next_count              # the next larger such count
    int place


cdef struct Walk:
    const CpuGroups* groups
    const uint64_t* free
    Order outer
    Order inner
    Order l3


cdef Walk walk(const CpuGroups* groups, const uint64_t* free) noexcept nogil
cdef const CpuGroup* next_node(Walk* walk) noexcept nogil
