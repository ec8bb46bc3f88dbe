"""Writes the manifest of a pod from its record, and manifests of the same pod with other requests.

A record does not keep its manifest. A written manifest is returned only if reading it gives an
equal record.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.pod import Container, Pod, is_pinned_memory
from alignup.text.counting import format_bytes

Manifest = dict[str, Any]


def manifest_of(pod: Pod, given: Mapping[str, Any] | None = None) -> Manifest | None:
    """Return a manifest of the pod with its uid, name and namespace; None if the record does not tell enough.

    Args:
        pod: the pod.
        given: the manifest that it was read from, for what a record does not keep, such as
            `spec.resources`.
    """
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if pod.annotations:
        metadata["annotations"] = dict(pod.annotations)

    spec: dict[str, Any] = {"containers": [_container(one) for one in pod.containers]}
    if pod.init_containers:
        spec["initContainers"] = [_container(one) for one in pod.init_containers]

    _write_constraints(pod, metadata, spec)
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if _reads_as(made, pod):
        return made
    if given is None:
        return None

    copied = deepcopy(dict(given))
    copied["metadata"] = {**copied["metadata"], **metadata}
    return copied


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

    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": demands.node_affinity
        }
    }
    fields: dict[str, Any] = {
        "nodeName": demands.node_name or None,
        "nodeSelector": dict(demands.node_selector) or None,
        "affinity": None if demands.node_affinity is None else {"nodeAffinity": affinity},
        "tolerations": list(demands.tolerations) or None,
        "os": {"name": demands.os} if demands.os else None,
        "priority": demands.priority,
        "overhead": {name: quantity(name, amount) for name, amount in demands.overhead.items()}
        or None,
    }
    spec.update({name: value for name, value in fields.items() if value is not None})


def _reads_as(manifest: Manifest, pod: Pod) -> bool:
    """Return whether the manifest is read into this pod."""
    found, wanted = (
        (
            *(one.qos, one.all_containers, one.exclusive_cpus, one.constraints),
            [(container.requests, container.limits) for container in one.all_containers],
        )
        for one in (read_pod(manifest), pod)
    )
    return found == wanted


def _container(one: Container) -> dict[str, Any]:
    resources = {
        kind: {name: quantity(name, amount) for name, amount in amounts.items()}
        for kind, amounts in (("requests", one.requests), ("limits", one.limits))
        if amounts
    }
    always = {"restartPolicy": "Always"} if one.is_sidecar else {}
    return {
        "name": one.name,
        "image": "image",
        **always,
        **({"resources": resources} if resources else {}),
    }


def quantity(resource: str, amount: int) -> str:
    """Return an amount as a manifest has it; CPU is in thousandths."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return format_bytes(amount) if is_pinned_memory(resource) else str(amount)


def asked_by(one: Container | Pod) -> dict[str, int]:
    """Return what a container, or the pod as a whole, asks the managers for: CPUs, bytes, devices."""
    cpus = {"cpu": one.exclusive_cpus} if one.exclusive_cpus else {}
    return {**cpus, **{name: amount for name, amount in (*one.memory, *one.devices) if amount}}


def in_units(resource: str, amount: int) -> str:
    """Return what the managers count, CPUs, bytes or devices, as a manifest has it."""
    return quantity(resource, amount * 1000 if resource == "cpu" else amount)


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

    def change(one: dict[str, Any]) -> list[dict[str, Any]]:
        mine = {
            resource: amount for (name, resource), amount in amounts.items() if name == one["name"]
        }
        if not mine:
            return [one]

        given = one.get("resources") or {}
        requests, limits = (dict(given.get(kind) or {}) for kind in ("requests", "limits"))
        words = quantity if as_whole else in_units
        for resource, amount in mine.items():
            limit = limits.get(resource)
            is_equal = resource in limits and str(requests.get(resource, limit)) == str(limit)
            for kind in (requests, limits) if is_equal or not as_whole else (requests,):
                kind.pop(resource, None)
                if amount:
                    kind[resource] = words(resource, amount)

        made = {**one, "resources": {**given, "requests": requests, "limits": limits}}
        return (
            [made]
            if parts == 1
            else [{**made, "name": f"{one['name']}-{number}"} for number in range(parts)]
        )

    spec = manifest["spec"]
    keys = [key for key in ("initContainers", "containers") if spec.get(key)]
    lists = {key: [new for one in spec[key] for new in change(one)] for key in keys}
    return {**manifest, "spec": {**spec, **lists}}
