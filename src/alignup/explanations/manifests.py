"""Writes the manifest of a pod from its record, and manifests of the same pod with other requests.

A record does not keep its manifest. A written manifest is returned only if reading it gives an
equal record.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from alignup.kubernetes.manifest import IGNORED_CLAIMS, read_pod
from alignup.kubernetes.pod import (
    NODE_SELECTOR_TERMS,
    REQUIRED,
    Container,
    Pod,
    PodClaim,
    is_pinned_memory,
    without_extended_claim,
)
from alignup.text.counting import format_bytes

Manifest = dict[str, Any]


def manifest_of(pod: Pod, original: Mapping[str, Any] | None = None) -> Manifest | None:
    """Return a manifest of the pod with its uid, name and namespace.

    None if the record does not tell enough.

    Args:
        pod: the pod.
        original: the manifest that it was read from, for what a record does not keep, such as
            `spec.resources`.
    """
    pod = without_extended_claim(pod)
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if pod.annotations:
        metadata["annotations"] = dict(pod.annotations)

    spec: dict[str, Any] = {"containers": list(map(_container, pod.containers))}
    if pod.init_containers:
        spec["initContainers"] = list(map(_container, pod.init_containers))

    _write_constraints(pod, metadata, spec)
    written = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if _compared(pod_of(written)) == _compared(pod):
        return written
    if original is None:
        return None

    copied = deepcopy(dict(original))
    copied["metadata"] = {**copied["metadata"], **metadata}
    return copied


def pod_of(manifest: Mapping[str, Any]) -> Pod:
    """Return the pod of a manifest that was written or changed here.

    That its claims are ignored was said when it was read; a node that knows of claims heeds them.

    Raises:
        InputError: the API server would refuse it.
    """
    if not manifest["spec"].get("resourceClaims"):
        return read_pod(manifest)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", IGNORED_CLAIMS)
        return read_pod(manifest)


def _write_constraints(pod: Pod, metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    """Add to a manifest what a pod demands of the node as a whole."""
    demands = pod.constraints
    if demands.os_label:
        metadata["labels"] = {"kubernetes.io/os": demands.os_label}

    ports = [
        {"containerPort": number, "hostPort": number, "hostIP": address, "protocol": protocol}
        for protocol, address, number in demands.host_ports
    ]
    if ports:
        spec["containers"][0]["ports"] = ports

    affinity = None
    if demands.node_affinity is not None:
        affinity = {"nodeAffinity": {REQUIRED: {NODE_SELECTOR_TERMS: demands.node_affinity}}}

    overhead = {name: quantity(name, amount) for name, amount in demands.overhead.items()}
    _write_claims(demands.claims, spec)
    fields: dict[str, Any] = {
        "nodeName": demands.node_name or None,
        "nodeSelector": dict(demands.node_selector) or None,
        "affinity": affinity,
        "tolerations": list(demands.tolerations) or None,
        "os": {"name": demands.os} if demands.os else None,
        "priority": demands.priority,
        "overhead": overhead or None,
    }
    spec.update({name: value for name, value in fields.items() if value is not None})


def _write_claims(claims: Sequence[PodClaim], spec: dict[str, Any]) -> None:
    """Add the claims of a pod to its spec and to the containers that use them."""
    if not claims:
        return

    spec["resourceClaims"] = []
    for claim in claims:
        source = {"resourceClaimName": claim.claim}
        if claim.template:
            source = {"resourceClaimTemplateName": claim.template}

        spec["resourceClaims"].append({"name": claim.name, **source})
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            if container["name"] in claim.containers:
                uses = container.setdefault("resources", {}).setdefault("claims", [])
                uses.append({"name": claim.name})


def _compared(pod: Pod) -> tuple[object, ...]:
    """Return what has to be equal of a pod and of one that is read from its written manifest."""
    amounts = [(container.requests, container.limits) for container in pod.all_containers]
    return pod.qos, pod.all_containers, pod.exclusive_cpus, pod.constraints, amounts


def _container(container: Container) -> dict[str, Any]:
    written: dict[str, Any] = {"name": container.name, "image": "image"}
    if container.is_sidecar:
        written["restartPolicy"] = "Always"

    resources = {
        kind: {name: quantity(name, amount) for name, amount in amounts.items()}
        for kind, amounts in (("requests", container.requests), ("limits", container.limits))
        if amounts
    }
    if resources:
        written["resources"] = resources

    return written


def quantity(resource: str, amount: int) -> str:
    """Return an amount as a manifest has it; CPU is in thousandths."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if is_pinned_memory(resource):
        return format_bytes(amount)
    return str(amount)


def asked_by(requester: Container | Pod) -> dict[str, int]:
    """Return the CPUs, bytes and devices that a container or a pod asks the managers for."""
    requests = {
        "cpu": requester.exclusive_cpus,
        **dict(requester.memory),
        **dict(requester.devices),
    }
    return {name: amount for name, amount in requests.items() if amount}


def in_units(resource: str, amount: int) -> str:
    """Return what the managers count, CPUs, bytes or devices, as a manifest has it."""
    if resource == "cpu":
        return quantity(resource, amount * 1000)
    return quantity(resource, amount)


def changed(
    manifest: Manifest,
    amounts: Mapping[tuple[str, str], int],
    *,
    parts: int = 1,
    as_whole: bool = False,
) -> Manifest:
    """Return the manifest with other amounts.

    Args:
        manifest: stays as it is.
        amounts: by (container, resource): CPUs, bytes or devices, requested and limited to; 0: not
            asked for at all.
        parts: split each of these containers into so many, which have these amounts each.
        as_whole: they are requests of the node as a whole, CPU in thousandths; a limit follows that
            was the request.
    """
    text_of = quantity if as_whole else in_units

    def changed_containers(container: dict[str, Any]) -> list[dict[str, Any]]:
        container_amounts = {
            resource: amount
            for (name, resource), amount in amounts.items()
            if name == container["name"]
        }
        if not container_amounts:
            return [container]

        resources = container.get("resources") or {}
        requests = dict(resources.get("requests") or {})
        limits = dict(resources.get("limits") or {})
        for resource, amount in container_amounts.items():
            limit = limits.get(resource)
            is_equal = resource in limits and str(requests.get(resource, limit)) == str(limit)
            for kind in (requests, limits) if is_equal or not as_whole else (requests,):
                kind.pop(resource, None)
                if amount:
                    kind[resource] = text_of(resource, amount)

        resources = {**resources, "requests": requests, "limits": limits}
        changed_container = {**container, "resources": resources}
        if parts == 1:
            return [changed_container]
        return [
            {**changed_container, "name": f"{container['name']}-{number}"}
            for number in range(parts)
        ]

    spec = dict(manifest["spec"])
    for key in ("initContainers", "containers"):
        if spec.get(key):
            lists = map(changed_containers, spec[key])
            spec[key] = list(chain.from_iterable(lists))

    return {**manifest, "spec": spec}
