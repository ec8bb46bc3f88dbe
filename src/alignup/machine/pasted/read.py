"""Finds in a text what reports paste of a machine, in any order, and makes one machine of it.

`_READERS` says which programs' outputs are known; the short ones are read here. What the text leaves open is told in a
warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, errors_in
from alignup.machine.bits import union
from alignup.machine.cpuset import CPU_LIMIT, CPUSet
from alignup.machine.pasted.facts import Facts, Gpu, machine_of_facts, only_one
from alignup.machine.pasted.lscpu import is_cut_off, read_parsable, read_properties, read_table, without_json
from alignup.machine.pasted.lstopo import read_lstopo

if TYPE_CHECKING:
    from alignup.machine.device_inventory import LoadedMachine

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_QUOTE: Final = re.compile(r"(?:> ?)+")
_SHOWN: Final = 40
_CPUS: Final = re.compile(r"\s*node (\d{1,5}) cpus:(.*)")
_SIZE: Final = re.compile(r"\s*node (\d{1,5}) size:\s*(\d{1,12}) MB\s*")
_NUMBERS: Final = re.compile(r"[\d\s]+")
_COLUMNS: Final = re.compile(r"\s*node((?:\s+\d{1,5})+)\s*")
_ROW: Final = re.compile(r"\s*(\d{1,5}):((?:\s+\d{1,5})+)\s*")
_AFFINITIES: Final = re.compile(r"\s*((?:\S+\s+)*?)CPU Affinity(\s+NUMA Affinity)?.*")
_GPU: Final = re.compile(r"GPU\d{1,4}")
_LIST: Final = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")


def read_numactl(lines: Sequence[str]) -> Facts | None:
    """Return what `numactl -H` tells: CPUs, memory and distances of NUMA nodes; sizes are in MiB, rounded down.

    Raises:
        InputError: a list is cut off, or the text has those of two machines.
    """
    cpus: dict[int, list[int]] = {}
    sizes: dict[int, list[int]] = {}
    for index, line in enumerate(lines):
        if matched := _CPUS.fullmatch(line):
            cpus.setdefault(int(matched[1]), []).append(_cpus(matched[2], lines[index + 1 :], int(matched[1])))
        elif matched := _SIZE.fullmatch(line):
            sizes.setdefault(int(matched[1]), []).append(int(matched[2]) << 20)
    if not cpus:
        return None
    return Facts(
        nodes={numa_id: only_one(found, f"node {numa_id} cpus") or 0 for numa_id, found in cpus.items()},
        memory={numa_id: only_one(found, f"node {numa_id} size") or 0 for numa_id, found in sizes.items()} or None,
        distances=_distances(lines),
    )


def _cpus(text: str, following: Sequence[str], numa_id: int) -> int:
    """Return the CPUs of a list, which terminals and mails can break into several lines."""
    for line in following:
        if not line.strip() or not _NUMBERS.fullmatch(line):
            break
        text += f" {line}"
    if not _NUMBERS.fullmatch(text or " "):
        raise InputError(f"node {numa_id} cpus is cut off, or no list of numbers: give all of it")
    numbers = [int(word) if len(word) <= len(str(CPU_LIMIT)) else CPU_LIMIT for word in text.split()]
    if any(number >= CPU_LIMIT for number in numbers):
        raise InputError.at(f"node {numa_id} cpus", f"CPU numbers below {CPU_LIMIT}", max(numbers))
    return union(1 << number for number in numbers)


def _distances(lines: Sequence[str]) -> dict[int, dict[int, int]] | None:
    """Return the distances by the ids of two nodes; None: there are none."""
    columns: list[int] = []
    rows: dict[int, dict[int, int]] = {}
    for line in lines:
        if matched := _COLUMNS.fullmatch(line):
            columns = [int(word) for word in matched[1].split()]
        elif columns and (matched := _ROW.fullmatch(line)):
            values = [int(word) for word in matched[2].split()]
            if len(values) == len(columns):
                rows[int(matched[1])] = dict(zip(columns, values, strict=True))
    return rows or None


def read_nvidia_topology(lines: Sequence[str]) -> Facts | None:
    """Return the CPUs and NUMA nodes that GPUs are near by `nvidia-smi topo -m`; other devices have no resource in it.

    Raises:
        InputError: the table is cut off, or the text has those of two machines.
    """
    tables = []
    for index, line in enumerate(lines):
        header = _AFFINITIES.fullmatch(line)
        if header and "GPU0" in header[1].split():
            tables.append(_gpus(lines[index + 1 :], header[1].split(), bool(header[2])))
    gpus = only_one(tables, "the table of nvidia-smi topo -m")
    return None if gpus is None else Facts(gpus=gpus)


def _gpus(lines: Sequence[str], columns: list[str], has_nodes: bool) -> tuple[Gpu, ...]:
    """Return the GPUs of the rows below a header."""
    expected = [name for name in columns if _GPU.fullmatch(name)]
    found: dict[str, Gpu] = {}
    for line in lines:
        words = line.split()
        if is_cut_off(line) or not words:
            if len(found) == len(expected) or not found:
                continue
            break
        if not _GPU.fullmatch(words[0]):
            if len(found) == len(expected):
                break
            continue
        told = words[1 + len(columns) :]
        cpus = told[0] if told and _LIST.fullmatch(told[0]) else ""
        nodes = told[1] if has_nodes and len(told) > 1 and _LIST.fullmatch(told[1]) else ""
        where = f"the row of {words[0]} in nvidia-smi topo -m"
        found[words[0]] = Gpu(words[0], int(CPUSet.parse(cpus, where)), tuple(CPUSet.parse(nodes, where)))
    if set(found) != set(expected):
        missing = next(name for name in expected if name not in found)
        raise InputError(f"the table of nvidia-smi topo -m is cut off: it has no row of {missing}; give all of it")
    return tuple(found[name] for name in expected)


# By the program, in the order in which they count where two tell the same: sizes of lstopo are rounded.
_READERS: Final[Mapping[str, Callable[[Sequence[str]], Facts | None]]] = {
    "lscpu -e": read_table,
    "lscpu -p": read_parsable,
    "numactl -H": read_numactl,
    "lstopo": read_lstopo,
    "lscpu": read_properties,
    "nvidia-smi topo -m": read_nvidia_topology,
}


def read_pasted(text: str, source: str) -> LoadedMachine:
    """Return the machine that the outputs of programs in a text describe, and its GPUs if the text has them.

    What no output tells is warned of; memory that nothing tells is 0 (see `Machine.knows_memory`).

    Args:
        text: the outputs, with prompts, quotes or other words around them.
        source: the name of the text in errors and warnings.

    Raises:
        InputError: there is no such output, it is cut off, or outputs are of different machines.
    """
    with errors_in(source):
        lines = _lines(text)
        told = {name: facts for name, read in _READERS.items() if (facts := read(lines)) is not None}
        found = machine_of_facts(told, source)
    if found is None:
        got = f"that of {' and '.join(told)} only" if told else repr(text.strip()[:_SHOWN])
        raise InputError(
            f"expected a machine (JSON, hwloc's XML, a snapshot, or the output of {', '.join(_READERS)}), got {got} in "
            f"{source}; `(lscpu -e; numactl -H) > FILE` on the machine writes one"
        )
    return found


def _lines(text: str) -> list[str]:
    """Return the lines without what terminals and mails add."""
    plain = _ESCAPES.sub("", without_json(text)).replace("\u00a0", " ").expandtabs()
    return [_QUOTE.sub("", line, count=1) if line.startswith(">") else line for line in plain.splitlines()]
