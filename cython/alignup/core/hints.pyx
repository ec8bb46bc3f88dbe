"""Hints and packed lists of hints.

`alignup.core.feasible` makes lists of amounts, for providers; `alignup.core.merge` decides which
hint wins.
"""

from array import array

from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_MASKS, is_single, popcount
from alignup.core.bitmask cimport mask_of
from alignup.core.narrow.family cimport BY_SIZE, drop, has, is_empty, put_hint
from alignup.core.wide.inspect import narrowest_first
from alignup.core.wide.inspect cimport best_of_family, sample_pairs, total_of
from alignup.core.wide.family cimport family_avoiding, listed_family

# A described list of more hints than this is sampled, never walked.
MOST_HINTS = 65536

NO_NODE = "expected hints of at least one node: in arrays a mask without nodes means any node"


cdef TopologyHint hint_of(uint64_t mask, bint is_any, bint preferred):
    cdef TopologyHint hint = TopologyHint.__new__(TopologyHint)
    hint.affinity = None if is_any else mask_of(mask)
    hint.preferred = preferred
    hint.exact = True
    return hint


cdef class TopologyHint:
    """A set of NUMA nodes that a request could be satisfied from.

    `preferred` says whether that is as good as the machine allows. `affinity` None means any node.
    `exact` is False only for a merged hint on more than 8 nodes whose search ran into its stated
    limit: it is the best that was found by then. It plays no part in comparisons.

    Examples:
        >>> TopologyHint(BitMask([0]), True)
        TopologyHint(BitMask([0]), True)
    """

    __match_args__ = ("affinity", "preferred")

    def __init__(self, BitMask affinity, preferred):
        # as numpy's
        if preferred is not True and preferred is not False and preferred not in (0, 1):
            raise TypeError(f"expected True or False for preferred, got {preferred!r:.80}")
        self.affinity = affinity
        self.preferred = preferred
        self.exact = True

    def __eq__(self, other):
        if not isinstance(other, TopologyHint):
            return NotImplemented
        return (
            self.preferred == (<TopologyHint>other).preferred
            and self.affinity == (<TopologyHint>other).affinity
        )

    def __hash__(self):
        return hash((self.affinity, self.preferred))

    def __repr__(self):
        return f"TopologyHint({self.affinity!r}, {self.preferred})"

    def __reduce__(self):
        return restored_hint, (self.affinity, self.preferred, self.exact)


def restored_hint(affinity, preferred, exact):
    """Return the hint that was pickled."""
    cdef TopologyHint hint = TopologyHint(affinity, preferred)
    hint.exact = exact
    return hint


