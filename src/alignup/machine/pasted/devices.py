"""Reads which devices are near which CPUs and NUMA nodes, as programs of vendors list it.

`nvidia-smi topo -m` and `npu-smi info -t topo` print a table with a row and a column for each
device, and what a device is near in columns at the end. A cell of these may be blank: which one is
told by the tab stops that NVIDIA's program writes to, so lines are read with their tabs.
`rocm-smi --showtoponuma` and `amd-smi static --numa` print lines with a name and a value.

A row of which it is not sure what it says is an error that shows the row: a GPU on the wrong NUMA
node is worse than none. So is a list of devices in a form that is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from alignup.errors import InputError
from alignup.machine.cpuset import CPUSet
from alignup.machine.nvidia import GPU_RESOURCE
from alignup.machine.pasted.facts import NPU_RESOURCE, Accelerator, Facts, only_one
from alignup.records import Record

AMD_RESOURCE: Final = "amd.com/gpu"

_INSTEAD: Final = "or leave it out and give the devices by --devices"

# The start of a terminal's escape code, where copying lost the control character, or turned it into
# a picture.
_LOST_ESCAPES: Final = re.compile(r"(?:\^\[|\u241b)?\[\d{0,2}m")
_HEADER: Final = re.compile(
    r"(?P<names>.*?)CPU ?Affinity(?P<nodes>\s*NUMA ?Affinity)?(?P<own>\s*GPU NUMA ID)?\s*"
)
_OTHER_HEADER: Final = re.compile(r"[\s|]*(?P<names>[A-Z]{2,4}\d*\b.*)CPU ?Affinity\b")
# Between names of devices that lost the space between them.
_NAME_START: Final = re.compile(r"(?<=\d)(?=GPU|NIC|NPU|mlx)")
_TAB: Final = 8
# CPU Affinity, NUMA Affinity, GPU NUMA ID.
_ALL_COLUMNS: Final = 3
_LONGEST_ROW: Final = 120
_SHOWN: Final = 80
_SELF: Final = "X"
_RELATION: Final = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PIX|NV\d{1,2}|HCCS_SW|HCCS|SIO|NA")
_LINK: Final = re.compile(r"SYS|NODE|PHB|PXB|PIX|NV\d{1,2}|HCCS")
_OTHER_RELATION: Final = re.compile(r"[A-Z][A-Z0-9_]{0,6}")
_LIST: Final = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")
_NOTHING: Final = frozenset(("", "N/A"))

_ROCM_ROW: Final = re.compile(
    r"\s*GPU ?\[?(?P<number>\d{1,4})\]?\s*: \(Topology\) Numa (?P<key>Node|Affinity):"
    r"\s*+(?P<value>\S*)\s*"
)
_AMD_GPU: Final = re.compile(r"\s*GPU: (?P<number>\d{1,4})\s*")
_AMD_LINE: Final = re.compile(r"\s*(?P<key>[A-Z][A-Z0-9_]*):(?:\s++(?P<value>\S.*))?\s*")
_AMD_PART: Final = re.compile(r"(?:CPU_LIST|SOCKET)_\d+|BITMASK")
# How the two programs print that the kernel has no NUMA node for a GPU.
_NO_NODE: Final = frozenset(("-1", "4294967295", "none", "n/a"))
_SHORT_NUMBER: Final = re.compile(r"\d{1,5}")

_UNREAD: Final = {
    "the JSON or CSV of rocm-smi": re.compile(r".*\(Topology\) Numa .*"),
    "the JSON of amd-smi": re.compile(r'\s*"(?:numa|numa_config)":\s*\{.*'),
    "the CSV of amd-smi": re.compile(r"\s*gpu,.*\b(?:numa|affinity).*", re.IGNORECASE),
}


class _Kind(Record):
    """A program that prints a table of devices.

    Attributes:
        program: its name in errors.
        resource: that of the devices.
        device: the form of a device's name.
    """

    program: str
    resource: str
    device: re.Pattern[str]


_KINDS: Final = (
    _Kind("nvidia-smi topo -m", GPU_RESOURCE, re.compile(r"GPU\d{1,4}")),
    _Kind("npu-smi info -t topo", NPU_RESOURCE, re.compile(r"NPU\d{1,4}")),
)


class _Header(NamedTuple):
    """What the first line of a table says: the devices, and how many columns follow them."""

    devices: list[str]
    columns: int


class _Cell(NamedTuple):
    """A word of a row, and where it begins, counted from the row's first word."""

    place: int
    text: str


