"""Reads ResourceSlices, DeviceClasses, ResourceClaims and their templates, as kubectl prints them.

Takes `resource.k8s.io/v1`, v1beta2 and v1beta1, whose devices and requests look different.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

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

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            *(getattr(self, name) + getattr(other, name) for name in self.__match_args__)
        )

    def __post_init__(self) -> None:
        pools: dict[tuple[str, str], list[Slice]] = {}
        for one in self.slices:
            pools.setdefault((one.driver, one.pool.name), []).append(one)
        for parts in pools.values():
            names = {"" if one.shared_counters else one.node_name for one in parts}
            for name in ("",) if "" in names else names:
                self.by_node.setdefault(name, []).extend(parts)

    def slices_near(self, node: str) -> tuple[Slice, ...]:
        """Return all slices of the pools that a node may reach; those of other nodes are many, and decide nothing."""
        return (*self.by_node.get("", ()), *self.by_node.get(node, ()))

    @property
    def only_node(self) -> NodeObject:
        """The node that all slices are of, as far as they tell.

        Raises:
            InputError: they are of none or of several.
        """
        names = sorted({one.node_name for one in self.slices if one.node_name})
        if len(names) != 1:
            some = ", ".join(names[:5]) or "no node"
            raise InputError(
                "expected the name of a node, or ResourceSlices of one node only; these are of "
                f"{some}"
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
    found: dict[str, list[Any]] = {kind: [] for kind in (*_READERS, "Pod")}
    for place, document in _objects(documents, source):
        kind = document.get("kind")
        spec = document.get("spec")
        if (
            kind == "DeviceTaintRule"
            and isinstance(spec, Mapping)
            and spec.get("deviceSelector") is not None
        ):
            warn(f"the DeviceTaintRule at {place} is ignored: put its taint into the devices")

        if kind == "Pod":
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", IGNORED_CLAIMS)
                found[kind].append(read_pod(document, place))
        elif isinstance(kind, str) and kind in _READERS:
            version = document.get("apiVersion")
            if version not in [f"{_GROUP}{one}" for one in _VERSIONS]:
                raise InputError.at(
                    f"{place}.apiVersion", f"{_GROUP}{' or '.join(_VERSIONS)}", version
                )

            found[kind].append(_READERS[kind](document, place))

    return Resources(*map(tuple, found.values()))


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

        # kubectl leaves these out of the items of a typed list
        typed = (
            {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion")}
            if kind != "List"
            else {}
        )
        for index, item in enumerate(
            decode(document.get("items") or [], list[dict[str, Any]], f"items of {place}")
        ):
            yield f"items[{index}] of {place}", {**typed, **item}


def _object(document: object, place: str) -> _Object:
    """Return an object with a name.

    Raises:
        InputError: it is malformed.
    """
    found = decode(without_nulls(document), _Object, place, own=Amount)
    if not found.name:
        raise InputError.at(f"{place}: metadata.name", "a name", found.name)
    return found


def read_slice(document: object, place: str) -> Slice:
    """Return a ResourceSlice.

    Raises:
        InputError: it is malformed.
    """
    found = _object(document, place)
    devices = found.spec.get("devices", [])
    if isinstance(devices, list):
        # v1beta1 has what a device is made of under a key of its own
        devices = [
            {**one, **one["basic"]} if _has_mapping(one, "basic") else one for one in devices
        ]

    return decode(
        {**found.spec, "devices": devices, "name": found.name}, Slice, f"{place}: spec", own=Amount
    )


def _has_mapping(record: object, key: str) -> bool:
    return isinstance(record, Mapping) and isinstance(record.get(key), Mapping)


def read_class(document: object, place: str) -> DeviceClass:
    """Return a DeviceClass.

    Raises:
        InputError: it is malformed.
    """
    found = _object(document, place)
    return decode({**found.spec, "name": found.name}, DeviceClass, f"{place}: spec")


def read_claim(document: object, place: str) -> Claim:
    """Return a ResourceClaim, with its allocation if it has one.

    Raises:
        InputError: it is malformed.
    """
    return _claim(_object(document, place), place)


def _claim(found: _Object, place: str) -> Claim:
    asked = found.spec.get("devices", {})
    if isinstance(asked, Mapping) and isinstance(asked.get("requests"), list):
        # v1beta1 has what is asked for beside the name
        requests = [
            {
                "name": one.get("name"),
                "exactly": {key: value for key, value in one.items() if key != "name"},
            }
            if isinstance(one, Mapping) and not {"exactly", "firstAvailable"} & one.keys()
            else one
            for one in asked["requests"]
        ]
        asked = {**asked, "requests": requests}

    devices = decode(asked, _Devices, f"{place}: spec.devices", own=Amount)
    allocation = found.status.allocation
    return Claim(
        found.name,
        found.metadata.namespace,
        devices.requests,
        devices.constraints,
        None if allocation is None else allocation.devices.results,
        None if allocation is None else allocation.node_selector,
    )


def _template(document: object, place: str) -> Claim:
    found = _object(document, place)
    return _claim(
        _Object(found.metadata, decode(found.spec, _Object, f"{place}: spec").spec),
        f"{place}: spec",
    )


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
    return (
        [without_nulls(inner, depth + 1) for inner in value] if isinstance(value, list) else value
    )


def claims_of_pod(pod: Pod, resources: Resources) -> tuple[Claim, ...]:
    """Return the claims of a pod, in its order: those that it names, and those that its templates make.

    Raises:
        InputError: a claim or template is not among the resources.
    """
    claims = []
    for number, one in enumerate(pod.constraints.claims):
        name, known, kind = one.claim, resources.claims, "ResourceClaim"
        if not name:
            name, known, kind = one.template, resources.templates, "ResourceClaimTemplate"
        where = f"the pod: spec.resourceClaims[{number}]"
        if not name:
            raise InputError.at(where, "resourceClaimName or resourceClaimTemplateName", one.name)
        claim = next(
            (
                it
                for it in known
                if it.name == name and (it.namespace or "default") == pod.namespace
            ),
            None,
        )
        if claim is None:
            raise InputError(
                f"expected the {kind} {name!r} among the resources, which is missing ({where})"
            )

        claims.append(
            claim if one.claim else msgspec.structs.replace(claim, name=f"{pod.name}-{one.name}")
        )

    return tuple(claims)
