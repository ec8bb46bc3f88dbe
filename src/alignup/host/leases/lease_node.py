"""Keeps a node whose pods are leases: decides what a request gets, and takes it back.

The decision about CPUs, memory and devices is that of the kubelet's managers, with a static CPU
manager; each request brings its own policy. Memory has a say in it too, and is then taken near the
CPUs (`NearMemory`), or as a kubelet's Static memory manager would where the site wants that. A
request for a part of the machine gets exactly that part. The words about who holds what, and the
file or the agent that keeps the leases, are left to others.
"""

from __future__ import annotations

import platform
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from msgspec import structs

from alignup.errors import AllocationError, InputError, UnknownPodError
from alignup.host.leases.gpu_shares import OTHER_NAME, GpuShares
from alignup.host.leases.near import NearNodes
from alignup.host.leases.record import (
    DEFAULT_POLICY,
    STRICT_POLICIES,
    LeaseRecord,
    MemoryShare,
    Near,
    Request,
    Seen,
)
from alignup.host.leases.request import CLAIM, LeaseRequest
from alignup.host.parts.usable import MemoryRule, take_near
from alignup.host.parts.visible_devices import VISIBLE, Sight, choice_of
from alignup.host.processes.identity import ProcessIdentity
from alignup.kubernetes.kubelet_config import KubeletConfig, ReservedMemory
from alignup.kubernetes.pod import Container, NodeConstraints, Pod, PodClaim, QOSClass
from alignup.kubernetes.policy_options import DEFAULT_MAXIMUM, CpuOptions, TopologyOptions
from alignup.kubernetes.versions import NEWEST, KubeletVersion, release_of
from alignup.machine.bits import bit_set, ids_of, overlapping
from alignup.machine.cpuset import CPUSet
from alignup.node import Node, plugins_of
from alignup.records import replace
from alignup.topology_manager.hints import (
    MAX_NUMA_NODES,
    BitMask,
    TopologyHint,
    feasible_hints,
    smallest_size,
)
from alignup.topology_manager.policy import Policy, make_policy
from alignup.topology_manager.refusal_account import Accounts, MemoryAccount, in_words
from alignup.topology_manager.scope import Scope, make_scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from alignup.claims.read import Resources
    from alignup.host.leases.local_machine import Site
    from alignup.host.parts.part import Part
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.providers.devices.inventory import Preference
    from alignup.topology_manager.provider import HintProvider, ResourceHints
    from alignup.topology_manager.scope import Refusal

_CONTAINER: Final = "command"
# The namespace of leases in sentences about pods.
_LEASE: Final = "lease"
_MEMORY: Final = "memory"
# The policy that admits what fits on as few nodes as on an empty machine.
_FITTING: Final = "restricted"
# The bytes of memory that are reserved: a Static memory manager does not start without a
# reservation.
_PAGE: Final = 4096
# Bytes of a node up to which its memory is none to be given.
_LITTLE: Final = 1 << 16
# A node has a device provider only if it is made with some resource.
_NO_RESOURCE: Final = "alignup.invalid/none"


def id_words(lease_id: str) -> str:
    """Return how sentences of the node name a lease; the ledger knows who may read which name."""
    return f"{{{lease_id}}}"


