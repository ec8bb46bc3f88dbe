"""The decision of a Topology Manager policy on one request."""

from alignup.core.amounts.offers cimport Offers
from alignup.core.amounts.trial cimport Hint, Outcome, Request, Trial


cdef bint all_prefer_singles(const Offers* offers) noexcept nogil
cdef Outcome decide(const Trial* trial, const Request* request, Offers* offers, Hint* hint) noexcept nogil
