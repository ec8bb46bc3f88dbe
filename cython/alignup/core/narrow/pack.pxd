"""Packing of masks that were kept one byte each into a family of 256 bits."""

from libc.stdint cimport uint8_t
from libc.string cimport memset

from alignup.core.narrow.family cimport Family


cdef inline void start_keeping(uint8_t* keeps, int size) noexcept nogil:
    """Keep every mask below `size`; `keeps` is 8 long at least, and 0 past its size."""
    memset(keeps, 0, 8)
    memset(keeps, 1, size)


cdef bint pack_family(Family* family, const uint8_t* keeps, int size, int preferred_size) noexcept nogil
