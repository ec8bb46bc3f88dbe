"""What is still asked for, compared with what is left."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from alignup.core.claims.state cimport Allocation, Point, Tables


# Scratch memory.
cdef struct Bounds:
    int32_t* edge               # [requests][classes] devices that the request could have
    int32_t* flow               # [requests][classes] devices that the flow gives it
    int32_t* class_total        # [classes] free devices
    int32_t* class_used         # [classes] of which the flow has given
    uint8_t* class_seen         # [classes] in the current search for one more device
    int64_t* group_total        # [groups] devices that the counters can carry
    int64_t* group_used         # [groups] of which the flow has given
    uint8_t* group_seen         # [groups]
    int64_t* needed             # [families] of counters, at least
    int64_t* usable             # [families]
    int32_t* value_count        # [64 * words of the widest set] devices of each value
    uint64_t* feasible          # [constraints][words] values that a matchAttribute can still have


cdef bint is_hopeless(
    Bounds* bounds, const Tables* tables, const Allocation* allocation, const Point* point
) noexcept nogil
