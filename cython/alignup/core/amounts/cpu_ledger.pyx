"""Keep the CPUs that a static CPU manager allocates.

This is the Python interface to `alignup.core.amounts.cpu_allocation`. A set of CPUs is an int: bit
i is the CPU that the kernel numbers i. Pods and containers are known to `alignup.providers.cpu`.
"""

cimport cython
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t, uint64_t

from alignup.core.amounts.cpu_allocation cimport (
    CPUS_CHOSEN,
    CPUS_NOT_WHOLE_CORES,
    CPUS_TOO_FEW_WHOLE,
    NEVER_IRREGULAR,
    CpuOutcome,
    add_reusable,
    check_whole_cores,
    choice_sets,
    choose_cpus,
    copy_cpus,
    count_free_cpus,
    cpu_bytes,
    cpu_family,
    mark_cpus,
    place_cpus,
    sockets_for,
)
from alignup.core.amounts.fewest_numa_nodes cimport smallest_cpu_size
from alignup.core.bits cimport NARROW_NODES, all_nodes
from alignup.core.blocks cimport leave, room_for, zeroed
from alignup.core.cpu.assignment cimport l3_rule_of, spread_rule_of
from alignup.core.word_set cimport count_common, count_in
from alignup.core.cpu.topology cimport CpuTopology, cpus_of, words_of
from alignup.core.hints cimport HintList

from alignup.core.feasible import feasible_hints

cdef enum:
    # words of sets that lie on the stack: all sets of a choice on machines of up to 512 CPUs
    SHORT_SET = 128


