"""Judge one pod on many nodes: the loop over a cluster's rows, without the GIL.

A `Row` is what a cluster knows of one node: its policy, and the ledgers of its providers, which are
the node's own. A `Board` has the rows of a cluster; a `Job` is a pod that is judged by it. Several
threads may each judge a range.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from alignup.core.amounts.alike cimport (
    JudgementCache,
    alike_node,
    cache_bytes,
    has_state,
    hash_of,
    is_alike_for_all,
    new_state,
    node_in_state,
    note_state,
    place_cache,
    remember,
    remember_state,
    state_at,
)
from alignup.core.amounts.changes cimport Changes, first_look, second_look
from alignup.core.amounts.cpu_ledger cimport CpuLedger
from alignup.core.amounts.device_allocation cimport DeviceState
from alignup.core.amounts.device_ledger cimport DeviceLedger
from alignup.core.amounts.judge cimport (
    asks_for_anything,
    judge_row,
    place_scratch,
    scratch_bytes,
    start_trial,
    widen,
)
from alignup.core.amounts.memory_ledger cimport MemoryLedger
from alignup.core.amounts.memory_state cimport MOST_TYPES
from alignup.core.amounts.score cimport score_of
from alignup.core.amounts.trial cimport (
    MOST_RESOURCES,
    POLICY_BEST_EFFORT,
    NodeRow,
    PodRequest,
    Request,
    Trial,
)
from alignup.core.bits cimport NARROW_NODES, WIDEST, all_nodes, popcount
from alignup.core.blocks cimport zeroed

from types import MappingProxyType

from alignup.core.amounts.memory_ledger import LARGEST_REQUEST

LIMITS = (MOST_TYPES, MOST_RESOURCES)

cdef enum:
    MOST_STRATEGIES = 5
    CHANGING = 2    # instead of `exact`: the node changed while it was judged
    AHEAD = 6       # rows to prefetch ahead: the data has arrived when its turn comes


# Nodes

@cython.final
cdef class Distances:
    """The distances between the NUMA nodes of a machine, summed for every mask of up to 8 nodes.

    Args:
        rows: a row of distances for each node.

    Raises:
        ValueError: there is not a distance from each node to each.
    """

    def __init__(self, tuple rows not None):
        cdef int row, column, mask, size
        cdef int nodes = len(rows)

        if not 1 <= nodes <= 64 or any([len(distances) != nodes for distances in rows]):
            lengths = [len(distances) for distances in rows]
            raise ValueError(f"expected 1 to 64 rows with as many distances, got {lengths}")

        self.nodes = nodes
        for size in range(65):
            self.nearest[size] = -1

        if nodes > NARROW_NODES:
            return

        for mask in range(1 << nodes):
            self.sums[mask] = 0
            for row in range(nodes):
                for column in range(nodes):
                    if mask >> row & 1 and mask >> column & 1:
                        self.sums[mask] += <int64_t>rows[row][column]

            size = popcount(mask)
            if self.nearest[size] < 0 or self.sums[mask] < self.nearest[size]:
                self.nearest[size] = self.sums[mask]


@cython.final
cdef class Row:
    """One node as a cluster sees it.

    Args:
        numa_nodes: how many NUMA nodes the machine has.
        policy: the number of the Topology Manager policy: none, best-effort, restricted,
            single-numa-node.
        pod_scope: whether pods are judged as a whole.
        cpu: the CPUs, None without a static CPU manager.
        memory: the memory, None without a Static memory manager.
        devices: resource -> its devices.
        distances: None where they are not known.
        prefer_closest: the option prefer-closest-numa-nodes.
        needs_node: the node has to be asked, since something else than these ledgers decides there.
        upper_bound: amounts are all that is known of the node, so that its admissions are not
            certain.
        changes: the count of its changes; None: there are none.
    """

    def __init__(
        self,
        *,
        int numa_nodes,
        int policy,
        bint pod_scope,
        CpuLedger cpu,
        MemoryLedger memory,
        dict devices not None,
        Distances distances,
        bint prefer_closest=False,
        bint needs_node=False,
        bint upper_bound=False,
        Changes changes=None,
    ):
        cdef NodeRow* row = &self.amounts

        if not 1 <= numa_nodes <= 64 or not 0 <= policy < 4:
            raise ValueError(
                f"expected 1 to 64 NUMA nodes and one of 4 policies, got {numa_nodes} and {policy}"
            )
        if cpu is not None and cpu.state.layout.nodes != numa_nodes:
            raise ValueError(
                f"expected CPUs of {numa_nodes} NUMA nodes, got {cpu.state.layout.nodes}"
            )
        if memory is not None and memory.state.layout.nodes != numa_nodes:
            raise ValueError(
                f"expected memory of {numa_nodes} NUMA nodes, got {memory.state.layout.nodes}"
            )

        for ledger in devices.values():
            if (<DeviceLedger?>ledger).state.layout.nodes != numa_nodes:
                raise ValueError(f"expected devices of a machine of {numa_nodes} NUMA nodes")

        if distances is not None and distances.nodes != numa_nodes:
            raise ValueError(
                f"expected distances of {numa_nodes} NUMA nodes, got {distances.nodes}"
            )

        self.cpu = cpu
        self.memory = memory
        self.ledgers = dict(devices)
        self.distances = distances
        self.changes = changes

        row.changes = NULL if changes is None else &changes.count
        row.nodes = numa_nodes
        row.policy = policy
        row.pod_scope = pod_scope
        row.needs_node = needs_node
        row.upper_bound = upper_bound

        row.cpu = NULL if cpu is None else &cpu.state
        row.memory = NULL if memory is None else &memory.state

        row.sums = row.nearest = row.distances = NULL
        if distances is not None:
            row.sums = distances.sums
            row.nearest = distances.nearest
            if prefer_closest and numa_nodes <= NARROW_NODES:
                row.distances = distances.sums

            # beyond 8 nodes nobody sums distances here
            row.needs_node = row.needs_node or (prefer_closest and numa_nodes > NARROW_NODES)

    @property
    def numa_nodes(self):
        """The number of NUMA nodes of the machine."""
        return self.amounts.nodes

    @property
    def devices(self):
        """The devices of each resource; read only, as boards point to them."""
        return MappingProxyType(self.ledgers or {})

    @property
    def policy(self):
        """The number of the Topology Manager policy."""
        return self.amounts.policy

    @property
    def pod_scope(self):
        """Whether pods are judged as a whole."""
        return self.amounts.pod_scope != 0


# Amounts of one resource on the NUMA nodes of a row

cdef void add_amounts(const NodeRow* row, Resource resource, int64_t* out) noexcept nogil:
    """Add the amounts of a resource to `out`, which has room for the row's NUMA nodes.

    A device counts at each NUMA node that it is near to.
    """
    cdef const int64_t* amounts = NULL
    cdef const DeviceState* state
    cdef int node, place

    if resource.kind == KIND_CPU and row.cpu != NULL:
        amounts = row.cpu.layout.allocatable_count if resource.allocatable else row.cpu.free
    elif resource.kind == KIND_MEMORY and row.memory != NULL and row.type_of[resource.number] >= 0:
        amounts = row.memory.layout.allocatable if resource.allocatable else row.memory.free
        amounts += row.type_of[resource.number] * row.nodes

    if amounts != NULL:
        for node in range(row.nodes):
            out[node] += amounts[node]

    if resource.kind != KIND_DEVICE or row.devices[resource.number] == NULL:
        return

    state = row.devices[resource.number]
    amounts = state.layout.totals if resource.allocatable else state.free
    for place in range(state.layout.places):
        for node in range(row.nodes):
            if state.layout.place[place] >> node & 1:
                out[node] += amounts[place]


cdef int64_t mask_of_nodes_with(const int64_t* amounts, int nodes, int64_t amount) noexcept nogil:
    """Return the mask of the NUMA nodes that have at least so much.

    It is minus 1 where all together have less. The 64th NUMA node is left out of the mask, since
    its bit is the sign.
    """
    cdef int64_t mask = 0, total = 0
    cdef int node
    for node in range(nodes):
        total += amounts[node]
        if node < WIDEST - 1 and amounts[node] >= amount:
            mask |= <int64_t>1 << node
    return -1 if total < amount else mask


# The states of nodes lie far apart in memory, and waiting for them is slow, so they are prefetched:
# in three steps, since what a state points to is known only once the state has arrived.

cdef extern from *:
    """
    /* Without the empty statement GCC drops calls of functions that do nothing but this: it takes
       them for pure. */
    #if defined(__GNUC__) || defined(__clang__)
    #define alignup_prefetch(address) do { \
        __builtin_prefetch(address); __asm__ volatile (""); } while (0)
    #else
    #define alignup_prefetch(address) ((void)(address))
    #endif
    #define ALIGNUP_LINE 64     /* bytes that a cache holds together, on nearly every machine */
    static CYTHON_INLINE void alignup_prefetch_all(const void* block, const void* end) {
        const char* line = (const char*)block;
        for (; line < (const char*)end; line += ALIGNUP_LINE) alignup_prefetch(line);
        alignup_prefetch((const char*)end - 1);
    }
    """
    void prefetch "alignup_prefetch"(const void* address) noexcept nogil
    void prefetch_all "alignup_prefetch_all"(const void* block, const void* end) noexcept nogil


cdef inline void prefetch_states(const NodeRow* row, const PodRequest* pod) noexcept nogil:
    """Ask for the states of a node."""
    cdef int index
    cdef const DeviceState* devices

    prefetch(row.changes)
    if row.cpu != NULL:
        prefetch_all(row.cpu, row.cpu + 1)
    if row.memory != NULL:
        prefetch_all(row.memory, row.memory + 1)
    for index in range(pod.resources):
        devices = row.devices[pod.resource[index]]
        if devices != NULL:
            prefetch_all(devices, devices + 1)


cdef inline void prefetch_amounts(
    const NodeRow* row, const PodRequest* pod, bint layouts
) noexcept nogil:
    """Ask for what the states of a node point to, layouts if told so."""
    cdef int index
    cdef const DeviceState* devices

    if row.cpu != NULL:
        if layouts:
            prefetch_all(row.cpu.layout, row.cpu.layout + 1)

        prefetch_all(row.cpu.allocated, row.cpu.free + row.nodes)

    if row.memory != NULL:
        if layouts:
            prefetch_all(row.memory.layout, row.memory.layout + 1)

        # all of it is compared with that of other nodes, and what several containers take is taken
        # from a copy
        prefetch_all(row.memory.free, row.memory.lone_users + row.nodes)

    for index in range(pod.resources):
        devices = row.devices[pod.resource[index]]
        if devices != NULL:
            if layouts:
                prefetch_all(devices.layout, devices.layout + 1)

            prefetch_all(devices.allocated, devices.free + row.nodes)


cdef inline void prefetch_layouts(const NodeRow* row, const PodRequest* pod) noexcept nogil:
    """Ask for what every decision reads of a node's layouts; nodes of one shape share them."""
    cdef int index
    cdef const DeviceState* devices

    if row.cpu != NULL:
        prefetch(row.cpu.layout.largest_sums)
        prefetch(row.cpu.layout.groups)
        prefetch(row.cpu.layout.allocatable_count)

    if row.memory != NULL:
        prefetch(row.memory.layout.largest_sums)
        prefetch(row.memory.layout.allocatable)

    for index in range(pod.resources):
        devices = row.devices[pod.resource[index]]
        if devices != NULL:
            prefetch(devices.layout.largest_sums)
            prefetch(devices.layout.totals)


