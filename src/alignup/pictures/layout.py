"""Lays out a machine as lstopo does, on a fixed grid.

The grid shows sockets, NUMA nodes, caches, cores, CPUs, memory and devices. Every CPU, bar of
memory and device is a box with a key, by which `alignup.pictures.overlay` finds its place. NUMA
nodes without CPUs are in the nearest socket, and those without CPUs, memory and devices share one
line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.machine.cpuset import CPUSet
from alignup.machine.pci_devices import kind_of, vendor_of
from alignup.pictures import boxes
from alignup.records import Record
from alignup.text.counting import counted, named, short_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from alignup.machine.device_inventory import Inventory
    from alignup.machine.machine import Core, Machine, NumaNode

    # The devices of each resource near a set of NUMA nodes, by kernel ids; () is near none, or any.
    Places = dict[tuple[int, ...], dict[str, list[boxes.Box]]]

# Begins a remark on what a NUMA node cannot supply.
LACKING: Final = "✗ "
# Pixels that sockets may take side by side: a slide, on which no letter is to shrink.
_WIDEST: Final = 1180
# Of a machine of more CPUs, which would be too long for any screen.
_MOST_CPUS_ON_A_SLIDE: Final = 1024
_WIDEST_OF_MANY: Final = 2400
_BETWEEN: Final = 10
# Width and height of a CPU, wide enough for a number of four digits.
_CPU: Final = (38, 31)
_CORE_PADDING: Final = 2
_BETWEEN_CORES: Final = 3
# Room for eight cores side by side, in two caches too.
_WIDEST_CORES: Final = 385
# Pixels that the bars of memory need for their text.
_NARROWEST: Final = 230
_WIDEST_REMARK: Final = 370
_DEVICES_WIDTH: Final = 640
# Bold letters are wider.
_BOLD_FONT: Final = boxes.CELL_FONT + 1
_CHIP_HEIGHT: Final = 21
_WIDEST_CHIP: Final = 173
# Pixels of a device that are left for the sign of its holder.
_SIGN_WIDTH: Final = 24
# More devices of one resource near one place are drawn as a bar.
_MOST_CHIPS: Final = 32
_TEXT_HEIGHT: Final = 16
_BAR_HEIGHT: Final = 17


class _Look(Record):
    """How a machine is drawn.

    Attributes:
        short: resources whose names stand out.
        widest: pixels that sockets may take side by side.
    """

    short: frozenset[str]
    widest: int


def lay_out(
    machine: Machine,
    devices: Inventory,
    remarks: Mapping[int, Sequence[str]] | None = None,
    short: Collection[str] = (),
) -> boxes.Box:
    """Return the boxes of a machine and of the devices of each resource.

    Args:
        machine: the machine.
        devices: by resource.
        remarks: lines to write into NUMA nodes, by kernel id; those that begin with `LACKING` stand
            out.
        short: resources of which there is too little, whose names stand out.
    """
    widest = _WIDEST
    if machine.cpus.bit_count() > _MOST_CPUS_ON_A_SLIDE:
        widest = _WIDEST_OF_MANY

    look = _Look(frozenset(short), widest)
    places = _devices_by_place(machine, devices)
    rooms: dict[tuple[int, ...], list[NumaNode]] = {}
    for node, sockets in zip(machine.numa_nodes, _homes(machine), strict=True):
        rooms.setdefault(sockets, []).append(node)

    in_order = sorted(rooms.items(), key=lambda room: (not room[0], room[0]))
    socket_boxes = [
        _socket_box(sockets, nodes, places, remarks or {}, look) for sockets, nodes in in_order
    ]
    parts = [boxes.group(boxes.in_rows(socket_boxes, widest, _BETWEEN))]

    for ids in sorted(ids for ids in places if len(ids) != 1):
        label = _near(ids)
        device_boxes = list(_device_boxes(ids, places[ids], _DEVICES_WIDTH, look))
        parts.append(boxes.framed("apart", boxes.stacked(device_boxes), label, label))

    if machine.unassigned_cores:
        label = "in no NUMA node: nothing is placed here"
        parts.append(boxes.framed("apart", [_cores_box(machine.unassigned_cores)], label, label))

    if machine.offline_cpus:
        parts.append(_text_box(f"offline: CPUs {CPUSet(machine.offline_cpus)}", parts[0].width))

    return boxes.framed("machine", boxes.stacked(parts, _BETWEEN), padding=_BETWEEN)


def _homes(machine: Machine) -> list[tuple[int, ...]]:
    """Return the sockets that each NUMA node is drawn in, by position; none: it is drawn apart.

    A node has the sockets of its cores. One without cores has those of the nearest node that has
    cores, where the machine tells distances and no node of another socket is as near.
    """
    sockets_of_nodes = [
        tuple(sorted({core.socket for core in node.cores})) for node in machine.numa_nodes
    ]
    homes = list(sockets_of_nodes)
    for position, distances in enumerate(machine.distance_matrix or ()):
        candidates = [
            (distance, sockets)
            for distance, sockets in zip(distances, sockets_of_nodes, strict=True)
            if sockets
        ]
        if not candidates or sockets_of_nodes[position]:
            continue

        shortest, _ = min(candidates)
        nearest = {sockets for distance, sockets in candidates if distance == shortest}
        if len(nearest) == 1:
            homes[position] = nearest.pop()

    return homes


def _socket_box(
    sockets: tuple[int, ...],
    nodes: Sequence[NumaNode],
    places: Places,
    remarks: Mapping[int, Sequence[str]],
    look: _Look,
) -> boxes.Box:
    """Return a socket with its NUMA nodes.

    It may be several sockets, where nodes have cores of several, or none.
    """
    shown_nodes = [
        node
        for node in nodes
        if node.cores or node.memory or (node.id,) in places or node.id in remarks
    ]
    shown_nodes.sort(key=lambda node: not node.cores)

    blocks = []
    if shown_nodes:
        node_boxes = [
            _node_box(node, places.get((node.id,), {}), remarks.get(node.id, ()), look)
            for node in shown_nodes
        ]
        blocks.append(boxes.group(boxes.in_rows(node_boxes, look.widest - 2 * _BETWEEN)))

    empty = CPUSet(node.id for node in nodes if node not in shown_nodes)
    if empty:
        plural = "" if len(empty) == 1 else "s"
        text = f"NUMA node{plural} {str(empty).replace(',', ', ')}: no CPUs, no memory"
        width = min(boxes.text_width(text, boxes.CELL_FONT), _DEVICES_WIDTH)
        blocks.append(_text_box(text, max([width, *(block.width for block in blocks)])))

    label = named("socket", sockets, ", ") if sockets else "NUMA nodes without CPUs"
    title = label
    cores = [core for node in nodes for core in node.cores]
    if cores:
        title += f": {len(cores)} cores, CPUs {_cpus_of(cores)}"

    return boxes.framed("socket", boxes.stacked(blocks), label, title)


def _node_box(
    node: NumaNode,
    boxes_by_resource: Mapping[str, list[boxes.Box]],
    remarks: Sequence[str],
    look: _Look,
) -> boxes.Box:
    """Return a NUMA node with remarks on it, and its cores, memory and devices."""
    cores = [_cores_box(node.cores)] if node.cores else []
    remark_widths = [
        min(boxes.text_width(remark, _BOLD_FONT), _WIDEST_REMARK) for remark in remarks
    ]
    width = max([_NARROWEST, *(block.width for block in cores), *remark_widths])

    blocks = []
    if remarks:
        lines = [
            _text_box(remark, width, is_short=remark.startswith(LACKING)) for remark in remarks
        ]
        blocks.append(boxes.group(boxes.stacked(lines, 0)))

    blocks += [
        *cores,
        *_memory_bars(node, width),
        *_device_boxes((node.id,), boxes_by_resource, width, look),
    ]

    label = f"NUMA node {node.id}"
    title = f"{label}: {_summary_of(node)}"
    return boxes.framed("node", boxes.stacked(blocks), label, title, key=("node", node.id))


def _summary_of(node: NumaNode) -> str:
    """Return the CPUs, the memory and the distances of a NUMA node, in words."""
    cpus = _cpus_of(node.cores)
    parts = [
        f"{counted(len(cpus), 'CPU')}: {cpus}" if cpus else "no CPUs",
        f"{short_bytes(node.memory)} memory",
    ]
    if node.distances:
        parts.append(f"distances {' '.join(map(str, node.distances))}")

    return "; ".join(parts)


def _memory_bars(node: NumaNode, width: int) -> Iterator[boxes.Box]:
    """Yield a bar for each type of memory that the node has."""
    hugepages = [
        (f"hugepages-{pages.size}", pages.size_bytes * pages.count, f"{pages.count} x {pages.size}")
        for pages in node.hugepages
    ]
    ordinary = node.memory - sum(size for _, size, _ in hugepages)

    for kind, size, text in (("memory", ordinary, f"{short_bytes(ordinary)} memory"), *hugepages):
        if size > 0:
            title = f"{kind} of NUMA node {node.id}: {short_bytes(size)} ({size} bytes)"
            yield _bar_box(text, title, ("memory", node.id, kind), width)


def _cores_box(cores: Sequence[Core]) -> boxes.Box:
    """Return cores by the L3 caches that they share, where these are known."""
    caches: dict[tuple[int, int | None], list[Core]] = {}
    for core in cores:
        caches.setdefault((core.socket, core.l3), []).append(core)

    blocks = []
    in_order = sorted(caches.items(), key=lambda cache: (cache[0][0], cache[0][1] or 0))
    for (_, l3), members in in_order:
        block = boxes.in_rows([_core_box(core) for core in members], _WIDEST_CORES, _BETWEEN_CORES)
        if l3 is None:
            blocks.append(boxes.group(block))
        else:
            title = f"L3 cache {l3}: CPUs {_cpus_of(members)}"
            blocks.append(boxes.framed("l3", block, f"L3 {l3}", title, padding=4))

    return boxes.group(boxes.in_rows(blocks, _WIDEST_CORES))


def _core_box(core: Core) -> boxes.Box:
    """Return a core: its CPUs below each other."""
    surroundings = f"socket {core.socket}"
    if core.l3 is not None:
        surroundings = f"L3 {core.l3}, {surroundings}"
    if len(core.cpus) != 1:
        surroundings = f"core of CPUs {CPUSet(core.cpus)}, {surroundings}"

    cells = [
        boxes.Box("cpu", *_CPU, str(cpu), f"CPU {cpu}, {surroundings}", ("cpu", cpu))
        for cpu in core.cpus
    ]
    return boxes.framed("core", boxes.stacked(cells, 0), padding=_CORE_PADDING)


def _cpus_of(cores: Iterable[Core]) -> CPUSet:
    """Return the CPUs of cores."""
    return CPUSet(cpu for core in cores for cpu in core.cpus)


def _devices_by_place(machine: Machine, devices: Inventory) -> Places:
    """Return the devices near each set of NUMA nodes.

    These are the devices of resources, and the PCI devices that are no resource's.
    """
    places: Places = {}

    def add(
        numa_nodes: Iterable[int],
        resource: str,
        kind: str,
        label: str,
        title: str,
        key: boxes.Key = (),
    ) -> None:
        room = min(boxes.text_width(boxes.drawable(label), boxes.CELL_FONT), _WIDEST_CHIP) + 8
        width = room + _SIGN_WIDTH if key else room
        label = boxes.fitted(label, room - 6, boxes.CELL_FONT)
        box = boxes.Box(kind, width, _CHIP_HEIGHT, label, boxes.drawable(title), key)

        place = tuple(sorted(set(numa_nodes)))
        places.setdefault(place, {}).setdefault(resource, []).append(box)

    device_ids = set()
    for resource, resource_devices in sorted(devices.items()):
        for device in resource_devices:
            device_ids.add(device.id)
            numa_nodes = device.numa_nodes or ()
            kind = "device"
            title = f"{resource} {device.id}, {_near(numa_nodes)}"
            if not device.healthy:
                kind = "sick"
                title += ", unhealthy"

            add(numa_nodes, resource, kind, device.id, title, ("device", resource, device.id))

    for pci in machine.pci_devices:
        kind_name = kind_of(pci)
        if kind_name is None or pci.address in device_ids:
            continue

        numa_nodes = () if pci.numa_node is None else (pci.numa_node,)
        label = f"{kind_name} {pci.address.removeprefix('0000:')}"
        model = f"{vendor_of(pci.vendor)} {pci.vendor}:{pci.device}"
        title = f"{kind_name} {pci.address}, {model}, {_near(numa_nodes)}"
        add(numa_nodes, "PCI", "pci", label, title)

    return places


def _near(numa_nodes: Iterable[int]) -> str:
    """Return near to which NUMA nodes something is."""
    ids = sorted(set(numa_nodes))
    if not ids:
        return "without NUMA node"
    return f"near {named('NUMA node', ids, ', ')}"


def _device_boxes(
    numa_nodes: tuple[int, ...],
    boxes_by_resource: Mapping[str, list[boxes.Box]],
    width: int,
    look: _Look,
) -> Iterator[boxes.Box]:
    """Yield each resource's devices near a place, or one bar for many.

    They are wider than `width` only where a single device is.
    """
    for resource, chips in boxes_by_resource.items():
        if len(chips) > _MOST_CHIPS:
            text = counted(len(chips), "device")
            title = f"{resource}: {text}, {_near(numa_nodes)}"
            block = _bar_box(text, title, ("devices", resource, *numa_nodes), width)
        else:
            block = boxes.group(boxes.in_rows(chips, width, boxes.GAP - 2))

        yield boxes.group(
            boxes.stacked([_text_box(resource, width, is_short=resource in look.short), block], 1)
        )


def _bar_box(text: str, title: str, key: boxes.Key, width: int) -> boxes.Box:
    """Return a bar whose parts are to show amounts, with a line of text above it."""
    line = boxes.Box("told", width, _TEXT_HEIGHT, text, title, ("told", *key))
    bar = boxes.Box("bar", width, _BAR_HEIGHT, "", title, key)
    return boxes.group(boxes.stacked([line, bar], 1))


def _text_box(text: str, width: int, *, is_short: bool = False) -> boxes.Box:
    """Return a line of text, cut to a width; `is_short`: it is about too little of something."""
    kind, size = "text", boxes.CELL_FONT
    if is_short:
        kind, size = "short", _BOLD_FONT

    label = boxes.fitted(text, width, size)
    return boxes.Box(kind, width, _TEXT_HEIGHT, label, boxes.drawable(text))
