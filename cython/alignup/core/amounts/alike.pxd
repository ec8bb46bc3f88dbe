"""The placement of several containers of a pod that ask for the same."""

from alignup.core.amounts.offers cimport Offers
from alignup.core.amounts.trial cimport Answer, Hint, Request, Trial


cdef bint can_place_alike(const Trial* trial, const Request* request, const Hint* hint) noexcept nogil
cdef int place_alike(
    Trial* trial, const Request* request, const Offers* offers, const Hint* hint, bint final, Answer* answer
) noexcept nogil
cdef int repeat_sums(Trial* trial, const Request* request) noexcept nogil
