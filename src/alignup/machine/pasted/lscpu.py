"""Reads what lscpu (util-linux) prints: its list of properties, its table (-e) and its parsable form (-p).

Its JSON is turned into these first. Whatever else a text has is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import JSONDecoder
from typing import Any, Final

from alignup.errors import InputError
from alignup.machine.bits import unions
from alignup.machine.cpuset import CPUSet
from alignup.machine.pasted.facts import Facts, only_one

_PROPERTY: Final = re.compile(
    r"\s*(Architecture|Thread\(s\) per core|Socket\(s\)|CPU\(s\)|On-line CPU\(s\) list|Off-line CPU\(s\) list"
    r"|NUMA node(?P<node>\d{1,5}) CPU\(s\)):[ \t]*(?P<value>\S*)\s*"
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


def is_cut_off(line: str) -> bool:
    """Return whether a line says that something was left out there."""
    return _CUT_OFF.fullmatch(line) is not None


def rows_after(lines: Sequence[str], start: int, row: re.Pattern[str], what: str) -> list[str]:
    """Return the lines of a table.

    Args:
        lines: those of the whole text.
        start: the index of the table's first line.
        row: the form of a line.
        what: the name of the table in errors.

    Raises:
        InputError: the table is cut off.
    """
    found: list[str] = []
    for line in lines[start:]:
        if is_cut_off(line):
            raise InputError(f"{what} is cut off after {len(found)} lines: give all of it")
        if not row.fullmatch(line):
            break
        found.append(line)
    return found


def read_properties(lines: Sequence[str]) -> Facts | None:
    """Return what the list of properties tells: NUMA nodes, and how many threads a core has."""
    known: dict[str, list[str]] = {}
    for line in lines:
        matched = _PROPERTY.fullmatch(line)
        if matched:
            known.setdefault(matched[1], []).append(matched["value"])
    values = {name: only_one(found, name) or "" for name, found in known.items()}
    lists = {name: value for name, value in values.items() if name.startswith("NUMA")}
    nodes = {int(name.split()[1].removeprefix("node")): _cpus(value, name) for name, value in lists.items()}
    online = _cpus(values.get("On-line CPU(s) list", ""), "On-line CPU(s) list")
    count = _number(values.get("CPU(s)", ""))
    if not nodes and "Thread(s) per core" in values:
        nodes = {0: online or (1 << (count or 0)) - 1}
    if not nodes:
        return None
    return Facts(
        nodes=nodes,
        offline=_cpus(values.get("Off-line CPU(s) list", ""), "Off-line CPU(s) list"),
        threads=_number(values.get("Thread(s) per core", "")),
        socket_count=_number(values.get("Socket(s)", "")),
        has_adjacent_threads=values["Architecture"].startswith(_ADJACENT) if "Architecture" in values else None,
    )


def _number(text: str) -> int | None:
    """Return a number above zero; None: it is none."""
    return int(text) or None if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _cpus(text: str, where: str) -> int:
    """Return the CPUs of a list."""
    if text.rstrip(",") != text or "..." in text or "…" in text:
        raise InputError(f"{where} is cut off: give all of it")
    return 0 if text in _NONE else int(CPUSet.parse(text, where))


def read_table(lines: Sequence[str]) -> Facts | None:
    """Return what the table of `lscpu -e` tells: all but memory and distances."""
    return _of_tables(lines, _TABLE, _TABLE_ROW, "the table of lscpu -e", None)


def read_parsable(lines: Sequence[str]) -> Facts | None:
    """Return what `lscpu -p` tells: all but memory and distances."""
    return _of_tables(lines, _PARSABLE, _PARSABLE_ROW, "the table of lscpu -p", ",")


def _of_tables(
    lines: Sequence[str], header: re.Pattern[str], row: re.Pattern[str], what: str, separator: str | None
) -> Facts | None:
    """Return what the one table of a text tells, however often it is there."""
    tables = []
    for index, line in enumerate(lines):
        if header.fullmatch(line):
            listed = [line.strip().lstrip("# "), *rows_after(lines, index + 1, row, what)]
            names, *rows = (tuple(one.strip().upper().split(separator)) for one in listed)
            if rows and {"CORE", "SOCKET", "NODE"} & set(names):
                tables.append((names, tuple(rows)))
    table = only_one(tables, what) if tables else None
    return None if table is None else _of_rows([dict(zip(table[0], one, strict=False)) for one in table[1]], what)


def _of_rows(rows: Sequence[Mapping[str, str]], what: str) -> Facts:
    """Return what rows with a CPU each tell."""
    online: dict[int, Mapping[str, str]] = {}
    offline = 0
    for row in rows:
        bit = _cpus(row["CPU"], what)
        if row.get("ONLINE", "yes").lower() in {"no", "n", "false"}:
            offline |= bit
        else:
            online[bit] = row
    nodes, sockets = (_numbered(online, name) for name in ("NODE", "SOCKET"))
    # lscpu numbers the cores of each type of CPU from 0, and -y those of each socket: the L1 cache tells them apart
    cores = None
    if any(row.get("CORE", "-") not in _NONE for row in online.values()):
        columns = ("NODE", "SOCKET", "CORE")
        keys = {bit: (*map(row.get, columns), _cache(row, "L1D")) for bit, row in online.items()}
        cores = tuple(unions((key, bit) for bit, key in keys.items()).values())
    caches = {bit: level for bit, row in online.items() if (level := _cache(row, "L3")) not in _NONE}
    knows_caches = any("L3" in name.split(":") for row in online.values() for name in row)
    l3_groups = tuple(unions((key, bit) for bit, key in caches.items()).values()) if knows_caches else None
    return Facts(nodes, cores, sockets, l3_groups, offline)


def _numbered(rows: Mapping[int, Mapping[str, str]], name: str) -> dict[int, int] | None:
    """Return the CPUs by the number in a column; None: it has none."""
    found = {bit: number for bit, row in rows.items() if (number := row.get(name, "-")) not in _NONE}
    if not found:
        return None
    grouped = unions((number, bit) for bit, number in found.items())
    if not all(number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS for number in grouped):
        raise InputError.at(f"the column {name} of lscpu", "numbers", next(iter(grouped)))
    return {int(number): cpus for number, cpus in grouped.items()}


def _cache(row: Mapping[str, str], level: str) -> str:
    """Return the number of a cache, which `-p` has in a column and `-e` in a part of one; empty: there is none."""
    for name, value in row.items():
        levels = name.split(":")
        if level in levels:
            numbers = value.split(":")
            place = levels.index(level)
            return numbers[place] if place < len(numbers) else ""
    return ""


def without_json(text: str) -> str:
    """Return a text with what `lscpu -J` prints turned into what lscpu prints without."""
    found = _JSON.search(text)
    if found is None:
        return text
    text = text[: found.start()] + _BARE_HYPHEN.sub(": null", text[found.start() :])
    try:
        value, end = JSONDecoder().raw_decode(text, found.start())
    except (ValueError, RecursionError) as error:
        raise InputError(f"the JSON of lscpu is cut off or damaged: {str(error)[:80]}") from None
    lines = [*_properties(value.get("lscpu")), *_table(value.get("cpus"))]
    return "\n".join((text[: found.start()], *lines, without_json(text[end:])))


def _properties(fields: Any) -> Iterator[str]:
    for one in fields if isinstance(fields, list) else ():
        if isinstance(one, dict):
            yield f"{str(one.get('field')).rstrip(':')}: {one.get('data') or '-'}"
            yield from _properties(one.get("children"))


def _table(rows: Any) -> Iterable[str]:
    entries = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if entries:
        yield " ".join(entries[0]).upper()
        for row in entries:
            yield " ".join(_cell(value) for value in row.values())


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return str(value)
