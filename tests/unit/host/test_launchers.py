"""The variables of launchers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.host.launchers import LAUNCHERS, local_rank

RECORDED = Path(__file__).parents[2] / "recorded" / "launchers"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, (0, 1)),
        ({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, (1, 4)),
        ({"MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "4"}, (1, 4)),
        ({"MVP_COMM_WORLD_LOCAL_RANK": "1", "MVP_COMM_WORLD_LOCAL_SIZE": "4"}, (1, 4)),
        ({"PALS_LOCAL_RANKID": "5", "PALS_LOCAL_SIZE": "12"}, (5, 12)),
        ({"PALS_LOCAL_RANKID": "5", "PMI_LOCAL_SIZE": "12"}, (5, 12)),
        ({"PMI_LOCAL_RANK": "5", "PMI_LOCAL_SIZE": "12"}, (5, 12)),
        ({"FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_SIZE": "8", "FLUX_JOB_NNODES": "2"}, (1, 4)),
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2"}, (1, 2)),
        ({"SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4(x2)"}, (1, 4)),
        ({"SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "1"}, (1, 4)),
        ({"SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"}, (1, 3)),
        # the step's tasks, not the job's
        (
            {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_TASKS_PER_NODE": "8"},
            (1, 2),
        ),
        # torchrun in a job of Slurm, and mpirun in one
        (
            {
                "SLURM_LOCALID": "0",
                "SLURM_TASKS_PER_NODE": "1",
                "LOCAL_RANK": "3",
                "LOCAL_WORLD_SIZE": "8",
            },
            (3, 8),
        ),
        (
            {
                "SLURM_LOCALID": "0",
                "SLURM_TASKS_PER_NODE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "3",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            (3, 4),
        ),
        # one task of Slurm that is DeepSpeed's launcher, which sets no LOCAL_WORLD_SIZE
        (
            {
                "SLURM_LOCALID": "0",
                "SLURM_STEP_TASKS_PER_NODE": "1",
                "LOCAL_RANK": "3",
                "LOCAL_SIZE": "8",
                "RANK": "3",
                "WORLD_SIZE": "8",
            },
            (3, 8),
        ),
        # half an environment is none where it says nothing else, as by a script of the user's
        ({"LOCAL_RANK": "1", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, (1, 4)),
        ({"LOCAL_RANK": "", "SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4"}, (1, 4)),
        # no rank of PyTorch's
        ({"LOCAL_RANK": "-1", "SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4"}, (1, 4)),
        ({"LOCAL_WORLD_SIZE": "8", "SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4"}, (1, 4)),
        # what is farther away than the launcher that counts
        (
            {
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "SLURM_LOCALID": "2",
            },
            (0, 4),
        ),
        # PALS has two names for the number
        ({"LOCAL_RANK": "0", "PALS_LOCAL_RANKID": "0", "PMI_LOCAL_SIZE": "2"}, (0, 2)),
    ],
)
def test_a_rank_is_told_by_its_launcher(environment, expected):
    launched = local_rank(environment)
    assert (launched.rank, launched.ranks) == expected


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (
            {"LOCAL_RANK": "8", "LOCAL_WORLD_SIZE": "8"},
            "a rank below 8, as LOCAL_WORLD_SIZE says, got 8 at LOCAL_RANK",
        ),
        (
            {"LOCAL_RANK": "x", "LOCAL_WORLD_SIZE": "8"},
            "a whole number of at most 999999, got 'x' at LOCAL_RANK",
        ),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "9" * 7}, "a whole number of at most 999999"),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "9" * 5000}, "a whole number of at most 999999"),
        (
            # digits of another script
            {"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "\u0663"},
            "numbers of tasks such as",
        ),
        ({"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "4(x0)"}, "numbers of tasks such as"),
        (
            {"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "4(2)"},
            r"numbers of tasks such as 4\(x2\),3",
        ),
        (
            {"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "4,3"},
            "number of at most 999999, got '' at SLURM_NODEID",
        ),
        # the ranks of a launcher in one task of Slurm, of which each would be that task
        (
            {"LOCAL_RANK": "3", "SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "1"},
            "and LOCAL_WORLD_SIZE or LOCAL_SIZE, of how many, is missing: set it, or unset LOCAL_R",
        ),
        (
            {"LOCAL_RANK": "7", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"},
            "LOCAL_RANK=7 is not the rank that MPI_LOCALRANKID=1 of MPICH, Intel MPI says",
        ),
        (
            {
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "SLURM_LOCALID": "0",
                "SLURM_TASKS_PER_NODE": "1",
            },
            "and OMPI_COMM_WORLD_LOCAL_SIZE, of how many, is missing",
        ),
        (
            {"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "4,3", "SLURM_NODEID": "2"},
            "a node that SLURM_TASKS",
        ),
        (
            {"FLUX_TASK_LOCAL_ID": "0", "FLUX_JOB_SIZE": "3", "FLUX_JOB_NNODES": "2"},
            "as many ranks on each of",
        ),
    ],
)
def test_what_makes_no_sense_is_an_error_that_names_the_variable(environment, reason):
    with pytest.raises(InputError, match=reason):
        local_rank(environment)


def test_prterun_alone_counts_no_ranks_of_a_machine():
    """It sets PMIX_RANK, and with a personality what Open MPI sets: see tests/recorded."""
    with pytest.raises(InputError, match="start the ranks with prterun --personality ompi"):
        local_rank({"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-host-1@1"})


def recorded(name: str) -> dict[str, list[str]]:
    """Return what a file has below each command, with the file's release in its name."""
    sections: dict[str, list[str]] = {}
    for line in (RECORDED / name).read_text().splitlines():
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
        sections.setdefault(command, []).append(line)

    return {command: lines[1:] for command, lines in sections.items()}


