"""The results of an admission and of a resize.

That of an admission is the verdict, its reason, and the allocation of each container.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.core.late_record import LateRecord
from alignup.records import Record, Shown, field, json_fields, json_of
from alignup.text.counting import some_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.machine.cpuset import CPUSet
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.scope import Refusal

_NAMES_SHOWN: Final = 4

ALLOCATED: Final = "allocated"
DEFERRED: Final = "Deferred"


class MemoryBlock(Record):
    """Memory of one type that a container holds on a set of NUMA nodes.

    Attributes:
        numa_nodes: kernel node ids, ascending.
        type: `memory` or `hugepages-<size>`.
        size: bytes.

    Examples:
        >>> MemoryBlock((0,), "memory", 1 << 30).size
        1073741824
    """

    numa_nodes: tuple[int, ...]
    type: str
    size: int


class ContainerAllocation(Record):
    """The affinity, CPUs, memory and devices allocated to one container.

    Attributes:
        affinity: the merged hint; bit i of its mask is `machine.numa_nodes[i]`. None if nothing was
            decided (policy none).
        cpus: the exclusive CPUs; None if the container runs in the shared pool.
        devices: device ids by resource.

    Examples:
        >>> container = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
        >>> pod = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
        >>> kubelet = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted"}
        >>> node = Node(read_machine("xeon-2s"), kubelet)
        >>> str(node.admit(pod).containers["c"].cpus)
        '0,64'
    """

    affinity: TopologyHint | None = None
    cpus: CPUSet | None = None
    memory: tuple[MemoryBlock, ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_dict(self, numa_node_ids: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the allocation in JSON's types.

        Args:
            numa_node_ids: what the kernel calls each position of a mask; None: positions are shown
                as they are.
        """
        return {
            "affinity": affinity_dict(self.affinity, numa_node_ids),
            "cpus": None if self.cpus is None else str(self.cpus),
            "memory": json_of(self.memory),
            "devices": {resource: list(ids) for resource, ids in sorted(self.devices.items())},
        }


def affinity_dict(
    hint: TopologyHint | None, numa_node_ids: Sequence[int] | None = None
) -> dict[str, Any] | None:
    """Return a hint in JSON's types, with NUMA node ids where they are known; None for no hint."""
    if hint is None:
        return None

    numa_nodes = None
    if hint.affinity is not None:
        numa_nodes = list(hint.affinity.bits())
        if numa_node_ids is not None:
            numa_nodes = [numa_node_ids[bit] for bit in numa_nodes]

    return {"numaNodes": numa_nodes, "preferred": bool(hint.preferred)}


class Admission(Shown, LateRecord):
    """The verdict on one pod; it is true if the pod was admitted.

    Attributes:
        reason: empty when admitted; otherwise the reason that the kubelet puts into the pod's
            status.
        containers: by name, init containers included; empty when refused.
        refusal: the facts behind a refusal.
        numa_node_ids: the kernel's ids of the NUMA nodes, in the order of the bits of a mask.
        preempted: `namespace/name` of the pods that a kubelet evicts to admit this critical one;
            see `Node.whole_verdict`.
        pod_cpus: what a pod with resources of its own (`spec.resources`) has as a whole; None where
            its containers have theirs.

    Examples:
        >>> pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        >>> admission = Node(read_machine("xeon-2s")).admit(pod)
        >>> admission.admitted, admission.reason, list(admission.containers)
        (True, '', ['c'])
    """

    admitted: bool
    reason: str = ""
    containers: Mapping[str, ContainerAllocation] = field(default_factory=dict)
    refusal: Refusal | None = None
    numa_node_ids: tuple[int, ...] | None = None
    preempted: tuple[str, ...] = ()
    pod_cpus: CPUSet | None = None
    pod_memory: tuple[MemoryBlock, ...] = ()

    def __bool__(self) -> bool:
        return self.admitted

    def __repr__(self) -> str:
        if not self.admitted:
            return f"<Admission: refused, {self.reason}>"

        names = some_of(list(self.containers), _NAMES_SHOWN) or "no containers"
        return f"<Admission: admitted, {names}>"

    @property
    def exact(self) -> bool:
        """True if every hint is the best one.

        False when a search over more than 8 NUMA nodes reached its limit and the best hint found so
        far was taken.
        """
        if self.refusal:
            hints = [self.refusal.best]
        else:
            hints = [allocation.affinity for allocation in self.containers.values()]

        return all(hint is None or hint.exact for hint in hints)

    @property
    def message(self) -> str:
        """The cause of the refusal as a sentence; empty when the pod was admitted."""
        if self.refusal is None:
            return ""

        # only a refusal needs a sentence
        from alignup.topology_manager.refusal_message import refusal_message  # noqa: PLC0415

        return refusal_message(self.refusal, self.numa_node_ids)

    def to_dict(self) -> dict[str, Any]:
        """Return the admission in JSON's types.

        It is a step of `alignup replay --json` without `sharedCpus`. `exact` is there only if it is
        False, `preempted` only if it is not empty.
        """
        fields: dict[str, Any] = json_fields(self, "admitted", "reason", "message")
        fields["containers"] = {
            name: allocation.to_dict(self.numa_node_ids)
            for name, allocation in self.containers.items()
        }

        if self.preempted:
            fields |= json_fields(self, "preempted")
        if self.pod_cpus is not None:
            fields["podCpus"] = str(self.pod_cpus)
        if self.pod_memory:
            fields |= json_fields(self, "pod_memory")
        if not self.exact:
            fields["exact"] = False
        return fields


class Resize(Record):
    """The kubelet's answer to a resize; it is true if the resources were allocated.

    Attributes:
        status: `allocated`; `Deferred`: not now, and tried again; `Infeasible`: not on this node.
        message: the kubelet's words; empty when allocated.
    """

    status: str
    message: str = ""

    def __bool__(self) -> bool:
        return self.status == ALLOCATED