class NearMemory:
    """The hint provider of memory without groups of nodes.

    A set of nodes will do if enough is free there in all. It gives none by itself: `take` does,
    once the CPUs are known.

    Args:
        machine: whose memory is given out.
        rule: which nodes give some; there is one at least.
    """

    __slots__ = ("_by_lease", "_capacity", "_machine", "_rule", "_used")

    name = _MEMORY

    def __init__(self, machine: Machine, rule: MemoryRule) -> None:
        open_nodes = rule.open_nodes(machine)
        self._machine = machine
        self._rule = rule
        # Bytes by position.
        self._capacity = [
            node.memory_by_type[_MEMORY] if open_nodes >> position & 1 else 0
            for position, node in enumerate(machine.numa_nodes)
        ]
        self._used = [0] * len(self._capacity)
        self._by_lease: dict[str, dict[int, int]] = {}

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:  # noqa: ARG002
        """Return the sets of nodes where enough is free."""
        return self._hints(container.memory)

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for a pod."""
        return self._hints(pod.memory)

    def _hints(self, requests: tuple[tuple[str, int], ...]) -> ResourceHints:
        size = dict(requests).get(_MEMORY)
        if not size:
            return None

        count = len(self._capacity)
        everywhere = (1 << count) - 1
        fewest = smallest_size(count, [(None, self._capacity, size)], everywhere) or count
        demands = [(None, self._free(), size)]
        return {_MEMORY: feasible_hints(count, demands, universe=everywhere, preferred_size=fewest)}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Do nothing: see `take`."""

    def take(self, lease_id: str, size: int, home: int, policy: str, *, strict: bool) -> None:
        """Give memory to a lease, nearest first.

        Args:
            lease_id: whose it is.
            size: bytes.
            home: positions of the nodes of its CPUs, as a bit set; 0: it has none.
            policy: for the words of a refusal.
            strict: refuse what is not on these nodes.

        Raises:
            AllocationError: too little is free.
        """
        rule = replace(self._rule, source="cpus") if strict else self._rule
        sizes = take_near(self._machine, rule, home, self._free(), size)
        if sum(sizes.values()) < size:
            where = ""
            if rule.source == "cpus" and home:
                node_ids = ", ".join(map(str, ids_of(home, self._machine.numa_node_ids)))
                where = f" on the NUMA nodes of its CPUs ({node_ids})"
            if strict and where:
                where += f", and policy {policy} takes none elsewhere"

            account = in_words(self._account(size))[_MEMORY]
            raise AllocationError(f"too little memory is free{where}: {account}")

        self._hold(lease_id, sizes)

    def adopt(self, lease_id: str, shares: Mapping[int, int]) -> None:
        """Note memory, by kernel node id, that a lease was given before.

        Nodes that the machine lacks are ignored.
        """
        ids = self._machine.numa_node_ids
        sizes = {ids.index(node_id): size for node_id, size in shares.items() if node_id in ids}
        self._hold(lease_id, sizes)

    def _hold(self, lease_id: str, sizes: dict[int, int]) -> None:
        self._by_lease[lease_id] = sizes
        for position, size in sizes.items():
            self._used[position] += size

    def release(self, pod_uid: str, container_name: str) -> None:  # noqa: ARG002
        """Take back what a lease holds, if anything."""
        for position, size in self._by_lease.pop(pod_uid, {}).items():
            self._used[position] -= size

    def shares(self, lease_id: str) -> dict[str, dict[int, int]]:
        """Return by type and kernel node id the bytes that a lease holds, the nearest first."""
        sizes = self._by_lease.get(lease_id)
        if not sizes:
            return {}

        ids = self._machine.numa_node_ids
        return {_MEMORY: {ids[position]: size for position, size in sizes.items()}}

    def account(self, pod: Pod, container: Container | None) -> Accounts:
        """Return the bytes asked for, and those free on each node; see `HintProvider`."""
        size = dict(pod.memory if container is None else container.memory).get(_MEMORY)
        return self._account(size) if size else {}

    def _account(self, size: int) -> dict[str, MemoryAccount]:
        return {_MEMORY: MemoryAccount(size, tuple(self._free()), self._machine.numa_node_ids)}

    def _free(self) -> list[int]:
        """Return the bytes that are free, by position.

        A lease of other rules can hold what this one does not give.
        """
        nodes = zip(self._capacity, self._used, strict=True)
        return [max(0, capacity - used) for capacity, used in nodes]


