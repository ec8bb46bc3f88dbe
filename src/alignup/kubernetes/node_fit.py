"""The kubelet's own checks of a pod, which come after its resource managers.

They are of amounts, ports, node name, labels and OS. Follows `predicateAdmitHandler.Admit`
(pkg/kubelet/lifecycle/predicate.go), the scheduler's `AdmissionCheck` that it calls, and the
preemption for critical pods (pkg/kubelet/preemption/preemption.go) of Kubernetes 1.36. Go walks the
resources of device plugins in random order; here they are in the order of their names.

What it needs to know of a node is read from its Node object, as `kubectl get node -o json` prints
it; the release itself is read by `alignup.kubernetes.versions`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.kubernetes.pod import (
    CONFIG_SOURCE,
    MIRROR,
    OS_LABEL,
    Pod,
    QOSClass,
    is_device,
    is_pinned_memory,
    peak,
)
from alignup.kubernetes.quantity import eviction_memory, in_units, parse_quantity
from alignup.records import Record, field, replace
from alignup.text.digits import number_of

if TYPE_CHECKING:
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Container, NodeConstraints
    from alignup.kubernetes.wire import NodeWire
    from alignup.machine.machine import Machine

UNEXPECTED: Final = "UnexpectedAdmissionError"
CRITICAL_PRIORITY: Final = 2_000_000_000
_OS: Final = "linux"
_POD_LEVEL: Final = ("cpu", "memory")
FIELD_NAME: Final = "metadata.name"
# The integers that tolerations compare: no sign before a positive one, no leading zero.
_PLAIN_INTEGER: Final = re.compile("0|-?[1-9][0-9]*", re.ASCII)


class Misfit(Record):
    """Why a kubelet rejects a pod that its managers admitted, or whom it evicts to admit it.

    Attributes:
        reason: the reason in the pod's status; empty: the pod is admitted.
        resources: the resources of which too little is left; empty: the pod does not suit the node.
    """

    reason: str = ""
    message: str = ""
    resources: tuple[str, ...] = ()
    preempted: tuple[Pod, ...] = ()


def node_limits(
    machine: Machine,
    config: KubeletConfig,
    devices: Mapping[str, int],
    node: NodeObject | None = None,
) -> NodeObject:
    """Return what a node as a whole offers to pods; `pods` is among the amounts.

    Args:
        machine: the machine.
        config: the kubelet's configuration.
        devices: how many healthy devices of each resource there are.
        node: the Node object of the API; its allocatable amounts win.
    """
    node = node or NodeObject(knows_labels=False)
    own_amounts = _allocatable(machine, config, node.memory_capacity)
    allocatable = {**own_amounts, **devices, **node.allocatable}
    return replace(node, allocatable=allocatable, labels={OS_LABEL: _OS, **node.labels})


def _allocatable(machine: Machine, config: KubeletConfig, memory_capacity: int) -> dict[str, int]:
    """Return what a kubelet reports as allocatable: what there is less what is reserved."""
    reserved = node_reservation(machine, config, memory_capacity)
    if config.memory_manager_policy == "Static":  # a kubelet does not start unless both are equal
        reserved["memory"] = max(reserved["memory"], reserved_by_type(config).get("memory", 0))

    pods = config.node_reserve.max_pods
    if config.node_reserve.pods_per_core and machine.cpu_count:
        pods = min(pods, config.node_reserve.pods_per_core * machine.cpu_count)

    allocatable = {"pods": pods}
    for name, size in node_capacity(machine, memory_capacity).items():
        allocatable[name] = max(0, size - reserved.get(name, 0))
    return allocatable


def node_capacity(machine: Machine, memory_capacity: int = 0) -> dict[str, int]:
    """Return what pods could have if nothing were reserved.

    CPU in thousandths, and the bytes of each type of memory.

    Args:
        machine: the machine.
        memory_capacity: see `NodeObject`.
    """
    amounts = {"cpu": 1000 * machine.cpu_count, **machine.memory_by_type}
    if memory_capacity:
        pages = sum(size for name, size in amounts.items() if name.startswith("hugepages-"))
        amounts["memory"] = max(0, memory_capacity - pages)
    elif not machine.knows_memory:
        del amounts["memory"]
    return amounts


def node_reservation(
    machine: Machine, config: KubeletConfig, memory_capacity: int = 0
) -> dict[str, int]:
    """Return what a kubelet keeps from pods (`GetNodeAllocatableReservation`).

    CPU in thousandths, all else in units.

    Args:
        machine: the machine.
        config: the kubelet's configuration.
        memory_capacity: see `NodeObject`.
    """
    reserve = config.node_reserve
    total = memory_capacity or machine.memory
    memory = reserve.amounts.get("memory", 0) + eviction_memory(reserve.eviction_memory, total)
    cpus = 1000 * len(config.reserved_system_cpus) or reserve.amounts.get("cpu", 0)
    return {**reserve.amounts, "cpu": cpus, "memory": memory}


def reserved_by_type(config: KubeletConfig) -> dict[str, int]:
    """Return the bytes of each type that `reservedMemory` reserves on all NUMA nodes."""
    sizes: dict[str, int] = {}
    for reservation in config.reserved_memory:
        for kind, size in reservation.limits:
            sizes[kind] = sizes.get(kind, 0) + size

    return sizes


def requests_of(pod: Pod) -> dict[str, int]:
    """Return what a pod requests as a whole, as the scheduler and the kubelet count it.

    The peak of its containers and what its claims count as, or what the pod as a whole requests of
    CPU, memory and hugepages; and its overhead.
    """
    demands = pod.constraints
    requests = peak(pod.init_containers, pod.containers, partial(_requests_with_claims, demands))
    for name, amount in demands.claimed.items():
        requests[name] = requests.get(name, 0) + amount

    for name, amount in demands.requests.items():
        if name in _POD_LEVEL or is_pinned_memory(name):
            requests[name] = amount

    for name, amount in demands.overhead.items():
        requests[name] = requests.get(name, 0) + amount

    return {name: amount for name, amount in requests.items() if amount}


def _requests_with_claims(
    demands: NodeConstraints, container: Container
) -> Iterable[tuple[str, int]]:
    """Return what a container requests, and what the claims that it uses count as with it."""
    claimed = demands.claimed_with.get(container.name)
    if not claimed:
        return container.requests.items()

    return (Counter(container.requests) + Counter(claimed)).items()


def is_critical(pod: Pod) -> bool:
    """Return whether a kubelet makes room for the pod.

    It does for static pods, mirror pods, and those of a critical priority.
    """
    source = pod.annotations.get(CONFIG_SOURCE, "api")
    priority = pod.constraints.priority
    return (
        source != "api"
        or MIRROR in pod.annotations
        or (priority is not None and priority >= CRITICAL_PRIORITY)
    )


def misfit_of(pod: Pod, others: Sequence[Pod], node: NodeObject) -> Misfit:
    """Return why a kubelet rejects a pod after its managers; without a reason: it is admitted.

    Args:
        pod: the pod.
        others: the pods on the node.
        node: what the node offers.
    """
    demands = pod.constraints
    if demands.os_label and demands.os_label != _OS:
        message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        return Misfit("PodOSSelectorNodeLabelDoesNotMatch", message)
    if demands.os and demands.os != _OS:
        return Misfit(
            "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
        )

    short = list(_insufficient(pod, others, node))
    failed = next(_failed_predicates(pod, others, node), None)
    if is_critical(pod) and failed is None and short:
        return _preemption(pod, others, {resource: lacking for resource, lacking, _ in short})
    if short and not is_critical(pod):
        resource, _, message = short[0]
        return Misfit(f"OutOf{resource}", message, tuple(name for name, _, _ in short))
    if failed is not None:
        name, description = failed
        return Misfit(name, f"Predicate {name} failed: {description}")

    return Misfit()


def _insufficient(
    pod: Pod, others: Sequence[Pod], node: NodeObject
) -> Iterator[tuple[str, int, str]]:
    """Yield the resources of which too little is left, in the scheduler's order.

    With what is lacking, and the scheduler's message.
    """
    requests = {**requests_of(without_claimed(pod)), "pods": 1}
    used: dict[str, int] = {}
    if len(requests) > 1:
        for admitted in others:
            for name, amount in requests_of(admitted).items():
                used[name] = used.get(name, 0) + amount

    used["pods"] = len(others)
    basic = [name for name in ("pods", "cpu", "memory", "ephemeral-storage") if name in requests]
    for name in [*basic, *sorted(requests.keys() - set(basic))]:
        capacity = node.allocatable.get(name)
        if capacity is None:
            if is_device(name) or name == "memory" or not is_pinned_memory(name):
                # kubelets ignore devices that the node lacks; disks, perhaps memory, are not known
                continue

            capacity = 0

        request, in_use = requests[name], used.get(name, 0)
        lacking = request - (capacity - in_use)
        if lacking > 0:
            amounts = f"requested: {request}, used: {in_use}, capacity: {capacity}"
            yield name, lacking, f"Node didn't have enough resource: {name}, {amounts}"


def without_claimed(pod: Pod) -> Pod:
    """Return a pod without the extended resources for which devices of a claim stand.

    Source: `removeMissingExtendedResources`.
    """
    claimed = pod.constraints.claimed_devices
    if not claimed:
        return pod

    def without(container: Container) -> Container:
        requests = {
            name: amount
            for name, amount in container.requests.items()
            if (container.name, name) not in claimed
        }
        return replace(container, requests=requests)

    return replace(
        pod,
        init_containers=tuple(map(without, pod.init_containers)),
        containers=tuple(map(without, pod.containers)),
    )


def _failed_predicates(
    pod: Pod, others: Sequence[Pod], node: NodeObject
) -> Iterator[tuple[str, str]]:
    """Yield the checks that a pod fails for another reason than amounts, in the kubelet's order."""
    demands = pod.constraints
    if not selects(pod, node):
        yield "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"

    if demands.node_name and node.name and demands.node_name != node.name:
        yield "NodeName", "node(s) didn't match the requested node name"

    used_ports = [port for admitted in others for port in admitted.constraints.host_ports]
    if any(collide(port, used) for port in demands.host_ports for used in used_ports):
        yield "NodePorts", "node(s) didn't have free ports for the requested pod ports"

    is_static = pod.annotations.get(CONFIG_SOURCE, "api") != "api"
    evicting = [taint for taint in node.taints if taint.get("effect") == "NoExecute"]
    if not is_static and not all(tolerates(demands.tolerations, taint) for taint in evicting):
        yield "TaintToleration", "node(s) had taints that the pod didn't tolerate"


