"""Best hints over more than 8 NUMA nodes, by search instead of enumeration.

Three questions are asked of the lists, each of which consists of listed masks, a description, and
any-node hints:

1. The best mask that every list prefers. Listed masks are looked up in the other lists; masks
   that are only described are searched for (`alignup.core.wide.walk`), smallest sizes first.
2. Without one: the size wanted, the largest of the lists' smallest sizes (`smallest_described`).
3. The best mask that the lists have in common, one mask of each. Listed masks are ANDed, list by
   list, for each choice of lists that use their description instead; to those the nodes outside are
   divided (`alignup.core.wide.partition`).

"Best" means the same as in `alignup.core.merge`. Interchangeable nodes are taken together
everywhere, so that a machine of few kinds of nodes is searched through; others may meet the one
budget of steps, and then the answer is the best that was found, and says that it is not exact.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from alignup.core.bits cimport all_nodes, lowest, popcount
from alignup.core.hints cimport HintList
from alignup.core.wide.family cimport Description, WideFamily, listed_family
from alignup.core.wide.limits cimport (
    ANDS_A_STEP,
    MOST_FOLDED,
    MOST_PARTS,
    PARTITION_STEPS,
    SEARCH_STEPS,
    Budget,
)
from alignup.core.wide.partition cimport Partition, end_partition, find_reachable, start_partition
from alignup.core.wide.walk cimport (
    Walk,
    add_description,
    find_best,
    finish,
    prepare,
    smallest_described,
)


cdef class MaskSet:
    """Different masks, none of them empty: a hash table of powers of two, at most half full."""

    cdef uint64_t* slots    # a mask in each, or 0
    cdef int64_t size
    cdef int64_t count

    def __cinit__(self):
        self.size = 16
        self.slots = <uint64_t*>calloc(self.size, sizeof(uint64_t))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)

    cdef bint add(self, uint64_t mask) noexcept nogil:
        """Add a mask; return False if there is no memory for it."""
        cdef int64_t slot = mask * <uint64_t>0x9E3779B97F4A7C15 >> 20 & (self.size - 1)

        while self.slots[slot] and self.slots[slot] != mask:
            slot = (slot + 1) & (self.size - 1)
        if self.slots[slot]:
            return True
        self.slots[slot] = mask
        self.count += 1
        return 2 * self.count <= self.size or self.grow()

    cdef bint grow(self) noexcept nogil:
        cdef uint64_t* before = self.slots
        cdef int64_t slot, size = self.size
        cdef uint64_t* slots = <uint64_t*>calloc(2 * size, sizeof(uint64_t))

        if slots == NULL:
            return False

        self.slots = slots
        self.size = 2 * size
        self.count = 0
        for slot in range(size):
            if before[slot]:
                self.add(before[slot])

        free(before)
        return True


cdef int64_t cost_of(uint64_t mask, const int64_t* distances) noexcept nogil:
    """Return the sum of the distances between all pairs of nodes, each with itself included."""
    cdef int64_t cost = 0
    cdef uint64_t sources, targets

    if distances == NULL:
        return 0

    sources = mask
    while sources:
        targets = mask
        while targets:
            cost += distances[lowest(sources) * 64 + lowest(targets)]
            targets &= targets - 1

        sources &= sources - 1

    return cost


cdef class Entry:
    """One hint list, taken apart."""

    cdef WideFamily family      # what is listed, and what is described
    cdef bint any_preferred
    cdef bint any_unpreferred


cdef Entry entry_of(HintList hints):
    cdef Entry entry = Entry()
    cdef list pairs

    entry.any_preferred = hints.family.any_preferred
    entry.any_unpreferred = hints.family.any_unpreferred
    entry.family = hints.wide
    if entry.family is None:
        pairs = [(mask, preferred) for mask, preferred in hints.pairs() if mask is not None]
        entry.family = listed_family(
            [mask for mask, _ in pairs], [preferred for _, preferred in pairs]
        )
    return entry


cdef class Search:
    """One merge: the lists, and the best result so far."""

    cdef list entries
    cdef uint64_t full
    cdef int numa_nodes
    cdef const int64_t* distances
    cdef Budget budget
    cdef bint is_found
    cdef uint64_t best
    cdef int best_rank
    cdef int64_t best_cost
    cdef int target_size        # the size to come near to; 0 while results are preferred ones

    cdef int rank(self, int size) noexcept nogil:
        """Return the place of a size: from the wanted one down, then from above it up."""
        return self.target_size - size if size <= self.target_size else 64 + size

    cdef void offer(self, uint64_t mask) noexcept nogil:
        """Keep a result if it is better: a size of lower rank, then nearer, then lower."""
        cdef int rank
        cdef int64_t cost

        if not mask:
            return

        rank = self.rank(popcount(mask))
        if self.is_found and rank > self.best_rank:
            return

        cost = cost_of(mask, self.distances)
        if (
            not self.is_found
            or rank < self.best_rank
            or cost < self.best_cost
            or (cost == self.best_cost and mask < self.best)
        ):
            self.is_found = True
            self.best = mask
            self.best_rank = rank
            self.best_cost = cost

    cdef void search_preferred(self) except *:
        """Find the best mask that every list prefers; lists that prefer any node join any other."""
        cdef Entry entry
        cdef list bound = [entry for entry in self.entries if not (<Entry>entry).any_preferred]

        if bound:
            self.search_common(bound)
            return
        self.offer(self.full)
        for entry in self.entries:
            self.search_common([entry])

    cdef void search_common(self, list bound) except *:
        """Find the best mask that all of these lists prefer.

        If one of them describes nothing, every common mask is listed in it: its masks are looked up
        in the others.
        """
        cdef Entry entry

        for entry in bound:
            if not entry.family.described:
                self.look_up(entry, bound)
                return
        for entry in bound:
            self.look_up(entry, bound)
        self.search_described(bound)

    cdef void look_up(self, Entry entry, list bound) except *:
        """Offer the listed masks of one list that all of them prefer."""
        cdef Entry rival
        cdef int index
        cdef uint64_t mask

        for index in range(entry.family.listed_count):
            if not entry.family.listed[index].preferred:
                continue

            mask = entry.family.listed[index].mask
            for rival in bound:
                if not rival.family.membership(mask) & 2:
                    break
            else:
                self.offer(mask & self.full)

    cdef void search_described(self, list bound) except *:
        """Find the best mask that the descriptions of all these lists prefer.

        The smallest sizes come first.
        """
        cdef Entry entry
        cdef int size, first = 1, last = self.numa_nodes
        cdef uint64_t ground = self.full

        for entry in bound:
            ground &= entry.family.description.universe
            if entry.family.description.preferred_sockets < 0:
                first = max(first, entry.family.description.preferred_size)
                last = min(last, entry.family.description.preferred_size)

        for size in range(first, last + 1):
            if self.is_found and popcount(self.best) < size:
                return
            if self.search_size(bound, ground, size):
                return

    cdef bint search_size(self, list bound, uint64_t ground, int size) except *:
        """Find the best preferred mask of one size; True if there is one.

        Whether there is any is asked first without the distances: more nodes are then
        interchangeable.
        """
        cdef uint64_t mask = 0
        if not self.search_by(bound, ground, size, NULL, &mask):
            return False
        if self.distances != NULL:
            self.search_by(bound, ground, size, self.distances, &mask)
        self.offer(mask)
        return True

    cdef bint search_by(
        self, list bound, uint64_t ground, int size, const int64_t* distances, uint64_t* mask
    ) except *:
        """Find the best mask of one size that all descriptions prefer, by the distances given."""
        cdef Walk walk
        cdef Entry entry
        cdef int failed = 0

        memset(&walk, 0, sizeof(walk))
        walk.distances = distances
        walk.budget = &self.budget
        for entry in bound:
            failed = failed or add_description(&walk, &entry.family.description, size)

        failed = failed or prepare(&walk, ground)
        if failed:
            self.budget.cut = True
            return False

        with nogil:
            find_best(&walk, size, 0)
            finish(&walk)

        if walk.is_found:
            mask[0] = walk.best

        return walk.is_found

    cdef void find_target_size(self) except *:
        """Work out the largest of the lists' smallest mask sizes."""
        cdef Entry entry
        cdef int smallest, described, index, size

        for entry in self.entries:
            smallest = 65
            for index in range(entry.family.listed_count):
                smallest = min(smallest, popcount(entry.family.listed[index].mask))

            if entry.family.described and smallest > 1:
                described = smallest_described(&entry.family.description, &self.budget)
                if described < 0:
                    self.budget.cut = True
                elif described:
                    smallest = min(smallest, described)

            size = smallest if smallest < 65 else 0
            self.target_size = max(self.target_size, size)

    cdef void search_reachable(self) except *:
        """Find the best mask that the lists have in common."""
        cdef MaskSet masks
        cdef list lists
        cdef int64_t slot

        self.find_target_size()
        for chosen, masks in self.fold().items():
            lists = [
                self.entries[index] for index in range(len(self.entries)) if (chosen >> index) & 1
            ]
            for slot in range(masks.size):
                if masks.slots[slot]:
                    self.divide(lists, masks.slots[slot])

    cdef dict fold(self):
        """AND the listed masks, for each choice of lists that use their description instead.

        Where no list does, the results are offered at once.

        Returns:
            The results by choice, bit i of which says that list i uses its description.
        """
        cdef Entry entry
        cdef int index, last = len(self.entries) - 1
        cdef dict folded = {0: MaskSet()}, following
        cdef MaskSet masks

        (<MaskSet>folded[0]).add(self.full)
        for index, entry in enumerate(self.entries):
            following = {}
            for chosen, masks in folded.items():
                if entry.family.listed_count or entry.any_preferred or entry.any_unpreferred:
                    if chosen not in following and not (chosen == 0 and index == last):
                        following[chosen] = MaskSet()

                    self.combine(masks, entry, following.get(chosen))

                if entry.family.described:
                    # No other choice has the same bits: those before have none of this list.
                    following[chosen | (<object>1) << index] = masks

            folded = following

        return folded

    cdef int combine(self, MaskSet masks, Entry entry, MaskSet into) except -1:
        """AND every mask of a set with every mask of a list; without `into` offer the results.

        At most half of the budget is spent, so that the lists that follow have a part in the answer
        too.
        """
        cdef int64_t slot, index, steps = entry.family.listed_count // ANDS_A_STEP + 1
        cdef int64_t allowance = self.budget.steps // 2
        cdef bint anywhere = entry.any_preferred or entry.any_unpreferred, room = True

        with nogil:
            for slot in range(masks.size):
                if not masks.slots[slot]:
                    continue

                allowance -= steps
                if allowance < 0 or not room or (into is not None and into.count > MOST_FOLDED):
                    self.budget.cut = True
                    break

                self.budget.steps -= steps
                if anywhere:
                    room = self.take(masks.slots[slot], into)

                for index in range(entry.family.listed_count):
                    room = (
                        self.take(masks.slots[slot] & entry.family.listed[index].mask, into)
                        and room
                    )

        return 0

    cdef bint take(self, uint64_t mask, MaskSet into) noexcept nogil:
        """Add a mask to a set, or offer it; return False if there was no memory."""
        if into is None:
            self.offer(mask)
            return True
        return mask == 0 or into.add(mask)

    cdef void divide(self, list lists, uint64_t base) except *:
        """Find the best mask within `base` that these described lists can be brought down to."""
        cdef const Description* descriptions[MOST_PARTS]
        cdef Entry entry
        cdef int index, size, count = len(lists)
        cdef uint64_t ground = base

        for entry in lists:
            ground &= entry.family.description.universe

        if not ground:
            return

        size = min(self.target_size, popcount(ground)) or 1
        if self.is_found and self.best_rank < self.rank(size):
            return

        if len(lists) > MOST_PARTS or self.budget.steps <= 0:
            # Every list can keep all it has, so this much they have in common.
            self.budget.cut = True
            self.offer(ground)
            return

        for index, entry in enumerate(lists):
            descriptions[index] = &entry.family.description

        self.budget.steps -= PARTITION_STEPS
        # Too large for the stack of a thread, where that may be small.
        cdef Partition* partition = <Partition*>malloc(sizeof(Partition))
        if partition == NULL:
            raise MemoryError

        with nogil:
            size = self.divide_by(
                partition, descriptions, count, ground, NULL, size, popcount(ground)
            )
            if size and self.distances != NULL:
                self.divide_by(partition, descriptions, count, ground, self.distances, size, size)

        free(partition)

    cdef int divide_by(
        self,
        Partition* partition,
        const Description** descriptions,
        int count,
        uint64_t ground,
        const int64_t* distances,
        int first,
        int last,
    ) noexcept nogil:
        """Offer the best mask of the first size from `first` to `last` that has one.

        It is the best by the distances given. Without distances more nodes are interchangeable, so
        that the size is found sooner.

        Returns:
            The size; 0 if none was found.
        """
        cdef int size = first

        if start_partition(partition, descriptions, count, ground, distances, &self.budget):
            self.budget.cut = True
            return 0
        while size <= last and not find_reachable(partition, size):
            size += 1
        end_partition(partition)
        if not partition.walk.is_found:
            return 0
        self.offer(partition.walk.best)
        return size