@cython.final
cdef class CpuCapacity:
    """The CPUs that can be given away, and the options by which they are chosen.

    Nodes that are equal share them.

    Args:
        topology: the machine's CPUs.
        reserved: the CPUs that nobody gets alone.
        strict_reservation: reserved CPUs are not part of the shared pool either.
        full_pcpus_only, distributes, spreads, by_l3: the options full-pcpus-only,
            distribute-cpus-across-numa, distribute-cpus-across-cores and
            prefer-align-cpus-by-uncorecache.
        in_turns: with `spreads`, take one CPU of each core in turn (kubelets from 1.38 on).
        l3_rounds_down: with `by_l3`, take an odd rest on cores of several CPUs from anywhere
            (kubelets before 1.34).
        whole_l3_first: with `by_l3`, take whole L3 groups before any gives a part (kubelets from
            1.38 on).
        sockets: with align-by-socket the mask of the NUMA nodes of each socket; else empty.
        irregular_size: requests of so many CPUs or more can take other CPUs than were counted, as
            groups that differ in size are taken as a whole; None: no request can.
    """

    def __cinit__(self):
        self.block = NULL

    def __init__(
        self,
        CpuTopology topology not None,
        reserved,
        *,
        bint strict_reservation=False,
        bint full_pcpus_only=False,
        bint distributes=False,
        bint spreads=False,
        bint in_turns=False,
        bint by_l3=False,
        bint l3_rounds_down=False,
        bint whole_l3_first=False,
        tuple sockets=(),
        irregular_size=None,
    ):
        cdef int words = topology.groups.words, nodes = topology.groups.positions, core, word

        self.make_room(words, nodes, len(sockets))
        self.topology = topology

        self.layout.groups = &topology.groups
        self.layout.near = topology.groups.node_sockets if sockets else topology.groups.node_cpus
        self.layout.sockets = len(sockets)

        self.layout.full_pcpus_only = full_pcpus_only
        self.layout.distributes = distributes
        self.layout.spread_rule = spread_rule_of(spreads, in_turns)
        self.layout.l3_rule = l3_rule_of(by_l3, l3_rounds_down, whole_l3_first)
        self.layout.irregular_size = NEVER_IRREGULAR if irregular_size is None else irregular_size

        words_of(topology, reserved, self.layout.shareable)
        for core in range(topology.groups.core_count):
            if count_common(topology.groups.cores[core].cpus, self.layout.shareable, 0, words, 1):
                for word in range(words):
                    self.layout.reserved_cores[word] |= topology.groups.cores[core].cpus[word]

        self.layout.split_cores = False
        for word in range(words):
            self.layout.allocatable[word] = (
                topology.groups.cpus[word] & ~self.layout.shareable[word]
            )
            if strict_reservation:
                self.layout.shareable[word] = self.layout.allocatable[word]
            else:
                self.layout.shareable[word] = topology.groups.cpus[word]

            if self.layout.allocatable[word] & self.layout.reserved_cores[word]:
                self.layout.split_cores = True

        self.read_counts(sockets)

    @staticmethod
    def from_counts(list capacity not None, list allocatable not None):
        """Return what is known of a machine of which only counts are, one for each NUMA node.

        Args:
            capacity: CPUs, reserved ones included.
            allocatable: CPUs that could be given away if nobody had any.
        """
        cdef CpuCapacity machine_capacity = CpuCapacity.__new__(CpuCapacity)
        cdef int node, nodes = len(capacity)

        if (
            not 1 <= nodes <= 64
            or len(allocatable) != nodes
            or min(capacity) < 0
            or min(allocatable) < 0
        ):
            raise ValueError(
                f"expected counts of 1 to 64 NUMA nodes, got {capacity} and {allocatable}"
            )

        machine_capacity.make_room(0, nodes, 0)
        machine_capacity.counted.positions = nodes
        machine_capacity.counted.cpus_per_core = 1
        machine_capacity.layout.irregular_size = NEVER_IRREGULAR
        machine_capacity.layout.groups = &machine_capacity.counted
        for node in range(nodes):
            machine_capacity.layout.capacity[node] = capacity[node]
            machine_capacity.layout.allocatable_count[node] = allocatable[node]

        machine_capacity.sum_largest()
        return machine_capacity

    cdef int make_room(self, int words, int nodes, int sockets) except -1:
        """Let the arrays of the layout lie in one block."""
        cdef uint64_t* at

        if self.block is not NULL:
            raise TypeError("expected a new capacity, got one that is made already")

        self.block = <char*>zeroed(3 * words + 3 * nodes + 1 + sockets, sizeof(uint64_t))
        at = <uint64_t*>self.block

        self.layout.nodes = nodes
        self.layout.allocatable = at
        self.layout.shareable = at + words
        self.layout.reserved_cores = at + 2 * words
        self.layout.capacity = <int64_t*>(at + 3 * words)
        self.layout.allocatable_count = self.layout.capacity + nodes
        self.layout.largest_sums = self.layout.allocatable_count + nodes
        self.layout.socket_nodes = <uint64_t*>(self.layout.largest_sums + nodes + 1)

        return 0

    cdef int read_counts(self, tuple sockets) except -1:
        """Count the CPUs of each node."""
        cdef int node, words = self.layout.groups.words, socket
        cdef const uint64_t* cpus

        for node in range(self.layout.nodes):
            cpus = self.layout.groups.node_cpus + node * words
            self.layout.capacity[node] = count_in(cpus, words)
            self.layout.allocatable_count[node] = count_common(
                cpus, self.layout.allocatable, 0, words, 1
            )

        for socket in range(self.layout.sockets):
            self.layout.socket_nodes[socket] = sockets[socket]

        self.sum_largest()
        return 0

    cdef void sum_largest(self):
        """Sum the nodes with the most CPUs."""
        cdef int node

        for node in range(self.layout.nodes):
            if self.layout.capacity[node]:
                self.layout.universe |= (<uint64_t>1) << node
        largest = sorted(
            [self.layout.capacity[node] for node in range(self.layout.nodes)], reverse=True
        )
        for node in range(self.layout.nodes):
            self.layout.largest_sums[node + 1] = (
                self.layout.largest_sums[node] + <int64_t>largest[node]
            )

    def __dealloc__(self):
        PyMem_Free(self.block)

    @property
    def allocatable(self):
        """The allocatable CPUs: those that containers can have exclusively."""
        return cpus_of(self.topology, self.layout.allocatable)

    @property
    def shareable(self):
        """The CPUs of the shared pool while no CPUs are allocated exclusively."""
        return cpus_of(self.topology, self.layout.shareable)

    @property
    def reserved_cores(self):
        """All CPUs of the cores of which one is reserved."""
        return cpus_of(self.topology, self.layout.reserved_cores)

    @property
    def socket_nodes(self):
        """With align-by-socket the mask of the NUMA nodes of each socket; else empty."""
        cdef int socket
        return tuple([self.layout.socket_nodes[socket] for socket in range(self.layout.sockets)])


@cython.final
cdef class CpuShortage:
    """Why a container's CPUs cannot be had.

    Attributes:
        cause: `too few`, `not whole cores` or `too few whole`.
    """

    cdef readonly str cause

    def __init__(self, str cause not None):
        self.cause = cause


