"""The kubelet's own checks of a pod, which come after its resource managers: amounts, ports, node name, labels, OS.

Follows `predicateAdmitHandler.Admit` (pkg/kubelet/lifecycle/predicate.go), the scheduler's
`AdmissionCheck` that it calls, and the preemption for critical pods
(pkg/kubelet/preemption/preemption.go) of Kubernetes 1.36. Go walks the resources of device plugins
in random order; here they are in the order of their names.

What it needs to know of a node is read from its Node object, as `kubectl get node -o json` prints
it; the release itself is read by `alignup.kubernetes.versions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import pack, unpack
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
from alignup.kubernetes.quantity import in_units, parse_quantity, whole_units
from alignup.records import Record, field, replace

if TYPE_CHECKING:
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.machine.machine import Machine

UNEXPECTED: Final = "UnexpectedAdmissionError"
CRITICAL_PRIORITY: Final = 2_000_000_000
_OS: Final = "linux"
_POD_LEVEL: Final = ("cpu", "memory")
FIELD_NAME: Final = "metadata.name"


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
    known = {**_allocatable(machine, config), **devices, **node.allocatable}
    return replace(node, allocatable=known, labels={OS_LABEL: _OS, **node.labels})


def _allocatable(machine: Machine, config: KubeletConfig) -> dict[str, int]:
    """Return what a kubelet reports as allocatable: what there is less what is reserved."""
    reserve, kept = config.node_reserve, node_reservation(machine, config)
    if config.memory_manager_policy == "Static":  # a kubelet does not start unless both are equal
        kept["memory"] = max(kept["memory"], reserved_by_type(config).get("memory", 0))
    per_core = reserve.pods_per_core * machine.cpu_count
    return {
        "pods": min(reserve.max_pods, per_core) if per_core else reserve.max_pods,
        **{name: max(0, size - kept.get(name, 0)) for name, size in node_capacity(machine).items()},
    }


def node_capacity(machine: Machine) -> dict[str, int]:
    """Return the CPU in thousandths and the bytes of each type that pods could have if nothing were reserved."""
    amounts = {"cpu": 1000 * machine.cpu_count, **machine.memory_by_type}
    if not machine.knows_memory:
        del amounts["memory"]
    return amounts


def node_reservation(machine: Machine, config: KubeletConfig) -> dict[str, int]:
    """Return what a kubelet keeps from pods (`GetNodeAllocatableReservation`): CPU in thousandths, else units."""
    reserve = config.node_reserve
    total = sum(one.memory for one in machine.numa_nodes)
    memory = reserve.amounts.get("memory", 0) + _eviction_memory(reserve.eviction_memory, total)
    cpus = 1000 * len(config.reserved_system_cpus) or reserve.amounts.get("cpu", 0)
    return {**reserve.amounts, "cpu": cpus, "memory": memory}


def reserved_by_type(config: KubeletConfig) -> dict[str, int]:
    """Return the bytes of each type that `reservedMemory` reserves on all NUMA nodes."""
    found: dict[str, int] = {}
    for kind, size in (item for one in config.reserved_memory for item in one.limits):
        found[kind] = found.get(kind, 0) + size
    return found


def _eviction_memory(threshold: str, total: int) -> int:
    """Return the bytes of `evictionHard`'s `memory.available`: a quantity, or a percentage of all memory."""
    if threshold.endswith("%"):
        return int(total * _as_float32(_as_float32(float(threshold[:-1])) / 100))
    return whole_units(parse_quantity(threshold or 0, "evictionHard"))


def _as_float32(value: float) -> float:
    """Return the nearest number of single precision, in which the kubelet keeps percentages."""
    return float(unpack("f", pack("f", value))[0])


def requests_of(pod: Pod) -> dict[str, int]:
    """Return what a pod requests as a whole, as the scheduler and the kubelet count it.

    The peak of its containers and what its claims count as, or what the pod as a whole requests of
    CPU, memory and hugepages; and its overhead.
    """
    demands = pod.constraints
    asked = {**_without_level(pod), **_level(pod)}
    for name, amount in demands.overhead.items():
        asked[name] = asked.get(name, 0) + amount
    return {name: amount for name, amount in asked.items() if amount}


def _without_level(pod: Pod) -> dict[str, int]:
    asked = peak(pod.init_containers, pod.containers, lambda one: one.requests.items())
    for name, amount in pod.constraints.claimed.items():
        asked[name] = asked.get(name, 0) + amount
    return asked