class LeaseNode:
    """The node of a machine, and what is held of it: at first nothing.

    Args:
        site: the machine and its devices; plugins may report more of these later.
        version: the release of the kubelet whose managers decide.

    Raises:
        InputError: memory is to come from nodes that the machine does not have.
    """

    __slots__ = ("_gpus", "_memory", "_nearness", "_policies", "_site", "inventory", "node")

    def __init__(self, site: Site, version: KubeletVersion = NEWEST) -> None:
        self._site = site
        self._gpus = GpuShares()
        for resource, devices in site.inventory.items():
            self._gpus.report(resource, devices)
        # The devices by resource, as they were reported last; this and the node are to be looked at
        # by others.
        self.inventory: dict[str, Sequence[Device]] = {**site.inventory, _NO_RESOURCE: ()}

        has_memory = any(node.memory > _LITTLE for node in site.machine.numa_nodes)
        has_memory = has_memory and bool(site.memory_rule.open_nodes(site.machine))
        self._memory: NearMemory | None = None
        if has_memory and not site.as_kubelet:
            self._memory = NearMemory(site.machine, site.memory_rule)

        config = _config(site, version, has_memory=has_memory and site.as_kubelet)
        self._nearness = NearNodes(site.placed)
        providers: list[HintProvider] = [self._nearness]
        if self._memory is not None:
            providers.append(self._memory)
        plugins = plugins_of(site.preferred_sets)
        self.node = Node(
            site.placed, config, self.inventory, plugins, providers=providers, pair=site.pair
        )
        if site.claims is not None:
            host = platform.node()
            name = host if site.claims.by_node.get(host) else ""
            self.node.know_claims(_for_leases(site.claims), name=name, dra_hints=True)

        self._policies: dict[str, tuple[Policy, Scope]] = {}

    @property
    def has_memory(self) -> bool:
        """Whether memory may be asked for."""
        return self._memory is not None or self.node.memory is not None

    def update(self, resource: str, devices: Sequence[Device], preference: Preference) -> None:
        """Replace the devices of a resource, and who is asked which of them go well together.

        Raises:
            InputError: a device id comes twice.
        """
        assert self.node.devices is not None  # noqa: S101  # it was made with some resource
        self.node.devices.update(resource, devices, preference)
        self.inventory[resource] = devices
        self._gpus.report(resource, devices)

    @property
    def resources(self) -> set[str]:
        """The resources of which devices may be asked for, claims among them."""
        resources = set(self.inventory)
        if self.node.claims is not None:
            templates = self.node.claims.resources.templates
            resources.update(f"{CLAIM}{template.name}" for template in templates)
        return resources - {_NO_RESOURCE}

    def adopt(self, lease: LeaseRecord) -> None:
        """Note what a lease holds that was decided elsewhere.

        Devices of unknown resources are ignored.

        Raises:
            AllocationError: another lease has some of it; nothing was noted.
        """
        node = self.node
        cpus = int(lease.cpus)
        memory = lease.memory_by_node
        devices = {name: ids for name, ids in lease.devices.items() if name in self.inventory}
        claims = {name: ids for name, ids in lease.devices.items() if name.startswith(CLAIM)}

        try:
            if node.memory is not None and memory:
                node.memory.adopt(lease.id, _CONTAINER, memory, f"{_LEASE}/{id_words(lease.id)}")
            if self._memory is not None and _MEMORY in memory:
                self._memory.adopt(lease.id, memory[_MEMORY])
            if node.cpu is not None and cpus:
                node.cpu.adopt(lease.id, _CONTAINER, cpus)
            if node.devices is not None and devices:
                node.devices.adopt(lease.id, _CONTAINER, devices)
            if node.claims is not None:
                node.claims.adopt(lease.id, claims)
        except AllocationError:
            self.release(lease.id)
            raise

        self._gpus.take(lease.id, lease.devices)

    def release(self, lease_id: str) -> None:
        """Take back what a lease holds; nothing if it is not known."""
        self._gpus.release(lease_id)
        try:
            self.node.remove(lease_id)
        except UnknownPodError:
            for provider in self.node.manager.providers:
                provider.release(lease_id, _CONTAINER)

    def place(self, request: LeaseRequest, leases: Iterable[LeaseRecord] = ()) -> LeaseRecord:
        """Return the lease that a request gets; it is noted as held.

        Args:
            request: what is wanted, and by whom.
            leases: those that are held, for the words about a part that is not free.

        Raises:
            AllocationError: the request cannot be met; nothing has changed.
            InputError: the machine cannot be asked for that, such as a part of more parts than it
                has CPUs.
        """
        demand = request.demand
        if demand.part is None:
            cpus, devices = self._admit(demand, request.id)
            self._gpus.take(request.id, devices)
        else:
            cpus, devices = self._take_part(request, leases, self.part_of(demand))

        shares = self._shares(demand, request.id, cpus, devices)
        memory: list[MemoryShare] = []
        for kind, sizes in shares.items():
            memory += [MemoryShare(node_id, kind, size) for node_id, size in sizes.items()]

        return LeaseRecord(
            id=request.id,
            name=request.name,
            process=request.holder,
            keeper=request.keeper,
            command=request.command,
            policy=demand.policy,
            cpus=cpus,
            taken_at=int(time.time()),
            numa_nodes=self._numa_nodes(cpus, shares, devices),
            memory=tuple(memory),
            devices={resource: ids for resource, ids in devices.items() if ids},
        )

    def _shares(
        self, demand: Request, lease_id: str, cpus: CPUSet, devices: Mapping[str, tuple[str, ...]]
    ) -> Mapping[str, Mapping[int, int]]:
        """Return the memory of a lease, by type and kernel node id.

        Without a kubelet's rules it is taken now.

        Raises:
            AllocationError: too little is free; the lease holds nothing.
        """
        if self.node.memory is not None:
            return self.node.memory.shares(lease_id, _CONTAINER)
        if self._memory is None or not demand.memory:
            return {}

        machine = self._site.machine
        home = overlapping(machine.node_cpus, int(cpus))
        if not home:
            home = bit_set(map(machine.position, self._near(devices)))

        affinity = self.node.manager.affinities(lease_id).get(_CONTAINER)
        if not home and affinity is not None and affinity.affinity is not None:
            home = int(affinity.affinity)

        strict = demand.policy in STRICT_POLICIES
        try:
            self._memory.take(lease_id, demand.memory, home, demand.policy, strict=strict)
        except AllocationError:
            self.release(lease_id)
            raise

        return self._memory.shares(lease_id)

    def part_of(self, demand: Request) -> Part:
        """Return the part of the machine that a request for one names.

        Raises:
            InputError: the machine cannot be cut so.
        """
        assert demand.part is not None  # noqa: S101  # asked only then
        cpus = demand.cpus * self._site.threads
        site = replace(self._site, seen=demand.seen)
        parts = cut_machine(site, self.inventory, demand.part.parts, cpus, demand.devices)
        return parts[demand.part.rank]

    def _hidden(self, demand: Request) -> dict[str, tuple[set[str], str]]:
        """Return by resource the ids that a request may not get, and why."""
        unseen = hidden_ids(demand.seen, self.inventory) if demand.seen else {}
        hidden: dict[str, tuple[set[str], str]] = {}
        for resource in demand.devices:
            if resource not in self.inventory:
                continue

            ids = unseen.get(resource, set())
            taken = self._gpus.taken(resource)
            reasons = [demand.seen[resource].reason] if ids else []
            reasons += [OTHER_NAME] if taken - ids else []
            if reasons:
                hidden[resource] = ids | taken, " or ".join(reasons)

        return hidden

    def _policy(self, name: str) -> tuple[Policy, Scope]:
        """Return a policy and its scope, made when it is first asked for."""
        if name not in self._policies:
            machine = self._site.machine
            options = self.node.config.topology_manager_policy_options
            policy = make_policy(name, len(machine.numa_nodes), machine.distance_matrix, options)
            self._policies[name] = policy, make_scope("container", policy)

        return self._policies[name]

    def _admit(self, demand: Request, uid: str) -> tuple[CPUSet, Mapping[str, tuple[str, ...]]]:
        """Return the CPUs and devices that the node decides on.

        Raises:
            AllocationError: the node refuses.
        """
        node = self.node
        pod = self._pod(demand, uid)
        hiding: AbstractContextManager[None] = nullcontext()
        hidden = self._hidden(demand)
        if hidden and node.devices is not None:
            hiding = node.devices.hiding(hidden)

        with node.manager.lock.guard() as guard, guard.take(), hiding:
            if demand.near is None:
                refusal = self._decide(pod, demand.policy)
            else:
                refusal = self._decide_near(pod, demand.policy, demand.near)

            if refusal is not None:
                # startup counts
                from alignup.topology_manager.refusal_message import cause  # noqa: PLC0415

                detail = refusal.detail
                if not detail:
                    why = cause(refusal, self._site.machine.numa_node_ids)
                    detail = f"policy {refusal.policy}: {why}"
                raise AllocationError(detail, refusal.reason)

        cpus = None
        if node.cpu is not None:
            cpus = node.cpu.cpus(uid, _CONTAINER)

        devices: dict[str, tuple[str, ...]] = {}
        if node.devices is not None:
            devices.update(node.devices.devices(uid, _CONTAINER))
        if node.claims is not None:
            for name, claim in node.claims.held.get(uid, {}).items():
                template, _, _ = name.rpartition("/")
                resource = f"{CLAIM}{template}"
                ids = (str(device.id) for device in claim.allocated or ())
                devices[resource] = (*devices.get(resource, ()), *ids)

        return cpus or CPUSet(), devices

    def _decide(self, pod: Pod, policy_name: str) -> Refusal | None:
        """Admit a pod under a policy; or return the refusal, which leaves no trace."""
        restore = self.node.bindings() if pod.memory else None
        policy, scope = self._policy(policy_name)
        refusal = self.node.manager.decide(pod, policy, scope)
        if refusal is not None and restore is not None:
            restore()
        return refusal

    def _decide_near(self, pod: Pod, policy_name: str, near: Near) -> Refusal | None:
        """Admit a pod near something; or return the refusal, which leaves no trace.

        Strict policies refuse what does not fit on the nearest nodes. Under best-effort the nearest
        nodes where the pod fits as it would on an empty machine are taken; where there are none,
        the nodes that its merge finds.
        """
        rings = self._nearness.rings(near.numa_nodes)
        if policy_name not in STRICT_POLICIES:
            for ring in rings:
                with self._nearness.wanted(near.name, ring):
                    if self._decide(pod, _FITTING) is None:
                        return None

        with self._nearness.wanted(near.name, rings[0]):
            return self._decide(pod, policy_name)

    def _pod(self, demand: Request, uid: str) -> Pod:
        """Return what is asked for, as a pod of one container."""
        memory = ((_MEMORY, demand.memory),) if demand.memory else ()
        devices = tuple(
            (resource, count)
            for resource, count in demand.devices.items()
            if resource in self.inventory
        )
        claims = []
        for resource, count in demand.devices.items():
            if resource.startswith(CLAIM):
                template = resource.removeprefix(CLAIM)
                claims += [
                    PodClaim(f"{template}/{number}", template=template) for number in range(count)
                ]

        cpus = demand.cpus * self._site.threads
        container = Container(_CONTAINER, exclusive_cpus=cpus, memory=memory, devices=devices)
        return Pod(
            uid=uid,
            name=id_words(uid),
            namespace=_LEASE,
            containers=(container,),
            qos=QOSClass.GUARANTEED,
            exclusive_cpus=cpus,
            memory=memory,
            devices=devices,
            constraints=NodeConstraints(claims=tuple(claims)),
        )

    def _take_part(
        self, request: LeaseRequest, leases: Iterable[LeaseRecord], part: Part
    ) -> tuple[CPUSet, Mapping[str, tuple[str, ...]]]:
        """Return the CPUs and devices of the part, if no lease has any of them.

        Raises:
            AllocationError: a lease does, or there is too little memory.
        """
        _check_part_free(part, leases)
        for resource, ids in part.devices.items():
            common_ids = sorted(self._gpus.taken(resource).intersection(ids))
            if common_ids:
                raise AllocationError(
                    f"part {part.rank} of the machine (CPUs {part.cpus}) is not free: {OTHER_NAME} "
                    f"({resource} {', '.join(common_ids)})"
                )

        node = self.node
        if node.memory is not None and request.demand.memory:
            machine = self._site.machine
            mask = BitMask([machine.position(numa_id) for numa_id in part.numa_nodes])
            pod = self._pod(request.demand, request.id)
            node.memory.allocate(pod, pod.containers[0], TopologyHint(mask, True))

        devices = dict(part.devices)
        self.adopt(
            LeaseRecord(request.id, request.name, request.holder, cpus=part.cpus, devices=devices)
        )
        return part.cpus, devices

    def _numa_nodes(
        self,
        cpus: CPUSet,
        shares: Mapping[str, Mapping[int, int]],
        devices: Mapping[str, tuple[str, ...]],
    ) -> tuple[int, ...]:
        """Return what `LeaseRecord.numa_nodes` is for some CPUs, memory and devices."""
        machine = self._site.machine
        nodes = set(ids_of(overlapping(machine.node_cpus, int(cpus)), machine.numa_node_ids))
        nodes |= {numa_id for sizes in shares.values() for numa_id, size in sizes.items() if size}
        return tuple(sorted(nodes or self._near(devices)))

    def _near(self, devices: Mapping[str, tuple[str, ...]]) -> set[int]:
        """Return the nodes that some devices are near to."""
        nodes_of_claims: Mapping[str, tuple[int, ...] | None] = {}
        if self.node.claims is not None:
            near = self.node.claims.near
            nodes_of_claims = {str(device_id): node_ids[:1] for device_id, node_ids in near.items()}

        near_nodes: set[int] = set()
        for resource, ids in devices.items():
            nodes_by_id = nodes_of_claims
            if not resource.startswith(CLAIM):
                nodes_by_id = {device.id: device.numa_nodes for device in self.inventory[resource]}
            for device_id in ids:
                near_nodes.update(nodes_by_id.get(device_id) or ())

        return near_nodes


