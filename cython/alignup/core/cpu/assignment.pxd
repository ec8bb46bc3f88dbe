"""Which of the free CPUs are taken."""

from libc.stdint cimport uint64_t

from alignup.core.cpu.groups cimport CpuGroup, CpuGroups


cdef enum:
    PACK_SETS = 4       # sets of CPUs that `pack` needs as scratch


cdef enum L3Rule:
    # prefer-align-cpus-by-uncorecache: whether all groups that fit are taken whole before one of
    # them may give a part, and what becomes of an odd rest on cores of several CPUs
    L3_IGNORED = 0
    L3_ROUNDS_UP = 1        # it stays in one L3 group (kubelets from 1.34 on)
    L3_ROUNDS_DOWN = 2      # it is taken from anywhere
    L3_WHOLE_FIRST = 3      # it stays in one, once no more fit (kubelets from 1.38 on)


cdef enum SpreadRule:
    # distribute-cpus-across-cores: single CPUs, socket by socket
    SPREAD_NONE = 0
    SPREAD_BY_NUMBER = 1    # in ascending order, which on most machines separates siblings
    SPREAD_IN_TURNS = 2     # one CPU of each core in turn (kubelets from 1.38 on)


cdef inline L3Rule l3_rule_of(bint by_l3, bint rounds_down, bint whole_first) noexcept nogil:
    """Return the rule of an option and of a release."""
    if not by_l3:
        return L3_IGNORED
    if whole_first:
        return L3_WHOLE_FIRST
    return L3_ROUNDS_DOWN if rounds_down else L3_ROUNDS_UP


cdef inline SpreadRule spread_rule_of(bint spreads, bint in_turns) noexcept nogil:
    """Return the rule of an option and of a release."""
    if not spreads:
        return SPREAD_NONE
    return SPREAD_IN_TURNS if in_turns else SPREAD_BY_NUMBER


cdef void pack(
    const CpuGroups* groups,
    const uint64_t* free,
    int count,
    const uint64_t* allocated,
    SpreadRule spread_rule,
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