cdef int read_cpus(CpuCapacity capacity, object cpus, uint64_t* words) except -1:
    """Write a set of CPUs as words.

    A machine of which only counts are known has no CPUs to name.
    """
    if capacity.topology is None:
        raise ValueError("expected no sets of CPUs where only counts are known, got one")
    words_of(capacity.topology, cpus, words)
    return 0


cdef CpuShortage shortage(CpuOutcome outcome):
    if outcome == CPUS_NOT_WHOLE_CORES:
        return CpuShortage("not whole cores")
    return CpuShortage("too few whole" if outcome == CPUS_TOO_FEW_WHOLE else "too few")


@cython.final
cdef class CpuLedger:
    """Which CPUs of a machine are given.

    Args:
        capacity: the allocatable CPUs.
    """

    def __cinit__(self, CpuCapacity capacity not None):
        self.state.allocated = NULL
        self.own(capacity)
        count_free_cpus(&self.state)

    @staticmethod
    def from_counts(CpuCapacity capacity not None, list available not None):
        """Return a ledger of which only counts are known.

        They are the CPUs of each NUMA node that can be given away now.
        """
        cdef CpuLedger ledger
        cdef int node

        if (
            capacity.topology is not None
            or len(available) != capacity.layout.nodes
            or min(available, default=0) < 0
        ):
            raise ValueError(
                f"expected counts of {capacity.layout.nodes} NUMA nodes, got {available}"
            )

        ledger = CpuLedger.__new__(CpuLedger, capacity)
        ledger.state.free_in_all = 0
        for node in range(capacity.layout.nodes):
            ledger.state.free[node] = available[node]
            ledger.state.free_in_all += ledger.state.free[node]

        ledger.state.free_whole = ledger.state.free_in_all
        return ledger

    cdef int own(self, CpuCapacity capacity) except -1:
        if capacity.block is NULL:
            raise ValueError("expected a capacity, got one that is not made yet")
        self.capacity = capacity
        self.state.layout = &capacity.layout
        place_cpus(&self.state, <char*>zeroed(1, cpu_bytes(&capacity.layout)))
        return 0

    def __dealloc__(self):
        PyMem_Free(self.state.allocated)

    def copy(self):
        """Return an independent ledger in which the same CPUs are given."""
        cdef CpuLedger ledger = CpuLedger.__new__(CpuLedger, self.capacity)
        copy_cpus(&ledger.state, &self.state, <char*>ledger.state.allocated)
        return ledger

    @property
    def given(self):
        """The CPUs of the machine that are held."""
        return cpus_of(self.capacity.topology, self.state.allocated)

    def free_by_node(self):
        """Return how many CPUs of each NUMA node can still be given away, by position."""
        cdef int node
        return tuple([self.state.free[node] for node in range(self.state.layout.nodes)])

    def give(self, cpus):
        """Mark CPUs as given; CPUs that the machine does not have are ignored."""
        self.mark(cpus, True)

    def take_back(self, cpus):
        """Mark CPUs as no longer given."""
        self.mark(cpus, False)

    cdef int mark(self, object cpus, bint give) except -1:
        cdef uint64_t[SHORT_SET] short
        cdef uint64_t* words = room_for(self.state.layout.groups.words, short, SHORT_SET)

        try:
            read_cpus(self.capacity, cpus, words)
            mark_cpus(&self.state, words, give)
        finally:
            leave(words, short)
        return 0

    def hints(self, int64_t request, reusable=0, held=None):
        """Return the masks from which the request can be met, as a packed list.

        Args:
            request: how many CPUs are needed.
            reusable: CPUs that init containers of the pod leave; all of them must be in reach
                of a mask.
            held: the CPUs to count; None: the free ones.
        """
        cdef uint64_t[SHORT_SET] short
        cdef uint64_t* sets
        cdef int64_t amounts[64]
        cdef int64_t total = 0
        cdef uint64_t must = 0
        cdef int node, words = self.state.layout.groups.words

        if held is None and not reusable:
            if self.state.free_in_all < request:
                return HintList.empty()

            return self.hints_of(self.state.free, 0, request)

        sets = room_for(words, short, SHORT_SET)
        try:
            if held is None:
                for node in range(self.state.layout.nodes):
                    amounts[node] = self.state.free[node]

                total = self.state.free_in_all
                read_cpus(self.capacity, reusable, sets)
                must = add_reusable(&self.state, sets, amounts, &total)
            else:
                read_cpus(self.capacity, held, sets)
                total = count_in(sets, words)
                for node in range(self.state.layout.nodes):
                    amounts[node] = count_common(
                        sets, self.state.layout.groups.node_cpus + node * words, 0, words, 1
                    )

            if total < request:
                return HintList.empty()

            return self.hints_of(amounts, must, request)
        finally:
            leave(sets, short)

    cdef HintList hints_of(self, const int64_t* amounts, uint64_t must, int64_t request):
        cdef HintList hints
        cdef int node
        cdef int nodes = self.state.layout.nodes
        cdef int size = smallest_cpu_size(self.state.layout, request)

        if nodes <= NARROW_NODES:
            hints = HintList.__new__(HintList)
            cpu_family(self.state.layout, amounts, must, request, size, &hints.family)
            return hints

        return feasible_hints(
            nodes,
            ((None, [amounts[node] for node in range(nodes)], request),),
            universe=self.state.layout.universe,
            preferred_size=size,
            touching=[(<uint64_t>1) << node for node in range(nodes) if must >> node & 1],
            sockets=self.capacity.socket_nodes,
            preferred_sockets=sockets_for(self.state.layout, size),
        )

    def choose(self, int64_t request, reusable, mask, distribute=None):
        """Return the CPUs that a container gets, not yet marked as given.

        Where they cannot be had it is a `CpuShortage`.

        Args:
            request: how many.
            reusable: CPUs that init containers of the pod leave.
            mask: the affinity's NUMA nodes; None: anywhere.
            distribute: with distribute-cpus-across-numa, called with (free, count, held, nodes);
                returns CPUs to take. `nodes` is how many NUMA nodes the affinity has, 0 for CPUs
                from anywhere.
        """
        cdef uint64_t[SHORT_SET] short
        cdef int words = self.state.layout.groups.words
        cdef uint64_t* sets
        cdef uint64_t near = 0 if mask is None else mask
        cdef CpuOutcome outcome

        if near & ~all_nodes(self.state.layout.nodes):
            raise ValueError(f"expected a mask of {self.state.layout.nodes} NUMA nodes, got {mask}")
        if self.capacity.topology is None:
            raise ValueError(
                "expected a machine whose CPUs are known, got one of which only counts are"
            )
        if self.state.layout.distributes:
            return self.choose_distributed(request, reusable, mask, distribute)

        sets = room_for((choice_sets() + 2) * words, short, SHORT_SET)
        try:
            if reusable:
                read_cpus(self.capacity, reusable, sets)

            outcome = choose_cpus(
                &self.state,
                request,
                sets if reusable else NULL,
                mask is None,
                near,
                sets + words,
                sets + 2 * words,
            )
            if outcome != CPUS_CHOSEN:
                return shortage(outcome)

            return cpus_of(self.capacity.topology, sets + words)
        finally:
            leave(sets, short)

    def check_whole_cores(self, int64_t request):
        """Return the `CpuShortage` of a request that whole, free cores cannot meet, else None.

        That is asked with full-pcpus-only.
        """
        cdef CpuOutcome outcome = check_whole_cores(&self.state, request)
        return None if outcome == CPUS_CHOSEN else shortage(outcome)

    def choose_distributed(self, int64_t request, reusable, mask, distribute):
        """Return CPUs that `distribute` chooses: near the affinity first, then from anywhere."""
        allocated = self.given
        free = self.capacity.allocatable & ~allocated | reusable
        unavailable = allocated & ~reusable
        chosen = 0
        if mask is not None:
            topology = self.capacity.topology
            near = topology.node_sockets if self.state.layout.sockets else topology.node_cpus
            aligned = 0
            for node, cpus in enumerate(near):
                if mask >> node & 1:
                    aligned |= cpus

            aligned &= free
            chosen = distribute(
                aligned, min(request, aligned.bit_count()), unavailable, mask.bit_count()
            )

        if (missing := request - chosen.bit_count()) > 0:
            elsewhere = free & ~chosen
            if missing > elsewhere.bit_count():
                return CpuShortage("too few")

            chosen |= distribute(elsewhere, missing, unavailable | chosen, 0)

        if chosen & unavailable or chosen.bit_count() != request:
            raise ValueError(f"expected {request} CPUs that nobody holds, got {chosen}")

        return chosen
