"""The memory of one machine as amounts.

That is what each NUMA node has left of every type, and which nodes are bound. Sums of amounts stay
below 2**62: a machine has at most 2**61 bytes, and a request that is larger is cut to that and one
byte, which no machine holds.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef enum:
    MOST_TYPES = 8          # types of memory that a container may ask for


cdef struct MemoryRequest:
    int types
    bint unknown_type               # of some type that the machine does not have
    int type[MOST_TYPES]
    int64_t size[MOST_TYPES]


cdef struct MemoryLayout:
    # The part of a machine that never changes; nodes with the same machine and reservations share
    # it.
    int nodes
    int types
    int64_t* allocatable            # [types][nodes]
    int64_t* largest_sums         # [types][nodes + 1]: what the k nodes with the most hold together
    # an allocation is refused that breaks the group rule (kubelets from 1.32 on)
    bint checks_groups


cdef struct MemoryState:
    const MemoryLayout* layout
    int64_t* free                   # [types][nodes]
    uint64_t* bound          # [nodes] the mask that a node is bound to; itself where nobody uses it
    uint64_t* last_group            # [nodes] the last mask of several nodes that it was bound to
    uint64_t* groups               # [nodes] the masks of several nodes that may be used, as a whole
    int32_t* users                  # [nodes] containers that hold memory of it
    int32_t* lone_users             # [nodes] those of them that hold memory of no other node
    int group_count
    uint64_t unused                 # nodes that nobody uses: they combine freely
    uint64_t alone                  # nodes that may be used on their own


cdef struct MemoryTaking:
    # The memory of one container.
    uint64_t mask
    int nodes                       # in the mask
    uint64_t types                  # bit t: type t was asked for
    int64_t* amounts                # [types of the layout][nodes in the mask]
