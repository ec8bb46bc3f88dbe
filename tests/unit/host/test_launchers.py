"""The variables of launchers."""

from __future__ import annotations

import os

import pytest

from alignup.errors import InputError
from alignup.host.launchers import LAUNCHERS, local_rank


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
        ({"PMIX_LOCAL_RANK": "5", "PMIX_LOCAL_SIZE": "12"}, (5, 12)),
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
        # half an environment is none
        ({"LOCAL_RANK": "7", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, (1, 4)),
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
        ({"LOCAL_RANK": "x", "LOCAL_WORLD_SIZE": "8"}, "a number, got 'x' at LOCAL_RANK"),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "9" * 7}, "a number"),
        (
            {"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "4(2)"},
            r"numbers of tasks such as 4\(x2\),3",
        ),
        ({"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "4,3"}, "a number, got '' at SLURM_NODEID"),
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
