"""Look into one described family of masks: its best mask, all of them, a sample, or how many there are.

What several families have in common is the business of `alignup.core.wide.merge`.
"""

from math import comb

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from alignup.core.bits cimport popcount
from alignup.core.wide.subset_search cimport Cover, add_description, find, finish, prepare, satisfied
from alignup.core.wide.limits cimport SEARCH_STEPS
from alignup.core.wide.family cimport Description, prefers

# A family of more kinds of choices than this is not counted.
MOST_CHOICES = 1_000_000
SAMPLE_STEPS = 20_000_000


cdef list sample_pairs(WideFamily family, int64_t limit):
    """Return (mask, preferred) for at most `limit` masks of a family, narrowest first."""
    cdef list found = [
        (family.listed[index].mask, bool(family.listed[index].preferred)) for index in range(family.listed_count)
    ]
    if family.described:
        found += sample_described(&family.description, limit)
    found.sort(key=narrowest_first)
    return found[:limit]


def narrowest_first(pair):
    """Return what orders (mask, preferred) pairs: size, then value, and the preferred one first."""
    return pair[0].bit_count(), pair[0], not pair[1]


cdef list sample_described(const Description* description, int64_t limit):
    cdef Cover cover
    cdef int size
    cdef int64_t index
    cdef list found
    memset(&cover, 0, sizeof(cover))
    cover.steps = SAMPLE_STEPS
    if add_description(&cover, description, 0) or prepare(&cover, description.universe):
        return []
    memset(cover.lower_alike, 0, sizeof(cover.lower_alike))
    cover.collected = <uint64_t*>calloc(limit + 1, sizeof(uint64_t))
    cover.room = limit
    if cover.collected == NULL:
        finish(&cover)
        raise MemoryError
    with nogil:
        for size in range(1, cover.count + 1):
            find(&cover, size, 0, True)
    found = [
        (cover.collected[index], bool(prefers(description, cover.collected[index])))
        for index in range(cover.collected_count)
    ]
    free(cover.collected)
    finish(&cover)
    return found


cdef object total_of(WideFamily family):
    """Return how many masks a family has, None when that would take too long to count."""
    cdef Cover cover
    cdef object total
    if not family.described:
        return family.listed_count
    memset(&cover, 0, sizeof(cover))
    if add_description(&cover, &family.description, 0) or prepare(&cover, family.description.universe):
        return None
    total = count_choices(&cover)
    finish(&cover)
    return None if total is None else total + family.listed_count


cdef object count_choices(const Cover* cover):
    """Count the sets that satisfy a cover, taking interchangeable nodes together."""
    cdef list classes = []
    cdef int candidate
    cdef object choices = 1
    cdef uint64_t seen = 0
    for candidate in range(cover.count - 1, -1, -1):
        if (seen >> candidate) & 1:
            continue
        members = [lower for lower in range(candidate + 1) if lower == candidate
                   or (cover.lower_alike[candidate] >> lower) & 1]
        for lower in members:
            seen |= (<uint64_t>1) << <int>lower
        classes.append([cover.nodes[<int>lower] for lower in members])
        choices *= len(members) + 1
    return None if choices > MOST_CHOICES else count_classes(cover, classes, 0, 1)


cdef object count_classes(const Cover* cover, list classes, uint64_t mask, object ways):
    """Count the sets that take any number of nodes of each remaining class, given the mask so far."""
    cdef object total = 0, members
    cdef int taken
    if not classes:
        return ways if mask and satisfied(cover, mask) else 0
    members = classes[0]
    for taken in range(len(members) + 1):
        if taken:
            mask |= (<uint64_t>1) << <int>members[taken - 1]
        total += count_classes(cover, classes[1:], mask, ways * comb(len(members), taken))
    return total


cdef tuple best_of_family(WideFamily family, uint64_t inner):
    """Return (mask, preferred) of the best mask of a family that includes `inner`, None if there is none."""
    cdef list found = []
    cdef int index
    cdef object described
    for index in range(family.listed_count):
        if family.listed[index].mask & inner == inner:
            found.append((not family.listed[index].preferred, popcount(family.listed[index].mask),
                          family.listed[index].mask))
    if family.described and not inner & ~family.description.universe:
        described = best_described(&family.description, inner)
        if described is not None:
            found.append(described)
    if not found:
        return None
    other, _, mask = min(found)
    return mask, not other


cdef object best_described(const Description* description, uint64_t inner):
    """Return (not preferred, size, mask) of the best described mask that includes `inner`, None if there is none."""
    cdef int size, most = popcount(description.universe), first = max(popcount(inner), 1)
    cdef int64_t steps = SEARCH_STEPS
    cdef uint64_t mask
    for size in range(first, most + 1):
        if size == description.preferred_size or description.preferred_sockets >= 0:
            if find_described(description, inner, size, size, True, &steps, &mask):
                return False, size, mask
    size = find_described(description, inner, first, most, False, &steps, &mask)
    return (True, size, mask) if size else None


cdef int find_described(
    const Description* description, uint64_t inner, int first, int last, bint preferred, int64_t* steps,
    uint64_t* mask,
) noexcept nogil:
    """Find the lowest mask of the first size from `first` to `last` that has one; return that size, else 0.

    The mask includes `inner`, and is a preferred one if so asked; what that means depends on the size, so that
    `first` and `last` are then the same.
    """
    cdef Cover cover
    cdef int size, found = 0
    memset(&cover, 0, sizeof(cover))
    if add_description(&cover, description, first if preferred else 0):
        return 0
    if prepare(&cover, description.universe & ~inner):
        return 0
    cover.steps = steps[0]
    for size in range(first, last + 1):
        if find(&cover, size, inner, False):
            found = size
            break
    finish(&cover)
    steps[0] = cover.steps
    mask[0] = cover.best
    return found
