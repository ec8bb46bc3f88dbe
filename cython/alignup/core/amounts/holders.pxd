"""Which pods and containers hold what.

These are the parts of the managers that compiled modules read and write.
"""

from alignup.core.amounts.cpu_ledger cimport CpuLedger
from alignup.core.amounts.memory_ledger cimport MemoryLedger
from alignup.core.shared_dict cimport SharedDict


cdef class CpuHolders:
    cdef public CpuLedger ledger
    cdef public SharedDict held             # pod uid -> container -> CPUs
    cdef public SharedDict whole_pods       # pod uid -> CPUs that the pod has as a whole
    cdef public str reusing_pod
    cdef public object reusable


cdef class MemoryHolders:
    cdef public MemoryLedger ledger
    cdef public SharedDict holdings         # (pod uid, container) -> MemoryHolding
    cdef public SharedDict names            # (pod uid, container) -> the pod's name in messages
    # pod uid -> holdings of init containers, for those after them
    cdef public SharedDict init_holdings
    cdef public SharedDict pod_holdings     # pod uid -> what the pod has as a whole
    cdef public SharedDict pod_parts        # pod uid -> container -> its part of that


cdef class PodDevices:
    cdef readonly dict containers           # container -> resource -> devices
    cdef readonly dict reusable             # resource -> devices


cdef class DeviceHolders:
    cdef public dict pools                  # resource -> its pool; changed as a whole only
    cdef public SharedDict pods             # pod uid -> PodDevices
    cdef public str last_pod
