"""Lays out one NUMA node: its caches, cores and CPUs, a bar for each type of memory, and devices near to it alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from alignup.machine.cpuset import CPUSet
from alignup.node.pictures.boxes import Box, columns_for, framed, in_columns, stacked
from alignup.node.pictures.device_layout import CELL_FONT, bar_box, device_boxes, text_box
from alignup.node.pictures.measure import text_width
from alignup.text.byte_sizes import short_bytes
from alignup.text.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alignup.machine.machine import Machine
    from alignup.machine.numa_node import Core, NumaNode
    from alignup.node.pictures.device_layout import NearDevices

__all__ = ["CellSize", "cores_box", "node_box"]

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
    machine: Machine,
    node: NumaNode,
    near: NearDevices | None,
    size: CellSize,
    remarks: Sequence[str] = (),
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
    parts = [
        f"{counted(len(cpus), 'CPU')}: {cpus}" if cpus else "no CPUs",
        f"{short_bytes(node.memory)} memory",
    ]
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
        Box(
            "cpu",
            size.width,
            size.height,
            str(cpu),
            f"CPU {cpu}{siblings}{cache}, socket {core.socket}",
            ("cpu", cpu),
        )
        for cpu in core.cpus
    ]
    return framed("core", stacked(cells, 0), padding=_CORE_PADDING)
