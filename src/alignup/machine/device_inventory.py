"""Holds the records of a device and of a machine with its devices; reads and writes inventories.

An inventory is the devices of each resource, and their NUMA nodes. `LoadedMachine` has a kubelet's
configuration and example pods too, where a machine came with them.

Which devices are free, and which container gets them, is decided in
`alignup.providers.devices.provider`.

On a GB200, a GPU's memory is a NUMA node, and some tools report that node for the GPU. It has no
CPUs, so by the Topology Manager's rules nothing aligns with it. As an option, `near_cpu_nodes`,
such a device counts as near the closest nodes with CPUs. The kubelet has no such option: it takes
the nodes that a device plugin reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from alignup.errors import InputError, warn
from alignup.records import Record, field, replace
from alignup.text.counting import some_of

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from typing import Any, Final

    from alignup.machine.machine import Machine


_SHOWN_IDS = 4
_SHOWN_LETTERS = 80
_SHOWN_NODES = 16
_NO_HINT = (
    ", which then finds no hint: restricted and single-numa-node refuse every pod that asks for it"
)
# The NUMA node id that a plugin reports if it has not determined one; no machine has a node of this
# id.
UNKNOWN_NUMA_NODE = -1
_KEYS = frozenset({"id", "numa", "healthy", "pci"})

# The keys, besides the machine, that a machine object, a scenario and a node line have in common.
EXTRA_KEYS: Final = ("devices", "preferredSets", "kubelet")


class Device(Record):
    """One device as its plugin reports it.

    Attributes:
        id: unique within the resource.
        numa_nodes: kernel ids of the NUMA nodes it is near to; None: the plugin reported no
            topology.
        has_only_unknown_nodes: its plugin reported NUMA nodes, none of which the machine has; they
            are left out of `numa_nodes`.
        pci: its PCI address; empty: not known, or the id is it.

    Examples:
        >>> Device("gpu0", (0,)).numa_nodes
        (0,)
    """

    id: str
    numa_nodes: tuple[int, ...] | None
    healthy: bool = True
    has_only_unknown_nodes: bool = False
    pci: str = ""


def partitions_of(device: Device, count: int) -> list[Device]:
    """Return the partitions of a device, which are near its NUMA nodes.

    Examples:
        >>> [part.id for part in partitions_of(Device("0000:01:00.0", (0,)), 2)]
        ['0000:01:00.0/0', '0000:01:00.0/1']
    """
    address = device.pci or device.id
    return [replace(device, id=f"{device.id}/{number}", pci=address) for number in range(count)]


# The devices of each resource, and of each resource sets of device ids that go well together, the
# best first.
Inventory = Mapping[str, Sequence[Device]]
PreferredSets = Mapping[str, Sequence[Sequence[str]]]


def decode_inventory(
    inventory: object, machine: Machine, where: str = "devices"
) -> dict[str, tuple[Device, ...]]:
    """Return the devices of each resource, from `{"resource": [{"id", "numa", "healthy"}]}`.

    `numa` is a list of kernel NUMA node ids, or one id; null or absent means that the plugin
    reported no topology. `healthy` is true when absent. NUMA nodes that the machine lacks are
    ignored with an `AlignupWarning`.

    Args:
        inventory: the decoded JSON or YAML; in place of a device's mapping there may be its record.
        machine: the machine the devices sit in.
        where: the name of the inventory in errors.

    Raises:
        InputError: something is not of this shape, or an id comes twice in a resource.
    """
    if not isinstance(inventory, Mapping):
        raise InputError.at(where, "a mapping of resources to lists of devices", inventory)

    by_resource = {}
    for resource, entries in inventory.items():
        place = f"{where}[{resource!r}]"
        if not isinstance(resource, str) or not resource:
            raise InputError.at(where, "the name of a resource", resource)
        if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
            raise InputError.at(place, "a list of devices", entries)

        devices = tuple(_device(entry, f"{place}[{index}]") for index, entry in enumerate(entries))
        by_resource[resource] = checked_devices(devices, machine, place)

    return by_resource


def decode_preferred_sets(
    sets: object, inventory: Inventory, where: str = "preferredSets"
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the sets of devices that go well together, from `{"resource": [[id, ...], ...]}`.

    Args:
        sets: the decoded JSON or YAML.
        inventory: the devices of each resource.
        where: the name of the sets in errors.

    Raises:
        InputError: something is not of this shape, or a set names a device that the inventory
            lacks.
    """
    if not isinstance(sets, Mapping):
        raise InputError.at(where, "a mapping of resources to lists of sets", sets)

    preferred_sets = {}
    for resource, entries in sets.items():
        device_ids = {device.id for device in inventory.get(resource, ())}
        place = f"{where}[{resource!r}]"
        if not isinstance(entries, list) or not all(isinstance(ids, list) for ids in entries):
            raise InputError.at(place, "a list of lists of device ids", entries)

        for ids in entries:
            if not all(isinstance(identity, str) and identity in device_ids for identity in ids):
                shown = [identity[:_SHOWN_LETTERS] for identity in sorted(device_ids)]
                raise InputError.at(
                    place, f"device ids of {resource!r} ({some_of(shown, _SHOWN_IDS)})", ids
                )

        preferred_sets[resource] = tuple(tuple(ids) for ids in entries)

    return preferred_sets