def _for_leases(resources: Resources) -> Resources:
    """Return the objects of claims for leases.

    Each lease has claims of its own, made as of templates.
    """
    allocated = [claim for claim in resources.claims if claim.allocated is not None]
    free = [claim for claim in resources.claims if claim.allocated is None]
    templates = [
        structs.replace(template, namespace=_LEASE) for template in (*free, *resources.templates)
    ]
    return replace(resources, claims=tuple(allocated), templates=tuple(templates))


def hidden_ids(
    seen: Mapping[str, Seen], inventory: Mapping[str, Sequence[Device]]
) -> dict[str, set[str]]:
    """Return by resource the ids of the devices that a process does not see.

    There are none of a resource whose ids tell nothing of what it sees.
    """
    hidden: dict[str, set[str]] = {}
    for resource, view in seen.items():
        devices = inventory.get(resource, ())
        chosen = choice_of(devices, view.names)
        if chosen is not None:
            hidden[resource] = {device.id for device in devices} - chosen

    return hidden


def cut(
    site: Site,
    inventory: Mapping[str, Sequence[Device]],
    count: int,
    cpus_per_part: int,
    devices: Mapping[str, int],
) -> tuple[Part, ...]:
    """Return a machine, with devices, in equal parts.

    Raises:
        InputError: it cannot be cut so, or there is a GPU that CUDA has no number for.
    """
    threads = site.threads
    if threads > 1 and not cpus_per_part:
        cpus_per_part = site.placed.cpu_count // count // threads

    parts = []
    for part in cut_machine(site, inventory, count, cpus_per_part * threads, devices):
        visible = site.visible(part.devices, inventory)
        parts.append(replace(part, cpus=site.bound(part.cpus), visible=visible))

    return tuple(parts)


