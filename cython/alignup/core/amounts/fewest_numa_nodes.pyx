"""Work out the smallest sizes where a sorted list of amounts does not tell.

That is with places of several nodes, and with several types.
"""

from libc.stdint cimport uint8_t, uint64_t

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES
from alignup.core.narrow.family cimport keep_holding, smallest_count, start_keeping


cdef int size_over_places(const DeviceLayout* layout, int64_t request) noexcept nogil:
    """Return the size for devices of which some are near to several nodes."""
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int mask

    if layout.nodes > NARROW_NODES:
        return some_node_has(layout, request)
    start_keeping(keeps, 1 << layout.nodes)
    keep_holding(keeps, layout.nodes, layout.places, layout.place, layout.totals, request)
    for mask in range(1 << layout.nodes):
        if <uint64_t>mask & ~layout.universe:
            keeps[mask] = 0
    return smallest_count(keeps, 1 << layout.nodes) or popcount(layout.universe)


cdef bint some_node_has(const DeviceLayout* layout, int64_t request) noexcept nogil:
    """Return whether so many devices are near to some node of the universe."""
    cdef uint64_t rest = layout.universe
    cdef int64_t near
    cdef int place

    while rest:
        near = 0
        for place in range(layout.places):
            if layout.place[place] & rest & (~rest + 1):
                near += layout.totals[place]

        if near >= request:
            return True

        rest &= rest - 1

    return False


cdef int size_over_types(const MemoryLayout* layout, const MemoryRequest* request) noexcept nogil:
    """Return the size for several types together.

    Single nodes are looked at, then, up to 8 nodes, every mask.
    """
    cdef uint8_t keeps[NARROW_MASKS]
    cdef int index, nodes = layout.nodes

    if request.unknown_type:
        return 0
    if has_lone_node(layout, request):
        return 1
    if nodes > NARROW_NODES:
        return 0

    start_keeping(keeps, 1 << nodes)
    for index in range(request.types):
        keep_holding(
            keeps,
            nodes,
            nodes,
            NULL,
            layout.allocatable + request.type[index] * nodes,
            request.size[index],
        )

    return smallest_count(keeps, 1 << nodes)


cdef bint has_lone_node(const MemoryLayout* layout, const MemoryRequest* request) noexcept nogil:
    """Return whether some node could hold all types if nobody held anything."""
    cdef int index, node
    cdef bint fits

    for node in range(layout.nodes):
        fits = True
        for index in range(request.types):
            fits = (
                fits
                and layout.allocatable[
                    request.type[index] * layout.nodes + node
                ] >= request.size[index]
            )

        if fits:
            return True

    return False
