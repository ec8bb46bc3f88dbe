"""Lays out a machine as lstopo does: sockets, NUMA nodes, caches, cores, CPUs, memory and devices.

Every CPU, bar of memory and device is a box with a key, by which `alignup.node.pictures.overlay` finds its place. NUMA
nodes without CPUs are in the nearest socket, and those without CPUs, memory and devices share one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from alignup.machine.cpuset import CPUSet
from alignup.machine.pci_devices import VENDORS, kind_of
from alignup.node.pictures.boxes import (
    GAP,
    Box,
    columns_for,
    drawable,
    fitted,
    framed,
    in_columns,
    in_rows,
    stacked,
    text_width,
)
from alignup.text.byte_sizes import counted, short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.machine.numa_node import Core, NumaNode, PciDevice
    from alignup.node.pictures.boxes import Key

_WIDEST: Final = 2400
"""Pixels that sockets may take side by side."""
_SHAPE: Final = 1.5
_DEVICES_WIDTH: Final = 480
_BETWEEN: Final = 10


def lay_out(
    machine: Machine, devices: Mapping[str, Sequence[Device]], remarks: Mapping[int, Sequence[str]] | None = None
) -> Box:
    """Return the boxes of a machine and of the devices of each resource.

    Args:
        machine: the machine.
        devices: by resource.
        remarks: lines to write into NUMA nodes, by kernel id.
    """
    places = devices_by_place(machine, devices)
    rooms: dict[tuple[int, ...], list[int]] = {}
    for position, sockets in enumerate(_homes(machine)):
        rooms.setdefault(sockets, []).append(position)
    boxes = [
        _socket_box(machine, sockets, positions, places, remarks or {})
        for sockets, positions in sorted(rooms.items(), key=lambda room: (not room[0], room[0]))
    ]
    columns = columns_for(boxes, _SHAPE, _WIDEST, _BETWEEN)
    parts = [framed("group", in_columns(boxes, columns, _BETWEEN), padding=0)]
    shared = [_shared_devices(near) for ids, near in sorted(places.items()) if len(ids) != 1]
    if shared:
        parts.append(framed("group", in_rows(shared, max(parts[0].width, _DEVICES_WIDTH)), padding=0))
    parts += _notes(machine, parts[0].width)
    return framed("machine", stacked(parts, _BETWEEN), padding=_BETWEEN)


def _homes(machine: Machine) -> list[tuple[int, ...]]:
    """Return the sockets that each NUMA node is drawn in, by position; none: it is drawn apart.

    A node has the sockets of its cores. One without cores has those of the nearest node that has cores, where the
    machine tells distances and no node of another socket is as near.
    """
    own = [tuple(sorted({core.socket for core in node.cores})) for node in machine.numa_nodes]
    distances = machine.distance_matrix
    if distances is None:
        return own
    homes = list(own)
    for position, sockets in enumerate(own):
        near = [(distances[position][other], found) for other, found in enumerate(own) if found]
        if sockets or not near:
            continue
        least = min(distance for distance, _ in near)
        nearest = {found for distance, found in near if distance == least}
        homes[position] = nearest.pop() if len(nearest) == 1 else ()
    return homes


def _socket_box(
    machine: Machine,
    sockets: tuple[int, ...],
    positions: Sequence[int],
    places: Mapping[tuple[int, ...], NearDevices],
    remarks: Mapping[int, Sequence[str]],
) -> Box:
    """Return a socket, or the sockets whose nodes have cores of several, or no socket, with NUMA nodes."""
    size = CellSize.of(machine)
    with_cpus, without, empty = [], [], []
    for position in positions:
        node = machine.numa_nodes[position]
        near = places.get((node.id,))
        told = remarks.get(node.id, ())
        if node.cores:
            with_cpus.append(node_box(machine, node, near, size, told))
        elif node.memory or near or told:
            without.append(node_box(machine, node, near, size, told))
        else:
            empty.append(node.id)
    blocks = [framed("group", in_columns(with_cpus, columns_for(with_cpus, _SHAPE)), padding=0)] if with_cpus else []
    if without:
        width = blocks[0].width if blocks else 0
        rows = in_rows(without, width) if width else in_columns(without, columns_for(without, _SHAPE))
        blocks.append(framed("group", rows, padding=0))
    if empty:
        blocks.append(_empty_nodes(empty, max((block.width for block in blocks), default=0)))
    label = f"socket{'' if len(sockets) == 1 else 's'} {', '.join(map(str, sockets))}"
    if not sockets:
        label = "NUMA nodes without CPUs"
    cores = [core for position in positions for core in machine.numa_nodes[position].cores]
    cpus = CPUSet(cpu for core in cores for cpu in core.cpus)
    return framed("socket", stacked(blocks), label, f"{label}: {len(cores)} cores, CPUs {cpus}" if cpus else label)


def _empty_nodes(ids: Sequence[int], width: int) -> Box:
    """Return a line about NUMA nodes that have nothing, in a width that is exceeded if it is very small."""
    told = str(CPUSet(ids)).replace(",", ", ")
    text = f"NUMA node{'' if len(ids) == 1 else 's'} {told}: no CPUs, no memory"
    return text_box(text, max(min(text_width(text, CELL_FONT), _DEVICES_WIDTH), width))


def _shared_devices(near: NearDevices) -> Box:
    """Return the devices that are near to several NUMA nodes, or to none in particular."""
    ids = ", ".join(map(str, near.numa_nodes))
    label = f"near NUMA nodes {ids}" if ids else "near no NUMA node in particular"
    return framed("apart", stacked(list(device_boxes(near, _DEVICES_WIDTH))), label, label)


def _notes(machine: Machine, width: int) -> Iterator[Box]:
    """Yield the CPUs that are in no NUMA node, and a line about those that are offline."""
    if machine.unassigned_cores:
        label = "in no NUMA node: nothing is placed here"
        yield framed("apart", [cores_box(machine.unassigned_cores, CellSize.of(machine))], label, label)
    if machine.offline_cpus:
        yield text_box(f"offline: CPUs {CPUSet(machine.offline_cpus)}", width)


_CORES_SHAPE: Final = 2.0
_CACHES_SHAPE: Final = 1.8
_NARROWEST: Final = 170
"""Pixels that the bars of memory need for their text."""
_WIDEST_REMARK: Final = 280
_CELL_HEIGHT: Final = 25
_CORE_PADDING: Final = 2


@dataclass(frozen=True, slots=True)
class CellSize:
    """Pixels of a CPU, wide enough for the longest number of the machine."""

    width: int
    height: int = _CELL_HEIGHT

    @classmethod
    def of(cls, machine: Machine) -> CellSize:
        """Return the size of the cells of a machine."""
        numbers = [core.cpus[-1] for node in machine.numa_nodes for core in node.cores]
        numbers += [core.cpus[-1] for core in machine.unassigned_cores]
        return cls(max(24, text_width(str(max(numbers, default=0)), CELL_FONT) + 8))


def node_box(
    machine: Machine, node: NumaNode, near: NearDevices | None, size: CellSize, remarks: Sequence[str] = ()
) -> Box:
    """Return a NUMA node with remarks on it, and its cores, memory and devices."""
    cores = [cores_box(node.cores, size)] if node.cores else []
    width = max(
        [
            _NARROWEST,
            *(block.width for block in cores),
            *(min(text_width(one, CELL_FONT), _WIDEST_REMARK) for one in remarks),
        ]
    )
    told = stacked([text_box(remark, width) for remark in remarks], 0)
    blocks = [*([framed("group", told, padding=0)] if told else []), *cores]
    blocks += [_memory_bar(node, kind, size_bytes, text, width) for kind, size_bytes, text in _memory(node)]
    if near is not None:
        blocks += device_boxes(near, width)
    cpus = CPUSet(cpu for core in node.cores for cpu in core.cpus)
    parts = [f"{counted(len(cpus), 'CPU')}: {cpus}" if cpus else "no CPUs", f"{short_bytes(node.memory)} memory"]
    if machine.distance_matrix:
        parts.append(f"distances {' '.join(map(str, node.distances))}")
    label = f"NUMA node {node.id}"
    return framed("node", stacked(blocks), label, f"{label}: {'; '.join(parts)}", key=("node", node.id))


def _memory(node: NumaNode) -> Iterator[tuple[str, int, str]]:
    """Yield each type of memory that the node has: the type, bytes, and text."""
    pages = [one for one in node.hugepages if one.count]
    rest = node.memory - sum(one.size_bytes * one.count for one in pages)
    if rest > 0:
        yield "memory", rest, f"{short_bytes(rest)} memory"
    for one in pages:
        yield f"hugepages-{one.size}", one.size_bytes * one.count, f"{one.count} x {one.size}"


def _memory_bar(node: NumaNode, kind: str, size_bytes: int, text: str, width: int) -> Box:
    title = f"{kind} of NUMA node {node.id}: {short_bytes(size_bytes)} ({size_bytes} bytes)"
    return bar_box(text, title, ("memory", node.id, kind), width)


def cores_box(cores: Sequence[Core], size: CellSize) -> Box:
    """Return cores by the L3 caches that they share, where these are known."""
    groups: dict[tuple[int, int | None], list[Core]] = {}
    for core in cores:
        groups.setdefault((core.socket, core.l3), []).append(core)
    blocks = []
    for (_, l3), members in sorted(groups.items(), key=lambda group: (group[0][0], group[0][1] or 0)):
        boxes = [_core_box(core, size) for core in members]
        block = in_columns(boxes, columns_for(boxes, _CORES_SHAPE, gap=3), gap=3)
        if l3 is None:
            blocks.append(framed("group", block, padding=0))
        else:
            cpus = CPUSet(cpu for core in members for cpu in core.cpus)
            blocks.append(framed("l3", block, f"L3 {l3}", f"L3 cache {l3}: CPUs {cpus}", padding=4))
    if len(blocks) == 1:
        return blocks[0]
    return framed("group", in_columns(blocks, columns_for(blocks, _CACHES_SHAPE)), padding=0)


def _core_box(core: Core, size: CellSize) -> Box:
    """Return a core: its CPUs below each other."""
    siblings = "" if len(core.cpus) == 1 else f", core of CPUs {CPUSet(core.cpus)}"
    cache = "" if core.l3 is None else f", L3 {core.l3}"
    cells = [
        Box("cpu", size.width, size.height, str(cpu), f"CPU {cpu}{siblings}{cache}, socket {core.socket}", ("cpu", cpu))
        for cpu in core.cpus
    ]
    return framed("core", stacked(cells, 0), padding=_CORE_PADDING)


CELL_FONT: Final = 9
TEXT_HEIGHT: Final = 13
CHIP_HEIGHT: Final = 18
BAR_HEIGHT: Final = 14

_SIGN_WIDTH: Final = 18
"""Pixels of a device that are left for the sign of its holder."""
_WIDEST_CHIP: Final = 130
_MOST_CHIPS: Final = 32
"""More devices of one resource near one place are drawn as a bar."""
_PCI: Final = "PCI"


@dataclass(frozen=True, slots=True)
class Chip:
    """A device to be drawn."""

    label: str
    title: str
    key: Key = ()
    """`("device", resource, id)`; empty for a PCI device that is no resource's."""
    kind: str = "device"


