"""What one node of a board answers: whether a pod is admitted, why not, and where it goes."""

from __future__ import annotations

import numpy as np

from alignup.core.amounts.board import Board, Job
from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger
from alignup.providers.cpu.topology import cpu_topology
from inputs.boards import (
    BEST_EFFORT,
    NONE,
    RESTRICTED,
    SINGLE,
    answers,
    asking,
    cpus,
    full_row,
    judged,
    row,
)
from inputs.cpu_machines import grid

ADMITTED, TOPOLOGY, UNEXPECTED, SMT = range(4)


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


def test_each_refusal_has_its_reason():
    """No place that the policy allows, too little anywhere, and cores that would be cut in two."""
    whole_cores = CpuLedger(CpuCapacity(cpu_topology(grid(2, 2, smt=2)), 0, full_pcpus_only=True))
    for node, requests, reason in (
        (full_row(SINGLE), asking(6), TOPOLOGY),
        (full_row(NONE), asking(9), UNEXPECTED),
        (full_row(RESTRICTED), asking(0, 201), UNEXPECTED),
        (row(policy=BEST_EFFORT, cpu=whole_cores), asking(3), SMT),
        (row(policy=BEST_EFFORT, cpu=whole_cores), asking(2), ADMITTED),
    ):
        board = Board([node])
        assert judged(board, Job(board, requests))[0][:2] == (reason == ADMITTED, reason)


def test_in_pod_scope_all_containers_have_one_place():
    """Two containers of 3 CPUs fit on a NUMA node of 4 each, and not on one together."""
    rows = [row(policy=SINGLE, cpu=cpus(4, 4), pod_scope=pod_scope) for pod_scope in (False, True)]
    board = Board(rows)
    verdicts = judged(board, Job(board, asking(3, containers=2)))

    assert [verdict[:3] for verdict in verdicts] == [(1, ADMITTED, 0b11), (0, TOPOLOGY, 0)]


def test_an_init_container_hands_on_what_it_had():
    """Of 4 CPUs it has 3, and so does the container after it; a sidecar keeps its own."""
    for is_reusable, verdict in ((True, (1, ADMITTED)), (False, (0, UNEXPECTED))):
        topology = cpu_topology(grid(1, 2, smt=2))
        board = Board([row(1, NONE, cpu=CpuLedger(CpuCapacity(topology, 0)))])
        requests = [(3, (), (), False), (3, (), (), is_reusable), (3, (), (), False)]
        assert judged(board, Job(board, requests))[0][:2] == verdict


def test_a_node_that_nothing_here_can_judge_is_left_open():
    """Its answer is not exact; the others are judged all the same."""
    board = Board([full_row(), row(cpu=cpus(4, 4), needs_node=True), full_row()])
    results = answers(3)
    board.judge(Job(board, asking(2)), 0, 0, 3, None, *results)

    assert results[5].tolist() == [1, 0, 1]
    assert [results[0][index] for index in (0, 2)] == [1, 1]


def test_amounts_alone_admit_without_certainty():
    """A node of which only an upper bound is known may refuse what fits these amounts."""
    board = Board([row(cpu=cpus(4, 4), upper_bound=is_bound) for is_bound in (False, True)])
    verdicts = judged(board, Job(board, asking(2)))

    assert [(verdict[0], verdict[5]) for verdict in verdicts] == [(1, 1), (1, 0)]
