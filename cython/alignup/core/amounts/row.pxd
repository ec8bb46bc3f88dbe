"""The Python class of one node as a cluster sees it."""

from libc.stdint cimport int64_t

from alignup.core.amounts.cpu_ledger cimport CpuLedger
from alignup.core.amounts.memory_ledger cimport MemoryLedger
from alignup.core.amounts.trial cimport NodeRow


cdef class Distances:
    cdef int64_t sums[256]
    cdef int64_t nearest[65]
    cdef readonly int nodes


cdef class Row:
    cdef NodeRow amounts
    cdef readonly CpuLedger cpu
    cdef readonly MemoryLedger memory
    cdef dict ledgers               # nobody else may change it: boards point to what is in it
    cdef readonly Distances distances
