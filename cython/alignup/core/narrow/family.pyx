"""Pack the masks that hold a request into a family, its preferred hints apart.

The tables of all uint8 masks are here as well.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from alignup.core.bits cimport NARROW_MASKS, NARROW_NODES, popcount


cdef uint8_t BY_SIZE[NARROW_MASKS]
cdef int SIZE_STARTS[NARROW_NODES + 2]
cdef uint64_t OF_SIZE[NARROW_NODES + 1][4]


cdef void fill_tables() noexcept nogil:
    cdef int size, mask, place = 0

    for size in range(NARROW_NODES + 1):
        SIZE_STARTS[size] = place
        for mask in range(NARROW_MASKS):
            if popcount(mask) == size:
                BY_SIZE[place] = mask
                put(OF_SIZE[size], mask)
                place += 1
    SIZE_STARTS[NARROW_NODES + 1] = place


fill_tables()


cdef bint pack_family(
    Family* family, const uint8_t* keeps, int size, int preferred_size
) noexcept nogil:
    """Pack the kept masks but the empty one; return whether there is any.

    Args:
        keeps: a 1 for each mask that is kept, as `start_keeping` leaves it.
        size: how many masks the machine has.
        preferred_size: how many nodes a preferred mask has; 0 or less: none is preferred by its
            size.
    """
    cdef uint64_t kept[4]
    cdef uint64_t any_kept = 0
    cdef int word

    memset(family, 0, sizeof(Family))
    pack_masks(keeps, size, kept)
    kept[0] &= ~<uint64_t>1
    for word in range(4):
        if 0 < preferred_size <= NARROW_NODES:
            family.preferred[word] = kept[word] & OF_SIZE[preferred_size][word]

        family.unpreferred[word] = kept[word] & ~family.preferred[word]
        any_kept |= kept[word]

    return any_kept != 0


cdef void prefer_by_sockets(
    Family* family, int size, const uint64_t* sockets, int count, int required
) noexcept nogil:
    """Prefer, too, the masks that touch exactly so many of the sockets (align-by-socket)."""
    cdef int mask, socket, touched_sockets

    for mask in range(1, size):
        if not has(family.unpreferred, mask):
            continue
        touched_sockets = 0
        for socket in range(count):
            touched_sockets += sockets[socket] & <uint64_t>mask != 0
        if touched_sockets == required:
            drop(family.unpreferred, mask)
            put(family.preferred, mask)