def _level(pod: Pod) -> dict[str, int]:
    asked = pod.constraints.requests.items()
    return {name: amount for name, amount in asked if name in _POD_LEVEL or is_pinned_memory(name)}


def is_critical(pod: Pod) -> bool:
    """Return whether a kubelet makes room for the pod: static pods, mirror pods, and those of a critical priority."""
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
        return Misfit(f"OutOf{resource}", message, tuple(one for one, _, _ in short))
    if failed is not None:
        name, description = failed
        return Misfit(name, f"Predicate {name} failed: {description}")

    return Misfit()


def _insufficient(
    pod: Pod, others: Sequence[Pod], node: NodeObject
) -> Iterator[tuple[str, int, str]]:
    """Yield the resources of which too little is left, in the scheduler's order: what is lacking, and its words."""
    asked = {**requests_of(pod), "pods": 1}
    used: dict[str, int] = {}
    for other in others if len(asked) > 1 else ():
        for name, amount in requests_of(other).items():
            used[name] = used.get(name, 0) + amount

    used["pods"] = len(others)
    basic = [name for name in ("pods", "cpu", "memory", "ephemeral-storage") if name in asked]
    for name in [*basic, *sorted(asked.keys() - set(basic))]:
        capacity = node.allocatable.get(name)
        if capacity is None:
            if is_device(name) or name == "memory" or not is_pinned_memory(name):
                # kubelets ignore devices that the node lacks; disks, perhaps memory, are not known
                continue

            capacity = 0

        lacking = asked[name] - (capacity - used.get(name, 0))
        if lacking > 0:
            amounts = f"requested: {asked[name]}, used: {used.get(name, 0)}, capacity: {capacity}"
            yield name, lacking, f"Node didn't have enough resource: {name}, {amounts}"


def _failed_predicates(
    pod: Pod, others: Sequence[Pod], node: NodeObject
) -> Iterator[tuple[str, str]]:
    """Yield the checks that a pod fails for another reason than amounts, in the kubelet's order."""
    demands = pod.constraints
    if not _selects(pod, node):
        yield "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"

    if demands.node_name and node.name and demands.node_name != node.name:
        yield "NodeName", "node(s) didn't match the requested node name"

    taken = [port for other in others for port in other.constraints.host_ports]
    if any(_collide(port, other) for port in demands.host_ports for other in taken):
        yield "NodePorts", "node(s) didn't have free ports for the requested pod ports"

    is_static = pod.annotations.get(CONFIG_SOURCE, "api") != "api"
    if not is_static and not all(_tolerates(demands.tolerations, taint) for taint in node.taints):
        yield "TaintToleration", "node(s) had taints that the pod didn't tolerate"


