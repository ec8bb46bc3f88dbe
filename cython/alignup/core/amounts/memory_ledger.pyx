"""Keep the memory of one machine as amounts.

This is the Python interface to `alignup.core.amounts.memory_allocation`. A ledger knows NUMA nodes,
types and bytes. Pods and containers are known to `alignup.providers.memory`.
"""

cimport cython
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.memory_allocation cimport (
    MEMORY_BOUND_OTHERWISE,
    MEMORY_CHOSEN,
    MEMORY_NOT_PREFERRED,
    MemoryHints,
    MemoryOutcome,
    best_memory_hint,
    bind_memory,
    choose_memory,
    copy_memory,
    empty_memory,
    give_back_memory,
    memory_bytes,
    memory_family,
    place_memory,
    rebind_memory,
    suffices_with_reuse,
    take_memory,
    take_what_is_free,
)
from alignup.core.amounts.memory_groups cimport refresh_groups
from alignup.core.amounts.memory_state cimport MOST_TYPES, MemoryRequest, MemoryTaking
from alignup.core.amounts.fewest_numa_nodes cimport smallest_memory_size
from alignup.core.bits cimport NARROW_NODES, all_nodes, lowest, popcount
from alignup.core.blocks cimport zeroed
from alignup.core.hints cimport HintList
from alignup.core.shared_dict cimport SharedDict

from alignup.core.feasible import feasible_hints, smallest_size

# No machine holds as much, and no sum of two such amounts leaves 63 bits.
LARGEST_REQUEST = (1 << 61) + 1
# requests whose smallest size is remembered beyond 8 nodes; then all are forgotten
SIZES_KEPT = 512
MOST_DONORS = 64


@cython.final
cdef class MemoryCapacity:
    """The memory of each type that a machine has to give, by position of the NUMA node.

    Nodes that are equal share it.

    Args:
        allocatable: type name -> bytes of each NUMA node.
        checks_groups: refuse an allocation that breaks the group rule; False: share nodes
            between groups.

    Raises:
        ValueError: amounts are negative, or not as many as there are nodes.
    """

    def __cinit__(self):
        self.layout.allocatable = NULL
        self.layout.largest_sums = NULL

    def __init__(self, allocatable not None, *, bint checks_groups=True):
        cdef int type, node, nodes
        cdef list amounts

        if not allocatable:
            raise ValueError("expected at least one type of memory, got none")
        if self.layout.allocatable is not NULL:
            raise TypeError("expected a new capacity, got one that is made already")

        self.types = tuple(sorted(allocatable))
        self.numbers = {name: number for number, name in enumerate(self.types)}
        nodes = len(next(iter(allocatable.values())))
        if not 1 <= nodes <= 64 or len(self.types) > 64:
            raise ValueError(
                "expected 1 to 64 NUMA nodes and types of memory, "
                f"got {nodes} and {len(self.types)}"
            )

        self.layout.nodes = nodes
        self.layout.types = len(self.types)
        self.layout.checks_groups = checks_groups
        self.layout.allocatable = <int64_t*>zeroed(self.layout.types * nodes, sizeof(int64_t))
        self.layout.largest_sums = <int64_t*>zeroed(
            self.layout.types * (nodes + 1), sizeof(int64_t)
        )
        for type, name in enumerate(self.types):
            amounts = list(allocatable[name])
            if len(amounts) != nodes or min(amounts) < 0 or sum(amounts) >= LARGEST_REQUEST:
                raise ValueError(f"expected bytes of {nodes} NUMA nodes for {name}, got {amounts}")

            for node in range(nodes):
                self.layout.allocatable[type * nodes + node] = amounts[node]

            amounts.sort(reverse=True)
            for node in range(nodes):
                self.layout.largest_sums[type * (nodes + 1) + node + 1] = (
                    self.layout.largest_sums[type * (nodes + 1) + node] + <int64_t>amounts[node]
                )

    def __dealloc__(self):
        PyMem_Free(self.layout.allocatable)
        PyMem_Free(self.layout.largest_sums)

    def amounts(self):
        """Return the bytes of each type, by position of the NUMA node."""
        return amounts_of(self, self.layout.allocatable)


