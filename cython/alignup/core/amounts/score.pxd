"""Scores a placement under a strategy."""

from libc.stdint cimport uint64_t

from alignup.core.amounts.trial cimport NodeRow, PodRequest


cdef enum Strategy:
    LEAST_NUMA_NODES = 0
    LEAST_ALLOCATED = 1
    MOST_ALLOCATED = 2
    BALANCED_ALLOCATION = 3
    DOCUMENT = 4


cdef double score_of(
    const NodeRow* row, const PodRequest* pod, uint64_t mask, bint aligned, int strategy
) noexcept nogil
