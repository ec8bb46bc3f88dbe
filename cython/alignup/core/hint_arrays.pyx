"""Hints as numpy arrays, and arrays as the bytes of hints; numpy is imported only when somebody asks for either."""

from array import array

from libc.stdint cimport uint8_t

from alignup.core.bits cimport NARROW_MASKS
from alignup.core.narrow.family cimport has

NO_NODE = "expected hints of at least one node: in arrays a mask without nodes means any node"


cdef tuple narrow_arrays(const Family* family):
    """Return the arrays of a list whose masks all fit 8 nodes."""
    cdef uint8_t masks[2 * NARROW_MASKS]
    cdef uint8_t preferred[2 * NARROW_MASKS]
    cdef int mask, count = 0
    if has(family.preferred, 0) or has(family.other, 0):
        raise ValueError(NO_NODE)
    for mask in range(NARROW_MASKS):
        masks[count] = mask
        preferred[count] = True
        count += family.any_preferred if mask == 0 else has(family.preferred, mask)
        masks[count] = mask
        preferred[count] = False
        count += family.any_other if mask == 0 else has(family.other, mask)
    return array_of((<char*>masks)[:count], "u1"), array_of((<char*>preferred)[:count], "?")


cdef tuple wide_arrays(list pairs):
    """Return the arrays of a list with masks beyond 8 nodes; each pair is (mask or None, preferred)."""
    cdef list ordered
    if any([mask == 0 for mask, _ in pairs]):
        raise ValueError(NO_NODE)
    ordered = sorted({(mask or 0, not preferred) for mask, preferred in pairs})
    return (
        array_of(array("Q", [mask for mask, _ in ordered]).tobytes(), "u8"),
        array_of(bytes([not other for _, other in ordered]), "?"),
    )


def array_of(data, dtype):
    """Return the bytes as an array that cannot be written to."""
    import numpy  # imported late: only arrays need it

    return numpy.ndarray(len(data) // numpy.dtype(dtype).itemsize, dtype, data)


cdef tuple checked_arrays(object masks, object preferred):
    """Return two arrays as the bytes of uint64 and of bool."""
    import numpy  # as above

    masks, preferred = numpy.asarray(masks), numpy.asarray(preferred)
    if masks.ndim != 1 or masks.shape != preferred.shape:
        raise ValueError(
            "expected masks and preferred of one dimension and one length, "
            f"got shapes {masks.shape} and {preferred.shape}"
        )
    if not masks.size:
        return b"", b""
    if masks.dtype.kind not in "ui":
        raise TypeError(f"expected masks of an integer type, got {masks.dtype}")
    if preferred.dtype != bool:
        raise TypeError(f"expected preferred of type bool, got {preferred.dtype}")
    if masks.min() < 0:
        raise ValueError(f"expected masks of 0 or more, got {masks.min()} at {masks.argmin()}")
    return masks.astype("u8").tobytes(), preferred.tobytes()
