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

KIND: Final = "NodeResourceTopology"
_NODE_KIND: Final = "Node"
GROUP: Final = "topology.node.k8s.io"
_LEGACY_NAMES: Final = {
    f"{name}{level}": policy
    for policy, name in (("none", "None"), *POLICY_NAMES.items())
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
# What a kubelet can be told; how many pods it takes, and has, no object says.
_MOST_PODS: Final = (1 << 31) - 1

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
    kind: str = KIND
    api_version: str = GROUP
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
    topologies: list[Topology] = []
    nodes: dict[str, NodeObject] = {}
    errors: list[InputError] = []
    with errors_in(where):
        for document, place in _objects(documents):
            try:
                record = _object(document, place)
                if isinstance(record, Topology):
                    topologies.append(record)
                else:
                    nodes[record.name] = record
            except InputError as error:
                if not skip_bad:
                    raise
                errors.append(error)

        if errors and not topologies:
            raise errors[0]

    for complaint in errors:
        warn(f"an object is ignored: {complaint} in {where}")

    if not topologies:
        raise InputError(f"no {KIND} in {where}")

    if nodes:
        return _with_releases(topologies, nodes, where)
    return topologies


def read_node_resource_topologies(
    source: str | os.PathLike[str] | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    skip_bad: bool = False,
    kubelet_version: KubeletVersion | str | None = None,
) -> Cluster:
    """Return the cluster that NodeResourceTopology objects describe.

    They are of version `topology.node.k8s.io/v1alpha2`. They know amounts and nothing else, so
    whatever is admitted is an upper bound (`Evaluation.exact`). They do not name the kubelet's
    release; Node objects among them do (`status.nodeInfo.kubeletVersion`).

    Args:
        source: A path, the text of YAML or JSON as bytes, a decoded object (a List too), or
            several.
        skip_bad: warn of an object that is wrong, and go on with the others.
        kubelet_version: the release of all kubelets; None: that of the Node object, or the newest
            known.

    Raises:
        InputError: something is no such object.
    """
    topologies = read_topologies(source, skip_bad=skip_bad)

    versions = [topology.version or NEWEST for topology in topologies]
    if kubelet_version is not None:
        versions = [parse_version(kubelet_version)] * len(topologies)
    by_version = {version: KubeletConfig(version=version).profile for version in set(versions)}
    profiles = [by_version[version] for version in versions]

    rows = [
        row_of_amounts(topology.amounts, profile)
        for topology, profile in zip(topologies, profiles, strict=True)
    ]
    return Cluster([topology.name for topology in topologies], rows, profiles=profiles)


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
    if isinstance(source, Mapping):
        return [source], where
    return source, where


def _with_releases(
    topologies: list[Topology], nodes: Mapping[str, NodeObject], where: str
) -> list[Topology]:
    """Return the nodes with the releases that their Node objects name.

    Raises:
        InputError: one of them is no version of a kubelet, or too old.
    """
    alone = sorted(nodes.keys() - {topology.name for topology in topologies})
    if alone:
        warn(f"Node objects without a {KIND} are ignored: {', '.join(alone)} in {where}")

    parsed: dict[str, KubeletVersion] = {}

    def release(name: str) -> KubeletVersion | None:
        text = nodes[name].kubelet_version if name in nodes else None
        if text is None:
            return None
        if text not in parsed:
            parsed[text] = parse_version(text, f"status.nodeInfo.kubeletVersion of node {name}")
        return parsed[text]

    return [replace(topology, version=release(topology.name)) for topology in topologies]


def read_topology(data: Mapping[str, Any] | msgspec.Raw, name: str) -> Topology:
    """Return what one object says of a node; JSON text is read fastest, as a `msgspec.Raw`.

    Raises:
        InputError: it is no such object.
    """
    topology = _object(data, name)
    if not isinstance(topology, Topology):
        raise InputError.at(f"{name}, kind", KIND, "Node")
    return topology


def _documents(text: bytes, source: str) -> Iterable[Any]:
    """Return the documents in a text.

    JSON, which cannot expand, may be as long as a large cluster makes it. Of a List there is what
    its objects say, so that never all of them lie about as plain objects.
    """
    items = TopologyText().read_list(text)
    if items is not None:
        return [{"kind": "List", "items": items}]

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
        name, count, legacy, attributes, columns, distances = data
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        policy, scope = _policy(name, legacy, pairs)
        return Topology(name, NodeAmounts(count, policy, scope, columns, distances))

    if isinstance(data, bytes):  # it is odd: that of plain objects says how
        data = decode_json(data, "a JSON object", place)

    if isinstance(data, Mapping) and data.get("kind") == _NODE_KIND:
        return node_object(data, place)
    if not isinstance(data, Mapping):
        raise InputError.at(f"{place}, kind", KIND, data)

    return _described(decode(data, _Object, place), place)


def _described(wire: _Object, place: str) -> Topology:
    """Return what an object says whose fields have the right types."""
    if wire.kind != KIND:
        raise InputError.at(f"{place}, kind", KIND, wire.kind)
    if wire.api_version.split("/", maxsplit=1)[0] != GROUP:
        raise InputError.at(f"{place}, apiVersion", f"{GROUP}/v1alpha2", wire.api_version)

    name = wire.metadata.name
    if not name:
        raise InputError.at(place, "a name", name)

    place = f"{place} ({name})"
    zones = numa_zones(wire.zones)
    if not 1 <= len(zones) <= NUMA_NODE_LIMIT:
        raise InputError.at(place, "1 to 64 zones of type Node", len(zones))

    legacy = wire.topology_policies[0] if wire.topology_policies else None
    attributes = map(attrgetter("name", "value"), wire.attributes or ())
    policy, scope = _policy(name, legacy, attributes)
    columns = columns_of(zones, place)
    distances = distances_of(zones, place)
    return Topology(name, NodeAmounts(len(zones), policy, scope, columns, distances))


def _policy(
    node: str, legacy: str | None, attributes: Iterable[tuple[str, str]]
) -> tuple[str, str]:
    """Return policy and scope.

    Attributes win over the older list of policies, unknown values count for nothing.
    """
    policy, scope = "none", "container"
    if legacy is not None:
        value = _known_value(node, "policy", legacy, _LEGACY_NAMES, policy)
        policy = _LEGACY_NAMES.get(value, value)
        if legacy.endswith("PodLevel"):
            scope = "pod"

    for name, value in attributes:
        if name == "topologyManagerPolicy":
            policy = _known_value(node, "policy", value, TOPOLOGY_POLICIES, policy)
        if name == "topologyManagerScope":
            scope = _known_value(node, "scope", value, TOPOLOGY_SCOPES, scope)

    return policy, scope


def _known_value(node: str, kind: str, value: str, values: Collection[str], default: str) -> str:
    """Return a value if it is known, or else what holds without it."""
    if value in values:
        return value
    warn(f"the topology {kind} {value!r} of node {node} is unknown and ignored; {default} is taken")
    return default


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
    by_resource: dict[str, list[_Amounts]] = {}
    for position, zone in enumerate(zones):
        for resource in zone.resources or ():
            name = resource.name
            if name in _NOT_ALIGNED:
                continue

            amounts = by_resource.setdefault(name, [(0, 0, 0)] * len(zones))
            amounts[position] = _amounts(resource, f"{place}, zone {zone.name}")

    columns = {}
    for name, amounts in sorted(by_resource.items()):
        capacity, allocatable, available = zip(*amounts, strict=True)
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
    if available is None:
        available = allocatable

    # most amounts are equal, and are read once
    capacity_units = _units(capacity, place, resource.name)
    allocatable_units = capacity_units
    if allocatable != capacity:
        allocatable_units = _units(allocatable, place, resource.name)
    free_units = allocatable_units
    if available != allocatable:
        free_units = _units(available, place, resource.name)

    return capacity_units, allocatable_units, free_units


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
        neighbours = [cost.name for cost in zone.costs or ()]
        values = [cost.value for cost in zone.costs or ()]
        if values:
            costs_known = True
            if not 0 <= min(values) <= max(values) <= _LARGEST_COST:
                wrong = next(value for value in values if not 0 <= value <= _LARGEST_COST)
                raise InputError.at(place, f"costs from 0 to {_LARGEST_COST}", wrong)

        if neighbours != names:
            costs = dict(zip(neighbours, values, strict=True))
            values = [costs.get(name, _UNKNOWN_DISTANCE) for name in names]

        rows.append(tuple(values))

    return tuple(rows) if costs_known else None


def nodes_of(
    topologies: Iterable[Topology], version: KubeletVersion | None = None
) -> dict[str, Node]:
    """Return a node for each object, by name.

    Args:
        topologies: what the objects say.
        version: the release of all kubelets; None: what is known of each, or the newest that is
            out.

    Raises:
        InputError: a name comes twice, or the amounts are more than a machine can have.
    """
    nodes: dict[str, Node] = {}
    for topology in topologies:
        if topology.name in nodes:
            raise InputError.at("the cluster", "a name that no other node has", topology.name)
        nodes[topology.name] = node_of(topology, version or topology.version or NEWEST)

    return nodes


def node_of(topology: Topology, version: KubeletVersion = NEWEST) -> Node:
    """Return a node with what an object says that there is, and is free.

    Raises:
        InputError: the amounts are more than a machine can have.
    """
    amounts = topology.amounts
    machine, reserved_cpus = _machine(amounts)

    inventory = {}
    in_use = {}
    for resource, (_, totals, free) in amounts.devices.items():
        if sum(totals) > _MOST_DEVICES:  # it may be counted in bytes
            raise InputError.at(
                f"node {topology.name}, {resource}", f"at most {_MOST_DEVICES} devices", sum(totals)
            )

        inventory[resource] = tuple(
            Device(f"zone-{zone}-{number}", (zone,))
            for zone, count in enumerate(totals)
            for number in range(count)
        )
        in_use[resource] = [
            f"zone-{zone}-{number}"
            for zone in range(amounts.numa_nodes)
            for number in range(totals[zone] - free[zone])
        ]

    node = Node(machine, _config(amounts, reserved_cpus, version), inventory)
    node.counts_use_as_reserved = True
    if node.devices is not None and any(in_use.values()):
        node.devices.adopt(_IN_USE, _IN_USE, in_use)

    return node


def _machine(amounts: NodeAmounts) -> tuple[Machine, CPUSet]:
    """Return a machine with the amounts of the zones, and its CPUs that are reserved or in use."""
    nothing = (0,) * amounts.numa_nodes
    cpus, available_cpus = (1, *nothing[1:]), (1, *nothing[1:])
    if amounts.cpus:
        cpus, _, available_cpus = amounts.cpus

    bytes_by_zone = nothing
    if _MEMORY in amounts.resources:
        bytes_by_zone = amounts.resources[_MEMORY][1]

    reserved_cpus: list[int] = []
    nodes = []
    cpu = 0
    for zone, count in enumerate(cpus):
        reserved_cpus += range(cpu, cpu + count - available_cpus[zone])
        cores = tuple(Core((number,), zone) for number in range(cpu, cpu + count))
        cpu += count

        pages = _pages(amounts, zone)
        memory = bytes_by_zone[zone] + sum(record.size_bytes * record.count for record in pages)
        if zone == 0:
            memory += _PAGE

        distances = amounts.distances[zone] if amounts.distances else ()
        nodes.append(NumaNode(zone, memory, cores, pages, distances))

    return Machine(tuple(nodes)), CPUSet(reserved_cpus)


def _pages(amounts: NodeAmounts, zone: int) -> tuple[HugePages, ...]:
    """Return the hugepages of a zone."""
    pages = []
    for kind, (_, bytes_by_zone, _) in amounts.memory.items():
        if kind != _MEMORY:
            record = HugePages.parse(kind.removeprefix("hugepages-"), 0)
            count = bytes_by_zone[zone] // record.size_bytes
            pages.append(HugePages(record.size, record.size_bytes, count))

    return tuple(pages)


def _config(amounts: NodeAmounts, reserved_cpus: CPUSet, version: KubeletVersion) -> KubeletConfig:
    """Return the configuration under which exactly what is free can be given away."""
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": amounts.policy,
        "topologyManagerScope": amounts.scope,
        "maxPods": _MOST_PODS,
    }
    if amounts.numa_nodes > DEFAULT_MAXIMUM:
        kubelet["topologyManagerPolicyOptions"] = {
            "max-allowable-numa-nodes": str(amounts.numa_nodes)
        }

    if amounts.cpus:
        kubelet |= {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(reserved_cpus)}

    if amounts.memory:
        reserved: list[dict[str, Any]] = []  # what is in use, and the page that has to be reserved
        for zone in range(amounts.numa_nodes):
            sizes = {
                kind: totals[zone] - free[zone]
                for kind, (_, totals, free) in amounts.memory.items()
            }
            if zone == 0:
                sizes[_MEMORY] = sizes.get(_MEMORY, 0) + _PAGE

            limits = {kind: size for kind, size in sizes.items() if size}
            if limits:
                reserved.append({"numaNode": zone, "limits": limits})

        kubelet |= {"memoryManagerPolicy": "Static", "reservedMemory": reserved}

    return KubeletConfig.from_dict(kubelet, version=version)
