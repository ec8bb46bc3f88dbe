"""Decodes Pod manifests into `alignup.kubernetes.pod.Pod`, or says what is wrong with them.

Checks what the API server would check of the fields that matter here, and fills in its defaults.
Pods in texts and in other objects are found by `alignup.kubernetes.pod_documents`. QoS class and
effective requests are derived in `alignup.kubernetes.pod`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, warn
from alignup.kubernetes.pod import (
    ANY_NODE,
    EXTENDED_CLAIM,
    NODE_SELECTOR_TERMS,
    OS_LABEL,
    REQUIRED,
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
from alignup.kubernetes.quantity import (
    in_units_of_each,
    parse_quantity,
    whole_units,
)
from alignup.records import replace

if TYPE_CHECKING:
    from alignup.kubernetes.wire import (
        ContainerWire,
        ExtendedResourceClaimWire,
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

    Examples:
        >>> spec = {"containers": [{"name": "c", "image": "i"}]}
        >>> read_pod({"metadata": {"name": "p"}, "spec": spec}).namespaced_name
        'default/p'
    """
    if isinstance(manifest, str | bytes):
        expected = "a mapping (read_pods reads files and texts)"
        raise InputError.at(place or "the top", expected, manifest)

    wire = _decoder()(manifest, place)
    before = f"{place}." if place else ""
    _check_kind(wire, before)

    metadata, spec = wire.metadata, wire.spec
    name = metadata and metadata.name
    if metadata is not None and not name and metadata.generate_name:
        name = f"{metadata.generate_name}0"
    if metadata is None or not name:
        raise InputError.at(f"{before}metadata.name", "a name", metadata and metadata.name)
    if spec is None or not spec.containers:
        raise InputError.at(
            f"{before}spec.containers", "at least one container", spec and spec.containers
        )

    namespace = metadata.namespace or "default"
    identity = {
        "uid": metadata.uid or f"{namespace}/{name}",
        "name": name,
        "namespace": namespace,
        "annotations": metadata.annotations or {},
    }

    names: set[str] = set()
    raw_init = [
        _raw_requests(container, f"{before}spec.initContainers[{index}]", names, is_init=True)
        for index, container in enumerate(spec.init_containers or ())
    ]
    raw_containers = [
        _raw_requests(container, f"{before}spec.containers[{index}]", names, is_init=False)
        for index, container in enumerate(spec.containers)
    ]

    claims: tuple[PodClaim, ...] = ()
    if spec.resource_claims:
        warn(
            f"{IGNORED_CLAIMS} {namespace}/{name} are ignored: devices of DRA drivers are not "
            "modelled"
        )
        claims = _claims(spec, wire.status)

    raw_pod = None
    if spec.resources is not None:
        raw_pod = RawRequests("", *_resources(spec.resources, f"{before}spec"))

    allocated: dict[str, dict[str, int]] = {}
    if wire.status is not None:
        allocated = _allocated(wire.status, raw_init + raw_containers, before)

    os_label = metadata.labels.get(OS_LABEL, "") if metadata.labels else ""
    constraints = _constraints(spec, os_label, claims, before)
    if wire.status is not None and wire.status.node_allocatable_resource_claim_statuses:
        claimed, claimed_with = _claimed(wire.status, before)
        constraints = replace(constraints, claimed=claimed, claimed_with=claimed_with)
    if wire.status is not None and wire.status.extended_resource_claim_status is not None:
        constraints = _with_extended_claim(constraints, wire.status.extended_resource_claim_status)

    return PodSource(
        identity, raw_init, raw_containers, raw_pod, allocated, constraints, stored_qos
    ).pod()


def _check_kind(wire: PodWire, before: str) -> None:
    """Check that a manifest is one of a Pod."""
    if wire.kind != "Pod" and wire.kind is not None:
        steps = ".".join(WORKLOADS.get(wire.kind, ()))
        hint = f"; its pod is at {before}{steps}" if steps else ""
        raise InputError(f"{InputError.at(f'{before}kind', 'Pod', wire.kind)}{hint}")

    if wire.api_version != "v1" and wire.api_version is not None:
        raise InputError.at(f"{before}apiVersion", "v1", wire.api_version)


