"""The CPUs of one machine: which can be given to one container alone, and which are given."""

from libc.stdint cimport int64_t, uint64_t

from alignup.core.cpu.assignment cimport L3Rule, SpreadRule
from alignup.core.cpu.groups cimport CpuGroups
from alignup.core.narrow.family cimport Family


cdef enum CpuOutcome:
    CPUS_CHOSEN = 0
    CPUS_TOO_FEW = 1
    CPUS_NOT_WHOLE_CORES = 2        # full-pcpus-only: the request is no multiple of a core's CPUs
    CPUS_TOO_FEW_WHOLE = 3        # full-pcpus-only: too few on cores none of whose CPUs is reserved
    # distribute-cpus-across-numa: chosen elsewhere, see `alignup.providers.cpu`
    CPUS_TO_DISTRIBUTE = 4


cdef enum:
    NEVER_IRREGULAR = 1 << 30       # more CPUs than any machine has


cdef struct CpuLayout:
    # The machine, the options and the reserved CPUs, which nodes that are alike share.
    const CpuGroups* groups
    int nodes                       # NUMA nodes of the machine, those without CPUs too
    uint64_t* allocatable           # [words] that can be given away at all
    uint64_t* shareable           # [words] that make up the shared pool as long as nobody holds any
    uint64_t* reserved_cores        # [words] all CPUs of the cores that have a reserved one
    # [nodes][words] taken first for an affinity: the node's CPUs, or its sockets'
    const uint64_t* near
    int64_t* capacity               # [nodes] CPUs, reserved ones included
    int64_t* allocatable_count      # [nodes]
    int64_t* largest_sums           # [nodes + 1] CPUs of the k nodes with the most
    uint64_t universe               # nodes that have CPUs
    uint64_t* socket_nodes          # [sockets] with align-by-socket: the nodes of each socket
    int sockets                     # 0: no align-by-socket
    bint full_pcpus_only
    bint distributes                # distribute-cpus-across-numa
    SpreadRule spread_rule          # distribute-cpus-across-cores
    L3Rule l3_rule                  # prefer-align-cpus-by-uncorecache
    # Requests of so many CPUs can be given CPUs that were not counted as free: a group that is
    # larger than the average may be taken as a whole. NEVER_IRREGULAR: there is no such group.
    int64_t irregular_size
    bint split_cores              # CPUs can be given away on cores of which another CPU is reserved


cdef struct CpuState:
    const CpuLayout* layout
    uint64_t* allocated             # [words]
    int64_t* free                   # [nodes] that can be given away and that nobody holds
    int64_t free_in_all
    int64_t free_whole        # CPUs nobody holds, on cores without a reserved one (full-pcpus-only)


cdef size_t cpu_bytes(const CpuLayout* layout) noexcept nogil
cdef void place_cpus(CpuState* state, char* block) noexcept nogil
cdef void count_free_cpus(CpuState* state) noexcept nogil
cdef void copy_cpus(CpuState* copy, const CpuState* state, char* block) noexcept nogil
cdef void mark_cpus(CpuState* state, const uint64_t* cpus, bint give) noexcept nogil
cdef int sockets_for(const CpuLayout* layout, int size) noexcept nogil
cdef uint64_t add_reusable(
    const CpuState* state, const uint64_t* reusable, int64_t* amounts, int64_t* total
) noexcept nogil
cdef bint cpu_family(
    const CpuLayout* layout,
    const int64_t* amounts,
    uint64_t must,
    int64_t request,
    int preferred_size,
    Family* family,
) noexcept nogil
cdef CpuOutcome check_whole_cores(const CpuState* state, int64_t request) noexcept nogil
cdef int choice_sets() noexcept nogil
cdef CpuOutcome choose_cpus(
    const CpuState* state,
    int64_t request,
    const uint64_t* reusable,
    bint anywhere,
    uint64_t mask,
    uint64_t* chosen,
    uint64_t* scratch,
) noexcept nogil