cdef class HintList:
    """An immutable sequence of hints, packed so that a merge touches no Python object.

    A list made from hints keeps their order; lists that providers compute are in ascending order,
    narrowest first. An empty list means that the resource cannot be satisfied.

    Examples:
        >>> HintList([TopologyHint(BitMask([0]), True), TopologyHint(BitMask([0, 1]), False)])[1]
        TopologyHint(BitMask([0, 1]), False)
    """

    def __init__(self, hints=()):
        cdef TopologyHint hint
        cdef list masks = [], preferred = []

        self.listed_hints = tuple(hints)
        for item in self.listed_hints:
            if not isinstance(item, TopologyHint):
                raise TypeError(f"expected TopologyHint objects, got {item!r}")

            hint = item
            if hint.affinity is None:
                if hint.preferred:
                    self.family.any_preferred = True
                else:
                    self.family.any_unpreferred = True
            else:
                masks.append(hint.affinity.word)
                preferred.append(hint.preferred)

        if masks and max(masks) >= NARROW_MASKS:
            self.wide = listed_family(masks, preferred)
            return

        for mask, is_preferred in zip(masks, preferred):
            put_hint(&self.family, mask, is_preferred)

    @staticmethod
    def empty():
        """Return the list without hints: the resource cannot be satisfied anywhere."""
        return HintList.__new__(HintList)

    @staticmethod
    def from_arrays(masks, preferred):
        """Return the list of the hints that two arrays of one length name.

        This is the reverse of `masks` and `preferred`. Order and repetitions do not matter; the
        list is in the order of lists that providers compute.

        Args:
            masks: the nodes of each hint as an integer, 0 for the hint of any node; any integer
                type.
            preferred: whether each hint is preferred; bool.

        Raises:
            TypeError: the arrays are of other types.
            ValueError: they differ in length, have not one dimension, or a mask is negative.

        Examples:
            >>> HintList.from_arrays([0b11, 0b01], [False, True])
            HintList([TopologyHint(BitMask([0]), True), TopologyHint(BitMask([0, 1]), False)])
        """
        cdef HintList hints = HintList.__new__(HintList)
        cdef bytes words, flags
        cdef const char* word
        cdef const char* flag
        cdef uint64_t mask, widest = 0
        cdef Py_ssize_t index

        words, flags = checked_arrays(masks, preferred)
        word = words
        flag = flags
        cdef Py_ssize_t count = len(flags)
        for index in range(count):
            memcpy(&mask, word + 8 * index, 8)
            widest |= mask
            if mask == 0 and flag[index]:
                hints.family.any_preferred = True
            elif mask == 0:
                hints.family.any_unpreferred = True
            elif mask < NARROW_MASKS:
                put_hint(&hints.family, mask, flag[index])

        if widest >= NARROW_MASKS:
            hints.wide = family_of_arrays(words, flags)
            memset(hints.family.preferred, 0, sizeof(hints.family.preferred))
            memset(hints.family.unpreferred, 0, sizeof(hints.family.unpreferred))

        return hints

    @property
    def masks(self):
        """The mask of each hint as an array that cannot be written to.

        Its type is uint8 up to 8 NUMA nodes, else uint64. Ascending, each hint once, with 0 for the
        hint of any node; of two hints of one mask the preferred one comes first. `preferred` goes
        with it, place by place.

        Raises:
            OverflowError: a described list has more than 65,536 hints.
            ValueError: a hint names no node at all, which an array could not tell from any node.
        """
        return self.arrays()[0]

    @property
    def preferred(self):
        """An array of bool, not to be written to: which hints of `masks` are preferred."""
        return self.arrays()[1]

    cdef tuple arrays(self):
        return narrow_arrays(&self.family) if self.wide is None else wide_arrays(self.pairs())

    cdef bint has_no_hints(self):
        if self.listed_hints is not None:
            return len(self.listed_hints) == 0
        if self.wide is None:
            return is_empty(&self.family)
        return not self.wide.described and self.wide.listed_count == 0

    def pairs(self, limit=None):
        """Return (mask, preferred) for each hint, in the order of iteration.

        The mask is an int, or None for any node. With a limit: for the hints that `sample` returns.

        Raises:
            ValueError: the limit is negative.
        """
        if limit is not None:
            limit = checked_limit(limit)
            if self.listed_hints is not None or self.wide is None:
                return self.all_pairs()[:limit]
            return self.any_node_pairs(sample_pairs(self.wide, limit))[:limit]
        return self.all_pairs()

    def preferred_masks(self, limit):
        """Return the masks of the preferred hints among those that `sample` returns.

        For any node it is None.

        Raises:
            ValueError: the limit is negative.
        """
        cdef list masks = []
        cdef int place

        if self.listed_hints is not None or self.wide is not None or limit < 2 * NARROW_MASKS:
            return [mask for mask, preferred in self.pairs(limit) if preferred]
        for place in range(NARROW_MASKS):
            if has(self.family.preferred, BY_SIZE[place]):
                masks.append(BY_SIZE[place])
        if self.family.any_preferred:
            masks.append(None)
        return masks

    cdef list all_pairs(self):
        """Return the pairs of all hints."""
        cdef TopologyHint hint
        cdef list pairs = []
        cdef int place, mask

        if self.listed_hints is not None:
            for item in self.listed_hints:
                hint = item
                pairs.append(
                    (None if hint.affinity is None else hint.affinity.word, bool(hint.preferred))
                )

            return pairs

        if self.wide is not None:
            return self.any_node_pairs(self.all_wide_pairs())

        for place in range(NARROW_MASKS):
            mask = BY_SIZE[place]
            if has(self.family.preferred, mask):
                pairs.append((mask, True))

            if has(self.family.unpreferred, mask):
                pairs.append((mask, False))

        return self.any_node_pairs(pairs)

    cdef list any_node_pairs(self, list pairs):
        """Add the hints without a mask at the end."""
        if self.family.any_preferred:
            pairs.append((None, True))
        if self.family.any_unpreferred:
            pairs.append((None, False))
        return pairs

    cdef list all_wide_pairs(self):
        total = total_of(self.wide)
        if self.wide.described and (total is None or total > MOST_HINTS):
            count = "too many to count" if total is None else total
            raise OverflowError(
                f"expected at most {MOST_HINTS} hints to walk through, got {count}; use sample()"
            )
        return sample_pairs(self.wide, total)

    def total(self):
        """Return how many hints there are, None when there are too many to count.

        Beyond 8 NUMA nodes a list may describe more hints than can be walked; `len` and iteration
        then raise OverflowError, and `sample` shows some.
        """
        if self.listed_hints is not None or self.wide is None:
            return len(self)
        total = total_of(self.wide)
        if total is None:
            return None
        return total + self.family.any_preferred + self.family.any_unpreferred

    def sample(self, limit):
        """Return the first `limit` hints, at most 65,536.

        Of a described list these are the narrowest.

        Raises:
            ValueError: `limit` is negative.
        """
        limit = checked_limit(limit)
        if self.listed_hints is not None or self.wide is None:
            return self.hints()[:limit]
        return tuple(
            [hint_of(mask or 0, mask is None, preferred) for mask, preferred in self.pairs(limit)]
        )

    def avoiding(self, uint64_t avoided):
        """Return the hints except those of several nodes that touch the mask `avoided`."""
        cdef HintList remaining
        cdef int mask

        if self.listed_hints is not None:
            return HintList([hint for hint in self.listed_hints if not mixes(hint, avoided)])

        remaining = HintList.__new__(HintList)
        remaining.family = self.family
        if self.wide is not None:
            remaining.wide = family_avoiding(self.wide, avoided)
            return remaining

        for mask in range(NARROW_MASKS):
            if mask & avoided and not is_single(mask):
                drop(remaining.family.preferred, mask)
                drop(remaining.family.unpreferred, mask)

        return remaining

    def best(self):
        """Return (mask, preferred) of the best hint with a mask, None if there is none.

        Best: preferred ones first, then the narrowest.
        """
        return self.best_containing(0)

    def best_containing(self, uint64_t inner):
        """Return the same as `best`, among the hints whose mask includes `inner`."""
        cdef list candidates
        cdef int mask

        if self.listed_hints is None:
            if self.wide is not None:
                return best_of_family(self.wide, inner)

            mask = first_of(self.family.preferred, inner)
            if mask >= 0:
                return mask, True

            mask = first_of(self.family.unpreferred, inner)
            return (mask, False) if mask >= 0 else None

        candidates = [
            (not preferred, popcount(word), word)
            for word, preferred in self.pairs()
            if word is not None and (<uint64_t>word) & inner == inner
        ]
        if not candidates:
            return None

        is_unpreferred, _, word = min(candidates)
        return word, not is_unpreferred

    def __len__(self):
        return len(self.listed_hints) if self.listed_hints is not None else len(self.pairs())

    def __bool__(self):
        return not self.has_no_hints()

    def __iter__(self):
        return iter(self.hints())

    def __getitem__(self, index):
        return self.hints()[index]

    def __contains__(self, hint):
        return hint in self.hints()

    def __reversed__(self):
        return reversed(self.hints())

    def index(self, hint, *limits):
        """Return the place of the first such hint, within the limits if given.

        Raises:
            ValueError: there is no such hint.
        """
        return self.hints().index(hint, *limits)

    def count(self, hint):
        """Return how often the hint is in the list."""
        return self.hints().count(hint)

    def hints(self):
        """Return the hints as a tuple of objects."""
        if self.listed_hints is not None:
            return self.listed_hints
        return tuple(
            [hint_of(mask or 0, mask is None, preferred) for mask, preferred in self.pairs()]
        )

    def __eq__(self, other):
        if isinstance(other, list):
            return list(self.hints()) == other
        if not isinstance(other, HintList):
            return NotImplemented
        return self.pairs() == other.pairs()

    def __hash__(self):
        return hash(tuple(self.pairs()))

    def __repr__(self):
        total = self.total()
        if total is None or total > MOST_HINTS:
            return f"<HintList of {total or 'countless'} hints, first {list(self.sample(2))!r}>"
        return f"HintList({list(self.hints())!r})"

    def __reduce__(self):
        return HintList, (self.hints(),)

    def __copy__(self):
        return self

    def __deepcopy__(self, _memo):
        return self


