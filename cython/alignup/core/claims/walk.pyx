"""Walk over the devices of claims in the allocator's order.

That is claim by claim, request by request, way by way.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp

from alignup.core.claims.bounds cimport is_hopeless
from alignup.core.claims.failed_states cimport has_failed, note_failure
from alignup.core.claims.state cimport (
    BLOCKED,
    FULL,
    MOST_RESULTS,
    Allocation,
    Point,
    Tables,
    has_counters,
    has_room,
    set_of,
    values_of,
)

cdef enum:
    SAMPLE = 256    # how often bounds are computed before it is judged whether they help
    SELDOM = 16

cdef enum Taking:
    REFUSED
    TAKEN
    BROKEN          # a constraint refused the device
    FAULTY          # the allocator failed over an attribute of the device
    WATCHED


# Walking

cdef Outcome walk_from(Walk* walk, Point point) noexcept nogil:
    """Go on from a point.

    What was taken there is given back, unless a solution was found or the walk is over.
    """
    cdef const Tables* tables = &walk.tables
    cdef Outcome outcome

    walk.steps += 1
    if walk.steps > walk.most_steps:
        return LIMIT
    if point.claim == tables.claims:
        return FOUND

    if point.request == tables.first_request[point.claim + 1]:
        outcome = walk_from(walk, Point(point.claim + 1, point.request, -1, 0, 0))
        return FAILED if outcome == TOO_MANY else outcome

    if point.way < 0:
        if tables.has_alternatives[point.request]:
            return walk_alternatives(walk, &point)

        point.way = tables.first_way[point.request]

    if tables.is_all[point.way] and tables.counts[point.way] == 0:
        return FAILED
    if point.count >= tables.counts[point.way]:
        return walk_from(walk, Point(point.claim, point.request + 1, -1, 0, 0))
    if (
        tables.counts[point.way] - point.count
        > MOST_RESULTS - walk.allocation.claim_count[point.claim]
    ):
        return TOO_MANY

    return take_next_of_all(walk, &point) if tables.is_all[point.way] else take_any(walk, &point)


cdef Outcome walk_alternatives(Walk* walk, const Point* point) noexcept nogil:
    """Try the ways of a request in order; they are too many where each of them is."""
    cdef Outcome outcome, result = TOO_MANY
    cdef Py_ssize_t way

    for way in range(
        walk.tables.first_way[point.request], walk.tables.first_way[point.request + 1]
    ):
        outcome = walk_from(walk, Point(point.claim, point.request, way, 0, 0))
        if outcome != TOO_MANY and outcome != FAILED:
            return outcome
        if outcome == FAILED:
            result = FAILED
    return result


cdef Outcome take_next_of_all(Walk* walk, const Point* point) noexcept nogil:
    """Take the next device of allocation mode All, which must be had."""
    cdef int32_t device = walk.tables.all_devices[walk.tables.all_start[point.way] + point.count]
    cdef Taking taking = take(walk, point, device)
    cdef Outcome outcome

    if taking == WATCHED:
        return TOUCHED

    if taking == FAULTY:
        return FATAL

    if taking == BROKEN:
        walk.fatal_way = <int32_t>point.way
        walk.fatal_device = device
        return FATAL

    if taking == REFUSED:
        return FAILED

    outcome = walk_from(walk, Point(point.claim, point.request, point.way, point.count + 1, 0))
    if outcome != FOUND:
        give_back(&walk.tables, &walk.allocation, point, device)

    return outcome


cdef Outcome take_any(Walk* walk, const Point* point) noexcept nogil:
    """Try the devices that may come next in ascending order, unless that is known to fail."""
    cdef const Tables* tables = &walk.tables
    cdef uint64_t digest = 0
    cdef Outcome outcome

    walk.steps += tables.devices >> 5
    if walk.remembers and has_failed(&walk.failed, tables, &walk.allocation, point, &digest):
        return FAILED

    if is_worth_bounding(walk):
        walk.bounds_computed += 1
        walk.steps += (tables.requests - point.request) * tables.devices >> 3
        if is_hopeless(&walk.bounds, tables, &walk.allocation, point):
            walk.bounds_helped += 1
            return FAILED

    outcome = try_devices(walk, point)
    if outcome == FAILED and walk.remembers:
        note_failure(&walk.failed, tables, &walk.allocation, point, digest)

    return outcome


cdef inline bint is_worth_bounding(const Walk* walk) noexcept nogil:
    """Return whether to compute bounds: late, and seldom where they did not help so far."""
    return (
        walk.bounded
        and walk.steps > walk.easy_steps
        and (
            walk.bounds_computed < SAMPLE
            or SELDOM * walk.bounds_helped > walk.bounds_computed
            or walk.steps % SELDOM == 0
        )
    )


cdef Outcome try_devices(Walk* walk, const Point* point) noexcept nogil:
    """Try the devices that may come next in ascending order."""
    cdef const Tables* tables = &walk.tables
    cdef const Allocation* allocation = &walk.allocation
    cdef Py_ssize_t device
    cdef int32_t match
    cdef Taking taking
    cdef Outcome outcome

    for device in range(point.start, tables.devices):
        match = tables.matches[point.way * tables.devices + device]
        if match == 0 or not is_open(tables, allocation, point, device):
            continue

        if match < 0:
            walk.fatal_way = match
            return FATAL

        if (
            not has_room(tables, allocation, point.way, device)
            or (walk.once and was_tried(tables, allocation, point, device))
        ):
            continue

        taking = take(walk, point, device)
        if taking == WATCHED:
            return TOUCHED
        if taking == FAULTY:
            return FATAL
        if taking != TAKEN:
            continue

        outcome = walk_from(
            walk, Point(point.claim, point.request, point.way, point.count + 1, device + 1)
        )
        if outcome == FOUND:
            return FOUND

        give_back(tables, &walk.allocation, point, device)
        if outcome != FAILED:
            return outcome

    return FAILED


cdef bint was_tried(
    const Tables* tables, const Allocation* allocation, const Point* point, Py_ssize_t device
) noexcept nogil:
    """Return whether an interchangeable device in the same state came before."""
    cdef Py_ssize_t twin = tables.previous[device]
    while twin >= point.start:
        if is_alike(tables, allocation, point.claim, device, twin):
            return True
        twin = tables.previous[twin]
    return False


cdef inline bint is_alike(
    const Tables* tables,
    const Allocation* allocation,
    Py_ssize_t claim,
    Py_ssize_t device,
    Py_ssize_t twin,
) noexcept nogil:
    """Return whether two devices of one class are in the same state."""
    cdef Py_ssize_t rooms = tables.room_start[device + 1] - tables.room_start[device]

    if not tables.is_shareable[device]:
        return (
            (allocation.marks[device] != 0) == (allocation.marks[twin] != 0)
            and not (allocation.marks[twin] >> claim) & 1
        )

    return (
        (allocation.shares[device] > 0) == (allocation.shares[twin] > 0)
        and memcmp(
            allocation.used + tables.room_start[device],
            allocation.used + tables.room_start[twin],
            rooms * sizeof(int64_t),
        )
        == 0
    )


# Taking a device, and giving it back

cdef bint is_open(
    const Tables* tables, const Allocation* allocation, const Point* point, Py_ssize_t device
) noexcept nogil:
    """Return whether a device is not in use, as far as that matters to a way."""
    if tables.is_admin[point.way]:
        return not (allocation.marks[device] >> point.claim) & 1
    return not tables.is_taken[device] and not allocation.marks[device]


cdef Taking take(Walk* walk, const Point* point, Py_ssize_t device) noexcept nogil:
    """Take a device, unless it is refused; the order of these checks is the allocator's."""
    cdef const Tables* tables = &walk.tables
    cdef Allocation* allocation = &walk.allocation
    cdef Py_ssize_t constraint, end = tables.first_constraint[point.claim + 1]
    cdef int flags = tables.flags[point.way * tables.devices + device]
    cdef int32_t fault

    if not is_open(tables, allocation, point, device):
        return REFUSED

    if tables.is_watched[device] and pays_counters(tables, allocation, device):
        walk.fatal_device = <int32_t>device
        return WATCHED

    if flags & BLOCKED or not has_counters(tables, allocation, device):
        return REFUSED

    for constraint in range(tables.first_constraint[point.claim], end):
        if not tables.covers[constraint * tables.ways + point.way]:
            continue

        fault = tables.faults[constraint * tables.devices + device]
        if fault < 0:
            walk.fatal_way = fault
            remove_from_constraints(tables, allocation, point, constraint)
            return FAULTY

        if not add_to(tables, allocation, constraint, point.way, device):
            remove_from_constraints(tables, allocation, point, constraint)
            return BROKEN

    if flags & FULL or not has_room(tables, allocation, point.way, device):
        remove_from_constraints(tables, allocation, point, end)
        return REFUSED

    hold(tables, allocation, point, device)
    return TAKEN


