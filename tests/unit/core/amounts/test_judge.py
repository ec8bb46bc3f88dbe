"""What one node of a board answers: whether a pod is admitted, why not, and where it goes."""

from __future__ import annotations

import numpy as np

from alignup.core.amounts.board import Board, Job
from inputs.boards import (
    BEST_EFFORT,
    NONE,
    RESTRICTED,
    SINGLE,
    asking,
    full_row,
    judged,
)


def test_every_policy():
    """One NUMA node where it suffices; two where the policy lets it be.

    Policy none knows no place.
    """
    board = Board([full_row(policy) for policy in (NONE, BEST_EFFORT, RESTRICTED, SINGLE)])
    small = judged(board, Job(board, asking(2, 10, 1)))
    assert [verdict[:4] for verdict in small] == [(1, 0, 0, 0), *[(1, 0, 1, 1)] * 3]
    large = judged(board, Job(board, asking(6, 10, 1)))
    assert [verdict[:3] for verdict in large] == [(1, 0, 0), (1, 0, 3), (0, 1, 0), (0, 1, 0)]
    assert [verdict[4] == -np.inf for verdict in large] == [False, False, True, True]
    assert all(verdict[5] for verdict in small + large)


def test_a_policy_that_the_pod_brings():
    """It is the pod's where the node has none, and refused where the node has another."""
    board = Board([full_row(NONE), full_row(RESTRICTED), full_row(SINGLE)])
    got = judged(board, Job(board, asking(2), SINGLE))
    assert [verdict[:3] for verdict in got] == [(1, 0, 1), (0, 4, 0), (1, 0, 1)]


def test_containers_follow_each_other():
    """What one takes another cannot have, unless it is handed on; nothing of it stays."""
    board = Board([full_row()])
    assert judged(board, Job(board, asking(3, containers=2)))[0][:3] == (1, 0, 3)
    assert judged(board, Job(board, asking(3, containers=3)))[0][0] == 0
    assert judged(board, Job(board, asking(0, 60, containers=3)))[0][0] == 0
    assert judged(board, Job(board, asking(gpus=2, containers=2)))[0][:3] == (1, 0, 3)
    assert board.parts[0].cpu.free_by_node() == (4, 4)
    assert board.parts[0].memory.free == {"memory": (100, 100)}
    assert judged(board, Job(board, asking(1, containers=8)))[0][0] == 1


def test_requests_as_large_as_you_like():
    """They are refused, and do not overflow."""
    board = Board([full_row(), full_row(NONE)])
    for requests in (asking(1 << 90), asking(0, 1 << 90), asking(gpus=1 << 90)):
        assert [verdict[0] for verdict in judged(board, Job(board, requests))] == [0, 0]
    many = asking(0, 1, containers=2000)
    assert [verdict[0] for verdict in judged(board, Job(board, many))] == [0, 0]
