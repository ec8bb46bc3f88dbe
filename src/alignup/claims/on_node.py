"""The claims of pods on one node: which devices they get, and whether those meet the pods' CPUs and memory.

The scheduler chooses the devices of claims before the kubelet chooses CPUs and memory, and neither
looks at the other. `ClaimProvider` allocates as they do, or gives hints, as the device manager does
for the devices of plugins.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace as changed

from alignup.claims import objects
from alignup.claims.pools import gather_pools, is_for
from alignup.claims.problem import AllocationError, InUse, Question, allocate, attribute_of, in_use
from alignup.claims.read import Resources, claims_of_pod
from alignup.claims.scheduler_gates import Gates, gates_of
from alignup.claims.why import all_ways, why_not
from alignup.errors import AllocationError as NotAllocatedError
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.pod import beyond_level
from alignup.kubernetes.quantity import in_units
from alignup.machine.bits import bit_numbers, bit_set, ids_of, overlapping
from alignup.records import Record, replace
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.kubernetes.node_fit import NodeObject
    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.machine import Machine
    from alignup.topology_manager.admission import Admission, ContainerAllocation
    from alignup.topology_manager.provider import HintProvider, ResourceHints

# The reason of a pod that no scheduler sends to the node, since its claims cannot be allocated
# there.
UNSCHEDULABLE: Final = "Unschedulable"
CPU_DRIVER: Final = "dra.cpu"
_BILLION: Final = 10**9
# On a machine with more NUMA nodes, hints are given for one or two of them, and for all.
_MOST_LISTED: Final = 8
PCI_ADDRESS: Final = "resource.kubernetes.io/pciBusID"
# Attributes that name a NUMA node: the standard one (KEP-6072), and vendors' from before it.
NUMA_ATTRIBUTES: Final = (
    "resource.kubernetes.io/numaNode",
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
    if name := numa_attribute_of(driver, device):
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
    claim: objects.Claim, devices: Mapping[objects.DeviceId, objects.Device], users: int
) -> Counter[str]:
    """Return what an allocated claim counts as on the node, in billionths; source: `buildNodeAllocatableDRAInfo`.

    Args:
        claim: with its devices.
        devices: those that the node reaches.
        users: how many containers use the claim.

    Raises:
        AllocationError: a device counts by a capacity, and the allocation does not tell what it
            takes.
    """
    found: Counter[str] = Counter()
    for one in claim.allocated or ():
        for name, how in (
            devices[one.id].node_allocatable_resources.items() if one.id in devices else ()
        ):
            found[name] += how.overhead.per_pod + users * how.overhead.per_container
            if how.mapping is not None and (key := how.mapping.capacity_key):
                if one.consumed_capacity is None:
                    wrong = (
                        f"ConsumedCapacity is nil, but Capacity key '{key}' is set in "
                        "NodeAllocatableResources"
                    )
                    raise AllocationError(
                        f"claim {claim}, device {one.device}: {wrong} for resource {name}"
                    )

                taken = one.consumed_capacity.get(key, 0)
                found[name] += -(-taken * how.mapping.capacity_multiplier // _BILLION)
            elif how.mapping is not None:
                found[name] += how.mapping.device_multiplier

    return found


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
        self.held: dict[str, dict[str, objects.Claim]] = {}
        by_address = {
            one.address: one.numa_node for one in machine.pci_devices if one.numa_node is not None
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
                    nodes = numa_nodes_of(part.driver, device, by_address)
                    id_ = objects.DeviceId(part.driver, pool.name, device.name)
                    self.near[id_] = tuple(one for one in nodes if one in machine.numa_node_ids)
                    self.attributes.add(numa_attribute_of(part.driver, device))

        self.attributes.discard("")
        # what a device counts as is told by any slice for the node, of a pool that is being updated
        # as well
        for part in self.slices:
            for device in part.devices:
                if is_for(device if part.per_device_node_selection else part, node):
                    self._devices.setdefault(
                        objects.DeviceId(part.driver, part.pool.name, device.name), device
                    )

    def copy(self, resources: Resources | None = None) -> ClaimProvider:
        """Return an independent provider with the same holdings, and perhaps with other claims and templates."""
        other = copy(self)
        other.held = {uid: dict(held) for uid, held in self.held.items()}
        other.resources = resources or self.resources
        return other

    def devices(self, pod_uid: str) -> tuple[ClaimedDevice, ...]:
        """Return the devices of a pod, claim by claim in its order, those of a claim in the scheduler's order."""
        return tuple(
            ClaimedDevice(str(claim), one.request, one.id, self.near.get(one.id, ()))
            for claim in self.held.get(pod_uid, {}).values()
            for one in claim.allocated or ()
        )

    def why_not(self, pod: Pod) -> str:
        """Return why the claims of a pod cannot be allocated, and what would help; empty: they can."""
        waiting = _waiting(self.claims(pod))
        try:
            if self._solved(waiting, None) is not None:
                return ""
        except AllocationError as error:
            return str(error)
        refusal = why_not(self._question(waiting.values(), None))
        return f"{refusal.where}: {refusal.text}" + "".join(
            f"; would help: {one}" for one in refusal.helps
        )

    def claims(self, pod: Pod, container: Container | None = None) -> dict[str, objects.Claim]:
        """Return the claims of a pod or of one container by the pod's names for them, allocated where they are.

        What no container uses counts to the first.
        """
        first = pod.all_containers[0].name
        found = {}
        for one, claim in zip(
            pod.constraints.claims, claims_of_pod(pod, self.resources), strict=True
        ):
            if container is not None and container.name not in (one.containers or (first,)):
                continue
            # a claim that is there by itself may be another pod's, too
            holders = self.held.values() if one.claim else [self.held.get(pod.uid, {})]
            known = (
                other for held in holders for other in held.values() if str(other) == str(claim)
            )
            found[one.name] = next(known, claim)

        return found

    def _question(
        self, claims: Iterable[objects.Claim], mask: int | None, used: InUse | None = None
    ) -> Question:
        if used is None:
            held = {id(claim): claim for one in self.held.values() for claim in one.values()}
            used = in_use([*self.resources.claims, *held.values()], self._gates)
        excluded = [] if mask is None else [one for one in self.near if self._bits([one]) & ~mask]
        classes = self.resources.classes
        return Question(
            self._node, self.slices, classes, tuple(claims), used, self._gates, frozenset(excluded)
        )

    def _bits(self, devices: Iterable[objects.DeviceId]) -> int:
        """Return the nearest NUMA nodes of devices as bits, by position."""
        return bit_set(
            self.machine.position(node) for one in devices for node in self.near.get(one, ())[:1]
        )

    def _solved(
        self, claims: Mapping[str, objects.Claim], mask: int | None, used: InUse | None = None
    ) -> dict[str, objects.Claim] | None:
        """Return claims with their allocation, of devices near these NUMA nodes; None: there is none.

        Raises:
            AllocationError: the scheduler would fail, or a bound was hit.
        """
        if not claims:
            return {}
        found = allocate(self._question(claims.values(), mask, used))
        return None if found is None else dict(zip(claims, found, strict=True))

    def are_aligned(self, pod: Pod, containers: Mapping[str, ContainerAllocation]) -> bool | None:
        """Return whether each container's claimed devices are near NUMA nodes of its CPUs, and of its memory.

        None: that cannot be told, since its CPUs are shared and its memory is not pinned, or no
        device tells where it is.

        Args:
            pod: a pod that was admitted.
            containers: what the kubelet gave it.
        """
        known, claims = False, self.claims(pod)
        for one in pod.constraints.claims:
            claim = str(claims[one.name])
            near = {
                it.numa_nodes[0]
                for it in self.devices(pod.uid)
                if it.claim == claim and it.numa_nodes
            }
            for got in [
                containers[name]
                for name in one.containers or containers
                if name in containers and near
            ]:
                own = overlapping(self.machine.node_cpus, int(got.cpus or 0))
                cpus = set(ids_of(own, self.machine.numa_node_ids))
                memory = {node for block in got.memory if block.size for node in block.numa_nodes}
                if not all(near <= place for place in (cpus, memory) if place):
                    return False
                known = known or bool(cpus or memory)

        return True if known else None

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return near which NUMA nodes the container's claims can be allocated."""
        return self._hints(self.claims(pod, container)) if self.gives_hints else None

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for all claims of the pod."""
        return self._hints(self.claims(pod)) if self.gives_hints else None

    def _hints(self, claims: Mapping[str, objects.Claim]) -> ResourceHints:
        there = self._bits(self.near)
        if not claims or not there:
            return None

        fixed = self._bits(one.id for claim in claims.values() for one in claim.allocated or ())
        waiting = _waiting(claims)
        now = _smallest(there, fixed, lambda mask: self._can(waiting, mask, None))
        if not now:
            return {"claims": []}

        # as the device manager does, the smallest set counts that would do if nobody held anything
        size = max(
            1,
            _smallest(there, fixed, lambda mask: self._can(waiting, mask, InUse()))[0].bit_count(),
        )
        count = len(self.machine.numa_nodes)
        masks = range(1, 1 << count) if count <= _MOST_LISTED else list(_subsets(range(count)))[1:]
        wide = (mask for mask in masks if any(one & ~mask == 0 for one in now))
        return {
            "claims": HintList(
                TopologyHint(BitMask.from_int(mask), mask.bit_count() == size) for mask in wide
            )
        }

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
        held = self.held.get(pod.uid, {})
        if not pod.constraints.claims or (held and not self.gives_hints):
            return

        claims = self.claims(pod, container if self.gives_hints else None)
        mask = (
            int(affinity.affinity) if self.gives_hints and affinity.affinity is not None else None
        )
        try:
            found = self._solved(_waiting(claims), mask)
            if found is None and mask is not None:
                found = self._solved(_waiting(claims), None)
        except AllocationError as error:
            raise NotAllocatedError(
                f"cannot allocate all claims: {error}", UNSCHEDULABLE
            ) from error

        if found is None:
            raise NotAllocatedError("cannot allocate all claims", UNSCHEDULABLE)

        self.held[pod.uid] = {**held, **claims, **found}
        if self._gates.node_resources:
            self._check_node_resources(pod)

    def _check_node_resources(self, pod: Pod) -> None:
        """Refuse what the scheduler does not let count on the node; source: `nodeallocatabledynamicresources.go`.

        Raises:
            AllocationError: another pod has a claim that counts, or the pod as a whole requests
                less than counts.
        """
        others = {
            str(one) for uid, held in self.held.items() if uid != pod.uid for one in held.values()
        }
        for claim in self.held[pod.uid].values():
            try:
                node_resources(claim, self._devices, 0)
            except AllocationError as error:
                raise NotAllocatedError(str(error), UNSCHEDULABLE) from error

            how = [
                self._devices[one.id] for one in claim.allocated or () if one.id in self._devices
            ]
            is_mapped = any(
                one.mapping for device in how for one in device.node_allocatable_resources.values()
            )
            if is_mapped and str(claim) in others:
                what = f"node allocatable resource claim {claim.name} has a mapped device"
                raise NotAllocatedError(f"{what} and cannot be shared across pods", UNSCHEDULABLE)

        whole, own = Counter[str](), {one.name: Counter[str]() for one in pod.all_containers}
        for claim, containers in self._users(pod):
            whole.update(node_resources(claim, self._devices, len(containers)))
            for name in {*containers}:
                own[name].update(node_resources(claim, self._devices, 1))

        if whole and (short := beyond_level(pod, whole, own)):
            raise NotAllocatedError(short, UNSCHEDULABLE)

    def _users(self, pod: Pod) -> Iterator[tuple[objects.Claim, list[str]]]:
        """Yield the claims that a pod has, each once, and the containers that use it, by each of its names."""
        held = self.held.get(pod.uid, {})
        found: dict[str, tuple[objects.Claim, list[str]]] = {}
        for one in pod.constraints.claims:
            if one.name in held:
                claim = held[one.name]
                found.setdefault(str(claim), (claim, []))[1].extend(one.containers)
        yield from found.values()

    def counted(self, pod: Pod) -> Pod:
        """Return a pod with what the devices of its claims count as on the node, unless its status tells that.

        Claims that were adopted without what they take of a capacity count nothing by it.
        """
        held = self.held.get(pod.uid, {})
        if not held or pod.constraints.claimed or not self._gates.node_resources:
            return pod
        found = Counter[str]()
        for claim, containers in self._users(pod):
            with suppress(AllocationError):
                found.update(node_resources(claim, self._devices, len(containers)))
        claimed = {name: in_units(name, amount) for name, amount in found.items()}
        return replace(pod, constraints=replace(pod.constraints, claimed=claimed))

    def adopt(self, pod_uid: str, devices: Mapping[str, Iterable[str]]) -> None:
        """Note devices that a pod was given elsewhere, by claim, each as `driver/pool/device`.

        Raises:
            AllocationError: another pod has one of them.
        """
        held = [
            one
            for claims in self.held.values()
            for claim in claims.values()
            for one in claim.allocated or ()
        ]
        taken = {str(one.id) for one in held}
        twice = sorted(taken.intersection(one for ids in devices.values() for one in ids))
        if twice:
            raise NotAllocatedError(f"another pod has {', '.join(twice)}", UNSCHEDULABLE)

        self.held[pod_uid] = {
            name: objects.Claim(
                name, allocated=tuple(objects.Allocated(*_parts_of_id(one)) for one in ids)
            )
            for name, ids in devices.items()
        }

    def release(self, pod_uid: str, container_name: str) -> None:  # noqa: ARG002  # as for the others
        """Take back what the pod has: claims go with it."""
        self.held.pop(pod_uid, None)

    def account(self, pod: Pod, container: Container | None) -> Mapping[str, Callable[[], str]]:
        """Return what a refusal says of claims."""
        names = ", ".join(self.claims(pod, container))
        return {"claims": lambda: f"devices of {names}"} if names else {}


def _parts_of_id(text: str) -> objects.DeviceId:
    """Return the id of a device that `driver/pool/device` is, where the pool may have slashes."""
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    return objects.DeviceId(driver, pool, device)


def _waiting(claims: Mapping[str, objects.Claim]) -> dict[str, objects.Claim]:
    return {name: claim for name, claim in claims.items() if claim.allocated is None}


def _smallest(there: int, fixed: int, can: Callable[[int], bool]) -> list[int]:
    """Return the sets of NUMA nodes that will do and no subset of which will, the smallest first.

    Args:
        there: the NUMA nodes that matter.
        fixed: those that must be in it.
        can: whether a set will do; a larger one then does too.
    """
    found: list[int] = []
    for mask in _subsets(list(bit_numbers(there))):
        if not fixed & ~mask and all(one & ~mask for one in found) and can(mask):
            found.append(mask)
    return found


def _subsets(bits: Sequence[int]) -> Iterator[int]:
    """Yield the sets of some positions, small ones first; of many positions those of up to two, and all of them."""
    for size in range(len(bits) + 1) if len(bits) <= _MOST_LISTED else (0, 1, 2, len(bits)):
        for chosen in combinations(bits, size):
            yield bit_set(chosen)


class _Node(Protocol):
    """A node that knows claims: `alignup.node.Node`."""

    @property
    def claims(self) -> ClaimProvider | None: ...

    def copy(self, *, wrap: Callable[[HintProvider], HintProvider] | None = None) -> _Node: ...

    def admit(self, pod: Pod) -> Admission: ...


class ClaimsOutcome(Record):
    """What a pod's claims come to on a node.

    Attributes:
        meet: see `ClaimProvider.are_aligned`.
        helps: the changes with which devices, CPUs and memory would be aligned; each was tried.
        refusal: why the claims cannot be allocated.
    """

    devices: tuple[ClaimedDevice, ...] = ()
    meet: bool | None = None
    helps: tuple[str, ...] = ()
    refusal: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        told = {
            "devices": [one.to_dict() for one in self.devices],
            "meet": self.meet,
            "helps": list(self.helps),
        }
        return told | ({"refusal": self.refusal} if self.refusal else {})


def preview_claims(node: _Node, pod: Pod, *, suggest: bool = True) -> ClaimsOutcome | None:
    """Return the outcome of a pod's claims on a node; None: the pod has no claims, or the node has no claim provider.

    Args:
        node: the node, which stays as it is.
        pod: the pod, which is not there yet.
        suggest: look for changes with which they would be aligned.
    """
    if node.claims is None or not pod.constraints.claims:
        return None

    provider = node.claims.copy()
    admitted, meet = _tried(node, pod, provider)
    if not admitted:
        return ClaimsOutcome(refusal=node.claims.why_not(pod))

    helps = (
        what_helps(node.claims, pod, lambda *how: _tried(node, *how)[1])
        if suggest and meet is False
        else ()
    )
    return ClaimsOutcome(provider.devices(pod.uid), meet, tuple(helps))


def _tried(node: _Node, pod: Pod, provider: ClaimProvider) -> tuple[bool, bool | None]:
    """Return whether a node would admit a pod with claims as a provider has them, and whether they would be aligned."""
    admission = node.copy(
        wrap=lambda one: provider if isinstance(one, ClaimProvider) else one
    ).admit(pod)
    return bool(admission), provider.are_aligned(pod, admission.containers) if admission else None


def what_helps(
    provider: ClaimProvider, pod: Pod, meets: Callable[[Pod, ClaimProvider], bool | None]
) -> Iterator[str]:
    """Yield changes with which the pod's devices, CPUs and memory meet, each tried.

    Args:
        provider: without the pod.
        pod: the pod.
        meets: whether a pod meets its devices with claims as a provider has them.
    """
    claims = _waiting(provider.claims(pod)).values()
    named = f"in {', '.join(map(str, claims))}"

    def tried(change: Callable[[objects.Claim], objects.Claim]) -> bool | None:
        return meets(pod, provider.copy(_changed(provider.resources, pod, change)))

    for attribute in sorted(provider.attributes):
        for change, words in _constraints(attribute, provider.machine.numa_node_ids):
            if tried(change):
                yield f"{words} {named}"
                break

    asked = [
        one.exactly.wanted for claim in claims for one in claim.requests if one.exactly is not None
    ]
    fewer = next(
        (
            count
            for count in range(max(asked, default=1) - 1, 0, -1)
            if tried(partial(_at_most, count))
        ),
        0,
    )
    if fewer:
        yield f"ask for at most {fewer} devices a request {named}"

    for container in pod.all_containers:
        for cpus in range(container.exclusive_cpus - 1, 0, -1):
            amounts = {"requests": {"cpu": cpus}, "limits": {"cpu": cpus}}
            if meets(resized_pod(pod, {container.name: amounts}), provider.copy()):
                yield f"ask for {cpus} CPUs in container {container.name}"
                break

    yield from _from_cpu_driver(provider, pod, meets)
    other = provider.copy()
    other.gives_hints = True
    if not provider.gives_hints and meets(pod, other):
        yield "let claims give hints (draHints), in placement without a kubelet"


def _from_cpu_driver(
    provider: ClaimProvider, pod: Pod, meets: Callable[[Pod, ClaimProvider], bool | None]
) -> Iterator[str]:
    """Yield how the DRA driver for CPUs, where it is there, could give the pod's CPUs in place of the CPU manager."""
    cpus = [device for one in provider.slices if one.driver == CPU_DRIVER for device in one.devices]
    waiting, count = list(_waiting(provider.claims(pod)).values()), pod.exclusive_cpus
    if not cpus or not count or len(waiting) != 1:
        return

    asked = objects.Subrequest(
        count=count, selectors=(objects.Selector(objects.Cel(f'device.driver == "{CPU_DRIVER}"')),)
    )
    words = f"{count} devices"
    if cpus[0].allow_multiple_allocations and cpus[0].capacity:  # each is many CPUs
        capacity = next(iter(cpus[0].capacity))
        asked = changed(
            asked,
            count=1,
            capacity=objects.Capacities({capacity: objects.Amount(count * _BILLION)}),
        )
        words = f"a device with capacity {capacity} of {count}"

    inits, mains = (
        tuple(replace(one, exclusive_cpus=0) for one in some)
        for some in (pod.init_containers, pod.containers)
    )
    bare = replace(
        pod, exclusive_cpus=0, containers=mains, init_containers=inits, all_containers=inits + mains
    )
    for name in sorted(
        {one.name for one in provider.resources.classes},
        key=lambda name: (name != CPU_DRIVER, name),
    ):
        request = objects.Request("cpus", changed(asked, device_class_name=name))
        for attribute in sorted(provider.attributes):
            change = partial(_constrained, attribute, further=(request,))
            trial = provider.copy(_changed(provider.resources, pod, change))
            if meets(bare, trial) is not False and trial.devices(pod.uid):
                added = (
                    f"add a request for {words} of class {name} and the constraint "
                    f"matchAttribute {attribute}"
                )
                place = f"take the CPUs from the driver {CPU_DRIVER} in place of the CPU manager"
                yield f"{place}: {added} in {waiting[0]}"
                return