def inventory_to_dict(inventory: Inventory) -> dict[str, list[dict[str, Any]]]:
    """Return plain data for JSON that `decode_inventory` reads back to an equal inventory."""
    return {
        resource: list(map(_device_to_dict, devices)) for resource, devices in inventory.items()
    }


def _device_to_dict(device: Device) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": device.id, "numa": None}
    if device.has_only_unknown_nodes:
        entry["numa"] = [UNKNOWN_NUMA_NODE]
    elif device.numa_nodes is not None:
        entry["numa"] = list(device.numa_nodes)

    if not device.healthy:
        entry["healthy"] = False
    if device.pci:
        entry["pci"] = device.pci

    return entry


def repeated(ids: Iterable[str]) -> list[str]:
    """Return the ids that come more than once, in their order."""
    return [identity for identity, count in Counter(ids).items() if count > 1]


def checked_devices(devices: Iterable[Device], machine: Machine, where: str) -> tuple[Device, ...]:
    """Return devices that are near to NUMA nodes of this machine only.

    Plugins report -1, or a node that does not exist; like a kubelet, which finds no device there,
    this ignores such nodes, and warns of them. A resource whose devices name no other nodes counts
    as one that is aligned: no set of NUMA nodes can supply it.

    Raises:
        InputError: an id comes twice.
    """
    nodes = {node.id for node in machine.numa_nodes}
    checked: dict[str, Device] = {}
    unknown: set[int] = set()
    for index, reported in enumerate(devices):
        if reported.id in checked:
            place = f"{where}[{index}].id"
            expected = "an id that no other device of the resource has"
            raise InputError.at(place, expected, reported.id)

        device = reported
        unknown_to_machine = set(reported.numa_nodes or ()) - nodes
        if unknown_to_machine:
            unknown |= unknown_to_machine
            existing = tuple(node for node in reported.numa_nodes or () if node in nodes)
            device = replace(reported, numa_nodes=existing, has_only_unknown_nodes=not existing)

        checked[device.id] = device

    if unknown:
        machine_ids = some_of([str(node) for node in sorted(nodes)], _SHOWN_NODES)
        unknown_ids = some_of([str(node) for node in sorted(unknown)], _SHOWN_NODES)
        sentence = (
            f"{where} names NUMA nodes that this machine ({machine_ids}) does not have: "
            f"{unknown_ids}; ignored, as a kubelet does"
        )
        if not any(device.numa_nodes for device in checked.values()):
            sentence += _NO_HINT
        warn(sentence)

    return tuple(checked.values())


def _device(entry: object, where: str) -> Device:
    """Return the device that one entry of an inventory describes; a record is taken as it is."""
    if isinstance(entry, Device):
        return entry
    if not isinstance(entry, Mapping):
        raise InputError.at(where, "a device with an id and its NUMA nodes", entry)

    for key in entry:
        if key not in _KEYS:
            raise InputError.at(where, "id, numa, healthy or pci", key)

    identity = entry.get("id")
    if not isinstance(identity, str) or not identity:
        raise InputError.at(f"{where}.id", "the id of a device", identity)

    healthy = entry.get("healthy", True)
    if not isinstance(healthy, bool):
        raise InputError.at(f"{where}.healthy", "true or false", healthy)

    pci = entry.get("pci") or ""
    if not isinstance(pci, str):
        raise InputError.at(f"{where}.pci", "a PCI address", pci)

    return Device(identity, _numa_nodes(entry.get("numa"), f"{where}.numa"), healthy, pci=pci)


