"""The Python classes that own the memory amounts of a machine.

Other compiled modules read them.
"""

from libc.stdint cimport int64_t

from alignup.core.amounts.memory_state cimport (
    MemoryLayout,
    MemoryRequest,
    MemoryState,
    MemoryTaking,
)
from alignup.core.hints cimport HintList


cdef class MemoryCapacity:
    cdef MemoryLayout layout
    cdef readonly tuple types       # names of the types, sorted
    cdef dict numbers               # type name -> its number


cdef class MemoryHolding:
    cdef MemoryTaking taking
    cdef readonly MemoryCapacity capacity
    cdef object released_by         # the token of the ledger that took it back last


cdef class MemoryLedger:
    cdef MemoryState state
    cdef readonly MemoryCapacity capacity
    cdef object token   # of its own, and a new one when it takes over the amounts of another ledger
    cdef readonly dict smallest  # beyond 8 nodes: requests -> how many nodes an empty machine needs
    cdef int own(self, MemoryCapacity capacity) except -1
    cdef HintList wide_hints(self, tuple requests, MemoryRequest* request, object donors)
    cdef list demands(self, const MemoryRequest* request, const int64_t* amounts)
    cdef int read_request(self, tuple requests, MemoryRequest* request) except -1
    cdef MemoryHolding holding_of(self, dict shares)
    cdef int take_back(self, MemoryHolding holding) except -1
