"""Keep which pods and containers hold what: the base classes of the three managers.

A set of CPUs or devices is an int, as in the ledgers. What is held by a pod is never changed in
place: who has looked at it, as a copy of a node or the record of an admission, still sees what it
was.
"""

cimport cython


cdef class CpuHolders:
    """The CPUs that containers hold.

    Attributes:
        ledger: which CPUs are given.
        held: by pod uid and container, the CPUs that it has for itself.
        whole_pods: by pod uid, the CPUs of pods that have them as a whole.
        reusing_pod: the pod that allocated last.
        reusable: the CPUs that its init containers that are done leave to those after them.
    """

    def __cinit__(self):
        self.held = SharedDict()
        self.whole_pods = SharedDict()
        self.reusing_pod = ""
        self.reusable = 0

    def hold_as(self, CpuHolders other not None):
        """Take over a copy of what another one keeps."""
        self.ledger = other.ledger.copy()
        self.held = other.held.copy()
        self.whole_pods = other.whole_pods.copy()
        self.reusing_pod = other.reusing_pod
        self.reusable = other.reusable


cdef class MemoryHolders:
    """The memory that containers hold.

    Attributes:
        ledger: what is free, and which nodes are bound.
        holdings: by (pod uid, container), what it holds.
        names: by the same, the name of the pod in messages.
        init_holdings: by pod uid, what init containers hold that the containers after them take
            over.
        pod_holdings: by pod uid, the memory of pods that have it as a whole.
        pod_parts: by pod uid, what of it each container has.
    """

    def __cinit__(self):
        self.holdings = SharedDict()
        self.names = SharedDict()
        self.init_holdings = SharedDict()
        self.pod_holdings = SharedDict()
        self.pod_parts = SharedDict()

    def hold_as(self, MemoryHolders other not None):
        """Take over a copy of what another one keeps."""
        self.ledger = other.ledger.copy()
        self.holdings = other.holdings.copy()
        self.names = other.names.copy()
        self.init_holdings = other.init_holdings.copy()
        self.pod_holdings = other.pod_holdings.copy()
        self.pod_parts = other.pod_parts.copy()


@cython.final
cdef class PodDevices:
    """The devices of a pod's containers by resource, and those that later ones may take over.

    A record never changes.
    """

    def __init__(self, dict containers not None, dict reusable not None):
        self.containers = containers
        self.reusable = reusable

    def held(self, resource):
        """Return all devices of a resource that any container of the pod holds."""
        devices = 0
        for resources in self.containers.values():
            devices |= resources.get(resource, 0)
        return devices

    def with_more(self, str name not None, dict chosen not None, dict reusable not None):
        """Return the same with more devices for one container."""
        return PodDevices(
            {**self.containers, name: {**self.containers.get(name, {}), **chosen}}, reusable
        )


cdef class DeviceHolders:
    """The devices that containers hold.

    Attributes:
        pools: by resource, its devices. The mapping is replaced when one changes.
        pods: by pod uid, what its containers hold.
        last_pod: the pod that allocated last.
    """

    def __cinit__(self):
        self.pools = {}
        self.pods = SharedDict()
        self.last_pod = ""

    def hold_as(self, DeviceHolders other not None):
        """Take over a copy of what another one keeps."""
        self.pools = {resource: pool.copy() for resource, pool in other.pools.items()}
        self.pods = other.pods.copy()
        self.last_pod = other.last_pod
