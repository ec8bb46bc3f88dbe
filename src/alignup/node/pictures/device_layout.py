"""Lays out devices by the NUMA nodes that they are near to: those of each resource, and PCI devices of none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from alignup.machine.pci_kinds import VENDORS, kind_of
from alignup.node.pictures.boxes import GAP, Box, framed, in_rows, stacked
from alignup.node.pictures.measure import drawable, fitted, text_width
from alignup.text.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.machine.numa_node import PciDevice
    from alignup.node.pictures.boxes import Key

__all__ = [
    "CELL_FONT",
    "TEXT_HEIGHT",
    "NearDevices",
    "bar_box",
    "device_boxes",
    "devices_by_place",
    "text_box",
]

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


def devices_by_place(
    machine: Machine, devices: Mapping[str, Sequence[Device]]
) -> dict[tuple[int, ...], NearDevices]:
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
        yield framed(
            "group", stacked([text_box(resource, width), _chips(near, resource, chips, width)], 1), padding=0
        )


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
