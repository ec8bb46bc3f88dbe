"""Reads NodeResourceTopology objects (`topology.node.k8s.io/v1alpha2`) into shapes and rows.

They are what topology exporters publish for schedulers: zones of type Node with capacity,
allocatable and available amounts, costs between them, and the Topology Manager's policy and scope.
Wherever a zone counts CPUs or memory, they are assumed to be allocated exclusively. An object does
not say which CPUs and devices are in use, nor which zones' memory is allocated together. Node
objects among them tell the kubelets' releases.

`node_of` makes nodes of them that can admit pods, for simulations. Their machines are made up:
cores of one CPU, one socket a zone, devices with made-up ids. CPUs and memory that are in use
already count as reserved, devices in use as given away for good.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from alignup.cluster.cluster import Amounts, Cluster, NodeAmounts, row_of_amounts
from alignup.core.topology_text import TopologyText
from alignup.errors import InputError, errors_in, system_errors, warn
from alignup.kubelet.node_resource_topology.write import POLICY_NAMES
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES, TOPOLOGY_SCOPES, KubeletConfig
from alignup.kubernetes.node_fit import NodeObject, node_object
from alignup.kubernetes.policy_options import DEFAULT_MAXIMUM
from alignup.kubernetes.quantity import parse_quantity, whole_units
from alignup.kubernetes.versions import NEWEST, KubeletVersion, parse_version
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.machine.machine import (
    MEMORY_LIMIT,
    NUMA_NODE_LIMIT,
    Core,
    HugePages,
    Machine,
    NumaNode,
)
from alignup.node import Node
from alignup.records import Record, replace
from alignup.text.documents import read_documents
from alignup.text.json_text import decode_json
from alignup.text.typed import decode

_KIND: Final = "NodeResourceTopology"
_NODE_KIND: Final = "Node"
_GROUP: Final = "topology.node.k8s.io"
_LEGACY_NAMES: Final = {
    f"{word}{level}": policy
    for policy, word in (("none", "None"), *POLICY_NAMES.items())
    for level in ("", "ContainerLevel", "PodLevel")
}

_NOT_ALIGNED: Final = frozenset({"ephemeral-storage", "storage", "pods"})
_UNKNOWN_DISTANCE: Final = 255

# Of one zone, so that the sum over all of them is an amount.
_LARGEST_AMOUNT: Final = MEMORY_LIMIT // NUMA_NODE_LIMIT

_LARGEST_COST: Final = (1 << 31) - 1

# Numbers of fewer digits are below `_LARGEST_AMOUNT`.
_SHORT: Final = 17

_MEMORY: Final = "memory"

# Of one resource, each of which is made up.
_MOST_DEVICES: Final = 1 << 16

# Bytes that are added to the first zone and reserved there: no kubelet starts without a
# reservation.
_PAGE: Final = 4096

_IN_USE: Final = "in use"


class Attribute(msgspec.Struct):
    """An attribute of an object, on the wire."""

    name: str = ""
    value: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct, rename="camel"):
    """One object on the wire."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    kind: str = _KIND
    api_version: str = _GROUP
    topology_policies: list[str] | None = None
    attributes: list[Attribute] | None = None
    zones: list[Zone] | None = None


class Topology(Record):
    """The facts about a node that an object carries.

    Attributes:
        version: the kubelet's release, where a Node object beside it says so.
    """

    name: str
    amounts: NodeAmounts
    version: KubeletVersion | None = None


