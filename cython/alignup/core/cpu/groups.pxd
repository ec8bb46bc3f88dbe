"""How a machine groups its CPUs.

Sockets, NUMA nodes, L3 groups and cores are as loops without the GIL see them.
`alignup.core.cpu.topology` makes these and owns what they point to. CPUs go by position: 0 is the
lowest number that the kernel gave to a CPU, 1 the next one, so that sparse numbers cost nothing. A
set of CPUs is an array of `words` words, and bit i of word w is position 64 w + i.
"""

from libc.stdint cimport int64_t, uint64_t


cdef struct CpuGroup:
    int64_t id         # the order among groups of a kind: a core's lowest CPU, a NUMA node's number
    int size                    # CPUs
    int whole                   # with how many free CPUs it counts as wholly free
    # all its CPUs are in every `word_step`-th word from the first on, before the end
    int first_word
    int end_word
    int word_step
    const uint64_t* cpus        # a whole set
    # where its parts are in `members`: groups of the next finer kind with CPUs in it
    int first_part
    int end_part
    int first_l3_group          # of a NUMA node, the same for L3 groups; of others an empty range
    int end_l3_group


# Groups of a kind come by ascending id. Whichever of sockets and NUMA nodes are fewer are the outer
# groups; where there are as many of both, NUMA nodes are. Parts of outer groups are inner ones,
# parts of these and of L3 groups are cores. A group can be part of several: a NUMA node in two
# sockets, a core in two nodes.
cdef struct CpuGroups:
    int words                   # of a set
    int cpu_count
    const uint64_t* cpus        # all of them
    const CpuGroup* outer
    int outer_count
    const CpuGroup* inner
    int inner_count
    const CpuGroup* l3_groups
    int l3_group_count
    const CpuGroup* cores
    int core_count
    const int* members         # places in `inner`, `l3_groups` or `cores`, ascending within a range
    bint sockets_outer
    int numa_nodes              # that have CPUs
    int cpus_per_core           # averages, rounded down
    int cpus_per_l3_group
    int smallest_outer          # CPUs: below that, none can be taken whole
    int smallest_inner
    int smallest_core
    bint whole_cores_differ     # a wholly free core can have more free CPUs than another
    int positions               # NUMA nodes of the machine, those without CPUs too
    const uint64_t* node_cpus       # [positions][words], the CPUs of each NUMA node
    const uint64_t* node_sockets   # [positions][words], all CPUs of the sockets that it has CPUs in
