"""The CPU manager's static policy: which containers hold which CPUs for themselves.

Only containers of Guaranteed pods do.

From which NUMA nodes CPUs can come and which of them are taken is decided in the compiled
`alignup.core.amounts.cpu_allocation` and `alignup.core.cpu`; which containers get CPUs of their own
was worked out with the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from alignup.core.amounts.cpu_ledger import CpuLedger, CpuShortage
from alignup.core.amounts.holders import CpuHolders
from alignup.core.shared_dict import SharedDict
from alignup.errors import AllocationError, ConfigError
from alignup.kubernetes.versions import VersionProfile
from alignup.machine.bits import union
from alignup.machine.cpuset import CPUSet
from alignup.providers.cpu.distribution import distribute, never_ends
from alignup.providers.cpu.topology import CpuTopology, cpu_capacity, cpu_topology
from alignup.providers.pod_pool import check_shared_pool, empty_shared_pool
from alignup.text.counting import free_in
from alignup.topology_manager.hints import HintList, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Container, Pod
    from alignup.kubernetes.policy_options import CpuOptions
    from alignup.machine.machine import Machine

RESOURCE: Final = "cpu"
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
SMT_ALIGNMENT_ERROR: Final = "SMTAlignmentError"


def too_few_cores(request: int, free: int) -> str:
    """Return that full-pcpus-only refuses a request of more CPUs than whole cores have."""
    return (
        f"too few CPUs are free in whole cores: {request} asked, {free} free; "
        "cores with a reserved CPU do not count (full-pcpus-only)"
    )


def reserved_cpus(
    machine: Machine, count: int, options: CpuOptions, profile: VersionProfile | None = None
) -> int:
    """Return the CPUs that the kubelet reserves when it is told how many, but not which.

    It takes them as it would for a container that asks for `count` CPUs of the empty machine.

    Raises:
        ConfigError: the machine has fewer CPUs.
    """
    profile = profile or VersionProfile()
    topology = cpu_topology(machine, profile)
    reserved = _take(topology, options, profile, topology.cpus, count, held_cpus=0)

    if reserved.bit_count() != count:
        raise ConfigError.at(
            "the reserved CPUs", f"at most {topology.cpus.bit_count()} CPUs", count
        )

    return reserved


def _take(
    topology: CpuTopology,
    options: CpuOptions,
    profile: VersionProfile,
    free: int,
    count: int,
    held_cpus: int,
    hinted_nodes: int = 0,
) -> int:
    """Return `count` of the free CPUs, chosen as the options say; none of those that are held.

    `hinted_nodes` is how many NUMA nodes the affinity has that the CPUs are near to; 0: none.
    """
    if options.distribute_cpus_across_numa:
        return distribute(topology, free, count, held_cpus, options, profile, hinted_nodes)
    return _pack(topology, options, profile, free, count, held_cpus)


def _pack(
    topology: CpuTopology,
    options: CpuOptions,
    profile: VersionProfile,
    free: int,
    count: int,
    held_cpus: int,
    *,
    once: bool = False,
) -> int:
    """Return `count` of the free CPUs, packed; with `once`, what a kubelet takes at a time."""
    return topology.pack(
        free,
        count,
        held_cpus,
        spread=options.distribute_cpus_across_cores,
        in_turns=profile.spread_in_turns_over_cores,
        by_l3=options.prefer_align_cpus_by_uncorecache,
        l3_rounds_down=profile.odd_l3_rest_rounds_down,
        whole_l3_first=profile.whole_l3_groups_first,
        once=once,
    )


class CpuProvider(CpuHolders):
    """The hint provider for `cpu`, with the kubelet's static CPU manager policy.

    Args:
        machine: whose CPUs are given out.
        reserved: the CPUs that nobody gets alone, as a bit set of the kernel's CPU numbers.
        options: the options of the static policy; which of them exclude each other is checked with
            the configuration.
        profile: what the kubelet's release does where releases differ.

    Raises:
        ConfigError: the machine has no CPUs, not all of the reserved ones, or, with
            align-by-socket, more sockets than NUMA nodes.
    """

    __slots__ = ("_choose", "_distribute", "_node_ids", "_options", "_profile", "readmits_pods")

    name = RESOURCE

    def __init__(
        self,
        machine: Machine,
        reserved: int,
        options: CpuOptions,
        profile: VersionProfile | None = None,
    ) -> None:
        profile = profile or VersionProfile()
        capacity = cpu_capacity(cpu_topology(machine, profile), reserved, options, profile)

        self._options = options
        self._profile = profile
        self._node_ids = machine.numa_node_ids
        self._choose = partial(_take, capacity.topology, options, profile)
        self._distribute = self._choose if options.distribute_cpus_across_numa else None
        # Whether the kubelet has restarted and admits the pods again that it finds in its state.
        self.readmits_pods = False
        self.ledger = CpuLedger(capacity)

    def copy(self) -> CpuProvider:
        """Return an independent provider with the same holdings."""
        duplicate = CpuProvider.__new__(CpuProvider)
        duplicate._options = self._options
        duplicate._profile = self._profile
        duplicate._node_ids = self._node_ids
        duplicate._choose = self._choose
        duplicate._distribute = self._distribute
        duplicate.readmits_pods = self.readmits_pods
        duplicate.hold_as(self)
        return duplicate

    @property
    def shared_cpus(self) -> CPUSet:
        """The CPUs of all containers that have none of their own."""
        return CPUSet.from_int(self.ledger.capacity.shareable & ~self.ledger.given)

    @property
    def free_cpus(self) -> CPUSet:
        """The CPUs that can still be given away."""
        return CPUSet.from_int(self.ledger.capacity.allocatable & ~self.ledger.given)

    @property
    def allocatable_cpus(self) -> CPUSet:
        """The allocatable CPUs: those that containers can have exclusively."""
        return CPUSet.from_int(self.ledger.capacity.allocatable)

    def cpus(self, pod_uid: str, container_name: str) -> CPUSet | None:
        """Return the CPUs that the container has for itself.

        None if it shares some, or is not known.
        """
        container_cpus = self.held.get(pod_uid)
        if container_cpus is None or container_name not in container_cpus:
            return None
        return CPUSet.from_int(container_cpus[container_name])

    def pod_cpus(self, pod_uid: str) -> CPUSet | None:
        """Return the CPUs that a pod has as a whole.

        None if its containers have theirs one by one, or none.
        """
        cpus = self.whole_pods.get(pod_uid)
        if cpus is None:
            return None
        return CPUSet.from_int(cpus)

    def topology_hints(self, pod: Pod, container: Container) -> Mapping[str, HintList] | None:
        """Return the sets of NUMA nodes that the container's CPUs could come from.

        None if it gets no CPUs of its own.

        CPUs that init containers left must be used: a set that leaves out one of its nodes is no
        hint. A container that has its CPUs already is told where they are.
        """
        request = container.exclusive_cpus
        if not request:
            return None

        container_cpus = self.held.get(pod.uid)
        if container_cpus is not None and container.name in container_cpus:
            return {RESOURCE: self._hints_as_held(request, container_cpus[container.name])}

        return {RESOURCE: self.ledger.hints(request, self._reusable_by(pod.uid))}

    def pod_topology_hints(self, pod: Pod) -> Mapping[str, HintList] | None:
        """Return the same for the CPUs of all containers of the pod together."""
        request = pod.exclusive_cpus
        if not request:
            return None

        whole = self._restored(pod)
        is_stale = bool(whole and self._stale(pod, whole))
        if whole and not is_stale:
            return {RESOURCE: self._hints_as_held(request, whole)}

        is_empty = pod.has_shared_pool and bool(empty_shared_pool(pod, {RESOURCE: request}))
        assigned: int | None = 0
        if not is_stale and pod.uid in self.held:
            assigned = self._assigned(pod)

        if is_empty or assigned is None:
            return {RESOURCE: HintList.empty()}
        if assigned.bit_count() == request:
            return {RESOURCE: self.ledger.hints(request, 0, assigned)}

        free = None
        if is_stale:  # `allocate_pod` gives it back first
            free = self._free() | (whole & self.ledger.capacity.allocatable)

        return {RESOURCE: self.ledger.hints(request, self._reusable_by(pod.uid) | assigned, free)}

    def _assigned(self, pod: Pod) -> int | None:
        """Return the CPUs that containers of a pod have.

        None: one has more or less than it asks for, as containers have that share those of a pod.
        """
        assigned = 0
        container_cpus = self.held[pod.uid]
        for container in pod.all_containers:
            cpus = container_cpus.get(container.name)
            if cpus is not None and cpus.bit_count() != container.exclusive_cpus:
                return None
            assigned |= cpus or 0

        return assigned

    def _hints_as_held(self, request: int, cpus: int) -> HintList:
        """Return the hints that repeat what is held; none if that is not what is asked for now."""
        if cpus.bit_count() != request:
            return HintList.empty()
        return self.ledger.hints(request, 0, cpus)

    def _restored(self, pod: Pod) -> int:
        """Return the CPUs that a pod has as a whole, of which a kubelet restores its allocation.

        0: there are none, or the kubelet does not look for them.
        """
        if not (self._profile.pod_resources_restored and pod.has_shared_pool):
            return 0
        return self.whole_pods.get(pod.uid, 0)

    def _stale(self, pod: Pod, whole: int) -> str:
        """Return why the state of a pod with CPUs as a whole is left of a release cut short.

        These are the kinds of `podAllocationStaleness` in `cpumanager/policy_static.go`.

        Returns:
            `overlap`: some of the CPUs are in the shared pool, too. `gaps`: the containers that
            have CPUs are not the first of the pod's. Empty: it is not.
        """
        if whole & self.ledger.capacity.shareable & ~self.ledger.given:
            return "overlap"

        container_cpus = self.held.get(pod.uid, {})
        first_containers = pod.all_containers[: len(container_cpus)]
        if {*container_cpus} != {container.name for container in first_containers}:
            return "gaps"
        return ""

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container its CPUs, from the nodes of the affinity first, then from any.

        Raises:
            AllocationError: there are too few (`UnexpectedAdmissionError`), or, with
                full-pcpus-only, they would not be whole cores (`SMTAlignmentError`).
        """
        request = container.exclusive_cpus
        if not request:
            return

        uid = pod.uid
        container_cpus = self.held.get(uid)
        is_held = container_cpus is not None and container.name in container_cpus
        if self._options.full_pcpus_only and not (is_held and self._profile.state_before_smt_check):
            self._check_whole_cores(request)

        if container_cpus is not None and is_held:
            self._note_reuse(uid, container, container_cpus[container.name])
            return

        cpus = self._chosen(request, self._reusable_by(uid), affinity)
        # whose they are comes first: what is cut short can be released
        if container_cpus is None:
            self.held[uid] = {container.name: cpus}
        else:
            self.held[uid] = {**container_cpus, container.name: cpus}

        self.ledger.give(cpus)
        self._note_reuse(uid, container, cpus)

    def allocate_pod(self, pod: Pod, affinity: TopologyHint) -> None:
        """Give a pod with resources of its own its CPUs, and divide them among its containers.

        Init containers that end choose among all CPUs that no sidecar has for itself. Containers
        that share get what nobody has for itself. Nothing is given where the pod requests no whole
        number of CPUs.

        After a restart of the kubelet the pod keeps what it has, or, of kubelets that restore
        nothing, is given CPUs anew: nobody has the old ones any more, and they are not free.

        Raises:
            AllocationError: there are too few (`UnexpectedAdmissionError`), with full-pcpus-only no
                whole cores (`SMTAlignmentError`), or none would be left to share
                (`EmptyPodSharedPoolError`).
        """
        uid = pod.uid
        request = pod.exclusive_cpus
        if not request:
            return

        if whole := self._restored(pod):
            stale = self._stale(pod, whole)
            if not stale:
                self._restore_pod(pod, whole, affinity)
                return

            if stale == "overlap":  # the CPUs are back in the shared pool
                del self.whole_pods[uid]
            else:
                self._release_pod(uid)
        elif uid in self.whole_pods and not self.readmits_pods:
            return

        # kubelets that restore nothing lose the CPUs that the pod had before a restart
        check_shared_pool(pod, {RESOURCE: request})
        if self._options.full_pcpus_only:
            self._check_whole_cores(request)

        cpus = self._chosen(request, 0, affinity)
        self.held[uid] = self._divided(pod, cpus, affinity)
        self.whole_pods[uid] = cpus
        self.ledger.give(cpus)

    def _restore_pod(self, pod: Pod, whole: int, affinity: TopologyHint) -> None:
        """Complete the allocation of a pod that a restarted kubelet finds in its state.

        What containers have stays theirs (`restorePodAllocation` of
        `cpumanager/policy_static.go`); only those that the kubelet had not written down yet are
        given CPUs.

        Raises:
            AllocationError: there are too few for one of them; the pod has given back all it had.
        """
        restored = self.held.get(pod.uid, {})
        if len(restored) == len(pod.all_containers):
            return

        try:
            self.held[pod.uid] = self._divided(pod, whole, affinity, restored)
        except AllocationError:
            self._release_pod(pod.uid)
            raise

    def _release_pod(self, pod_uid: str) -> None:
        """Take back all that a pod with CPUs as a whole has."""
        self.ledger.take_back(self.whole_pods[pod_uid])
        self.held.pop(pod_uid, None)
        del self.whole_pods[pod_uid]

    def _divided(
        self,
        pod: Pod,
        cpus: int,
        affinity: TopologyHint,
        restored: Mapping[str, int] = _NOTHING,
    ) -> dict[str, int]:
        """Return the CPUs of each container of a pod that has CPUs as a whole.

        Args:
            pod: the pod.
            cpus: what it has.
            affinity: the pod's.
            restored: by name, the CPUs of its first containers where these have some already.

        Raises:
            AllocationError: too few are left for a container after those that have some.
        """
        all_cpus = self.ledger.capacity.topology.cpus
        mask = affinity.affinity
        hinted_nodes = 0 if mask is None else int(mask).bit_count()
        pool = cpus
        container_cpus = {}
        for container in pod.all_containers:
            ends = container.is_init and not container.is_sidecar
            chosen = restored.get(container.name)
            if container.exclusive_cpus:
                if chosen is None:
                    if container.exclusive_cpus > pool.bit_count():
                        raise self._too_few(container.exclusive_cpus, pool)
                    chosen = self._choose(
                        pool, container.exclusive_cpus, all_cpus & ~pool, hinted_nodes
                    )

                container_cpus[container.name] = chosen
                if not ends:
                    pool &= ~chosen
            elif ends:
                container_cpus[container.name] = pool if chosen is None else chosen

        return {
            container.name: container_cpus.get(container.name, pool)
            for container in pod.all_containers
        }

    def known_faults(
        self, pod: Pod, container: Container, affinity: TopologyHint
    ) -> Iterator[tuple[str, CPUSet]]:
        """Yield the faults of kubelets that `allocate` would come upon.

        Each is its name in `releases`, and the CPUs that it concerns.
        """
        request = container.exclusive_cpus
        container_cpus = self.held.get(pod.uid, {})
        if not request or container.name in container_cpus:
            return
        if self._options.full_pcpus_only and self.ledger.check_whole_cores(request) is not None:
            return  # it is refused before

        topology = self.ledger.capacity.topology
        group_size = topology.cpus_per_core if self._options.full_pcpus_only else 1
        in_one_socket = (
            self._options.align_by_socket and self._profile.distribution_prefers_one_socket
        )

        free = self._free() | self._reusable_by(pod.uid)
        mask = affinity.affinity
        aligned = 0
        if mask is not None:
            near = topology.node_sockets if self._options.align_by_socket else topology.node_cpus
            aligned = free & union(cpus for node, cpus in enumerate(near) if node in mask)

        distributes = self._options.distribute_cpus_across_numa
        take = self._choose
        if not distributes:
            take = partial(_pack, topology, self._options, self._profile, once=True)

        chosen = 0
        for pool in (aligned, free):
            candidates = pool & ~chosen
            count = min(request - chosen.bit_count(), candidates.bit_count())
            if not count:
                continue

            if distributes and never_ends(
                topology, candidates, count, group_size, in_one_socket=in_one_socket
            ):
                yield "distribution_never_ends", CPUSet()
                return

            cpus = take(candidates, count, 0)
            given_twice = cpus & ~candidates
            if given_twice:
                yield "cpus_given_twice", CPUSet.from_int(given_twice)

            chosen |= cpus

        if chosen.bit_count() < request <= free.bit_count():
            yield "l3_groups_counted_twice", CPUSet.from_int(chosen)

    def _chosen(self, request: int, reusable: int, affinity: TopologyHint) -> int:
        """Return the CPUs that a pod gets.

        Those that its init containers left (`reusable`) come first, then those near the affinity,
        then any.

        Raises:
            AllocationError: there are too few.
        """
        mask = affinity.affinity
        cpus = self.ledger.choose(
            request, reusable, None if mask is None else int(mask), self._distribute
        )
        if isinstance(cpus, CpuShortage):
            raise self._too_few(request, self._free() | reusable)

        return cpus

    def _too_few(self, request: int, free: int) -> AllocationError:
        """Return the error that fewer CPUs are free than are asked for."""
        amounts = self._asked_and_free(request, free)
        return AllocationError(f"too few CPUs are free: {amounts}", resources=("cpu",))

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back the container's CPUs, but for those that another container of the pod reuses.

        They are the container's until the end, so that a call that was cut short can be repeated.
        """
        container_cpus = self.held.get(pod_uid)
        if container_cpus is None or container_name not in container_cpus:
            return

        freed = container_cpus[container_name]
        pod_cpus = self.whole_pods.get(pod_uid)
        others = None
        if len(container_cpus) > 1:
            others = {name: cpus for name, cpus in container_cpus.items() if name != container_name}

        if others is None:
            freed |= pod_cpus or 0
        elif pod_cpus is not None:  # they stay the pod's until its last container is gone
            freed = 0
        else:
            for cpus in others.values():
                freed &= ~cpus

        self.ledger.take_back(freed)
        if self.reusing_pod == pod_uid:
            self.reusable &= ~freed

        if others is not None:
            self.held[pod_uid] = others
            return

        if pod_cpus is not None:
            del self.whole_pods[pod_uid]
        del self.held[pod_uid]

    def adopt(self, pod_uid: str, container_name: str, cpus: int) -> None:
        """Note CPUs, as a bit set, that the container was given before this provider was made.

        CPUs that this machine does not have are noted as well, and do no harm.

        Raises:
            AllocationError: the container has CPUs already, or one of these is another's.
        """
        container_cpus = self.held.get(pod_uid, {})
        self._give(cpus, f"container {container_name!r}", has_some=container_name in container_cpus)
        self.held[pod_uid] = {**container_cpus, container_name: cpus}

    def adopt_pod(self, pod_uid: str, cpus: int, containers: Mapping[str, int]) -> None:
        """Note CPUs that a pod was given as a whole, and those of each container; see `adopt`.

        Raises:
            AllocationError: one of these is another's.
        """
        self._give(cpus, "the pod")
        self.whole_pods[pod_uid] = cpus
        self.held[pod_uid] = dict(containers)

    def _give(self, cpus: int, holder: str, *, has_some: bool = False) -> None:
        """Mark CPUs as given.

        Raises:
            AllocationError: others have some of them, or their container has CPUs already.
        """
        given_cpus = self.ledger.given
        if has_some or cpus & given_cpus:
            raise AllocationError(
                f"{holder} cannot have CPUs {CPUSet.from_int(cpus)}: "
                f"{CPUSet.from_int(given_cpus)} are given already"
            )

        self.ledger.give(cpus)

    def restore(
        self,
        holdings: Mapping[str, Mapping[str, int]],
        shared: int,
        pods: Mapping[str, int] | None = None,
    ) -> None:
        """Take over the state of a kubelet's CPU manager, in place of what is held now.

        Args:
            holdings: by pod uid and container name, the CPUs that the container has for itself, as
                a bit set; those of one pod may overlap, since init containers leave theirs to the
                containers after them.
            shared: the CPUs of the shared pool; all others are given, even if nobody is known to
                hold them.
            pods: by pod uid, the CPUs of pods that have them as a whole.
        """
        self.held = SharedDict({uid: dict(containers) for uid, containers in holdings.items()})
        self.whole_pods = SharedDict(pods or {})
        self.reusing_pod = ""
        self.reusable = 0
        self.ledger.take_back(self.ledger.given)
        self.ledger.give(self.ledger.capacity.shareable & ~shared)

    def inherit(self, predecessor: CpuProvider, *, knows_pods: bool = True) -> None:
        """Take over what the state file of the kubelet before a restart says.

        Args:
            predecessor: the provider as it was then.
            knows_pods: whether this kubelet reads what pods have as a whole.

        Raises:
            ConfigError: with these options and reserved CPUs a kubelet does not start on that
                state.
        """
        capacity = self.ledger.capacity
        shared = predecessor.shared_cpus
        if not shared:
            if not predecessor.held:
                return  # the kubelet begins anew
            raise ConfigError("default cpuset cannot be empty")

        reserved = CPUSet.from_int(capacity.topology.cpus & ~capacity.allocatable)
        fault = reserved_fault(reserved, shared, strict=self._options.strict_cpu_reservation)
        if fault is not None:
            raise ConfigError(fault[1])

        whole_pods = dict(predecessor.whole_pods) if knows_pods else {}

        held = [
            cpus for container_cpus in predecessor.held.values() for cpus in container_cpus.values()
        ]
        written = union([int(shared), *held, *whole_pods.values()])
        if written != capacity.shareable:
            raise ConfigError(
                f'current set of available CPUs "{CPUSet.from_int(capacity.shareable)}" doesn\'t '
                f'match with CPUs in state "{CPUSet.from_int(written)}"'
            )

        self.restore(dict(predecessor.held), int(shared), whole_pods)

    def _free(self) -> int:
        return self.ledger.capacity.allocatable & ~self.ledger.given

    def _reusable_by(self, pod_uid: str) -> int:
        return self.reusable if self.reusing_pod == pod_uid else 0

    def _note_reuse(self, pod_uid: str, container: Container, cpus: int) -> None:
        """Leave the CPUs of an init container that ends, but no others, to those after it."""
        reusable = self._reusable_by(pod_uid)
        self.reusing_pod = pod_uid
        if container.is_init and not container.is_sidecar:
            self.reusable = reusable | cpus
        else:
            self.reusable = reusable & ~cpus

    def _check_whole_cores(self, request: int) -> None:
        """Refuse a request that whole, free cores cannot meet.

        Raises:
            AllocationError: it is no multiple of the CPUs per core, or there are too few cores none
                of whose CPUs is reserved.
        """
        shortage = self.ledger.check_whole_cores(request)
        if shortage is None:
            return

        capacity = self.ledger.capacity
        if shortage.cause == "not whole cores":
            per_core = capacity.topology.cpus_per_core
            message = (
                f"{request} CPUs are not a multiple of the {per_core} CPUs of a core "
                "(full-pcpus-only)"
            )
        else:
            free = capacity.shareable & ~self.ledger.given & ~capacity.reserved_cores
            message = too_few_cores(request, free.bit_count())

        raise AllocationError(message, SMT_ALIGNMENT_ERROR, resources=("cpu",))

    def account(self, pod: Pod, container: Container | None) -> Mapping[str, Callable[[], str]]:
        """Return the account of the CPUs asked for and free; see `HintProvider`."""
        request = pod.exclusive_cpus if container is None else container.exclusive_cpus
        if not request:
            return {}
        return {RESOURCE: partial(self._asked_and_free, request, self._free())}

    def _asked_and_free(self, request: int, free: int) -> str:
        """Return in words how many CPUs are asked for, and how many are free on which node."""
        nodes = zip(self._node_ids, self.ledger.capacity.topology.node_cpus, strict=True)
        places = (
            (f"on NUMA node {node_id}", (free & cpus).bit_count())
            for node_id, cpus in nodes
            if cpus
        )
        return f"{request} asked, {free_in(places)}"


def cpu_provider(machine: Machine, config: KubeletConfig) -> CpuProvider | None:
    """Return the CPU manager of the configuration; None for policy none.

    A kubelet refuses a static policy without reserved CPUs. It is allowed here, because launchers
    without a kubelet may hand out every CPU.

    Raises:
        ConfigError: the machine lacks some of the reserved CPUs.
    """
    if config.cpu_manager_policy != "static":
        return None

    reserved = reserved_by(config, machine)
    return CpuProvider(machine, reserved, config.cpu_manager_policy_options, config.profile)


def reserved_fault(reserved: CPUSet, shared: CPUSet, *, strict: bool) -> tuple[str, str] | None:
    """Return why a kubelet does not start with these reserved CPUs.

    In our words, and in its own (`validateState`).

    Args:
        reserved: the reserved CPUs.
        shared: the shared pool that its state file has.
        strict: whether the option strict-cpu-reservation is set.

    Returns:
        None if it starts.
    """
    inside = CPUSet(reserved & shared)
    if strict and inside:
        reason = "reserved and in the shared pool, which strict-cpu-reservation forbids"
        return (
            f"CPUs {inside} are {reason}",
            f'some of strictly reserved cpus: "{inside}" are present in defaultCpuSet: "{shared}"',
        )

    if not strict and inside != reserved:
        missing = CPUSet(reserved - shared)
        return (
            f"CPUs {missing} are reserved now, and were given to containers before",
            f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{shared}"',
        )

    return None


def reserved_by(config: KubeletConfig, machine: Machine) -> int:
    """Return the CPUs that a kubelet of this configuration reserves.

    Raises:
        ConfigError: the machine has fewer than it is to reserve.
    """
    if not config.reserved_cpu_count:
        return int(config.reserved_system_cpus)

    return reserved_cpus(
        machine, config.reserved_cpu_count, config.cpu_manager_policy_options, config.profile
    )
