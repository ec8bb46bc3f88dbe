"""Find the best mask that described lists have in common.

The nodes outside it are divided among them.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.wide.family cimport Demand, Description
from alignup.core.wide.limits cimport MOST_DEMANDS, MOST_PARTS, Budget
from alignup.core.wide.walk cimport Walk


cdef struct Partition:
    Walk walk                                   # over the masks, which asks what can be left out
    int list_count
    const Description* lists[MOST_PARTS]
    uint64_t kept[MOST_PARTS]                   # the nodes that a list has not left out
    int64_t slack[MOST_PARTS][MOST_DEMANDS]     # what it can still lose of each demand
    int64_t whole_slack[MOST_PARTS][MOST_DEMANDS]   # the same before it left out any node
    int left_out_by[64]                        # the list that leaves out candidate j, -1: none does
    uint64_t higher_alike[64]                   # candidates after j that are interchangeable with j
    uint64_t costless[MOST_PARTS]              # candidates that a list leaves out and loses nothing
    # A lower bound on what a list loses with candidate j, whatever it left out before, and the
    # candidates by that.
    int64_t loss[MOST_PARTS][MOST_DEMANDS][64]
    signed char by_loss[MOST_PARTS][MOST_DEMANDS][64]
    # A demand that every mask that the lists can have in common meets; see `relax`.
    Demand relaxed
    uint64_t places[64]
    int64_t shares[64]


cdef int start_partition(
    Partition* partition,
    const Description** lists,
    int list_count,
    uint64_t ground,
    const int64_t* distances,
    Budget* budget,
) noexcept nogil
cdef bint find_reachable(Partition* partition, int size) noexcept nogil
cdef void end_partition(Partition* partition) noexcept nogil