def notes(site: Site, parts: Sequence[Part]) -> Iterator[str]:
    """Yield what may surprise the owners of parts, in a sentence each."""
    from alignup.host.parts.cut import shared_cores  # noqa: PLC0415  # startup counts

    shared = shared_cores(site.machine, (int(part.cpus) for part in parts))
    if shared:
        yield (
            f"CPUs {shared} are of cores that several parts have: no such parts of whole cores "
            "alone were found"
        )

    part_nodes = {node_id for part in parts for node_id, _ in part.memory}
    open_nodes = ids_of(site.memory_rule.open_nodes(site.machine), site.machine.numa_node_ids)
    unused = set(open_nodes) - part_nodes
    nodes = (site.whole or site.machine).numa_nodes
    unused_nodes = CPUSet(node.id for node in nodes if node.id in unused and not node.cores)
    if unused_nodes:
        yield (
            f"NUMA nodes {unused_nodes} have memory and no CPUs, and no part has any of it: "
            "--memory-kind any shares it out"
        )


def cut_machine(
    site: Site,
    inventory: Mapping[str, Sequence[Device]],
    count: int,
    cpus: int,
    devices: Mapping[str, int],
) -> tuple[Part, ...]:
    """Return a machine in equal parts.

    They are those of `split_machine`, or with options what the CPU manager gives.

    Args:
        site: the machine.
        inventory: its devices, by resource.
        count: how many parts.
        cpus: CPUs of each; 0: as many as there are for everybody.
        devices: by resource, how many devices each.

    Raises:
        InputError: it cannot be cut so.
    """
    from alignup.host.parts.cut import parts_with, split_machine  # noqa: PLC0415  # startup counts

    has_claims = any(name.startswith(CLAIM) for name in devices)
    options = site.cpu_options
    # Those that `split_machine` knows too, where a part is not what a kubelet would give.
    split_options = CpuOptions()
    if not site.as_kubelet:
        split_options = CpuOptions(
            full_pcpus_only=options.full_pcpus_only,
            prefer_align_cpus_by_uncorecache=options.prefer_align_cpus_by_uncorecache,
        )

    hidden = hidden_ids(site.seen, inventory)
    is_plain = options == split_options and not (has_claims or site.layout or site.pair)
    if is_plain and any(site.sights.get(name) or hidden.get(name) for name in devices):
        return _parts_of_seen(site, inventory, count, cpus, devices, hidden)

    inventory = {
        resource: [device for device in all_devices if device.id not in hidden.get(resource, ())]
        for resource, all_devices in inventory.items()
    }

    if (options == split_options or site.layout) and not has_claims:
        return split_machine(
            site.placed if site.idle_siblings else site.machine,
            count,
            cpus_per_part=cpus,
            devices=devices,
            inventory=inventory,
            preferred_sets=site.preferred_sets,
            pair=site.pair,
            layout=site.layout,
            same_l3=split_options.prefer_align_cpus_by_uncorecache,
            full_cores=split_options.full_pcpus_only,
            memory=site.memory_rule,
        )

    threads = max(len(core.cpus) for node in site.machine.numa_nodes for core in node.cores)
    share = cpus or site.machine.cpu_count // count // threads * threads
    demand = Request(cpus=share, devices=dict(sorted(devices.items())), policy=DEFAULT_POLICY)
    whole = replace(site, inventory=inventory, idle_siblings=False)
    node = LeaseNode(whole)
    leases = []
    for rank in range(count):
        request = LeaseRequest(
            demand, ProcessIdentity(0, 0, "", 0), command="", name="", id=f"part {rank}"
        )
        try:
            leases.append(node.place(request))
        except AllocationError as error:
            raise InputError(f"part {rank} of {count} does not fit: {error.detail}") from error

    shares = [(int(lease.cpus), lease.devices) for lease in leases]
    return parts_with(site.machine, shares, site.memory_rule)


