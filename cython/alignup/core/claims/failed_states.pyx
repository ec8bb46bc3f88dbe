"""Remember the states from which a walk has failed: one that failed once fails again.

What is left to search depends on how many devices of each class are free, not on which; on the
constraints of the current claim, on counters, and on what the devices have left of which there are
shares.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from alignup.core.claims.state cimport Allocation, Point, Tables, set_of


# Keys

cdef Py_ssize_t longest_key(const Tables* tables) noexcept nogil:
    """Return the words of the longest key."""
    cdef Py_ssize_t constraints = tables.constraints

    return (
        2
        + 2 * tables.classes
        + 2 * tables.devices
        + tables.rooms
        + tables.counters
        + constraints
        + tables.word_start[constraints]
    )


cdef Py_ssize_t make_key(
    FailedStates* failed, const Tables* tables, const Allocation* allocation, const Point* point
) noexcept nogil:
    """Write what the rest of the walk depends on; return its length."""
    cdef int64_t* key = failed.key
    cdef Py_ssize_t length = 2
    cdef Py_ssize_t started = count_devices(failed, tables, allocation, point)
    cdef Py_ssize_t kind
    cdef Py_ssize_t place

    key[0] = point.way
    key[1] = point.count | (
        <int64_t>allocation.claim_count[point.claim] << 32 if tables.may_overflow else 0
    )
    for kind in range(tables.classes):
        if tables.class_last[kind] < point.request:
            continue

        # later requests may have devices in front of `start`, this one may not
        key[length] = failed.tail[kind]
        if tables.class_last[kind] > point.request:
            key[length] |= <int64_t>failed.free[kind] << 20

        length += 1
        if point.request <= tables.admin_last:
            key[length] = failed.claimed[kind]
            length += 1

    length += write_constraints(key + length, tables, allocation, point)
    for place in range(tables.counters):
        if tables.counter_last[place] >= point.request:
            key[length] = allocation.remaining[place]
            length += 1

    sort_started(failed, started, tables, allocation, point.start)
    return length + write_started(key + length, failed, started, tables, allocation, point.start)


cdef Py_ssize_t count_devices(
    FailedStates* failed, const Tables* tables, const Allocation* allocation, const Point* point
) noexcept nogil:
    """Count the devices of each class that still matter.

    List those of which there are shares, and return how many.
    """
    cdef Py_ssize_t device, kind, started = 0

    memset(failed.tail, 0, tables.classes * sizeof(int32_t))
    memset(failed.free, 0, tables.classes * sizeof(int32_t))
    memset(failed.claimed, 0, tables.classes * sizeof(int32_t))
    for device in range(tables.devices):
        kind = tables.class_of[device]
        if tables.class_last[kind] < point.request:
            continue

        if tables.is_shareable[device] and allocation.shares[device] > 0:
            failed.started[started] = <int32_t>device
            started += 1
        elif allocation.marks[device] == 0:
            failed.free[kind] += 1
            failed.tail[kind] += device >= point.start
        elif not (allocation.marks[device] >> point.claim) & 1:
            # those with admin access may have what earlier claims hold
            failed.claimed[kind] += 1 if device < point.start else 0x10000

    return started


cdef Py_ssize_t write_constraints(
    int64_t* key, const Tables* tables, const Allocation* allocation, const Point* point
) noexcept nogil:
    """Write what the constraints of the current claim have come to.

    Return how many words that are.
    """
    cdef Py_ssize_t constraint, word, length = 0

    for constraint in range(
        tables.first_constraint[point.claim], tables.first_constraint[point.claim + 1]
    ):
        if tables.constraint_last[constraint] < point.request:
            continue

        key[length] = allocation.depth[constraint] > 0
        length += 1
        if allocation.depth[constraint] > 0:
            for word in range(tables.words[constraint]):
                key[length] = <int64_t>set_of(tables, allocation, constraint)[word]
                length += 1

    return length


cdef Py_ssize_t write_started(
    int64_t* key,
    const FailedStates* failed,
    Py_ssize_t count,
    const Tables* tables,
    const Allocation* allocation,
    Py_ssize_t start,
) noexcept nogil:
    """Write what is used of the devices of which there are shares.

    Return how many words that are.
    """
    cdef Py_ssize_t device, place, rooms, length = 0

    for place in range(count):
        device = failed.started[place]
        rooms = tables.room_start[device + 1] - tables.room_start[device]
        key[length] = <int64_t>tables.class_of[device] << 1 | (device >= start)
        memcpy(
            key + length + 1, allocation.used + tables.room_start[device], rooms * sizeof(int64_t)
        )
        length += 1 + rooms
    return length


cdef void sort_started(
    FailedStates* failed,
    Py_ssize_t count,
    const Tables* tables,
    const Allocation* allocation,
    Py_ssize_t start,
) noexcept nogil:
    """Bring shared devices into an order that does not depend on which of a class they are."""
    cdef Py_ssize_t place, slot
    cdef int32_t device

    for place in range(1, count):
        device = failed.started[place]
        slot = place
        while (
            slot > 0 and comes_before(tables, allocation, device, failed.started[slot - 1], start)
        ):
            failed.started[slot] = failed.started[slot - 1]
            slot -= 1
        failed.started[slot] = device


cdef bint comes_before(
    const Tables* tables,
    const Allocation* allocation,
    Py_ssize_t device,
    Py_ssize_t rival,
    Py_ssize_t start,
) noexcept nogil:
    """Order shared devices by class, place and what is used of them."""
    cdef Py_ssize_t room
    cdef const int64_t* first = allocation.used + tables.room_start[device]
    cdef const int64_t* second = allocation.used + tables.room_start[rival]

    if tables.class_of[device] != tables.class_of[rival]:
        return tables.class_of[device] < tables.class_of[rival]
    if (device >= start) != (rival >= start):
        return rival >= start
    for room in range(tables.room_start[device + 1] - tables.room_start[device]):
        if first[room] != second[room]:
            return first[room] < second[room]
    return False


cdef uint64_t mixed(const int64_t* words, Py_ssize_t count) noexcept nogil:
    """Return a digest; equal digests are compared in full."""
    cdef uint64_t digest = 0x9E3779B97F4A7C15
    cdef Py_ssize_t place
    for place in range(count):
        digest = (digest ^ <uint64_t>words[place]) * <uint64_t>0xFF51AFD7ED558CCD
        digest ^= digest >> 32
    return digest


# States

cdef bint has_failed(
    FailedStates* failed,
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    uint64_t* digest,
) noexcept nogil:
    """Return whether the walk has failed from such a state; the digest is for `note_failure`."""
    cdef Py_ssize_t slot, place, length = make_key(failed, tables, allocation, point)

    digest[0] = mixed(failed.key, length)
    if not failed.slot_count:
        return False

    slot = <Py_ssize_t>(digest[0] & <uint64_t>(failed.slot_count - 1))
    while failed.slots[slot]:
        place = failed.slots[slot] - 1
        if (
            <uint64_t>failed.keys[place] == digest[0]
            and failed.keys[place + 1] == length
            and memcmp(failed.keys + place + 2, failed.key, length * sizeof(int64_t)) == 0
        ):
            return True

        slot = (slot + 1) & (failed.slot_count - 1)

    return False


cdef void note_failure(
    FailedStates* failed,
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    uint64_t digest,
) noexcept nogil:
    """Keep a failed state; where there is no memory for it, the walk is only slower."""
    # made again: the walk from here has made other keys since
    cdef Py_ssize_t place = failed.used, length = make_key(failed, tables, allocation, point)

    if not (has_room_for(failed, length + 2) and has_slot(failed)):
        return

    failed.keys[place] = <int64_t>digest
    failed.keys[place + 1] = length
    memcpy(failed.keys + place + 2, failed.key, length * sizeof(int64_t))
    failed.used += length + 2
    failed.states += 1

    enter(failed, place)


cdef void enter(FailedStates* failed, Py_ssize_t place) noexcept nogil:
    """Let the table find a key."""
    cdef Py_ssize_t slot = <Py_ssize_t>(
        <uint64_t>failed.keys[place] & <uint64_t>(failed.slot_count - 1)
    )
    while failed.slots[slot]:
        slot = (slot + 1) & (failed.slot_count - 1)
    failed.slots[slot] = place + 1


cdef bint has_room_for(FailedStates* failed, Py_ssize_t words) noexcept nogil:
    """Return whether there is room for more words of keys, made where there was none."""
    cdef Py_ssize_t size = failed.room
    cdef void* block

    while failed.used + words > size:
        size = 2 * size if size else 1 << 12

    if size == failed.room:
        return True
    if size > failed.most_room:
        return False

    block = realloc(failed.keys, size * sizeof(int64_t))
    if block == NULL:
        return False

    failed.keys = <int64_t*>block
    failed.room = size
    return True


cdef bint has_slot(FailedStates* failed) noexcept nogil:
    """Return whether the table has a slot for one more state and stays at most half full.

    Make it larger for that.
    """
    cdef Py_ssize_t size = 2 * failed.slot_count if failed.slot_count else 1 << 10, place = 0
    cdef Py_ssize_t* slots

    if 2 * (failed.states + 1) <= failed.slot_count:
        return True

    slots = <Py_ssize_t*>calloc(size, sizeof(Py_ssize_t))
    if slots == NULL:
        return False

    free(failed.slots)
    failed.slots = slots
    failed.slot_count = size
    while place < failed.used:
        enter(failed, place)
        place += failed.keys[place + 1] + 2

    return True


cdef void drop_states(FailedStates* failed) noexcept nogil:
    """Free the memory of the states."""
    free(failed.keys)
    free(failed.slots)