# Stands in a merge for a provider or resource without a preference: any node, and preferred.
NO_PREFERENCE = HintList([TopologyHint(None, True)])

# Stands in a merge for a resource that cannot be satisfied: any node, and not preferred.
IMPOSSIBLE = HintList([TopologyHint(None, False)])


cdef WideFamily family_of_arrays(bytes words, bytes flags):
    """Return the family that lists the masks of two arrays, without those of no node."""
    cdef set pairs = set(zip(array("Q", words), map(bool, flags)))
    cdef list ordered = sorted([pair for pair in pairs if pair[0]], key=narrowest_first)
    return listed_family([mask for mask, _ in ordered], [preferred for _, preferred in ordered])


cdef int checked_limit(limit) except -1:
    """Return a number of hints to look at, at most 65,536.

    Raises:
        ValueError: it is negative.
    """
    if limit < 0:
        raise ValueError(f"expected how many hints to return, got {limit}")
    return min(limit, MOST_HINTS)


cdef bint mixes(TopologyHint hint, uint64_t avoided):
    return (
        hint.affinity is not None
        and hint.affinity.word & avoided
        and not is_single(hint.affinity.word)
    )


cdef int first_of(const uint64_t* masks, uint64_t inner) noexcept nogil:
    """Return the narrowest mask of a set that includes `inner`, -1 if there is none."""
    cdef int place
    for place in range(NARROW_MASKS):
        if BY_SIZE[place] & inner == inner and has(masks, BY_SIZE[place]):
            return BY_SIZE[place]
    return -1


