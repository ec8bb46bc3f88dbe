"""Bounds of a search.

Where what is left cannot serve what is still asked for, nothing has to be tried. Every bound
overestimates what is left. Constraints come first, which leave values; then counters, by name; then
a flow from requests to classes of devices, each of which gives what it has, and each group of which
what counters can carry.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from alignup.core.bits cimport popcount
from alignup.core.claims.state cimport (
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
    MOST_TABLED = 512   # counters below this have a table of what can be taken of them


cdef bint is_hopeless(
    Bounds* bounds, const Tables* tables, const Allocation* allocation, const Point* point
) noexcept nogil:
    """Return whether what is left cannot serve what is still asked for.

    Each request is looked at on its own, and all of them together.
    """
    cdef Py_ssize_t constraint, request

    for constraint in range(tables.first_constraint[point.claim], tables.constraints):
        if (
            tables.constraint_last[constraint] >= point.request
            and not can_be_met(bounds, tables, allocation, point, constraint)
        ):
            return True

    if not have_counters(bounds, tables, allocation, point):
        return True

    start_flow(bounds, tables, allocation)
    for request in range(point.request, tables.requests):
        if not is_served(bounds, tables, allocation, point, request):
            return True

    return False


# What is still asked for

cdef inline Py_ssize_t first_way_of(
    const Tables* tables, const Point* point, Py_ssize_t request
) noexcept nogil:
    """Return the first way that may still serve a request: the current one has chosen."""
    return point.way if request == point.request else tables.first_way[request]


cdef inline Py_ssize_t end_of_ways(
    const Tables* tables, const Point* point, Py_ssize_t request
) noexcept nogil:
    """Return the way behind the last that may still serve a request."""
    return point.way + 1 if request == point.request else tables.first_way[request + 1]


cdef inline Py_ssize_t first_device_of(const Point* point, Py_ssize_t request) noexcept nogil:
    """Return the first device that a request may still have."""
    return point.start if request == point.request else 0


cdef int32_t least_of(const Tables* tables, const Point* point, Py_ssize_t request) noexcept nogil:
    """Return how many devices a request still needs at least."""
    cdef Py_ssize_t way
    cdef int32_t least_count = MOST_RESULTS + 1
    if request == point.request:
        return tables.counts[point.way] - <int32_t>point.count
    for way in range(tables.first_way[request], tables.first_way[request + 1]):
        least_count = min(least_count, tables.counts[way])
    return least_count


cdef bint can_have(
    const Tables* tables, const Allocation* allocation, Py_ssize_t way, Py_ssize_t device
) noexcept nogil:
    """Return whether a way could take a device now, constraints apart."""
    if (
        tables.matches[way * tables.devices + device] != 1
        or tables.flags[way * tables.devices + device]
    ):
        return False
    if not tables.is_admin[way] and (tables.is_taken[device] or allocation.marks[device]):
        return False
    return has_counters(tables, allocation, device) and has_room(tables, allocation, way, device)


# Constraints

cdef bint can_be_met(
    Bounds* bounds,
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    Py_ssize_t constraint,
) noexcept nogil:
    """Return whether a constraint can still be met.

    Find the values that a matchAttribute can still have. A matchAttribute needs one value that
    enough devices have for each request, a distinctAttribute as many values as devices are asked
    for.
    """
    cdef Py_ssize_t claim = point.claim, request, word
    cdef uint64_t* feasible = bounds.feasible + tables.word_start[constraint]
    cdef bint is_distinct = tables.is_distinct[constraint]
    cdef bint is_begun = allocation.depth[constraint] > 0
    cdef int32_t total = 0, need, values = 0

    while constraint >= tables.first_constraint[claim + 1]:
        claim += 1

    for word in range(tables.words[constraint]):
        if is_distinct:
            feasible[word] = 0
        elif is_begun:
            feasible[word] = set_of(tables, allocation, constraint)[word]
        else:
            feasible[word] = ~<uint64_t>0

    for request in range(
        max(point.request, tables.first_request[claim]), tables.first_request[claim + 1]
    ):
        need = least_of(tables, point, request)
        if need and is_covered(tables, point, constraint, request):
            total += need
            count_values(bounds, tables, allocation, point, constraint, request)
            note_values(bounds.value_count, tables.words[constraint], is_distinct, need, feasible)

    for word in range(tables.words[constraint]):
        if is_distinct and is_begun:
            feasible[word] &= ~set_of(tables, allocation, constraint)[word]

        values += popcount(feasible[word])

    return not total or values >= (total if is_distinct else 1)


cdef bint is_covered(
    const Tables* tables, const Point* point, Py_ssize_t constraint, Py_ssize_t request
) noexcept nogil:
    """Return whether a constraint is for a request however that is served."""
    cdef Py_ssize_t way
    for way in range(first_way_of(tables, point, request), end_of_ways(tables, point, request)):
        if not tables.covers[constraint * tables.ways + way]:
            return False
    return True


cdef void count_values(
    Bounds* bounds,
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    Py_ssize_t constraint,
    Py_ssize_t request,
) noexcept nogil:
    """Count the devices of each value that a request could have."""
    cdef Py_ssize_t device, way, word, bit
    cdef uint64_t values

    memset(bounds.value_count, 0, 64 * tables.words[constraint] * sizeof(int32_t))
    for device in range(first_device_of(point, request), tables.devices):
        for way in range(first_way_of(tables, point, request), end_of_ways(tables, point, request)):
            if not can_have(tables, allocation, way, device):
                continue

            for word in range(tables.words[constraint]):
                values = values_of(tables, constraint, device)[word]
                bit = 64 * word
                while values:
                    bounds.value_count[bit] += values & 1
                    values >>= 1
                    bit += 1

            break


cdef void note_values(
    const int32_t* counts, int32_t words, bint is_distinct, int32_t need, uint64_t* feasible
) noexcept nogil:
    """Add the values that a distinctAttribute can have.

    Leave a matchAttribute those that enough devices have.
    """
    cdef Py_ssize_t word, bit
    for word in range(words):
        for bit in range(64):
            if is_distinct and counts[64 * word + bit]:
                feasible[word] |= <uint64_t>1 << bit
            elif not is_distinct and counts[64 * word + bit] < need:
                feasible[word] &= ~(<uint64_t>1 << bit)


cdef bint suits(
    const Bounds* bounds,
    const Tables* tables,
    const Allocation* allocation,
    Py_ssize_t way,
    Py_ssize_t device,
) noexcept nogil:
    """Return whether the constraints of a claim leave a device a chance."""
    cdef Py_ssize_t claim = tables.claim_of[tables.request_of[way]], constraint, word
    cdef const uint64_t* values
    cdef const uint64_t* feasible
    cdef uint64_t any_value, common

    for constraint in range(tables.first_constraint[claim], tables.first_constraint[claim + 1]):
        if not tables.covers[constraint * tables.ways + way]:
            continue

        values = values_of(tables, constraint, device)
        feasible = bounds.feasible + tables.word_start[constraint]
        if tables.is_distinct[constraint]:
            feasible = (
                set_of(tables, allocation, constraint) if allocation.depth[constraint] else NULL
            )

        any_value = common = 0
        for word in range(tables.words[constraint]):
            any_value |= values[word]
            common |= values[word] & feasible[word] if feasible != NULL else 0

        if not any_value or (common != 0) == tables.is_distinct[constraint]:
            return False

    return True


# Counters

cdef bint have_counters(
    Bounds* bounds, const Tables* tables, const Allocation* allocation, const Point* point
) noexcept nogil:
    """Return whether counters can carry the lightest devices for what is left.

    Counters of one name count together, over all sets.
    """
    cdef Py_ssize_t request, family, counter

    memset(bounds.needed, 0, tables.families * sizeof(int64_t))
    memset(bounds.usable, 0, tables.families * sizeof(int64_t))
    for family in range(tables.families):
        for request in range(point.request, tables.requests):
            bounds.needed[family] += lightest(tables, allocation, point, request, family)

    for counter in range(tables.counters):
        bounds.usable[tables.family_of[counter]] += most_of(
            tables, allocation, point.request, counter
        )

    for family in range(tables.families):
        if bounds.needed[family] > bounds.usable[family]:
            return False

    return True


cdef int64_t lightest(
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    Py_ssize_t request,
    Py_ssize_t family,
) noexcept nogil:
    """Return what a request takes at least of the counters of a family."""
    cdef Py_ssize_t way, device
    cdef int64_t need, weight, least_weight = -1

    for way in range(first_way_of(tables, point, request), end_of_ways(tables, point, request)):
        need = tables.counts[way] - (point.count if request == point.request else 0)
        for device in range(first_device_of(point, request), tables.devices):
            if not can_have(tables, allocation, way, device):
                continue

            weight = need * weight_of(tables, device, family)
            if not weight:
                return 0

            if least_weight < 0 or weight < least_weight:
                least_weight = weight

    return max(least_weight, 0)


cdef int64_t weight_of(const Tables* tables, Py_ssize_t device, Py_ssize_t family) noexcept nogil:
    """Return what a device takes of the counters of a family; shares may take nothing."""
    cdef Py_ssize_t place
    cdef int64_t weight = 0
    if not tables.is_shareable[device]:
        for place in range(tables.use_start[device], tables.use_start[device + 1]):
            if tables.family_of[tables.use_counter[place]] == family:
                weight += tables.use_amount[place]
    return weight


cdef int64_t most_of(
    const Tables* tables, const Allocation* allocation, Py_ssize_t request, Py_ssize_t counter
) noexcept nogil:
    """Return the most of a counter that devices which are still asked for can take.

    Each can take it as often as it likes.
    """
    cdef uint8_t is_sum[MOST_TABLED]
    cdef Py_ssize_t device, place, kind, last = -1
    cdef int64_t remaining = allocation.remaining[counter], amount, total

    if remaining >= MOST_TABLED:
        return remaining

    memset(is_sum, 0, remaining + 1)
    is_sum[0] = True
    for place in range(tables.user_start[counter], tables.user_start[counter + 1]):
        device = tables.user_device[place]
        amount = tables.user_amount[place]
        kind = tables.class_of[device]
        if allocation.marks[device] or tables.class_last[kind] < request or kind == last:
            continue

        last = kind
        for total in range(amount, remaining + 1):
            is_sum[total] |= is_sum[total - amount]

    while not is_sum[remaining]:
        remaining -= 1

    return remaining


# Classes of devices

cdef void start_flow(
    Bounds* bounds, const Tables* tables, const Allocation* allocation
) noexcept nogil:
    """Count the free devices of each class, and how many of each group its counters can carry.

    Nothing is given yet.
    """
    cdef Py_ssize_t device, place, group

    memset(bounds.edge, 0, tables.requests * tables.classes * sizeof(int32_t))
    memset(bounds.flow, 0, tables.requests * tables.classes * sizeof(int32_t))
    memset(bounds.class_total, 0, tables.classes * sizeof(int32_t))
    memset(bounds.class_used, 0, tables.classes * sizeof(int32_t))
    memset(bounds.group_used, 0, tables.groups * sizeof(int64_t))
    for device in range(tables.devices):
        if not (tables.is_taken[device] or allocation.marks[device] or tables.is_shareable[device]):
            bounds.class_total[tables.class_of[device]] += 1

    for group in range(tables.groups):
        bounds.group_total[group] = INT64_MAX
        for place in range(tables.least_start[group], tables.least_start[group + 1]):
            bounds.group_total[group] = min(
                bounds.group_total[group],
                allocation.remaining[tables.least_counter[place]] // tables.least_amount[place],
            )


cdef bint is_served(
    Bounds* bounds,
    const Tables* tables,
    const Allocation* allocation,
    const Point* point,
    Py_ssize_t request,
) noexcept nogil:
    """Add a request to the flow; return whether it gets all it needs."""
    cdef Py_ssize_t device, way
    cdef int32_t need = least_of(tables, point, request)

    for way in range(first_way_of(tables, point, request), end_of_ways(tables, point, request)):
        if tables.is_admin[way]:
            return True

    for device in range(first_device_of(point, request), tables.devices):
        for way in range(first_way_of(tables, point, request), end_of_ways(tables, point, request)):
            if (
                can_have(tables, allocation, way, device)
                and suits(bounds, tables, allocation, way, device)
            ):
                if tables.is_shareable[device]:
                    need -= 1
                else:
                    bounds.edge[request * tables.classes + tables.class_of[device]] += 1

                break

    while need > 0:
        memset(bounds.class_seen, 0, tables.classes)
        memset(bounds.group_seen, 0, tables.groups)
        if not augment(bounds, tables, point.request, request):
            return False

        need -= 1

    return True


cdef bint augment(
    Bounds* bounds, const Tables* tables, Py_ssize_t first, Py_ssize_t request
) noexcept nogil:
    """Give a request one more device.

    Those of the requests from `first` on are moved where that helps.
    """
    cdef Py_ssize_t kind, rival, group
    cdef int32_t* flow = bounds.flow + request * tables.classes

    for kind in range(tables.classes):
        if bounds.class_seen[kind] or flow[kind] >= bounds.edge[request * tables.classes + kind]:
            continue

        bounds.class_seen[kind] = True
        group = tables.group_of[kind]
        if bounds.class_used[kind] < bounds.class_total[kind]:
            if group < 0 or bounds.group_used[group] < bounds.group_total[group]:
                bounds.class_used[kind] += 1
                if group >= 0:
                    bounds.group_used[group] += 1

                flow[kind] += 1
                return True

            if not bounds.group_seen[group]:
                bounds.group_seen[group] = True
                if free_one_of_group(bounds, tables, first, group, kind):
                    bounds.class_used[kind] += 1
                    flow[kind] += 1
                    return True

        for rival in range(first, tables.requests):
            if rival != request and gives_up(bounds, tables, first, rival, kind):
                flow[kind] += 1
                return True

    return False


cdef bint free_one_of_group(
    Bounds* bounds, const Tables* tables, Py_ssize_t first, Py_ssize_t group, Py_ssize_t kind
) noexcept nogil:
    """Let some request exchange a device of a group whose counters carry no more.

    Return whether one can.
    """
    cdef Py_ssize_t sibling, rival

    for sibling in range(tables.classes):
        if tables.group_of[sibling] != group or (sibling != kind and bounds.class_seen[sibling]):
            continue
        bounds.class_seen[sibling] = True
        for rival in range(first, tables.requests):
            if gives_up(bounds, tables, first, rival, sibling):
                bounds.class_used[sibling] -= 1
                return True
    return False


cdef bint gives_up(
    Bounds* bounds, const Tables* tables, Py_ssize_t first, Py_ssize_t rival, Py_ssize_t kind
) noexcept nogil:
    """Let a request have another device in place of one of a class; return whether it could."""
    if not bounds.flow[rival * tables.classes + kind] or not augment(bounds, tables, first, rival):
        return False
    bounds.flow[rival * tables.classes + kind] -= 1
    return True
