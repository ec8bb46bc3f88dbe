"""The merge of offers that are described by amounts, without listing their masks."""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.trial cimport Offers, Trial
from alignup.core.narrow.merge cimport Best


cdef bint can_merge_amounts(const Trial* trial, const Offers* offers) noexcept nogil
cdef int common_size(const Offers* offers) noexcept nogil
cdef uint64_t common_mask(
    const Trial* trial, const Offers* offers, int size, const int64_t* distances
) noexcept nogil
cdef bint reach_best(
    const Trial* trial, const Offers* offers, const int64_t* distances, Best* best
) noexcept nogil
