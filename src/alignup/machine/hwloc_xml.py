"""Reads a machine from hwloc's XML, as `lstopo --of xml` writes it.

Both formats are read: 2, and 1 of old releases. Objects are read by the sets of CPUs they carry, so
that both formats are one: in the first, NUMA nodes are parents of cores; in the second, they hang
beside them. hwloc has no list of offline CPUs, only what is complete and not usable, and gives
nodes without CPUs the CPUs they are near, so this is the next best thing to a snapshot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final
from xml.etree.ElementTree import Element, ParseError, XMLParser, fromstring

from alignup.errors import InputError
from alignup.machine.bits import bit_numbers, union
from alignup.machine.cpuset import CPU_COUNT_LIMIT, CPU_LIMIT
from alignup.machine.machine import (
    Core,
    HugePages,
    Machine,
    NumaNode,
    PciDevice,
    cores_within,
    make_cores,
    number_groups,
)
from alignup.records import Record, field
from alignup.text.digits import number_of

_MIN_HUGEPAGE: Final = 64 << 10
_SET: Final = re.compile(r"0x([0-9a-fA-F]{1,8})|")
_PCI_TYPE: Final = re.compile(r"([0-9a-fA-F]{4}) \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]")
_BUSES: Final = re.compile(r"[0-9a-fA-F]{4,8}:\[([0-9a-fA-F]{2})-([0-9a-fA-F]{2})\]")
_L3: Final = "3"
_MAX_DEPTH: Final = 200
_WORD_DIGITS: Final = 8
_MOST_WORDS: Final = CPU_LIMIT // 32
# As many digits are read of any number; hwloc writes bytes, and -1 in 32 bits for no index.
_LARGEST_NUMBER: Final = 10**18 - 1
_LARGEST_INDEX: Final = (1 << 31) - 1
# What is read of hwloc's subtypes of memory.
_KINDS: Final = {
    "DRAM": "dram",
    "HBM": "hbm",
    "MCDRAM": "hbm",
    "GPUMemory": "gpu",
    "NVM": "far",
    "CXL-DRAM": "far",
}
_FARTHEST: Final = 1 << 31


class _Objects(Record, frozen=False):
    """Objects of each kind, in the order of the document. Sets of CPUs are ints as bit sets.

    Attributes:
        nodes: (id, CPUs it has or is near, the object).
        pci: (the object, CPUs it is near).
    """

    packages: list[tuple[int | None, int]] = field(default_factory=list)
    cores: list[int] = field(default_factory=list)
    l3_groups: list[int] = field(default_factory=list)
    nodes: list[tuple[int, int, Element]] = field(default_factory=list)
    pci: list[tuple[Element, int]] = field(default_factory=list)
    cpus: int = 0


def machine_from_hwloc_xml(data: bytes, where: str = "hwloc's XML") -> Machine:
    """Return the machine that a document of hwloc describes.

    Args:
        data: the document.
        where: the name of the document in errors.

    Raises:
        InputError: it is not well formed, declares entities, is not from hwloc, or describes no
            machine.
    """
    # entities can multiply, in any encoding
    if b"<!ENTITY" in data.replace(b"\0", b""):
        raise InputError(f"entities of a document's own are not read at {where}")

    # as hwloc writes, whatever the document says: Python's decoders fail in many ways
    try:
        root = fromstring(data, XMLParser(encoding="UTF-8"))  # noqa: S314  # see above
    except ParseError as error:
        raise InputError(f"XML is not well formed: {error} at {where}") from error

    return machine_of_topology(root, where)


def machine_of_topology(root: Element, where: str) -> Machine:
    """Return the machine that the objects of a topology describe.

    Raises:
        InputError: they describe none.
    """
    top = root.find("object")
    if root.tag not in {"topology", "root"} or top is None:
        raise InputError.at(where, "a topology with objects in it", root.tag)

    objects = _Objects()
    _collect(top, 0, objects, where)
    all_cpus = objects.cpus
    if not all_cpus:
        raise InputError(f"no objects of type PU at {where}")
    if all_cpus.bit_count() > CPU_COUNT_LIMIT:
        raise InputError(
            f"{all_cpus.bit_count()} CPUs are more than the {CPU_COUNT_LIMIT} supported at {where}"
        )

    objects.cpus &= _allowed(top, "cpuset")
    groups = [core & objects.cpus for core in objects.cores]
    coreless = (1 << cpu for cpu in bit_numbers(objects.cpus & ~union(groups)))
    cores = make_cores([*groups, *coreless], number_groups(objects.packages), objects.l3_groups)

    if not objects.nodes:
        objects.nodes.append((0, objects.cpus, top))
    ids_in_document = [numa_id for numa_id, _, _ in objects.nodes]
    objects.nodes.sort(key=lambda node: node[0])
    ids = [numa_id for numa_id, _, _ in objects.nodes]
    owned = _owned_cpus(objects)
    rows = _distances(root, ids_in_document) or [()] * len(ids)
    usable_nodes = _allowed(top, "nodeset")
    numa_nodes = []
    for (numa_id, _, element), cpus, row in zip(objects.nodes, owned, rows, strict=True):
        is_usable = bool(usable_nodes >> numa_id & 1)
        node_cores = cores_within(cores, cpus)
        numa_nodes.append(_numa_node(numa_id, element, node_cores, row, has_memory=is_usable))

    complete_cpus = _set(top.get("complete_cpuset"))
    return Machine(
        tuple(numa_nodes),
        offline_cpus=tuple(bit_numbers(complete_cpus & ~all_cpus)),
        pci_devices=_pci_devices(objects, ids, owned),
        unassigned_cores=cores_within(cores, objects.cpus & ~union(owned)),
    )


def _allowed(top: Element, kind: str) -> int:
    """Return the CPUs or nodes that the process that wrote the document might use.

    All if it does not say.
    """
    return _set(top.get(f"allowed_{kind}")) or -1


def _collect(
    element: Element, near_cpus: int, objects: _Objects, where: str, depth: int = 1
) -> None:
    """Sort an object and those in it by kind.

    `near_cpus` is the CPUs of the closest parent that has any.
    """
    if depth > _MAX_DEPTH:
        raise InputError(f"objects are nested more than {_MAX_DEPTH} levels deep at {where}")

    kind = element.get("type", "")
    cpus = _set(element.get("cpuset"))
    if kind == "PU":
        objects.cpus |= cpus
    elif kind == "Core":
        objects.cores.append(cpus)
    elif kind in {"Package", "Socket"}:
        objects.packages.append((_number(element.get("os_index")), cpus))
    elif kind in {"L3Cache", "Cache"} and element.get("depth", _L3) == _L3:
        objects.l3_groups.append(cpus)
    elif kind in {"NUMANode", "Node"}:
        objects.nodes.append((_number(element.get("os_index")) or 0, cpus, element))
    elif element.get("pci_busid"):
        objects.pci.append((element, near_cpus))

    for child in element.iterfind("object"):
        _collect(child, cpus or near_cpus, objects, where, depth + 1)


def _set(text: str | None) -> int:
    """Return the bit set that hwloc writes as `0x1,,0xff`: words of 32 bits, the lowest last."""
    if not text:
        return 0

    groups = text.split(",", _MOST_WORDS)
    if len(groups) > _MOST_WORDS:
        raise InputError.at("an object of hwloc's XML", f"a set of CPUs below {CPU_LIMIT}", text)

    digits = ""
    for matched in map(_SET.fullmatch, groups):
        word = (matched and matched[1]) or "0"
        digits += word.zfill(_WORD_DIGITS)

    return int(digits, 16)


def _number(text: str | None) -> int | None:
    """Return the number in an attribute; hwloc's `unknown index` is -1 in 32 bits."""
    return number_of(text or "", _LARGEST_INDEX)