def read_nvidia_topology(lines: Sequence[str]) -> Facts | None:
    """Return the CPUs and NUMA nodes that GPUs are near by `nvidia-smi topo -m`.

    Other devices have no resource in it.

    Raises:
        InputError: the table is cut off, a row of it can be read in several ways or in none, or the
            text has tables of two machines.
    """
    return _of_tables(lines, _KINDS[0])


def read_npu_topology(lines: Sequence[str]) -> Facts | None:
    """Return the CPUs that NPUs are near by `npu-smi info -t topo`.

    Raises:
        InputError: as by `read_nvidia_topology`.
    """
    return _of_tables(lines, _KINDS[1])


def _of_tables(lines: Sequence[str], kind: _Kind) -> Facts | None:
    """Return what the one table of a program tells, however often it is there."""
    plain = [_LOST_ESCAPES.sub("", line) for line in lines]
    tables = []
    for index, line in enumerate(plain):
        header = _header(line, kind)
        if header is not None:
            tables.append(_rows(plain[index + 1 :], header, kind))

    accelerators = only_one(tables, f"the table of {kind.program}")
    return None if accelerators is None else Facts(accelerators=accelerators)


def _header(line: str, kind: _Kind) -> _Header | None:
    """Return what the first line of a table says; None: the line is none."""
    matched = _HEADER.fullmatch(line)
    if matched is None:
        return None

    devices = _NAME_START.sub(" ", matched["names"]).split()
    if not any(map(kind.device.fullmatch, devices)):
        return None

    return _Header(devices, 1 + bool(matched["nodes"]) + bool(matched["own"]))


def _rows(lines: Sequence[str], header: _Header, kind: _Kind) -> tuple[Accelerator, ...]:
    """Return the devices of the rows below a header."""
    missing = [name for name in header.devices if kind.device.fullmatch(name)]
    accelerators: dict[str, Accelerator] = {}
    for line in lines:
        words = line.split()
        name = words[0] if words else ""
        is_end = not words or _header(line, kind) is not None
        if (is_end and accelerators) or not missing:
            break

        if name in missing:
            accelerators[name] = _accelerator(line, header, kind)
            missing.remove(name)
        elif name in accelerators:
            raise _not_a_row(line, kind, "a row for each device", "a second one")

    if missing:
        raise InputError(
            f"the table of {kind.program} is cut off: it has no row of {missing[0]}; give all of "
            f"it, {_INSTEAD}"
        )

    return tuple(accelerators[name] for name in header.devices if name in accelerators)


def _not_a_row(line: str, kind: _Kind, expected: str, actual: str) -> InputError:
    """Return the error that a row is not of its form."""
    row = _shortened(" ".join(line.split()))
    return InputError(
        f"expected {expected}, got {_shortened(actual)} in the row {row!r} of {kind.program}; give "
        f"the table as it was printed, {_INSTEAD}"
    )


def _shortened(row: str) -> str:
    """Return a row, or what is wrong with it, of which a long middle is left out."""
    if len(row) <= _LONGEST_ROW:
        return row

    return f"{row[: _LONGEST_ROW // 2]} ... {row[-_LONGEST_ROW // 2 :]}"