def read_topologies(
    source: str | os.PathLike[str] | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    skip_bad: bool = False,
) -> list[Topology]:
    """Return the nodes that the objects describe, in order; see `read_node_resource_topologies`.

    A policy or scope that is not known is warned of, and none or `container` taken instead. Node
    objects among them, before or after, tell the release of the kubelet of that name.

    Raises:
        InputError: something is no such object, or there is none.
    """
    documents, where = _opened(source)
    found: list[Topology] = []
    nodes: dict[str, NodeObject] = {}
    errors: list[InputError] = []
    with errors_in(where):
        for one, place in _objects(documents):
            try:
                read = _object(one, place)
                if isinstance(read, Topology):
                    found.append(read)
                else:
                    nodes[read.name] = read
            except InputError as error:
                if not skip_bad:
                    raise
                errors.append(error)

        if errors and not found:
            raise errors[0]

    for complaint in errors:
        warn(f"an object is ignored: {complaint} in {where}")

    if not found:
        raise InputError(f"no {_KIND} in {where}")

    return _with_releases(found, nodes, where) if nodes else found


def read_node_resource_topologies(
    source: str | os.PathLike[str] | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    skip_bad: bool = False,
    kubelet_version: KubeletVersion | str | None = None,
) -> Cluster:
    """Return the cluster that NodeResourceTopology objects (`topology.node.k8s.io/v1alpha2`) describe.

    They know amounts and nothing else, so whatever is admitted is an upper bound
    (`Evaluation.exact`). They do not name the kubelet's release; Node objects among them do
    (`status.nodeInfo.kubeletVersion`).

    Args:
        source: A path, the text of YAML or JSON as bytes, a decoded object (a List too), or
            several.
        skip_bad: warn of an object that is wrong, and go on with the others.
        kubelet_version: the release of all kubelets; None: that of the Node object, or the newest
            known.

    Raises:
        InputError: something is no such object.
    """
    found = read_topologies(source, skip_bad=skip_bad)
    of_all = None if kubelet_version is None else parse_version(kubelet_version)
    versions = [of_all or one.version or NEWEST for one in found]
    known = {version: KubeletConfig(version=version).profile for version in set(versions)}
    profiles = [known[version] for version in versions]
    rows = [
        row_of_amounts(one.amounts, profile) for one, profile in zip(found, profiles, strict=True)
    ]
    return Cluster([one.name for one in found], rows, profiles=profiles)


def read_amounts(data: Mapping[str, Any] | msgspec.Raw, name: str) -> NodeAmounts:
    """Return the amounts of one object, for `Cluster.update`.

    Raises:
        InputError: it is no such object.
    """
    return read_topology(data, name).amounts


def _opened(
    source: str | os.PathLike[str] | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]],
) -> tuple[Iterable[Any], str]:
    """Return the documents in a source, and what errors call it."""
    where = "the objects"
    if isinstance(source, str | os.PathLike):
        where = os.fspath(source)
        with system_errors("cannot read the objects", where):
            return _documents(Path(where).read_bytes(), where), where
    if isinstance(source, bytes):
        return _documents(source, where), where
    return ([source] if isinstance(source, Mapping) else source), where


def _with_releases(
    found: list[Topology], nodes: Mapping[str, NodeObject], where: str
) -> list[Topology]:
    """Return the nodes with the releases that their Node objects name.

    Raises:
        InputError: one of them is no version of a kubelet, or too old.
    """
    alone = sorted(nodes.keys() - {one.name for one in found})
    if alone:
        warn(f"Node objects without a {_KIND} are ignored: {', '.join(alone)} in {where}")

    known: dict[str, KubeletVersion] = {}

    def release(name: str) -> KubeletVersion | None:
        text = nodes[name].kubelet_version if name in nodes else None
        if text is None:
            return None
        if text not in known:
            known[text] = parse_version(text, f"status.nodeInfo.kubeletVersion of node {name}")
        return known[text]

    return [replace(one, version=release(one.name)) for one in found]


def read_topology(data: Mapping[str, Any] | msgspec.Raw, name: str) -> Topology:
    """Return what one object says of a node; JSON text is read fastest, as a `msgspec.Raw`.

    Raises:
        InputError: it is no such object.
    """
    found = _object(data, name)
    if not isinstance(found, Topology):
        raise InputError.at(f"{name}, kind", _KIND, "Node")
    return found


