"""How good a placement is, by each strategy."""

from __future__ import annotations

import pytest

from alignup.core.amounts.board import Board, Distances, Job
from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from inputs.boards import (
    BEST_EFFORT,
    NONE,
    asking,
    cpus,
    full_row,
    judged,
    row,
)


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
    most_allocated = 2
    assert judged(board, Job(board, asking(gpus=1)), most_allocated)[0][4] == pytest.approx(25)