def _accelerator(line: str, header: _Header, kind: _Kind) -> Accelerator:
    """Return the device of a row."""
    row = line.lstrip().expandtabs(_TAB)
    cells = [_Cell(matched.start(), matched[0]) for matched in re.finditer(r"\S+", row)]
    name, *cells = cells
    relations, ends = _split_row(cells, header)
    count = len(header.devices)
    if len(relations) != count:
        raise _not_a_row(
            line,
            kind,
            f"{count} cells between {name.text} and CPU Affinity, as the header has devices",
            str(len(relations)),
        )

    own_place = header.devices.index(name.text)
    selves = [place for place, cell in enumerate(relations) if cell.text == _SELF]
    if selves != [own_place]:
        raise _not_a_row(
            line, kind, f"{_SELF} in the column of {name.text} only", "it in others, or nowhere"
        )

    affinities = _affinities(relations, ends, header.columns, is_padded=line[-1:].isspace())
    if affinities is None:
        raise _not_a_row(
            line,
            kind,
            "lists of numbers or N/A below the last headers",
            " ".join(cell.text for cell in ends) or "a row that ends before them",
        )

    cpus, numa_nodes = affinities
    where = f"the row of {name.text} in {kind.program}"
    return Accelerator(
        kind.resource,
        name.text,
        int(CPUSet.parse(cpus, where)),
        tuple(CPUSet.parse(numa_nodes, where)),
    )


def _split_row(cells: Sequence[_Cell], header: _Header) -> tuple[list[_Cell], list[_Cell]]:
    """Return the cells of a row that relate it to devices, and those after them."""
    relations: list[_Cell] = []
    for index, cell in enumerate(cells):
        pieces = _relations(cell)
        if not pieces or len(relations) >= len(header.devices):
            return relations, list(cells[index:])
        relations += pieces

    return relations, []


def _relations(cell: _Cell) -> list[_Cell]:
    """Return the words of a cell, which may have lost the spaces between them; none: it has none.

    No word begins another, so they can be told apart.
    """
    pieces = []
    end = 0
    while matched := _RELATION.match(cell.text, end):
        pieces.append(_Cell(cell.place + end, matched[0]))
        end = matched.end()

    if end == len(cell.text):
        return pieces
    return [cell] if not pieces and _OTHER_RELATION.fullmatch(cell.text) else []


def _affinities(
    relations: Sequence[_Cell], ends: Sequence[_Cell], columns: int, *, is_padded: bool
) -> tuple[str, str] | None:
    """Return the CPUs and the NUMA nodes of a row, empty where it has none.

    None: it cannot be told what they are.

    Args:
        relations: the cells before.
        ends: the cells after those; there may be fewer than columns.
        columns: CPU Affinity, NUMA Affinity and GPU NUMA ID, or the first of these.
        is_padded: whether blank cells may follow.
    """
    texts = [cell.text for cell in ends]
    if not all(_LIST.fullmatch(text) or text in _NOTHING for text in texts):
        return None
    if len(ends) > columns:
        return None

    # every driver prints something as GPU NUMA ID, so a row without was cut
    if not ends:
        return ("", "") if is_padded and columns < _ALL_COLUMNS else None

    stops = _stops(relations, ends)
    if len(ends) == columns:
        # where the first cell is not below CPU Affinity, the header was cut, and not the row
        if stops and stops[0]:
            return None

        cpus, numa_nodes, *_ = (*map(_content, texts), "")
        return cpus, numa_nodes

    readings = {
        reading for reading, expected in _readings(texts, columns) if list(expected) == stops
    }
    return readings.pop() if len(readings) == 1 else None


def _content(text: str) -> str:
    """Return what a cell says; empty: nothing."""
    return "" if text in _NOTHING else text