def _parts_of_seen(
    site: Site,
    inventory: Mapping[str, Sequence[Device]],
    count: int,
    cpus: int,
    devices: Mapping[str, int],
    hidden: Mapping[str, set[str]],
) -> tuple[Part, ...]:
    """Return parts near the devices that a process sees, as `alignup.bind` gives them to ranks.

    Raises:
        InputError: there are too few.
    """
    from alignup.host.parts.device_shares import (  # noqa: PLC0415  # startup counts
        DeviceParts,
        ShareRules,
    )

    counts = {resource: number for resource, number in devices.items() if number}
    sights = {}
    for resource in counts:
        healthy = tuple(device for device in inventory[resource] if device.healthy)
        view = Sight(healthy, healthy)
        if resource in hidden:
            seen = tuple(device for device in healthy if device.id not in hidden[resource])
            view = Sight(healthy, seen, site.seen[resource].reason)
        sights[resource] = site.sights.get(resource, view)

    rules = ShareRules(
        cpus=cpus,
        full_cores=site.cpu_options.full_pcpus_only,
        preferred_sets=site.preferred_sets,
        memory=site.memory_rule,
        names_arguments=False,
    )
    machine = site.placed if site.idle_siblings else site.machine
    job = DeviceParts(machine, count, counts, sights, rules, tuple(VISIBLE))
    return tuple(job.part(rank) for rank in range(count))