@dataclass(frozen=True, slots=True)
class NearDevices:
    """The devices near one place: a NUMA node, several, or none."""

    numa_nodes: tuple[int, ...]
    """Kernel ids; empty: near no NUMA node, or any."""
    by_resource: dict[str, list[Chip]] = field(default_factory=dict)


def devices_by_place(machine: Machine, devices: Mapping[str, Sequence[Device]]) -> dict[tuple[int, ...], NearDevices]:
    """Return what is near to each set of NUMA nodes that something is near to, by kernel ids."""
    places: dict[tuple[int, ...], NearDevices] = {}

    def add(numa_nodes: tuple[int, ...], resource: str, chip: Chip) -> None:
        near = places.setdefault(numa_nodes, NearDevices(numa_nodes))
        near.by_resource.setdefault(resource, []).append(chip)

    for resource, found in sorted(devices.items()):
        for device in found:
            numa_nodes = tuple(sorted(set(device.numa_nodes or ())))
            sick = "" if device.healthy else ", unhealthy"
            title = f"{resource} {device.id}, {_near(numa_nodes)}{sick}"
            kind = "device" if device.healthy else "sick"
            add(numa_nodes, resource, Chip(device.id, title, ("device", resource, device.id), kind))
    named = {device.id for found in devices.values() for device in found}
    for pci in machine.pci_devices:
        known = kind_of(pci)
        if known is not None and pci.address not in named:
            add(() if pci.numa_node is None else (pci.numa_node,), _PCI, _pci_chip(pci, known))
    return places