def _collide(port: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    """Return whether two ports of the host are the same one."""
    return (
        port[0] == other[0]
        and port[2] == other[2]
        and (port[1] == other[1] or "0.0.0.0" in {port[1], other[1]})  # noqa: S104  # the API's word for any address
    )


def _tolerates(tolerations: Iterable[Mapping[str, object]], taint: Mapping[str, str]) -> bool:
    """Return whether a pod may stay on a node with this taint; the kubelet looks at `NoExecute` only."""
    if taint.get("effect") != "NoExecute":
        return True
    key, value = taint.get("key"), taint.get("value") or ""
    about = [one for one in tolerations if one.get("effect") in (None, "", "NoExecute")]
    alike = [one for one in about if one.get("key") in (None, "", key)]
    exact = [one for one in alike if one.get("key") and (one.get("value") or "") == value]
    return bool(exact) or any(one.get("operator") == "Exists" for one in alike)


def _selects(pod: Pod, node: NodeObject) -> bool:
    """Return whether a pod's node selector and its required node affinity match the node."""
    wanted, terms = pod.constraints.node_selector, pod.constraints.node_affinity
    known = [key for key in wanted if node.knows_labels or key in node.labels]
    if any(node.labels.get(key) != wanted[key] for key in known):
        return False
    return terms is None or not node.knows_labels or any(_matches(term, node) for term in terms)


def _matches(term: Mapping[str, Any], node: NodeObject) -> bool:
    """Return whether a term of a node affinity matches; a term without requirements matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and (
        all(_holds(one, node.labels.get(str(one.get("key")))) for one in expressions)
        and all(one.get("key") == FIELD_NAME and _holds(one, node.name) for one in fields)
    )


def _holds(requirement: Mapping[str, Any], value: str | None) -> bool:
    return meets(value, str(requirement.get("operator")), requirement.get("values") or ())


def meets(value: str | None, operator: str, listed: Sequence[Any]) -> bool:
    """Return whether the value of a label, None if it is missing, meets a requirement of a node selector."""
    if operator in ("NotIn", "DoesNotExist"):
        return value is None or (operator == "NotIn" and value not in listed)
    if value is None:
        return False
    if operator in ("Gt", "Lt"):
        try:
            number, bound = int(value), int(str(listed[0]))
        except (ValueError, IndexError):
            return False
        return number > bound if operator == "Gt" else number < bound
    return operator == "Exists" or (operator == "In" and value in listed)


def _preemption(pod: Pod, others: Sequence[Pod], lacking: dict[str, int]) -> Misfit:
    """Return whom a kubelet evicts to admit a critical pod, or that it finds nobody."""
    candidates = [other for other in others if _is_preemptable(pod, other)]
    guaranteed, burstable, best_effort = (
        [one for one in candidates if one.qos is kind] for kind in QOSClass
    )
    if left := _less(lacking, [*best_effort, *burstable, *guaranteed]):
        listed = "".join(f"(res: {name}, q: {amount}), " for name, amount in left.items())
        found_nobody = f"no set of running pods found to reclaim resources: [{listed}]"
        words = f"preemption: error finding a set of pods to preempt: {found_nobody}"
        message = f"Unexpected error while attempting to recover from admission failure: {words}"
        return Misfit(UNEXPECTED, message, tuple(left))

    # each class gives only what the lower ones, all of them evicted, would not
    first = _nearest(guaranteed, _less(lacking, [*best_effort, *burstable]))
    second = _nearest(burstable, _less(lacking, [*best_effort, *first]))
    return Misfit(
        preempted=(*_nearest(best_effort, _less(lacking, [*second, *first])), *second, *first)
    )


def _is_preemptable(pod: Pod, other: Pod) -> bool:
    if is_critical(pod) and not is_critical(other):
        return True
    mine, theirs = pod.constraints.priority, other.constraints.priority
    return mine is not None and theirs is not None and mine > theirs


def _amount(pod: Pod, resource: str) -> int:
    return 1 if resource == "pods" else requests_of(pod).get(resource, 0)


def _less(lacking: Mapping[str, int], pods: Iterable[Pod]) -> dict[str, int]:
    """Return what would still be lacking if these pods were gone."""
    left = dict(lacking)
    for pod in pods:
        left = {name: amount - _amount(pod, name) for name, amount in left.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _nearest(pods: Iterable[Pod], lacking: Mapping[str, int]) -> list[Pod]:
    """Return pods that give what is lacking, by turns the one that leaves the smallest part of it lacking.

    Of these the one that requests least memory, then least CPU.
    """
    left, chosen, candidates = dict(lacking), [], list(pods)

    def rank(pod: Pod) -> tuple[float, int, int]:
        rest = {name: amount - _amount(pod, name) for name, amount in left.items()}
        distance = sum((amount / left[name]) ** 2 for name, amount in rest.items() if amount > 0)
        return distance, _amount(pod, "memory"), _amount(pod, "cpu")

    while left and candidates:
        # the last of equals
        best = min(reversed(range(len(candidates))), key=lambda place: rank(candidates[place]))
        chosen.append(candidates[best])
        left = _less(left, [candidates[best]])
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
    """

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    kubelet_version: str | None = None
    allocatable: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    knows_labels: bool = True


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

    from alignup.kubernetes.wire import (  # noqa: PLC0415  # msgspec is slow to import
        MetadataWire,
        NodeInfoWire,
        NodeSpecWire,
        NodeStatusWire,
        NodeWire,
    )
    from alignup.text.typed import decode  # noqa: PLC0415  # as above

    wire = decode(data, NodeWire, where)
    if wire.kind != "Node":
        raise InputError.at(f"{where}.kind", "Node", wire.kind)

    metadata = wire.metadata or MetadataWire()
    status = wire.status or NodeStatusWire()
    info = status.node_info or NodeInfoWire()
    given, place = status.allocatable or {}, f"{where}.status.allocatable"
    amounts = {
        name: in_units(name, parse_quantity(value, place, name)) for name, value in given.items()
    }
    taints = tuple((wire.spec or NodeSpecWire()).taints or ())
    return NodeObject(
        metadata.name or "", metadata.labels or {}, info.kubelet_version or None, amounts, taints
    )
