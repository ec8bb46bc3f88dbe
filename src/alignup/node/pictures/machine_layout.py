"""Lays out a machine as its readers know it from lstopo: sockets, NUMA nodes, caches, cores, CPUs, memory, devices.

Every CPU, bar of memory and device is a box with a key, by which `alignup.node.pictures.overlay` finds its place. NUMA
nodes without CPUs stand in the socket that is nearest to them, and those that have nothing at all share one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.machine.cpuset import CPUSet
from alignup.node.pictures.boxes import Box, columns_for, framed, in_columns, in_rows, stacked
from alignup.node.pictures.device_layout import CELL_FONT, device_boxes, devices_by_place, text_box
from alignup.node.pictures.measure import text_width
from alignup.node.pictures.node_layout import CellSize, cores_box, node_box

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.node.pictures.device_layout import NearDevices

__all__ = ["lay_out"]

_WIDEST: Final = 2400
"""Pixels that sockets may take side by side."""
_SHAPE: Final = 1.5
_DEVICES_WIDTH: Final = 480
_BETWEEN: Final = 10


def lay_out(
    machine: Machine,
    devices: Mapping[str, Sequence[Device]],
    remarks: Mapping[int, Sequence[str]] | None = None,
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
    blocks = (
        [framed("group", in_columns(with_cpus, columns_for(with_cpus, _SHAPE)), padding=0)]
        if with_cpus
        else []
    )
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
    return framed(
        "socket", stacked(blocks), label, f"{label}: {len(cores)} cores, CPUs {cpus}" if cpus else label
    )


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
