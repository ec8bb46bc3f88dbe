"""The allocation of one container while a pod is tried on a node."""

from libc.stdint cimport int64_t

from alignup.core.amounts.trial cimport Hint, Outcome, Request, Trial


cdef Outcome allocate(Trial* trial, const Request* request, const Hint* hint, bint last) noexcept nogil
cdef bint can_count_cpus(const Trial* trial, const Request* request, const Hint* hint) noexcept nogil
cdef void count_cpus(Trial* trial, int node, int64_t count, int64_t times) noexcept nogil