cdef inline bint pays_counters(
    const Tables* tables, const Allocation* allocation, Py_ssize_t device
) noexcept nogil:
    """Return whether the next that has the device, or a share of it, pays its counters."""
    return not allocation.shares[device] and not tables.is_shared[device]


cdef void hold(
    const Tables* tables, Allocation* allocation, const Point* point, Py_ssize_t device
) noexcept nogil:
    """Note a device, or a share of it, as taken."""
    cdef Py_ssize_t place

    if pays_counters(tables, allocation, device):
        charge(tables, allocation, device, 1)

    if tables.is_shareable[device]:
        allocation.shares[device] += 1
        for place in range(tables.room_start[device], tables.room_start[device + 1]):
            allocation.used[place] += tables.needs[point.way * tables.rooms + place]
    else:
        allocation.marks[device] |= <uint64_t>1 << point.claim

    allocation.result_way[allocation.results] = <int32_t>point.way
    allocation.result_device[allocation.results] = <int32_t>device
    allocation.results += 1
    allocation.claim_count[point.claim] += 1


cdef void give_back(
    const Tables* tables, Allocation* allocation, const Point* point, Py_ssize_t device
) noexcept nogil:
    """Undo what `take` did."""
    cdef Py_ssize_t place

    allocation.claim_count[point.claim] -= 1
    allocation.results -= 1
    if tables.is_shareable[device]:
        allocation.shares[device] -= 1
        for place in range(tables.room_start[device], tables.room_start[device + 1]):
            allocation.used[place] -= tables.needs[point.way * tables.rooms + place]
    else:
        allocation.marks[device] &= ~(<uint64_t>1 << point.claim)

    if pays_counters(tables, allocation, device):
        charge(tables, allocation, device, -1)

    remove_from_constraints(tables, allocation, point, tables.first_constraint[point.claim + 1])