@pytest.mark.parametrize(
    ("name", "command", "launcher"),
    [
        ("openmpi-4.1.4-variables.txt", "orterun -n 2", "Open MPI"),
        ("openmpi-5.0.11-variables.txt", "mpirun -n 2", "Open MPI"),
        ("openmpi-5.0.11-variables.txt", "prterun --personality ompi -n 2", "Open MPI"),
        ("mpich-5.0.2-variables.txt", "mpiexec.hydra -n 2", "MPICH, Intel MPI"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_what_launchers_were_seen_to_set_is_read(name, command, launcher, rank):
    environment = {}
    for line in recorded(name)[command]:
        variable, _, value = line.partition("=")
        if not variable.endswith(("RANK", "RANKID")) or value == str(rank):
            environment[variable] = value

    local = local_rank(environment)
    assert (local.rank, local.ranks, local.launcher.name) == (rank, 2, launcher)
    assert local.by_world(environment).rank == rank


def torchrun_ranks(options: str) -> list[dict[str, str]]:
    """Return the environment of each rank that torchrun was seen to start, in their order."""
    lines = recorded("torchrun-2.15.0.txt")[f"torchrun {options}"]
    return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines]


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ("--nproc-per-node 1", 1),
        ("--nproc-per-node 2", 2),
        # it says LOCAL_RANK=0 to each of them
        ("--nproc-per-node 2 --virtual-local-rank", 2),
        ("--nproc-per-node auto # on one CPU", 1),
    ],
)
def test_what_torchrun_was_seen_to_set_is_read(options, ranks):
    environments = torchrun_ranks(options)
    for rank, environment in enumerate(environments):
        for local in (local_rank(environment), local_rank(environment).by_world(environment)):
            assert (local.rank, local.ranks) == (rank, ranks)
            assert local.launcher.name.startswith("torchrun")
    assert len(environments) == ranks


def torchrun_environment(rank: int, group_sizes: list[int], is_virtual: bool) -> dict[str, str]:
    """Return what torchrun says to a rank of the job: of each group one torchrun starts the ranks.

    By `_set_local_rank_env` and the counting of global ranks in PyTorch 2.15.0.
    """
    group, base = 0, 0
    while rank >= base + group_sizes[group]:
        base += group_sizes[group]
        group += 1

    return {
        "LOCAL_RANK": "0" if is_virtual else str(rank - base),
        "LOCAL_WORLD_SIZE": str(group_sizes[group]),
        "RANK": str(rank),
        "WORLD_SIZE": str(sum(group_sizes)),
        "GROUP_RANK": str(group),
        "GROUP_WORLD_SIZE": str(len(group_sizes)),
        **({"CUDA_VISIBLE_DEVICES": str(rank - base)} if is_virtual else {}),
    }


