"""The Python classes that own the devices of one resource.

Other compiled modules read them.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.device_allocation cimport DeviceLayout, DeviceState
from alignup.core.hints cimport HintList


cdef class DeviceInventory:
    cdef DeviceLayout layout
    cdef char* block
    cdef uint64_t last_word         # the devices that the last word of a set can hold
    cdef void sort_by_place(self, list places)
    cdef void sum_largest(self)


cdef class DeviceLedger:
    cdef DeviceState state
    cdef readonly DeviceInventory inventory
    cdef int read_set(self, object devices, uint64_t* words) except -1
    cdef object advised(self, object advise, object choice, object chosen, int64_t request)
    cdef int mark(self, object devices, bint give) except -1
    cdef object set_of(self, const uint64_t* words)
    cdef HintList wide_hints(self, list counts, object reusable, int64_t request)
    cdef int own(self, DeviceInventory inventory) except -1


cdef object read_words(const uint64_t* words, int count)
