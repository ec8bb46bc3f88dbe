"""Reads what `nvidia-smi topo -m` prints of GPUs: the CPUs and the NUMA nodes that they are near."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from alignup.errors import InputError
from alignup.machine.cpuset import CPUSet
from alignup.machine.pasted.facts import Facts, Gpu, only_one
from alignup.machine.pasted.lscpu import is_cut_off

_HEADER: Final = re.compile(r"\s*((?:\S+\s+)*?)CPU Affinity(\s+NUMA Affinity)?.*")
_GPU: Final = re.compile(r"GPU\d{1,4}")
_LIST: Final = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")


def read_nvidia_topology(lines: Sequence[str]) -> Facts | None:
    """Return what it tells; other devices than GPUs are left out, since their resources are not told.

    Raises:
        InputError: the table is cut off, or the text has those of two machines.
    """
    tables = []
    for index, line in enumerate(lines):
        header = _HEADER.fullmatch(line)
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
