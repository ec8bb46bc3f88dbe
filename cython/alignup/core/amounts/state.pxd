"""A node reduced to amounts: what is free where, and what of the node never changes.

The fixed part (`Shape`) is shared by all nodes that are alike; the rest (`State`) points into a cluster's arrays, or
into scratch memory while the containers of a pod are charged one after the other. Bit i of a mask is NUMA node i.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from alignup.core.bits cimport WIDEST, is_single, lowest


cdef enum:
    MOST_KINDS = 8          # types of memory that a container may ask for
    MOST_RESOURCES = 24     # device resources that a container may ask for
    MOST_DONORS = 8         # init containers whose memory later ones take over


cdef enum Policy:
    POLICY_NONE = 0
    POLICY_BEST_EFFORT = 1
    POLICY_RESTRICTED = 2
    POLICY_SINGLE_NUMA_NODE = 3


cdef enum Outcome:
    ADMITTED = 0
    TOPOLOGY_AFFINITY_ERROR = 1
    UNEXPECTED_ADMISSION_ERROR = 2
    SMT_ALIGNMENT_ERROR = 3
    MISMATCHED = 4          # pod and node name different policies
    UNDECIDED = 5           # the amounts do not tell


cdef struct Layout:
    # What all nodes of a cluster have in common: how wide the arrays are.
    int width               # NUMA nodes of the widest machine
    int kinds               # types of memory
    int columns             # places of all device resources together
    int resources
    const int64_t* starts   # the first column of each device resource, and the end of the last


cdef struct Shape:
    int numa_nodes
    int policy
    bint pod_scope
    bint has_cpu
    bint has_memory
    bint foreign            # asks providers that amounts know nothing of
    bint irregular          # sockets or cores of several sizes: taking CPUs may take others than were counted
    bint full_pcpus_only
    bint distributes        # distribute-cpus-across-numa
    bint by_socket          # align-by-socket
    int cpus_per_core
    int64_t split_cpus      # CPUs that can be given away, on cores of which another CPU is reserved
    int sockets
    uint64_t memory_kinds   # bit k: there is memory of type k
    uint64_t resources      # bit r: device resource r is known
    uint64_t healthy        # bit r: some device of r is healthy
    uint64_t ordered        # bit r: devices are taken place by place, in the order of the columns
    const int64_t* cpu_capacity         # [width] CPUs, reserved ones included
    const int64_t* cpu_allocatable      # [width]
    const uint64_t* socket_nodes        # [width] NUMA nodes of each socket
    const int64_t* memory               # [kinds][width] allocatable bytes
    const uint64_t* places              # [columns] the nodes near to the devices of a column; 0: none
    const int64_t* totals               # [columns] devices
    const int64_t* distances            # sum of the distances within each mask, up to 8 nodes; NULL: they do not count
    const int64_t* nearest              # [width + 1] the least such sum of each size; NULL: not known
    const int64_t* sums                 # what `nearest` was made from; NULL: not known


cdef struct Demand:
    # What a container, or a pod as a whole, asks for.
    int64_t cpu
    int kinds
    bint unknown_kind       # memory of a type that no node of the cluster has
    int kind[MOST_KINDS]
    int64_t size[MOST_KINDS]
    int resources
    int resource[MOST_RESOURCES]
    int64_t count[MOST_RESOURCES]
    bint hands_on           # an init container that ends: later ones take over what it got


cdef struct Plan:
    # How many nodes a demand would need on an empty machine of one shape.
    int cpu_size
    int cpu_sockets         # align-by-socket: touching so many sockets is as good; -1: off
    int memory_size
    int device_size[MOST_RESOURCES]
    uint64_t universe[MOST_RESOURCES]   # the nodes near to some device; 0: the resource is not aligned
    bint clashing           # CPUs and devices prefer different sizes
    bint single             # every list of hints prefers single nodes
    bint single_but_memory  # the same, memory's left out


cdef struct Hint:
    uint64_t mask
    bint anywhere
    bint preferred


cdef struct Donor:
    uint64_t mask
    int64_t taken[MOST_KINDS][8]
    int kind[MOST_KINDS]
    int kinds


cdef struct State:
    const Layout* layout
    const Shape* shape
    int64_t* cpu            # [width] free, or left by init containers of the pod
    int64_t* memory         # [kinds][width] free
    uint64_t* bound         # [width] what each node's memory is bound to; itself where it is free
    uint64_t used           # nodes that hold memory of somebody
    int64_t* devices        # [columns] free
    int64_t* left           # [columns] left by init containers; NULL: nothing yet
    # whole cores' CPUs that are surely, and at most, free (full-pcpus-only)
    int64_t least_whole
    int64_t most_whole
    bint cpu_lost           # not even the sum of free CPUs is known any more
    bint cpu_unsure         # where the free CPUs are is not known any more
    uint64_t unsure         # bit r: where the free devices of r are is not known any more
    uint64_t left_unsure    # bit r: nor where those are that init containers left
    bint reuses             # some init container left CPUs
    int64_t left_least[WIDEST]
    int64_t left_most[WIDEST]
    int donors
    Donor donor[MOST_DONORS]


cdef struct MemoryRule:
    # Which masks the rule of single and multi-node groups allows now.
    uint64_t unbound
    uint64_t alone
    int groups
    uint64_t group[32]


cdef inline int64_t sum_over(const int64_t* amounts, uint64_t mask) noexcept nogil:
    """Return the sum of the amounts of the nodes in the mask."""
    cdef int64_t total = 0
    while mask:
        total += amounts[lowest(mask)]
        mask &= mask - 1
    return total


cdef inline int64_t sum_of(const int64_t* amounts, int count) noexcept nogil:
    cdef int64_t total = 0
    cdef int index
    for index in range(count):
        total += amounts[index]
    return total


cdef inline MemoryRule memory_rule(const State* state) noexcept nogil:
    """Return which masks a container's memory may come from."""
    cdef MemoryRule rule
    cdef uint64_t bit, mask, rest, members
    cdef int node, index
    cdef bint passed_over
    cdef uint64_t full = ~<uint64_t>0 >> (64 - state.shape.numa_nodes)
    rule.unbound = full & ~state.used
    rule.alone = rule.unbound
    rule.groups = 0
    rest = full & state.used
    while rest:
        node = lowest(rest)
        bit = (<uint64_t>1) << node
        rest &= rest - 1
        mask = state.bound[node]
        if mask == bit:
            rule.alone |= bit
            continue
        passed_over = mask == 0
        for index in range(rule.groups):
            passed_over = passed_over or rule.group[index] == mask
        members = mask & state.used
        while members and not passed_over:
            passed_over = state.bound[lowest(members)] != mask
            members &= members - 1
        if not passed_over:
            rule.group[rule.groups] = mask
            rule.groups += 1
    return rule


cdef inline bint rule_allows(const MemoryRule* rule, uint64_t mask) noexcept nogil:
    cdef int index
    if not mask & ~rule.unbound:
        return True
    if is_single(mask):
        return mask & rule.alone != 0
    for index in range(rule.groups):
        if rule.group[index] == mask:
            return True
    return False


cdef inline bint holds_memory(const State* state, const Demand* demand, uint64_t mask) noexcept nogil:
    """Tell whether the nodes have as much free as is asked for, of every type; the types must be known."""
    cdef int index
    for index in range(demand.kinds):
        if sum_over(state.memory + demand.kind[index] * state.layout.width, mask) < demand.size[index]:
            return False
    return True


cdef inline bint knows_memory(const Shape* shape, const Demand* demand) noexcept nogil:
    """Tell whether the machine has all types of memory that are asked for."""
    cdef int index
    if demand.unknown_kind:
        return False
    for index in range(demand.kinds):
        if not (shape.memory_kinds >> demand.kind[index]) & 1:
            return False
    return True