def _documents(text: bytes, source: str) -> Iterable[Any]:
    """Return the documents in a text; JSON, which cannot expand, may be as long as a large cluster makes it.

    Of a List there is what its objects say, so that never all of them lie about as plain objects.
    """
    if (told := TopologyText().read_list(text)) is not None:
        return [{"kind": "List", "items": told}]
    with suppress(InputError):
        return [decode_json(text, "an object")]
    return read_documents(text, source)


def _objects(documents: Iterable[Any]) -> Iterable[tuple[Any, str]]:
    """Yield every object with its place, lists unrolled."""
    for number, document in enumerate(documents):
        if document is None:
            continue
        place = f"document {number + 1}"
        if isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List"):
            items = document.get("items")
            if not isinstance(items, list):
                raise InputError.at(f"{place}, items", "a list of objects", items)
            yield from ((item, f"{place}, items[{index}]") for index, item in enumerate(items))
        else:
            yield document, place


def _object(data: Any, place: str) -> Topology | NodeObject:
    """Return what one object says."""
    if isinstance(data, msgspec.Raw):
        data = TopologyText().read_object(bytes(data)) or bytes(data)

    if isinstance(data, tuple):
        name, count, legacy, words, columns, distances = data
        policy, scope = _policy(name, legacy, zip(words[::2], words[1::2], strict=True))
        return Topology(name, NodeAmounts(count, policy, scope, columns, distances))

    if isinstance(data, bytes):  # it is odd: that of plain objects says how
        data = decode_json(data, "a JSON object", place)

    if isinstance(data, Mapping) and data.get("kind") == _NODE_KIND:
        return node_object(data, place)
    if not isinstance(data, Mapping):
        raise InputError.at(f"{place}, kind", _KIND, data)

    return _described(decode(data, _Object, place), place)


def _described(wire: _Object, place: str) -> Topology:
    """Return what an object says whose fields have the right types."""
    if wire.kind != _KIND:
        raise InputError.at(f"{place}, kind", _KIND, wire.kind)
    if wire.api_version.split("/", maxsplit=1)[0] != _GROUP:
        raise InputError.at(f"{place}, apiVersion", f"{_GROUP}/v1alpha2", wire.api_version)

    place = f"{place} ({wire.metadata.name})" if wire.metadata.name else place
    zones = numa_zones(wire.zones)
    if not wire.metadata.name or not 1 <= len(zones) <= NUMA_NODE_LIMIT:
        what = "1 to 64 zones of type Node" if wire.metadata.name else "a name"
        raise InputError.at(place, what, len(zones) if wire.metadata.name else wire.metadata.name)

    legacy = wire.topology_policies[0] if wire.topology_policies else None
    attributes = map(attrgetter("name", "value"), wire.attributes or ())
    policy, scope = _policy(wire.metadata.name, legacy, attributes)
    columns, distances = columns_of(zones, place), distances_of(zones, place)
    return Topology(wire.metadata.name, NodeAmounts(len(zones), policy, scope, columns, distances))


def _policy(
    node: str, legacy: str | None, attributes: Iterable[tuple[str, str]]
) -> tuple[str, str]:
    """Return policy and scope: attributes win over the older list of policies, unknown words count for nothing."""
    policy, scope = "none", "container"
    if legacy is not None:
        known = _known(node, "policy", legacy, _LEGACY_NAMES, policy)
        policy, scope = (
            _LEGACY_NAMES.get(known, known),
            "pod" if legacy.endswith("PodLevel") else scope,
        )

    for name, value in attributes:
        if name == "topologyManagerPolicy":
            policy = _known(node, "policy", value, TOPOLOGY_POLICIES, policy)
        if name == "topologyManagerScope":
            scope = _known(node, "scope", value, TOPOLOGY_SCOPES, scope)

    return policy, scope


def _known(node: str, what: str, word: str, words: Collection[str], otherwise: str) -> str:
    """Return a word if it is known, or else what holds without it."""
    if word in words:
        return word
    warn(
        f"the topology {what} {word!r} of node {node} is unknown and ignored; {otherwise} is taken"
    )
    return otherwise


