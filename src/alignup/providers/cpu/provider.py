"""The CPU manager's static policy: gives containers of Guaranteed pods whole CPUs of their own.

Keeps who holds which CPUs and says where more could come from. Which of the free CPUs are taken is decided by
`CpuTopology.pack` and `alignup.providers.cpu.distribution`; which containers get CPUs of their own was worked
out with the pod.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from alignup.errors import AllocationError, ConfigError
from alignup.machine.cpuset import CPUSet
from alignup.providers.cpu.distribution import distribute
from alignup.providers.cpu.topology import CpuTopology, cpu_topology
from alignup.topology_manager.hints import HintList, TopologyHint, feasible_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alignup.kubernetes.kubelet_config import CpuOptions
    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.machine import Machine

__all__ = ["CpuProvider", "reserved_cpus"]

RESOURCE: Final = "cpu"
SMT_ALIGNMENT_ERROR: Final = "SMTAlignmentError"


def reserved_cpus(machine: Machine, count: int, options: CpuOptions) -> int:
    """Return the CPUs that the kubelet reserves when it is told how many, but not which.

    It takes them as it would for a container that asks for `count` CPUs of the empty machine.

    Raises:
        ConfigError: the machine has fewer CPUs.
    """
    topology = cpu_topology(machine)
    reserved = _take(topology, options, topology.cpus, count, 0)
    if reserved.bit_count() != count:
        raise ConfigError.at("the reserved CPUs", f"at most {topology.cpus.bit_count()} CPUs", count)
    return reserved


def _take(topology: CpuTopology, options: CpuOptions, free: int, count: int, held: int) -> int:
    """Return `count` of the free CPUs, chosen as the options say; none of those that are held."""
    if options.distribute_cpus_across_numa:
        group_size = topology.cpus_per_core if options.full_pcpus_only else 1
        return distribute(topology, free, count, held, group_size)
    return topology.pack(
        free,
        count,
        held,
        spread=options.distribute_cpus_across_cores,
        by_l3=options.prefer_align_cpus_by_uncorecache,
    )


class CpuProvider:
    """The hint provider for `cpu`, with the kubelet's static CPU manager policy.

    Args:
        machine: whose CPUs are given out.
        reserved: the CPUs that nobody gets alone, as a bit set of the kernel's CPU numbers.
        options: the options of the static policy; which of them exclude each other is checked with the
            configuration.
        keep_reserved: never give away a reserved CPU, not even where the kubelet does by mistake (on machines
            whose sockets or cores differ in size, see `CpuTopology.pack`).

    Raises:
        ConfigError: the machine has no CPUs, not all of the reserved ones, or, with align-by-socket, more
            sockets than NUMA nodes.
    """

    __slots__ = (
        "_allocatable",
        "_given",
        "_held",
        "_kept",
        "_largest_sums",
        "_near",
        "_node_ids",
        "_options",
        "_pool",
        "_reserved_cores",
        "_reusable",
        "_reusing_pod",
        "_socket_nodes",
        "_topology",
        "_universe",
    )

    name = RESOURCE

    def __init__(
        self, machine: Machine, reserved: int, options: CpuOptions, *, keep_reserved: bool = False
    ) -> None:
        topology = cpu_topology(machine)
        _check(topology, reserved, options)
        self._topology = topology
        self._options = options
        self._node_ids = tuple(node.id for node in machine.numa_nodes)
        self._reserved_cores = sum(cpus for cpus in topology.core_cpus if cpus & reserved)
        self._allocatable = topology.cpus & ~reserved
        self._pool = self._allocatable if options.strict_cpu_reservation else topology.cpus
        self._kept = reserved if keep_reserved else 0
        self._given = 0
        self._held: dict[str, dict[str, int]] = {}
        # what init containers that are done leave to those after them, in the pod that allocated last
        self._reusing_pod = ""
        self._reusable = 0
        self._near = topology.node_sockets if options.align_by_socket else topology.node_cpus
        self._universe = sum(1 << i for i, cpus in enumerate(topology.node_cpus) if cpus)
        # how many CPUs the largest node has, the two largest, and so on
        sizes = sorted((cpus.bit_count() for cpus in topology.node_cpus if cpus), reverse=True)
        self._largest_sums = tuple(accumulate(sizes))
        self._socket_nodes = _socket_nodes(topology) if options.align_by_socket else ()

    @property
    def shared_cpus(self) -> CPUSet:
        """The CPUs of all containers that have none of their own."""
        return CPUSet.from_int(self._pool & ~self._given)

    @property
    def free_cpus(self) -> CPUSet:
        """The CPUs that can still be given away."""
        return CPUSet.from_int(self._allocatable & ~self._given)

    @property
    def allocatable_cpus(self) -> CPUSet:
        """The CPUs that could be given away if nobody had any."""
        return CPUSet.from_int(self._allocatable)

    def cpus(self, pod_uid: str, container_name: str) -> CPUSet | None:
        """Return the CPUs that the container has for itself; None if it shares some, or is not known."""
        held = self._held.get(pod_uid)
        if held is None or container_name not in held:
            return None
        return CPUSet.from_int(held[container_name])

    def topology_hints(self, pod: Pod, container: Container) -> Mapping[str, HintList] | None:
        """Return the sets of NUMA nodes that the container's CPUs could come from; None if it gets none.

        What init containers left must be used: a set that leaves out one of its nodes is no hint. A container
        that has its CPUs already is told where they are.
        """
        request = container.exclusive_cpus
        if not request:
            return None
        held = self._held.get(pod.uid)
        if held is not None and container.name in held:
            cpus = held[container.name]
            if cpus.bit_count() != request:
                return {RESOURCE: HintList.empty()}
            return {RESOURCE: self._hints(cpus, 0, request)}
        return {RESOURCE: self._hints(self._allocatable & ~self._given, self._reusable_by(pod.uid), request)}

    def pod_topology_hints(self, pod: Pod) -> Mapping[str, HintList] | None:
        """Return the same for the CPUs of all containers of the pod together."""
        request = pod.exclusive_cpus
        if not request:
            return None
        assigned = 0
        held = self._held.get(pod.uid)
        if held is not None:
            for container in pod.all_containers:
                cpus = held.get(container.name)
                if cpus is not None and cpus.bit_count() != container.exclusive_cpus:
                    return {RESOURCE: HintList.empty()}
                assigned |= cpus or 0
            if assigned.bit_count() == request:
                return {RESOURCE: self._hints(assigned, 0, request)}
        reusable = self._reusable_by(pod.uid) | assigned
        return {RESOURCE: self._hints(self._allocatable & ~self._given, reusable, request)}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container its CPUs, from the nodes of the affinity first, then from any.

        Raises:
            AllocationError: there are too few (`UnexpectedAdmissionError`), or, with full-pcpus-only, they
                would not be whole cores (`SMTAlignmentError`).
        """
        request = container.exclusive_cpus
        if not request:
            return
        if self._options.full_pcpus_only:
            self._check_whole_cores(request)
        uid = pod.uid
        held = self._held.get(uid)
        if held is not None and container.name in held:
            self._note_reuse(uid, container, held[container.name])
            return
        cpus = self._choose(self._reusable_by(uid), request, affinity)
        if held is None:
            held = self._held[uid] = {}
        held[container.name] = cpus
        self._given |= cpus
        self._note_reuse(uid, container, cpus)

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back the container's CPUs, but for those that another container of the pod reuses."""
        held = self._held.get(pod_uid)
        if held is None or container_name not in held:
            return
        cpus = held.pop(container_name)
        for others in held.values():
            cpus &= ~others
        self._given &= ~cpus
        if not held:
            del self._held[pod_uid]
        if self._reusing_pod == pod_uid:
            self._reusable &= ~cpus

    def adopt(self, pod_uid: str, container_name: str, cpus: int) -> None:
        """Note CPUs, as a bit set, that the container was given before this provider was made.

        CPUs that this machine does not have are noted as well, and do no harm.

        Raises:
            AllocationError: the container has CPUs already, or one of these is another's.
        """
        twice = cpus & self._given
        if twice or container_name in self._held.get(pod_uid, ()):
            raise AllocationError(
                f"expected CPUs that nobody has yet for container {container_name!r}, "
                f"got {CPUSet.from_int(cpus)} after {CPUSet.from_int(self._given)} were given"
            )
        self._held.setdefault(pod_uid, {})[container_name] = cpus
        self._given |= cpus

    def _reusable_by(self, pod_uid: str) -> int:
        return self._reusable if self._reusing_pod == pod_uid else 0

    def _note_reuse(self, pod_uid: str, container: Container, cpus: int) -> None:
        """Leave the CPUs of an init container that ends to the containers after it, but no others."""
        reusable = self._reusable_by(pod_uid)
        self._reusing_pod = pod_uid
        ends = container.is_init and not container.is_sidecar
        self._reusable = reusable | cpus if ends else reusable & ~cpus

    def _hints(self, free: int, reusable: int, request: int) -> HintList:
        """Return the masks from which the request can be met; all of `reusable` must be in reach of them."""
        node_cpus = self._topology.node_cpus
        usable = free | reusable
        if usable.bit_count() < request:
            return HintList.empty()
        amounts = [(usable & cpus).bit_count() for cpus in node_cpus]
        touching = [1 << i for i, cpus in enumerate(node_cpus) if cpus & reusable] if reusable else ()
        # by what the nodes have, not by what is free: a hint that is wider than need be is never preferred
        sums = self._largest_sums
        size = min(bisect_left(sums, request) + 1, len(sums))
        sockets = self._socket_nodes
        return feasible_hints(
            len(node_cpus),
            ((None, amounts, request),),
            universe=self._universe,
            preferred_size=size,
            touching=touching,
            sockets=sockets,
            preferred_sockets=-(-size // (self._topology.numa_nodes // len(sockets))) if sockets else -1,
        )

    def _choose(self, reusable: int, request: int, affinity: TopologyHint) -> int:
        """Return CPUs for a request: those near the affinity first, then any.

        Raises:
            AllocationError: there are too few.
        """
        chosen = 0
        free = self._allocatable & ~self._given | reusable
        held = self._given & ~reusable | self._kept
        if affinity.affinity is not None:
            aligned = 0
            for i in affinity.affinity.bits():
                aligned |= self._near[i]
            aligned &= free
            chosen = _take(self._topology, self._options, aligned, min(request, aligned.bit_count()), held)
        missing = request - chosen.bit_count()
        if missing > 0:
            others = free & ~chosen
            if missing > others.bit_count():
                raise AllocationError(self._too_few(free, request))
            chosen |= _take(self._topology, self._options, others, missing, held)
        return chosen

    def _check_whole_cores(self, request: int) -> None:
        """Refuse a request that whole, free cores cannot meet.

        Raises:
            AllocationError: it is no multiple of the CPUs per core, or there are too few cores none of whose
                CPUs is reserved.
        """
        per_core = self._topology.cpus_per_core
        if request % per_core:
            raise AllocationError(
                f"expected a multiple of the {per_core} CPUs of a core (full-pcpus-only), "
                f"got a request for {request}",
                SMT_ALIGNMENT_ERROR,
            )
        free = self._pool & ~self._given & ~self._reserved_cores
        if request > free.bit_count():
            raise AllocationError(
                f"{self._too_few(free, request)}; cores with a reserved CPU do not count (full-pcpus-only)",
                SMT_ALIGNMENT_ERROR,
            )

    def account(self, pod: Pod, container: Container | None) -> Mapping[str, Callable[[], str]]:
        """Return how many CPUs are asked for, and how many are free on which NUMA nodes; see `HintProvider`."""
        request = pod.exclusive_cpus if container is None else container.exclusive_cpus
        if not request:
            return {}
        free = self._allocatable & ~self._given
        return {RESOURCE: partial(self._asked_and_free, request, free)}

    def _asked_and_free(self, request: int, free: int) -> str:
        return f"{request} asked, {free.bit_count()} free: {self._places(free)}"

    def _too_few(self, free: int, request: int) -> str:
        return f"expected {request} free CPUs, got {free.bit_count()}: {self._places(free)}"

    def _places(self, free: int) -> str:
        """Return how many of the CPUs are on which NUMA node, in words."""
        return ", ".join(
            f"{(free & cpus).bit_count()} on NUMA node {node}"
            for node, cpus in zip(self._node_ids, self._topology.node_cpus, strict=True)
            if cpus
        )


def _check(topology: CpuTopology, reserved: int, options: CpuOptions) -> None:
    """Refuse what the kubelet would not start with.

    Raises:
        ConfigError: reserved CPUs that the machine lacks, or align-by-socket with more sockets than nodes.
    """
    unknown = reserved & ~topology.cpus
    if unknown:
        raise ConfigError.at("reservedSystemCPUs", "CPUs of this machine", str(CPUSet.from_int(unknown)))
    if options.align_by_socket and len(topology.socket_cpus) > topology.numa_nodes:
        raise ConfigError.at(
            "cpuManagerPolicyOptions[align-by-socket]",
            f"no more sockets than the {topology.numa_nodes} NUMA nodes that have CPUs",
            len(topology.socket_cpus),
        )


def _socket_nodes(topology: CpuTopology) -> tuple[int, ...]:
    """Return for each socket the mask of the NUMA nodes that have CPUs of it."""
    return tuple(
        sum(1 << i for i, cpus in enumerate(topology.node_cpus) if cpus & socket)
        for socket in topology.socket_cpus
    )
