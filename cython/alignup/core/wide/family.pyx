"""Families of masks over up to 64 NUMA nodes: an explicit list, a description, or both.

A description says what a mask must reach, and is never enumerated: `alignup.core.wide.merge`
searches in it.
"""

from cpython.mem cimport PyMem_Free

from alignup.core.bits cimport popcount
from alignup.core.blocks cimport zeroed


cdef uint64_t* words_of(object masks, int* count) except NULL:
    cdef list items = list(masks)
    cdef int index

    count[0] = len(items)
    cdef uint64_t* words = <uint64_t*>zeroed(count[0], sizeof(uint64_t))
    try:
        for index in range(count[0]):
            words[index] = items[index]
    except (TypeError, OverflowError):
        PyMem_Free(words)
        raise
    return words


cdef int64_t reached(const Demand* demand, uint64_t mask) noexcept nogil:
    """Return how much of a demand's amounts a mask reaches."""
    cdef int64_t total = 0
    cdef int item
    for item in range(demand.count):
        if demand.places[item] & mask:
            total += demand.amounts[item]
    return total


cdef bint holds(const Description* description, uint64_t mask) noexcept nogil:
    """Return whether a non-empty subset of the universe reaches all that is demanded."""
    cdef int index

    for index in range(description.touching_count):
        if not mask & description.touching[index]:
            return False
    for index in range(description.demand_count):
        if reached(&description.demands[index], mask) < description.demands[index].request:
            return False
    return True


cdef bint prefers(const Description* description, uint64_t mask) noexcept nogil:
    """Return whether a mask that holds all is a preferred one."""
    cdef int index, touched = 0

    if popcount(mask) == description.preferred_size:
        return True
    if description.preferred_sockets < 0:
        return False
    for index in range(description.socket_count):
        touched += (description.sockets[index] & mask) != 0
    return touched == description.preferred_sockets


cdef class WideFamily:
    def __dealloc__(self):
        cdef int index

        PyMem_Free(self.listed)
        if self.description.demands != NULL:
            for index in range(self.description.demand_count):
                PyMem_Free(self.description.demands[index].places)
                PyMem_Free(self.description.demands[index].amounts)
            PyMem_Free(self.description.demands)
        PyMem_Free(self.description.touching)
        PyMem_Free(self.description.sockets)

    cdef void list_masks(self, list masks, list preferred) except *:
        """List masks, in ascending order, so that they can be looked up."""
        cdef list ordered = sorted(zip(masks, preferred))
        cdef int index
        self.listed = <Listed*>zeroed(len(ordered), sizeof(Listed))
        for index, (mask, is_preferred) in enumerate(ordered):
            self.listed[index].mask = mask
            self.listed[index].preferred = is_preferred
        self.listed_count = len(ordered)

    cdef int membership(self, uint64_t mask) noexcept nogil:
        """Return the hints of a mask as bits, 0 if it is no hint.

        Bit 0 is a hint that is not preferred, bit 1 a preferred one.
        """
        cdef int index = 0, end = self.listed_count, middle, bits = 0

        while index < end:
            middle = (index + end) // 2
            if self.listed[middle].mask < mask:
                index = middle + 1
            else:
                end = middle

        while index < self.listed_count and self.listed[index].mask == mask:
            bits |= 2 if self.listed[index].preferred else 1
            index += 1

        if self.described and mask and not mask & ~self.description.universe:
            if holds(&self.description, mask):
                bits |= 2 if prefers(&self.description, mask) else 1

        return bits


cdef WideFamily listed_family(list masks, list preferred):
    cdef WideFamily family = WideFamily.__new__(WideFamily)
    family.list_masks(masks, preferred)
    return family


cdef WideFamily described_family(
    int numa_nodes,
    object demands,
    uint64_t universe,
    object touching,
    int preferred_size,
    object sockets,
    int preferred_sockets,
):
    cdef WideFamily family = WideFamily.__new__(WideFamily)
    cdef Description* description = &family.description
    cdef int index, item
    cdef Demand* demand

    family.numa_nodes = numa_nodes
    family.described = True

    description.universe = universe
    description.preferred_size = preferred_size
    description.preferred_sockets = preferred_sockets

    description.touching = words_of(touching, &description.touching_count)
    description.sockets = words_of(sockets, &description.socket_count)
    cdef list demand_list = list(demands)
    description.demands = <Demand*>zeroed(len(demand_list), sizeof(Demand))
    description.demand_count = len(demand_list)
    for index, (places, amounts, request) in enumerate(demand_list):
        demand = &description.demands[index]
        amounts = list(amounts)
        if places is None:
            places = [(<uint64_t>1) << item for item in range(len(amounts))]

        demand.places = words_of(places, &demand.count)
        demand.amounts = <int64_t*>zeroed(demand.count, sizeof(int64_t))
        demand.request = request
        for item in range(demand.count):
            demand.amounts[item] = amounts[item]

    return family


cdef WideFamily family_avoiding(WideFamily family, uint64_t avoided):
    """Return the family without the masks of several nodes of which one is to be avoided."""
    cdef Description* description = &family.description
    cdef WideFamily remaining
    cdef list masks = [], preferred = []
    cdef uint64_t mask, rest = description.universe & avoided if family.described else 0
    cdef int index

    for index in range(family.listed_count):
        mask = family.listed[index].mask
        if not mask & avoided or popcount(mask) == 1:
            masks.append(mask)
            preferred.append(bool(family.listed[index].preferred))

    while rest:
        mask = rest & -rest
        rest ^= mask
        if holds(description, mask):
            masks.append(mask)
            preferred.append(bool(prefers(description, mask)))

    if not family.described:
        return listed_family(masks, preferred)

    remaining = described_family(
        family.numa_nodes,
        demands_of(description),
        description.universe & ~avoided,
        [description.touching[index] for index in range(description.touching_count)],
        description.preferred_size,
        [description.sockets[index] for index in range(description.socket_count)],
        description.preferred_sockets,
    )
    remaining.described = holds(&remaining.description, remaining.description.universe)
    remaining.list_masks(masks, preferred)

    return remaining


cdef list demands_of(const Description* description):
    """Return the demands as `described_family` takes them."""
    cdef int index, item
    cdef list demands = []

    for index in range(description.demand_count):
        demands.append(
            (
                [
                    description.demands[index].places[item]
                    for item in range(description.demands[index].count)
                ],
                [
                    description.demands[index].amounts[item]
                    for item in range(description.demands[index].count)
                ],
                description.demands[index].request,
            )
        )

    return demands