def _owned_cpus(objects: _Objects) -> list[int]:
    """Return the CPUs of each node, in the order of `objects.nodes`.

    Of nodes that are near the same CPUs, the one they belong to comes first in the document, or has
    fewer of them: the others are memory without CPUs.
    """
    unowned = objects.cpus
    owned = [0] * len(objects.nodes)
    near_cpus = [cpus for _, cpus, _ in objects.nodes]
    fewest_first = sorted(range(len(owned)), key=lambda index: near_cpus[index].bit_count())
    for index in fewest_first:
        cpus = near_cpus[index] & objects.cpus
        # a node that lost some of its CPUs to a smaller one was only ever near them
        if cpus & unowned == cpus:
            owned[index] = cpus
            unowned &= ~cpus

    return owned


def _numa_node(
    numa_id: int,
    element: Element,
    cores: tuple[Core, ...],
    row: tuple[int, ...],
    *,
    has_memory: bool,
) -> NumaNode:
    """Return the record of a node, with the memory and the hugepages of its object.

    It has none of either where the process that wrote the document might not use them.
    """
    memory = _attribute(element, "local_memory") if has_memory else 0
    pages = sorted(
        (_attribute(page, "size"), _attribute(page, "count"))
        for page in element.iterfind("page_type")
    )
    hugepages: tuple[HugePages, ...] = ()
    if has_memory:
        # the smallest size is that of ordinary pages, even on machines where that is 64 KiB
        hugepages = tuple(
            HugePages.of_bytes(size, count) for size, count in pages[1:] if size >= _MIN_HUGEPAGE
        )

    kind = _KINDS.get(element.get("subtype", ""), "")
    return NumaNode(numa_id, memory, cores, hugepages, row, kind)


