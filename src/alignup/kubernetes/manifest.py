"""Pod manifests: decodes objects, YAML or JSON into `alignup.kubernetes.pod.Pod`, or says what is wrong with them.

Checks what the API server would check of the fields that matter here, and fills in its defaults.
Pods in texts and in other objects are found by `alignup.kubernetes.pod_documents`. QoS class and
effective requests are derived in `alignup.kubernetes.pod`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, warn
from alignup.kubernetes.pod import (
    ANY_NODE,
    OS_LABEL,
    NodeConstraints,
    Pod,
    PodClaim,
    PodSource,
    QOSClass,
    RawRequests,
    is_device,
    is_hugepages,
    source_of,
)
from alignup.kubernetes.quantity import in_units, parse_quantity, whole_units
from alignup.records import replace

if TYPE_CHECKING:
    from alignup.kubernetes.wire import (
        ContainerWire,
        PodSpecWire,
        PodStatusWire,
        PodWire,
        ResourcesWire,
    )

# The kinds of Kubernetes that make pods, and where they keep the template.
WORKLOADS: Final = {
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job"),
        ("spec", "template"),
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
# The start of a warning; code that has the claims' objects suppresses it.
IGNORED_CLAIMS: Final = "the resource claims of pod"
# The priority of the classes that every cluster has.
_CRITICAL_CLASSES: Final = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
_RESIZABLE: Final = ("cpu", "memory")
_COMPUTE: Final = frozenset(_RESIZABLE)


def read_pod(
    manifest: Mapping[str, Any], place: str = "", stored_qos: QOSClass | None = None
) -> Pod:
    """Return the pod that a manifest describes.

    >>> read_pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}).namespaced_name
    'default/p'

    Defaults are the API server's: a request that is missing is the limit of the same resource, the
    namespace is `default`. A missing uid, which the server would make up, is `namespace/name` here;
    a name that it would generate ends in 0. `kind` and `apiVersion` may be missing. Resource claims
    are ignored with a warning.

    Args:
        manifest: the manifest as plain objects; fields that do not matter here are ignored, as are
            ephemeral containers.
        place: the place of the manifest that errors put before the field's, such as `items[2]`.
        stored_qos: the QoS class that an API server has stored; None: it follows from the
            resources.

    Raises:
        InputError: it is no Pod, or the API server would refuse it for one of the fields that
            matter here.
    """
    wire = _decoder()(manifest, place)
    before = f"{place}." if place else ""
    metadata, spec = wire.metadata, wire.spec
    if wire.kind != "Pod" and wire.kind is not None:
        steps = ".".join(WORKLOADS.get(wire.kind, ()))
        hint = f"; its pod is at {before}{steps}" if steps else ""
        raise InputError(f"{InputError.at(f'{before}kind', 'Pod', wire.kind)}{hint}")

    if wire.api_version != "v1" and wire.api_version is not None:
        raise InputError.at(f"{before}apiVersion", "v1", wire.api_version)

    name = metadata and (
        metadata.name or (f"{metadata.generate_name}0" if metadata.generate_name else "")
    )
    if metadata is None or not name:
        raise InputError.at(f"{before}metadata.name", "a name", metadata and metadata.name)
    if spec is None or not spec.containers:
        raise InputError.at(
            f"{before}spec.containers", "at least one container", spec and spec.containers
        )

    names: set[str] = set()
    lists = (("initContainers", spec.init_containers), ("containers", spec.containers))
    raw_init, raw_containers = (
        [
            _raw_requests(one, f"{before}spec.{kind}[{index}]", names, kind)
            for index, one in enumerate(listed or ())
        ]
        for kind, listed in lists
    )
    namespace = metadata.namespace or "default"
    if spec.resource_claims:
        warn(
            f"{IGNORED_CLAIMS} {namespace}/{name} are ignored: devices of DRA drivers are not "
            "modelled"
        )

    uid, annotations = metadata.uid or f"{namespace}/{name}", metadata.annotations or {}
    identity = {"uid": uid, "name": name, "namespace": namespace, "annotations": annotations}
    whole = (
        None
        if spec.resources is None
        else RawRequests("", *_resources(spec.resources, f"{before}spec"))
    )
    allocated = (
        {} if wire.status is None else _allocated(wire.status, raw_init + raw_containers, before)
    )
    os_label = metadata.labels.get(OS_LABEL, "") if metadata.labels else ""
    claims = _claims(spec, wire.status) if spec.resource_claims else ()
    constraints = _constraints(spec, os_label, claims, before)
    if wire.status is not None and wire.status.node_allocatable_resource_claim_statuses:
        constraints = replace(constraints, claimed=_claimed(wire.status, before))

    return PodSource(
        identity, raw_init, raw_containers, whole, allocated, constraints, stored_qos
    ).pod()


def _claims(spec: PodSpecWire, status: PodStatusWire | None) -> tuple[PodClaim, ...]:
    """Return the claims of a pod, with the names that its status knows."""
    made = {
        one.name: one.resource_claim_name
        for one in (status and status.resource_claim_statuses) or ()
    }
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    claiming = [(one.name or "", one.resources.claims or ()) for one in containers if one.resources]
    uses = {(use.name, container) for container, claims in claiming for use in claims}
    found = []
    for one in spec.resource_claims or ():
        users = tuple(sorted(container for name, container in uses if name == one.name))
        claim, template = (
            one.resource_claim_name or made.get(one.name) or "",
            one.resource_claim_template_name or "",
        )
        found.append(PodClaim(one.name, claim, template, users))

    return tuple(found)


def _claimed(status: PodStatusWire, before: str) -> dict[str, int]:
    """Return what the claims of a pod count as, by its status; source: `addDRANodeAllocatableClaimResources`."""
    found: dict[str, int] = {}
    for index, claim in enumerate(status.node_allocatable_resource_claim_statuses or ()):
        place = f"{before}status.nodeAllocatableResourceClaimStatuses[{index}]"
        for one in (*(claim.mapping or ()), *(claim.overhead or ())):
            amounts = (one.quantity, one.per_pod, one.per_container)
            mapped, by_pod, by_container = (
                parse_quantity(value or 0, place, one.name) for value in amounts
            )
            total = mapped + by_pod + len(claim.containers or ()) * by_container
            found[one.name] = found.get(one.name, 0) + total
    return {name: in_units(name, amount) for name, amount in found.items()}


@cache
def _decoder() -> Callable[[object, str], PodWire]:
    """Return what decodes a manifest; it is imported once, and not before there is one."""
    from alignup.kubernetes.wire import PodWire  # noqa: PLC0415  # msgspec is slow to import
    from alignup.text.typed import decode  # noqa: PLC0415  # as above

    return lambda manifest, place: decode(manifest, PodWire, place)


def _constraints(
    spec: PodSpecWire, os_label: str, claims: tuple[PodClaim, ...], before: str
) -> NodeConstraints:
    """Return what a pod demands of the node as a whole."""
    with_ports = [
        one for one in spec.init_containers or () if one.ports and one.restart_policy == "Always"
    ]
    with_ports += [one for one in spec.containers or () if one.ports]
    if not (
        spec.node_name or spec.node_selector or spec.affinity or spec.tolerations or spec.os or os_label or claims
        or spec.priority is not None or spec.priority_class_name or spec.overhead or with_ports
    ):  # fmt: skip
        return ANY_NODE

    overhead = _quantities(spec.overhead or {}, f"{before}spec.overhead")
    priority = spec.priority
    if priority is None:
        priority = _CRITICAL_CLASSES.get(spec.priority_class_name or "")

    return NodeConstraints(
        node_name=spec.node_name or "",
        node_selector=spec.node_selector or {},
        node_affinity=_required_terms(spec.affinity or {}, f"{before}spec.affinity"),
        tolerations=tuple(spec.tolerations or ()),
        host_ports=tuple(_host_ports(with_ports, is_host_network=bool(spec.host_network))),
        os=str((spec.os or {}).get("name") or ""),
        os_label=os_label,
        claims=claims,
        priority=priority,
        overhead={name: in_units(name, amount) for name, amount in overhead.items()},
    )


def _required_terms(
    affinity: Mapping[str, Any], where: str
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the required terms of a node affinity; None if there are none."""
    found: Any = affinity
    for key in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        where = f"{where}.{key}"
        found = found.get(key)
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise InputError.at(where, "a mapping", found)

    terms = found.get("nodeSelectorTerms")
    if not isinstance(terms, list) or not all(isinstance(one, Mapping) for one in terms):
        raise InputError.at(f"{where}.nodeSelectorTerms", "a list of terms", terms)

    return tuple(terms)


