"""How good a placement is, by each strategy."""

from __future__ import annotations

import pytest

from alignup.core.amounts.board import Board, Distances, Job
from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger
from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from inputs.boards import (
    BEST_EFFORT,
    NEAR,
    NONE,
    asking,
    cpus,
    full_row,
    judged,
    memory,
    row,
)

LEAST_NUMA_NODES, LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION, DOCUMENT = range(5)


@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        (LEAST_NUMA_NODES, 100 - 12 + 6),
        (LEAST_ALLOCATED, 100 * (0.5 + 0.9 + 0.5) / 3),
        (MOST_ALLOCATED, 100 * (0.5 + 0.1 + 0.5) / 3),
        (BALANCED_ALLOCATION, 100 * (1 - (2 * (0.4 / 3) ** 2 + (0.8 / 3) ** 2) / 2)),
        (DOCUMENT, 100 - 10 + 10 * (0.5 + 0.1 + 0.5) / 3),
    ],
)
def test_each_strategy_by_hand(strategy, score):
    """2 of 4 CPUs, a tenth of the memory and 1 of 2 GPUs of one NUMA node, which is the nearest."""
    board = Board([full_row()])
    assert judged(board, Job(board, asking(2, 10, 1)), strategy)[0][4] == pytest.approx(score)


@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        (LEAST_NUMA_NODES, 100 - 24 + 6),
        (LEAST_ALLOCATED, 25),
        (MOST_ALLOCATED, 75),
        (BALANCED_ALLOCATION, 100),
        (DOCUMENT, 100 - 20 + 10 * (1 + 6) / 9),
    ],
)
def test_only_what_is_asked_for_counts(strategy, score):
    """6 CPUs of two NUMA nodes on which 8 of 9 are free.

    Only the design document's formula counts what others have.
    """
    in_use = CpuLedger.from_counts(CpuCapacity.from_counts([5, 4], [5, 4]), [4, 4])
    board = Board([row(policy=BEST_EFFORT, cpu=in_use, memory=memory(), distances=NEAR)])
    assert judged(board, Job(board, asking(6)), strategy)[0][4] == pytest.approx(score)


@pytest.mark.parametrize("strategy", range(5))
def test_a_pod_that_asks_for_nothing_has_the_highest_score(strategy):
    board = Board([full_row()])
    assert judged(board, Job(board, asking(0)), strategy)[0][4] == 100


@pytest.mark.parametrize(("counts", "score"), [((4, 4, 1), 76), ((1, 4, 4), 82)])
def test_half_a_node_is_given_back_where_no_set_of_that_size_is_nearer(counts, score):
    """The second and third node are the nearest pair."""
    distances = Distances(((10, 30, 30), (30, 10, 20), (30, 20, 10)))
    board = Board([row(3, BEST_EFFORT, cpu=cpus(*counts), distances=distances)])
    assert judged(board, Job(board, asking(8)))[0][4] == score


def test_the_score_of_a_placement_is_that_of_judging():
    for policy in (NONE, BEST_EFFORT):
        board = Board([full_row(policy)])
        for requests in (asking(2, 10, 1), asking(6, 10), asking(1)):
            job = Job(board, requests)
            for strategy in range(5):
                got = judged(board, job, strategy)[0]
                hint = None if policy == NONE else got[2]
                assert board.score(job, 0, strategy, [hint]) == pytest.approx(got[4])


def test_where_a_pod_may_be_anywhere_devices_near_to_no_node_count_in_the_score():
    """It may get these as well: one of four devices is a quarter of what is free."""
    one_has_a_node = DeviceLedger(DeviceInventory(2, [1, None, None, None], 0b1111, 4))
    board = Board([row(policy=NONE, devices={"gpu": one_has_a_node})])
    assert judged(board, Job(board, asking(gpus=1)), MOST_ALLOCATED)[0][4] == pytest.approx(25)
