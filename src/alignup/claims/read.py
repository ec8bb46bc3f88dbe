"""Reads ResourceSlices, DeviceClasses, ResourceClaims and their templates, as kubectl prints them.

Takes `resource.k8s.io/v1`, v1beta2 and v1beta1, whose devices and requests look different.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from alignup.claims.objects import Claim, DeviceClass, Slice
from alignup.errors import InputError, warn
from alignup.text.documents import read_documents
from alignup.text.typed import decode

_GROUP: Final = "resource.k8s.io/"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_DEEPEST: Final = 40


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What of a Node decides which devices it reaches."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Resources:
    """The objects of a cluster that claims are allocated from."""

    slices: tuple[Slice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[Claim, ...] = ()
    templates: tuple[Claim, ...] = ()
    """ResourceClaimTemplates, each as the claim that it makes, under its own name."""
    pods: tuple[Mapping[str, Any], ...] = ()

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.slices + other.slices,
            self.classes + other.classes,
            self.claims + other.claims,
            self.templates + other.templates,
            self.pods + other.pods,
        )


def read_resources(text: str | bytes, source: str) -> Resources:
    """Return the objects in a text; kinds that decide nothing here are ignored, DeviceTaintRules with a warning.

    Args:
        text: YAML or JSON as kubectl prints it: objects, Lists, or documents of both.
        source: the name of the text in errors.

    Raises:
        InputError: the text or an object in it is malformed.
    """
    found: dict[str, list[Any]] = {
        "ResourceSlice": [],
        "DeviceClass": [],
        "ResourceClaim": [],
        "ResourceClaimTemplate": [],
        "Pod": [],
    }
    for place, document in _objects(read_documents(text, source), source):
        kind = document.get("kind")
        if kind == "DeviceTaintRule":
            warn(f"the DeviceTaintRule at {place} is ignored: put its taint into the devices")
        if not isinstance(kind, str) or kind not in found:
            continue
        if kind == "Pod":
            found[kind].append(document)
            continue
        version = document.get("apiVersion")
        if (
            not isinstance(version, str)
            or version.removeprefix(_GROUP) not in _VERSIONS
            or not version.startswith(_GROUP)
        ):
            raise InputError.at(f"{place}.apiVersion", f"{_GROUP}{' or '.join(_VERSIONS)}", version)
        found[kind].append(_READERS[kind](document, place))
    return Resources(
        tuple(found["ResourceSlice"]),
        tuple(found["DeviceClass"]),
        tuple(found["ResourceClaim"]),
        tuple(found["ResourceClaimTemplate"]),
        tuple(found["Pod"]),
    )


def _objects(documents: list[object], source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, document in enumerate(documents, 1):
        place = f"document {number} of {source}" if len(documents) > 1 else source
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise InputError.at(place, "an object of Kubernetes", document)
        kind = document.get("kind")
        if isinstance(kind, str) and kind.endswith("List"):
            items = document.get("items") or []
            if not isinstance(items, list):
                raise InputError.at(f"items of {place}", "a list", items)
            for index, item in enumerate(items):
                if not isinstance(item, Mapping):
                    raise InputError.at(f"items[{index}] of {place}", "an object of Kubernetes", item)
                # kubectl leaves these out of the items of a typed list
                typed = (
                    {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion")}
                    if kind != "List"
                    else {}
                )
                yield f"items[{index}] of {place}", {**typed, **item}
        else:
            yield place, document


def read_slice(document: Mapping[str, Any], place: str) -> Slice:
    """Return a ResourceSlice.

    Raises:
        InputError: it is malformed.
    """
    spec = without_nulls(_mapping(document, "spec", place))
    devices = spec.get("devices", [])
    if isinstance(devices, list):
        # v1beta1 has what a device is made of under a key of its own
        spec = {**spec, "devices": [_merged(device, "basic") for device in devices]}
    return decode({**spec, "name": _name(document, place)}, Slice, f"{place}: spec")


def read_class(document: Mapping[str, Any], place: str) -> DeviceClass:
    """Return a DeviceClass.

    Raises:
        InputError: it is malformed.
    """
    spec = without_nulls(_mapping(document, "spec", place))
    return decode({**spec, "name": _name(document, place)}, DeviceClass, f"{place}: spec")


def read_claim(document: Mapping[str, Any], place: str) -> Claim:
    """Return a ResourceClaim, with its allocation if it has one.

    Raises:
        InputError: it is malformed.
    """
    spec = without_nulls(_mapping(document, "spec", place))
    metadata = _mapping(document, "metadata", place)
    wire = {**_devices(spec, place), "name": _name(document, place), "namespace": metadata.get("namespace") or ""}
    allocation = _mapping(_mapping(document, "status", place), "allocation", f"{place}: status")
    if allocation:
        results = _mapping(without_nulls(allocation), "devices", f"{place}: status.allocation").get("results", [])
        wire["allocated"] = results
        if allocation.get("nodeSelector"):
            wire["allocatedNodes"] = without_nulls(allocation["nodeSelector"])
    return decode(wire, Claim, f"{place}: spec.devices")


def _template(document: Mapping[str, Any], place: str) -> Claim:
    inner = without_nulls(_mapping(_mapping(document, "spec", place), "spec", f"{place}: spec"))
    namespace = _mapping(document, "metadata", place).get("namespace") or ""
    wire = {**_devices(inner, place), "name": _name(document, place), "namespace": namespace}
    return decode(wire, Claim, f"{place}: spec.spec.devices")


_READERS: Final[Mapping[str, Any]] = {
    "ResourceSlice": read_slice,
    "DeviceClass": read_class,
    "ResourceClaim": read_claim,
    "ResourceClaimTemplate": _template,
}


def _devices(spec: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the requests and constraints of a claim, in the form of v1."""
    devices = dict(_mapping(spec, "devices", f"{place}: spec"))
    requests = devices.get("requests", [])
    if isinstance(requests, list):
        devices["requests"] = [
            # v1beta1 has what is asked for beside the name
            {"name": request.get("name"), "exactly": {key: value for key, value in request.items() if key != "name"}}
            if isinstance(request, Mapping) and "exactly" not in request and "firstAvailable" not in request
            else request
            for request in requests
        ]
    return devices