# Arrays: masks, and whether each is preferred. Only these functions import numpy.

cdef tuple narrow_arrays(const Family* family):
    """Return the arrays of a list whose masks all fit 8 nodes."""
    cdef uint8_t masks[2 * NARROW_MASKS]
    cdef uint8_t preferred[2 * NARROW_MASKS]
    cdef int mask, count = 0

    if has(family.preferred, 0) or has(family.unpreferred, 0):
        raise ValueError(NO_NODE)

    for mask in range(NARROW_MASKS):
        masks[count] = mask
        preferred[count] = True
        count += family.any_preferred if mask == 0 else has(family.preferred, mask)
        masks[count] = mask
        preferred[count] = False
        count += family.any_unpreferred if mask == 0 else has(family.unpreferred, mask)

    return array_of((<char*>masks)[:count], "u1"), array_of((<char*>preferred)[:count], "?")


cdef tuple wide_arrays(list pairs):
    """Return the arrays of a list with masks beyond 8 nodes.

    Each pair is (mask or None, preferred).
    """
    cdef list ordered

    if any([mask == 0 for mask, _ in pairs]):
        raise ValueError(NO_NODE)
    ordered = sorted({(mask or 0, not preferred) for mask, preferred in pairs})
    return (
        array_of(array("Q", [mask for mask, _ in ordered]).tobytes(), "u8"),
        array_of(bytes([not is_unpreferred for _, is_unpreferred in ordered]), "?"),
    )


def array_of(data, dtype):
    """Return the bytes as an array that cannot be written to."""
    import numpy  # imported late: only arrays need it

    return numpy.ndarray(len(data) // numpy.dtype(dtype).itemsize, dtype, data)


cdef tuple checked_arrays(object masks, object preferred):
    """Return two arrays as the bytes of uint64 and of bool."""
    import numpy  # as above

    masks = numpy.asarray(masks)
    preferred = numpy.asarray(preferred)
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
