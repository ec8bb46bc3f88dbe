"""Find the best set of so many nodes that reaches all demands."""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.wide.distance_bound cimport Tree
from alignup.core.wide.family cimport Demand, Description

cdef enum:
    MOST_DEMANDS = 32
    MOST_TOUCHING = 64
    MOST_SOCKET_RULES = 4


cdef struct SocketRule:
    int wanted
    int count
    const uint64_t* sockets


cdef struct Cover:
    # The nodes to choose from, ascending.
    int count
    int nodes[64]
    int demand_count
    const Demand* demands[MOST_DEMANDS]
    int touching_count
    uint64_t touching[MOST_TOUCHING]
    int rule_count
    SocketRule rules[MOST_SOCKET_RULES]
    const int64_t* distances    # 64 x 64, or NULL: value alone decides among masks of equal size
    # Worked out by `prepare`:
    int64_t weights[MOST_DEMANDS][64]       # an upper bound on what candidate j adds
    int64_t* tops                           # [demand][j][r]: the r largest weights among the first j, summed
    uint64_t lower_alike[64]                # candidates before j that are interchangeable with j
    int64_t nearest[64][64]                 # [j][r]: the sum of the r smallest distances from candidate j
    Tree tree                               # bounds the distances
    # The search itself:
    int size
    int64_t target              # sets that cost more are not looked for
    int64_t beyond              # the least bound that was over the target
    bint improving              # each set found lowers the target, and the search goes on
    int64_t steps
    bint found
    uint64_t best
    int64_t best_cost
    # Collecting: every set found is kept here, in ascending order, until there is no room.
    uint64_t* collected
    int64_t room
    int64_t collected_count
    # Asked about each set that would be the best so far, if given; a set that is not accepted is passed over.
    bint (*accept)(void* context, uint64_t mask) noexcept nogil
    void* context


cdef int add_description(Cover* cover, const Description* description, int size) noexcept nogil
cdef int prepare(Cover* cover, uint64_t universe) noexcept nogil
cdef void weigh(Cover* cover, int demand) noexcept nogil
cdef bint find(Cover* cover, int size, uint64_t base, bint any_will_do) noexcept nogil
cdef void finish(Cover* cover) noexcept nogil
cdef bint satisfied(const Cover* cover, uint64_t mask) noexcept nogil
cdef int smallest_described(const Description* description, int64_t* steps) noexcept nogil
