"""The Python classes that own the CPUs of one machine.

Other compiled modules read them.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.cpu_allocation cimport CpuLayout, CpuState
from alignup.core.cpu.groups cimport CpuGroups
from alignup.core.cpu.topology cimport CpuTopology
from alignup.core.hints cimport HintList


cdef class CpuCapacity:
    cdef CpuLayout layout
    cdef char* block
    cdef CpuGroups counted          # the groups of a machine of which only counts are known: none
    cdef readonly CpuTopology topology
    cdef int make_room(self, int words, int nodes, int sockets) except -1
    cdef int read_counts(self, tuple sockets) except -1
    cdef void sum_largest(self)


cdef class CpuLedger:
    cdef CpuState state
    cdef readonly CpuCapacity capacity
    cdef int own(self, CpuCapacity capacity) except -1
    cdef HintList hints_of(self, const int64_t* amounts, uint64_t must, int64_t request)
    cdef int mark(self, object cpus, bint give) except -1