def _numa_nodes(value: Any, where: str) -> tuple[int, ...] | None:
    """Return the NUMA node ids of a device, None where none were reported."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError.at(where, "a list of NUMA node ids, or null", value)

    for node in value:
        if not isinstance(node, int) or isinstance(node, bool):
            raise InputError.at(where, "a NUMA node id", node)

    return tuple(value)


def devices_near(
    reports: Iterable[tuple[str, str, Iterable[int]]],
) -> dict[str, tuple[Device, ...]]:
    """Return devices by resource, both sorted.

    A device that comes several times is near the NUMA nodes of all reports of it.

    Args:
        reports: resource, id, and kernel ids of NUMA nodes; a device with none has no topology.
    """
    nodes_by_resource: dict[str, dict[str, set[int]]] = {}
    for resource, identity, nodes in reports:
        nodes_by_resource.setdefault(resource, {}).setdefault(identity, set()).update(nodes)

    return {
        resource: tuple(
            Device(identity, tuple(sorted(nodes)) or None)
            for identity, nodes in sorted(ids.items())
        )
        for resource, ids in sorted(nodes_by_resource.items())
    }


def nearest_cpu_nodes(machine: Machine, numa_id: int) -> tuple[int, ...]:
    """Return the ids of the nodes with CPUs that are closest to a node, ascending.

    A node with CPUs is closest to itself. Of several at the same distance, all are returned; where
    distances are not known, every node with CPUs is.

    Args:
        machine: the machine.
        numa_id: the kernel's number of one of its nodes.

    Raises:
        InputError: the machine has no such node.
    """
    position = machine.position(numa_id)
    if machine.node_cpus[position]:
        return (numa_id,)

    candidates = [index for index, cpus in enumerate(machine.node_cpus) if cpus]
    row = machine.numa_nodes[position].distances
    if row and candidates:
        shortest = min(row[index] for index in candidates)
        candidates = [index for index in candidates if row[index] == shortest]

    return tuple(machine.numa_node_ids[index] for index in candidates)


def near_cpu_nodes(machine: Machine, inventory: Inventory) -> dict[str, tuple[Device, ...]]:
    """Return an inventory in which every device that is near any node is near nodes with CPUs.

    Args:
        machine: the machine.
        inventory: its devices, by resource.

    Raises:
        InputError: a device is near a node that the machine does not have.
    """

    def placed(device: Device) -> Device:
        if device.numa_nodes is None:
            return device

        cpu_nodes: set[int] = set()
        for node in device.numa_nodes:
            cpu_nodes.update(nearest_cpu_nodes(machine, node))
        return replace(device, numa_nodes=tuple(sorted(cpu_nodes)))

    return {resource: tuple(map(placed, devices)) for resource, devices in inventory.items()}


class LoadedMachine(Record):
    """A machine with its devices; all but the machine is mostly empty.

    Attributes:
        devices: by resource.
        preferred_sets: by resource, sets of device ids that go well together, the best first.
        kubelet: fields of a KubeletConfiguration that goes with the machine; not decoded yet.
        pods: manifests of example pods; not decoded yet.
        devices_vary: of the catalog: servers of this kind have other devices, too.
    """

    machine: Machine
    devices: Inventory = field(default_factory=dict)
    preferred_sets: PreferredSets = field(default_factory=dict)
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    pods: tuple[Mapping[str, Any], ...] = ()
    devices_vary: bool = False

    def with_devices(
        self, devices: Inventory, preferred_sets: PreferredSets | None = None
    ) -> LoadedMachine:
        """Return this machine with other devices of some resources.

        The preferred sets of these resources go with their devices.
        """
        kept_sets = {
            resource: sets
            for resource, sets in self.preferred_sets.items()
            if resource not in devices
        }
        return replace(
            self,
            devices={**self.devices, **devices},
            preferred_sets={**kept_sets, **(preferred_sets or {})},
        )

    def completed(self, document: Mapping[str, Any], prefix: str = "") -> LoadedMachine:
        """Return this machine with those of `EXTRA_KEYS` that a document has of its own.

        Devices of its own bring their own preferred sets, or none.

        Args:
            document: a decoded document; null counts as missing.
            prefix: the text that errors put before the key.

        Raises:
            InputError: a value is not of its form; see `decode_inventory` and
                `decode_preferred_sets`.
        """
        devices = self.devices
        sets = self.preferred_sets
        kubelet = self.kubelet
        if document.get("devices") is not None:
            devices = decode_inventory(
                mapping_under(document, "devices", prefix), self.machine, f"{prefix}devices"
            )
            sets = {}

        if document.get("preferredSets") is not None:
            sets = decode_preferred_sets(
                mapping_under(document, "preferredSets", prefix), devices, f"{prefix}preferredSets"
            )

        if document.get("kubelet") is not None:
            kubelet = mapping_under(document, "kubelet", prefix)

        return replace(self, devices=devices, preferred_sets=sets, kubelet=kubelet)

    def to_dict(self) -> dict[str, Any]:
        """Return the machine object that `described_machine` reads.

        It has those of `EXTRA_KEYS` that hold something.
        """
        sets = {
            resource: [list(ids) for ids in id_sets]
            for resource, id_sets in self.preferred_sets.items()
        }
        extras = zip(EXTRA_KEYS, (inventory_to_dict(self.devices), sets, self.kubelet), strict=True)
        return {**self.machine.to_dict(), **{key: extra for key, extra in extras if extra}}


def mapping_under(data: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    """Return the mapping under a key, empty if it is missing or null.

    Errors put `prefix` before the key.

    Raises:
        InputError: the value is not a mapping.
    """
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError.at(f"{prefix}{key}", "a mapping", value)
    return value