@given(
    groups=st.integers(1, 5),
    size=st.integers(1, 9),
    is_virtual=st.booleans(),
    gpus=st.sampled_from([{}, *({"CUDA_VISIBLE_DEVICES": text} for text in ("0,1", "3", ""))]),
)
def test_ranks_of_torchrun_are_all_of_those_on_a_machine(groups, size, is_virtual, gpus):
    for group in range(groups):
        ranks = range(group * size, (group + 1) * size)
        environments = [torchrun_environment(rank, [size] * groups, is_virtual) for rank in ranks]
        if not is_virtual:
            environments = [{**environment, **gpus} for environment in environments]
        local_ranks = [local_rank(environment) for environment in environments]
        assert [(local.rank, local.ranks) for local in local_ranks] == [
            (rank, size) for rank in range(size)
        ]


@given(group_sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_a_local_rank_of_torchrun_that_is_not_virtual_is_taken_as_it_is(group_sizes):
    for rank in range(sum(group_sizes)):
        environment = torchrun_environment(rank, group_sizes, is_virtual=False)
        local = local_rank(environment)
        assert (local.rank, local.ranks) == (
            int(environment["LOCAL_RANK"]),
            int(environment["LOCAL_WORLD_SIZE"]),
        )


def test_virtual_local_ranks_on_machines_of_other_sizes_are_not_guessed():
    environment = torchrun_environment(4, [3, 2], is_virtual=True)
    with pytest.raises(InputError, match="torchrun without --virtual-local-rank"):
        local_rank(environment)


def test_a_rank_of_torchrun_that_is_of_another_machine_is_an_error():
    environment = torchrun_environment(1, [2, 2], is_virtual=True)
    with pytest.raises(InputError, match="a rank of machine 1, as GROUP_RANK says"):
        local_rank({**environment, "GROUP_RANK": "1"})


def test_what_prterun_was_seen_to_set_is_not_enough():
    environment = dict(
        line.split("=") for line in recorded("openmpi-5.0.11-variables.txt")["prterun -n 2"]
    )
    with pytest.raises(InputError, match="prterun --personality ompi"):
        local_rank(environment)


def test_open_mpi_4_maps_as_the_page_says():
    """Local ranks are in the order of the world, however they are mapped."""
    machine = "pack:2 [numa(memory=64GiB)] l3:1(size=32MiB) core:4 pu:2"
    bindings = {
        command.removesuffix(f" # {machine}"): [line.rpartition(" ")[2] for line in lines]
        for command, lines in recorded("openmpi-4.1.4-mapping.txt").items()
    }
    for lines in recorded("openmpi-4.1.4-mapping.txt").values():
        ranks = [line.partition(",")[0] for line in lines if line != "an error"]
        assert ranks == [f"rank {rank}: local rank {rank}" for rank in range(len(ranks))]

    sockets = ["[BB/BB/BB/BB][../../../..]", "[../../../..][BB/BB/BB/BB]"]
    assert bindings["mpirun -n 2"] == ["[BB/../../..][../../../..]", "[../BB/../..][../../../..]"]
    for options in ("", "--map-by slot ", "--map-by node ", "--map-by numa ", "--map-by socket "):
        assert bindings[f"mpirun {options}-n 4"] == sockets * 2
    assert bindings["mpirun --map-by core:pe=2 -n 4"] == ["error"]
    assert bindings["mpirun --oversubscribe -n 9"] == ["UNBOUND"] * 9

    # neighbours are on the two threads of a core
    assert bindings["mpirun --bind-to hwthread -n 2"] == [
        "[B./../../..][../../../..]",
        "[.B/../../..][../../../..]",
    ]
    ordered = bindings["mpirun --cpu-list 4,5,6,7 --bind-to cpu-list:ordered -n 4"]
    assert ordered == [
        "[../../../..][B./../../..]",
        "[../../../..][.B/../../..]",
        "[../../../..][../B./../..]",
        "[../../../..][../.B/../..]",
    ]

    far_memory = recorded("openmpi-4.1.4-mapping.txt")[
        f"mpirun --map-by numa -n 4 # [numa(memory=512GiB)] {machine}"
    ]
    assert far_memory[2] == "rank 2: local rank 2, all CPUs"


def test_local_ranks_of_open_mpi_5_are_not_in_the_order_of_the_world():
    """The page says so; `order="world"` is for them."""
    machine = "pack:2 [numa(memory=64GiB)] l3:1(size=32MiB) core:4 pu:2"
    mappings = recorded("openmpi-5.0.11-mapping.txt")
    orders = {}
    for options in (
        "-n 4",
        "--map-by numa -n 4",
        "--map-by package -n 4",
        "--map-by ppr:2:numa -n 4",
    ):
        lines = mappings[f"mpirun {options} # {machine}"]
        orders[options] = [int(re.search(r"local rank (\d)", line)[1]) for line in lines]

    assert orders == {
        "-n 4": [0, 1, 2, 3],
        "--map-by numa -n 4": [0, 2, 1, 3],
        "--map-by package -n 4": [0, 2, 1, 3],
        "--map-by ppr:2:numa -n 4": [0, 1, 2, 3],
    }


@pytest.mark.parametrize(
    "environment",
    [
        {
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            "OMPI_COMM_WORLD_RANK": "2",
            "OMPI_COMM_WORLD_SIZE": "4",
        },
        {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "PMI_RANK": "2", "PMI_SIZE": "4"},
        {
            "SLURM_LOCALID": "1",
            "SLURM_TASKS_PER_NODE": "4",
            "SLURM_PROCID": "2",
            "SLURM_NTASKS": "4",
        },
        {
            "FLUX_TASK_LOCAL_ID": "1",
            "FLUX_JOB_SIZE": "4",
            "FLUX_JOB_NNODES": "1",
            "FLUX_TASK_RANK": "2",
        },
    ],
)
def test_the_order_of_the_world_is_known_where_all_ranks_are_on_this_machine(environment):
    ordered = local_rank(environment).by_world(environment)
    assert (ordered.rank, ordered.ranks) == (2, 4)


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        ({}, "Open MPI does not say in the environment which rank of the job this is"),
        (
            {"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "8"},
            "of the 8 ranks that .* 4 are",
        ),
        ({"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "4"}, "a rank below 4"),
        (
            {"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "4"},
            "a whole number of at most 999999, got 'x'",
        ),
    ],
)
def test_the_order_of_the_world_is_not_guessed(world, reason):
    environment = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", **world}
    with pytest.raises(InputError, match=reason):
        local_rank(environment).by_world(environment)


def test_cray_pmi_tells_no_order_of_the_world():
    environment = {"PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4", "PMI_RANK": "1", "PMI_SIZE": "4"}
    with pytest.raises(InputError, match="Cray PMI does not say"):
        local_rank(environment).by_world(environment)


RANK = {"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("neighbour", "is_told"),
    [
        ({"MPI_LOCALRANKID": "1"}, True),
        # no rank, or one of another launcher
        ({}, False),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, False),
    ],
)
def test_a_rank_that_is_bound_while_its_neighbour_is_not_is_told_so(
    monkeypatch, neighbour, is_told
):
    """As the third of `mpiexec -bind-to user:0+2,1+3 -n 3` of MPICH 5.0.2."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0} if pid == 0 else {0, 1})
    monkeypatch.setattr(os, "getppid", os.getpid)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, env={**os.environ, **neighbour}) as process:  # noqa: S603
        try:
            message = local_rank(RANK).binding()
        finally:
            process.kill()

    assert (
        f"but not process {process.pid}, whose part may have the same CPUs" in message
    ) == is_told
    assert "start the ranks with mpiexec -bind-to none" in message


def test_an_unknown_launcher_is_told_what_was_looked_for():
    with pytest.raises(InputError, match="no launcher says which rank") as caught:
        local_rank({"MY_RANK": "1"})
    for launcher in LAUNCHERS:
        assert launcher.rank in str(caught.value)
        assert all(size in str(caught.value) for size in launcher.sizes)


@pytest.mark.parametrize(("granted", "is_told"), [("1", False), ("2", True), ("", True)])
def test_a_rank_that_has_all_that_slurm_granted_is_not_told_how_to_get_more(
    monkeypatch, granted, is_told
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3} if pid == 0 else {2, 3})
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", granted)
    message = local_rank({"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "2"}).binding()
    assert ("start the ranks with srun --cpu-bind=none" in message) is is_told
