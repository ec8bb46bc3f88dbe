"""The claims of pods on one node.

Their devices may be near the pods' CPUs and memory or not: the scheduler chooses the devices of
claims before the kubelet chooses CPUs and memory, and neither looks at the other. `ClaimProvider`
allocates as they do, or gives hints, as the device manager does for the devices of plugins.
"""

from __future__ import annotations

import re
from collections import Counter
from copy import copy
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from alignup.claims import objects
from alignup.claims.allocation import allocate
from alignup.claims.consumed_capacity import full_name_of
from alignup.claims.extended_resources import ExtendedResources, with_resources
from alignup.claims.objects import STANDARD_NUMA_NODE, attribute_of
from alignup.claims.pools import gather_pools, is_for
from alignup.claims.question import AllocationError, Effort, InUse, Question, in_use
from alignup.claims.read import Resources, claims_of_pod
from alignup.claims.refusal_reasons import why_not
from alignup.claims.scheduler_gates import Gates, gates_of
from alignup.errors import AllocationError as NotAllocatedError
from alignup.kubernetes.pod import beyond_level
from alignup.kubernetes.quantity import in_units_of_each
from alignup.machine.bits import bit_numbers, bit_set, ids_of, overlapping
from alignup.records import Record, replace
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.kubernetes.node_fit import NodeObject
    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.machine import Machine
    from alignup.topology_manager.admission import ContainerAllocation
    from alignup.topology_manager.provider import ResourceHints

# The reason of a pod that no scheduler sends to the node, since its claims cannot be allocated
# there.
UNSCHEDULABLE: Final = "Unschedulable"
_BILLION: Final = 10**9
_NO_OVERHEAD: Final = objects.Overhead()
# On a machine with more NUMA nodes, hints are given for one or two of them, and for all.
_MOST_LISTED: Final = 8
PCI_ADDRESS: Final = "resource.kubernetes.io/pciBusID"
# Attributes that name a NUMA node: the standard one (KEP-6072), and vendors' from before it.
NUMA_ATTRIBUTES: Final = (
    STANDARD_NUMA_NODE,
    "dra.net/numaNode",
    "dra.cpu/numaNodeID",
    "dra.cpu/numaNode",
    "dra.memory/numaNode",
    "gpu.nvidia.com/numaNode",
    "gpu.amd.com/numaNode",
    "gpu.intel.com/numaNode",
)
_ADDRESS: Final = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_address_of(driver: str, device: objects.Device) -> str:
    """Return the PCI address that a device publishes; empty: none."""
    for name in (
        PCI_ADDRESS,
        f"{driver}/pciBusID",
        f"{driver}/pciAddress",
        f"{driver}/pciBusAddress",
    ):
        value = attribute_of(device, driver, name)
        if value is not None and value.values and isinstance(value.values[0], str):
            address = value.values[0].lower()
            if _ADDRESS.fullmatch(address):
                return address if address.count(":") > 1 else f"0000:{address}"

    return ""