def _claims(spec: PodSpecWire, status: PodStatusWire | None) -> tuple[PodClaim, ...]:
    """Return the claims of a pod, with the names that its status knows."""
    names_by_status = {
        claim.name: claim.resource_claim_name
        for claim in (status and status.resource_claim_statuses) or ()
    }

    users: dict[str, set[str]] = {}
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        if container.resources is not None:
            for use in container.resources.claims or ():
                users.setdefault(use.name, set()).add(container.name or "")

    return tuple(
        PodClaim(
            claim.name,
            claim=claim.resource_claim_name or names_by_status.get(claim.name) or "",
            template=claim.resource_claim_template_name or "",
            containers=tuple(sorted(users.get(claim.name, ()))),
        )
        for claim in spec.resource_claims or ()
    )


def _with_extended_claim(
    constraints: NodeConstraints, status: ExtendedResourceClaimWire
) -> NodeConstraints:
    """Return constraints with the claim that the scheduler has made for extended resources."""
    uses = [
        (use.container_name or "", use.resource_name or "", use.request_name or "")
        for use in status.request_mappings or ()
    ]
    pod_claim = PodClaim(
        EXTENDED_CLAIM,
        status.resource_claim_name or "",
        containers=tuple(sorted({container for container, _, _ in uses})),
        requests=tuple((container, request) for container, _, request in uses),
    )
    return replace(
        constraints,
        claims=(*constraints.claims, pod_claim),
        claimed_devices=frozenset((container, resource) for container, resource, _ in uses),
    )


def _claimed(
    status: PodStatusWire, before: str
) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return what the claims of a pod count as, by its status: as a whole, and by container.

    Source: `getDRANodeAllocatableResources`.
    """
    amounts = Counter[str]()
    by_container: dict[str, Counter[str]] = {}
    for index, claim in enumerate(status.node_allocatable_resource_claim_statuses or ()):
        place = f"{before}status.nodeAllocatableResourceClaimStatuses[{index}]"
        for resource in (*(claim.mapping or ()), *(claim.overhead or ())):
            name = resource.name
            mapped = parse_quantity(resource.quantity or 0, place, name)
            by_pod = parse_quantity(resource.per_pod or 0, place, name)
            with_container = parse_quantity(resource.per_container or 0, place, name)
            amounts[name] += mapped + by_pod
            if not with_container:
                continue

            for container in claim.containers or ():
                by_container.setdefault(container, Counter())[name] += with_container

    return in_units_of_each(amounts), {
        container: in_units_of_each(overheads) for container, overheads in by_container.items()
    }


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
        container
        for container in spec.init_containers or ()
        if container.ports and container.restart_policy == "Always"
    ]
    with_ports += [container for container in spec.containers or () if container.ports]
    if not (
        spec.node_name or spec.node_selector or spec.affinity or spec.tolerations
        or spec.os or os_label or claims or spec.priority is not None or spec.priority_class_name
        or spec.overhead or with_ports
    ):  # fmt: skip
        return ANY_NODE

    overhead = _quantities(spec.overhead or {}, f"{before}spec.overhead")
    priority = spec.priority
    if priority is None:
        priority = _CRITICAL_CLASSES.get(spec.priority_class_name or "")

    return NodeConstraints(
        node_name=spec.node_name or "",
        node_selector=spec.node_selector or {},
        node_affinity=required_node_terms(spec.affinity or {}, f"{before}spec.affinity"),
        tolerations=tuple(spec.tolerations or ()),
        host_ports=tuple(_host_ports(with_ports, is_host_network=bool(spec.host_network))),
        os=str((spec.os or {}).get("name") or ""),
        os_label=os_label,
        claims=claims,
        priority=priority,
        overhead=in_units_of_each(overhead),
    )


def required_node_terms(
    affinity: Mapping[str, Any], where: str
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the required terms of nodes in a pod's `spec.affinity`; None if there are none.

    Raises:
        InputError: they have not the form of such terms; the place in it begins with `where`.
    """
    selector: Any = affinity
    for key in ("nodeAffinity", REQUIRED):
        where = f"{where}.{key}"
        selector = selector.get(key)
        if selector is None:
            return None
        if not isinstance(selector, Mapping):
            raise InputError.at(where, "a mapping", selector)

    terms = selector.get(NODE_SELECTOR_TERMS)
    if not isinstance(terms, list) or not all(isinstance(term, Mapping) for term in terms):
        raise InputError.at(f"{where}.{NODE_SELECTOR_TERMS}", "a list of terms", terms)

    for number, term in enumerate(terms):
        for kind in ("matchExpressions", "matchFields"):
            requirements = term.get(kind) or ()
            if not isinstance(requirements, list | tuple) or not all(
                _is_requirement(requirement) for requirement in requirements
            ):
                place = f"{where}.{NODE_SELECTOR_TERMS}[{number}].{kind}"
                raise InputError.at(place, "a list of requirements", requirements)

    return tuple(terms)


