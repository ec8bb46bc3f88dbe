"""Choose the devices of a resource that a container gets: the device manager's rules.

Wherever the kubelet picks from an unordered set, the device that the inventory lists first is
taken, which is also the kubelet's most frequent pick. Ids, pods and plugins are known to
`alignup.providers.devices`.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, all_nodes, lowest, popcount
from alignup.core.narrow.family cimport Family, keep_holding, pack_family, start_keeping
from alignup.core.word_set cimport count_in, flip, lowest_of


# Sets of devices

cdef int64_t add_first(
    uint64_t* chosen, const uint64_t* devices, int64_t count, int words
) noexcept nogil:
    """Add the first devices of a set that are not chosen yet, up to `count`.

    Return how many are still missing.
    """
    cdef int word
    cdef uint64_t rest

    for word in range(words):
        rest = devices[word] & ~chosen[word]
        if popcount(rest) > count:
            chosen[word] |= lowest_of(rest, count)
            return 0
        count -= popcount(rest)
        chosen[word] |= rest
    return count


# Storage

cdef size_t device_bytes(const DeviceLayout* layout) noexcept nogil:
    """Return the bytes of the block that holds what is given."""
    return (layout.words + layout.places) * sizeof(uint64_t)


cdef void place_devices(DeviceState* state, char* block) noexcept nogil:
    """Let the arrays of a state, whose layout is set, lie in a block of `device_bytes`."""
    state.allocated = <uint64_t*>block
    state.free = <int64_t*>(state.allocated + state.layout.words)


cdef void count_free(DeviceState* state) noexcept nogil:
    """Count what is free from what is given."""
    cdef const DeviceLayout* layout = state.layout
    cdef uint64_t free
    cdef int place, word

    state.free_in_all = 0
    for place in range(layout.places):
        state.free[place] = 0

    for word in range(layout.words):
        free = layout.healthy[word] & ~state.allocated[word]
        if not free:
            continue

        state.free_in_all += popcount(free)
        for place in range(layout.places):
            state.free[place] += popcount(free & layout.members[place * layout.words + word])


cdef void copy_devices(DeviceState* copy, const DeviceState* state, char* block) noexcept nogil:
    """Make an independent copy in another block."""
    copy[0] = state[0]
    memcpy(block, state.allocated, device_bytes(state.layout))
    place_devices(copy, block)


cdef void mark_devices(DeviceState* state, const uint64_t* devices, bint give) noexcept nogil:
    """Mark devices as given, or as no longer given; some may be so already."""
    cdef const DeviceLayout* layout = state.layout
    cdef uint64_t changed
    cdef int place, word, sign = -1 if give else 1

    for word in range(layout.words):
        changed = flip(&state.allocated[word], devices[word], give) & layout.healthy[word]
        if not changed:
            continue

        state.free_in_all += sign * popcount(changed)
        for place in range(layout.places):
            state.free[place] += sign * popcount(
                changed & layout.members[place * layout.words + word]
            )


# Hints

cdef bint device_family(
    const DeviceLayout* layout,
    const int64_t* amounts,
    const uint64_t* reusable,
    int64_t request,
    int preferred_size,
    Family* family,
) noexcept nogil:
    """Pack the masks near which enough devices are, up to 8 nodes; return whether there is one.

    Args:
        amounts: how many devices count at each place, those that are taken over included.
        reusable: devices that the container takes over, or NULL: a mask must be near to each of
            them.
        preferred_size: how many nodes a preferred mask has.
    """
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int64_t by_node[NARROW_NODES]
    cdef int mask, place, word, size = 1 << layout.nodes
    cdef uint64_t near, full = all_nodes(layout.nodes)
    cdef bint is_touched

    start_keeping(keeps, size)
    if layout.single_places:
        memset(by_node, 0, sizeof(by_node))
        for place in range(layout.places):
            by_node[lowest(layout.place[place])] = amounts[place]

        keep_holding(keeps, layout.nodes, layout.nodes, NULL, by_node, request)
    else:
        keep_holding(keeps, layout.nodes, layout.places, layout.place, amounts, request)

    if layout.universe != full:
        for mask in range(size):
            if <uint64_t>mask & ~layout.universe:
                keeps[mask] = 0

    if reusable != NULL:
        for place in range(layout.places):
            is_touched = False
            for word in range(layout.words):
                is_touched = (
                    is_touched or reusable[word] & layout.members[place * layout.words + word] != 0
                )

            if is_touched:
                near = layout.place[place]
                for mask in range(size):
                    keeps[mask] &= <uint64_t>mask & near != 0

        for word in range(layout.words):
            if reusable[word] & layout.nowhere[word]:
                # no mask is near to a device that is near to no node
                memset(keeps, 0, max(8, size))

    return pack_family(family, keeps, size, preferred_size)


# Choice

cdef DeviceOutcome start_choice(
    const DeviceState* state,
    int64_t request,
    const uint64_t* reusable,
    bint anywhere,
    uint64_t mask,
    uint64_t* chosen,
    uint64_t* choice,
) noexcept nogil:
    """Choose devices as far as there is nothing to choose among.

    1. Devices that an init container of the pod leaves (`reusable`; NULL: none).
    2. Devices near to the affinity. Where these are more than needed, `choice` are those, and
       the plugin may be asked.
    3. Where they are fewer, `choice` are all free devices, and the plugin may be asked as well.
    """
    cdef const DeviceLayout* layout = state.layout
    cdef int64_t missing = request
    cdef int word, place, near = 0, words = layout.words

    memset(chosen, 0, words * sizeof(uint64_t))
    if not layout.any_healthy:
        return DEVICES_NONE_HEALTHY

    if reusable != NULL:
        for word in range(words):
            choice[word] = reusable[word] & layout.present[word]

        missing = add_first(chosen, choice, request, words)

    if not missing:
        return DEVICES_CHOSEN
    if state.free_in_all < missing:
        return DEVICES_TOO_FEW

    if not anywhere:
        memset(choice, 0, words * sizeof(uint64_t))
        for place in range(layout.places):
            if layout.place[place] & mask:
                for word in range(words):
                    choice[word] |= layout.members[place * words + word]

        for word in range(words):
            choice[word] &= layout.healthy[word] & ~state.allocated[word]
            near += popcount(choice[word])

        if missing < near:
            return DEVICES_ASK_NEAR

        for word in range(words):
            chosen[word] |= choice[word]

        if missing == near:
            return DEVICES_CHOSEN

    for word in range(words):
        choice[word] = layout.healthy[word] & ~state.allocated[word]

    return DEVICES_ASK_ANY


cdef void finish_choice(
    const DeviceState* state,
    DeviceOutcome outcome,
    int64_t request,
    bint anywhere,
    uint64_t* chosen,
    const uint64_t* choice,
) noexcept nogil:
    """Fill up to the request.

    The devices come from the near ones, or from those with a place, then those without.
    """
    cdef const DeviceLayout* layout = state.layout
    cdef int64_t missing = request - count_in(chosen, layout.words)
    cdef int word
    cdef uint64_t rest[1]

    if outcome == DEVICES_ASK_NEAR or anywhere:
        add_first(chosen, choice, missing, layout.words)
        return

    for word in range(layout.words):
        rest[0] = choice[word] & ~layout.without_place[word]
        missing = add_first(chosen + word, rest, missing, 1)

    for word in range(layout.words):
        rest[0] = choice[word] & layout.without_place[word]
        missing = add_first(chosen + word, rest, missing, 1)
