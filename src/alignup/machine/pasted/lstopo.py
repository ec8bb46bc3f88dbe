"""Reads the tree that lstopo (hwloc 1 and 2) prints on a console, as far as it has the kernel's numbers.

The tree becomes the objects of hwloc's XML, which `alignup.machine.hwloc_xml` makes a machine of. Sizes in it are
rounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement

from alignup.errors import InputError
from alignup.machine.bits import union
from alignup.machine.cpuset import CPU_LIMIT
from alignup.machine.hwloc_xml import machine_of_topology
from alignup.machine.pasted.facts import Facts
from alignup.machine.pasted.lscpu import is_cut_off

_MACHINE: Final = re.compile(r"\s*Machine(?: [LP]#\d+)?(?: \(.*|\s*)")
_OBJECT: Final = re.compile(r"(?P<kind>[A-Z]\w*)(?: L#(?P<logical>\d{1,6}))?(?: \(?P#(?P<number>\d{1,6}))?(?P<rest>.*)")
_SIZE: Final = re.compile(r"(?:local=)?(\d{1,12})([KMGT]B)\b")
_LOCAL: Final = re.compile(r"local=(\d{1,12})([KMGT]B)\b")
_PCI: Final = re.compile(r"PCI (?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b.*")
_SHIFTS: Final = {"KB": 10, "MB": 20, "GB": 30, "TB": 40}
_KINDS: Final = {"L3": "L3Cache", "L3Cache": "L3Cache", "Socket": "Package"}
_MOST_NESTED: Final = 100


def read_lstopo(lines: Sequence[str]) -> Facts | None:
    """Return what the tree tells: all but distances.

    Raises:
        InputError: it is cut off, has hwloc's logical numbers only, or there are two trees.
    """
    starts = [index for index, line in enumerate(lines) if _MACHINE.fullmatch(line)]
    if not starts:
        return None
    if len(starts) > 1:
        raise InputError("there are several trees of lstopo: leave that of one machine")
    tree = _tree(lines[starts[0] :])
    root = Element("topology")
    root.append(tree)
    _number_sets(tree, 0)
    machine = machine_of_topology(root, "the tree of lstopo")
    nodes = {node.id: cpus for node, cpus in zip(machine.numa_nodes, machine.node_cpus, strict=True)}
    cores = [core for node in machine.numa_nodes for core in node.cores]
    caches = {core.l3: union(one.bits for one in cores if one.l3 == core.l3) for core in cores if core.l3 is not None}
    return Facts(
        nodes=nodes,
        cores=tuple(core.bits for core in cores),
        sockets=dict(zip(machine.sockets, machine.socket_cpus, strict=True)),
        l3_groups=tuple(caches.values()),
        memory={node.id: node.memory for node in machine.numa_nodes},
        pci_devices=machine.pci_devices,
    )


def _tree(lines: Sequence[str]) -> Element:
    """Return the objects, each within the one that is less indented; a plus sign joins objects within each other."""
    margin = len(lines[0]) - len(lines[0].lstrip())
    top = Element("object", type="Machine")
    above = [(-1, top)]
    for line in lines:
        indent = len(line) - len(line.lstrip()) - margin
        if is_cut_off(line):
            raise InputError("the tree of lstopo is cut off: give all of it")
        if indent < 0 or not line.strip() or (indent == 0 and above[-1][1] is not top):
            break
        while above[-1][0] >= indent:
            above.pop()
        if len(above) > _MOST_NESTED:
            raise InputError(f"the tree of lstopo has more than {_MOST_NESTED} levels")
        parent = above[-1][1]
        for part in line.strip().split(" + "):
            parent = _object(parent, part)
        above.append((indent, parent))
    return top


def _object(parent: Element, text: str) -> Element:
    """Add an object to the one that it is within, and return it."""
    device = _PCI.match(text)
    if device:
        address = device["address"]
        return SubElement(
            parent, "object", type="PCIDev", pci_busid=address if address.count(":") > 1 else f"0000:{address}"
        )
    matched = _OBJECT.match(text)
    if matched is None:
        return SubElement(parent, "object", type="Misc")
    kind = _KINDS.get(matched["kind"], matched["kind"])
    made = SubElement(parent, "object", type=kind)
    number = matched["number"] or (None if kind in {"PU", "NUMANode"} else matched["logical"])
    if number is not None:
        made.set("os_index", number)
    elif kind == "PU" or (kind == "NUMANode" and matched["logical"] is not None):
        raise InputError("the tree of lstopo has logical numbers only: run it without -l and --logical")
    size = _LOCAL.search(text) or _SIZE.search(text)
    if kind == "NUMANode" and size:
        made.set("local_memory", str(int(size[1]) << _SHIFTS[size[2]]))
    return made


def _number_sets(element: Element, near: int) -> int:
    """Give each object its set of CPUs and return it; a NUMA node that has none within it is near those around it."""
    if element.get("type") == "PU":
        cpu = int(element.get("os_index", "0"))
        if cpu >= CPU_LIMIT:
            raise InputError.at("the tree of lstopo", f"CPU numbers below {CPU_LIMIT}", cpu)
        cpus = 1 << cpu
    else:
        numbers = (int(one.get("os_index", "0")) for one in element.iter("object") if one.get("type") == "PU")
        cpus = union(1 << number for number in numbers if number < CPU_LIMIT)
        for child in element:
            _number_sets(child, cpus or near)
    if element.get("type") == "NUMANode":
        cpus = cpus or near
    if cpus:
        element.set("cpuset", _as_hwloc_writes(cpus))
    return cpus


def _as_hwloc_writes(cpus: int) -> str:
    """Return a set of CPUs as words of 32 bits, the last the lowest."""
    words = range((cpus.bit_length() + 31) // 32)
    return ",".join(f"0x{cpus >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(words))
