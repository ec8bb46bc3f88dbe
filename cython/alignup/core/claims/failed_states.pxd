"""The states from which a walk has failed."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from alignup.core.claims.state cimport Allocation, Point, Tables


cdef struct FailedStates:
    # A key: what the rest of the walk depends on.
    int64_t* key
    int32_t* tail               # [classes] free devices that the request may still have
    int32_t* free               # [classes] free devices
    int32_t* claimed            # [classes] devices that earlier claims hold
    int32_t* started            # [devices] those of which the walk has shares
    # Keys, each behind its digest and its length, and a table of where they are: place + 1, 0 for
    # none.
    int64_t* keys
    Py_ssize_t used
    Py_ssize_t room
    Py_ssize_t most_room
    Py_ssize_t* slots
    Py_ssize_t states
    Py_ssize_t slot_count


cdef Py_ssize_t longest_key(const Tables* tables) noexcept nogil
cdef bint has_failed(
    FailedStates* failed,
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    uint64_t* digest,
) noexcept nogil
cdef void note_failure(
    FailedStates* failed,
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    uint64_t digest,
) noexcept nogil
cdef void drop_states(FailedStates* failed) noexcept nogil
