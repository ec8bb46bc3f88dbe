"""Finds in a text what reports paste of a machine, in any order, and makes one machine of it.

`_READERS` says which programs' outputs are known. Of lscpu (util-linux) they are its list of
properties, its table (-e) and its parsable form (-p); its JSON is turned into these first. The tree
that lstopo (hwloc 1 to 3) prints becomes the objects of hwloc's XML, which
`alignup.machine.hwloc_xml` makes a machine of, as far as it has the kernel's numbers; sizes in it
are rounded. Devices are read by `alignup.machine.pasted.devices`. Whatever else a text has is
ignored. What it leaves open is told in a warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from json import JSONDecoder
from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, SubElement

from alignup.errors import InputError, errors_in
from alignup.machine.bits import union, unions
from alignup.machine.cpuset import CPU_COUNT_LIMIT, CPU_LIMIT, CPUSet
from alignup.machine.hwloc_xml import machine_of_topology
from alignup.machine.pasted.devices import (
    read_amd_smi,
    read_npu_topology,
    read_nvidia_topology,
    read_rocm_smi,
    refuse_unread,
)
from alignup.machine.pasted.facts import Facts, check_counts, machine_of_facts, only_one

if TYPE_CHECKING:
    from alignup.machine.device_inventory import LoadedMachine


_NODE_COUNT: Final = "NUMA node(s)"
_ONLINE: Final = "On-line CPU(s) list"
# A list whose last range has lost its end, or digits of it.
_CUT_RANGE: Final = re.compile(r"(?:\d+(?:-\d+)?,)*\d+-\d*")
_PROPERTY: Final = re.compile(
    r"\s*(Architecture|Thread\(s\) per core|Socket\(s\)|CPU\(s\)"
    r"|On-line CPU\(s\) list|Off-line CPU\(s\) list|NUMA node\(s\)"
    r"|NUMA node(?P<node>\d{1,5}) CPU\(s\)):[ \t]*+(?P<value>\S*)\s*"
)
_TABLE: Final = re.compile(r"\s*CPU(?:\s+(?:[A-Z][A-Za-z0-9]*(?::\w+)*))+\s*")
_TABLE_ROW: Final = re.compile(r"\s*\d{1,5}(?:\s+[\w:.,-]+)+\s*")
_PARSABLE: Final = re.compile(r"\s*# ?(CPU,[A-Za-z0-9,]+)\s*")
_PARSABLE_ROW: Final = re.compile(r"\s*\d{1,5}(?:,[\w-]*)+\s*")
_JSON: Final = re.compile(r'\{\s*"(?:lscpu|cpus)"\s*:')
# What lscpu 2.38 writes in JSON for a number that it does not know.
_BARE_HYPHEN: Final = re.compile(r":\s*-(?=\s*[,}])")
_CUT_OFF: Final = re.compile(
    r"\s*(?:\.\.\.|…|[\[<(](?:\.\.\.|…|snip|truncated|cut|output omitted).*)\s*", re.IGNORECASE
)
_ADJACENT: Final = ("ppc64", "s390")
_MOST_DIGITS: Final = 5
_NONE: Final = ("-", "")

_MACHINE: Final = re.compile(r"\s*Machine(?: [LP]#\d+)?(?: \(.*|\s*)")

_OBJECT: Final = re.compile(
    r"(?P<kind>[A-Z]\w*)(?:\([^()]*\))?(?: L#(?P<logical>\d{1,6}))?"
    r"(?: \(?P#(?P<number>\d{1,6}))?(?P<rest>.*)"
)

# The same powers of 1024 are KB, MB and so on up to hwloc 2, and KiB, MiB and so on in hwloc 3.
_AMOUNT: Final = re.compile(r"(?:local=)?(\d{1,12})([KMGTPE])i?B\b")
_LOCAL: Final = re.compile(r"local=(\d{1,12})([KMGTPE])i?B\b")
_OTHER_AMOUNT: Final = re.compile(r"\(?P#\d+ \d|local=")
_NOT_READ: Final = "not read"
_PCI: Final = re.compile(r"PCI (?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b.*")
_SHIFTS: Final = {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_KINDS: Final = {"L3": "L3Cache", "L3Cache": "L3Cache", "Socket": "Package"}
_MOST_NESTED: Final = 100
# More lines than the tree of any machine has; each of 8,192 CPUs has one, and its core and caches.
_MOST_LINES: Final = 65536
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_QUOTE: Final = re.compile(r"(?:> ?)+")
_SHOWN: Final = 40
_AVAILABLE: Final = re.compile(r"\s*available: (\d{1,5}) nodes?\b.*")
# The least distance that there is: a node's to itself.
_LEAST_DISTANCE: Final = 10
_CPUS: Final = re.compile(r"\s*node (\d{1,5}) cpus:(.*)")
_SIZE: Final = re.compile(r"\s*node (\d{1,5}) size:\s*(\d{1,12}) MB\s*")
_NUMBERS: Final = re.compile(r"[\d\s]+")
_COLUMNS: Final = re.compile(r"\s*node((?:\s+\d{1,5})+)\s*")
_ROW: Final = re.compile(r"\s*(\d{1,5}):((?:\s+\d{1,5})+)\s*")


def is_cut_off(line: str) -> bool:
    """Return whether a line says that something was left out there."""
    return _CUT_OFF.fullmatch(line) is not None


def rows_after(lines: Sequence[str], start: int, row: re.Pattern[str], label: str) -> list[str]:
    """Return the lines of a table.

    Args:
        lines: those of the whole text.
        start: the index of the table's first line.
        row: the form of a line.
        label: the name of the table in errors.

    Raises:
        InputError: the table is cut off.
    """
    rows: list[str] = []
    # by number: a copy of the rest for each header would take time that grows with their product
    for number in range(start, len(lines)):
        line = lines[number]
        if is_cut_off(line):
            raise InputError(f"{label} is cut off after {len(rows)} lines: give all of it")
        if not row.fullmatch(line):
            break

        rows.append(line)

    return rows


def read_properties(lines: Sequence[str]) -> Facts | None:
    """Return what the list of properties tells: NUMA nodes, and how many threads a core has."""
    values_by_name: dict[str, list[str]] = {}
    for line in lines:
        matched = _PROPERTY.fullmatch(line)
        if matched:
            values_by_name.setdefault(matched[1], []).append(matched["value"])

    properties = {name: only_one(values, name) or "" for name, values in values_by_name.items()}
    last_line = _PROPERTY.fullmatch(next(filter(str.strip, reversed(lines)), ""))
    last_name = last_line[1] if last_line else ""
    lists = {
        int(name.split()[1].removeprefix("node")): name
        for name in properties
        if name.startswith("NUMA") and name != _NODE_COUNT
    }
    count = _number(properties.get("CPU(s)", "")) or 0
    check_counts(nodes=len(lists), cpus=count)
    nodes = {
        numa_id: _cpus(properties[name], name, is_last=name == last_name)
        for numa_id, name in lists.items()
    }
    node_count = _number(properties.get(_NODE_COUNT, "")) or 0
    if len(nodes) < node_count and (nodes or node_count > 1):
        raise InputError(
            f"the output of lscpu is cut off: of {node_count} NUMA nodes it has the CPUs of "
            f"{len(nodes)}; give all of it"
        )

    if last_name in lists.values():
        _refuse_cut_list(nodes, properties, last_name)

    online = _cpus(properties.get(_ONLINE, ""), _ONLINE)
    if not nodes and "Thread(s) per core" in properties:
        nodes = {0: online or (1 << count) - 1}

    if not nodes:
        return None

    has_adjacent_threads = None
    if "Architecture" in properties:
        has_adjacent_threads = properties["Architecture"].startswith(_ADJACENT)

    return Facts(
        nodes=nodes,
        offline=_cpus(properties.get("Off-line CPU(s) list", ""), "Off-line CPU(s) list"),
        threads=_number(properties.get("Thread(s) per core", "")),
        socket_count=_number(properties.get("Socket(s)", "")),
        has_adjacent_threads=has_adjacent_threads,
    )


def _refuse_cut_list(nodes: Mapping[int, int], properties: Mapping[str, str], name: str) -> None:
    """Refuse the list of CPUs at the end of a text, where the text tells that it lacks some.

    Raises:
        InputError: it is cut off.
    """
    cpus = _cpus(properties[name], name)
    node_cpus = list(nodes.values())
    all_cpus = union(node_cpus)
    overlaps = sum(map(int.bit_count, node_cpus)) > all_cpus.bit_count()

    online = _cpus(properties.get(_ONLINE, ""), _ONLINE)
    if not online and not properties.get("Off-line CPU(s) list"):
        online = (1 << (_number(properties.get("CPU(s)", "")) or 0)) - 1

    # CPUs of no NUMA node may have any number
    missing = online & ~all_cpus
    lacks_its_end = missing and (missing & -missing) > cpus
    if overlaps or lacks_its_end:
        raise InputError(f"{name} is cut off: give all of it")


def _is_short_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _number(text: str) -> int | None:
    """Return a number above zero; None: it is none."""
    if not _is_short_number(text):
        return None
    return int(text) or None


def _cpus(text: str, where: str, *, is_last: bool = False) -> int:
    """Return the CPUs of a list; the text ends with one that `is_last`, perhaps within it."""
    if text.rstrip(",") != text or "..." in text or "…" in text:
        raise InputError(f"{where} is cut off: give all of it")
    if text in _NONE:
        return 0

    try:
        return int(CPUSet.parse(text, where))
    except InputError:
        if is_last and _CUT_RANGE.fullmatch(text):
            raise InputError(f"{where} is cut off: give all of it") from None
        raise


def read_table(lines: Sequence[str]) -> Facts | None:
    """Return what the table of `lscpu -e` tells: all but memory and distances."""
    return _of_tables(lines, _TABLE, _TABLE_ROW, "the table of lscpu -e", None)


def read_parsable(lines: Sequence[str]) -> Facts | None:
    """Return what `lscpu -p` tells: all but memory and distances."""
    return _of_tables(lines, _PARSABLE, _PARSABLE_ROW, "the table of lscpu -p", ",")


def _of_tables(
    lines: Sequence[str],
    header: re.Pattern[str],
    row: re.Pattern[str],
    label: str,
    separator: str | None,
) -> Facts | None:
    """Return what the one table of a text tells, however often it is there."""
    tables = []
    last_index = _last_index(lines)
    for index, line in enumerate(lines):
        if header.fullmatch(line):
            table_lines = [line.strip().lstrip("# "), *rows_after(lines, index + 1, row, label)]
            names, *rows = (tuple(text.strip().upper().split(separator)) for text in table_lines)
            if rows and {"CORE", "SOCKET", "NODE"} & set(names):
                is_last = index + len(rows) >= last_index
                if is_last and len(rows[-1]) < min(map(len, (names, *rows[:-1]))):
                    raise InputError(f"{label} is cut off in its last line: give all of it")

                tables.append((names, tuple(rows)))

    table = only_one(tables, label)
    if table is None:
        return None

    names, cells_of_rows = table
    return _of_rows([dict(zip(names, cells, strict=False)) for cells in cells_of_rows], label)


def _last_index(lines: Sequence[str]) -> int:
    """Return the index of the last line that is not blank; minus 1: there is none."""
    return next((index for index in reversed(range(len(lines))) if lines[index].strip()), -1)


def _of_rows(rows: Sequence[Mapping[str, str]], label: str) -> Facts:
    """Return what rows with a CPU each tell."""
    check_counts(cpus=len(rows))
    online: dict[int, Mapping[str, str]] = {}
    offline = 0
    for row in rows:
        bit = _cpus(row["CPU"], label)
        if row.get("ONLINE", "yes").lower() in {"no", "n", "false"}:
            offline |= bit
        else:
            online[bit] = row

    nodes = _numbered(online, "NODE")
    sockets = _numbered(online, "SOCKET")

    # lscpu numbers the cores of each type of CPU from 0, and -y those of each socket: the L1 cache
    # tells them apart
    cores = None
    if any(row.get("CORE", "-") not in _NONE for row in online.values()):
        columns = ("NODE", "SOCKET", "CORE")
        keys = {bit: (*map(row.get, columns), _cache(row, "L1D")) for bit, row in online.items()}
        cores = tuple(unions((key, bit) for bit, key in keys.items()).values())

    l3_groups = None
    if any("L3" in name.split(":") for row in online.values() for name in row):
        caches = [(_cache(row, "L3"), bit) for bit, row in online.items()]
        in_caches = ((number, bit) for number, bit in caches if number not in _NONE)
        l3_groups = tuple(unions(in_caches).values())

    return Facts(nodes, cores, sockets, l3_groups, offline)


def _numbered(rows: Mapping[int, Mapping[str, str]], name: str) -> dict[int, int] | None:
    """Return the CPUs by the number in a column; None: it has none."""
    cells = [(row.get(name, "-"), bit) for bit, row in rows.items()]
    grouped = unions((cell, bit) for cell, bit in cells if cell not in _NONE)
    if not grouped:
        return None
    if not all(map(_is_short_number, grouped)):
        raise InputError.at(f"the column {name} of lscpu", "numbers", next(iter(grouped)))

    return {int(number): cpus for number, cpus in grouped.items()}


def _cache(row: Mapping[str, str], level: str) -> str:
    """Return the number of a cache; empty: there is none.

    `-p` has it in a column, and `-e` in a part of one.
    """
    for name, value in row.items():
        levels = name.split(":")
        if level in levels:
            numbers = value.split(":")
            place = levels.index(level)
            return numbers[place] if place < len(numbers) else ""

    return ""


def without_json(text: str) -> str:
    """Return a text with what `lscpu -J` prints turned into what lscpu prints without."""
    matched = _JSON.search(text)
    if matched is None:
        return text

    start = matched.start()
    text = text[:start] + _BARE_HYPHEN.sub(": null", text[start:])
    try:
        value, end = JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the JSON of lscpu is cut off or damaged: {str(error)[:80]}") from None

    lines = [*_properties(value.get("lscpu")), *_table(value.get("cpus"))]
    return "\n".join((text[:start], *lines, without_json(text[end:])))


def _properties(fields: Any) -> Iterator[str]:
    """Yield the lines of a list of properties."""
    for entry in _mappings(fields):
        yield f"{str(entry.get('field')).rstrip(':')}: {entry.get('data') or '-'}"
        yield from _properties(entry.get("children"))


def _table(rows: Any) -> Iterator[str]:
    """Yield the lines of a table: the names of its columns, and its rows."""
    entries = _mappings(rows)
    if entries:
        yield " ".join(entries[0]).upper()
        for row in entries:
            yield " ".join(_cell(value) for value in row.values())


def _mappings(entries: Any) -> list[dict[str, Any]]:
    """Return the mappings in a list; none if it is no list."""
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return str(value)


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
    kinds = Counter(element.get("type") for element in tree.iter("object"))
    check_counts(nodes=kinds["NUMANode"], cpus=kinds["PU"])
    root = Element("topology")
    root.append(tree)
    _number_sets(tree)
    machine = machine_of_topology(root, "the tree of lstopo")
    cores = [core for node in machine.numa_nodes for core in node.cores]
    caches = unions((core.l3, core.bits) for core in cores if core.l3 is not None)

    # one amount that is not read leaves the machine's unknown: 0 would be a node without memory
    is_read = all(element.get(_NOT_READ) is None for element in tree.iter())
    memory = {node.id: node.memory for node in machine.numa_nodes}
    return Facts(
        nodes=dict(zip(machine.numa_node_ids, machine.node_cpus, strict=True)),
        cores=tuple(core.bits for core in cores),
        sockets=dict(zip(machine.sockets, machine.socket_cpus, strict=True)),
        l3_groups=tuple(caches.values()),
        memory=memory if is_read and machine.knows_memory else None,
        pci_devices=machine.pci_devices,
    )


def _tree(lines: Sequence[str]) -> Element:
    """Return the objects, each within the one that is less indented.

    A plus sign joins objects that are within each other.
    """
    margin = len(lines[0]) - len(lines[0].lstrip())
    top = Element("object", type="Machine")
    above = [(-1, top)]
    for line_count, line in enumerate(lines):
        indent = len(line) - len(line.lstrip()) - margin
        if line_count > _MOST_LINES:
            raise InputError(f"the tree of lstopo has more than {_MOST_LINES} lines")
        if is_cut_off(line):
            raise InputError("the tree of lstopo is cut off: give all of it")
        if indent < 0 or not line.strip() or (indent == 0 and above[-1][1] is not top):
            break

        while above[-1][0] >= indent:
            above.pop()
        if len(above) > _MOST_NESTED:
            raise InputError(f"the tree of lstopo has more than {_MOST_NESTED} levels")

        _, parent = above[-1]
        for part in line.strip().split(" + "):
            parent = _object(parent, part)
        above.append((indent, parent))

    return top


def _object(parent: Element, text: str) -> Element:
    """Add an object to the one that it is within, and return it."""
    device = _PCI.match(text)
    if device:
        address = device["address"]
        if address.count(":") == 1:
            address = f"0000:{address}"
        return SubElement(parent, "object", type="PCIDev", pci_busid=address)

    matched = _OBJECT.match(text)
    if matched is None:
        return SubElement(parent, "object", type="Misc")

    kind = _KINDS.get(matched["kind"], matched["kind"])
    element = SubElement(parent, "object", type=kind)
    number = matched["number"]
    logical = matched["logical"]
    if number is None and kind not in {"PU", "NUMANode"}:
        number = logical

    if number is not None:
        element.set("os_index", number)
    elif kind == "PU" or (kind == "NUMANode" and logical is not None):
        raise InputError(
            "the tree of lstopo has logical numbers only: run it without -l and --logical"
        )

    size = _LOCAL.search(text) or _AMOUNT.search(text)
    if kind == "NUMANode" and size:
        element.set("local_memory", str(int(size[1]) << _SHIFTS[size[2]]))
    elif kind == "NUMANode" and _OTHER_AMOUNT.search(text):
        element.set(_NOT_READ, text)

    return element


def _number_sets(tree: Element) -> None:
    """Give each object its set of CPUs.

    A NUMA node that has none within it is near those around it.
    """
    within: dict[Element, int] = {}
    _cpus_within(tree, within)
    texts: dict[int, str] = {}  # once for all objects that have the same
    around = [(tree, 0)]
    while around:
        element, near_cpus = around.pop()
        cpus = within[element]
        around += [(child, cpus or near_cpus) for child in element]
        if element.get("type") == "NUMANode":
            cpus = cpus or near_cpus

        if cpus:
            if cpus not in texts:
                texts[cpus] = _as_hwloc_writes(cpus)
            element.set("cpuset", texts[cpus])


def _cpus_within(element: Element, within: dict[Element, int]) -> int:
    """Return the CPUs of an object, and note those of all objects within it."""
    if element.get("type") == "PU":
        cpu = int(element.get("os_index", "0"))
        if cpu >= CPU_COUNT_LIMIT:
            expected = f"CPU numbers below {CPU_COUNT_LIMIT}"
            raise InputError.at("the tree of lstopo", expected, cpu)
        cpus = 1 << cpu
    else:
        cpus = 0

    for child in element:
        cpus_of_child = _cpus_within(child, within)
        if element.get("type") != "PU":
            cpus |= cpus_of_child

    within[element] = cpus
    return cpus


def _as_hwloc_writes(cpus: int) -> str:
    """Return a set of CPUs as words of 32 bits, the last the lowest."""
    digits = f"{cpus:x}"
    digits = digits.zfill((len(digits) + 7) // 8 * 8)
    return ",".join(f"0x{digits[place : place + 8]}" for place in range(0, len(digits), 8))


def read_numactl(lines: Sequence[str]) -> Facts | None:
    """Return what `numactl -H` tells: CPUs, memory and distances of NUMA nodes.

    Sizes are in MiB, rounded down.

    Raises:
        InputError: a list is cut off, or the text has those of two machines.
    """
    counts: list[int] = []
    cpus: dict[int, list[int]] = {}
    sizes: dict[int, list[int]] = {}
    for index, line in enumerate(lines):
        if matched := _CPUS.fullmatch(line):
            numa_id = int(matched[1])
            node_cpus = _wrapped_cpus(matched[2], lines, index + 1, numa_id)
            cpus.setdefault(numa_id, []).append(node_cpus)
            check_counts(nodes=len(cpus))
        elif matched := _SIZE.fullmatch(line):
            sizes.setdefault(int(matched[1]), []).append(int(matched[2]) << 20)
        elif matched := _AVAILABLE.fullmatch(line):
            counts.append(int(matched[1]))

    if not cpus:
        return None

    count = max(counts, default=0)
    if len(cpus) < count:
        raise InputError(
            f"the output of numactl is cut off: of {count} NUMA nodes it has the CPUs of "
            f"{len(cpus)}; give all of it"
        )

    without_size = sorted(cpus.keys() - sizes.keys())
    if sizes and without_size:
        raise InputError(
            f"the output of numactl is cut off: node {without_size[0]} size is missing; give all "
            "of it"
        )

    nodes = {numa_id: only_one(sets, f"node {numa_id} cpus") or 0 for numa_id, sets in cpus.items()}
    memory = {
        numa_id: only_one(amounts, f"node {numa_id} size") or 0
        for numa_id, amounts in sizes.items()
    }
    return Facts(nodes=nodes, memory=memory or None, distances=_distances(lines))


def _wrapped_cpus(text: str, lines: Sequence[str], start: int, numa_id: int) -> int:
    """Return the CPUs of a list, which terminals and mails can break into several lines.

    Args:
        text: the list, as far as it is on its first line.
        lines: those of the whole text.
        start: the index of the line behind that.
        numa_id: of the NUMA node, for errors.
    """
    parts = [text]
    for number in range(start, len(lines)):
        if not lines[number].strip() or not _NUMBERS.fullmatch(lines[number]):
            break
        parts.append(lines[number])

    text = " ".join(parts)

    if not _NUMBERS.fullmatch(text or " "):
        raise InputError(f"node {numa_id} cpus is cut off, or no list of numbers: give all of it")

    numbers = [
        int(word) if len(word) <= len(str(CPU_LIMIT)) else CPU_LIMIT for word in text.split()
    ]
    if any(number >= CPU_LIMIT for number in numbers):
        raise InputError.at(f"node {numa_id} cpus", f"CPU numbers below {CPU_LIMIT}", max(numbers))

    if any(number >= following for number, following in pairwise(numbers)):
        raise InputError(
            f"node {numa_id} cpus is cut off, or broken within a number: give all of it"
        )

    return union(1 << number for number in numbers)


def _distances(lines: Sequence[str]) -> dict[int, dict[int, int]] | None:
    """Return the distances by the ids of two nodes; None: there are none.

    Raises:
        InputError: they are cut off.
    """
    columns: list[int] = []
    rows: dict[int, dict[int, int]] = {}
    for line in lines:
        if matched := _COLUMNS.fullmatch(line):
            columns = [int(word) for word in matched[1].split()]
        elif columns and (matched := _ROW.fullmatch(line)):
            values = [int(word) for word in matched[2].split()]
            if len(values) == len(columns) and values[-1] >= _LEAST_DISTANCE:
                rows[int(matched[1])] = dict(zip(columns, values, strict=True))

    if columns and not rows.keys() >= set(columns):
        raise InputError("the distances of numactl are cut off, or lines broken: give them whole")
    return rows or None


# By the program, in the order in which they count where two tell the same: sizes of lstopo are
# rounded.
_READERS: Final[Mapping[str, Callable[[Sequence[str]], Facts | None]]] = {
    "lscpu -e": read_table,
    "lscpu -p": read_parsable,
    "numactl -H": read_numactl,
    "lstopo": read_lstopo,
    "lscpu": read_properties,
}
# Those of devices, which need the tabs of a line.
_DEVICE_READERS: Final[Mapping[str, Callable[[Sequence[str]], Facts | None]]] = {
    "nvidia-smi topo -m": read_nvidia_topology,
    "rocm-smi --showtoponuma": read_rocm_smi,
    "amd-smi static --numa": read_amd_smi,
    "npu-smi info -t topo": read_npu_topology,
}


def read_pasted(text: str, source: str) -> LoadedMachine:
    """Return the machine that the outputs of programs in a text describe, and its devices.

    What no output tells is warned of; memory that nothing tells is 0 (see `Machine.knows_memory`).

    Args:
        text: the outputs, with prompts, quotes or other words around them.
        source: the name of the text in errors and warnings.

    Raises:
        InputError: there is no such output, it is cut off, or outputs are of different machines.
    """
    with errors_in(source):
        lines = _lines(text)
        without_tabs = [line.expandtabs() for line in lines]
        facts_by_program = {}
        for program, read in _READERS.items():
            facts = read(without_tabs)
            if facts is not None:
                facts_by_program[program] = facts

        refuse_unread(lines)
        for program, read in _DEVICE_READERS.items():
            facts = read(lines)
            if facts is not None:
                facts_by_program[program] = facts

        machine = machine_of_facts(facts_by_program, source)

    if machine is not None:
        return machine

    actual = repr(text.strip()[:_SHOWN])
    if facts_by_program:
        actual = f"that of {' and '.join(facts_by_program)} only"
    raise InputError(
        "expected a machine (JSON, hwloc's XML, a snapshot, or the output of "
        f"{', '.join((*_READERS, *_DEVICE_READERS))}), got {actual} in "
        f"{source}; `(lscpu -e; numactl -H) > FILE` on the machine writes one"
    )


def _lines(text: str) -> list[str]:
    """Return the lines without what terminals and mails add."""
    plain = _ESCAPES.sub("", without_json(text)).replace("\u00a0", " ")
    return [
        _QUOTE.sub("", line, count=1) if line.startswith(">") else line
        for line in plain.splitlines()
    ]