cdef inline void prefetch_state(const NodeRow* row, Resource resource) noexcept nogil:
    """Ask for the state of a resource on a node.

    What it points to is known only when it is there.
    """
    if resource.kind == KIND_CPU:
        prefetch(row.cpu)
    elif resource.kind == KIND_MEMORY:
        prefetch(row.memory)
    elif resource.kind == KIND_DEVICE:
        prefetch(row.devices[resource.number])


cdef inline void prefetch_amount(const NodeRow* row, Resource resource) noexcept nogil:
    """Ask for what is free of a resource on a node."""
    if resource.kind == KIND_CPU and row.cpu != NULL:
        prefetch(row.cpu.free)
    elif resource.kind == KIND_MEMORY and row.memory != NULL:
        prefetch(row.memory.free)
    elif resource.kind == KIND_DEVICE and row.devices[resource.number] != NULL:
        prefetch(row.devices[resource.number].free)


# Pods

cdef void add_request(Request* total, const Request* request) noexcept nogil:
    """Add what a container asks for.

    Each sum stops at the largest request, which no node can meet.
    """
    cdef int64_t largest = ((<int64_t>1) << 61) + 1
    cdef int index, place

    total.cpus = min(total.cpus + request.cpus, largest)
    for index in range(request.types):
        place = place_in(total.type, total.types, request.type[index])
        if place == total.types:
            total.type[place] = request.type[index]
            total.types += 1

        total.size[place] = min(total.size[place] + request.size[index], largest)

    for index in range(request.resources):
        place = place_in(total.resource, total.resources, request.resource[index])
        if place == total.resources:
            total.resource[place] = request.resource[index]
            total.resources += 1

        total.count[place] = min(total.count[place] + request.count[index], largest)