cdef void charge(
    const Tables* tables, Allocation* allocation, Py_ssize_t device, int64_t sign
) noexcept nogil:
    """Take what a device needs from its counters, or give it back."""
    cdef Py_ssize_t place
    for place in range(tables.use_start[device], tables.use_start[device + 1]):
        allocation.remaining[tables.use_counter[place]] -= sign * tables.use_amount[place]


# Constraints

cdef bint add_to(
    const Tables* tables,
    Allocation* allocation,
    Py_ssize_t constraint,
    Py_ssize_t way,
    Py_ssize_t device,
) noexcept nogil:
    """Add a device to a constraint, if that allows it."""
    cdef const uint64_t* values = values_of(tables, constraint, device)
    cdef const uint64_t* previous
    cdef uint64_t* following
    cdef Py_ssize_t word, words = tables.words[constraint]
    cdef uint64_t any_value = 0, common = 0

    for word in range(words):
        any_value |= values[word]

    if not any_value:
        return False
    if tables.forgets and tables.is_distinct[constraint]:
        return add_forgetfully(tables, allocation, constraint, tables.request_of[way], device)

    previous = set_of(tables, allocation, constraint)
    following = <uint64_t*>previous + words
    if not allocation.depth[constraint]:
        for word in range(words):
            following[word] = values[word]
    else:
        for word in range(words):
            common |= values[word] & previous[word]

        if (
            tables.is_alone[constraint * tables.devices + device]
            or (common != 0) == tables.is_distinct[constraint]
        ):
            return False

        for word in range(words):
            if tables.is_distinct[constraint]:
                following[word] = previous[word] | values[word]
            else:
                following[word] = previous[word] & values[word]

    allocation.depth[constraint] += 1
    return True


cdef bint add_forgetfully(
    const Tables* tables,
    Allocation* allocation,
    Py_ssize_t constraint,
    Py_ssize_t request,
    Py_ssize_t device,
) noexcept nogil:
    """Add a device to a distinctAttribute as 1.36 does.

    It is compared with the last device of each request.
    """
    cdef int32_t* last = allocation.last_device + constraint * tables.requests
    cdef const uint64_t* values = values_of(tables, constraint, device)
    cdef const uint64_t* rival_values
    cdef Py_ssize_t rival, word

    for rival in range(tables.requests):
        if last[rival] < 0 or not allocation.depth[constraint]:
            continue
        if tables.is_alone[constraint * tables.devices + device]:
            return False

        rival_values = values_of(tables, constraint, last[rival])
        for word in range(tables.words[constraint]):
            if values[word] & rival_values[word]:
                return False

    last[request] = <int32_t>device
    allocation.depth[constraint] += 1
    return True


cdef void remove_from_constraints(
    const Tables* tables, Allocation* allocation, const Point* point, Py_ssize_t end
) noexcept nogil:
    """Remove the device that came last from the constraints of the claim up to `end`."""
    cdef Py_ssize_t constraint
    for constraint in range(tables.first_constraint[point.claim], end):
        if tables.covers[constraint * tables.ways + point.way]:
            allocation.depth[constraint] -= 1
            allocation.last_device[constraint * tables.requests + tables.request_of[point.way]] = -1
