"""The Python classes that judge the nodes of a cluster."""

from libc.stdint cimport int16_t, int64_t, uint32_t, uint64_t

from alignup.core.amounts.alike cimport JudgementCache
from alignup.core.amounts.changes cimport Changes
from alignup.core.amounts.cpu_ledger cimport CpuLedger
from alignup.core.amounts.device_allocation cimport DeviceState
from alignup.core.amounts.judge cimport Room
from alignup.core.amounts.memory_ledger cimport MemoryLedger
from alignup.core.amounts.trial cimport NodeRow, PodRequest


cdef enum ResourceKind:
    KIND_CPU = 0
    KIND_MEMORY = 1
    KIND_DEVICE = 2
    KIND_UNKNOWN = 3        # no node has it


cdef struct Resource:
    ResourceKind kind
    int number              # of the cluster, among the types of memory or the device resources
    bint allocatable        # allocatable amounts, instead of free ones


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
    cdef Changes changes


cdef class Board:
    cdef NodeRow* rows
    cdef Room room
    cdef int16_t* type_of
    cdef const DeviceState** states
    cdef uint64_t* node_states      # [rows] see `alignup.core.amounts.alike`
    cdef uint64_t state_count
    cdef list row_objects
    cdef dict type_numbers
    cdef dict resource_numbers
    cdef Py_ssize_t row_count
    cdef int type_room
    cdef int resource_room
    cdef int number_names(self, Row row) except -1
    cdef int lay_out(self) except -1
    cdef void write_row(self, Py_ssize_t index, Row row)
    cdef bint is_answered(self, const JudgementCache* cache, Py_ssize_t node) noexcept nogil
    cdef uint32_t state_of(self, Py_ssize_t node, Py_ssize_t twin) noexcept nogil
    cdef Resource resource_named(self, str name, bint allocatable)


cdef class Job:
    cdef PodRequest pod
    cdef readonly Board board
    cdef readonly int policy
    cdef list requests              # as they were given
    cdef Py_ssize_t names           # types and resources that the board knew when they were read
    cdef int renumber(self) except -1
    cdef int read_pod(self, list requests) except -1