def _host_ports(
    containers: Iterable[ContainerWire], *, is_host_network: bool
) -> Iterator[tuple[str, str, int]]:
    """Yield the ports of the host that containers take; on the host's network, all that they declare."""
    for container in containers:
        for port in container.ports or ():
            number = port.get("hostPort") or (port.get("containerPort") if is_host_network else 0)
            if isinstance(number, int) and number > 0:
                yield (
                    str(port.get("protocol") or "TCP"),
                    str(port.get("hostIP") or "0.0.0.0"),  # noqa: S104  # as the API has it
                    number,
                )


def _allocated(
    status: PodStatusWire, raw_containers: Iterable[RawRequests], before: str
) -> dict[str, dict[str, int]]:
    """Return the allocated resources of containers, in billionths, where they are not what the spec requests."""
    requests = {raw.name: raw.requests for raw in raw_containers}
    found: dict[str, dict[str, int]] = {}
    for kind, statuses in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for index, one in enumerate(statuses or ()):
            if one.name not in requests or one.allocated_resources is None:
                continue
            amounts = _quantities(
                one.allocated_resources, f"{before}status.{kind}[{index}].allocatedResources"
            )
            if amounts != requests[one.name]:
                found[one.name] = amounts

    return found


def _raw_requests(container: ContainerWire, place: str, names: set[str], kind: str) -> RawRequests:
    """Return the resources of a container; its name is added to `names`."""
    name = container.name
    if not name:
        raise InputError.at(f"{place}.name", "a name", name)
    if name in names:
        raise InputError.at(f"{place}.name", "a name that no other container of the pod has", name)

    names.add(name)
    is_init = kind == "initContainers"
    is_sidecar = is_init and container.restart_policy == "Always"
    if container.resources is None:
        return RawRequests(name, {}, {}, is_init, is_sidecar)

    requests, limits = _resources(container.resources, place)
    for resource, limit in limits.items():
        requests.setdefault(resource, limit)

    return RawRequests(name, requests, limits, is_init, is_sidecar)


