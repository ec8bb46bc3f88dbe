"""Make the record of one node that a cluster judges: its policy, and the ledgers of its providers."""

cimport cython
from libc.stdint cimport int64_t

from alignup.core.amounts.cpu_ledger cimport CpuLedger
from alignup.core.amounts.device_ledger cimport DeviceLedger
from alignup.core.amounts.memory_ledger cimport MemoryLedger
from alignup.core.amounts.trial cimport NodeRow
from alignup.core.bits cimport NARROW_NODES, popcount

from types import MappingProxyType


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
        policy: the number of the Topology Manager policy: none, best-effort, restricted, single-numa-node.
        pod_scope: whether pods are judged as a whole.
        cpu: the CPUs, None without a static CPU manager.
        memory: the memory, None without a Static memory manager.
        devices: resource -> its devices.
        distances: None where they are not known.
        prefer_closest: the option prefer-closest-numa-nodes.
        asks_itself: the node has to be asked, since something else than these ledgers decides there.
        upper_bound: amounts are all that is known of the node, so that its yes is not certain.
    """

    def __init__(
        self, *, int numa_nodes, int policy, bint pod_scope, CpuLedger cpu, MemoryLedger memory,
        dict devices not None, Distances distances, bint prefer_closest=False, bint asks_itself=False,
        bint upper_bound=False,
    ):
        cdef NodeRow* row = &self.amounts
        if not 1 <= numa_nodes <= 64 or not 0 <= policy < 4:
            raise ValueError(f"expected 1 to 64 NUMA nodes and one of 4 policies, got {numa_nodes} and {policy}")
        if cpu is not None and cpu.state.layout.nodes != numa_nodes:
            raise ValueError(f"expected CPUs of {numa_nodes} NUMA nodes, got {cpu.state.layout.nodes}")
        if memory is not None and memory.state.layout.nodes != numa_nodes:
            raise ValueError(f"expected memory of {numa_nodes} NUMA nodes, got {memory.state.layout.nodes}")
        for ledger in devices.values():
            if (<DeviceLedger?>ledger).state.layout.nodes != numa_nodes:
                raise ValueError(f"expected devices of a machine of {numa_nodes} NUMA nodes")
        if distances is not None and distances.nodes != numa_nodes:
            raise ValueError(f"expected distances of {numa_nodes} NUMA nodes, got {distances.nodes}")
        self.cpu, self.memory, self.ledgers, self.distances = cpu, memory, dict(devices), distances
        row.nodes, row.policy, row.pod_scope = numa_nodes, policy, pod_scope
        row.asks_itself, row.upper_bound = asks_itself, upper_bound
        row.cpu = NULL if cpu is None else &cpu.state
        row.memory = NULL if memory is None else &memory.state
        row.sums = row.nearest = row.distances = NULL
        if distances is not None:
            row.sums, row.nearest = distances.sums, distances.nearest
            if prefer_closest and numa_nodes <= NARROW_NODES:
                row.distances = distances.sums
            # beyond 8 nodes nobody sums distances here
            row.asks_itself = row.asks_itself or (prefer_closest and numa_nodes > NARROW_NODES)

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