cdef dict amounts_of(MemoryCapacity capacity, const int64_t* amounts):
    cdef int nodes = capacity.layout.nodes
    return {
        name: tuple([amounts[type * nodes + node] for node in range(nodes)])
        for type, name in enumerate(capacity.types)
    }


@cython.final
cdef class MemoryHolding:
    """The bytes that one container took from each NUMA node of its set, a mask.

    A ledger makes it.
    """

    def __cinit__(self, MemoryCapacity capacity not None, uint64_t mask):
        if mask & ~all_nodes(capacity.layout.nodes):
            raise ValueError(f"expected a mask of {capacity.layout.nodes} NUMA nodes, got {mask}")
        self.capacity = capacity
        self.taking.mask = mask
        self.taking.nodes = popcount(mask)
        self.taking.amounts = <int64_t*>zeroed(
            capacity.layout.types * self.taking.nodes, sizeof(int64_t)
        )

    def __dealloc__(self):
        PyMem_Free(self.taking.amounts)

    @property
    def mask(self):
        """The NUMA nodes of the set, as a mask of positions."""
        return self.taking.mask

    def positions(self):
        """Return the positions of the NUMA nodes of the set, ascending."""
        cdef uint64_t rest = self.taking.mask
        cdef list numa_nodes = []
        while rest:
            numa_nodes.append(lowest(rest))
            rest &= rest - 1
        return tuple(numa_nodes)

    def shares(self):
        """Return the bytes taken from each node of the set, by the name of the type.

        Types that were not asked for are left out.
        """
        cdef int type, index

        return {
            name: tuple(
                [
                    self.taking.amounts[type * self.taking.nodes + index]
                    for index in range(self.taking.nodes)
                ]
            )
            for type, name in enumerate(self.capacity.types)
            if self.taking.types >> type & 1
        }

    def sizes(self):
        """Return (type, bytes on all nodes together) for each type that was asked for, by name."""
        cdef int type, index
        cdef int64_t total
        cdef list sizes = []

        for type in range(self.capacity.layout.types):
            if not self.taking.types >> type & 1:
                continue
            total = 0
            for index in range(self.taking.nodes):
                total += self.taking.amounts[type * self.taking.nodes + index]
            sizes.append((self.capacity.types[type], total))
        return sizes


cdef int read_donors(object donors, MemoryCapacity capacity, MemoryTaking** takings) except -1:
    """Read what init containers hold; return how many there are."""
    cdef MemoryHolding donor
    cdef int count = 0

    for item in donors:
        if count == MOST_DONORS:
            raise ValueError(
                f"expected at most {MOST_DONORS} init containers that hold memory, "
                f"got {len(donors)}"
            )

        donor = <MemoryHolding?>item
        if donor is None or donor.capacity is not capacity:
            raise ValueError("expected holdings of this machine's memory, got another one's")

        takings[count] = &donor.taking
        count += 1

    return count


@cython.final
cdef class MemoryShortage:
    """Why a container's memory cannot be had.

    `cause` is `too little`, `not preferred` or `bound otherwise`. `mask`: the NUMA nodes that had
    to be among those taken; 0: any.
    """

    cdef readonly str cause
    cdef readonly object mask

    def __init__(self, str cause not None, mask):
        self.cause = cause
        self.mask = mask


cdef MemoryShortage shortage(MemoryOutcome outcome, uint64_t mask):
    if outcome == MEMORY_BOUND_OTHERWISE:
        return MemoryShortage("bound otherwise", mask)
    return MemoryShortage(
        "not preferred" if outcome == MEMORY_NOT_PREFERRED else "too little", mask
    )


