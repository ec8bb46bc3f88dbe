"""The records of a judgement.

They are a pod, a node, the node while the pod is tried on it, and what its providers offer.
"""

from libc.stdint cimport int16_t, int64_t, uint64_t

from alignup.core.amounts.cpu_allocation cimport CpuState
from alignup.core.amounts.device_allocation cimport DeviceState
from alignup.core.amounts.memory_state cimport MOST_TYPES, MemoryRequest, MemoryState, MemoryTaking
from alignup.core.bits cimport WIDEST


cdef enum:
    MOST_RESOURCES = 24     # device resources that a pod may ask for
    MOST_HOLDERS = 64       # init containers whose memory later ones take over


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
    UNDECIDED = 5           # the node itself must be asked


cdef struct Request:
    # The requests of a container, or of a pod as a whole. Types and resources go by their place in
    # the pod's lists.
    int64_t cpus
    int types
    int type[MOST_TYPES]
    int64_t size[MOST_TYPES]
    int resources
    int resource[MOST_RESOURCES]
    int64_t count[MOST_RESOURCES]
    bint is_reusable        # an init container that ends: later ones take over what it got
    int same_as             # the number of the first container of the pod that requests the same


cdef struct PodRequest:
    int types
    int type[MOST_TYPES]            # numbers of the cluster, -1: no node has it
    int resources
    int resource[MOST_RESOURCES]    # numbers of the cluster
    int containers
    bint is_reusable                # some container does
    Request total                   # of all containers together, if none hands anything on
    Request* requests               # [1 + containers], the pod as a whole first


cdef struct NodeRow:
    # One node of a cluster; the states are the node's own, so what it admits or removes is seen
    # here at once.
    int nodes
    int policy
    bint pod_scope
    # nothing here can judge it: providers of users, plugins, more than 8 NUMA nodes
    bint needs_node
    bint upper_bound                # amounts are all that is known: its admissions are not certain
    const int64_t* changes        # see `alignup.core.amounts.changes`; NULL: the node never changes
    const int64_t* distances        # sum of the distances within each mask; NULL: they do not count
    const int64_t* sums             # the same, for scores; NULL: not known
    const int64_t* nearest          # the least such sum of each size
    const CpuState* cpu             # NULL: no static CPU manager
    const MemoryState* memory       # NULL: no Static memory manager
    # [types of the cluster] the number that the machine gives a type; -1: none
    const int16_t* type_of
    const DeviceState** devices     # [resources of the cluster] NULL: the node does not have it


cdef struct Hint:
    uint64_t mask
    # the single nodes that all providers prefer, of which it is one; 0: it is none of these
    uint64_t singles
    bint anywhere
    bint preferred
    # the memory manager offers just this mask to the container, so that it finds it again
    bint holds_memory


cdef struct Answer:
    Outcome outcome
    uint64_t affinity       # of all containers together
    uint64_t requesting_affinity    # of those that ask for anything that a provider gives
    bint aligned            # each of these has an affinity of its own
    bint preferred


cdef struct Counted:
    # A number of CPUs, or of devices of a resource, taken from one NUMA node; which ones is chosen
    # later.
    int resource                    # of the pod's; -1: CPUs, -2: settled by now
    int node
    int64_t count


cdef struct Trial:
    # `cpu`, `memory` and `devices` are what is free while the pod is tried: the node's own state
    # until the first container has taken something, a copy from then on.
    const NodeRow* row
    const PodRequest* pod
    int policy                      # of the node, or of a pod that brings one
    bint pod_scope
    int16_t type[MOST_TYPES]        # of the pod's types, the machine's numbers
    const CpuState* cpu
    const MemoryState* memory
    const DeviceState* devices[MOST_RESOURCES]
    CpuState cpu_copy
    MemoryState memory_copy
    DeviceState device_copies[MOST_RESOURCES]
    bint copied_cpu
    # Some container may be given CPUs that were not counted as free: `CpuLayout.irregular_size`.
    bint irregular
    # What was taken from one NUMA node, as a count only: which CPUs or devices these are does not
    # matter as long as every further container is content with a NUMA node of its own. See
    # `settle`.
    bint counts_cpus
    int counts                      # entries of `counted`
    Counted* counted                # [containers * (1 + resources)]
    # What a container got from a single NUMA node, one with the same request can get as a count,
    # too: see `place_like_earlier`.
    bint repeats
    uint64_t* singles       # [containers] `Hint.singles`, by the first container that asks the same
    uint64_t* lone            # [containers] the nodes that had a container's memory alone, likewise
    # Without a policy nobody asks where anything is: sums are enough.
    bint sums_only
    int64_t cpus_left
    int64_t devices_left[MOST_RESOURCES]
    bint copied_memory
    uint64_t copied_devices
    # The resources that init containers that are done leave to those after them.
    bint reuses_cpus
    uint64_t* reusable_cpus
    uint64_t reuses_devices         # bit r: of the pod's resource r
    uint64_t* reusable_devices[MOST_RESOURCES]
    int holders
    MemoryTaking holder[MOST_HOLDERS]
    MemoryTaking* donors[MOST_HOLDERS]
    # Memory to work in; see `scratch_bytes`.
    char* cpu_block
    char* memory_block
    char* device_blocks[MOST_RESOURCES]
    uint64_t* sets
    int64_t* taking_amounts


cdef enum:
    MOST_OFFERS = 1 + MOST_RESOURCES + 8


cdef struct Offer:
    # One list of hints. If `by_node`, its masks are exactly those within the universe whose amounts
    # suffice.
    bint by_node
    const int64_t* amounts          # [nodes] the node's own, or those below
    int64_t counted[WIDEST]
    int64_t request
    uint64_t universe
    int size         # how many nodes a preferred mask has; 0: more than 8 would have to be searched
    int sockets       # masks that touch exactly so many sockets are preferred too; -1: no such rule
    uint64_t singles                # the nodes that suffice alone
    uint64_t preferred_singles
    int resource                    # of the pod's device resources; -1: CPUs


cdef struct Offers:
    int count                       # without memory's
    Offer offer[1 + MOST_RESOURCES]
    bint has_impossible             # some list is empty: nothing is preferred
    bint has_memory               # the memory manager offers some mask, the same ones for each type
    MemoryRequest memory
    int memory_size
    uint64_t memory_singles


cdef inline bint has_devices(const Trial* trial, int resource) noexcept nogil:
    return trial.devices[resource] != NULL


cdef inline void read_memory_request(
    const Trial* trial, const Request* request, MemoryRequest* memory
) noexcept nogil:
    """Say what is asked for by the machine's numbers of the types."""
    cdef int index

    memory.types = 0
    memory.unknown_type = False
    for index in range(request.types):
        if trial.type[request.type[index]] < 0:
            memory.unknown_type = True
            continue
        memory.type[memory.types] = trial.type[request.type[index]]
        memory.size[memory.types] = request.size[index]
        memory.types += 1
