"""The CPUs of a machine, grouped, and the doors between sets of positions and Python ints."""

from libc.stdint cimport int32_t, uint64_t

from alignup.core.cpu.groups cimport CpuGroup, CpuGroups


cdef class CpuTopology:
    cdef CpuGroups groups               # never changes once the object is made
    cdef readonly object cpus
    cdef readonly tuple node_cpus, node_sockets, socket_cpus, core_cpus, outer
    cdef tuple nodes     # the records of `groups.outer` or `groups.inner`, whichever are NUMA nodes
    cdef bint dense                     # the kernel's numbers are 0..n-1, so positions are numbers
    cdef int kernel_words               # of a set by the kernel's numbers
    cdef CpuGroup* group_block
    cdef int* member_block
    cdef uint64_t* set_block
    cdef uint64_t* present              # [kernel_words], the CPUs by the kernel's numbers
    cdef int32_t* rank                  # [kernel_words], how many CPUs are in the words before
    cdef int32_t* numbers               # [cpu_count], the kernel's number by position

    cdef int read_numbers(self) except -1
    cdef int allocate_groups(self, list kinds) except -1
    cdef int read_groups(self, list kinds) except -1
    cdef int read_node_sets(self, uint64_t* cpus) except -1


# Write the set that the int means, bit i being the CPU that the kernel numbers i, to `groups.words`
# words. Return 1 if it has CPUs that the machine does not have, which are left out, otherwise 0.
cdef int words_of(CpuTopology topology, object cpus, uint64_t* out) except -1

# Return the int whose bit i is the CPU that the kernel numbers i.
cdef object cpus_of(CpuTopology topology, const uint64_t* words)
