"""The allocation of one container while a pod is tried on a node."""

from alignup.core.amounts.trial cimport Hint, Outcome, Request, Trial


cdef Outcome allocate(Trial* trial, const Request* request, const Hint* hint, bint last) noexcept nogil
cdef int take_repeats(Trial* trial, const Request* request, const Hint* hint, bint by_pod) noexcept nogil