def _stops(relations: Sequence[_Cell], ends: Sequence[_Cell]) -> list[int] | None:
    """Return how many tab stops after the cells of devices each of the last cells begins.

    None: the cells are not at tab stops.
    """
    phases = {cell.place % _TAB for cell in relations if cell.text != _SELF}
    if len(phases) > 1:
        return None

    # nvidia-smi writes the X with a space before it
    phase = phases.pop() if phases else 0
    places = [
        cell.place - ((cell.place - phase) % _TAB == 1 and cell.text == _SELF) for cell in relations
    ]
    first = places[0]
    if places != list(range(first, first + _TAB * len(places), _TAB)) or first % _TAB != phase:
        return None

    start = places[-1] + _TAB
    distances = [cell.place - start for cell in ends]
    if any(distance % _TAB or distance < 0 for distance in distances):
        return None
    return [distance // _TAB for distance in distances]


def _readings(
    texts: Sequence[str], columns: int
) -> Iterator[tuple[tuple[str, str], tuple[int, ...]]]:
    """Yield what fewer cells than columns may say, and the tab stops of each if they say that."""
    for places in combinations(range(columns), len(texts)):
        cells = [""] * columns
        for place, text in zip(places, texts, strict=True):
            cells[place] = text

        cpus, numa_nodes = cells[:2]
        if columns < _ALL_COLUMNS or cells[-1]:
            reading = (_content(cpus), _content(numa_nodes))
            yield reading, tuple(_printed_at(cells, is_far=False))
            if numa_nodes in _NOTHING:
                yield reading, tuple(_printed_at(cells, is_far=True))


def _printed_at(cells: Sequence[str], *, is_far: bool) -> Iterator[int]:
    """Yield the tab stop at which nvidia-smi prints each of the last cells that is not blank.

    A cell is followed by a tab, and NUMA Affinity by two.

    Args:
        cells: CPU Affinity, NUMA Affinity and maybe GPU NUMA ID.
        is_far: whether there is a second tab before NUMA Affinity, as before some N/A.
    """
    stop = 0
    for column, text in enumerate(cells):
        if column == 1:
            stop += is_far
        if text:
            yield stop

        stop += len(text) // _TAB + 1
        if column == 1:
            stop += 1


def read_rocm_smi(lines: Sequence[str]) -> Facts | None:
    """Return the NUMA nodes that GPUs are near by `rocm-smi --showtoponuma`.

    Raises:
        InputError: a GPU or a line of it is missing, a line is of another form, or the text has
            outputs of two machines.
    """
    program = "rocm-smi --showtoponuma"
    values: dict[int, dict[str, list[str]]] = {}
    for line in lines:
        matched = _ROCM_ROW.fullmatch(line)
        if matched:
            of_gpu = values.setdefault(int(matched["number"]), {})
            of_gpu.setdefault(matched["key"].upper(), []).append(matched["value"])

    return _of_values(values, {}, program)


def read_amd_smi(lines: Sequence[str]) -> Facts | None:
    """Return the CPUs and NUMA nodes that GPUs are near by `amd-smi static --numa`.

    Raises:
        InputError: as by `read_rocm_smi`.
    """
    program = "amd-smi static --numa"
    values: dict[int, dict[str, list[str]]] = {}
    cpus: dict[int, int] = {}
    number: int | None = None
    section = ""
    for line in lines:
        if matched := _AMD_GPU.fullmatch(line):
            number, section = int(matched["number"]), ""
            continue

        matched = _AMD_LINE.fullmatch(line)
        if matched is None or number is None:
            continue

        key, value = matched["key"], (matched["value"] or "").rstrip()
        if key == "NUMA":
            section = key
            values.setdefault(number, {})
        elif section and key in {"NODE", "AFFINITY"}:
            values[number].setdefault(key, []).append(value)
        elif section and key in {"CPU_AFFINITY", "SOCKET_AFFINITY"}:
            section = key
        elif section == "CPU_AFFINITY" and key == "CPU_CORES_AFFINITY":
            where = f"{key} of GPU {number} in {program}"
            listed = "" if value.lower() in _NO_NODE else value
            cpus[number] = cpus.get(number, 0) | int(CPUSet.parse(listed, where))
        elif key != "CPU_CORES_AFFINITY" and not _AMD_PART.fullmatch(key):
            section = ""

    return _of_values(values, cpus, program)


def _of_values(
    values: Mapping[int, Mapping[str, list[str]]], cpus: Mapping[int, int], program: str
) -> Facts | None:
    """Return the GPUs of AMD's programs, by number.

    AFFINITY is the node that the kernel has for the PCI device, which a device plugin reports, and
    NODE what AMD's driver takes in its place; old releases print NODE only.
    """
    if not values:
        return None

    keys = {key for of_gpu in values.values() for key in of_gpu}
    accelerators = []
    for number in range(max(values) + 1):
        where = f"GPU {number} in {program}"
        nodes: dict[str, tuple[int, ...]] = {}
        for key in keys or {"NODE", "AFFINITY"}:
            value = only_one(values.get(number, {}).get(key, ()), f"{key} of {where}")
            if value is None:
                raise InputError(
                    f"the output of {program} is cut off: {key} of GPU {number} is missing; give "
                    f"all of it, {_INSTEAD}"
                )

            nodes[key] = _numa_nodes(value, f"{key} of {where}")

        numa_nodes = nodes["AFFINITY"] if "AFFINITY" in nodes else nodes["NODE"]
        accelerators.append(
            Accelerator(AMD_RESOURCE, f"GPU{number}", cpus.get(number, 0), numa_nodes)
        )

    return Facts(accelerators=tuple(accelerators))


def _numa_nodes(value: str, where: str) -> tuple[int, ...]:
    """Return the NUMA node that one of AMD's programs prints; none: the kernel has none."""
    if value.lower() in _NO_NODE:
        return ()
    if not _SHORT_NUMBER.fullmatch(value):
        raise InputError.at(where, "the number of a NUMA node, N/A or -1", value)
    return (int(value),)


def refuse_unread(lines: Sequence[str]) -> None:
    """Refuse a text with a list of devices in a form that is not read.

    Raises:
        InputError: there is such a list.
    """
    plain = [_LOST_ESCAPES.sub("", line) for line in lines]
    for line in plain:
        for output, form in _UNREAD.items():
            if form.fullmatch(line) and not _ROCM_ROW.fullmatch(line):
                raise InputError(
                    f"{output} is not read, and {line.strip()[:_SHOWN]!r} is of it: give what the "
                    f"program prints without options of format, {_INSTEAD}"
                )

    for line, following in zip(plain, _following(plain), strict=True):
        if _is_other_header(line, following):
            raise InputError(
                f"a table of devices with the header {' '.join(line.split())[:_SHOWN]!r} is not "
                f"read: leave it out and give the devices by --devices"
            )

    for kind in _KINDS:
        row = next((line for line in plain if _is_row(line, kind)), None)
        if row is not None and not any(_header(line, kind) for line in plain):
            raise _not_a_row(row, kind, "CPU Affinity and names of devices above it", "no header")


def _following(lines: Sequence[str]) -> list[str]:
    """Return for each line the next that is not blank; empty: there is none."""
    following = []
    next_line = ""
    for line in reversed(lines):
        following.append(next_line)
        if line.strip():
            next_line = line

    return following[::-1]


def _is_other_header(line: str, following: str) -> bool:
    """Return whether a line is the header of a table of devices that no reader knows.

    Its columns have the names of the rows below, so a sentence about CPU affinity is none.
    """
    matched = _OTHER_HEADER.match(line)
    if matched is None or any(_header(line, kind) for kind in _KINDS):
        return False

    column, row = (text.replace("|", " ").split() for text in (matched["names"], following))
    return column[:1] == row[:1] and not any(kind.device.fullmatch(column[0]) for kind in _KINDS)


def _is_row(line: str, kind: _Kind) -> bool:
    """Return whether a line is a row of a program's table, whole or cut."""
    name, *words = line.split() or [""]
    if not kind.device.fullmatch(name):
        return False

    relations, ends = _split_row([_Cell(0, word) for word in words], _Header(words, 0))
    texts = {cell.text for cell in relations}
    has_affinity = any(_LIST.fullmatch(cell.text) or cell.text in _NOTHING for cell in ends)
    return _SELF in texts and (has_affinity or any(map(_LINK.fullmatch, texts)))
