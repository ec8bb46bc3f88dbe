"""Parts of machines: their CPUs, cores and NUMA nodes are those of hwloc-calc in the same files.

The machines are the small ones of `inputs.machine_shapes`, and the real ones in `shared/machines`
beside the repository where there is such a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from alignup import CPUSet, read_machine, split
from inputs.kernel_trees import write
from inputs.machine_shapes import SHAPES

ARCHIVES = sorted((Path(__file__).parents[2].parent / "shared" / "machines").glob("*.tar.xz"))
HWLOC_CALC = shutil.which("hwloc-calc")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HWLOC_CALC is None, reason="hwloc-calc is not installed"),
]


def mask(cpus: CPUSet) -> str:
    """Return a set as hwloc writes it: words of 32 bits, the highest first."""
    bits, digits = int(cpus), []
    while bits:
        digits.append(f"0x{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(digits))


def unpacked(machine: str | Path, folder: Path) -> Path:
    """Return the root folder of a machine's files, written below a folder."""
    if isinstance(machine, str):
        return write(folder / "machine", SHAPES[machine].files())
    with tarfile.open(machine) as packed:
        packed.extractall(folder, filter="data")
    return next(folder.iterdir())


@pytest.mark.parametrize(
    "named", [*SHAPES, *ARCHIVES], ids=lambda named: getattr(named, "name", named)
)
def test_parts_are_whole_cores_of_the_nodes_that_hwloc_names(named, tmp_path) -> None:
    root = unpacked(named, tmp_path)
    environment = {**os.environ, "HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop"}

    def calc(*arguments: str) -> set[int]:
        command = [str(HWLOC_CALC), "--disallowed", *arguments]
        done = subprocess.run(  # noqa: S603  # ours
            command, env=environment, capture_output=True, text=True, check=True
        )
        return {int(number) for number in done.stdout.split(",") if number.strip()}

    machine = read_machine(root)
    for count in range(1, min(3, machine.core_count) + 1):
        for part in split(root, count):
            cpus = mask(part.cpus)
            assert calc("--po", "-I", "pu", cpus) == set(part.cpus)
            cores = calc("-I", "core", cpus)
            if cores:
                of_cores = calc("--po", "-I", "pu", *(f"core:{number}" for number in cores))
                assert of_cores == set(part.cpus)

            assert (
                set(part.numa_nodes) <= calc("--po", "-I", "numa", cpus)
                or len(part.numa_nodes) == 1
            )