def _pci_chip(pci: PciDevice, kind: str) -> Chip:
    """Return a PCI device of a kind that placement depends on."""
    vendor = VENDORS.get(pci.vendor, "")
    near = _near(() if pci.numa_node is None else (pci.numa_node,))
    title = f"{kind} {pci.address}, {vendor} {pci.vendor}:{pci.device}, {near}"
    return Chip(f"{kind} {pci.address.removeprefix('0000:')}", title, kind="pci")


def _near(numa_nodes: tuple[int, ...]) -> str:
    if not numa_nodes:
        return "near no NUMA node in particular"
    return f"near NUMA node{'' if len(numa_nodes) == 1 else 's'} {', '.join(map(str, numa_nodes))}"


def device_boxes(near: NearDevices, width: int) -> Iterator[Box]:
    """Yield the boxes of each resource's devices, in a width that is exceeded only by a single device."""
    for resource, chips in near.by_resource.items():
        yield framed("group", stacked([text_box(resource, width), _chips(near, resource, chips, width)], 1), padding=0)


def _chips(near: NearDevices, resource: str, chips: Sequence[Chip], width: int) -> Box:
    """Return the devices of a resource side by side, or one bar for many."""
    if len(chips) > _MOST_CHIPS:
        many = counted(len(chips), "device")
        title = f"{resource}: {many}, {_near(near.numa_nodes)}"
        return bar_box(many, title, ("devices", resource, *near.numa_nodes), max(width, 100))
    boxes = []
    for chip in chips:
        room = min(text_width(drawable(chip.label), CELL_FONT), _WIDEST_CHIP) + 8
        label = fitted(chip.label, room - 6, CELL_FONT)
        full = room + _SIGN_WIDTH if chip.key else room
        boxes.append(Box(chip.kind, full, CHIP_HEIGHT, label, drawable(chip.title), chip.key))
    return framed("group", in_rows(boxes, width, GAP - 2), padding=0)


def bar_box(text: str, title: str, key: Key, width: int) -> Box:
    """Return a bar whose parts are to show amounts, with a line of text above it."""
    line = Box("told", width, TEXT_HEIGHT, text, title, ("told", *key))
    return framed("group", stacked([line, Box("bar", width, BAR_HEIGHT, "", title, key)], 1), padding=0)


def text_box(text: str, width: int) -> Box:
    """Return a line of text, cut to a width."""
    width = max(width, 60)
    return Box("text", width, TEXT_HEIGHT, fitted(text, width, CELL_FONT), drawable(text))
