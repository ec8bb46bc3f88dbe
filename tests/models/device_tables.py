"""How NVIDIA's and Huawei's programs print which devices are near what, written down plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NVIDIA_HEADERS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


@dataclass(frozen=True)
class DeviceRow:
    """A device of a table.

    `relations` are to each device of the table, `X` to itself; `cpus` and `numa_nodes` are the
    cells at the end, empty where the program prints nothing.
    """

    name: str
    relations: Sequence[str]
    cpus: str = ""
    numa_nodes: str = ""


def nvidia_table(
    rows: Sequence[DeviceRow], columns: int = 3, start: str = "\x1b[4m", end: str = "\x1b[0m"
) -> list[str]:
    """Return the lines that `nvidia-smi topo -m` prints.

    Only the rows of GPUs have cells at the end. A tab follows each cell, and a second one NUMA
    Affinity; one more is before a NUMA Affinity of N/A. `columns` is how many cells drivers print
    at the end: one at first, then two, now three.
    """
    headers = [row.name for row in rows] + list(NVIDIA_HEADERS[:columns])
    lines = ["\t" + start + "\t".join(headers) + end]
    for row in rows:
        cells = [" X " if relation == "X" else relation for relation in row.relations]
        line = "\t".join([row.name, *cells])
        if row.name.startswith("GPU"):
            line += f"\t{row.cpus}"
            if columns > 1:
                line += "\t\t" if row.numa_nodes == "N/A" else "\t"
                line += row.numa_nodes
            if columns > 2:
                line += "\t\tN/A"
        else:
            line += "\t" * columns

        lines.append(line)

    return lines


def npu_table(rows: Sequence[DeviceRow]) -> list[str]:
    """Return the lines that `npu-smi info -t topo` prints."""
    header = "\t   " + "".join(f"{row.name:11}" for row in rows) + "CPU Affinity"
    return [
        header,
        *(
            f"{row.name:11}" + "".join(f"{relation:11}" for relation in row.relations) + row.cpus
            for row in rows
        ),
    ]
