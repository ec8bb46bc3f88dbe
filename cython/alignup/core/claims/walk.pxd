"""The walk over devices, and its state."""

from libc.stdint cimport int32_t, int64_t

from alignup.core.claims.bounds cimport Bounds
from alignup.core.claims.failed_states cimport FailedStates
from alignup.core.claims.state cimport Allocation, Point, Tables


cdef enum Outcome:
    FAILED = 0
    FOUND = 1
    # the claim would have more devices than it may, whatever devices its requests have
    TOO_MANY = 2
    FATAL = 3           # an error of the allocator
    LIMIT = 4
    TOUCHED = 5         # a watched device came to its counters


cdef struct Walk:
    Tables tables
    Allocation allocation
    FailedStates failed
    Bounds bounds
    # What is left out of the walk:
    bint once               # devices that are interchangeable with one that was tried
    bint remembers          # failed states
    bint bounded            # what cannot be served
    # A step over many devices, and one whose bounds are computed, counts more.
    int64_t steps
    int64_t most_steps
    int64_t easy_steps      # taken before bounds are computed, which cost more than a step
    int64_t bounds_computed
    int64_t bounds_helped
    # FATAL: a way and a device that break a constraint, or below 0 the error's number. TOUCHED: the
    # device.
    int32_t fatal_way
    int32_t fatal_device


cdef Outcome walk_from(Walk* walk, Point point) noexcept nogil
