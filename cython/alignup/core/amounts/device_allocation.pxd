"""The devices of one resource on one machine.

That is which there are, near to which NUMA nodes, and which are given. A set of devices is an array
of words: bit i is the i-th device of the inventory.
"""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.narrow.family cimport Family


cdef enum DeviceOutcome:
    DEVICES_CHOSEN = 0
    DEVICES_NONE_HEALTHY = 1
    DEVICES_TOO_FEW = 2
    # There is a choice, on which the plugin may be asked before `finish_choice`: among the near
    # ones, or all free ones.
    DEVICES_ASK_NEAR = 3
    DEVICES_ASK_ANY = 4


cdef struct DeviceLayout:
    # The inventory, which nodes with the same machine and devices share.
    int nodes                       # NUMA nodes of the machine
    int words                       # of a set of devices
    int places
    uint64_t* place       # [places] the masks of NUMA nodes that devices are near to; none is empty
    uint64_t* members               # [places][words]
    int64_t* totals                 # [places] devices that the plugin reports
    uint64_t* present     # [words] devices that the plugin reports; others are gone, but still held
    uint64_t* healthy               # [words]
    uint64_t* without_place         # [words] near to no node, or to any: no mask reaches them
    uint64_t* nowhere               # [words] those of them with an empty list of nodes
    # The nodes that a mask is made of: those near to some device that is present, or all where the
    # kubelet offers masks of all nodes; 0: nothing to align.
    uint64_t universe
    bint single_places              # every place is one node
    bint in_order                   # place i is node i, and there are as many places as nodes
    bint any_healthy
    int64_t reported                # devices that the plugin reports
    # [nodes + 1] what the k nodes with the most devices have, where places are single
    int64_t* largest_sums


cdef struct DeviceState:
    const DeviceLayout* layout
    uint64_t* allocated             # [words]
    int64_t* free                   # [places] devices that are healthy and that nobody holds
    int64_t free_in_all             # those without a place included


cdef size_t device_bytes(const DeviceLayout* layout) noexcept nogil
cdef void place_devices(DeviceState* state, char* block) noexcept nogil
cdef void count_free(DeviceState* state) noexcept nogil
cdef void copy_devices(DeviceState* copy, const DeviceState* state, char* block) noexcept nogil
cdef bint device_family(
    const DeviceLayout* layout,
    const int64_t* amounts,
    const uint64_t* reusable,
    int64_t request,
    int preferred_size,
    Family* family,
) noexcept nogil
cdef DeviceOutcome start_choice(
    const DeviceState* state,
    int64_t request,
    const uint64_t* reusable,
    bint anywhere,
    uint64_t mask,
    uint64_t* chosen,
    uint64_t* choice,
) noexcept nogil
cdef void finish_choice(
    const DeviceState* state,
    DeviceOutcome outcome,
    int64_t request,
    bint anywhere,
    uint64_t* chosen,
    const uint64_t* choice,
) noexcept nogil
cdef void mark_devices(DeviceState* state, const uint64_t* devices, bint give) noexcept nogil