# One resource of a zone: capacity, allocatable and available units.
_Amounts: TypeAlias = tuple[int, int, int]


class _Cost(msgspec.Struct):
    name: str
    value: int


class _Resource(msgspec.Struct):
    name: str
    capacity: Any = None
    allocatable: Any = None
    available: Any = None


class Zone(msgspec.Struct):
    """One zone on the wire."""

    name: str
    type: str = "Node"
    costs: list[_Cost] | None = None
    resources: list[_Resource] | None = None


def numa_zones(zones: list[Zone] | None) -> list[Zone]:
    """Return the zones that are NUMA nodes, in their order."""
    return sorted([zone for zone in zones or () if zone.type == "Node"], key=_zone_order)


def _zone_order(zone: Zone) -> tuple[int, str]:
    """Order zones by the number at the end of their names, as `node-10` comes after `node-9`."""
    digits = zone.name[len(zone.name.rstrip("0123456789")) :]
    return int(digits[:18] or 0), zone.name


def columns_of(zones: list[Zone], place: str) -> dict[str, Amounts]:
    """Return the amounts by resource.

    Raises:
        InputError: a value is no amount, or is too large.
    """
    found: dict[str, list[_Amounts]] = {}
    for position, zone in enumerate(zones):
        for resource in zone.resources or ():
            name = resource.name
            if name in _NOT_ALIGNED:
                continue
            column = found.setdefault(name, [(0, 0, 0)] * len(zones))
            column[position] = _amounts(resource, f"{place}, zone {zone.name}")

    columns = {}
    for name, column in sorted(found.items()):
        capacity, allocatable, available = zip(*column, strict=True)
        columns[name] = (capacity, allocatable, available)

    return columns


def _amounts(resource: _Resource, place: str) -> _Amounts:
    """Return the amounts of a resource; a missing one equals the next larger one that is there."""
    capacity, allocatable, available = resource.capacity, resource.allocatable, resource.available
    if capacity is None:
        capacity = available if allocatable is None else allocatable
        if capacity is None:
            return 0, 0, 0

    if allocatable is None:
        allocatable = capacity

    available = allocatable if available is None else available
    whole = _units(capacity, place, resource.name)
    given = whole if allocatable == capacity else _units(allocatable, place, resource.name)
    return (
        whole,
        given,
        given if available == allocatable else _units(available, place, resource.name),
    )


def _units(value: object, place: str, name: str) -> int:
    """Return a quantity in whole units, at least 0."""
    if type(value) is str and value.isdigit() and value.isascii() and len(value) < _SHORT:
        return int(value)
    where = f"{place}, {name}"
    amount = whole_units(parse_quantity(value, where))
    if abs(amount) > _LARGEST_AMOUNT:
        raise InputError.at(where, f"amounts of at most {_LARGEST_AMOUNT}", value)
    return max(0, amount)


def distances_of(zones: list[Zone], place: str) -> tuple[tuple[int, ...], ...] | None:
    """Return the costs between the zones; None where no zone has any."""
    names = [zone.name for zone in zones]
    rows = []
    costs_known = False
    for zone in zones:
        told = [cost.name for cost in zone.costs or ()]
        values = [cost.value for cost in zone.costs or ()]
        if values:
            costs_known = True
            if not 0 <= min(values) <= max(values) <= _LARGEST_COST:
                wrong = next(value for value in values if not 0 <= value <= _LARGEST_COST)
                raise InputError.at(place, f"costs from 0 to {_LARGEST_COST}", wrong)

        if told != names:
            costs = dict(zip(told, values, strict=True))
            values = [costs.get(name, _UNKNOWN_DISTANCE) for name in names]

        rows.append(tuple(values))

    return tuple(rows) if costs_known else None


def nodes_of(
    topologies: Iterable[Topology], version: KubeletVersion | None = None
) -> dict[str, Node]:
    """Return a node for each object, by name.

    Args:
        topologies: what the objects say.
        version: the release of all kubelets; None: what is known of each, or the newest known.
    """
    return {one.name: node_of(one, version or one.version or NEWEST) for one in topologies}