cdef uint64_t preferred_single_nodes(HintList hints, int numa_nodes):
    """Return the nodes that a list prefers on their own."""
    cdef uint64_t nodes = 0
    cdef int node

    if hints.wide is not None:
        for node in range(numa_nodes):
            nodes |= (<uint64_t>(hints.wide.membership((<uint64_t>1) << node) >> 1 & 1)) << node
        return nodes
    for node in range(min(numa_nodes, 8)):
        nodes |= (
            (<uint64_t>((hints.family.preferred[1 << node >> 6] >> (1 << node & 63)) & 1)) << node
        )
    return nodes


cdef Searched best_single_node(list lists, int numa_nodes):
    """Return the lowest node that every list prefers on its own.

    Lists that prefer any node join any other.
    """
    cdef Searched result
    cdef HintList hints
    cdef uint64_t common = all_nodes(numa_nodes), named = 0, nodes
    cdef bint anywhere = True

    for hints in lists:
        nodes = preferred_single_nodes(hints, numa_nodes)
        named |= nodes
        if not hints.family.any_preferred:
            anywhere = False
            common &= nodes

    common &= named
    result.mask = common & -common if common else all_nodes(numa_nodes)
    result.preferred = anywhere or common != 0
    result.exact = True

    return result


cdef Searched search_best(
    list lists, int numa_nodes, bint single_nodes, const int64_t* distances
) except *:
    """Return the best result of the product of the lists."""
    cdef Search search
    cdef Searched result
    cdef HintList hints

    if single_nodes:
        return best_single_node(lists, numa_nodes)

    result.mask = all_nodes(numa_nodes)
    result.preferred = False
    result.exact = True
    for hints in lists:
        if hints.has_no_hints():
            return result

    search = Search()
    search.numa_nodes = numa_nodes
    search.full = all_nodes(numa_nodes)
    search.distances = distances
    search.budget.steps = SEARCH_STEPS
    search.budget.cut = False
    search.entries = [entry_of(hints) for hints in lists]
    search.search_preferred()
    result.preferred = search.is_found
    if not search.is_found:
        search.search_reachable()

    if search.is_found:
        result.mask = search.best

    result.exact = not search.budget.cut
    return result
