"""An immutable set of NUMA node positions, packed into one 64-bit word.

A mask knows positions only; `alignup.machine.machine` knows the kernel's id of each.
"""

from operator import index as as_whole

from cpython.object cimport Py_EQ, Py_GE, Py_LE, Py_LT, Py_NE

from alignup.core.bits cimport all_nodes, lowest, popcount

WIDTH = 64


cdef BitMask mask_of(uint64_t word):
    cdef BitMask mask = BitMask.__new__(BitMask)
    mask.word = word
    return mask


cdef uint64_t word_of_bits(object bits) except? 0:
    cdef uint64_t word = 0
    cdef long long bit

    for item in bits:
        if not isinstance(item, int):
            raise TypeError(f"expected NUMA node positions as int, got {item!r}")
        bit = item if -1 < item < 64 else -1
        if bit < 0:
            raise ValueError(f"expected NUMA node positions in 0..63, got {item!r}")
        word |= (<uint64_t>1) << bit
    return word


cdef class BitMask:
    """An immutable, hashable set of NUMA node positions (0 to 63).

    It behaves as a set of ints, and has the words of KEP-693 besides. Methods that change a mask in
    the KEP return a new one here, so that hints can share masks.

    Examples:
        >>> BitMask([0, 2]) & BitMask([2, 3])
        BitMask([2])
        >>> 2 in BitMask([2]), len(BitMask([0, 2])), list(BitMask([0, 2]))
        (True, 2, [0, 2])
    """

    def __init__(self, bits=()):
        self.word = word_of_bits(bits)

    @staticmethod
    def from_int(value):
        """Return the mask whose bit i is bit i of `value`.

        Raises:
            ValueError: `value` is negative or needs more than 64 bits.
            TypeError: `value` is no whole number.

        Examples:
            >>> BitMask.from_int(5)
            BitMask([0, 2])
        """
        value = as_whole(value)
        if not 0 <= value < 1 << 64:
            raise ValueError(f"expected a mask in 0..2**64-1, got {value!r}")
        return mask_of(value)

    def __int__(self):
        return self.word

    def __index__(self):
        return self.word

    def __len__(self):
        return popcount(self.word)

    def __bool__(self):
        return self.word != 0

    def __contains__(self, bit):
        return isinstance(bit, int) and 0 <= bit < 64 and (self.word >> <int>bit) & 1

    def __iter__(self):
        return iter(self.bits())

    def __hash__(self):
        return hash(self.word)

    def __richcmp__(self, other, int op):
        if not isinstance(other, BitMask):
            return NotImplemented

        cdef uint64_t word = self.word, other_word = (<BitMask>other).word
        if op == Py_EQ:
            return word == other_word
        if op == Py_NE:
            return word != other_word
        if op == Py_LE:
            return word & ~other_word == 0
        if op == Py_LT:
            return word != other_word and word & ~other_word == 0
        if op == Py_GE:
            return other_word & ~word == 0

        return word != other_word and other_word & ~word == 0

    def __and__(self, other):
        if isinstance(self, BitMask) and isinstance(other, BitMask):
            return mask_of((<BitMask>self).word & (<BitMask>other).word)
        return NotImplemented

    def __or__(self, other):
        if isinstance(self, BitMask) and isinstance(other, BitMask):
            return mask_of((<BitMask>self).word | (<BitMask>other).word)
        return NotImplemented

    def __xor__(self, other):
        if isinstance(self, BitMask) and isinstance(other, BitMask):
            return mask_of((<BitMask>self).word ^ (<BitMask>other).word)
        return NotImplemented

    def __sub__(self, other):
        if isinstance(self, BitMask) and isinstance(other, BitMask):
            return mask_of((<BitMask>self).word & ~(<BitMask>other).word)
        return NotImplemented

    def __repr__(self):
        return f"BitMask({list(self.bits())})"

    def __str__(self):
        """Return the binary digits as the kubelet prints them.

        Digits come in pairs, at least one pair. A power of four alone is printed without padding
        ("100", not "0100"): the kubelet asks whether a mask exceeds the first value of a width, not
        whether it reaches it.
        """
        cdef int shift = 62
        while shift > 0:
            if self.word > (<uint64_t>1) << shift:
                return format(self.word, f"0{shift + 2}b")
            shift -= 2
        return format(self.word, "02b")

    def __reduce__(self):
        return BitMask.from_int, (self.word,)

    def bits(self):
        """Return the positions in the mask, ascending."""
        cdef uint64_t rest = self.word
        cdef list positions = []
        while rest:
            positions.append(lowest(rest))
            rest &= rest - 1
        return tuple(positions)

    def count(self):
        """Return the number of positions in the mask."""
        return popcount(self.word)

    def is_empty(self):
        """Return whether no position is in the mask."""
        return self.word == 0

    def is_set(self, bit):
        """Return whether `bit` is in the mask; a position out of range is not."""
        return bit in self

    def any_set(self, bits):
        """Return whether at least one of `bits` is in the mask."""
        return any(bit in self for bit in bits)

    def is_equal(self, BitMask other not None):
        """Return whether both masks hold the same positions."""
        return self.word == other.word

    def isdisjoint(self, BitMask other not None):
        """Return whether no position is in both masks."""
        return self.word & other.word == 0

    def is_narrower_than(self, BitMask other not None):
        """Return whether this mask is narrower than `other`.

        Narrower: fewer positions; among masks of equal size, the one of lower value, that is the
        one whose highest differing position is absent.
        """
        cdef int count = popcount(self.word), other_count = popcount(other.word)
        return self.word < other.word if count == other_count else count < other_count

    def is_less_than(self, BitMask other not None):
        """Return whether this mask, read as a number, is lower than `other`."""
        return self.word < other.word

    def is_greater_than(self, BitMask other not None):
        """Return whether this mask, read as a number, is higher than `other`."""
        return self.word > other.word

    def add(self, *bits):
        """Return the mask with `bits` in it.

        Raises:
            ValueError: a position is outside 0..63.
        """
        return mask_of(self.word | word_of_bits(bits))

    def remove(self, *bits):
        """Return the mask without `bits`; positions that are not in it are no error.

        Raises:
            ValueError: a position is outside 0..63.
        """
        return mask_of(self.word & ~word_of_bits(bits))

    def and_(self, *masks):
        """Return what this mask has in common with all of `masks`."""
        cdef uint64_t word = self.word
        for mask in masks:
            word &= (<BitMask?>mask).word
        return mask_of(word)

    def or_(self, *masks):
        """Return the union of this mask and all of `masks`."""
        cdef uint64_t word = self.word
        for mask in masks:
            word |= (<BitMask?>mask).word
        return mask_of(word)

    def clear(self):
        """Return the empty mask."""
        return mask_of(0)

    def fill(self, int width=64):
        """Return the mask of all positions below `width`.

        Raises:
            ValueError: `width` is outside 0..64.
        """
        if not 0 <= width <= 64:
            raise ValueError(f"expected a width in 0..64, got {width!r}")
        return mask_of(all_nodes(width))