def _is_requirement(requirement: object) -> bool:
    """Return whether something has the form of a requirement of a node selector."""
    if not isinstance(requirement, Mapping):
        return False
    values = requirement.get("values") or ()
    return isinstance(values, list | tuple)


def _host_ports(
    containers: Iterable[ContainerWire], *, is_host_network: bool
) -> Iterator[tuple[str, str, int]]:
    """Yield the ports of the host that containers take.

    On the host's network, all that they declare.
    """
    for container in containers:
        for port in container.ports or ():
            number = port.get("hostPort")
            if not number and is_host_network:
                number = port.get("containerPort")
            if isinstance(number, int) and number > 0:
                yield (
                    str(port.get("protocol") or "TCP"),
                    str(port.get("hostIP") or "0.0.0.0"),  # noqa: S104  # as the API has it
                    number,
                )


def _allocated(
    status: PodStatusWire, raw_containers: Iterable[RawRequests], before: str
) -> dict[str, dict[str, int]]:
    """Return the allocated resources of containers, where they are not what the spec requests.

    In billionths.
    """
    requests = {raw.name: raw.requests for raw in raw_containers}
    allocated: dict[str, dict[str, int]] = {}
    for kind, statuses in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for index, container in enumerate(statuses or ()):
            name = container.name
            if name not in requests or container.allocated_resources is None:
                continue

            place = f"{before}status.{kind}[{index}].allocatedResources"
            amounts = _quantities(container.allocated_resources, place)
            if amounts != requests[name]:
                allocated[name] = amounts

    return allocated


def _raw_requests(
    container: ContainerWire, place: str, names: set[str], *, is_init: bool
) -> RawRequests:
    """Return the resources of a container; its name is added to `names`."""
    name = container.name
    if not name:
        raise InputError.at(f"{place}.name", "a name", name)
    if name in names:
        raise InputError.at(f"{place}.name", "a name that no other container of the pod has", name)

    names.add(name)
    is_sidecar = is_init and container.restart_policy == "Always"
    if container.resources is None:
        return RawRequests(name, {}, {}, is_init, is_sidecar)

    requests, limits = _resources(container.resources, place)
    for resource, limit in limits.items():
        requests.setdefault(resource, limit)

    return RawRequests(name, requests, limits, is_init, is_sidecar)


