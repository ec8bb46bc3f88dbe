"""The requests of a container as a judgement reads them."""

from alignup.core.amounts.trial cimport Request


cdef int read_request(Request* request, tuple asked, list types, list resources) except -1
cdef void add_request(Request* total, const Request* request) noexcept nogil
