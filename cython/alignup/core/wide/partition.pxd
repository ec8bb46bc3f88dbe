"""Find the best mask that lists can be brought down to, by dealing the other nodes out to them."""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.wide.subset_search cimport MOST_DEMANDS, Cover
from alignup.core.wide.family cimport Demand, Description

cdef enum:
    MOST_DEALERS = 16


cdef struct Deal:
    Cover cover                                 # the candidates, their classes and distances
    int list_count
    const Description* lists[MOST_DEALERS]
    uint64_t kept[MOST_DEALERS]                 # what each list still has
    int64_t slack[MOST_DEALERS][MOST_DEMANDS]   # what each list can still lose of each demand
    int64_t light[MOST_DEALERS][MOST_DEMANDS][64]   # a lower bound on what candidate j takes from a list
    int dealt_to[64]                            # the list that left candidate j out, -1: it is kept
    uint64_t higher_alike[64]
    # What any mask that the lists come down to must hold; see `relax`.
    Demand relaxed
    uint64_t places[64]
    int64_t shares[64]
    bint any_will_do            # whether a mask is reachable is all that is asked
    int64_t steps
    bint found
    uint64_t best


cdef int start_deal(
    Deal* deal, const Description** lists, int list_count, uint64_t ground, const int64_t* distances
) noexcept nogil
cdef bint deal_out(Deal* deal, int size) noexcept nogil
cdef void end_deal(Deal* deal) noexcept nogil
