"""Judge one pod on many nodes that are reduced to amounts: the arrays, and the loop over them.

A `Board` holds the arrays of a cluster, a `Job` one pod against them; the loop runs without the GIL, so several
threads can each take a range of nodes. What the numbers mean is said in `alignup.core.amounts.state`, and where they
come from in `alignup.cluster`.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from alignup.core.bits cimport NARROW_NODES, all_nodes, is_single
from alignup.core.amounts.allocate cimport charge
from alignup.core.amounts.policy cimport decide
from alignup.core.amounts.node_hints cimport asks_for_anything
from alignup.core.amounts.preferred_sizes cimport make_plan
from alignup.core.amounts.state cimport (
    ADMITTED, MISMATCHED, MOST_KINDS, MOST_RESOURCES, POLICY_NONE, TOPOLOGY_AFFINITY_ERROR, UNDECIDED, Demand, Hint,
    Layout, Outcome, Plan, Shape, State,
)
from alignup.core.amounts.score cimport score_of

SHAPE_FIELDS = (
    "numa_nodes", "policy", "pod_scope", "has_cpu", "has_memory", "foreign", "irregular", "full_pcpus_only",
    "distributes", "by_socket", "cpus_per_core", "split_cpus", "sockets", "memory_kinds", "resources", "healthy",
    "ordered", "distances", "closest",
)
# The most types of memory, and device resources, that one pod can ask for.
LIMITS = (MOST_KINDS, MOST_RESOURCES)


cdef class Board:
    """The arrays of a cluster; they are kept, not copied, and may be changed between jobs.

    Args:
        starts: int64 [resources + 1], the first column of each device resource, and the end of the last.
        scalars: int64 [shapes, fields], the fields of `SHAPE_FIELDS`; `distances` is a row of `sums` or -1.
        cpu_capacity, cpu_allocatable: int64 [shapes, width].
        socket_nodes: uint64 [shapes, width], a mask for each socket.
        memory_allocatable: int64 [shapes, kinds, width].
        places: uint64 [shapes, columns], the nodes that the devices of a column are near to.
        totals: int64 [shapes, columns].
        sums: int64 [tables, 256], the sum of the distances within each mask.
        nearest: int64 [tables, 65], the least such sum of each size.
        shape_of: int32 [nodes].
        cpu: int64 [nodes, width], free.
        whole: int64 [nodes], free CPUs on cores of which no CPU is reserved.
        memory: int64 [nodes, kinds, width], free.
        bound: uint64 [nodes, width], what the memory of each NUMA node is bound to.
        used: uint64 [nodes], the NUMA nodes that hold memory of somebody.
        devices: int64 [nodes, columns], free.
        exclusive: uint64 [nodes], the NUMA nodes of pods that asked for a single one for themselves.
    """

    cdef Layout layout
    cdef Shape* shapes
    cdef readonly Py_ssize_t shape_count
    cdef readonly Py_ssize_t node_count
    cdef const int64_t[::1] starts
    cdef const int64_t[:, ::1] scalars, cpu_capacity, cpu_allocatable, totals, sums, nearest
    cdef const uint64_t[:, ::1] socket_nodes, places
    cdef const int64_t[:, :, ::1] memory_allocatable
    cdef const int32_t[::1] shape_of
    cdef int64_t[:, ::1] cpu, devices
    cdef int64_t[::1] whole
    cdef int64_t[:, :, ::1] memory
    cdef uint64_t[:, ::1] bound
    cdef uint64_t[::1] used, exclusive

    def __cinit__(self):
        self.shapes = NULL

    def __init__(
        self, *, starts, scalars, cpu_capacity, cpu_allocatable, socket_nodes, memory_allocatable, places, totals,
        sums, nearest, shape_of, cpu, whole, memory, bound, used, devices, exclusive,
    ):
        self.starts, self.scalars = starts, scalars
        self.cpu_capacity, self.cpu_allocatable, self.socket_nodes = cpu_capacity, cpu_allocatable, socket_nodes
        self.memory_allocatable, self.places, self.totals = memory_allocatable, places, totals
        self.sums, self.nearest, self.shape_of = sums, nearest, shape_of
        self.cpu, self.whole, self.memory = cpu, whole, memory
        self.bound, self.used, self.devices, self.exclusive = bound, used, devices, exclusive
        self.shape_count = len(scalars)
        self.node_count = len(shape_of)
        if scalars.shape[1] != len(SHAPE_FIELDS):
            raise ValueError(f"expected {len(SHAPE_FIELDS)} fields a shape, got {scalars.shape[1]}")
        self.shapes = <Shape*>PyMem_Calloc(max(1, self.shape_count), sizeof(Shape))
        if self.shapes is NULL:
            raise MemoryError
        self.layout.width = cpu.shape[1]
        self.layout.kinds = memory.shape[1]
        self.layout.columns = devices.shape[1]
        self.layout.resources = len(starts) - 1
        self.layout.starts = &self.starts[0]
        self.read_shapes()

    def __dealloc__(self):
        PyMem_Free(self.shapes)

    cdef void read_shapes(self):
        """Point each shape at its rows."""
        cdef Py_ssize_t index
        cdef Shape* shape
        cdef const int64_t* fields
        for index in range(self.shape_count):
            shape = &self.shapes[index]
            fields = &self.scalars[index, 0]
            shape.numa_nodes, shape.policy, shape.pod_scope = fields[0], fields[1], fields[2] != 0
            shape.has_cpu, shape.has_memory, shape.foreign = fields[3] != 0, fields[4] != 0, fields[5] != 0
            shape.irregular, shape.full_pcpus_only = fields[6] != 0, fields[7] != 0
            shape.distributes, shape.by_socket = fields[8] != 0, fields[9] != 0
            shape.cpus_per_core, shape.split_cpus, shape.sockets = fields[10], fields[11], fields[12]
            shape.memory_kinds, shape.resources = fields[13], fields[14]
            shape.healthy, shape.ordered = fields[15], fields[16]
            if fields[17] >= 0:
                shape.sums = &self.sums[fields[17], 0]
                shape.nearest = &self.nearest[fields[17], 0]
                shape.distances = shape.sums if fields[18] else NULL
            shape.cpu_capacity = &self.cpu_capacity[index, 0]
            shape.cpu_allocatable = &self.cpu_allocatable[index, 0]
            shape.socket_nodes = &self.socket_nodes[index, 0]
            if self.layout.kinds:
                shape.memory = &self.memory_allocatable[index, 0, 0]
            if self.layout.columns:
                shape.places = &self.places[index, 0]
                shape.totals = &self.totals[index, 0]

    cdef inline void read_node(self, Py_ssize_t node, State* state) noexcept nogil:
        """Let a state point at the arrays of a node."""
        state.layout = &self.layout
        state.shape = &self.shapes[self.shape_of[node]]
        state.cpu = &self.cpu[node, 0]
        state.memory = &self.memory[node, 0, 0] if self.layout.kinds else NULL
        state.bound = &self.bound[node, 0]
        state.used = self.used[node]
        state.devices = &self.devices[node, 0] if self.layout.columns else NULL
        state.left = NULL
        state.least_whole = state.most_whole = self.whole[node]
        state.cpu_lost = state.cpu_unsure = state.reuses = False
        state.unsure = state.left_unsure = 0
        state.donors = 0


cdef void copy_amounts(State* state, char* scratch) noexcept nogil:
    """Let a state point at copies, which the containers of a pod can be charged against."""
    cdef const Layout* layout = state.layout
    cdef size_t size
    size = layout.width * sizeof(int64_t)
    state.cpu = <int64_t*>memcpy(scratch, state.cpu, size)
    scratch += size
    state.bound = <uint64_t*>memcpy(scratch, state.bound, size)
    scratch += size
    size *= layout.kinds
    if size:
        state.memory = <int64_t*>memcpy(scratch, state.memory, size)
    scratch += size
    size = layout.columns * sizeof(int64_t)
    if size:
        state.devices = <int64_t*>memcpy(scratch, state.devices, size)
    scratch += size
    memset(scratch, 0, size)
    state.left = <int64_t*>scratch


cdef struct Answer:
    Outcome outcome
    uint64_t affinity       # of all containers together
    uint64_t asked          # of those that ask for anything that a provider gives
    bint aligned
    bint preferred
    bint mixed              # some affinity spans several nodes, one of which a pod wants for itself


cdef class Job:
    """One pod against a board.

    Args:
        board: the cluster.
        demands: the pod as a whole, then each of its containers, as
            (CPUs, [(kind or -1, bytes)], [(resource, count)], hands on).
        policy: the number of the policy that the pod brings; -1: none.
        exclusively: it keeps away from pods that want a NUMA node for themselves.
    """

    cdef int policy
    cdef bint exclusively
    cdef Board board
    cdef Demand* demands
    cdef Plan* plans
    cdef int demand_count

    def __cinit__(self):
        self.demands = NULL
        self.plans = NULL

    def __init__(self, Board board not None, list demands not None, int policy=-1, bint exclusively=False):
        cdef int index
        cdef Py_ssize_t shape
        self.policy = policy
        self.exclusively = exclusively
        self.board = board
        self.demand_count = len(demands)
        if self.demand_count < 2:
            raise ValueError("expected the demands of a pod and its containers")
        self.demands = <Demand*>PyMem_Calloc(self.demand_count, sizeof(Demand))
        self.plans = <Plan*>PyMem_Calloc(self.demand_count * max(1, board.shape_count), sizeof(Plan))
        if self.demands is NULL or self.plans is NULL:
            raise MemoryError
        for index in range(self.demand_count):
            read_demand(&self.demands[index], demands[index], board.layout.kinds, board.layout.resources)
        with nogil:
            for shape in range(board.shape_count):
                for index in range(self.demand_count):
                    make_plan(
                        &board.layout, &board.shapes[shape], &self.demands[index],
                        &self.plans[shape * self.demand_count + index],
                    )

    def __dealloc__(self):
        PyMem_Free(self.demands)
        PyMem_Free(self.plans)

    def run(
        self, int strategy, Py_ssize_t start, Py_ssize_t stop, const int64_t[::1] nodes, uint8_t[::1] admitted,
        uint8_t[::1] reason, uint64_t[::1] affinity, uint8_t[::1] preferred, double[::1] score, uint8_t[::1] exact,
    ):
        """Judge some nodes and write the answers at their indices.

        Args:
            strategy: which score.
            start, stop: the range of nodes, or the range of `nodes`.
            nodes: indices of nodes; None: all of them in order.

        Raises:
            IndexError: there is no such node.
        """
        cdef Py_ssize_t index, node
        cdef Answer answer
        cdef Layout* layout = &self.board.layout
        cdef char* scratch
        cdef State state
        cdef Shape own
        if start < 0 or stop > (self.board.node_count if nodes is None else nodes.shape[0]):
            raise IndexError(f"expected a range of nodes, got {start} to {stop}")
        if nodes is not None:
            for index in range(start, stop):
                if not 0 <= nodes[index] < self.board.node_count:
                    raise IndexError(f"expected indices of {self.board.node_count} nodes, got {nodes[index]}")
        scratch = <char*>calloc((2 + layout.kinds) * layout.width + 2 * layout.columns, sizeof(int64_t))
        if scratch is NULL:
            raise MemoryError
        with nogil:
            for index in range(start, stop):
                node = index if nodes is None else nodes[index]
                self.board.read_node(node, &state)
                self.judge(&state, &own, self.board.exclusive[node], scratch, &answer)
                admitted[node] = answer.outcome == ADMITTED or answer.outcome == UNDECIDED
                reason[node] = 0 if admitted[node] else answer.outcome
                affinity[node] = answer.affinity if admitted[node] else 0
                preferred[node] = answer.preferred and answer.outcome == ADMITTED
                exact[node] = answer.outcome != UNDECIDED and not (admitted[node] and state.shape.foreign)
                score[node] = -INFINITY
                if admitted[node]:
                    self.board.read_node(node, &state)
                    score[node] = score_of(&state, &self.demands[0], answer.asked, answer.aligned, strategy)
        free(scratch)

    cdef void judge(
        self, State* state, Shape* own, uint64_t exclusive, char* scratch, Answer* answer
    ) noexcept nogil:
        """Judge under the policy of the node, or that of the pod where the node has none: then `own` is its shape."""
        cdef const Plan* plans = &self.plans[(state.shape - self.board.shapes) * self.demand_count]
        answer.affinity = answer.asked = 0
        answer.mixed = answer.preferred = False
        if self.policy > POLICY_NONE and self.policy != state.shape.policy:
            answer.outcome = MISMATCHED
            if state.shape.policy != POLICY_NONE or state.shape.numa_nodes > NARROW_NODES:
                return  # a node without a policy has no option that allows more nodes either
            own[0] = state.shape[0]
            own.policy = self.policy
            own.pod_scope = True
            state.shape = own
        self.judge_containers(state, plans, exclusive, scratch, answer)
        if not self.exclusively or not exclusive or state.shape.policy == POLICY_NONE:
            return
        # keeping away from others takes hints away: what was best without them stays best, and no stays no
        if answer.outcome == ADMITTED:
            if answer.mixed or not answer.preferred:
                answer.outcome = UNDECIDED
        elif answer.outcome != TOPOLOGY_AFFINITY_ERROR or (self.demand_count > 2 and not state.shape.pod_scope):
            answer.outcome = UNDECIDED

    cdef void judge_containers(
        self, State* state, const Plan* plans, uint64_t exclusive, char* scratch, Answer* answer
    ) noexcept nogil:
        """Decide and charge container by container, as the scope has it."""
        cdef bint by_pod = state.shape.pod_scope and state.shape.policy != POLICY_NONE
        cdef bint several = self.demand_count > 2
        cdef Hint hint
        cdef int index
        answer.aligned = answer.preferred = state.shape.policy != POLICY_NONE
        answer.outcome = ADMITTED
        if several:
            copy_amounts(state, scratch)
        if by_pod:
            answer.outcome = decide(state, &self.demands[0], &plans[0], &hint)
            note(state, &self.demands[0], &plans[0], &hint, exclusive, answer)
        for index in range(1, self.demand_count):
            if answer.outcome != ADMITTED:
                break
            if not by_pod:
                answer.outcome = decide(state, &self.demands[index], &plans[index], &hint)
                note(state, &self.demands[index], &plans[index], &hint, exclusive, answer)
                if answer.outcome != ADMITTED:
                    break
            answer.outcome = charge(
                state, &self.demands[index], &plans[index], &hint, index + 1 == self.demand_count
            )
        if state.shape.foreign and answer.outcome != ADMITTED and (
            several or answer.outcome != TOPOLOGY_AFFINITY_ERROR
        ):
            answer.outcome = UNDECIDED


cdef inline void note(
    const State* state, const Demand* demand, const Plan* plan, const Hint* hint, uint64_t exclusive, Answer* answer
) noexcept nogil:
    """Add a hint to the answer."""
    if answer.outcome != ADMITTED:
        return
    answer.preferred = answer.preferred and hint.preferred
    if not hint.anywhere:
        answer.affinity |= hint.mask
        answer.mixed = answer.mixed or (hint.mask & exclusive != 0 and not is_single(hint.mask))
    if asks_for_anything(state, demand, plan):
        answer.asked |= all_nodes(state.shape.numa_nodes) if hint.anywhere else hint.mask
        answer.aligned = answer.aligned and not (hint.anywhere and state.shape.numa_nodes > 1)


cdef void read_demand(Demand* demand, tuple given, int kinds, int resources) except *:
    """Read (CPUs, [(kind or -1, bytes)], [(resource, count)], hands on)."""
    cpus, sizes, counts, hands_on = given
    if len(sizes) > MOST_KINDS or len(counts) > MOST_RESOURCES:
        raise ValueError(f"expected at most {MOST_KINDS} types of memory and {MOST_RESOURCES} device resources")
    demand.cpu = cpus
    demand.hands_on = hands_on
    for kind, size in sizes:
        if kind >= kinds:
            raise ValueError(f"expected one of {kinds} types of memory, got number {kind}")
        demand.unknown_kind = demand.unknown_kind or kind < 0
        demand.kind[demand.kinds] = max(0, kind)
        demand.size[demand.kinds] = size
        demand.kinds += 1
    for resource, count in counts:
        if not 0 <= resource < resources:
            raise ValueError(f"expected one of {resources} device resources, got number {resource}")
        demand.resource[demand.resources] = resource
        demand.count[demand.resources] = count
        demand.resources += 1
