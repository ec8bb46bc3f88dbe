"""Reads what `numactl -H` prints: CPUs and memory of NUMA nodes, and their distances."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from alignup.errors import InputError
from alignup.machine.bits import union
from alignup.machine.cpuset import CPU_LIMIT
from alignup.machine.pasted.facts import Facts, only_one

_CPUS: Final = re.compile(r"\s*node (\d{1,5}) cpus:(.*)")
_SIZE: Final = re.compile(r"\s*node (\d{1,5}) size:\s*(\d{1,12}) MB\s*")
_NUMBERS: Final = re.compile(r"[\d\s]+")
_HEADER: Final = re.compile(r"\s*node((?:\s+\d{1,5})+)\s*")
_ROW: Final = re.compile(r"\s*(\d{1,5}):((?:\s+\d{1,5})+)\s*")


def read_numactl(lines: Sequence[str]) -> Facts | None:
    """Return what it tells; sizes are in MiB, rounded down.

    Raises:
        InputError: a list is cut off, or the text has those of two machines.
    """
    cpus: dict[int, list[int]] = {}
    sizes: dict[int, list[int]] = {}
    for index, line in enumerate(lines):
        if matched := _CPUS.fullmatch(line):
            cpus.setdefault(int(matched[1]), []).append(_bits(matched[2], lines[index + 1 :], int(matched[1])))
        elif matched := _SIZE.fullmatch(line):
            sizes.setdefault(int(matched[1]), []).append(int(matched[2]) << 20)
    if not cpus:
        return None
    return Facts(
        nodes={numa_id: only_one(found, f"node {numa_id} cpus") or 0 for numa_id, found in cpus.items()},
        memory={numa_id: only_one(found, f"node {numa_id} size") or 0 for numa_id, found in sizes.items()} or None,
        distances=_distances(lines),
    )


def _bits(text: str, following: Sequence[str], numa_id: int) -> int:
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
        if matched := _HEADER.fullmatch(line):
            columns = [int(word) for word in matched[1].split()]
        elif columns and (matched := _ROW.fullmatch(line)):
            values = [int(word) for word in matched[2].split()]
            if len(values) == len(columns):
                rows[int(matched[1])] = dict(zip(columns, values, strict=True))
    return rows or None
