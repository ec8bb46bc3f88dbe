"""Look into one described family of masks.

That is its best mask, all of them, a sample, or how many there are. It leaves it to
`alignup.core.wide.merge` to find the masks that several families have in common.
"""

from math import comb

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from alignup.core.bits cimport popcount
from alignup.core.wide.walk cimport (
    Walk,
    add_description,
    collect,
    find_best,
    finish,
    prepare,
    satisfied,
)
from alignup.core.wide.limits cimport MOST_CHOICES, SAMPLE_STEPS, SEARCH_STEPS, Budget
from alignup.core.wide.family cimport Description, prefers


cdef list sample_pairs(WideFamily family, int64_t limit):
    """Return (mask, preferred) for at most `limit` masks of a family, narrowest first."""
    cdef list pairs = [
        (family.listed[index].mask, bool(family.listed[index].preferred))
        for index in range(family.listed_count)
    ]

    if family.described:
        pairs += sample_described(&family.description, limit)
    pairs.sort(key=narrowest_first)
    return pairs[:limit]


def narrowest_first(pair):
    """Return what orders (mask, preferred) pairs: size, then value, and the preferred one first."""
    return pair[0].bit_count(), pair[0], not pair[1]


cdef list sample_described(const Description* description, int64_t limit):
    cdef Walk walk
    cdef Budget budget = Budget(steps=SAMPLE_STEPS, cut=False)
    cdef int size
    cdef int64_t index
    cdef list pairs

    memset(&walk, 0, sizeof(walk))
    walk.budget = &budget
    if add_description(&walk, description, 0) or prepare(&walk, description.universe):
        return []

    walk.collected = <uint64_t*>calloc(limit + 1, sizeof(uint64_t))
    walk.room = limit
    if walk.collected == NULL:
        finish(&walk)
        raise MemoryError

    with nogil:
        for size in range(1, walk.count + 1):
            collect(&walk, size)

    pairs = [
        (walk.collected[index], bool(prefers(description, walk.collected[index])))
        for index in range(walk.collected_count)
    ]
    free(walk.collected)
    finish(&walk)

    return pairs


cdef object total_of(WideFamily family):
    """Return how many masks a family has, None when that would take too long to count."""
    cdef Walk walk
    cdef object total

    if not family.described:
        return family.listed_count

    memset(&walk, 0, sizeof(walk))
    if (
        add_description(&walk, &family.description, 0)
        or prepare(&walk, family.description.universe)
    ):
        return None

    total = count_choices(&walk)
    finish(&walk)
    return None if total is None else total + family.listed_count


cdef object count_choices(const Walk* walk):
    """Count the sets that satisfy a walk, taking interchangeable nodes together."""
    cdef list classes = []
    cdef int candidate
    cdef object choices = 1
    cdef uint64_t counted = 0

    for candidate in range(walk.count - 1, -1, -1):
        if (counted >> candidate) & 1:
            continue

        members = [
            lower
            for lower in range(candidate + 1)
            if lower == candidate or (walk.lower_alike[candidate] >> lower) & 1
        ]
        for lower in members:
            counted |= (<uint64_t>1) << <int>lower

        classes.append([walk.nodes[<int>lower] for lower in members])
        choices *= len(members) + 1

    return None if choices > MOST_CHOICES else count_classes(walk, classes, 0, 1)


cdef object count_classes(const Walk* walk, list classes, uint64_t mask, object ways):
    """Count the sets that take any number of nodes of each remaining class.

    The mask is what is taken so far.
    """
    cdef object total = 0, members
    cdef int taken

    if not classes:
        return ways if mask and satisfied(walk, mask) else 0
    members = classes[0]
    for taken in range(len(members) + 1):
        if taken:
            mask |= (<uint64_t>1) << <int>members[taken - 1]
        total += count_classes(walk, classes[1:], mask, ways * comb(len(members), taken))
    return total


cdef tuple best_of_family(WideFamily family, uint64_t inner):
    """Return (mask, preferred) of the best mask of a family that includes `inner`.

    It is None if there is none.
    """
    cdef list candidates = []
    cdef int index
    cdef object described

    for index in range(family.listed_count):
        if family.listed[index].mask & inner == inner:
            candidates.append(
                (
                    not family.listed[index].preferred,
                    popcount(family.listed[index].mask),
                    family.listed[index].mask,
                )
            )

    if family.described and not inner & ~family.description.universe:
        described = best_described(&family.description, inner)
        if described is not None:
            candidates.append(described)

    if not candidates:
        return None

    is_unpreferred, _, mask = min(candidates)
    return mask, not is_unpreferred


cdef object best_described(const Description* description, uint64_t inner):
    """Return (not preferred, size, mask) of the best described mask that includes `inner`.

    It is None if there is none.
    """
    cdef int size, last = popcount(description.universe), first = max(popcount(inner), 1)
    cdef Budget budget = Budget(steps=SEARCH_STEPS, cut=False)
    cdef uint64_t mask

    for size in range(first, last + 1):
        if size == description.preferred_size or description.preferred_sockets >= 0:
            if find_described(description, inner, size, size, True, &budget, &mask):
                return False, size, mask
    size = find_described(description, inner, first, last, False, &budget, &mask)
    return (True, size, mask) if size else None


cdef int find_described(
    const Description* description,
    uint64_t inner,
    int first,
    int last,
    bint preferred,
    Budget* budget,
    uint64_t* mask,
) noexcept nogil:
    """Find the lowest mask of the first size from `first` to `last` that has one.

    Return that size, or 0. The mask includes `inner`, and is a preferred one if so asked; what that
    means depends on the size, so that `first` and `last` are then the same.
    """
    cdef Walk walk
    cdef int size, found_size = 0

    memset(&walk, 0, sizeof(walk))
    if add_description(&walk, description, first if preferred else 0):
        return 0
    if prepare(&walk, description.universe & ~inner):
        return 0

    walk.budget = budget
    for size in range(first, last + 1):
        if find_best(&walk, size, inner):
            found_size = size
            break

    finish(&walk)
    mask[0] = walk.best
    return found_size