cdef bint best_wide_hint(
    void* context, uint64_t inner, uint64_t* mask, bint* preferred
) noexcept nogil:
    """Find the best hint of a list that is described; the context is the HintList."""
    with gil:
        hint = (<HintList>context).best_containing(inner)
        if hint is None:
            return False
        mask[0], preferred[0] = hint
        return True


@cython.final
cdef class MemoryLedger:
    """The memory of one machine: what is free on each NUMA node, and which nodes are bound.

    Args:
        capacity: the allocatable memory.
    """

    def __cinit__(self, MemoryCapacity capacity not None):
        self.state.free = NULL
        self.own(capacity)
        self.smallest = {}
        empty_memory(&self.state)

    cdef int own(self, MemoryCapacity capacity) except -1:
        self.capacity = capacity
        self.token = object()
        self.state.layout = &capacity.layout
        place_memory(&self.state, <char*>zeroed(1, memory_bytes(&capacity.layout)))
        return 0

    def __dealloc__(self):
        PyMem_Free(self.state.free)

    @staticmethod
    def from_counts(MemoryCapacity capacity not None, available):
        """Return a ledger of which only counts are known.

        They are the bytes that each NUMA node has free, by type.
        """
        cdef MemoryLedger ledger = MemoryLedger(capacity)
        cdef int node

        for type, name in enumerate(capacity.types):
            if len(available[name]) != capacity.layout.nodes:
                raise ValueError(
                    f"expected bytes of {capacity.layout.nodes} NUMA nodes, "
                    f"got {len(available[name])}"
                )
            if min(available[name]) < 0:
                raise ValueError(f"expected bytes that are free for {name}, got {available[name]}")

            for node in range(capacity.layout.nodes):
                ledger.state.free[<int>type * capacity.layout.nodes + node] = available[name][node]

        return ledger

    def assign(self, MemoryLedger other not None):
        """Go back to, or forward to, the amounts of another ledger of the same machine."""
        if other.capacity is not self.capacity:
            raise ValueError("expected a ledger of this machine's memory, got another one's")
        copy_memory(&self.state, &other.state, <char*>self.state.free)
        self.token = object()  # what was released here may be held there

    def copy(self):
        """Return an independent ledger with the same amounts."""
        cdef MemoryLedger ledger = MemoryLedger.__new__(MemoryLedger, self.capacity)
        copy_memory(&ledger.state, &self.state, <char*>ledger.state.free)
        ledger.smallest = self.smallest
        return ledger

    @property
    def free(self):
        """Bytes of each type that nobody holds, by position of the NUMA node."""
        return amounts_of(self.capacity, self.state.free)

    def free_of(self, str kind not None):
        """Return the free bytes of one type by position; None where the machine has none."""
        cdef int nodes = self.state.layout.nodes
        number = self.capacity.numbers.get(kind)
        if number is None:
            return None
        return tuple([self.state.free[<int>number * nodes + node] for node in range(nodes)])

    @property
    def groups(self):
        """The masks of several nodes that may be used, as a whole."""
        return tuple([self.state.groups[index] for index in range(self.state.group_count)])

    @property
    def alone(self):
        """The nodes that may be used on their own, as a mask."""
        return self.state.alone

    @property
    def unused(self):
        """The nodes that nobody uses and that combine freely, as a mask."""
        return self.state.unused

    cdef int read_request(self, tuple requests, MemoryRequest* request) except -1:
        """Read ((type, bytes), ...)."""
        request.types = 0
        request.unknown_type = False
        for name, size in requests:
            number = self.capacity.numbers.get(name)
            if number is None:
                request.unknown_type = True
                continue

            if request.types == MOST_TYPES:
                raise ValueError(
                    f"expected at most {MOST_TYPES} types of memory, got {len(requests)}"
                )
            if size < 0:
                raise ValueError(f"expected bytes of {name}, got {size}")

            request.type[request.types] = number
            request.size[request.types] = min(size, LARGEST_REQUEST)
            request.types += 1

        return 0

    def hints(self, tuple requests not None, donors=()):
        """Return every set of nodes that holds the requests, as a packed list.

        The group rule allows each of them.

        Args:
            requests: (type, bytes) pairs.
            donors: what init containers of the pod hold; it counts where it lies on exactly the
                same nodes.
        """
        cdef MemoryRequest request
        cdef MemoryHints hints
        cdef MemoryTaking* takings[64]
        cdef HintList hint_list

        self.read_request(requests, &request)
        if request.unknown_type:
            return HintList.empty()
        if self.state.layout.nodes > NARROW_NODES:
            return self.wide_hints(requests, &request, donors)

        hints.donor_count = read_donors(donors, self.capacity, takings)
        hints.donors = takings
        hints.state = &self.state
        hints.request = &request
        hints.preferred_size = smallest_memory_size(self.state.layout, &request)
        hint_list = HintList.__new__(HintList)
        memory_family(&hints, &hint_list.family)

        return hint_list

    cdef HintList wide_hints(self, tuple requests, MemoryRequest* request, object donors):
        """Describe the hints beyond 8 nodes."""
        cdef MemoryTaking* takings[64]
        cdef int count = read_donors(donors, self.capacity, takings)
        cdef int nodes = self.state.layout.nodes
        cdef int index
        cdef list extra = []

        for index in range(count):
            if suffices_with_reuse(&self.state, request, takings, count, takings[index].mask):
                extra.append(takings[index].mask)

        size = self.smallest.get(requests)
        if size is None:
            if len(self.smallest) >= SIZES_KEPT:
                self.smallest.clear()

            size = (
                smallest_memory_size(self.state.layout, request)
                or smallest_size(
                    nodes, self.demands(request, self.state.layout.allocatable), all_nodes(nodes)
                )
            )
            self.smallest[requests] = size

        return feasible_hints(
            nodes,
            self.demands(request, self.state.free),
            universe=self.state.unused,
            preferred_size=size,
            alone=self.state.alone,
            groups=self.groups,
            extra=tuple(dict.fromkeys(extra)),
        )

    cdef list demands(self, const MemoryRequest* request, const int64_t* amounts):
        cdef int nodes = self.state.layout.nodes, index, node

        return [
            (
                None,
                [amounts[request.type[index] * nodes + node] for node in range(nodes)],
                request.size[index],
            )
            for index in range(request.types)
        ]

    def allocate(
        self, tuple requests not None, donors, mask, bint preferred, SharedDict into=None, key=None
    ):
        """Take the requests, and return the holding; a `MemoryShortage` where they cannot be had.

        Args:
            requests: (type, bytes) pairs.
            donors: what init containers of the pod hold: it is handed over first where it lies
                on the same nodes.
            mask: the affinity's NUMA nodes; None: anywhere.
            preferred: whether the affinity is preferred.
            into, key: where the holding is kept, so that no exception comes between taking and
                keeping.
        """
        cdef MemoryRequest request
        cdef MemoryHints hints
        cdef MemoryTaking* takings[64]
        cdef MemoryHolding holding
        cdef MemoryOutcome outcome
        cdef uint64_t chosen = 0 if mask is None else mask

        if mask is not None and (not chosen or chosen & ~all_nodes(self.state.layout.nodes)):
            raise ValueError(
                f"expected a mask of some of {self.state.layout.nodes} NUMA nodes, got {mask}"
            )

        self.read_request(requests, &request)
        hints.donor_count = read_donors(donors, self.capacity, takings)
        hints.donors = takings
        if self.state.layout.nodes > NARROW_NODES:
            wide = self.hints(requests, donors)
            outcome = choose_memory(
                &self.state, &request, best_wide_hint, <void*>wide, mask is None, preferred, &chosen
            )
        else:
            hints.state = &self.state
            hints.request = &request
            hints.preferred_size = smallest_memory_size(self.state.layout, &request)
            outcome = choose_memory(
                &self.state, &request, best_memory_hint, &hints, mask is None, preferred, &chosen
            )

        if outcome != MEMORY_CHOSEN:
            return shortage(outcome, chosen)

        holding = MemoryHolding(self.capacity, chosen)
        if into is not None:
            into.own()[key] = holding

        take_memory(&self.state, &request, takings, hints.donor_count, &holding.taking)
        return holding

    def adopt(self, dict shares not None):
        """Take bytes that are held already, and return the holding.

        It is None where the machine has none of them. Where a node has less left than that, it
        counts as full.

        Args:
            shares: type -> {position of the NUMA node: bytes}; types that the machine lacks are
                ignored.
        """
        cdef MemoryHolding holding = self.holding_of(shares)
        if holding is not None:
            take_what_is_free(&self.state, &holding.taking)
            bind_memory(&self.state, &holding.taking)
        return holding

    def restore(
        self,
        dict free not None,
        list bound not None,
        list more_users not None,
        list holdings not None,
    ):
        """Take over the state that a kubelet has written.

        Return a holding for each of `holdings`.

        Args:
            free: type -> bytes that nobody holds, by position of the NUMA node.
            bound: the mask that each NUMA node is bound to, where it is in use.
            more_users: by NUMA node, users of it whose holdings are not known.
            holdings: what containers hold, each as for `adopt`; None in the answer where
                nothing of it is there.
        """
        cdef int type, node, nodes = self.state.layout.nodes
        cdef MemoryHolding holding

        empty_memory(&self.state)
        for type, name in enumerate(self.capacity.types):
            for node in range(nodes):
                self.state.free[type * nodes + node] = max(
                    0,
                    min(
                        self.state.layout.allocatable[type * nodes + node],
                        <int64_t>free[name][node],
                    ),
                )

        restored = [self.holding_of(shares) for shares in holdings]
        for holding in restored:
            if holding is not None:
                bind_memory(&self.state, &holding.taking)

        for node in range(nodes):
            rebind_memory(&self.state, node, <int>more_users[node], <uint64_t>bound[node])

        refresh_groups(&self.state)
        return restored

    cdef MemoryHolding holding_of(self, dict shares):
        """Return a holding of these bytes, which are not taken yet.

        It is None where they are on no NUMA node.
        """
        cdef MemoryHolding holding
        cdef uint64_t mask = 0
        cdef int index, number, nodes = self.state.layout.nodes

        shares_by_type = {
            self.capacity.numbers[name]: share
            for name, share in shares.items()
            if name in self.capacity.numbers
        }
        for share in shares_by_type.values():
            for position, amount in share.items():
                if not 0 <= position < nodes or amount < 0:
                    raise ValueError(
                        f"expected bytes on {nodes} NUMA nodes, got {amount} on node {position}"
                    )

                mask |= (<uint64_t>1) << <int>position

        if not mask:
            return None

        holding = MemoryHolding(self.capacity, mask)
        for number, share in shares_by_type.items():
            holding.taking.types |= (<uint64_t>1) << number
            for index, position in enumerate(holding.positions()):
                holding.taking.amounts[number * holding.taking.nodes + index] = <int64_t>share.get(
                    position, 0
                )

        return holding

    def release(self, MemoryHolding holding not None, SharedDict kept_in=None, key=None):
        """Give back what a holding took, to the nodes that it came from; only once.

        Args:
            holding: what was taken.
            kept_in, key: as `into` and `key` of `allocate`; it is kept no longer.
        """
        self.take_back(holding)
        if kept_in is not None:
            del kept_in.own()[key]

    cdef int take_back(self, MemoryHolding holding) except -1:
        if holding.capacity is not self.capacity or holding.released_by is self.token:
            which = (
                "one that gave it back" if holding.capacity is self.capacity else "another one's"
            )
            raise ValueError(f"expected a holding of this machine's memory, got {which}")
        holding.released_by = self.token
        give_back_memory(&self.state, &holding.taking)
        return 0
