"""What a search over more than 8 NUMA nodes may take; one that hits any of these is never called exact."""


cdef enum:
    # Steps of one merge, folding included. A step decides one node one way, or ANDs two masks: 5 million take
    # well under a second, which is longer than an admission should and shorter than anybody waits in vain.
    SEARCH_STEPS = 5000000