def node_of(topology: Topology, version: KubeletVersion = NEWEST) -> Node:
    """Return a node with what an object says that there is, and is free.

    Raises:
        InputError: the amounts are more than a machine can have.
    """
    known = topology.amounts
    machine, reserved_cpus = _machine(known)
    for resource, (_, totals, _) in known.devices.items():
        if sum(totals) > _MOST_DEVICES:  # it may be counted in bytes
            raise InputError.at(
                f"node {topology.name}, {resource}", f"at most {_MOST_DEVICES} devices", sum(totals)
            )

    inventory = {
        resource: tuple(
            Device(f"zone-{zone}-{number}", (zone,))
            for zone, count in enumerate(totals)
            for number in range(count)
        )
        for resource, (_, totals, _) in known.devices.items()
    }
    node = Node(machine, _config(known, reserved_cpus, version), inventory)
    node.counts_use_as_reserved = True
    taken = {
        resource: [
            f"zone-{zone}-{number}"
            for zone in range(known.numa_nodes)
            for number in range(totals[zone] - free[zone])
        ]
        for resource, (_, totals, free) in known.devices.items()
    }
    if node.devices is not None and any(taken.values()):
        node.devices.adopt(_IN_USE, _IN_USE, taken)

    return node


def _machine(known: NodeAmounts) -> tuple[Machine, CPUSet]:
    """Return a machine with the amounts of the zones, and those of its CPUs that are reserved or in use."""
    nothing = (0,) * known.numa_nodes
    capacity, _, available = known.resources.get(
        "cpu", ((1, *nothing[1:]), nothing, (1, *nothing[1:]))
    )
    reserved: list[int] = []
    nodes = []
    cpu = 0
    for zone, count in enumerate(capacity):
        reserved += range(cpu, cpu + count - available[zone])
        pages = tuple(
            HugePages(record.size, record.size_bytes, by_zone[zone] // record.size_bytes)
            for kind, (_, by_zone, _) in known.memory.items()
            if kind != _MEMORY
            for record in [HugePages.parse(kind.removeprefix("hugepages-"), 0)]
        )
        memory = known.resources.get(_MEMORY, (nothing, nothing))[1][zone] + (
            _PAGE if zone == 0 else 0
        )
        memory += sum(record.size_bytes * record.count for record in pages)
        cores = tuple(Core((number,), zone) for number in range(cpu, cpu + count))
        nodes.append(
            NumaNode(zone, memory, cores, pages, known.distances[zone] if known.distances else ())
        )
        cpu += count

    return Machine(tuple(nodes)), CPUSet(reserved)


def _config(known: NodeAmounts, reserved_cpus: CPUSet, version: KubeletVersion) -> KubeletConfig:
    """Return the configuration under which exactly what is free can be given away."""
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": known.policy,
        "topologyManagerScope": known.scope,
    }
    if known.numa_nodes > DEFAULT_MAXIMUM:
        kubelet["topologyManagerPolicyOptions"] = {
            "max-allowable-numa-nodes": str(known.numa_nodes)
        }

    if "cpu" in known.resources:
        kubelet |= {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(reserved_cpus)}

    if known.memory:
        reserved: list[dict[str, Any]] = []  # what is in use, and the page that has to be reserved
        for zone in range(known.numa_nodes):
            limits = {
                kind: there[zone] - free[zone] for kind, (_, there, free) in known.memory.items()
            }
            if zone == 0:
                limits[_MEMORY] = limits.get(_MEMORY, 0) + _PAGE
            if any(limits.values()):
                used = {kind: amount for kind, amount in limits.items() if amount}
                reserved.append({"numaNode": zone, "limits": used})

        kubelet |= {"memoryManagerPolicy": "Static", "reservedMemory": reserved}

    return KubeletConfig.from_dict(kubelet, version=version)
