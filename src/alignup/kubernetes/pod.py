"""The records of a pod and its containers, and what follows from their requests.

That is the QoS class, CPUs, memory and devices. Nothing here parses a string: manifests are read
and checked in `alignup.kubernetes.manifest`. Kubelets of some releases read a pod otherwise than
others; each reading is derived here from what its manifest says (`PodSource`), as is why a
container runs in the shared pool of CPUs. The providers allocate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from alignup.errors import InputError
from alignup.kubernetes.quantity import LARGEST, in_units, in_units_of_each, is_whole
from alignup.kubernetes.versions import PodLevel, PodReading, StatusRequests
from alignup.records import Record, field, replace
from alignup.text.counting import counted

OS_LABEL: Final = "kubernetes.io/os"
# Where each kind of a pod's affinity has what must be met, and that to nodes the terms of it.
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_SELECTOR_TERMS: Final = "nodeSelectorTerms"

# The annotation of a pod by which its containers name policies of their own, or of a RuntimeClass
# with one for the containers of its pods; no kubelet reads it.
POLICIES: Final = "alignup.dev/policies"

_COMPUTE: Final = ("cpu", "memory")
_HUGEPAGES: Final = "hugepages-"
_NOTHING: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType({})
_NEWEST_READING: Final = PodReading()
CONFIG_SOURCE: Final = "kubernetes.io/config.source"

# The annotation by which the API server's copy of a static pod is known.
MIRROR: Final = "kubernetes.io/config.mirror"

# Values of the annotation with which a kubelet marks static pods, which no API server has created.
_STATIC_SOURCES: Final = ("file", "http")

_NOT_DEVICES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})


class QOSClass(StrEnum):
    """The quality of service class that Kubernetes derives from requests and limits.

    Examples:
        >>> spec = {"containers": [{"name": "c", "image": "i"}]}
        >>> pod = read_pod({"metadata": {"name": "p"}, "spec": spec})
        >>> pod.qos is QOSClass.BEST_EFFORT
        True
    """

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def qos_class(resources: Iterable[tuple[Mapping[str, int], Mapping[str, int]]]) -> QOSClass:
    """Return the QoS class of a pod whose containers have these resources, as `ComputePodQOS` does.

    Only positive amounts of CPU and memory count. Guaranteed: each container limits both, and what
    the containers request in total is what they are limited to in total. Init containers count like
    the others.

    Args:
        resources: requests and limits of every container; or only the pod's own, where it has some
            of its own.
    """
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    is_limited = True
    for requested, limited in resources:
        for resource in ("cpu", "memory"):
            request, limit = requested.get(resource, 0), limited.get(resource, 0)
            if request > 0:
                requests[resource] = requests.get(resource, 0) + request
            if limit > 0:
                limits[resource] = limits.get(resource, 0) + limit
            else:
                is_limited = False

    if not requests and not limits:
        return QOSClass.BEST_EFFORT
    if is_limited and requests == limits:
        return QOSClass.GUARANTEED
    return QOSClass.BURSTABLE


class Container(Record):
    """One container and its requests.

    `requests` and `limits` map resource names to whole numbers: `cpu` in thousandths of a CPU, all
    else in units (bytes, devices). The last four fields are derived from them once, for the
    managers:

    Attributes:
        is_init: an init container of either kind.
        is_sidecar: a restartable init container: it keeps what it gets while the pod runs.
        exclusive_cpus: whole CPUs that the static CPU manager allocates exclusively; 0: it runs in
            the shared pool.
        memory: (`memory` or `hugepages-<size>`, bytes) that a Static memory manager would pin, by
            name.
        devices: (resource, count) of extended resources in its limits, by name; any may be a device
            plugin's.
        fractional_memory: the first type in `memory` whose request is no whole number of bytes
            (`512m`): a Static memory manager fails.

    Examples:
        >>> container = {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
        >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
        >>> pod.containers[0].exclusive_cpus, pod.containers[0].memory
        (2, (('memory', 1073741824),))
    """

    name: str
    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    is_init: bool = False
    is_sidecar: bool = False
    exclusive_cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    fractional_memory: str = ""

    @property
    def ends(self) -> bool:
        """Whether it is an init container that ends before the others start."""
        return self.is_init and not self.is_sidecar


# The name, not one of the API's, of the claim that the scheduler makes for extended resources.
EXTENDED_CLAIM: Final = "<extended-resources>"


class PodClaim(Record):
    """A claim of a pod (`spec.resourceClaims`), by which the scheduler gives it devices.

    Attributes:
        claim: the name of the ResourceClaim; empty: it is not made yet.
        template: the name of the ResourceClaimTemplate of which it is made; empty: the claim is
            there by itself.
        containers: those that use it.
        requests: (container, request) where a container uses some of its requests only.
    """

    name: str
    claim: str = ""
    template: str = ""
    containers: tuple[str, ...] = ()
    requests: tuple[tuple[str, str], ...] = ()

    @property
    def is_extended(self) -> bool:
        """Whether it is the claim for extended resources."""
        return self.name == EXTENDED_CLAIM

    def is_used(self, container: str, request: str) -> bool:
        """Return whether a container that uses the claim uses one of its requests."""
        used = {name for user, name in self.requests if user == container}
        return not used or request.partition("/")[0] in used


class NodeConstraints(Record):
    """What a pod's spec demands of a node as a whole, beyond what the resource managers look at.

    Attributes:
        node_affinity: the required terms of the node affinity, of which one has to match; None:
            there are none.
        host_ports: (protocol, IP address, port).
        os: `spec.os.name`; empty: not given.
        os_label: the pod's own label `kubernetes.io/os`; empty: not given.
        requests: the requests of the pod as a whole (`spec.resources`), in the units of
            `Container.requests`.
        level: what it has as a whole, exactly; None: nothing, or the kubelet does not look at it.
        overhead: `spec.overhead`, in the same units.
        claimed: what the devices of its claims count as (KEP-5517), in the same units.
        claimed_with: what they count as by container that uses them, beside `claimed`; kubelets
            before 1.38 count it for the pod as a whole.
        claimed_devices: (container, extended resource) for which devices of a claim stand
            (KEP-5004), by the pod's status: no device plugin gives any.
    """

    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict, hash=False)
    node_affinity: tuple[Mapping[str, Any], ...] | None = field(default=None, hash=False)
    tolerations: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    host_ports: tuple[tuple[str, str, int], ...] = ()
    os: str = ""
    os_label: str = ""
    priority: int | None = None
    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    overhead: Mapping[str, int] = field(default_factory=dict, hash=False)
    level: RawRequests | None = field(default=None, hash=False)
    claims: tuple[PodClaim, ...] = ()
    claimed: Mapping[str, int] = field(default_factory=dict, hash=False)
    claimed_with: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    claimed_devices: frozenset[tuple[str, str]] = frozenset()

    def summed(self) -> NodeConstraints:
        """Return these with what claims count as by container counted for the pod as a whole."""
        claimed = Counter(self.claimed)
        for amounts in self.claimed_with.values():
            claimed.update(amounts)

        return replace(self, claimed=dict(claimed), claimed_with={})

    def without_extended_claim(self) -> NodeConstraints:
        """Return these without the claim for extended resources."""
        if not any(claim.is_extended for claim in self.claims):
            return self

        claims = tuple(claim for claim in self.claims if not claim.is_extended)
        return replace(self, claims=claims, claimed_devices=frozenset())


# The constraints of a pod that demands nothing.
ANY_NODE = NodeConstraints()


class Pod(Record):
    """A pod.

    Its `exclusive_cpus`, `memory` and `devices` are its effective request, as for a container.

    Attributes:
        all_containers: init containers, then the others: the order in which they are admitted.
            Filled in if not given.
        constraints: what the pod demands of the node as a whole: only `whole_verdict` of a node
            looks at it.
        pod_level: the meaning of the resources that the pod has as a whole (`spec.resources`);
            `IGNORED` also if it has none.
        readings: the same pod as kubelets of other releases and gates read it; None: they all read
            it so, or this is a reading.
        made_of: what this reading was made of, where readings differ.

    Examples:
        >>> spec = {"containers": [{"name": "c", "image": "i"}]}
        >>> pod = read_pod({"metadata": {"name": "p"}, "spec": spec})
        >>> pod.namespaced_name, str(pod.qos)
        ('default/p', 'BestEffort')
    """

    uid: str
    name: str
    namespace: str = "default"
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    qos: QOSClass = QOSClass.BEST_EFFORT
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    exclusive_cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    all_containers: tuple[Container, ...] = ()
    constraints: NodeConstraints = field(default=ANY_NODE, repr=False, compare=False)
    pod_level: PodLevel = PodLevel.IGNORED
    readings: PodSource | None = field(default=None, repr=False, compare=False)
    made_of: PodSource | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.all_containers:
            # frozen records are set this way while they are being made
            object.__setattr__(self, "all_containers", self.init_containers + self.containers)

    def __repr__(self) -> str:
        containers = counted(len(self.all_containers), "container")
        return f"<Pod {self.namespaced_name} of {containers}, {self.qos.value}>"

    def read_as(self, reading: PodReading) -> Pod:
        """Return the pod as a kubelet reads it that reads pods in this way."""
        if self.readings is None:
            return self
        return self.readings.read(reading)

    def renamed(self, **identity: Any) -> Pod:
        """Return the pod under another `uid`, `name`, `namespace`, or with other `annotations`."""
        source = self.made_of and self.made_of.renamed(identity)
        return self._remade(source, **identity)

    def with_claims(self, claims: tuple[PodClaim, ...]) -> Pod:
        """Return the pod with other claims among its constraints, however it is read."""
        source = self.made_of and self.made_of.with_claims(claims)
        return self._remade(source, constraints=replace(self.constraints, claims=claims))

    def _remade(self, source: PodSource | None, **changes: Any) -> Pod:
        """Return the pod with changes that are in what it is made of, too."""
        readings = None if self.readings is None else source
        return replace(self, **changes, readings=readings, made_of=source)

    @property
    def namespaced_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def has_shared_pool(self) -> bool:
        """True if the managers give CPUs and memory to the pod as a whole.

        Its containers then share them.
        """
        return self.pod_level is PodLevel.MANAGED


def without_extended_claim(pod: Pod) -> Pod:
    """Return a pod without the claim for its extended resources: plugins serve them all."""
    constraints = pod.constraints.without_extended_claim()
    return pod if constraints is pod.constraints else replace(pod, constraints=constraints)


_Item = TypeVar("_Item", Container, "RawRequests")


class RawRequests(Record, frozen=False):
    """The resources of a container, or of a pod as a whole, in billionths of their units."""

    name: str
    requests: dict[str, int]
    limits: dict[str, int]
    is_init: bool = False
    is_sidecar: bool = False


def is_hugepages(resource: str) -> bool:
    """Return whether the resource is pages of some size, such as `hugepages-2Mi`."""
    return resource.startswith(_HUGEPAGES)


def is_pinned_memory(resource: str) -> bool:
    """Return whether the memory manager pins the resource."""
    return resource == "memory" or resource.startswith(_HUGEPAGES)


def is_device(resource: str) -> bool:
    """Return whether the resource may be a device plugin's."""
    return resource not in _NOT_DEVICES and not resource.startswith(_HUGEPAGES)


class PodSource(Record, frozen=False):
    """What a manifest says about a pod, for kubelets to read.

    Each reading is made when it is first asked for.

    Attributes:
        identity: the pod's `uid`, `name`, `namespace` and `annotations`.
        raw_init: the resources of its init containers, in their order.
        raw_containers: the resources of its other containers, in their order.
        raw_pod: the resources of the pod as a whole (`spec.resources`, Pod Level Resources) if it
            has any.
        allocated: by container, what the pod's status says that it was allocated, where that is not
            its request.
        constraints: what the pod demands of the node as a whole.
        stored_qos: the class that the API server has stored, which every kubelet goes by; None: it
            derives it.
    """

    identity: Mapping[str, Any]
    raw_init: Sequence[RawRequests]
    raw_containers: Sequence[RawRequests]
    raw_pod: RawRequests | None
    allocated: Mapping[str, Mapping[str, int]] = _NOTHING
    constraints: NodeConstraints = ANY_NODE
    stored_qos: QOSClass | None = None
    readings: dict[PodReading, Pod] = field(default_factory=dict)

    def pod(self) -> Pod:
        """Return the pod as the newest kubelet reads it.

        With what others make of it where that can differ.
        """
        newest = _read_pod(self, _NEWEST_READING)
        if newest.made_of is None:
            return newest
        return replace(newest, readings=self)

    def read(self, reading: PodReading) -> Pod:
        """Return the pod as such a kubelet reads it."""
        pod = self.readings.get(reading)
        if pod is None:
            pod = _read_pod(self, reading)
            self.readings[reading] = pod
        return pod

    def renamed(self, identity: Mapping[str, Any]) -> PodSource:
        """Return what the pod is made of with other values in some fields of its identity."""
        return replace(self, identity={**self.identity, **identity}, readings={})

    def with_claims(self, claims: tuple[PodClaim, ...]) -> PodSource:
        """Return what the pod is made of with other claims."""
        constraints = replace(self.constraints, claims=claims)
        return replace(self, constraints=constraints, readings={})


def _read_pod(source: PodSource, reading: PodReading) -> Pod:
    """Return the record of a pod as some kubelets read it."""
    level = _level(source, reading)
    pod_level = PodLevel.IGNORED
    # resources without an entry can decide the class, and nothing else
    if level is not None and (level.requests or level.limits):
        pod_level = reading.pod_level

    deciding = [*source.raw_init, *source.raw_containers] if level is None else [level]
    qos = source.stored_qos or qos_class([(raw.requests, raw.limits) for raw in deciding])

    is_managed = pod_level is PodLevel.MANAGED
    is_exclusive = qos is QOSClass.GUARANTEED and pod_level is not PodLevel.SHARES
    all_containers = []
    for raw in (*source.raw_init, *source.raw_containers):
        status = _from_status(raw, source.allocated, reading) if source.allocated else None
        is_pinned = is_exclusive and not (is_managed and not is_guaranteed(raw))
        all_containers.append(_container(raw, is_pinned, status))

    first = len(source.raw_init)
    init_containers, containers = tuple(all_containers[:first]), tuple(all_containers[first:])
    exclusive_cpus, memory, devices = effective_request(
        init_containers, containers, counts_init_only=reading.init_only_memory_counts
    )
    if is_managed and level is not None:
        whole = _container(level, is_exclusive)
        exclusive_cpus = whole.exclusive_cpus
        memory = ()
        if not whole.fractional_memory:
            memory = tuple([item for item in whole.memory if item[1]])

    constraints = source.constraints
    if level is not None:
        requests = in_units_of_each(level.requests)
        constraints = replace(constraints, requests=requests, level=level)

    counts_claims = bool(constraints.claimed or constraints.claimed_with)
    if counts_claims and not reading.claims_count:
        constraints = replace(constraints, claimed={}, claimed_with={})
    elif constraints.claimed_with and not reading.claims_count_with_containers:
        constraints = constraints.summed()
    if constraints.claimed_devices and not reading.claimed_devices_left_out:
        constraints = constraints.without_extended_claim()

    can_differ = (
        source.raw_pod
        or source.allocated
        or source.stored_qos
        or counts_claims
        or source.constraints.claimed_devices
        or (init_containers and _init_only_memory(init_containers, containers))
    )
    return Pod(
        **source.identity,
        constraints=constraints,
        init_containers=init_containers,
        containers=containers,
        qos=qos,
        exclusive_cpus=exclusive_cpus,
        memory=memory,
        devices=devices,
        all_containers=init_containers + containers,
        pod_level=pod_level,
        made_of=source if can_differ else None,
    )


def source_of(pod: Pod) -> PodSource:
    """Return what a pod was made of, without what its status says.

    The resources are copies, to be changed.
    """
    identity = {
        "uid": pod.uid,
        "name": pod.name,
        "namespace": pod.namespace,
        "annotations": pod.annotations,
    }
    source = pod.made_of
    if source is None:
        return PodSource(
            identity,
            [_raw_of(container) for container in pod.init_containers],
            [_raw_of(container) for container in pod.containers],
            None,
            constraints=pod.constraints,
        )

    return PodSource(
        identity,
        [_copied(raw) for raw in source.raw_init],
        [_copied(raw) for raw in source.raw_containers],
        source.raw_pod and _copied(source.raw_pod),
        constraints=pod.constraints,
        stored_qos=source.stored_qos,
    )


def _copied(raw: RawRequests) -> RawRequests:
    return replace(raw, requests=dict(raw.requests), limits=dict(raw.limits))


def _raw_of(container: Container) -> RawRequests:
    """Return a container's resources as they were before `_container` made a record of them."""
    return RawRequests(
        container.name,
        _in_billionths(container.requests),
        _in_billionths(container.limits),
        container.is_init,
        container.is_sidecar,
    )


def _in_billionths(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount * (10**6 if name == "cpu" else 10**9) for name, amount in amounts.items()}


def is_guaranteed(raw: RawRequests) -> bool:
    """Return whether a container would be Guaranteed by itself.

    It then requests CPU and memory, as much as its limits.
    """
    return qos_class([(raw.requests, raw.limits)]) is QOSClass.GUARANTEED


def _level(source: PodSource, reading: PodReading) -> RawRequests | None:
    """Return the resources of the pod as a whole with defaults filled in.

    None where they decide nothing.
    """
    raw = source.raw_pod
    if raw is None or reading.pod_level is PodLevel.IGNORED:
        return None
    if not (raw.requests or raw.limits):
        return None if reading.empty_pod_resources_ignored else raw

    level = RawRequests(raw.name, dict(raw.requests), dict(raw.limits))
    by_api_server = reading.pod_limits_defaulted_by_api_server
    is_static = source.identity["annotations"].get(CONFIG_SOURCE) in _STATIC_SOURCES
    if not (by_api_server and is_static):
        _fill_in(level, source, reading)

    return level


def _fill_in(level: RawRequests, source: PodSource, reading: PodReading) -> None:
    """Fill in limits of hugepages, and requests: what the containers request, else the limit.

    A pod without limits of its own gets requests by the API server only. That fills in limits too,
    where all containers have one: their sum, or the pod's request if that is more. From 1.38 on,
    one of zero is none.
    """
    limits = peak(source.raw_init, source.raw_containers, lambda raw: raw.limits.items())
    for resource, amount in limits.items():
        if is_hugepages(resource) and resource not in level.requests:
            level.limits.setdefault(resource, amount)

    by_api_server = reading.pod_limits_defaulted_by_api_server
    if not (level.limits or by_api_server):
        return

    requests = peak(source.raw_init, source.raw_containers, lambda raw: raw.requests.items())
    for resource in _COMPUTE:
        if resource in requests:
            level.requests.setdefault(resource, requests[resource])

    for resource, amount in level.limits.items():
        level.requests.setdefault(resource, amount)

    if by_api_server:
        all_containers = [*source.raw_init, *source.raw_containers]
        least = 1 if reading.zero_limits_are_none else 0
        for resource, amount in level.requests.items():
            if all(raw.limits.get(resource, -1) >= least for raw in all_containers):
                level.limits.setdefault(resource, max(amount, limits[resource]))


def _from_status(
    raw: RawRequests, allocated: Mapping[str, Mapping[str, int]], reading: PodReading
) -> Mapping[str, int] | None:
    """Return the requests that the status has for a container.

    None if the kubelet does not go by them.
    """
    if reading.from_status is StatusRequests.NOBODY or (raw.is_init and not raw.is_sidecar):
        return None
    if raw.is_sidecar and reading.from_status is not StatusRequests.WITH_SIDECARS:
        return None
    return allocated.get(raw.name)


def _container(
    raw: RawRequests, is_exclusive: bool, from_status: Mapping[str, int] | None = None
) -> Container:
    """Return the record of a container.

    Args:
        raw: its resources.
        is_exclusive: its pod is one whose CPUs and memory are pinned.
        from_status: requests that the managers go by, in billionths; None: those of the spec.
    """
    limits = requests = {name: in_units(name, value) for name, value in raw.limits.items()}
    if raw.requests != raw.limits:
        requests = {name: in_units(name, value) for name, value in raw.requests.items()}

    exclusive_cpus = 0
    memory: tuple[tuple[str, int], ...] = ()
    fractional_memory = ""
    if is_exclusive:
        exact: Mapping[str, int] = raw.requests
        amounts = requests
        if from_status is not None:
            exact = from_status
            amounts = {name: in_units(name, value) for name, value in exact.items()}

        cpus, fraction = divmod(amounts.get("cpu", 0), 1000)
        exclusive_cpus = 0 if fraction else cpus
        memory = tuple(sorted([item for item in amounts.items() if is_pinned_memory(item[0])]))
        fractional_memory = next((kind for kind, _ in memory if not is_whole(exact[kind])), "")

    return Container(
        raw.name,
        requests,
        limits,
        raw.is_init,
        raw.is_sidecar,
        exclusive_cpus,
        memory,
        tuple(sorted([item for item in limits.items() if is_device(item[0])])),
        fractional_memory,
    )


def effective_request(
    init_containers: Sequence[Container],
    containers: Sequence[Container],
    *,
    counts_init_only: bool = False,
) -> tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Return the effective request of the pod: exclusive CPUs, memory and devices.

    Each is what `peak` returns.

    Args:
        init_containers: of the pod.
        containers: its other containers.
        counts_init_only: count the types of memory for which only init containers ask
            (`getPodRequestedResources` of `memorymanager/policy_static.go`).

    Raises:
        InputError: one of them is beyond `LARGEST`, so that no kubelet can hold it.
    """
    if not init_containers and len(containers) == 1:
        only = containers[0]
        return _own_cpus(only), only.memory, only.devices

    cpus = peak(init_containers, containers, lambda container: (("cpu", _own_cpus(container)),))
    memory = peak(init_containers, containers, lambda container: container.memory)
    devices = peak(init_containers, containers, lambda container: container.devices)
    for resource, amount in [*cpus.items(), *memory.items(), *devices.items()]:
        if amount > LARGEST:
            raise InputError.at(
                "spec", f"{resource} of all containers to add up to at most {LARGEST}", amount
            )

    if not counts_init_only:
        for resource in _init_only_memory(init_containers, containers):
            del memory[resource]

    return cpus["cpu"], tuple(sorted(memory.items())), tuple(sorted(devices.items()))


def _init_only_memory(
    init_containers: Iterable[Container], containers: Iterable[Container]
) -> set[str]:
    """Return the types of memory for which only init containers ask."""
    by_init = {resource for container in init_containers for resource, _ in container.memory}
    return by_init.difference(
        [resource for container in containers for resource, _ in container.memory]
    )


def _own_cpus(container: Container) -> int:
    """Return the exclusive CPUs of a container as the sum over a pod counts them.

    There are none if its spec requests none.
    """
    return container.exclusive_cpus if container.requests.get("cpu") else 0


def peak(
    init_items: Iterable[_Item],
    items: Iterable[_Item],
    amounts: Callable[[_Item], Iterable[tuple[str, int]]],
) -> dict[str, int]:
    """Return the largest amount of each resource that is needed at the same time.

    By the rule of KEP-753. All long-running containers (sidecars and ordinary ones) need theirs at
    once; an init container needs its own next to those of the sidecars that were started before it.

    Args:
        init_items: init containers, in their order.
        items: the other containers.
        amounts: returns resources and amounts of one container, each resource once.
    """
    running: dict[str, int] = {}
    largest: dict[str, int] = {}
    for item in init_items:
        for resource, amount in amounts(item):
            at_once = running.get(resource, 0) + amount
            largest[resource] = max(at_once, largest.get(resource, 0))
            if item.is_sidecar:
                running[resource] = at_once

    for item in items:
        for resource, amount in amounts(item):
            running[resource] = running.get(resource, 0) + amount

    for resource, amount in running.items():
        largest[resource] = max(amount, largest.get(resource, 0))

    return largest


def beyond_level(
    pod: Pod,
    whole: Mapping[str, int],
    own: Mapping[str, Mapping[str, int]],
    overheads: Mapping[str, Mapping[str, int]],
) -> str:
    """Return why what a pod has as a whole (`spec.resources`) does not cover its parts.

    These are containers and claims; empty: it covers them. Source:
    `validatePodLevelResourcesCoverDRA` of the scheduler.

    Args:
        pod: the pod.
        whole: what its claims count as, in billionths.
        own: the same by container, of the claims that it uses.
        overheads: by container, what of that counts only while it runs, and is not in `whole`.
    """
    level = pod.constraints.level
    if level is None:
        return ""

    source = source_of(pod)
    return _beyond_level_in_all(source, level, whole, overheads) or _beyond_level_alone(
        source, level, own
    )


def _beyond_level_in_all(
    source: PodSource,
    level: RawRequests,
    whole: Mapping[str, int],
    overheads: Mapping[str, Mapping[str, int]],
) -> str:
    """Return which amount does not cover what all containers and claims need at once."""

    def with_overhead(raw: RawRequests, amounts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
        return (Counter(amounts) + Counter(overheads.get(raw.name, {}))).items()

    requests = Counter(
        peak(source.raw_init, source.raw_containers, lambda raw: with_overhead(raw, raw.requests))
    )
    requests.update(whole)
    for name, amount in level.requests.items():
        if (name in _COMPUTE or is_hugepages(name)) and requests[name] > amount:
            return (
                f"pod level request for {name} is insufficient to cover the aggregated container "
                "and node-allocatable DRA requests"
            )

    limits = Counter(
        peak(source.raw_init, source.raw_containers, lambda raw: with_overhead(raw, raw.limits))
    )
    limits.update(whole)
    for name, amount in level.limits.items():
        if is_hugepages(name) and limits[name] > amount:
            return (
                f"pod level limit for {name} is insufficient to cover the aggregated container "
                "and node-allocatable DRA limits"
            )

    return ""


def _beyond_level_alone(
    source: PodSource, level: RawRequests, own: Mapping[str, Mapping[str, int]]
) -> str:
    """Return which limit does not cover that of one container and of the claims that it uses."""
    for container in source.raw_containers:
        own_amounts = own.get(container.name, {})
        for name, limit in container.limits.items():
            if is_hugepages(name) or name not in level.limits:
                continue
            if limit + own_amounts.get(name, 0) > level.limits[name]:
                return (
                    f"pod level limit for {name} is insufficient to cover the limit and DRA "
                    f"overhead for container {container.name}"
                )

    return ""


def why_shared(pod: Pod, container: Container) -> str:
    """Return why a container gets no CPUs of its own, as a clause; empty if it does.

    Args:
        pod: as the kubelet reads it that decides.
        container: one of its containers.
    """
    if container.exclusive_cpus:
        return ""
    if pod.qos is not QOSClass.GUARANTEED:
        return f"its pod is {pod.qos}: {why_not_guaranteed(pod)}"

    request = container.requests.get("cpu", 0)
    if request % 1000:
        return f"it requests {request}m CPU, which is not a whole number"
    if pod.has_shared_pool:
        return (
            "it shares what is left of its pod's CPUs: its requests of CPU and memory are not "
            "its limits"
        )

    return (
        "the kubelet uses spec.resources or the status of its pod instead of the container's "
        "own requests"
    )


def why_not_guaranteed(pod: Pod) -> str:
    """Return what makes a pod Burstable or BestEffort, as a clause.

    It is the first container and resource that do.
    """
    of_pod = "the resources of the pod as a whole (spec.resources) decide that"
    if pod.pod_level is not PodLevel.IGNORED:
        return of_pod

    for container in pod.all_containers:
        for resource in _COMPUTE:
            limit = container.limits.get(resource, 0)
            if not limit:
                return f"container {container.name!r} has no limit of {resource}"
            if container.requests.get(resource, 0) != limit:
                return f"container {container.name!r} requests less {resource} than its limit"

    return of_pod
