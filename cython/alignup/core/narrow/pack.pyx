"""Pack masks that were kept one byte each into a family of 256 bits, those of one size as preferred."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_NODES
from alignup.core.narrow.family cimport Family
from alignup.core.narrow.tables cimport OF_SIZE


cdef bint pack_family(Family* family, const uint8_t* keeps, int size, int preferred_size) noexcept nogil:
    """Pack the kept masks but the empty one; return whether there is any.

    Args:
        keeps: a 1 for each mask that is kept, as `start_keeping` leaves it.
        size: how many masks the machine has.
        preferred_size: how many nodes a preferred mask has; 0 or less: none is preferred by its size.
    """
    cdef uint64_t kept[4]
    cdef uint64_t eight, any_kept = 0
    cdef int mask, word
    memset(family, 0, sizeof(Family))
    memset(kept, 0, sizeof(kept))
    for mask in range(0, size, 8):
        memcpy(&eight, keeps + mask, 8)
        # one multiplication gathers the lowest bits of eight bytes in the highest byte
        kept[mask >> 6] |= (eight * <uint64_t>0x0102040810204080) >> 56 << (mask & 63)
    kept[0] &= ~<uint64_t>1
    for word in range(4):
        if 0 < preferred_size <= NARROW_NODES:
            family.preferred[word] = kept[word] & OF_SIZE[preferred_size][word]
        family.other[word] = kept[word] & ~family.preferred[word]
        any_kept |= kept[word]
    return any_kept != 0
