"""Reads ResourceSlices, DeviceClasses, ResourceClaims and their templates, as kubectl prints them.

Takes `resource.k8s.io/v1`, v1beta2 and v1beta1, whose devices and requests look different.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.claims.extended_resources import ExtendedResources, is_named
from alignup.claims.objects import (
    Allocated,
    Amount,
    Claim,
    Constraint,
    DeviceClass,
    NodeSelector,
    Request,
    Slice,
    Wire,
)
from alignup.errors import InputError, warn
from alignup.kubernetes.manifest import IGNORED_CLAIMS, read_pod
from alignup.kubernetes.node_fit import NodeObject
from alignup.records import Record, field
from alignup.text.documents import read_documents
from alignup.text.typed import decode

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

_GROUP: Final = "resource.k8s.io/"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_DEEPEST: Final = 40


class Resources(Record):
    """The objects of a cluster that claims are allocated from.

    Attributes:
        templates: resourceClaimTemplates, each as the claim that it makes, under its own name.
        by_node: by the name of a node, all slices of the pools that are for it; by no name, those
            for several nodes.
    """

    slices: tuple[Slice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[Claim, ...] = ()
    templates: tuple[Claim, ...] = ()
    pods: tuple[Pod, ...] = ()
    by_node: dict[str, list[Slice]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __add__(self, more: Resources) -> Resources:
        return Resources(
            *(getattr(self, name) + getattr(more, name) for name in self.__match_args__)
        )

    def __post_init__(self) -> None:
        pools: dict[tuple[str, str], list[Slice]] = {}
        for part in self.slices:
            pools.setdefault((part.driver, part.pool.name), []).append(part)

        for parts in pools.values():
            names = {"" if part.shared_counters else part.node_name for part in parts}
            if "" in names:
                names = {""}

            for name in names:
                self.by_node.setdefault(name, []).extend(parts)

    def slices_near(self, node: str) -> tuple[Slice, ...]:
        """Return all slices of the pools that a node may reach.

        Those of other nodes are many, and decide nothing.
        """
        return (*self.by_node.get("", ()), *self.by_node.get(node, ()))

    @property
    def only_node(self) -> NodeObject:
        """The node that all slices are of, as far as they tell.

        Raises:
            InputError: they are of none or of several.
        """
        names = sorted({part.node_name for part in self.slices if part.node_name})
        if len(names) != 1:
            first_names = ", ".join(names[:5]) or "no node"
            raise InputError(
                "expected the name of a node, or ResourceSlices of one node only; these are of "
                f"{first_names}"
            )

        return NodeObject(names[0], {"kubernetes.io/hostname": names[0]})


class _Results(Wire, frozen=True):
    results: tuple[Allocated, ...] = ()


class _Allocation(Wire, frozen=True):
    devices: _Results = _Results()
    node_selector: NodeSelector | None = None


class _Status(Wire, frozen=True):
    allocation: _Allocation | None = None


class _Metadata(Wire, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    creation_timestamp: str = ""


class _Object(Wire, frozen=True):
    """An object of any kind."""

    metadata: _Metadata = _Metadata()
    spec: dict[str, Any] = {}  # noqa: RUF012  # msgspec copies it
    status: _Status = _Status()

    @property
    def name(self) -> str:
        return self.metadata.name or self.metadata.generate_name


class _Devices(Wire, frozen=True):
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()


def read_resources(text: str | bytes, source: str) -> Resources:
    """Return the objects in a text; kinds that decide nothing here are ignored.

    A DeviceTaintRule is ignored with a warning, but for one without a selector, which is for no
    device.

    Args:
        text: YAML or JSON as kubectl prints it: objects, Lists, or documents of both.
        source: the name of the text in errors.

    Raises:
        InputError: the text or an object in it is malformed.
    """
    return resources_of(read_documents(text, source), source)


def resources_of(documents: Sequence[object], source: str) -> Resources:
    """Return the objects among documents, in the manner of `read_resources`.

    Raises:
        InputError: an object is malformed.
    """
    objects: dict[str, list[Any]] = {kind: [] for kind in (*_READERS, "Pod")}
    for place, document in _objects(documents, source):
        kind = document.get("kind")
        if kind == "DeviceTaintRule":
            spec = document.get("spec")
            if isinstance(spec, Mapping) and spec.get("deviceSelector") is not None:
                warn(f"the DeviceTaintRule at {place} is ignored: put its taint into the devices")
        elif kind == "Pod":
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", IGNORED_CLAIMS)
                objects[kind].append(read_pod(document, place))
        elif isinstance(kind, str) and kind in _READERS:
            api_version = document.get("apiVersion")
            if api_version not in [f"{_GROUP}{version}" for version in _VERSIONS]:
                expected = f"{_GROUP}{' or '.join(_VERSIONS)}"
                raise InputError.at(f"{place}.apiVersion", expected, api_version)

            objects[kind].append(_READERS[kind](document, place))

    return Resources(*map(tuple, objects.values()))


def _objects(documents: Sequence[object], source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, document in enumerate(documents, 1):
        place = f"document {number} of {source}" if len(documents) > 1 else source
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise InputError.at(place, "an object of Kubernetes", document)

        kind = document.get("kind")
        if not isinstance(kind, str) or not kind.endswith("List"):
            yield place, document
            continue

        shared_keys: dict[str, Any] = {}
        if kind != "List":
            # kubectl leaves these out of the items of a typed list
            shared_keys["kind"] = kind.removesuffix("List")
            shared_keys["apiVersion"] = document.get("apiVersion")

        items = decode(document.get("items") or [], list[dict[str, Any]], f"items of {place}")
        for index, item in enumerate(items):
            yield f"items[{index}] of {place}", {**shared_keys, **item}


def _object(document: object, place: str) -> _Object:
    """Return an object with a name.

    Raises:
        InputError: it is malformed.
    """
    named_object = decode(without_nulls(document), _Object, place, own=Amount)
    if not named_object.name:
        raise InputError.at(f"{place}: metadata.name", "a name", named_object.name)

    return named_object


def read_slice(document: object, place: str) -> Slice:
    """Return a ResourceSlice.

    Raises:
        InputError: it is malformed.
    """
    named_object = _object(document, place)
    devices = named_object.spec.get("devices", [])
    if isinstance(devices, list):
        # v1beta1 has what a device is made of under a key of its own
        devices = [_without_basic(device) for device in devices]

    fields = {**named_object.spec, "devices": devices, "name": named_object.name}
    return decode(fields, Slice, f"{place}: spec", own=Amount)


def _without_basic(device: object) -> object:
    """Return a device with what is under its key `basic`, if anything, beside its name."""
    if not isinstance(device, Mapping) or not isinstance(device.get("basic"), Mapping):
        return device

    return {**device, **device["basic"]}


def read_class(document: object, place: str) -> DeviceClass:
    """Return a DeviceClass.

    Raises:
        InputError: it is malformed.
    """
    named_object = _object(document, place)
    fields = {
        **named_object.spec,
        "name": named_object.name,
        "created": named_object.metadata.creation_timestamp,
    }
    return decode(fields, DeviceClass, f"{place}: spec")


def read_claim(document: object, place: str) -> Claim:
    """Return a ResourceClaim, with its allocation if it has one.

    Raises:
        InputError: it is malformed.
    """
    return _claim(_object(document, place), place)


def _claim(named_object: _Object, place: str) -> Claim:
    spec = named_object.spec.get("devices", {})
    if isinstance(spec, Mapping) and isinstance(spec.get("requests"), list):
        spec = {**spec, "requests": [_with_exactly(request) for request in spec["requests"]]}

    devices = decode(spec, _Devices, f"{place}: spec.devices", own=Amount)
    claim = Claim(
        named_object.name,
        named_object.metadata.namespace,
        devices.requests,
        devices.constraints,
    )
    allocation = named_object.status.allocation
    if allocation is None:
        return claim

    return msgspec.structs.replace(
        claim, allocated=allocation.devices.results, allocated_nodes=allocation.node_selector
    )


def _with_exactly(request: object) -> object:
    """Return a request as v1 has it: v1beta1 has what is asked for beside the name."""
    if not isinstance(request, Mapping) or {"exactly", "firstAvailable"} & request.keys():
        return request

    exactly = {key: value for key, value in request.items() if key != "name"}
    return {"name": request.get("name"), "exactly": exactly}


def _template(document: object, place: str) -> Claim:
    template = _object(document, place)
    spec = decode(template.spec, _Object, f"{place}: spec").spec
    return _claim(_Object(template.metadata, spec), f"{place}: spec")


# In the order of the fields of `Resources`.
_READERS: Final[Mapping[str, Any]] = {
    "ResourceSlice": read_slice,
    "DeviceClass": read_class,
    "ResourceClaim": read_claim,
    "ResourceClaimTemplate": _template,
}


def without_nulls(value: Any, depth: int = 0) -> Any:
    """Return a document without keys whose value is null, which mean the same as absent ones."""
    if depth > _DEEPEST:
        raise InputError(f"expected an object of at most {_DEEPEST} levels, got more")

    if isinstance(value, Mapping):
        return {
            key: without_nulls(inner, depth + 1)
            for key, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list):
        return [without_nulls(inner, depth + 1) for inner in value]

    return value


def claims_of_pod(
    pod: Pod, resources: Resources, extended: ExtendedResources | None = None
) -> tuple[Claim, ...]:
    """Return the claims of a pod, in its order.

    They are those that it names, those that its templates make, and the one that is made for its
    extended resources.

    Args:
        pod: the pod.
        resources: with the claims and templates.
        extended: which extended resources are served; None: the pod has no claim for any.

    Raises:
        InputError: a claim or template is not among the resources.
    """
    claims = []
    for number, pod_claim in enumerate(pod.constraints.claims):
        where = f"the pod: spec.resourceClaims[{number}]"
        if extended is not None and pod_claim.is_extended and not pod_claim.claim:
            claims.append(extended.claim(pod))
        elif pod_claim.is_extended and not any(
            is_named(claim, pod_claim.claim, pod) for claim in resources.claims
        ):
            # of the devices that the pod has by it nothing is known
            claims.append(Claim(pod_claim.claim, pod.namespace, allocated=()))
        elif pod_claim.claim:
            claims.append(_named(pod_claim.claim, pod, resources.claims, "ResourceClaim", where))
        elif pod_claim.template:
            template = _named(
                pod_claim.template, pod, resources.templates, "ResourceClaimTemplate", where
            )
            name = f"{pod.name}-{pod_claim.name}"
            claims.append(msgspec.structs.replace(template, name=name))
        else:
            raise InputError.at(
                where, "resourceClaimName or resourceClaimTemplateName", pod_claim.name
            )

    return tuple(claims)


def _named(name: str, pod: Pod, claims: Sequence[Claim], kind: str, where: str) -> Claim:
    """Return the claim or template of a name in the namespace of a pod.

    Raises:
        InputError: there is none.
    """
    for claim in claims:
        if is_named(claim, name, pod):
            return claim

    raise InputError(
        f"expected the {kind} {name!r} among the resources, which is missing ({where})"
    )
