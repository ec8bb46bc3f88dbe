"""The kernel's files of a machine that is not there, as complete as a kubelet needs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from inputs.kernel_trees import CPU, NODE, write
from inputs.machine_shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["BOOT_ID", "files_of", "lay_out", "mounts"]

SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""What a kubelet changes below /proc/sys."""

BOOT_ID = "proc/sys/kernel/random/boot_id"


def files_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a machine in the schema of `alignup machine --json`."""
    nodes = described["numaNodes"]
    cores = [core for node in nodes for core in node["cores"]]
    caches: dict[int, list[int]] = {}
    for core in cores:
        if "l3" in core:
            caches.setdefault(core["l3"], []).extend(core["cpus"])

    return Shape(
        cores=[(core["cpus"], core["socket"]) for core in cores],
        nodes={
            node["id"]: [cpu for core in node["cores"] for cpu in core["cpus"]] for node in nodes
        },
        memory={node["id"]: node["memory"] // 1024 for node in nodes},
        distances=[distances(node, nodes) for node in nodes],
        l3=list(caches.values()),
    ).files()


def distances(node: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the distances of a NUMA node, or the usual ones where its machine has none."""
    if "distances" in node:
        return [node["distances"][peer["id"]] for peer in nodes]
    return [10 if peer is node else 21 for peer in nodes]


def lay_out(root: Path, files: Mapping[str, str]) -> Path:
    """Write a machine's files, with what a kubelet reads besides, and return the root."""
    cpus = sorted(
        {
            int(matched[1])
            for path in files
            if (matched := re.match(rf"{CPU}/cpu(\d+)/topology/", path))
        }
    )
    total = files["proc/meminfo"].split()[1]
    added = {
        "proc/meminfo": f"MemTotal: {total} kB\nMemFree: {total} kB\nMemAvailable: {total} kB\n"
        "SwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/cpuinfo": "\n".join(f"processor\t: {cpu}\ncpu MHz\t\t: 2000.000\n" for cpu in cpus),
    }
    for name in SETTINGS:
        real = Path("/proc/sys", name)
        added[f"proc/sys/{name}"] = real.read_text() if real.exists() else "0\n"

    added[BOOT_ID] = f"{uuid4()}\n"

    write(root, {**files, **added})
    (root / "sys/kernel/mm/hugepages").mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        # it follows the links, not the map
        if matched := re.fullmatch(rf"({NODE}/node\d+)/cpumap", path):
            mask = int(text.strip("\n\0").replace(",", ""), 16)
            for cpu in cpus:
                if mask >> cpu & 1:
                    (root / matched[1] / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")

    return root


def mounts(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield what of a machine is mounted where, for a kubelet that sees nothing else."""
    for name in (CPU, NODE, "sys/kernel/mm/hugepages", "proc/meminfo", "proc/cpuinfo", BOOT_ID):
        yield root / name, Path("/", name)
    for name in SETTINGS:
        yield root / "proc/sys" / name, Path("/proc/sys", name)
