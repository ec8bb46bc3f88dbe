"""One walk over the sets of so many nodes, in the order in which ties are broken, and its bounds."""

from libc.stdint cimport uint64_t

from alignup.core.wide.family cimport Description
from alignup.core.wide.limits cimport Budget
from alignup.core.wide.prepare cimport Walk


cdef bint find_any(Walk* walk, int size) noexcept nogil
cdef bint find_best(Walk* walk, int size, uint64_t base) noexcept nogil
cdef void collect(Walk* walk, int size) noexcept nogil
cdef int smallest_described(const Description* description, Budget* budget) noexcept nogil