cdef inline int place_in(const int* numbers, int count, int number) noexcept nogil:
    """Return where a number is, or the count if it is not there."""
    cdef int place
    for place in range(count):
        if numbers[place] == number:
            return place
    return count


cdef int read_request(Request* request, tuple requested, list types, list resources) except -1:
    """Read what a pod or container asks for; resources that no node has are ignored."""
    cpus, sizes, counts, is_reusable = requested
    if min([cpus] + [amount for _, amount in (*sizes, *counts)]) < 0:
        raise ValueError(f"expected requests that are not negative, got {requested}")
    if len(dict(sizes)) != len(sizes) or len(dict(counts)) != len(counts):
        raise ValueError(f"expected each type and resource once, got {requested}")

    request.cpus = min(cpus, LARGEST_REQUEST)
    request.is_reusable = is_reusable
    for name, size in sizes:
        request.type[request.types] = types.index(name)
        request.size[request.types] = min(size, LARGEST_REQUEST)
        request.types += 1

    for name, count in counts:
        if name in resources:
            request.resource[request.resources] = resources.index(name)
            request.count[request.resources] = min(count, LARGEST_REQUEST)
            request.resources += 1

    return 0


# The loop

@cython.final
cdef class Board:
    """The rows of a cluster; a change of a node's ledgers is seen at once.

    Args:
        rows: a `Row` for each node.
    """

    def __cinit__(self):
        self.rows = NULL
        self.type_of = NULL
        self.states = NULL
        self.node_states = NULL

    def __init__(self, rows):
        if self.rows is not NULL:
            raise TypeError("expected a new board, got one that is made already")
        self.row_objects = list(rows)
        self.type_numbers = {}
        self.resource_numbers = {}
        for row in self.row_objects:
            self.number_names(row)
        self.lay_out()

    def __dealloc__(self):
        PyMem_Free(self.rows)
        PyMem_Free(self.type_of)
        PyMem_Free(self.states)
        PyMem_Free(self.node_states)

    def __len__(self):
        return self.row_count

    @property
    def parts(self):
        """The rows, in order."""
        return tuple(self.row_objects)

    @property
    def types(self):
        """The types of memory of all nodes, sorted."""
        return tuple(sorted(self.type_numbers))

    @property
    def resources(self):
        """The device resources of all nodes, sorted."""
        return tuple(sorted(self.resource_numbers))

    cdef int number_names(self, Row row) except -1:
        """Give every type and resource of a row a number."""
        if row is None or not row.amounts.nodes:
            raise TypeError(f"expected a row that is made, got {row!r}")
        if row.memory is not None:
            for name in row.memory.capacity.types:
                self.type_numbers.setdefault(name, len(self.type_numbers))
        for name in row.ledgers:
            self.resource_numbers.setdefault(name, len(self.resource_numbers))
        return 0

    cdef int lay_out(self) except -1:
        """Make room for all rows and names, and write them."""
        cdef Py_ssize_t index, count = len(self.row_objects)
        cdef int types = len(self.type_numbers), resources = len(self.resource_numbers)
        cdef NodeRow* rows = <NodeRow*>PyMem_Calloc(max(1, count), sizeof(NodeRow))
        cdef int16_t* type_of = <int16_t*>PyMem_Calloc(max(1, count * types), sizeof(int16_t))
        cdef const DeviceState** states = <const DeviceState**>PyMem_Calloc(
            max(1, count * resources), sizeof(void*)
        )
        cdef uint64_t* node_states = <uint64_t*>PyMem_Calloc(max(1, count), sizeof(uint64_t))

        if rows is NULL or type_of is NULL or states is NULL or node_states is NULL:
            PyMem_Free(rows)
            PyMem_Free(type_of)
            PyMem_Free(states)
            PyMem_Free(node_states)
            raise MemoryError

        PyMem_Free(self.rows)
        PyMem_Free(self.type_of)
        PyMem_Free(self.states)
        PyMem_Free(self.node_states)

        self.rows = rows
        self.type_of = type_of
        self.states = states
        self.node_states = node_states

        self.row_count = count
        self.type_room = types
        self.resource_room = resources
        for index in range(count):
            self.write_row(index, self.row_objects[index])

        return 0

    cdef void write_row(self, Py_ssize_t index, Row row):
        cdef NodeRow* at = &self.rows[index]
        cdef int16_t* type_of = self.type_of + index * self.type_room
        cdef const DeviceState** states = self.states + index * self.resource_room
        cdef int number

        for number in range(self.type_room):
            type_of[number] = -1

        for number in range(self.resource_room):
            states[number] = NULL

        if row.memory is not None:
            for place, name in enumerate(row.memory.capacity.types):
                type_of[<int>self.type_numbers[name]] = place

        for name, ledger in row.ledgers.items():
            states[<int>self.resource_numbers[name]] = &(<DeviceLedger>ledger).state

        self.node_states[index] = 0
        at[0] = row.amounts
        at.type_of = type_of
        at.devices = states
        widen(&self.room, at, self.resource_room)

    cdef bint is_answered(self, const JudgementCache* cache, Py_ssize_t node) noexcept nogil:
        """Return whether a node seems to be in a state that was judged in this run."""
        cdef const int64_t* changes = self.rows[node].changes
        if cache.nodes == NULL or changes == NULL:
            return False
        return has_state(cache, state_at(&self.node_states[node], second_look(changes)))

    cdef uint32_t state_of(self, Py_ssize_t node, Py_ssize_t twin) noexcept nogil:
        """Return the state of a node that is not known: that of a node like it, or a new one.

        Args:
            node: the node, which holds if it did not change meanwhile.
            twin: one that is alike to a pod; minus 1: none.
        """
        cdef const int64_t* changes = NULL if twin < 0 else self.rows[twin].changes
        cdef int64_t before
        cdef uint32_t state

        if changes != NULL:
            before = first_look(changes)
            state = state_at(&self.node_states[twin], before)
            if (
                state
                and is_alike_for_all(&self.rows[node], &self.rows[twin], self.resource_room)
                and second_look(changes) == before
            ):
                return state

        return new_state(&self.state_count)

    def replace(self, Py_ssize_t index, Row row not None):
        """Put another row in a node's place. Not while the board is judging.

        Raises:
            IndexError: there is no such node.
        """
        if not 0 <= index < self.row_count:
            raise IndexError(f"expected the index of one of {self.row_count} nodes, got {index}")
        self.number_names(row)
        self.row_objects[index] = row
        if (
            len(self.type_numbers) > self.type_room
            or len(self.resource_numbers) > self.resource_room
        ):
            self.lay_out()
        else:
            self.write_row(index, row)

    cdef Resource resource_named(self, str name, bint allocatable):
        """Return how to read the amounts of a resource.

        It is named `cpu`, by a type of memory, or by a device resource.
        """
        if name == "cpu":
            return Resource(KIND_CPU, 0, allocatable)
        number = self.type_numbers.get(name)
        if number is not None:
            return Resource(KIND_MEMORY, number, allocatable)
        number = self.resource_numbers.get(name)
        return Resource(KIND_UNKNOWN if number is None else KIND_DEVICE, number or 0, allocatable)

    def free(self, str resource not None, int64_t[:, ::1] out not None, bint allocatable=False):
        """Write the free or the allocatable amounts of a resource, by node and NUMA node.

        A device counts at each NUMA node that it is near to.

        Args:
            resource: `cpu`, a type of memory, or a device resource.
            out: an array of zeros with a line for each node.
            allocatable: the allocatable amounts, instead of the free ones.

        Raises:
            ValueError: the array has too little room.
        """
        cdef Py_ssize_t index
        cdef int widest = 0
        cdef Resource read = self.resource_named(resource, allocatable)

        for index in range(self.row_count):
            widest = max(widest, self.rows[index].nodes)
        if out.shape[0] != self.row_count or out.shape[1] < widest:
            raise ValueError(f"expected an array of {self.row_count} lines for all NUMA nodes")
        with nogil:
            for index in range(self.row_count):
                add_amounts(&self.rows[index], read, &out[index, 0])

    def nodes_with(
        self,
        str resource not None,
        const int64_t[::1] amounts not None,
        const int64_t[::1] nodes not None,
        int64_t[:, :] out not None,
    ):
        """Write which NUMA nodes of each node have an amount free by themselves.

        Args:
            resource: as for `free`.
            amounts: what is asked for.
            nodes: indices of nodes.
            out: a line for each node, an element for each amount: the mask of NUMA nodes, the
                64th left out; minus 1 where all of them together have too little.

        Raises:
            IndexError: there is no such node.
            ValueError: the array is not of that size.
        """
        cdef Py_ssize_t index, place, count = nodes.shape[0]
        cdef int64_t[WIDEST] free_amounts
        cdef Resource read = self.resource_named(resource, False)
        cdef const NodeRow* row

        if out.shape[0] != count or out.shape[1] != amounts.shape[0]:
            raise ValueError(f"expected an array of {count} lines of {amounts.shape[0]} elements")

        for index in range(count):
            if not 0 <= nodes[index] < self.row_count:
                raise IndexError(f"expected indices of {self.row_count} nodes, got {nodes[index]}")

        with nogil:
            for index in range(count):
                prefetch_state(&self.rows[nodes[min(index + AHEAD, count - 1)]], read)
                prefetch_amount(&self.rows[nodes[min(index + AHEAD // 2, count - 1)]], read)
                row = &self.rows[nodes[index]]
                memset(free_amounts, 0, row.nodes * sizeof(int64_t))
                add_amounts(row, read, free_amounts)
                for place in range(amounts.shape[0]):
                    out[index, place] = mask_of_nodes_with(free_amounts, row.nodes, amounts[place])

    def judge(
        self,
        Job job not None,
        int strategy,
        Py_ssize_t start,
        Py_ssize_t stop,
        const int64_t[::1] nodes,
        uint8_t[::1] admitted not None,
        uint8_t[::1] reason not None,
        uint64_t[::1] affinity not None,
        uint8_t[::1] preferred not None,
        double[::1] score not None,
        uint8_t[::1] exact not None,
        *,
        bint locks_held=False,
    ):
        """Judge some nodes and write the answers at their indices.

        Where the node must be asked, it is not `exact`. Returns a list of the nodes that changed
        meanwhile: they are to be judged again, under their locks.

        Args:
            job: the pod; made for this board.
            strategy: the number of the strategy that scores placements.
            start, stop: the range of nodes, or the range of `nodes`.
            nodes: indices of nodes; None: all of them in order.
            locks_held: the caller has the locks of these nodes.

        Raises:
            IndexError: there is no such node.
            ValueError: the job is another board's, there is no such strategy, or an answer has
                too little room.
        """
        cdef Py_ssize_t index, node, later, changed = 0, twin = -1
        cdef const int64_t* changes
        cdef int64_t before = 0
        cdef uint64_t hash = 0
        cdef uint32_t state = 0
        cdef bint is_known = False
        cdef size_t remembered
        cdef char* scratch
        cdef JudgementCache cache
        cdef Trial trial

        if job.board is not self or job.pod.requests is NULL or job.renumber():
            raise ValueError("expected a job of this board, got another one's")
        if not 0 <= strategy < MOST_STRATEGIES:
            raise ValueError(f"expected one of {MOST_STRATEGIES} strategies, got {strategy}")

        for room in (
            admitted.shape[0],
            reason.shape[0],
            affinity.shape[0],
            preferred.shape[0],
            score.shape[0],
            exact.shape[0],
        ):
            if room != self.row_count:
                raise ValueError(f"expected answers of {self.row_count} nodes, got room for {room}")

        if start < 0 or stop > (self.row_count if nodes is None else nodes.shape[0]):
            raise IndexError(f"expected a range of nodes, got {start} to {stop}")

        if nodes is not None:
            for index in range(start, stop):
                if not 0 <= nodes[index] < self.row_count:
                    raise IndexError(
                        f"expected indices of {self.row_count} nodes, got {nodes[index]}"
                    )

        remembered = cache_bytes(stop - start, &cache.bits)
        scratch = <char*>calloc(1, remembered + scratch_bytes(&self.room, &job.pod))
        if scratch is NULL:
            raise MemoryError

        place_cache(&cache, scratch if remembered else NULL)
        with nogil:
            place_scratch(&trial, &self.room, &job.pod, scratch + remembered)
            for index in range(start, stop):
                node = index if nodes is None else nodes[index]
                if index + 2 * AHEAD < stop and cache.nodes != NULL:
                    later = index + 2 * AHEAD if nodes is None else nodes[index + 2 * AHEAD]
                    prefetch(self.rows[later].changes)

                if index + AHEAD < stop:
                    later = index + AHEAD if nodes is None else nodes[index + AHEAD]
                    if not self.is_answered(&cache, later):
                        prefetch_states(&self.rows[later], &job.pod)

                    later = (
                        index + 2 * AHEAD // 3 if nodes is None else nodes[index + 2 * AHEAD // 3]
                    )
                    if not self.is_answered(&cache, later):
                        # nodes that are alike share layouts, which are there then
                        prefetch_amounts(&self.rows[later], &job.pod, cache.nodes == NULL)

                    if cache.nodes == NULL:
                        later = index + AHEAD // 3 if nodes is None else nodes[index + AHEAD // 3]
                        prefetch_layouts(&self.rows[later], &job.pod)

                changes = NULL if locks_held else self.rows[node].changes
                if changes != NULL:
                    before = first_look(changes)

                if cache.nodes != NULL:
                    state = 0 if changes == NULL else state_at(&self.node_states[node], before)
                    twin = node_in_state(&cache, state)
                    is_known = twin >= 0
                    if not is_known:
                        hash = hash_of(&self.rows[node], &job.pod)
                        twin = alike_node(&cache, self.rows, &self.rows[node], &job.pod, hash)
                        if changes != NULL and not state:
                            state = self.state_of(node, twin)

                if twin >= 0:
                    admitted[node] = admitted[twin]
                    reason[node] = reason[twin]
                    affinity[node] = affinity[twin]
                    preferred[node] = preferred[twin]
                    score[node] = score[twin]
                    exact[node] = exact[twin]
                else:
                    judge_row(
                        &trial,
                        &self.rows[node],
                        job.policy,
                        strategy,
                        &admitted[node],
                        &reason[node],
                        &affinity[node],
                        &preferred[node],
                        &score[node],
                        &exact[node],
                    )

                if changes != NULL and (before & 1 or second_look(changes) != before):
                    exact[node] = CHANGING
                    changed += 1
                elif cache.nodes != NULL and not is_known:
                    if twin < 0:
                        remember(&cache, node, before, hash)

                    if changes != NULL and state:
                        note_state(&self.node_states[node], before, state)
                        remember_state(&cache, state, node)

        free(scratch)
        if not changed:
            return []

        if nodes is None:
            judged_nodes = range(start, stop)
        else:
            judged_nodes = [nodes[index] for index in range(start, stop)]

        return [node for node in judged_nodes if exact[node] == CHANGING]

    def score(self, Job job not None, Py_ssize_t index, int strategy, list hints not None):
        """Return what a placement on a node is worth that the node itself chose.

        Args:
            job: the pod.
            index: the node.
            strategy: the number of the strategy.
            hints: the affinity of each container as a mask; None: anywhere, or none decided.
        """
        cdef Trial trial
        cdef uint64_t requesting_affinity = 0
        cdef bint aligned
        cdef int number
        cdef char* scratch

        if (
            not 0 <= index < self.row_count
            or job.board is not self
            or len(hints) != job.pod.containers
        ):
            raise ValueError(
                "expected a job of this board, one of its nodes, and a hint for each container"
            )
        if not 0 <= strategy < MOST_STRATEGIES:
            raise ValueError(f"expected one of {MOST_STRATEGIES} strategies, got {strategy}")

        job.renumber()
        for mask in hints:
            if mask is not None and not 0 <= mask <= all_nodes(self.rows[index].nodes):
                raise ValueError(
                    f"expected masks of {self.rows[index].nodes} NUMA nodes, got {mask}"
                )

        scratch = <char*>calloc(1, scratch_bytes(&self.room, &job.pod))
        if scratch is NULL:
            raise MemoryError

        place_scratch(&trial, &self.room, &job.pod, scratch)
        start_trial(&trial, &self.rows[index], job.policy)
        aligned = trial.policy != 0
        for number, mask in enumerate(hints, 1):
            if asks_for_anything(&trial, &job.pod.requests[number]):
                if mask is None:
                    requesting_affinity |= all_nodes(trial.row.nodes)
                else:
                    requesting_affinity |= <uint64_t>mask

                aligned = aligned and not (mask is None and trial.row.nodes > 1)

        free(scratch)
        return score_of(&self.rows[index], &job.pod, requesting_affinity, aligned, strategy)


@cython.final
cdef class Job:
    """A pod, prepared for being judged by a board again and again.

    Args:
        board: the board.
        requests: the pod as a whole, then each of its containers, as (CPUs, ((type, bytes), ...),
            ((resource, count), ...), whether later containers reuse them).
        policy: the number of the policy that the pod brings; -1: none.

    Raises:
        ValueError: the pod asks for too many types of memory or device resources.
    """

    def __cinit__(self):
        self.pod.requests = NULL

    def __init__(self, Board board not None, list requests not None, int policy=-1):
        if self.pod.requests is not NULL:
            raise TypeError("expected a new job, got one that is made already")
        if len(requests) < 2 or not -1 <= policy <= POLICY_BEST_EFFORT + 2:
            raise ValueError(
                "expected the requests of a pod and its containers, and the number of a policy"
            )
        if board.rows is NULL:
            raise ValueError("expected a board that is made, got one that is not")

        self.board = board
        self.policy = policy
        self.requests = requests
        self.read_pod(requests)

    def __dealloc__(self):
        PyMem_Free(self.pod.requests)

    cdef int renumber(self) except -1:
        """Read the pod again where new nodes brought names.

        That is types or resources that had no number before.
        """
        if self.names == len(self.board.type_numbers) + len(self.board.resource_numbers):
            return 0
        PyMem_Free(self.pod.requests)
        self.pod.requests = NULL
        return self.read_pod(self.requests)

    cdef int read_pod(self, list requests) except -1:
        """Number the types and resources that the pod asks for, and read every request."""
        types = list(dict.fromkeys([name for request in requests for name, _ in request[1]]))
        resource_numbers = self.board.resource_numbers
        resources = list(
            dict.fromkeys(
                [name for request in requests for name, _ in request[2] if name in resource_numbers]
            )
        )
        if len(types) > MOST_TYPES or len(resources) > MOST_RESOURCES:
            raise ValueError(
                f"expected at most {MOST_TYPES} types of memory "
                f"and {MOST_RESOURCES} device resources"
            )

        self.names = len(self.board.type_numbers) + len(self.board.resource_numbers)
        self.pod.types = len(types)
        self.pod.resources = len(resources)

        for place, name in enumerate(types):
            self.pod.type[<int>place] = self.board.type_numbers.get(name, -1)

        for place, name in enumerate(resources):
            self.pod.resource[<int>place] = resource_numbers[name]

        self.pod.containers = len(requests) - 1
        self.pod.is_reusable = False
        memset(&self.pod.total, 0, sizeof(Request))
        self.pod.requests = <Request*>zeroed(len(requests), sizeof(Request))

        first = {}
        for number, request in enumerate(requests):
            read_request(&self.pod.requests[<int>number], request, types, resources)
            self.pod.requests[<int>number].same_as = (
                first.setdefault(request, number) if number else 0
            )
            self.pod.is_reusable = (
                self.pod.is_reusable or self.pod.requests[<int>number].is_reusable
            )
            if number:
                add_request(&self.pod.total, &self.pod.requests[<int>number])

        return 0
