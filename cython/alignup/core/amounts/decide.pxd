"""The decision of a Topology Manager policy on one request."""

from alignup.core.amounts.trial cimport Hint, Outcome, Request, Trial


cdef Outcome decide(const Trial* trial, const Request* request, Hint* hint) noexcept nogil
