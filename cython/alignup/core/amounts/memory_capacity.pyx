"""Hold what a machine has to give of each type of memory."""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t

# No machine holds as much, and no sum of two such amounts leaves 63 bits.
LARGEST_REQUEST = (1 << 61) + 1


@cython.final
cdef class MemoryCapacity:
    """The memory of each type that a machine has to give, by position of the NUMA node; shared by equal nodes.

    Args:
        allocatable: type name -> bytes of each NUMA node.
        checks_groups: refuse an allocation that breaks the group rule; False: share nodes between groups.

    Raises:
        ValueError: amounts are negative, or not as many as there are nodes.
    """

    def __cinit__(self):
        self.layout.allocatable = NULL
        self.layout.largest_sums = NULL

    def __init__(self, allocatable not None, *, bint checks_groups=True):
        cdef int type, node, nodes
        cdef list amounts
        if not allocatable:
            raise ValueError("expected at least one type of memory, got none")
        if self.layout.allocatable is not NULL:
            raise TypeError("expected a new capacity, got one that is made already")
        self.types = tuple(sorted(allocatable))
        self.numbers = {name: number for number, name in enumerate(self.types)}
        nodes = len(next(iter(allocatable.values())))
        if not 1 <= nodes <= 64 or len(self.types) > 64:
            raise ValueError(f"expected 1 to 64 NUMA nodes and types of memory, got {nodes} and {len(self.types)}")
        self.layout.nodes = nodes
        self.layout.types = len(self.types)
        self.layout.checks_groups = checks_groups
        self.layout.allocatable = <int64_t*>PyMem_Calloc(self.layout.types * nodes, sizeof(int64_t))
        self.layout.largest_sums = <int64_t*>PyMem_Calloc(self.layout.types * (nodes + 1), sizeof(int64_t))
        if self.layout.allocatable is NULL or self.layout.largest_sums is NULL:
            raise MemoryError
        for type, name in enumerate(self.types):
            amounts = list(allocatable[name])
            if len(amounts) != nodes or min(amounts) < 0 or sum(amounts) >= LARGEST_REQUEST:
                raise ValueError(f"expected bytes of {nodes} NUMA nodes for {name}, got {amounts}")
            for node in range(nodes):
                self.layout.allocatable[type * nodes + node] = amounts[node]
            amounts.sort(reverse=True)
            for node in range(nodes):
                self.layout.largest_sums[type * (nodes + 1) + node + 1] = (
                    self.layout.largest_sums[type * (nodes + 1) + node] + <int64_t>amounts[node]
                )

    def __dealloc__(self):
        PyMem_Free(self.layout.allocatable)
        PyMem_Free(self.layout.largest_sums)

    def amounts(self):
        """Return the bytes of each type, by position of the NUMA node."""
        return amounts_of(self, self.layout.allocatable)


cdef dict amounts_of(MemoryCapacity capacity, const int64_t* amounts):
    cdef int nodes = capacity.layout.nodes
    return {
        name: tuple([amounts[type * nodes + node] for node in range(nodes)]) for type, name in enumerate(capacity.types)
    }