def _merged(record: object, key: str) -> object:
    """Return a mapping with what is under one of its keys beside it."""
    inner = record.get(key) if isinstance(record, Mapping) else None
    return {**record, **inner} if isinstance(record, Mapping) and isinstance(inner, Mapping) else record


def _mapping(record: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError.at(f"{place}: {key}", "a mapping", value)
    return value


def _name(document: Mapping[str, Any], place: str) -> str:
    metadata = _mapping(document, "metadata", place)
    name = metadata.get("name") or metadata.get("generateName")
    if not isinstance(name, str):
        raise InputError.at(f"{place}: metadata.name", "a name", name)
    return name


def without_nulls(value: Any, depth: int = 0) -> Any:
    """Return a document without keys whose value is null, which mean the same as absent ones."""
    if depth > _DEEPEST:
        raise InputError(f"expected an object of at most {_DEEPEST} levels, got more")
    if isinstance(value, Mapping):
        return {key: without_nulls(inner, depth + 1) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner, depth + 1) for inner in value]
    return value


def read_node(document: object, place: str) -> NodeFacts:
    """Return the name and the labels of a Node.

    Raises:
        InputError: it is malformed.
    """
    if not isinstance(document, Mapping):
        raise InputError.at(place, "a Node object", document)
    metadata = _mapping(document, "metadata", place)
    labels = decode(without_nulls(metadata.get("labels") or {}), dict[str, str], f"{place}: metadata.labels")
    return NodeFacts(_name(document, place), labels)


def claims_of_pod(pod: Mapping[str, Any], resources: Resources, place: str) -> tuple[Claim, ...]:
    """Return the claims of a pod, in its order: those that it names, and those that its templates make.

    Raises:
        InputError: the pod is malformed, or a claim or template is not among the resources.
    """
    metadata, spec = _mapping(pod, "metadata", place), _mapping(pod, "spec", place)
    namespace = metadata.get("namespace") or ""
    statuses = _mapping(pod, "status", place).get("resourceClaimStatuses") or []
    made = {status.get("name"): status.get("resourceClaimName") for status in statuses if isinstance(status, Mapping)}
    claims = []
    references = spec.get("resourceClaims") or []
    if not isinstance(references, list):
        raise InputError.at(f"{place}: spec.resourceClaims", "a list", references)
    for number, reference in enumerate(references):
        where = f"{place}: spec.resourceClaims[{number}]"
        if not isinstance(reference, Mapping):
            raise InputError.at(where, "a mapping", reference)
        name = reference.get("name")
        wanted, template = (
            reference.get("resourceClaimName") or made.get(name),
            reference.get("resourceClaimTemplateName"),
        )
        if wanted:
            claim = _look_up(resources.claims, wanted, namespace)
            if claim is None:
                raise InputError(
                    f"expected the ResourceClaim {wanted!r} among the resources, which is missing ({where})"
                )
        elif template:
            claim = _look_up(resources.templates, template, namespace)
            if claim is None:
                raise InputError(
                    f"expected the ResourceClaimTemplate {template!r} among the resources, which is missing ({where})"
                )
            claim = Claim(f"{metadata.get('name') or 'pod'}-{name}", claim.namespace, claim.requests, claim.constraints)
        else:
            raise InputError.at(where, "resourceClaimName or resourceClaimTemplateName", dict(reference))
        claims.append(claim)
    return tuple(claims)


def _look_up(claims: tuple[Claim, ...], name: object, namespace: str) -> Claim | None:
    return next(
        (one for one in claims if one.name == name and (one.namespace or "default") == (namespace or "default")), None
    )
