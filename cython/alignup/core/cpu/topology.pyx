"""The CPUs of a machine as arrays that are read without the GIL, and the Python door to them.

Reads the groups that `alignup.providers.cpu.topology` found. Python sees a set of CPUs as an int
whose bit i is the CPU that the kernel numbers i; the arrays go by position, see
`alignup.core.cpu.groups`.
"""

from functools import partial

from cpython.long cimport PyLong_FromUnsignedLongLong
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memset
cimport cython

from alignup.core.bits cimport lowest, popcount
from alignup.core.blocks cimport zeroed
from alignup.core.cpu.assignment cimport (
    PACK_SETS,
    L3Rule,
    SpreadRule,
    Walk,
    l3_rule_of,
    next_node,
    pack,
    spread_rule_of,
    walk,
)
from alignup.core.cpu.groups cimport CpuGroup


cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
    #define read_long(number, bytes, size) \
        _PyLong_AsByteArray((PyLongObject *)(number), bytes, size, 1, 0, 1)
    #else
    #define read_long(number, bytes, size) \
        _PyLong_AsByteArray((PyLongObject *)(number), bytes, size, 1, 0)
    #endif
    """
    int read_long(object number, unsigned char* bytes, size_t size) except -1
    object _PyLong_FromByteArray(
        const unsigned char* bytes, size_t size, int little_endian, int is_signed
    )


cdef enum:
    STACK_WORDS = 64        # scratch up to this needs no allocation: 8 sets of 512 CPUs
    DOOR_SETS = 3 + PACK_SETS


@cython.final
cdef class CpuTopology:
    """The CPUs of a machine, grouped; it never changes.

    Whichever of sockets and NUMA nodes are fewer are the outer groups, the others the inner ones;
    where there are as many of both, NUMA nodes are the outer ones.

    Args:
        outer: the outer groups by id: records with `id`, `cpus`, `size`, `whole`, `parts` and
            `l3_groups` as in `alignup.providers.cpu.topology.CpuGroup`. Their parts are the inner
            groups, and the parts of those and of L3 groups are cores.
        sockets_outer: the outer groups are sockets.
        node_cpus: the CPUs of each NUMA node of the machine; 0 where it has none.
        node_sockets: of each NUMA node, all CPUs of the sockets that it has CPUs in.
        socket_cpus: the CPUs of each socket, by socket id.
        cpus_per_core: all CPUs by all cores, rounded down: the kubelet's view of SMT on a
            machine with cores of two kinds.
        cpus_per_l3_group: all CPUs by all L3 groups, rounded down.

    Raises:
        ValueError: there is no CPU, or an average is not positive.
    """

    def __cinit__(
        self,
        outer,
        *,
        sockets_outer,
        node_cpus,
        node_sockets,
        socket_cpus,
        cpus_per_core,
        cpus_per_l3_group,
    ):
        cdef list inner = in_order(part for group in outer for part in group.parts)
        cdef list nodes = inner if sockets_outer else list(outer)
        cdef list l3_groups = in_order(part for node in nodes for part in node.l3_groups)
        cdef list cores = in_order(part for group in inner for part in group.parts)

        self.outer = tuple(outer)
        self.nodes = tuple(nodes)
        self.node_cpus = tuple(node_cpus)
        self.node_sockets = tuple(node_sockets)
        self.socket_cpus = tuple(socket_cpus)
        self.core_cpus = tuple([core.cpus for core in cores])

        self.cpus = 0
        for group in outer:
            self.cpus |= group.cpus

        if not self.cpus or cpus_per_core < 1 or cpus_per_l3_group < 1:
            raise ValueError(
                "expected CPUs, "
                f"got {cpus_per_core} in a core and {cpus_per_l3_group} in an L3 group"
            )

        self.groups.sockets_outer = sockets_outer
        self.groups.positions = len(self.node_cpus)
        self.groups.numa_nodes = len(nodes)
        self.groups.cpus_per_core = cpus_per_core
        self.groups.cpus_per_l3_group = cpus_per_l3_group

        self.groups.smallest_outer = min([group.size for group in outer])
        self.groups.smallest_inner = min([group.size for group in inner])
        self.groups.smallest_core = min([core.size for core in cores])
        self.groups.whole_cores_differ = len({core.whole for core in cores}) > 1

        self.read_numbers()
        self.read_groups([self.outer, inner, l3_groups, cores])

    def __dealloc__(self):
        PyMem_Free(self.group_block)
        PyMem_Free(self.member_block)
        PyMem_Free(self.set_block)
        PyMem_Free(self.present)
        PyMem_Free(self.rank)
        PyMem_Free(self.numbers)

    cdef int read_numbers(self) except -1:
        """Note which numbers the kernel gave to CPUs, and the position of each."""
        cdef int word, count = 0
        cdef uint64_t rest

        self.kernel_words = (self.cpus.bit_length() + 63) // 64
        self.groups.cpu_count = self.cpus.bit_count()
        self.groups.words = (self.groups.cpu_count + 63) // 64
        self.dense = self.cpus.bit_length() == self.groups.cpu_count

        self.present = <uint64_t*>zeroed(self.kernel_words, sizeof(uint64_t))
        self.rank = <int32_t*>zeroed(self.kernel_words, sizeof(int32_t))
        self.numbers = <int32_t*>zeroed(self.groups.cpu_count, sizeof(int32_t))
        read_long(self.cpus, <unsigned char*>self.present, self.kernel_words * sizeof(uint64_t))
        for word in range(self.kernel_words):
            self.rank[word] = count
            rest = self.present[word]
            while rest:
                self.numbers[count] = 64 * word + lowest(rest)
                count += 1
                rest &= rest - 1

        return 0

    cdef int allocate_groups(self, list kinds) except -1:
        """Make room for the groups of the four kinds, and note where each kind begins."""
        cdef Py_ssize_t counts[4]
        cdef Py_ssize_t kind, total = 0
        cdef list records = [record for groups in kinds for record in groups]

        for kind in range(4):
            counts[kind] = len(kinds[kind])
            total += counts[kind]

        self.group_block = <CpuGroup*>zeroed(total, sizeof(CpuGroup))
        self.member_block = <int*>zeroed(
            sum([len(record.parts) + len(record.l3_groups) for record in records]), sizeof(int)
        )
        self.set_block = <uint64_t*>zeroed(
            (total + 1 + 2 * self.groups.positions) * self.groups.words, sizeof(uint64_t)
        )

        self.groups.outer = self.group_block
        self.groups.outer_count = counts[0]
        self.groups.inner = self.groups.outer + counts[0]
        self.groups.inner_count = counts[1]
        self.groups.l3_groups = self.groups.inner + counts[1]
        self.groups.l3_group_count = counts[2]
        self.groups.cores = self.groups.l3_groups + counts[2]
        self.groups.core_count = counts[3]
        self.groups.members = self.member_block

        return 0

    cdef int read_groups(self, list kinds) except -1:
        """Write the groups of the four kinds (outer, inner, L3, core) into arrays.

        The sets of nodes come after them.
        """
        cdef Py_ssize_t kind, place = 0, end = 0
        cdef int words = self.groups.words
        cdef uint64_t* cpus
        cdef CpuGroup* group

        self.allocate_groups(kinds)
        finer = [places_of(kinds[1]), places_of(kinds[3]), places_of(kinds[3]), {}]
        l3_places = places_of(kinds[2])

        cpus = self.set_block
        for kind in range(4):
            for record in kinds[kind]:
                group = &self.group_block[place]
                group.id = record.id
                group.size = record.size
                group.whole = record.whole
                group.cpus = cpus

                words_of(self, record.cpus, cpus)
                note_words(group, words)

                group.first_part = end
                end = write_places(self.member_block, end, finer[kind], record.parts)
                group.end_part = group.first_l3_group = end
                end = write_places(self.member_block, end, l3_places, record.l3_groups)
                group.end_l3_group = end

                place += 1
                cpus += words

        return self.read_node_sets(cpus)

    cdef int read_node_sets(self, uint64_t* cpus) except -1:
        """Write the sets of all CPUs, of those of each NUMA node, and of those of its sockets."""
        cdef int words = self.groups.words

        self.groups.cpus = cpus
        self.groups.node_cpus = cpus + words
        self.groups.node_sockets = self.groups.node_cpus + self.groups.positions * words
        for sets in ((self.cpus,), self.node_cpus, self.node_sockets):
            for number in sets:
                words_of(self, number, cpus)
                cpus += words
        return 0

    def pack(
        self,
        free,
        count,
        held,
        *,
        bint spread=False,
        bint in_turns=False,
        bint by_l3=False,
        bint l3_rounds_down=False,
        bint whole_l3_first=False,
        bint once=False,
    ):
        """Return `count` of the free CPUs, on as few groups as possible.

        It is 0 when there are not so many. CPUs that the machine does not have are never taken.
        Where groups count as wholly free by the average size, CPUs can be among those returned that
        are not free; see `alignup.core.cpu.assignment.pack`.

        Args:
            free: the CPUs to choose from.
            count: how many.
            held: the CPUs that must not be taken whatever happens.
            spread: single CPUs only, by ascending number within a socket
                (distribute-cpus-across-cores).
            in_turns: with `spread`, one CPU of each core in turn (kubelets from 1.38 on).
            by_l3: after sockets and nodes, prefer L3 groups (prefer-align-cpus-by-uncorecache).
            l3_rounds_down: then take an odd rest on cores of several CPUs from anywhere
                (kubelets before 1.34).
            whole_l3_first: then take whole groups before any gives a part (from 1.38 on).
            once: return what kubelets before 1.38 take at a time: fewer CPUs where L3 groups of
                several NUMA nodes are counted twice.

        Raises:
            OverflowError: `free` or `held` is negative.
        """
        cdef int words = self.groups.words
        cdef uint64_t on_stack[STACK_WORDS]
        cdef uint64_t* sets = on_stack
        cdef L3Rule l3_rule = l3_rule_of(by_l3, l3_rounds_down, whole_l3_first)
        cdef SpreadRule spread_rule = spread_rule_of(spread, in_turns)

        if not 0 < count <= self.groups.cpu_count:
            return 0

        if words * DOOR_SETS > STACK_WORDS:
            sets = <uint64_t*>zeroed(words * DOOR_SETS, sizeof(uint64_t))

        try:
            words_of(self, free, sets)
            words_of(self, held, sets + words)
            pack(
                &self.groups,
                sets,
                count,
                sets + words,
                spread_rule,
                l3_rule,
                sets + 2 * words,
                sets + (DOOR_SETS - PACK_SETS) * words,
            )
            chosen = cpus_of(self, sets + 2 * words)
        finally:
            if sets != on_stack:
                PyMem_Free(sets)

        missing = count - chosen.bit_count()
        if once or not chosen or not missing:
            return chosen
        return chosen | self.pack(
            free & ~chosen,
            missing,
            held | chosen,
            spread=spread,
            in_turns=in_turns,
            by_l3=by_l3,
            l3_rounds_down=l3_rounds_down,
            whole_l3_first=whole_l3_first,
        )

    def node_order(self, free):
        """Return the records of the NUMA nodes that have free CPUs, fewest free first.

        Each comes once. Where sockets are larger, the nodes of the socket with the fewest free CPUs
        come first, and so on.

        Raises:
            OverflowError: `free` is negative.
        """
        cdef Walk steps
        cdef const CpuGroup* group
        cdef const CpuGroup* first = (
            self.groups.inner if self.groups.sockets_outer else self.groups.outer
        )
        cdef uint64_t* sets = <uint64_t*>zeroed(self.groups.words, sizeof(uint64_t))
        cdef dict records = {}

        try:
            words_of(self, free, sets)
            steps = walk(&self.groups, sets)
            group = next_node(&steps)
            while group is not NULL:
                records[group - first] = self.nodes[group - first]
                group = next_node(&steps)
        finally:
            PyMem_Free(sets)

        return tuple(records.values())

    def __reduce__(self):
        constructor = partial(
            CpuTopology,
            self.outer,
            sockets_outer=self.sockets_outer,
            node_cpus=self.node_cpus,
            node_sockets=self.node_sockets,
            socket_cpus=self.socket_cpus,
            cpus_per_core=self.cpus_per_core,
            cpus_per_l3_group=self.cpus_per_l3_group,
        )
        return constructor, ()

    def __deepcopy__(self, _memo):
        return self

    @property
    def sockets_outer(self):
        """True if the outer groups are sockets."""
        return bool(self.groups.sockets_outer)

    @property
    def numa_nodes(self):
        """The number of NUMA nodes that have CPUs."""
        return self.groups.numa_nodes

    @property
    def cpus_per_core(self):
        """All CPUs by all cores, rounded down."""
        return self.groups.cpus_per_core

    @property
    def cpus_per_l3_group(self):
        """All CPUs by all L3 groups, rounded down."""
        return self.groups.cpus_per_l3_group


cdef list in_order(groups):
    """Return the groups by ascending id, each once."""
    cdef dict by_id = {group.id: group for group in groups}
    return [by_id[number] for number in sorted(by_id)]


cdef dict places_of(groups):
    return {group.id: place for place, group in enumerate(groups)}


cdef int write_places(int* members, int end, dict places, parts) except -1:
    """Append the places of the parts, ascending; return the new end."""
    for place in sorted([places[part.id] for part in parts]):
        members[end] = place
        end += 1
    return end


cdef void note_words(CpuGroup* group, int words) noexcept:
    """Note in which words the CPUs of a group are."""
    cdef int word

    group.first_word = words
    group.end_word = 0
    group.word_step = 0
    for word in range(words):
        if group.cpus[word]:
            group.first_word = min(group.first_word, word)
            group.end_word = word + 1
            group.word_step = common_divisor(word - group.first_word, group.word_step)
    group.word_step = max(group.word_step, 1)


cdef int common_divisor(int number, int divisor) noexcept:
    while divisor:
        number, divisor = divisor, number % divisor
    return number


# The doors: ints by the kernel's numbers, words by position

cdef int words_of(CpuTopology topology, object cpus, uint64_t* out) except -1:
    """See the declaration."""
    cdef size_t size = topology.kernel_words * sizeof(uint64_t)
    cdef int unknown = 0

    if not isinstance(cpus, int):
        raise TypeError(f"expected CPUs as an int, got {cpus!r}")

    cdef uint64_t* numbered = (
        out if topology.dense else <uint64_t*>zeroed(topology.kernel_words, sizeof(uint64_t))
    )
    try:
        try:
            read_long(cpus, <unsigned char*>numbered, size)
        except OverflowError:
            if cpus < 0:
                raise

            unknown = 1
            read_long(cpus & topology.cpus, <unsigned char*>numbered, size)

        if topology.dense:
            return keep_present(topology, numbered) or unknown

        return to_positions(topology, numbered, out) or unknown
    finally:
        if numbered != out:
            PyMem_Free(numbered)


cdef object cpus_of(CpuTopology topology, const uint64_t* words):
    """See the declaration."""
    cdef uint64_t* numbered

    if not topology.dense:
        numbered = <uint64_t*>zeroed(topology.kernel_words, sizeof(uint64_t))
        try:
            to_numbers(topology, words, numbered)
            return int_of(numbered, topology.kernel_words)
        finally:
            PyMem_Free(numbered)
    return int_of(words, topology.kernel_words)


cdef object int_of(const uint64_t* words, int count):
    while count > 1 and not words[count - 1]:
        count -= 1
    if count == 1:
        return PyLong_FromUnsignedLongLong(words[0])
    return _PyLong_FromByteArray(<const unsigned char*>words, count * sizeof(uint64_t), 1, 0)


cdef int keep_present(CpuTopology topology, uint64_t* words) noexcept nogil:
    """Remove CPUs that the machine does not have; return whether there were some."""
    cdef int word
    cdef uint64_t unknown = 0
    for word in range(topology.kernel_words):
        unknown |= words[word] & ~topology.present[word]
        words[word] &= topology.present[word]
    return unknown != 0


cdef int to_positions(CpuTopology topology, const uint64_t* numbered, uint64_t* out) noexcept nogil:
    """Write the positions of CPUs that are given by number.

    Return whether the machine lacks some.
    """
    cdef int word, position
    cdef uint64_t rest, unknown = 0

    memset(out, 0, topology.groups.words * sizeof(uint64_t))
    for word in range(topology.kernel_words):
        unknown |= numbered[word] & ~topology.present[word]
        rest = numbered[word] & topology.present[word]
        while rest:
            position = topology.rank[word] + popcount(
                topology.present[word] & ((rest & (0 - rest)) - 1)
            )
            out[position >> 6] |= (<uint64_t>1) << (position & 63)
            rest &= rest - 1

    return unknown != 0


cdef void to_numbers(
    CpuTopology topology, const uint64_t* words, uint64_t* numbered
) noexcept nogil:
    """Write the kernel's numbers of CPUs that are given by position; `numbered` must be empty."""
    cdef int word, number
    cdef uint64_t rest

    for word in range(topology.groups.words):
        rest = words[word]
        while rest:
            number = topology.numbers[64 * word + lowest(rest)]
            numbered[number >> 6] |= (<uint64_t>1) << (number & 63)
            rest &= rest - 1