def _resources(resources: ResourcesWire, place: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the requests and limits of a resources section in billionths, checked against each other."""
    requests, bounds = resources.requests or {}, resources.limits or {}
    wanted = _quantities(requests, f"{place}.resources.requests")
    limits = _quantities(bounds, f"{place}.resources.limits")
    for resource, amount in wanted.items():
        limit = limits.get(resource)
        if amount == limit:
            continue
        expected = None
        if is_device(resource) or is_hugepages(resource):
            expected = (
                "a limit of as much"
                if limit is None
                else f"as much as the limit, {bounds[resource]!r}"
            )
        elif limit is not None and amount > limit:
            expected = f"at most the limit, {bounds[resource]!r}"

        if expected:
            raise InputError.at(
                f'{place}.resources.requests["{resource}"]', expected, requests[resource]
            )

    if (
        _COMPUTE.isdisjoint(wanted)
        and _COMPUTE.isdisjoint(limits)
        and any(map(is_hugepages, (*wanted, *limits)))
    ):
        raise InputError.at(
            f"{place}.resources", "cpu or memory next to hugepages", sorted({*wanted, *limits})
        )

    return wanted, limits


def resized_pod(
    pod: Pod, containers: Mapping[str, Any], resources: Mapping[str, Any] | None = None
) -> Pod:
    """Return a pod with other CPU and memory, as the API server would patch it for a resize in place.

    Args:
        pod: the pod.
        containers: by name, `requests` and `limits` as in a manifest; what they leave out stays.
        resources: the same of the pod as a whole (`spec.resources`); None: they stay.

    Raises:
        InputError: a container is unknown, something else than CPU and memory changes, or more is
            requested than the limit is.
    """
    source = source_of(pod)
    known = {one.name: one for one in (*source.raw_init, *source.raw_containers)}
    for name, wanted in containers.items():
        if name not in known:
            raise InputError.at("containers", f"containers of the pod ({', '.join(known)})", name)
        _resize(known[name], wanted, f"containers[{name!r}]")

    if resources is not None:
        if source.raw_pod is None:
            raise InputError.at(
                "pod", "a pod that has resources as a whole (spec.resources)", pod.name
            )

        _resize(source.raw_pod, resources, "pod")

    return source.pod()


def resources_of(pod: Pod) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the CPU and memory of a pod as `resized_pod` takes them: by container, and of the pod as a whole."""
    source = source_of(pod)
    found = {one.name: _as_resources(one) for one in (*source.raw_init, *source.raw_containers)}
    return found, None if source.raw_pod is None else _as_resources(source.raw_pod)


def _as_resources(raw: RawRequests) -> dict[str, dict[str, str]]:
    return {
        kind: {name: f"{amounts[name]}n" for name in _RESIZABLE if name in amounts}
        for kind, amounts in (("requests", raw.requests), ("limits", raw.limits))
    }


def _resize(raw: RawRequests, wanted: object, where: str) -> None:
    """Patch resources."""
    if not isinstance(wanted, Mapping) or not {"requests", "limits"} >= wanted.keys():
        raise InputError.at(where, 'an object with "requests" and "limits"', wanted)

    for kind, amounts in (("requests", raw.requests), ("limits", raw.limits)):
        given = wanted.get(kind) or {}
        if not isinstance(given, Mapping):
            raise InputError.at(f"{where}.{kind}", "amounts by resource", given)
        for resource, amount in _quantities(given, f"{where}.{kind}").items():
            if resource not in _RESIZABLE and amount != amounts.get(resource):
                raise InputError.at(f"{where}.{kind}", "changes of cpu and memory only", resource)
            amounts[resource] = amount

    for resource, limit in raw.limits.items():
        if raw.requests.get(resource, 0) > limit:
            raise InputError.at(f'{where}.requests["{resource}"]', "at most the limit", wanted)


def _quantities(amounts: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the amounts in billionths, each checked by itself."""
    parsed: dict[str, int] = {}
    for resource, value in amounts.items():
        parsed[resource] = amount = parse_quantity(value, where, resource)
        expected = ""
        if amount < 0:
            expected = "a quantity that is not negative"
        elif is_hugepages(resource):
            size = parse_quantity(resource.partition("-")[2], f'{where}["{resource}"]')
            if size <= 0 or size % 10**9 or whole_units(amount) * 10**9 % size:
                expected = "a whole number of pages of the size in the resource's name"
        elif amount % 10**9 and is_device(resource):
            expected = "a whole number of devices"

        if expected:
            raise InputError.at(f'{where}["{resource}"]', expected, value)

    return parsed
