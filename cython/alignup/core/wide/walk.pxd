"""A search for a set of so many nodes.

Here are the conditions it must meet, and the state of the walk that looks for it.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.wide.distance_bound cimport Tree
from alignup.core.wide.family cimport Demand, Description
from alignup.core.wide.limits cimport MOST_DEMANDS, MOST_SOCKET_RULES, MOST_TOUCHING, Budget


cdef struct SocketRule:
    int required                # so many of the sockets must be touched, no more
    int count
    const uint64_t* sockets


cdef struct Walk:
    # The nodes to choose from, ascending; candidate j is the j-th of them.
    int count
    int nodes[64]
    # A set must meet these:
    int demand_count
    const Demand* demands[MOST_DEMANDS]
    int touching_count
    uint64_t touching[MOST_TOUCHING]
    int rule_count
    SocketRule rules[MOST_SOCKET_RULES]
    const int64_t* distances    # 64 x 64, or NULL: value alone decides among sets of equal size
    # Worked out by `prepare`:
    int64_t weights[MOST_DEMANDS][64]       # an upper bound on what candidate j adds
    int64_t* tops                  # [demand][j][r]: the r largest weights among the first j, summed
    uint64_t lower_alike[64]                # candidates before j that are interchangeable with j
    int64_t nearest[64][64]           # [j][r]: the sum of the r smallest distances from candidate j
    Tree tree                               # bounds the distances
    # One walk:
    Budget* budget
    int size
    bint bounded                # distances are bounded; else only summed up
    int64_t target              # sets that cost more are skipped
    int64_t beyond              # the least cost, or bound on it, that was over the target
    bint is_found
    uint64_t best
    # Called with each set that meets everything; returns whether the walk is over.
    bint (*visit)(Walk* walk, uint64_t mask, int64_t cost) noexcept nogil
    uint64_t* collected         # for `collect`
    int64_t room
    int64_t collected_count
    # Optional, for sets that depend on what can be done with the nodes outside; all three or none.
    void* context
    # False: not with those left out before
    bint (*leave_out)(void* context, int candidate) noexcept nogil
    void (*bring_back)(void* context, int candidate) noexcept nogil
    # a bound: False is certain
    bint (*can_leave_out)(void* context, int undecided, int more) noexcept nogil


cdef int add_description(Walk* walk, const Description* description, int size) noexcept nogil
cdef int prepare(Walk* walk, uint64_t universe) noexcept nogil
cdef void weigh(Walk* walk, int demand) noexcept nogil
cdef bint satisfied(const Walk* walk, uint64_t mask) noexcept nogil
cdef int64_t count_vectors(const Walk* walk, int size) noexcept nogil
cdef void finish(Walk* walk) noexcept nogil
cdef bint find_best(Walk* walk, int size, uint64_t base) noexcept nogil
cdef void collect(Walk* walk, int size) noexcept nogil
cdef int smallest_described(const Description* description, Budget* budget) noexcept nogil
