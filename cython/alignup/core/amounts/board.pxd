"""The Python classes that judge the nodes of a cluster."""

from libc.stdint cimport int16_t

from alignup.core.amounts.devices cimport DeviceState
from alignup.core.amounts.judge cimport Room
from alignup.core.amounts.node_amounts cimport Resource
from alignup.core.amounts.row cimport Row
from alignup.core.amounts.trial cimport NodeRow, PodRequest


cdef class Board:
    cdef NodeRow* rows
    cdef Room room
    cdef int16_t* type_of
    cdef const DeviceState** states
    cdef list kept
    cdef dict type_numbers
    cdef dict resource_numbers
    cdef Py_ssize_t row_count
    cdef int type_room
    cdef int resource_room
    cdef int number_names(self, Row row) except -1
    cdef int lay_out(self) except -1
    cdef void write_row(self, Py_ssize_t index, Row row)
    cdef Resource resource_named(self, str name, bint allocatable)


cdef class Job:
    cdef PodRequest pod
    cdef readonly Board board
    cdef readonly int policy
    cdef list requests              # as they were given
    cdef Py_ssize_t names           # types and resources that the board knew when they were read
    cdef int renumber(self) except -1
    cdef int read_pod(self, list requests) except -1