def collide(port: tuple[str, str, int], used_port: tuple[str, str, int]) -> bool:
    """Return whether two ports of the host are the same one."""
    protocol, address, number = port
    used_protocol, used_address, used_number = used_port
    if (protocol, number) != (used_protocol, used_number):
        return False

    any_address = "0.0.0.0"  # noqa: S104  # the API's word for it
    return address == used_address or any_address in {address, used_address}


def tolerates(tolerations: Iterable[Mapping[str, object]], taint: Mapping[str, str]) -> bool:
    """Return whether one of a pod's tolerations is for a taint (`Toleration.ToleratesTaint`).

    `Lt` and `Gt` compare as where their gate is on: without it an API server takes no such
    toleration.
    """
    return any(_is_for(toleration, taint) for toleration in tolerations)


def _is_for(toleration: Mapping[str, object], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False

    operator = toleration.get("operator") or "Equal"
    value = str(toleration.get("value") or "")
    taint_value = taint.get("value") or ""
    if operator in ("Lt", "Gt"):
        are_plain = all(_PLAIN_INTEGER.fullmatch(text) for text in (value, taint_value))
        return are_plain and meets(taint_value, str(operator), [value])

    return operator == "Exists" or (operator == "Equal" and value == taint_value)


def selects(pod: Pod, node: NodeObject) -> bool:
    """Return whether a pod's node selector and its required node affinity match the node."""
    for key, value in pod.constraints.node_selector.items():
        is_known = node.knows_labels or key in node.labels
        if is_known and node.labels.get(key) != value:
            return False

    terms = pod.constraints.node_affinity
    return terms is None or not node.knows_labels or any(_matches(term, node) for term in terms)


def _matches(term: Mapping[str, Any], node: NodeObject) -> bool:
    """Return whether a term of a node affinity matches.

    A term without requirements matches no node.
    """
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    return (
        bool(expressions or fields)
        and all(_holds(label, node.labels.get(str(label.get("key")))) for label in expressions)
        and all(field.get("key") == FIELD_NAME and _holds(field, node.name) for field in fields)
    )


def _holds(requirement: Mapping[str, Any], value: str | None) -> bool:
    return meets(value, str(requirement.get("operator")), requirement.get("values") or ())


def meets(value: str | None, operator: str, listed: Sequence[Any]) -> bool:
    """Return whether the value of a label meets a requirement of a node selector.

    The value is None if the label is missing.
    """
    if operator in ("NotIn", "DoesNotExist"):
        return value is None or (operator == "NotIn" and value not in listed)
    if value is None:
        return False
    if operator in ("Gt", "Lt"):
        number = _integer_of(value)
        bound = _integer_of(str(listed[0])) if listed else None
        if number is None or bound is None:
            return False
        return number > bound if operator == "Gt" else number < bound

    return operator == "Exists" or (operator == "In" and value in listed)


def _integer_of(text: str) -> int | None:
    """Return the integer of 64 bits that Go's `strconv.ParseInt` reads; None: it reads none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    number = number_of(digits, 1 << 63)
    if number is None:
        return None
    if text.startswith("-"):
        return -number
    return number if number < 1 << 63 else None


def _preemption(pod: Pod, others: Sequence[Pod], lacking: dict[str, int]) -> Misfit:
    """Return whom a kubelet evicts to admit a critical pod, or that it finds nobody."""
    by_class: dict[QOSClass, list[Pod]] = {qos: [] for qos in QOSClass}
    for admitted in others:
        if _is_preemptable(admitted, pod):
            by_class[admitted.qos].append(admitted)

    guaranteed = by_class[QOSClass.GUARANTEED]
    burstable = by_class[QOSClass.BURSTABLE]
    best_effort = by_class[QOSClass.BEST_EFFORT]
    missing = _less(lacking, [*best_effort, *burstable, *guaranteed])
    if missing:
        listed = "".join(f"(res: {name}, q: {amount}), " for name, amount in missing.items())
        message = (
            "Unexpected error while attempting to recover from admission failure: preemption: "
            "error finding a set of pods to preempt: no set of running pods found to reclaim "
            f"resources: [{listed}]"
        )
        return Misfit(UNEXPECTED, message, tuple(missing))

    # each class gives only what the lower ones, all of them evicted, would not
    first = _nearest(guaranteed, _less(lacking, [*best_effort, *burstable]))
    second = _nearest(burstable, _less(lacking, [*best_effort, *first]))
    third = _nearest(best_effort, _less(lacking, [*second, *first]))
    return Misfit(preempted=(*third, *second, *first))


def _is_preemptable(admitted: Pod, pod: Pod) -> bool:
    """Return whether a kubelet may evict an admitted pod for another one."""
    if is_critical(pod) and not is_critical(admitted):
        return True

    priority, admitted_priority = pod.constraints.priority, admitted.constraints.priority
    return priority is not None and admitted_priority is not None and priority > admitted_priority


def _amount(pod: Pod, resource: str) -> int:
    if resource == "pods":
        return 1
    return requests_of(pod).get(resource, 0)


def _less(lacking: Mapping[str, int], pods: Iterable[Pod]) -> dict[str, int]:
    """Return what would still be lacking if these pods were gone."""
    missing = dict(lacking)
    for pod in pods:
        missing = {name: amount - _amount(pod, name) for name, amount in missing.items()}
    return {name: amount for name, amount in missing.items() if amount > 0}


def _nearest(pods: Iterable[Pod], lacking: Mapping[str, int]) -> list[Pod]:
    """Return pods that give what is lacking.

    By turns the one that leaves the smallest part of it lacking; of these the one that requests
    least memory, then least CPU.
    """
    missing = dict(lacking)
    chosen = []
    candidates = list(pods)

    def rank(pod: Pod) -> tuple[float, int, int]:
        distance = 0.0
        for name, amount in missing.items():
            still_missing = amount - _amount(pod, name)
            if still_missing > 0:
                distance += (still_missing / amount) ** 2
        return distance, _amount(pod, "memory"), _amount(pod, "cpu")

    while missing and candidates:
        # the last of equals
        best = min(reversed(range(len(candidates))), key=lambda place: rank(candidates[place]))
        chosen.append(candidates[best])
        missing = _less(missing, [candidates[best]])
        candidates[best] = candidates[-1]  # as the kubelet does, which decides between equal pods
        candidates.pop()

    return chosen


class NodeObject(Record):
    """The fields of a Node object that matter here.

    Attributes:
        name: empty: not known.
        kubelet_version: `status.nodeInfo.kubeletVersion` as it stands there, such as
            `v1.33.4-eks-1`; None: not known.
        allocatable: `status.allocatable`: CPU in thousandths, all else in units (bytes, devices,
            pods); empty: not known.
        knows_labels: False: there is no such object, so that of a label that is missing nothing is
            known.
        memory_capacity: the bytes of memory of the whole machine by its kernel (`MemTotal`), which
            a kubelet takes for the node's capacity (`GetMachineMemoryCapacity` of cAdvisor); on a
            machine whose memory grows, its NUMA nodes have less. 0: as much as they have.
        is_unschedulable: whether the node is cordoned; a kubelet does not look at it.
        unhealthy_devices: by resource, how many devices a kubelet has and does not give: its
            capacity counts them, and what is allocatable does not.
        version: its resourceVersion, which is no part of what is compared; empty: not known.
    """

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    kubelet_version: str | None = None
    allocatable: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    knows_labels: bool = True
    memory_capacity: int = 0
    is_unschedulable: bool = False
    unhealthy_devices: Mapping[str, int] = field(default_factory=dict)
    version: str = field(default="", compare=False)


def node_object(data: object, where: str = "nodeObject") -> NodeObject:
    """Return the facts in a Node object, as plain objects.

    Args:
        data: the object.
        where: the place that an error names.

    Raises:
        InputError: it is no Node object.
    """
    if not isinstance(data, Mapping):
        raise InputError.at(where, "a Node object", data)

    from alignup.kubernetes.wire import NodeWire  # noqa: PLC0415  # msgspec is slow to import
    from alignup.text.typed import decode  # noqa: PLC0415  # as above

    return node_of_wire(decode(data, NodeWire, where), where)


def node_of_wire(wire: NodeWire, where: str = "nodeObject") -> NodeObject:
    """Return the facts in a Node object that is decoded; arguments and errors as `node_object`."""
    from alignup.kubernetes.wire import (  # noqa: PLC0415  # msgspec is slow to import
        NodeInfoWire,
        NodeMetadataWire,
        NodeSpecWire,
        NodeStatusWire,
    )

    if wire.kind != "Node":
        raise InputError.at(f"{where}.kind", "Node", wire.kind)

    metadata = wire.metadata or NodeMetadataWire()
    spec = wire.spec or NodeSpecWire()
    status = wire.status or NodeStatusWire()
    info = status.node_info or NodeInfoWire()

    allocatable = _amounts(status.allocatable, f"{where}.status.allocatable")
    capacity = _amounts(status.capacity, f"{where}.status.capacity")
    unhealthy_devices = {
        name: amount - allocatable.get(name, 0)
        for name, amount in capacity.items()
        if is_device(name) and amount > allocatable.get(name, 0)
    }
    return NodeObject(
        name=metadata.name or "",
        labels=metadata.labels or {},
        kubelet_version=info.kubelet_version or None,
        allocatable=allocatable,
        taints=tuple(spec.taints or ()),
        is_unschedulable=bool(spec.unschedulable),
        unhealthy_devices=unhealthy_devices,
        version=metadata.resource_version or "",
    )


def _amounts(quantities: Mapping[str, Any] | None, where: str) -> dict[str, int]:
    """Return amounts of a Node's status in the units of `NodeObject`."""
    return {
        name: in_units(name, parse_quantity(value, where, name))
        for name, value in (quantities or {}).items()
    }
