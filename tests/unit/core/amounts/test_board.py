"""Rows, boards and jobs: what they answer together, and what they refuse.

Whole nodes are compared in the tests of clusters.
"""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

from alignup.core.amounts.board import LIMITS, Board, Distances, Job, Row
from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from inputs.boards import (
    BEST_EFFORT,
    NONE,
    SINGLE,
    answers,
    asking,
    cpus,
    devices,
    full_row,
    judged,
    memory,
    row,
)

ONE = (0, (), (), False)


def named(value) -> str:
    """Return a test's name, without addresses, which differ between the processes of one run."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


def test_some_nodes_only():
    """Their answers are written in their places, and no others."""
    board = Board([full_row() for _ in range(5)])
    job = Job(board, asking(1))
    got = answers(5)
    board.judge(job, 0, 1, 3, np.array([4, 0, 3, 1]), *got)
    assert got[0].tolist() == [1, 0, 0, 1, 0]
    board.judge(job, 0, 2, 3, None, *got)
    assert got[0].tolist() == [1, 0, 1, 1, 0]
    before = [column.copy() for column in got]
    board.judge(job, 0, 3, 2, None, *got)
    assert all((column == previous).all() for column, previous in zip(got, before, strict=True))


def test_amounts_by_node():
    """A device near to several NUMA nodes counts at each; what a node does not have is 0."""
    near_both = DeviceLedger(DeviceInventory(2, [3, 1, None], 0b111, 3))
    board = Board([row(4, memory=memory(4)), row(cpu=cpus(3, 5), devices={"gpu": near_both})])
    assert (board.types, board.resources, len(board)) == (("memory",), ("gpu",), 2)
    for resource, expected in (
        ("gpu", [[0] * 4, [2, 1, 0, 0]]),
        ("cpu", [[0] * 4, [3, 5, 0, 0]]),
        ("memory", [[100] * 4, [0] * 4]),
        ("unheard", [[0] * 4, [0] * 4]),
    ):
        for allocatable in (False, True):
            out = np.zeros((2, 4), np.int64)
            board.free(resource, out, allocatable)
            assert out.tolist() == expected

    near_both.give(0b1)
    out = np.zeros((2, 4), np.int64)
    board.free("gpu", out)
    assert out.tolist() == [[0] * 4, [1, 0, 0, 0]]


def test_another_row_in_a_rows_place():
    """The old one may go; jobs made after it know new resources."""
    board = Board([full_row(), full_row()])
    board.replace(0, row(1, memory=memory(1, other=5), devices={"tpu": devices(1, (1,))}))
    gc.collect()
    assert board.types == ("memory", "other")
    assert board.resources == ("gpu", "tpu")
    job = Job(board, [(0, (("other", 5),), (("tpu", 1),), False)] * 2)
    assert [verdict[0] for verdict in judged(board, job)] == [1, 0]
    board.replace(0, full_row())
    assert [verdict[0] for verdict in judged(board, Job(board, asking(1)))] == [1, 1]


def test_nobody_takes_ledgers_away():
    """A board points to what is in its rows: nothing can be put into them or taken out."""
    inventory = {"gpu": devices()}
    node_row = row(devices=inventory)
    board = Board([node_row])
    inventory.clear()
    gc.collect()
    assert judged(board, Job(board, asking(gpus=2)))[0][:3] == (1, 0, 1)
    assert isinstance(board.parts, tuple)
    with pytest.raises(TypeError):
        node_row.devices["gpu"] = devices()
    for name in ("cpu", "memory", "distances"):
        with pytest.raises(AttributeError):
            setattr(node_row, name, None)


@pytest.mark.parametrize(
    "more",
    [
        {"nodes": 0},
        {"nodes": 65},
        {"nodes": 1 << 40},
        {"policy": 4},
        {"policy": -1},
        {"memory": memory(3)},
        {"cpu": cpus(1, 1, 1)},
        {"devices": {"gpu": devices(3)}},
        {"devices": {"gpu": None}},
        {"devices": {"gpu": memory()}},
        {"devices": None},
        {"memory": devices()},
        {"cpu": 3},
        {"distances": Distances(((10,),))},
        {"distances": ((10, 20), (20, 10))},
    ],
    ids=named,
)
def test_what_is_no_row(more):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        row(**more)


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ((1, 2),),
        (3,),
        ("a",),
        ((float("nan"),),),
        ((1 << 70,),),
        ((None,),),
        ((1,) * 65,) * 65,
        None,
        [[1]],
    ],
    ids=named,
)
def test_what_are_no_distances(rows):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        Distances(rows)


@pytest.mark.parametrize("rows", [[None], [3], [full_row(), None], None, 3], ids=named)
def test_what_are_no_rows(rows):
    with pytest.raises(TypeError):
        Board(rows)


def test_a_board_of_nothing():
    board = Board([])
    assert (len(board), board.types, board.resources, board.parts) == (0, (), (), ())
    assert judged(board, Job(board, asking(1, 1, 1))) == []
    with pytest.raises(IndexError):
        board.replace(0, full_row())


@pytest.mark.parametrize(
    ("index", "replacement"),
    [(1, full_row()), (-1, full_row()), (0, None), (0, 3), (1 << 70, full_row())],
    ids=named,
)
def test_what_cannot_be_replaced(index, replacement):
    board = Board([full_row()])
    with pytest.raises((IndexError, TypeError, OverflowError)):
        board.replace(index, replacement)
    assert judged(board, Job(board, asking(1)))[0][0] == 1


@pytest.mark.parametrize(
    "requests",
    [
        [],
        [ONE],
        [None, None],
        [ONE, (1, 2)],
        [ONE, (float("nan"), (), (), False)],
        [ONE, (-1, (), (), False)],
        [ONE, ("1", (), (), False)],
        [ONE, (0, (("memory", -5),), (), False)],
        [ONE, (0, (("memory", float("nan")),), (), False)],
        [ONE, (0, (("memory", 1),) * 2, (), False)],
        [ONE, (0, (("memory", 1),) * 100, (), False)],
        [ONE, (0, (), (("gpu", 1),) * 2, False)],
        [ONE, (0, (), (("gpu", 1),) * 100, False)],
        [ONE, (0, (), (("gpu", -1),), False)],
        [ONE, (0, tuple((str(number), 1) for number in range(LIMITS[0] + 1)), (), False)],
        [(-1, (), (), False), ONE],
        None,
        (ONE, ONE),
    ],
    ids=lambda requests: str(requests)[:60],
)
def test_what_no_pod_asks_for(requests):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        Job(Board([full_row()]), requests)


def test_more_resources_than_a_pod_may_ask_for():
    names = [str(number) for number in range(LIMITS[1] + 1)]
    board = Board([row(devices={name: devices() for name in names})])
    counts = tuple((name, 1) for name in names)
    with pytest.raises(ValueError, match="at most"):
        Job(board, [(0, (), counts, False)] * 2)
    assert judged(board, Job(board, [(0, (), counts[:-1], False)] * 2))[0][0] == 1


@pytest.mark.parametrize("policy", [-2, -(1 << 40), 4, 1 << 70])
def test_policies_that_are_none(policy):
    with pytest.raises((ValueError, OverflowError)):
        Job(Board([full_row()]), asking(1), policy)


def test_what_cannot_be_judged():
    """Jobs of other boards, nodes that are not there, unknown strategies, too small answers."""
    board, foreign = Board([full_row()]), Board([full_row()])
    job = Job(board, asking(1))
    for wrong in (Job(foreign, asking(1)), Job.__new__(Job)):
        with pytest.raises(ValueError, match="job of this board"):
            judged(board, wrong)

    for wrong in (None, 3):
        with pytest.raises(TypeError):
            judged(board, wrong)

    for start, stop, nodes in (
        (0, 2, None),
        (-1, 1, None),
        (0, 1, np.array([1])),
        (0, 1, np.array([-1])),
    ):
        with pytest.raises(IndexError):
            board.judge(job, 0, start, stop, nodes, *answers(1))

    for strategy in (-1, 5):
        with pytest.raises(ValueError, match="strategies"):
            judged(board, job, strategy)
        with pytest.raises(ValueError, match="strategies"):
            board.score(job, 0, strategy, [1])

    for place in range(6):
        right = answers(1)[place]
        for wrong in (
            right[:0],
            answers(2)[place],
            right.astype(np.complex128),
            right.reshape(1, 1),
            None,
            [0],
        ):
            results = answers(1)
            results[place] = wrong
            with pytest.raises((ValueError, TypeError)):
                board.judge(job, 0, 0, 1, None, *results)

    frozen = answers(1)
    frozen[0].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        board.judge(job, 0, 0, 1, None, *frozen)


@pytest.mark.parametrize(
    "hints", [[], [1, 1], [4], [-1], [1 << 40], [1 << 63], [1 << 70], ["a"], None], ids=named
)
def test_placements_that_are_none(hints):
    board = Board([full_row()])
    job = Job(board, asking(1))
    with pytest.raises((ValueError, TypeError, OverflowError)):
        board.score(job, 0, 0, hints)
    with pytest.raises(ValueError, match="one of its nodes"):
        board.score(job, 1, 0, [1])
    with pytest.raises((ValueError, TypeError)):
        board.score(Job.__new__(Job), 0, 0, [1])


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((0, 0), np.int64),
        np.zeros((1, 1), np.int64),
        np.zeros((1, 2), np.int32),
        np.zeros(2, np.int64),
        None,
    ],
    ids=named,
)
def test_room_that_does_not_suffice(out):
    with pytest.raises((ValueError, TypeError)):
        Board([full_row()]).free("memory", out)


def test_nothing_is_made_by_halves():
    """What was never initialised is empty; nothing is initialised twice."""
    bare = Board.__new__(Board)
    assert len(bare) == 0
    row_of_nothing = Row.__new__(Row)
    assert row_of_nothing.numa_nodes == 0
    for use in (
        lambda: bare.types,
        lambda: bare.replace(0, full_row()),
        lambda: Job(bare, asking(1)),
        lambda: Board([row_of_nothing]),
        lambda: Board([full_row()]).replace(0, row_of_nothing),
    ):
        with pytest.raises((TypeError, ValueError, IndexError, AttributeError)):
            use()

    board = Board([full_row()])
    job = Job(board, asking(1))
    with pytest.raises(TypeError, match="made already"):
        board.__init__([])

    with pytest.raises(TypeError, match="made already"):
        job.__init__(board, asking(1))

    assert judged(board, job)[0][0] == 1


def test_a_job_follows_what_later_nodes_bring():
    """A resource and a type of memory that no node had when the job was made."""
    board = Board([row(policy=NONE, cpu=cpus(4, 4))])
    requests = [(1, (("memory", 10),), (("gpu", 2),), False)] * 2
    job = Job(board, requests)
    assert judged(board, job)[0][0]
    board.replace(
        0,
        row(
            policy=SINGLE, cpu=cpus(4, 4), memory=memory(), devices={"gpu": devices(places=(1, 2))}
        ),
    )
    assert judged(board, job) == judged(board, Job(board, requests))
    assert not judged(board, job)[0][0]
    assert board.score(job, 0, 0, [1]) == board.score(Job(board, requests), 0, 0, [1])


def test_a_pod_asks_for_no_more_once_a_node_has_brought_a_resource():
    """Its containers together have what they need, as for a job that was made afterwards."""
    board = Board([row(policy=BEST_EFFORT, cpu=cpus(4, 4)) for _ in range(2)])
    job = Job(board, asking(3, containers=2))
    board.replace(1, row(policy=BEST_EFFORT, cpu=cpus(4, 4), devices={"gpu": devices()}))
    assert judged(board, job) == judged(board, Job(board, asking(3, containers=2)))
    assert [verdict[0] for verdict in judged(board, job)] == [1, 1]
