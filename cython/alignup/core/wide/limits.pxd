"""The limits of a search over more than 8 NUMA nodes.

A search that hits any of them is never called exact.
"""

from libc.stdint cimport int64_t


cdef enum:
    # The budget of one merge. A step decides one node one way in a walk, about 0.1 us; 5 million
    # take about half a second, far more than any machine was seen to need and no more than a caller
    # would wait for.
    SEARCH_STEPS = 5000000
    # A step of the budget pays for so many ANDs of listed masks, each of which takes a few
    # nanoseconds.
    ANDS_A_STEP = 16
    # So many distinct masks of a fold are kept for the next list: 16 MB with their hash table.
    MOST_FOLDED = 1000000
    # Preparing a partition (classes, weights, their order) costs as much: tens of microseconds.
    PARTITION_STEPS = 500
    # Where distances count and there are no more vectors of counts than this, they are all looked
    # at: some 10 ms. Among more of them the bounds on the distances are quicker.
    MOST_VECTORS = 20000
    # A lower bound on the distances, one pass over the tree of all nodes, costs as much as so many
    # decisions.
    BOUND_STEPS = 16
    # The nearest set is looked for under so many bounds that rise to the next possible cost; then
    # sets are improved.
    MOST_TARGETS = 4
    # Always left for improving, so that some set is found even when the bounds took everything.
    IMPROVING_STEPS = 10000
    # Sets are listed for a sample in so many steps at most.
    SAMPLE_STEPS = 20000000
    # Lists of more kinds of choices than this are not counted.
    MOST_CHOICES = 1000000
    # Fixed room: demands of all lists together, masks that must be touched, rules about sockets,
    # described lists.
    MOST_DEMANDS = 32
    MOST_TOUCHING = 64
    MOST_SOCKET_RULES = 4
    MOST_PARTS = 16


cdef struct Budget:
    int64_t steps       # what is left
    # something was not looked at for want of steps or room: the answer may not be the best
    bint cut
