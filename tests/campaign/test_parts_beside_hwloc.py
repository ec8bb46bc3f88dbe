"""Parts of real machines, whose CPUs, cores and NUMA nodes are those that hwloc-calc finds in the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from alignup import CPUSet, read_machine, split

MACHINES = sorted((Path(__file__).parents[2].parent / "shared" / "machines").glob("*.tar.xz"))
HWLOC_CALC = shutil.which("hwloc-calc")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HWLOC_CALC is None, reason="hwloc-calc is not installed"),
    pytest.mark.skipif(not MACHINES, reason="../shared/machines is not beside this clone"),
]


def mask(cpus: CPUSet) -> str:
    """Return a set as hwloc writes it: words of 32 bits, the highest first."""
    bits, words = int(cpus), []
    while bits:
        words.append(f"0x{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(words))


@pytest.mark.parametrize("archive", MACHINES, ids=lambda path: path.name.partition(".")[0])
def test_parts_are_whole_cores_of_the_nodes_that_hwloc_names(archive, tmp_path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    root = next(tmp_path.iterdir())
    environment = {**os.environ, "HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "linux,stop"}

    def calc(*words: str) -> set[int]:
        command = [str(HWLOC_CALC), "--disallowed", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603  # ours
        return {int(number) for number in done.stdout.split(",") if number.strip()}

    machine = read_machine(root)
    for count in range(1, min(3, machine.core_count) + 1):
        for part in split(root, count):
            own = mask(part.cpus)
            assert calc("--po", "-I", "pu", own) == set(part.cpus)
            cores = calc("-I", "core", own)
            if cores:
                of_cores = calc("--po", "-I", "pu", *(f"core:{number}" for number in cores))
                assert of_cores == set(part.cpus)
            assert set(part.numa_nodes) <= calc("--po", "-I", "numa", own) or len(part.numa_nodes) == 1
