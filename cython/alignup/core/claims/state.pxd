"""What claims ask for, and what a search has taken for them.

These are plain structs, and what every step asks of them.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef enum:
    MOST_RESULTS = 32       # devices of a claim
    # Why a matching device cannot be had by a way:
    BLOCKED = 1             # it is tainted, or its counters are overdrawn
    FULL = 2                # it has too little capacity


# The question. Devices, ways, requests, claims, constraints and counters are counted from 0, in the
# allocator's order.
cdef struct Tables:
    Py_ssize_t devices
    Py_ssize_t ways                 # to serve a request: the request itself, or its alternatives
    Py_ssize_t requests
    Py_ssize_t claims
    Py_ssize_t constraints
    Py_ssize_t counters
    Py_ssize_t families             # of counters of one name
    Py_ssize_t classes              # of interchangeable devices
    Py_ssize_t groups               # of classes that take from the same counters
    Py_ssize_t rooms                # capacities of all shareable devices
    # requests
    const int32_t* first_request    # [claims + 1]
    const int32_t* first_way        # [requests + 1]
    const int32_t* claim_of         # [requests]
    const uint8_t* has_alternatives     # [requests]
    # ways
    const int32_t* request_of       # [ways]
    const int32_t* counts           # [ways] devices that are asked for
    const uint8_t* is_admin         # [ways] devices are looked at without being held
    const uint8_t* is_all           # [ways] allocation mode All
    const int32_t* all_start        # [ways + 1] in `all_devices`
    const int32_t* all_devices
    const int32_t* matches          # [ways][devices] 0: no, 1: yes, below 0: an error
    const uint8_t* flags            # [ways][devices] BLOCKED, FULL
    const int64_t* needs            # [ways][rooms] what a share takes
    # devices
    const uint8_t* is_taken         # [devices] somebody has it
    const uint8_t* is_watched       # [devices] the walk ends where it comes to its counters
    const uint8_t* is_shareable     # [devices]
    const uint8_t* is_shared       # [devices] somebody has a share of it, and has paid its counters
    const int32_t* room_start       # [devices + 1] in `room`
    const int64_t* room             # [rooms] what is left of a capacity at the start
    const int32_t* use_start        # [devices + 1] in `use_counter` and `use_amount`
    const int32_t* use_counter
    const int64_t* use_amount
    const int32_t* class_of         # [devices]
    const int32_t* previous         # [devices] the one of its class before it; -1: none
    # counters, and what takes from them
    const int32_t* family_of        # [counters]
    const int32_t* user_start       # [counters + 1] in `user_device` and `user_amount`
    const int32_t* user_device
    const int64_t* user_amount
    const int32_t* group_of         # [classes] -1: none
    const int32_t* least_start      # [groups + 1] in `least_counter` and `least_amount`
    const int32_t* least_counter
    const int64_t* least_amount     # what every device of the group takes at least, never 0
    # constraints
    const int32_t* first_constraint     # [claims + 1]
    const uint8_t* is_distinct      # [constraints] distinctAttribute; else matchAttribute
    const uint8_t* covers           # [constraints][ways]
    const int32_t* words            # [constraints] of a set of its values
    const Py_ssize_t* word_start    # [constraints + 1] of one set for each constraint
    const uint64_t* values          # [constraints][devices][words]
    # [constraints][devices] its values are a list, which can only come first
    const uint8_t* is_alone
    # [constraints][devices] below 0: an error, where the constraint would look at the device
    const int32_t* faults
    # The last request for which each of these matters; -1: none.
    const int32_t* class_last
    const int32_t* constraint_last
    const int32_t* counter_last
    Py_ssize_t admin_last           # the last request that may be served with admin access
    bint may_overflow               # a claim may come to more than MOST_RESULTS devices
    bint forgets                    # distinctAttribute as 1.36 has it


# What the walk has taken so far.
cdef struct Allocation:
    uint64_t* marks                 # [devices] the claims that have it, as bits
    int32_t* shares                 # [devices]
    int64_t* used                   # [rooms] of capacities
    int64_t* remaining              # [counters]
    int32_t* depth                  # [constraints] devices that were added to it
    uint64_t* sets            # [constraints][MOST_RESULTS + 2][words] what it had come to, by depth
    int32_t* last_device            # [constraints][requests] the last of each request; -1: none
    int32_t* claim_count            # [claims + 1] devices
    int32_t* result_way             # [results]
    int32_t* result_device          # [results]
    int32_t results


# Where a walk is.
cdef struct Point:
    Py_ssize_t claim
    Py_ssize_t request
    Py_ssize_t way                  # chosen for the request; -1: none yet
    Py_ssize_t count                # devices that the request has
    Py_ssize_t start                # the first device that may come next


cdef inline const uint64_t* values_of(
    const Tables* tables, Py_ssize_t constraint, Py_ssize_t device
) noexcept nogil:
    """Return the values that a constraint sees on a device."""
    return (
        tables.values
        + tables.word_start[constraint] * tables.devices
        + device * tables.words[constraint]
    )


cdef inline uint64_t* set_of(
    const Tables* tables, const Allocation* allocation, Py_ssize_t constraint
) noexcept nogil:
    """Return what a constraint has come to: the values in common, or those that are taken."""
    return (
        allocation.sets
        + tables.word_start[constraint] * (MOST_RESULTS + 2)
        + allocation.depth[constraint] * tables.words[constraint]
    )


cdef inline bint has_counters(
    const Tables* tables, const Allocation* allocation, Py_ssize_t device
) noexcept nogil:
    """Return whether the counters have what a device takes; of a shared device they are paid."""
    cdef Py_ssize_t place
    if tables.is_shareable[device] and (tables.is_shared[device] or allocation.shares[device] > 0):
        return True
    for place in range(tables.use_start[device], tables.use_start[device + 1]):
        if tables.use_amount[place] > allocation.remaining[tables.use_counter[place]]:
            return False
    return True


cdef inline bint has_room(
    const Tables* tables, const Allocation* allocation, Py_ssize_t way, Py_ssize_t device
) noexcept nogil:
    """Return whether a device has the capacities for a share.

    One that is not shareable has none.
    """
    cdef Py_ssize_t place
    cdef const int64_t* need = tables.needs + way * tables.rooms
    for place in range(tables.room_start[device], tables.room_start[device + 1]):
        if allocation.used[place] + need[place] > tables.room[place]:
            return False
    return True