def _attribute(element: Element, name: str) -> int:
    """Return an attribute that is a number; 0 if it is missing."""
    text = element.get(name, "0")
    number = number_of(text, _LARGEST_NUMBER)
    if number is None:
        raise InputError.at(
            f"the attribute {name} of an object of type {element.get('type')}", "a number", text
        )
    return number


def _distances(root: Element, ids_in_document: list[int]) -> list[tuple[int, ...]]:
    """Return the rows of distances by ascending id; none if the document has none.

    Format 2 has the ids of rows and columns; in format 1 they are in the order of objects,
    `ids_in_document`.
    """
    count = len(ids_in_document)
    for element in root.iter("distances2"):
        if element.get("type") == "NUMANode" and element.get("nbobjs") == str(count):
            indexes = _numbers(element.iterfind("indexes"))
            values = _numbers(element.iterfind("u64values"))
            if sorted(indexes) == sorted(ids_in_document) and len(values) == count * count:
                return _by_id(values, indexes)

    for element in root.iter("distances"):
        base = _measure(element.get("latency_base", "0"))
        latencies = [_measure(cell.get("value", "0")) for cell in element.iterfind("latency")]
        if element.get("nbobjs") == str(count) and len(latencies) == count * count:
            return _by_id([round(base * latency) for latency in latencies], ids_in_document)

    return []


def _measure(text: str) -> float:
    """Return a latency or speed: a number that is neither negative nor beyond all measure."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan

    if not 0 <= number < _FARTHEST:
        raise InputError.at("a latency or speed of hwloc's XML", "a number", text)
    return number


def _by_id(values: list[int], ids: list[int]) -> list[tuple[int, ...]]:
    """Return a matrix, whose rows and columns are in the order of `ids`, by ascending id."""
    count = len(ids)
    order = sorted(range(count), key=ids.__getitem__)
    return [tuple(values[row * count + column] for column in order) for row in order]


def _numbers(elements: Iterable[Element]) -> list[int]:
    """Return the numbers in the texts of elements; hwloc breaks long lists into several."""
    texts = " ".join(element.text or "" for element in elements).split()
    numbers = [number_of(text, _LARGEST_NUMBER) for text in texts]
    return [number for number in numbers if number is not None]


def _pci_devices(objects: _Objects, ids: list[int], owned: list[int]) -> tuple[PciDevice, ...]:
    """Return the PCI devices by address. One that is near several nodes belongs to none."""
    devices = []
    for element, near in objects.pci:
        class_ = vendor = device = "0000"
        numbers = _PCI_TYPE.match(element.get("pci_type", ""))
        if numbers:
            class_, vendor, device = (number.lower() for number in numbers.groups())

        numa_node = None
        near_nodes = [numa_id for numa_id, cpus in zip(ids, owned, strict=True) if cpus & near]
        if len(near_nodes) == 1 and len(ids) > 1:
            numa_node = near_nodes[0]

        buses = None
        bus_range = _BUSES.fullmatch(element.get("bridge_pci", ""))
        if bus_range:
            buses = (int(bus_range[1], 16), int(bus_range[2], 16))

        address = element.get("pci_busid", "")
        link = round(_measure(element.get("pci_link_speed", "0")), 2) or None
        devices.append(PciDevice(address, class_, vendor, device, numa_node, buses, link))

    return tuple(sorted(devices, key=lambda device: device.address))
