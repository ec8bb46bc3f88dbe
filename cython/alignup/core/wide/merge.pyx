"""Best hints over more than 8 NUMA nodes, by search instead of enumeration.

A list consists of listed masks, a description (all sets of nodes that hold enough), and any-node hints. Preferred
results are masks that every list prefers: listed ones are looked up, described ones searched for by
`alignup.core.wide.subset_search`. Results that are not preferred are what lists have in common: listed masks are
folded, described lists are dealt the nodes to leave out by `alignup.core.wide.partition`. What "best" means is the
same as in `alignup.core.merge`.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from alignup.core.bits cimport all_nodes, popcount
from alignup.core.wide.subset_search cimport Cover, add_description, find, finish, prepare, smallest_described
from alignup.core.wide.partition cimport MOST_DEALERS, Deal, deal_out, end_deal, start_deal
from alignup.core.hints cimport HintList
from alignup.core.wide.limits cimport SEARCH_STEPS
from alignup.core.wide.family cimport Description, WideFamily

# How many steps it is worth to prepare a deal.
DEAL_STEPS = 500
# Listed masks are folded as long as a list takes no more ANDs than this; then only some go on, worth so many ANDs.
MOST_FOLDED = 16_000_000
FOLDED_ON = 1_000_000


cdef int64_t cost_of(uint64_t mask, const int64_t* distances) noexcept nogil:
    """Return the sum of the distances between all pairs of nodes, each with itself included."""
    cdef int64_t cost = 0
    cdef int one, other
    if distances == NULL:
        return 0
    for one in range(64):
        if (mask >> one) & 1:
            for other in range(64):
                if (mask >> other) & 1:
                    cost += distances[one * 64 + other]
    return cost


cdef class Entry:
    """One hint list, taken apart."""

    cdef list masks             # listed masks and whether each is preferred
    cdef list preferred
    cdef WideFamily described   # None when nothing is described
    cdef bint any_preferred
    cdef bint any_other

    cdef bint prefers(self, uint64_t mask):
        cdef int index
        for index in range(len(self.masks)):
            if self.preferred[index] and self.masks[index] == mask:
                return True
        return self.described is not None and self.described.membership(mask) & 2 != 0


cdef Entry entry_of(HintList hints, int numa_nodes, bint single_nodes):
    cdef Entry entry = Entry()
    cdef WideFamily family = hints.wide
    cdef int index
    entry.any_preferred = hints.family.any_preferred
    entry.any_other = hints.family.any_other and not single_nodes
    entry.masks = []
    entry.preferred = []
    if family is None:
        for mask, preferred in hints.pairs():
            if mask is not None:
                entry.masks.append(mask)
                entry.preferred.append(preferred)
    else:
        for index in range(family.listed_count):
            entry.masks.append(family.listed[index].mask)
            entry.preferred.append(bool(family.listed[index].preferred))
        if family.described:
            entry.described = family
    if single_nodes:
        keep_single_nodes(entry, numa_nodes)
    return entry


cdef void keep_single_nodes(Entry entry, int numa_nodes) except *:
    """Keep the preferred masks of one node."""
    cdef list kept = [
        mask for mask, preferred in zip(entry.masks, entry.preferred) if preferred and popcount(mask) == 1
    ]
    cdef int node
    if entry.described is not None:
        for node in range(numa_nodes):
            if entry.described.membership((<uint64_t>1) << node) & 2:
                kept.append((<uint64_t>1) << node)
        entry.described = None
    entry.masks = kept
    entry.preferred = [True] * len(kept)


cdef dict some_of(dict folded, int64_t most):
    """Return at most so many of the folded masks, from the choices that use fewest descriptions."""
    cdef dict some = {}
    for chosen in sorted(folded, key=int.bit_count):
        some[chosen] = set(sorted(folded[chosen])[:most])
        most -= len(some[chosen])
        if most <= 0:
            break
    return some


cdef class Search:
    """One merge: the lists, and the best result so far."""

    cdef list entries
    cdef uint64_t full
    cdef int numa_nodes
    cdef const int64_t* distances
    cdef int64_t steps
    cdef bint exact
    cdef bint found
    cdef uint64_t best
    cdef int64_t best_cost
    cdef int wanted

    cdef void offer_preferred(self, uint64_t mask):
        """Keep a preferred result if it is better: fewer nodes, nearer, lower value."""
        cdef int64_t cost
        cdef int count = popcount(mask), best_count = popcount(self.best)
        if not mask:
            return
        cost = cost_of(mask, self.distances)
        if not self.found or (count, cost, mask) < (best_count, self.best_cost, self.best):
            self.found, self.best, self.best_cost = True, mask, cost

    cdef tuple rank(self, int count):
        """Return what orders sizes when nothing is preferred: from the wanted size down, then up."""
        return (0, self.wanted - count) if count <= self.wanted else (1, count)

    cdef void offer(self, uint64_t mask):
        """Keep a result that is not preferred if it is better."""
        cdef int64_t cost
        if not mask:
            return
        cost = cost_of(mask, self.distances)
        if not self.found or (self.rank(popcount(mask)), cost, mask) < (
            self.rank(popcount(self.best)), self.best_cost, self.best
        ):
            self.found, self.best, self.best_cost = True, mask, cost

    cdef void search_preferred(self) except *:
        """Find the best mask that every list prefers; lists that prefer any node join any other."""
        cdef Entry entry
        cdef list bound = [entry for entry in self.entries if not (<Entry>entry).any_preferred]
        if bound:
            self.search_common(bound)
            return
        self.offer_preferred(self.full)
        for entry in self.entries:
            self.search_common([entry])

    cdef void search_common(self, list bound) except *:
        """Find the best mask that all of these lists prefer."""
        cdef Entry entry, other
        cdef int index
        cdef bint common
        for entry in bound:
            for index in range(len(entry.masks)):
                if not entry.preferred[index]:
                    continue
                common = True
                for other in bound:
                    if not other.prefers(entry.masks[index]):
                        common = False
                        break
                if common:
                    self.offer_preferred(<uint64_t>entry.masks[index] & self.full)
        for entry in bound:
            if entry.described is None:
                return
        self.search_described(bound)

    cdef void search_described(self, list bound) except *:
        """Find the best mask that the descriptions of all these lists prefer, smallest sizes first."""
        cdef Entry entry
        cdef int size, first = 1, last = self.numa_nodes
        cdef uint64_t ground = self.full
        for entry in bound:
            ground &= entry.described.description.universe
            if entry.described.description.preferred_sockets < 0:
                first = max(first, entry.described.description.preferred_size)
                last = min(last, entry.described.description.preferred_size)
        for size in range(first, last + 1):
            if self.found and popcount(self.best) < size:
                return
            if self.search_size(bound, ground, size):
                return

    cdef bint search_size(self, list bound, uint64_t ground, int size) except *:
        """Find the best preferred mask of one size; True if there is one.

        Whether there is any is asked first without the distances: more nodes are then interchangeable.
        """
        cdef uint64_t mask = 0
        if not self.search_by(bound, ground, size, NULL, &mask):
            return False
        if self.distances != NULL:
            self.search_by(bound, ground, size, self.distances, &mask)
        self.offer_preferred(mask)
        return True

    cdef bint search_by(
        self, list bound, uint64_t ground, int size, const int64_t* distances, uint64_t* mask
    ) except *:
        """Find the best mask of one size that all descriptions prefer, by the distances given."""
        cdef Cover cover
        cdef Entry entry
        cdef int failed = 0
        memset(&cover, 0, sizeof(cover))
        cover.distances = distances
        cover.steps = self.steps
        for entry in bound:
            failed = failed or add_description(&cover, &entry.described.description, size)
        failed = failed or prepare(&cover, ground)
        if failed:
            self.exact = False
            return False
        with nogil:
            find(&cover, size, 0, False)
            finish(&cover)
        self.steps = cover.steps
        if cover.found:
            mask[0] = cover.best
        return cover.found

    cdef void find_wanted(self) except *:
        """Work out the largest of the lists' smallest mask sizes."""
        cdef Entry entry
        cdef int smallest, described
        self.wanted = 0
        for entry in self.entries:
            smallest = min([popcount(mask) for mask in entry.masks], default=0)
            if entry.described is not None and smallest != 1:
                described = smallest_described(&entry.described.description, &self.steps)
                if described < 0:
                    self.exact = False
                elif described and (not smallest or described < smallest):
                    smallest = described
            self.wanted = max(self.wanted, smallest)

    cdef void search_reachable(self) except *:
        """Find the best mask that some permutation comes down to."""
        cdef dict folded = self.fold()
        self.find_wanted()
        for chosen, masks in folded.items():
            lists = [self.entries[index] for index in range(len(self.entries)) if (chosen >> index) & 1]
            for mask in masks:
                if not mask:
                    continue
                if lists:
                    self.deal(lists, mask)
                else:
                    self.offer(mask)

    cdef dict fold(self):
        """AND together the listed masks, for each choice of lists that use their description instead.

        Returns:
            Sets of masks by the choice, bit i of which says that list i uses its description.
        """
        cdef Entry entry
        cdef int index
        cdef dict folded = {0: {self.full}}, following
        cdef set listed
        for index, entry in enumerate(self.entries):
            listed = {mask & self.full for mask in entry.masks}
            if entry.any_preferred or entry.any_other:
                listed.add(self.full)
            if sum(map(len, folded.values())) * (len(listed) + 1) > MOST_FOLDED:
                self.exact = False
                folded = some_of(folded, FOLDED_ON // (len(listed) + 1) + 1)
            following = {}
            for chosen, masks in folded.items():
                if listed:
                    following.setdefault(chosen, set()).update({mask & other for mask in masks for other in listed})
                if entry.described is not None:
                    following.setdefault(chosen | (<object>1) << index, set()).update(masks)
            folded = following
            for masks in folded.values():
                masks.discard(0)
        return folded

    cdef void deal(self, list lists, uint64_t base) except *:
        """Find the best mask within `base` that these described lists can be brought down to."""
        cdef const Description* descriptions[MOST_DEALERS]
        cdef Entry entry
        cdef int index, size
        cdef uint64_t ground = base
        for entry in lists:
            ground &= entry.described.description.universe
        if not ground:
            return
        if len(lists) > MOST_DEALERS:
            # Every list can keep all it has, so this much they have in common.
            self.exact = False
            self.offer(ground)
            return
        size = min(self.wanted, popcount(ground)) or 1
        if self.found and self.rank(popcount(self.best)) < self.rank(size):
            return
        for index, entry in enumerate(lists):
            descriptions[index] = &entry.described.description
        if self.steps <= 0:
            return
        self.steps -= DEAL_STEPS
        # Too large for the stack of a thread, where that may be small.
        cdef Deal* deal = <Deal*>malloc(sizeof(Deal))
        if deal == NULL:
            raise MemoryError
        try:
            size = self.deal_by(deal, descriptions, len(lists), ground, NULL, size, popcount(ground))
            if size and self.distances != NULL:
                self.deal_by(deal, descriptions, len(lists), ground, self.distances, size, size)
        finally:
            free(deal)

    cdef int deal_by(
        self, Deal* deal, const Description** descriptions, int count, uint64_t ground, const int64_t* distances,
        int first, int last,
    ) except -1:
        """Offer the best mask, by the distances given, of the first size from `first` to `last` that has one.

        Returns:
            The size; 0 if none was found.
        """
        cdef int size = first
        if start_deal(deal, descriptions, count, ground, distances):
            self.exact = False
            return 0
        deal.steps = self.steps
        with nogil:
            while size <= last and not deal_out(deal, size):
                size += 1
            end_deal(deal)
        self.steps = deal.steps
        if not deal.found:
            return 0
        self.offer(deal.best)
        return size


cdef Searched search_best(list lists, int numa_nodes, bint single_nodes, const int64_t* distances) except *:
    """Return the best result of the product of the lists."""
    cdef Search search = Search()
    cdef Searched result
    cdef Entry entry
    search.numa_nodes = numa_nodes
    search.full = all_nodes(numa_nodes)
    search.distances = distances
    search.steps = SEARCH_STEPS
    search.exact = True
    search.entries = [entry_of(hints, numa_nodes, single_nodes) for hints in lists]
    result.mask = search.full
    result.preferred = False
    result.exact = True
    for entry in search.entries:
        if not (entry.masks or entry.described is not None or entry.any_preferred or entry.any_other):
            return result
    search.search_preferred()
    result.preferred = search.found
    if not search.found:
        search.search_reachable()
    if search.found:
        result.mask = search.best
    result.exact = search.exact and search.steps > 0
    return result