def numa_nodes_of(
    driver: str, device: objects.Device, by_address: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the NUMA nodes of a device; empty: not known.

    Of a list, the first is the node that the device is near; the others are of the same socket.

    Args:
        driver: of the device.
        device: with its attributes.
        by_address: the NUMA nodes of the machine's PCI devices.
    """
    name = numa_attribute_of(driver, device)
    if name:
        value = attribute_of(device, driver, name)
        return () if value is None else tuple(map(int, value.values))

    node = by_address.get(pci_address_of(driver, device), -1)
    return (node,) if node >= 0 else ()


def numa_attribute_of(driver: str, device: objects.Device) -> str:
    """Return the full name of the attribute that tells a device's NUMA node; empty: none does."""
    for name in (*NUMA_ATTRIBUTES, f"{driver}/numaNode", f"{driver}/numa"):
        value = attribute_of(device, driver, name)
        if value is not None and value.kind == "int" and value.values:
            return name

    return ""


class ClaimedDevice(Record):
    """A device that a claim of a pod has.

    Attributes:
        numa_nodes: kernel ids, the nearest first; empty: not known.
    """

    claim: str
    request: str
    id: objects.DeviceId
    numa_nodes: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the device in JSON's types."""
        return {
            "claim": self.claim,
            "request": self.request,
            **self.id._asdict(),
            "numaNodes": list(self.numa_nodes),
        }


def node_resources(
    claim: objects.Claim,
    devices: Mapping[objects.DeviceId, objects.Device],
    users: int,
    gates: Gates,
) -> Counter[str]:
    """Return what an allocated claim counts as on the node, in billionths.

    A resource is there, be it with 0, where a device says that it counts as such.

    Source: `buildNodeAllocatableDRAInfo`.

    Args:
        claim: with its devices.
        devices: those that the node reaches.
        users: how many containers use the claim.
        gates: of the scheduler.

    Raises:
        AllocationError: a device counts by a capacity, and the allocation does not tell what it
            takes; or, from 1.38 on, it takes or counts less than nothing.
    """
    amounts: Counter[str] = Counter()
    for allocated in claim.allocated or ():
        device = devices.get(allocated.id)
        if device is None:
            continue

        for name, resource in device.node_allocatable_resources.items():
            overhead = resource.overhead
            if overhead != _NO_OVERHEAD:
                amounts[name] += overhead.per_pod + users * overhead.per_container

            if resource.mapping is not None:
                try:
                    mapped = _mapped(resource.mapping, allocated, gates)
                except AllocationError as error:
                    where = f"claim {claim}, device {allocated.device}"
                    raise AllocationError(f"{where}: {error} for resource {name}") from error

                if mapped is not None:
                    amounts[name] += mapped

    return amounts


def _mapped(mapping: objects.Mapping, allocated: objects.Allocated, gates: Gates) -> int | None:
    """Return how much of a resource a device stands for, in billionths; None: it does not say.

    Raises:
        AllocationError: as `node_resources`.
    """
    key = mapping.capacity_key
    if not key:
        return mapping.device_multiplier or None

    if allocated.consumed_capacity is None:
        problem = f"ConsumedCapacity is nil, but Capacity key '{key}' is set in"
        raise AllocationError(f"{problem} NodeAllocatableResources")

    consumed = _consumed_of(allocated, key, gates)
    if consumed is None:
        return None

    product = consumed * mapping.capacity_multiplier
    if not gates.is_before_38 and (consumed < 0 or product < 0):
        raise AllocationError(f"what Capacity key '{key}' counts as must not be negative")

    return -(-product // _BILLION)


def _consumed_of(allocated: objects.Allocated, key: str, gates: Gates) -> int | None:
    """Return what an allocation takes of a capacity, from 1.38 on by either of its names.

    None: it does not say.

    Source: `LookupByQualifiedName`.
    """
    amounts: Mapping[str, int] = allocated.consumed_capacity or {}
    names = [key]
    if not gates.is_before_38:
        full_name = full_name_of(key, allocated.driver)
        names = [full_name]
        if full_name.startswith(f"{allocated.driver}/"):
            names.append(full_name.removeprefix(f"{allocated.driver}/"))

    for name in names:
        if name in amounts:
            return amounts[name]

    return None


class ClaimProvider:
    """Gives pods the devices of their claims on one node.

    Args:
        machine: the node's, which knows where PCI devices are.
        resources: the cluster's slices, classes, claims and templates; claims with an allocation
            hold their devices.
        node: its name and labels.
        gates: of the scheduler; None: those of the newest release.
        gives_hints: give hints, and devices near the NUMA nodes that were chosen; False: as today,
            the scheduler's devices whatever the kubelet chooses.
    """

    name = "claims"

    def __init__(
        self,
        machine: Machine,
        resources: Resources,
        node: NodeObject,
        gates: Gates | None = None,
        *,
        gives_hints: bool = False,
    ) -> None:
        self.machine = machine
        self.resources = resources
        self.gives_hints = gives_hints
        self._node = node
        self._gates = gates or gates_of()
        self.extended = ExtendedResources.of(resources.classes, self._gates)
        self.held: dict[str, dict[str, objects.Claim]] = {}
        # What may be spent on all questions from now on; None: on each anew.
        self.effort: Effort | None = None
        by_address = {
            pci_device.address: pci_device.numa_node
            for pci_device in machine.pci_devices
            if pci_device.numa_node is not None
        }
        # The NUMA nodes of each device that the node reaches, as in `ClaimedDevice`.
        self.near: dict[objects.DeviceId, tuple[int, ...]] = {}
        # The attributes by which devices tell their NUMA node.
        self.attributes: set[str] = set()
        self._devices: dict[objects.DeviceId, objects.Device] = {}
        self.slices = resources.slices_near(node.name)
        for pool in gather_pools(self.slices, node, self._gates):
            for part in pool.slices:
                for device in part.devices:
                    numa_nodes = numa_nodes_of(part.driver, device, by_address)
                    id_ = objects.DeviceId(part.driver, pool.name, device.name)
                    self.near[id_] = tuple(
                        numa_node for numa_node in numa_nodes if numa_node in machine.numa_node_ids
                    )
                    self.attributes.add(numa_attribute_of(part.driver, device))

        self.attributes.discard("")
        # what a device counts as is told by any slice for the node, of a pool that is being updated
        # as well
        for part in self.slices:
            for device in part.devices:
                owner = device if part.per_device_node_selection else part
                if is_for(owner, node):
                    id_ = objects.DeviceId(part.driver, part.pool.name, device.name)
                    self._devices.setdefault(id_, device)

    def copy(self, resources: Resources | None = None) -> ClaimProvider:
        """Return an independent provider with the same holdings.

        Args:
            resources: with other claims and templates; None: the same.
        """
        provider = copy(self)
        provider.held = {uid: dict(claims) for uid, claims in self.held.items()}
        if resources is not None:
            provider.resources = resources
            provider.extended = ExtendedResources.of(resources.classes, self._gates)

        return provider

    def read(self, pod: Pod, offered: Callable[[str], int | None]) -> Pod:
        """Return a pod with the claim that the scheduler makes for its extended resources here.

        The arguments are those of `ExtendedResources.on_node`.
        """
        return self.extended.on_node(pod, offered, self.resources.claims)

    def devices(self, pod_uid: str) -> tuple[ClaimedDevice, ...]:
        """Return the devices of a pod.

        Claims are in the pod's order, the devices of a claim in the scheduler's.
        """
        return tuple(
            ClaimedDevice(
                str(claim), allocated.request, allocated.id, self.near.get(allocated.id, ())
            )
            for claim in self.held.get(pod_uid, {}).values()
            for allocated in claim.allocated or ()
        )

    def why_not(self, pod: Pod) -> str:
        """Return why a pod's claims cannot be allocated, and what would help; empty: they can."""
        problem = self.extended.problem(pod)
        if problem:
            return problem

        waiting = waiting_of(self.claims(pod))
        try:
            if self._solved(waiting, None) is not None:
                return ""
        except AllocationError as error:
            return str(error)

        refusal = why_not(self._question(waiting.values(), None))
        helps = [f"would help: {change}" for change in refusal.helps]
        sentences = "; ".join([f"{refusal.where}: {refusal.text}", *helps])
        return with_resources(sentences, self.extended.uses(pod))

    def claims(self, pod: Pod, container: Container | None = None) -> dict[str, objects.Claim]:
        """Return the claims of a pod or of one container by the pod's names for them.

        They are allocated where the pod's, or another's, are. What no container uses counts to the
        first.
        """
        first = pod.all_containers[0].name
        claims = {}
        pod_claims = pod.constraints.claims
        named_claims = claims_of_pod(pod, self.resources, self.extended)
        for pod_claim, claim in zip(pod_claims, named_claims, strict=True):
            users = pod_claim.containers or (first,)
            if container is not None and container.name not in users:
                continue

            # a claim that is there by itself may be another pod's, too
            holdings: Iterable[Mapping[str, objects.Claim]] = [self.held.get(pod.uid, {})]
            if pod_claim.claim:
                holdings = self.held.values()

            claims[pod_claim.name] = _among(holdings, str(claim)) or claim

        return claims

    def _question(
        self, claims: Iterable[objects.Claim], mask: int | None, used: InUse | None = None
    ) -> Question:
        if used is None:
            held_claims = {
                id(claim): claim for by_name in self.held.values() for claim in by_name.values()
            }
            used = in_use([*self.resources.claims, *held_claims.values()], self._gates)

        excluded: frozenset[objects.DeviceId] = frozenset()
        if mask is not None:
            excluded = frozenset(id_ for id_ in self.near if self._bits([id_]) & ~mask)

        return Question(
            self._node,
            self.slices,
            self.resources.classes,
            tuple(claims),
            used,
            self._gates,
            excluded,
            self.effort or Effort(),
        )

    def _bits(self, devices: Iterable[objects.DeviceId]) -> int:
        """Return the nearest NUMA nodes of devices as bits, by position."""
        return bit_set(
            self.machine.position(numa_node)
            for id_ in devices
            for numa_node in self.near.get(id_, ())[:1]
        )

    def _solved(
        self, claims: Mapping[str, objects.Claim], mask: int | None, used: InUse | None = None
    ) -> dict[str, objects.Claim] | None:
        """Return claims with their allocation, of devices near NUMA nodes; None: there is none.

        Raises:
            AllocationError: the scheduler would fail, or a bound was hit.
        """
        if not claims:
            return {}

        allocated = allocate(self._question(claims.values(), mask, used))
        if allocated is None:
            return None

        return dict(zip(claims, allocated, strict=True))

    def are_aligned(self, pod: Pod, containers: Mapping[str, ContainerAllocation]) -> bool | None:
        """Return whether each container's claimed devices are near its CPUs, and near its memory.

        None: that cannot be told, since its CPUs are shared and its memory is not pinned, or no
        device tells where it is.

        Args:
            pod: a pod that was admitted.
            containers: what the kubelet gave it.
        """
        is_known = False
        claims = self.claims(pod)
        for pod_claim in pod.constraints.claims:
            claim = str(claims[pod_claim.name])
            devices = [
                device
                for device in self.devices(pod.uid)
                if device.claim == claim and device.numa_nodes
            ]
            for name in pod_claim.containers or containers:
                near = {
                    device.numa_nodes[0]
                    for device in devices
                    if pod_claim.is_used(name, device.request)
                }
                if not near or name not in containers:
                    continue

                for numa_nodes in self._places(containers[name]):
                    if not near <= numa_nodes:
                        return False

                    is_known = True

        return True if is_known else None

    def _places(self, allocation: ContainerAllocation) -> Iterator[set[int]]:
        """Yield the NUMA nodes of a container's CPUs, and those of its memory, if it has some."""
        mask = overlapping(self.machine.node_cpus, int(allocation.cpus or 0))
        if mask:
            yield set(ids_of(mask, self.machine.numa_node_ids))

        blocks = [block for block in allocation.memory if block.size]
        memory_nodes = {numa_node for block in blocks for numa_node in block.numa_nodes}
        if memory_nodes:
            yield memory_nodes

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return near which NUMA nodes the container's claims can be allocated."""
        if not self.gives_hints:
            return None

        return self._hints(self.claims(pod, container))

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for all claims of the pod."""
        if not self.gives_hints:
            return None

        return self._hints(self.claims(pod))

    def _hints(self, claims: Mapping[str, objects.Claim]) -> ResourceHints:
        near_nodes = self._bits(self.near)
        if not claims or not near_nodes:
            return None

        waiting = waiting_of(claims)
        fixed_nodes = self._bits(
            allocated.id for claim in claims.values() for allocated in claim.allocated or ()
        )
        smallest = _smallest(
            near_nodes, fixed_nodes, lambda mask: self._can(waiting, mask, used=None)
        )
        if not smallest:
            return {"claims": []}

        # as the device manager does, the smallest set counts that would do if nobody held anything
        if_unused = _smallest(
            near_nodes, fixed_nodes, lambda mask: self._can(waiting, mask, used=InUse())
        )
        size = max(1, if_unused[0].bit_count())

        count = len(self.machine.numa_nodes)
        masks: Iterable[int] = range(1, 1 << count)
        if count > _MOST_LISTED:
            masks = list(_subsets(range(count)))[1:]

        sufficient = (mask for mask in masks if any(part & ~mask == 0 for part in smallest))
        hints = (
            TopologyHint(BitMask.from_int(mask), mask.bit_count() == size) for mask in sufficient
        )
        return {"claims": HintList(hints)}

    def _can(self, claims: Mapping[str, objects.Claim], mask: int, used: InUse | None) -> bool:
        try:
            return self._solved(claims, mask, used) is not None
        except AllocationError:
            return False

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the pod, or with hints the container, the devices of its claims.

        Raises:
            AllocationError: they cannot be allocated.
        """
        held_claims = self.held.get(pod.uid, {})
        if not pod.constraints.claims or (held_claims and not self.gives_hints):
            return

        problem = self.extended.problem(pod)
        if problem:
            raise NotAllocatedError(problem, UNSCHEDULABLE)

        claims = self.claims(pod, container if self.gives_hints else None)
        waiting = waiting_of(claims)
        mask = None
        if self.gives_hints and affinity.affinity is not None:
            mask = int(affinity.affinity)

        try:
            allocated = self._solved(waiting, mask)
            if allocated is None and mask is not None:
                allocated = self._solved(waiting, None)
        except AllocationError as error:
            raise NotAllocatedError(
                f"cannot allocate all claims: {error}", UNSCHEDULABLE
            ) from error

        if allocated is None:
            raise NotAllocatedError("cannot allocate all claims", UNSCHEDULABLE)

        self.held[pod.uid] = {**held_claims, **claims, **allocated}
        if self._gates.node_resources:
            self._check_node_resources(pod)

    def _check_node_resources(self, pod: Pod) -> None:
        """Refuse what the scheduler does not let count on the node.

        Source: `nodeallocatabledynamicresources.go`.

        Raises:
            AllocationError: another pod has a claim that counts, or the pod as a whole requests
                less than counts.
        """
        claims_of_others = {
            str(claim)
            for uid, claims in self.held.items()
            if uid != pod.uid
            for claim in claims.values()
        }
        for claim in self.held[pod.uid].values():
            try:
                node_resources(claim, self._devices, 0, self._gates)
            except AllocationError as error:
                raise NotAllocatedError(str(error), UNSCHEDULABLE) from error

            if str(claim) in claims_of_others and self._is_mapped(claim):
                problem = f"node allocatable resource claim {claim.name} has a mapped device"
                raise NotAllocatedError(
                    f"{problem} and cannot be shared across pods", UNSCHEDULABLE
                )

        of_pod, overheads = self._counted(pod)
        by_container = {container.name: Counter[str]() for container in pod.all_containers}
        for claim, users in self._users(pod):
            for name in set(users):
                by_container[name].update(node_resources(claim, self._devices, 1, self._gates))

        if of_pod or overheads:
            problem = beyond_level(pod, of_pod, by_container, overheads)
            if problem:
                raise NotAllocatedError(problem, UNSCHEDULABLE)

    def _counted(self, pod: Pod) -> tuple[Counter[str], dict[str, Counter[str]]]:
        """Return what a pod's claims count as, in billionths: as a whole, and by container.

        Up to 1.37, all of it counts for the pod as a whole. A claim of which `node_resources`
        cannot tell what it counts as counts as nothing.
        """
        of_pod = Counter[str]()
        by_container: dict[str, Counter[str]] = {}
        for claim, users in self._users(pod):
            try:
                whole = node_resources(claim, self._devices, 0, self._gates)
            except AllocationError:
                continue

            overhead = node_resources(claim, self._devices, 1, self._gates)
            overhead.subtract(whole)
            of_pod.update(whole)
            for container in users:
                if self._gates.is_before_38:
                    of_pod.update(overhead)
                elif +overhead:
                    by_container.setdefault(container, Counter()).update(+overhead)

        return of_pod, by_container

    def _is_mapped(self, claim: objects.Claim) -> bool:
        """Return whether a device of a claim counts as a resource of the node."""
        for allocated in claim.allocated or ():
            device = self._devices.get(allocated.id)
            if device is not None and any(
                resource.mapping for resource in device.node_allocatable_resources.values()
            ):
                return True

        return False

    def _users(self, pod: Pod) -> Iterator[tuple[objects.Claim, list[str]]]:
        """Yield the claims that a pod has, each once, and the containers that use it.

        A container comes once by each of the pod's names for a claim.
        """
        claims = self.held.get(pod.uid, {})
        users: dict[str, tuple[objects.Claim, list[str]]] = {}
        for pod_claim in pod.constraints.claims:
            if pod_claim.name in claims:
                claim = claims[pod_claim.name]
                _, containers = users.setdefault(str(claim), (claim, []))
                containers.extend(pod_claim.containers)

        yield from users.values()

    def counted(self, pod: Pod) -> Pod:
        """Return a pod with what the devices of its claims count as on the node.

        A pod whose status tells that stays as it is. Claims that were adopted without what they
        take of a capacity count nothing by it.
        """
        if not self.held.get(pod.uid):
            return pod
        if pod.constraints.claimed or not self._gates.node_resources:
            return pod

        of_pod, by_container = self._counted(pod)
        claimed_with = {
            container: in_units_of_each(overheads) for container, overheads in by_container.items()
        }
        constraints = replace(
            pod.constraints, claimed=in_units_of_each(of_pod), claimed_with=claimed_with
        )
        return replace(pod, constraints=constraints)

    def adopt(self, pod_uid: str, devices: Mapping[str, Iterable[str]]) -> None:
        """Note devices that a pod was given elsewhere, by claim, each as `driver/pool/device`.

        Raises:
            AllocationError: another pod has one of them.
        """
        held_devices = {
            str(allocated.id)
            for claims in self.held.values()
            for claim in claims.values()
            for allocated in claim.allocated or ()
        }
        adopted = {id_ for ids in devices.values() for id_ in ids}
        twice = sorted(held_devices & adopted)
        if twice:
            raise NotAllocatedError(f"another pod has {', '.join(twice)}", UNSCHEDULABLE)

        self.held[pod_uid] = {
            name: objects.Claim(
                name, allocated=tuple(objects.Allocated(*_parts_of_id(id_)) for id_ in ids)
            )
            for name, ids in devices.items()
        }

    def release(
        self,
        pod_uid: str,
        container_name: str,  # noqa: ARG002  # as for the other providers
    ) -> None:
        """Take back what the pod has: claims go with it."""
        self.held.pop(pod_uid, None)

    def account(self, pod: Pod, container: Container | None) -> Mapping[str, Callable[[], str]]:
        """Return what a refusal says of claims."""
        names = ", ".join(self.claims(pod, container))
        if not names:
            return {}

        return {"claims": lambda: f"devices of {names}"}


def _among(holdings: Iterable[Mapping[str, objects.Claim]], full_name: str) -> objects.Claim | None:
    """Return the claim of a namespace and name that a pod holds, if one does."""
    for claims in holdings:
        for claim in claims.values():
            if str(claim) == full_name:
                return claim

    return None


def _parts_of_id(text: str) -> objects.DeviceId:
    """Return the id of a device that `driver/pool/device` is, where the pool may have slashes."""
    driver, _, pool_and_device = text.partition("/")
    pool, _, device = pool_and_device.rpartition("/")
    return objects.DeviceId(driver, pool, device)


def waiting_of(claims: Mapping[str, objects.Claim]) -> dict[str, objects.Claim]:
    """Return those of some claims that have no allocation yet."""
    return {name: claim for name, claim in claims.items() if claim.allocated is None}


def _smallest(near_nodes: int, fixed_nodes: int, suffices: Callable[[int], bool]) -> list[int]:
    """Return the sets of NUMA nodes that will do and no subset of which will, the smallest first.

    Args:
        near_nodes: the NUMA nodes that matter.
        fixed_nodes: those that must be in it.
        suffices: whether a set will do; a larger one then does too.
    """
    masks: list[int] = []
    for mask in _subsets(list(bit_numbers(near_nodes))):
        has_fixed = not fixed_nodes & ~mask
        if has_fixed and all(smaller & ~mask for smaller in masks) and suffices(mask):
            masks.append(mask)

    return masks


def _subsets(bits: Sequence[int]) -> Iterator[int]:
    """Yield the sets of some positions, small ones first.

    Of many positions it is those of up to two, and all of them.
    """
    sizes: Iterable[int] = range(len(bits) + 1)
    if len(bits) > _MOST_LISTED:
        sizes = (0, 1, 2, len(bits))

    for size in sizes:
        for positions in combinations(bits, size):
            yield bit_set(positions)
