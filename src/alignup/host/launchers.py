"""Reads from a launcher's environment which of how many ranks of this machine a process is.

`LAUNCHERS` is the whole table. The first launcher counts of which both variables are set: one that
another has started, such as torchrun by Slurm, is nearer to the process, and stands before it.
"""

from __future__ import annotations

import os
import re

from alignup.errors import InputError
from alignup.host.proc_files import PARENT, PROC, stat_fields
from alignup.machine.cpuset import CPUSet
from alignup.records import Record
from alignup.text.digits import read_number

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

_COUNTS: Final = r"[0-9]{1,6}(\(x[1-9][0-9]{0,5}\))?"
_PARTS_AT_MOST: Final = 999_999
_SLURM_NODE: Final = "SLURM_NODEID"
_FLUX_NODES: Final = "FLUX_JOB_NNODES"
# PRRTE's prterun sets this one, and none that counts the ranks of a machine (3.0.14).
_PMIX_RANK: Final = "PMIX_RANK"
_TORCHRUN_RANK: Final = "LOCAL_RANK"
# Programs of PyTorch are told so that they are no rank of a launcher.
_NO_RANK: Final = "-1"
# What torchrun counts over all machines: ranks, and the torchruns that start them.
_TORCHRUN_COUNTS: Final = ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


class Launcher(Record):
    """A program that starts ranks, and the variables in which it counts those of one machine.

    Attributes:
        sizes: those that say how many ranks there are, the first that is set counts.
        world: those of the rank among all ranks of the job, on all machines, and of their number;
            empty: not known here.
        unbind: the option by which it leaves ranks unbound; empty: it binds none.
        granted: the variable that says how many CPUs it gave to all ranks of the machine; empty:
            none does.
    """

    name: str
    rank: str
    sizes: tuple[str, ...]
    unbind: str = ""
    granted: str = ""
    world: tuple[str, str] = ("", "")