def _resources(resources: ResourcesWire, place: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the requests and limits of a resources section in billionths.

    They are checked against each other.
    """
    written_requests, written_limits = resources.requests or {}, resources.limits or {}
    requests = _quantities(written_requests, f"{place}.resources.requests")
    limits = _quantities(written_limits, f"{place}.resources.limits")

    for resource, amount in requests.items():
        limit = limits.get(resource)
        if amount == limit:
            continue

        expected = None
        if limit is None:
            if is_device(resource) or is_hugepages(resource):
                expected = "a limit of as much"
        elif is_device(resource) or is_hugepages(resource):
            expected = f"as much as the limit, {written_limits[resource]!r}"
        elif amount > limit:
            expected = f"at most the limit, {written_limits[resource]!r}"

        if expected:
            raise InputError.at(
                f'{place}.resources.requests["{resource}"]', expected, written_requests[resource]
            )

    if (
        _COMPUTE.isdisjoint(requests)
        and _COMPUTE.isdisjoint(limits)
        and any(map(is_hugepages, (*requests, *limits)))
    ):
        raise InputError.at(
            f"{place}.resources", "cpu or memory next to hugepages", sorted({*requests, *limits})
        )

    return requests, limits


def resized_pod(
    pod: Pod, containers: Mapping[str, Any], resources: Mapping[str, Any] | None = None
) -> Pod:
    """Return a pod with other CPU and memory.

    As the API server would patch it for a resize in place.

    Args:
        pod: the pod.
        containers: by name, `requests` and `limits` as in a manifest; what they leave out stays.
        resources: the same of the pod as a whole (`spec.resources`); None: they stay.

    Raises:
        InputError: a container is unknown, something else than CPU and memory changes, or more is
            requested than the limit is.
    """
    source = source_of(pod)
    raw_by_name = {raw.name: raw for raw in (*source.raw_init, *source.raw_containers)}
    for name, patch in containers.items():
        if name not in raw_by_name:
            expected = f"containers of the pod ({', '.join(raw_by_name)})"
            raise InputError.at("containers", expected, name)
        _resize(raw_by_name[name], patch, f"containers[{name!r}]")

    if resources is not None:
        if source.raw_pod is None:
            raise InputError.at(
                "pod", "a pod that has resources as a whole (spec.resources)", pod.name
            )

        _resize(source.raw_pod, resources, "pod")

    return source.pod()


def resources_of(pod: Pod) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the CPU and memory of a pod as `resized_pod` takes them.

    By container, and of the pod as a whole.
    """
    source = source_of(pod)
    containers = {
        raw.name: _as_resources(raw) for raw in (*source.raw_init, *source.raw_containers)
    }
    if source.raw_pod is None:
        return containers, None
    return containers, _as_resources(source.raw_pod)


def _as_resources(raw: RawRequests) -> dict[str, dict[str, str]]:
    return {
        kind: {name: f"{amounts[name]}n" for name in _RESIZABLE if name in amounts}
        for kind, amounts in (("requests", raw.requests), ("limits", raw.limits))
    }


def _resize(raw: RawRequests, patch: object, where: str) -> None:
    """Patch resources."""
    if not isinstance(patch, Mapping) or not {"requests", "limits"} >= patch.keys():
        raise InputError.at(where, 'an object with "requests" and "limits"', patch)

    for kind, amounts in (("requests", raw.requests), ("limits", raw.limits)):
        new_amounts = patch.get(kind) or {}
        if not isinstance(new_amounts, Mapping):
            raise InputError.at(f"{where}.{kind}", "amounts by resource", new_amounts)

        for resource, amount in _quantities(new_amounts, f"{where}.{kind}").items():
            if resource not in _RESIZABLE and amount != amounts.get(resource):
                raise InputError.at(f"{where}.{kind}", "changes of cpu and memory only", resource)
            amounts[resource] = amount

    for resource, limit in raw.limits.items():
        if raw.requests.get(resource, 0) > limit:
            raise InputError.at(f'{where}.requests["{resource}"]', "at most the limit", patch)


def _quantities(amounts: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the amounts in billionths, each checked by itself."""
    parsed: dict[str, int] = {}
    for resource, value in amounts.items():
        amount = parse_quantity(value, where, resource)
        parsed[resource] = amount

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
