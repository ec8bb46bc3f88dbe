"""Describes the offers of a node's providers for one request, by amounts."""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.memory_state cimport MemoryRequest
from alignup.core.amounts.trial cimport MOST_RESOURCES, Request, Trial
from alignup.core.bits cimport WIDEST
from alignup.core.narrow.family cimport Family


cdef enum:
    MOST_OFFERS = 1 + MOST_RESOURCES + 8


cdef struct Offer:
    # One list of hints. If `by_node`, its masks are exactly those within the universe whose amounts suffice.
    bint by_node
    const int64_t* amounts          # [nodes] the node's own, or those below
    int64_t counted[WIDEST]
    int64_t request
    uint64_t universe
    int size                        # how many nodes a preferred mask has; 0: more than 8 would have to be searched
    int sockets                     # masks that touch exactly so many sockets are preferred too; -1: no such rule
    uint64_t singles                # the nodes that suffice alone
    uint64_t preferred_singles
    int resource                    # of the pod's device resources; -1: CPUs


cdef struct Offers:
    int count                       # without memory's
    Offer offer[1 + MOST_RESOURCES]
    bint spoiled                    # some list is empty: nothing is preferred
    bint has_memory                 # the memory manager offers some mask, the same ones for each type
    MemoryRequest memory
    int memory_size
    uint64_t memory_singles


cdef void collect_offers(const Trial* trial, const Request* request, Offers* offers) noexcept nogil
cdef int families_of(const Trial* trial, const Request* request, const Offers* offers, Family* families) noexcept nogil