def _changed(
    known: Resources, pod: Pod, change: Callable[[objects.Claim], objects.Claim]
) -> Resources:
    """Return the resources with the pod's claims changed."""

    def of(claims: tuple[objects.Claim, ...], names: set[str]) -> tuple[objects.Claim, ...]:
        return tuple(
            change(one) if one.name in names and one.allocated is None else one for one in claims
        )

    asked = pod.constraints.claims
    return replace(
        known,
        claims=of(known.claims, {one.claim for one in asked}),
        templates=of(known.templates, {one.template for one in asked if not one.claim}),
    )


def _constraints(
    attribute: str, nodes: Sequence[int]
) -> Iterator[tuple[Callable[[objects.Claim], objects.Claim], str]]:
    """Yield what can be added to a claim, and the words for it."""
    yield partial(_constrained, attribute), f"add the constraint matchAttribute {attribute}"
    domain, _, name = attribute.rpartition("/")
    for node in nodes:
        expression = f'device.attributes["{domain}"].{name} == {node}'
        yield (
            partial(_selecting, objects.Selector(objects.Cel(expression))),
            f"add the selector {expression}",
        )


def _constrained(
    attribute: str, claim: objects.Claim, further: tuple[objects.Request, ...] = ()
) -> objects.Claim:
    constraints = (*claim.constraints, objects.Constraint(match_attribute=attribute))
    return changed(claim, requests=claim.requests + further, constraints=constraints)


def _selecting(selector: objects.Selector, claim: objects.Claim) -> objects.Claim:
    return _each(claim, lambda one: changed(one, selectors=(*one.selectors, selector)))


def _at_most(count: int, claim: objects.Claim) -> objects.Claim:
    return _each(claim, lambda one: changed(one, count=min(one.wanted, count)))


def _each(
    claim: objects.Claim, change: Callable[[objects.Subrequest], objects.Subrequest]
) -> objects.Claim:
    """Return a claim with each way to serve each request changed."""
    return changed(claim, requests=tuple(all_ways(one, change) for one in claim.requests))