def _check_part_free(part: Part, leases: Iterable[LeaseRecord]) -> None:
    """Reject a part that a lease overlaps.

    Raises:
        AllocationError: one has.
    """
    refusal = f"part {part.rank} of the machine (CPUs {part.cpus}) is not free"
    for lease in leases:
        common_cpus = lease.cpus & part.cpus
        if common_cpus:
            raise AllocationError(
                f"{refusal}: CPUs {common_cpus} are in use by '{id_words(lease.id)}'"
            )

        for resource, ids in part.devices.items():
            common_ids = sorted(set(ids) & set(lease.devices.get(resource, ())))
            if common_ids:
                raise AllocationError(
                    f"{refusal}: {resource} {', '.join(common_ids)} in use by "
                    f"'{id_words(lease.id)}'"
                )


def _config(site: Site, version: KubeletVersion, *, has_memory: bool) -> KubeletConfig:
    """Return the configuration of the node: close nodes are preferred where distances are known."""
    machine = site.machine
    reserved: tuple[ReservedMemory, ...] = ()
    if has_memory:
        roomy = max(machine.numa_nodes, key=lambda node: node.memory)
        reserved = (ReservedMemory(roomy.id, ((_MEMORY, _PAGE),)),)

    wide = "max-allowable-numa-nodes" in release_of(version).topology_options
    return KubeletConfig(
        topology_manager_policy="none",
        topology_manager_policy_options=TopologyOptions(
            prefer_closest_numa_nodes=machine.distance_matrix is not None,
            max_allowable_numa_nodes=MAX_NUMA_NODES if wide else DEFAULT_MAXIMUM,
        ),
        cpu_manager_policy="static",
        cpu_manager_policy_options=site.cpu_options,
        memory_manager_policy="Static" if has_memory else "None",
        reserved_memory=reserved,
        version=version,
    )