LAUNCHERS: Final = (
    Launcher(
        "torchrun, Ray Train, Accelerate",
        _TORCHRUN_RANK,
        ("LOCAL_WORLD_SIZE",),
        world=("RANK", "WORLD_SIZE"),
    ),
    Launcher(
        "DeepSpeed",
        _TORCHRUN_RANK,
        ("LOCAL_SIZE",),
        "deepspeed without --bind_cores_to_rank",
        world=("RANK", "WORLD_SIZE"),
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        "mpirun --bind-to none",
        world=("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ),
    Launcher(
        "MPICH, Intel MPI",
        "MPI_LOCALRANKID",
        ("MPI_LOCALNRANKS",),
        "mpiexec -bind-to none (Intel MPI: I_MPI_PIN=0)",
        world=("PMI_RANK", "PMI_SIZE"),
    ),
    Launcher(
        "MVAPICH 2",
        "MV2_COMM_WORLD_LOCAL_RANK",
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
        "MV2_ENABLE_AFFINITY=0",
        world=("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ),
    Launcher(
        "MVAPICH",
        "MVP_COMM_WORLD_LOCAL_RANK",
        ("MVP_COMM_WORLD_LOCAL_SIZE",),
        "MVP_ENABLE_AFFINITY=0",
        world=("MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"),
    ),
    Launcher(
        "PALS",
        "PALS_LOCAL_RANKID",
        ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
        "mpiexec --cpu-bind none",
    ),
    Launcher("Cray PMI", "PMI_LOCAL_RANK", ("PMI_LOCAL_SIZE",), "srun --cpu-bind=none"),
    Launcher(
        "Flux",
        "FLUX_TASK_LOCAL_ID",
        ("FLUX_JOB_SIZE",),
        "flux run -o cpu-affinity=off",
        world=("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ),
    Launcher(
        "Slurm",
        "SLURM_LOCALID",
        ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"),
        "srun --cpu-bind=none",
        "SLURM_CPUS_ON_NODE",
        world=("SLURM_PROCID", "SLURM_NTASKS"),
    ),
)


class LocalRank(Record):
    """Which of how many ranks of this machine a process is, by the word of a launcher.

    Attributes:
        rank: counted from 0.
    """

    rank: int
    ranks: int
    launcher: Launcher

    def binding(self) -> str:
        """Return in words that the launcher has bound this process to some CPUs only.

        Return nothing if they are not fewer than its parent has.
        """
        try:
            own_cpus = os.sched_getaffinity(0)
            parent_cpus = os.sched_getaffinity(os.getppid())
        except OSError:
            return ""

        if not self.launcher.unbind or not own_cpus < parent_cpus:
            return ""

        # where the rank has all that the launcher gave, no option of it gives more
        granted = os.environ.get(self.launcher.granted, "")
        if granted == str(len(own_cpus)):
            return ""

        neighbour = _unbound_sibling(self.launcher.rank, parent_cpus)
        but = (
            f", but not process {neighbour}, whose part may have the same CPUs" if neighbour else ""
        )
        return (
            f"{self.launcher.name} has bound this rank to CPUs {CPUSet(own_cpus)} of "
            f"{CPUSet(parent_cpus)}, of which parts are cut{but}: start the ranks with "
            f"{self.launcher.unbind}"
        )

    def by_world(self, environment: Mapping[str, str]) -> LocalRank:
        """Return the rank by the order of the whole job, which can be another than the launcher's.

        Open MPI 5 counts the ranks of a machine over its NUMA nodes in turn where it maps them by
        NUMA node, so that ranks 0 and 1 of the world are 0 and 2 here. Where all ranks are on this
        machine, the order of the world is known.

        Raises:
            InputError: the launcher does not tell it, or some ranks are on other machines.
        """
        rank_name, size_name = self.launcher.world
        if not rank_name or not environment.get(rank_name) or not environment.get(size_name):
            raise InputError(
                f"{self.launcher.name} does not say in the environment which rank of the job this "
                "is: pass the part, such as the rank of MPI_Comm_split_type"
            )

        rank = _number(environment, rank_name)
        ranks = _number(environment, size_name)
        if ranks != self.ranks:
            raise InputError(
                f"of the {ranks} ranks that {size_name} counts {self.ranks} are on this machine, "
                "and nothing says which: pass the part, such as the rank of MPI_Comm_split_type"
            )
        if rank >= ranks:
            raise InputError.at(rank_name, f"a rank below {ranks}, as {size_name} says", rank)

        return LocalRank(rank, ranks, self.launcher)


def _unbound_sibling(variable: str, parent_cpus: set[int]) -> int:
    """Return a process with the same parent that is a rank and has all CPUs of the parent; 0: none.

    MPICH's hydra leaves ranks beyond the user's list of CPUs unbound.
    """
    parent = os.getppid()
    marker = f"{variable}=".encode()
    try:
        names = [entry.name for entry in os.scandir(PROC) if entry.name.isdigit()]
    except OSError:
        return 0

    for name in names:
        process = int(name)
        if process == os.getpid():
            continue

        try:
            fields = stat_fields(process)
            if fields is None or int(fields[PARENT]) != parent:
                continue

            variables = _contents(f"{PROC}/{name}/environ").split(b"\0")
            is_rank = any(entry.startswith(marker) for entry in variables)
            if is_rank and os.sched_getaffinity(process) >= parent_cpus:
                return process
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or is somebody else's

    return 0


def _contents(path: str) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY), "rb") as file:
        return file.read()


def local_rank(environment: Mapping[str, str]) -> LocalRank:
    """Return which of how many ranks of this machine the process of an environment is.

    Raises:
        InputError: no launcher says so, what one says makes no sense, or a nearer one says another
            rank, and not of how many.
    """
    without_size: list[Launcher] = []
    for launcher in LAUNCHERS:
        size = next((name for name in launcher.sizes if environment.get(name)), None)
        if environment.get(launcher.rank) and size is not None:
            rank = _number(environment, launcher.rank)
            _check_nearer(environment, without_size, launcher, rank)
            ranks = _ranks(environment, size)
            if launcher.rank == _TORCHRUN_RANK and _may_be_virtual(environment, rank, ranks):
                rank = _torchrun_rank(environment, ranks)
            if not rank < ranks <= _PARTS_AT_MOST:
                raise InputError.at(launcher.rank, f"a rank below {ranks}, as {size} says", rank)

            return LocalRank(rank, ranks, launcher)
        if environment.get(launcher.rank, _NO_RANK) not in {"", _NO_RANK}:
            without_size.append(launcher)

    if environment.get(_PMIX_RANK):
        raise InputError(
            f"{_PMIX_RANK} counts the ranks of all machines, and no launcher says which rank of "
            "this one this process is: start the ranks with prterun --personality ompi"
        )

    variables = "; ".join(
        f"{launcher.name}: {launcher.rank} with {' or '.join(launcher.sizes)}"
        for launcher in LAUNCHERS
    )
    raise InputError(
        f"no launcher says which rank of this machine this process is (looked for {variables})"
    )


def _check_nearer(
    environment: Mapping[str, str], nearer: list[Launcher], launcher: Launcher, rank: int
) -> None:
    """Refuse the rank of a launcher where a nearer one says another, and not of how many.

    All ranks that the nearer one has started would be the same one here.
    """
    others = [other for other in nearer if other.rank != launcher.rank]
    for other in others:
        if _number(environment, other.rank) != rank:
            sizes = dict.fromkeys(
                name for same in others if same.rank == other.rank for name in same.sizes
            )
            raise InputError(
                f"{other.rank}={environment[other.rank]} is not the rank that {launcher.rank}="
                f"{environment[launcher.rank]} of {launcher.name} says, and {' or '.join(sizes)}, "
                f"of how many, is missing: set it, or unset {other.rank}, or pass the part"
            )


def _may_be_virtual(environment: Mapping[str, str], rank: int, ranks: int) -> bool:
    """Whether a local rank of 0 can be that of every rank here.

    torchrun's `--virtual-local-rank` says 0 to each rank, and shows each of them one GPU only
    (PyTorch 2.15.0, `_set_local_rank_env`).
    """
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "")
    counts = all(environment.get(name) for name in _TORCHRUN_COUNTS)
    return rank == 0 and ranks > 1 and gpus != "" and "," not in gpus and counts


def _torchrun_rank(environment: Mapping[str, str], ranks: int) -> int:
    """Return the rank on this machine by the rank of the whole job.

    Raises:
        InputError: the machines have other numbers of ranks than this one.
    """
    rank, world, group, groups = (_number(environment, name) for name in _TORCHRUN_COUNTS)
    if world != groups * ranks:
        raise InputError(
            f"each of the {ranks} ranks of this machine may have LOCAL_RANK=0, as by torchrun's "
            f"--virtual-local-rank, and {world} ranks on {groups} machines are not as many on "
            "each: start the ranks with torchrun without --virtual-local-rank, or pass the part"
        )
    if not 0 <= rank - group * ranks < ranks:
        raise InputError.at("RANK", f"a rank of machine {group}, as GROUP_RANK says", rank)

    return rank - group * ranks


def _ranks(environment: Mapping[str, str], name: str) -> int:
    """Return how many ranks of this machine a variable tells of.

    Slurm lists the tasks of all nodes, as in `4(x2),3`; Flux tells how many there are on all nodes
    together.
    """
    if name.startswith("FLUX"):
        ranks = _number(environment, name)
        nodes = _number(environment, _FLUX_NODES)
        if not nodes or ranks % nodes:
            raise InputError.at(
                name, f"as many ranks on each of the {nodes} nodes of {_FLUX_NODES}", ranks
            )

        return ranks // nodes

    text = environment[name]
    if not name.startswith("SLURM"):
        return _number(environment, name)
    if not re.fullmatch(f"{_COUNTS}(,{_COUNTS})*", text):
        raise InputError.at(name, "numbers of tasks such as 4(x2),3", text)

    node = _number(environment, _SLURM_NODE) if "," in text else 0
    for part in text.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        node_count = int(times or 1)
        if node < node_count:
            return int(count)
        node -= node_count

    raise InputError.at(_SLURM_NODE, f"a node that {name} ({text}) lists", environment[_SLURM_NODE])


def _number(environment: Mapping[str, str], name: str) -> int:
    return read_number(environment.get(name, ""), name, _PARTS_AT_MOST)
