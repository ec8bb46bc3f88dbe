"""What tests of pictures have in common.

Machines of many shapes, a node that is in use, and what a picture says.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import fromstring

from alignup import Machine, Node
from alignup.machine.device_inventory import Device
from alignup.machine.load import catalog_entries
from alignup.machine.machine import Core, HugePages, NumaNode, PciDevice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from alignup.pictures.boxes import Box

GIB = 1 << 30
HOSTILE = '<script>alert("&amp;")</script>\x00\x1b[31m\ud800漢字' + "x" * 300


def machine(
    numa_nodes: int,
    cpus: int,
    *,
    smt: int = 1,
    sockets: int = 1,
    l3: int = 0,
    first_id: int = 0,
    gap: int = 1,
) -> Machine:
    """Return a machine of so many NUMA nodes with equal numbers of CPUs.

    Args:
        numa_nodes: how many.
        cpus: of all together.
        smt: CPUs of a core.
        sockets: how many.
        l3: cores that share a cache; 0: caches are not known.
        first_id: the kernel's number of the first NUMA node.
        gap: between these numbers.
    """
    each, total = cpus // smt // numa_nodes, cpus // smt
    nodes = []
    for position in range(numa_nodes):
        cores = tuple(
            Core(
                tuple(number + total * sibling for sibling in range(smt)),
                position * sockets // numa_nodes,
                number // l3 if l3 else None,
            )
            for number in range(position * each, (position + 1) * each)
        )
        distances = tuple(
            10 if neighbour == position else 20 + neighbour for neighbour in range(numa_nodes)
        )
        nodes.append(NumaNode(first_id + position * gap, 16 * GIB, cores, (), distances))

    return Machine(tuple(nodes))


def odd_machine() -> Machine:
    """Return a machine with memory-only, CPU-less and empty nodes.

    It has gaps in ids, PCI devices, and CPUs left over, too.
    """
    pages = (HugePages.parse("2Mi", 512), HugePages.parse("1Gi", 2))
    nodes = (
        NumaNode(0, 8 * GIB, (Core((0, 4), 0), Core((1, 5), 0)), pages),
        NumaNode(8, 8 * GIB, (Core((2,), 0), Core((3,), 1)), ()),
        NumaNode(252, 4 * GIB, ()),
        NumaNode(253, 0, ()),
        NumaNode(255, 0, ()),
    )
    pci = (
        PciDevice("0000:17:00.0", "0302", "10de", "2330", 252),
        PciDevice("10000:01:00.0", "0200", "15b3", "0000", None),
    )
    return Machine(nodes, (9, 10), pci, (Core((6,), 0), Core((7,), 1)))


ODD_DEVICES = {
    "example.com/gpu": (
        Device("gpu0", (0,)),
        Device("gpu1", (0, 8)),
        Device("gpu2", None, healthy=False),
    ),
    "example.com/vf": tuple(Device(f"vf{number}", (8,)) for number in range(100)),
}

MACHINES = {
    "4 CPUs": machine(2, 4),
    "one node": machine(1, 4, smt=2),
    "8 nodes": machine(8, 128, smt=2, sockets=2, l3=4),
    "34 nodes": machine(34, 272, smt=2, sockets=2, first_id=3, gap=7),
    "256 CPUs": machine(2, 256, smt=2, sockets=2, l3=16),
    "64 sockets": machine(64, 64, sockets=64),
    "4096 CPUs": machine(8, 4096, smt=2, sockets=8, l3=64),
    "odd": odd_machine(),
    **{name: entry.machine for name, entry in catalog_entries().items()},
}
"""Machines by what is special about them."""


def pod(name: str, cpus: int, gib: int = 1, **devices: int) -> dict[str, Any]:
    """Return a manifest of one container.

    It asks for whole CPUs, memory and devices of `example.com`.
    """
    limits = {
        "cpu": str(cpus),
        "memory": f"{gib}Gi",
        **{f"example.com/{kind}": str(n) for kind, n in devices.items()},
    }
    containers = [{"name": "c0", "resources": {"limits": limits}}]
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}}


def used_node(pods: int = 3) -> Node:
    """Return a node of 2 NUMA nodes with 8 CPUs, devices, reserved CPUs and memory, and pods."""
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    devices = {
        "example.com/gpu": (Device("gpu0", (0,)), Device("gpu1", (1,))),
        "example.com/vf": tuple(Device(f"vf{number}", (1,)) for number in range(40)),
    }
    node = Node(machine(2, 8, sockets=2), kubelet, devices)
    for number in range(pods):
        requested_devices = ({"gpu": 1}, {"vf": 7}, {})[number % 3]
        node.admit(pod(f"pod-{number}", 1, 2, **requested_devices))

    return node


def parsed(text: str | bytes) -> Element:
    """Return the root of XML that we wrote ourselves."""
    return fromstring(text)  # noqa: S314  # our own


def texts_of(root: Element | str) -> list[str]:
    """Return the text of all elements of a picture, tooltips included, but for styles."""
    element = parsed(root) if isinstance(root, str) else root
    return [
        child.text for child in element.iter() if child.text and not child.tag.endswith("style")
    ]


def titles_of(root: Element | str) -> Iterator[str]:
    """Yield the tooltips of a picture."""
    element = parsed(root) if isinstance(root, str) else root
    return (child.text or "" for child in element.iter() if child.tag.endswith("title"))


def overlap(box: Box, rival: Box) -> bool:
    """Return whether two boxes have a pixel in common."""
    return (
        box.x < rival.x + rival.width
        and rival.x < box.x + box.width
        and box.y < rival.y + rival.height
        and rival.y < box.y + box.height
    )


class PageReader(HTMLParser):
    """Remembers the tags, addresses and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.addresses += [
            value for name, value in attrs if name in {"src", "href"} or "://" in (value or "")
        ]

    def handle_data(self, data) -> None:
        self.text += data


def read_page(text: str) -> PageReader:
    """Return what a browser finds in a page."""
    reader = PageReader()
    reader.feed(text)
    return reader
