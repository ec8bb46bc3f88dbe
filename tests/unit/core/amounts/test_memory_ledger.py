"""A machine's memory as compiled amounts, beside plain Python, and what it refuses to hold."""

from __future__ import annotations

import pytest

from alignup.core.amounts.memory_ledger import (
    LARGEST_REQUEST,
    MOST_DONORS,
    MemoryCapacity,
    MemoryHolding,
    MemoryLedger,
)
from models import topology_manager as model


def ledger(*amounts, **more):
    """Return a ledger of one type."""
    return MemoryLedger(MemoryCapacity({"memory": amounts or (10, 10)}), **more)


def asking(amount):
    return (("memory", amount),)


def pairs(hints):
    return dict(model.unpacked(hints))


def test_memory_that_somebody_has_already():
    """It is taken from where it lies, no more than there is, and binds its nodes."""
    memory = ledger(10, 10, 10)
    holding = memory.adopt({"memory": {0: 4, 2: 30}, "unheard": {1: 5}})
    assert (holding.mask, holding.shares()) == (0b101, {"memory": (4, 10)})
    assert memory.free == {"memory": (6, 10, 0)}
    assert memory.groups == (0b101,)
    memory.release(holding)
    assert memory.free == {"memory": (10, 10, 10)}
    assert memory.adopt({"unheard": {1: 5}}) is None
    assert memory.adopt({}) is None


def test_counts_alone():
    """Of a machine that only tells amounts every set of nodes can be had."""
    capacity = MemoryCapacity({"memory": (10, 10)})
    memory = MemoryLedger.from_counts(capacity, {"memory": (3, 9)})
    assert memory.free == {"memory": (3, 9)}
    assert memory.free_of("memory") == (3, 9)
    assert memory.free_of("hugepages-2Mi") is None
    assert pairs(memory.hints(asking(9))) == {0b10: True, 0b11: False}
    assert capacity.types == ("memory",)


def test_a_request_as_large_as_you_like():
    """It is not there, and does not overflow."""
    for nodes in (2, 12):
        memory = ledger(*[10] * nodes)
        assert not memory.hints(asking(LARGEST_REQUEST * 1000))
        assert (
            memory.allocate(asking(LARGEST_REQUEST * 1000), (), None, False).cause == "too little"
        )
        assert memory.free == memory.capacity.amounts()


@pytest.mark.parametrize(
    "amounts",
    [
        {},
        {"memory": ()},
        {"memory": (-1,)},
        {"memory": (float("nan"),)},
        {"memory": (LARGEST_REQUEST,)},
        {"memory": (1,) * 65},
        {"memory": (1, 2), "other": (1,)},
        {str(number): (1,) for number in range(65)},
    ],
    ids=str,
)
def test_what_no_machine_has(amounts):
    with pytest.raises(ValueError, match=r"expected|NaN"):
        MemoryCapacity(amounts)


@pytest.mark.parametrize("nodes", [2, 12])
@pytest.mark.parametrize("mask", [0, 1 << 63, 1 << 12, -1, 1 << 70])
def test_masks_of_nodes_that_are_not_there(nodes, mask):
    memory = ledger(*[10] * nodes)
    with pytest.raises((ValueError, OverflowError)):
        memory.allocate(asking(1), (), mask, True)
    assert memory.free == memory.capacity.amounts()


@pytest.mark.parametrize("nodes", [2, 12])
@pytest.mark.parametrize(
    ("requests", "error"),
    [
        (asking(-1), ValueError),
        (asking(-(1 << 70)), ValueError),
        (asking(float("nan")), ValueError),
        (asking("1Gi"), TypeError),
        (asking(1) * 9, ValueError),
        ((("memory",),), ValueError),
        ([("memory", 1)], TypeError),
        (None, TypeError),
    ],
    ids=str,
)
def test_requests_that_are_none(nodes, requests, error):
    memory = ledger(*[10] * nodes)
    with pytest.raises(error):
        memory.hints(requests)
    with pytest.raises(error):
        memory.allocate(requests, (), 1, True)
    assert memory.free == memory.capacity.amounts()


@pytest.mark.parametrize("nodes", [2, 12])
def test_donors_that_are_none(nodes):
    """Neither nothing, nor holdings of another machine, nor more than a pod can have."""
    memory, foreign = ledger(*[10] * nodes), ledger(5, 5, 5)
    for donors in ([None], [3], [foreign.allocate(asking(1), (), 1, True)], 3):
        with pytest.raises((ValueError, TypeError)):
            memory.hints(asking(1), donors)
        with pytest.raises((ValueError, TypeError)):
            memory.allocate(asking(1), donors, 1, True)
    donor = memory.allocate(asking(1), (), 1, True)
    with pytest.raises(ValueError, match="at most 64 init containers"):
        memory.hints(asking(1), [donor] * (MOST_DONORS + 1))


def test_what_cannot_be_adopted_given_back_or_assigned():
    memory, foreign = ledger(), ledger()
    for shares in ({64: 1}, {-1: 1}, {2: 1}, {0: -1}):
        with pytest.raises(ValueError, match="expected bytes on 2 NUMA nodes"):
            memory.adopt({"memory": shares})

    with pytest.raises(OverflowError):
        memory.adopt({"memory": {0: 1 << 70}})

    with pytest.raises(ValueError, match="another one's"):
        memory.release(foreign.allocate(asking(1), (), 1, True))

    with pytest.raises(ValueError, match="another one's"):
        memory.assign(foreign)

    for wrong in (None, 3):
        with pytest.raises(TypeError):
            memory.assign(wrong)
        with pytest.raises(TypeError):
            memory.release(wrong)

    assert memory.free == memory.capacity.amounts()


@pytest.mark.parametrize(
    "available", [{}, {"memory": (1,)}, {"memory": (-1, 1)}, {"memory": (1 << 70, 1)}], ids=str
)
def test_counts_that_are_none(available):
    with pytest.raises((ValueError, KeyError, OverflowError)):
        MemoryLedger.from_counts(MemoryCapacity({"memory": (10, 10)}), available)


def test_nothing_is_made_by_halves():
    """There is no ledger without a capacity, and a holding that nobody took is of nothing."""
    for arguments in ((), (None,), (3,)):
        with pytest.raises(TypeError):
            MemoryLedger(*arguments)
        with pytest.raises(TypeError):
            MemoryLedger.__new__(MemoryLedger, *arguments)

    unmade = MemoryCapacity.__new__(MemoryCapacity)
    assert MemoryLedger(unmade).copy().hints(()).total() == 0
    with pytest.raises(TypeError, match="made already"):
        MemoryCapacity({"memory": (1,)}).__init__({"memory": (1,)})

    for arguments in ((), (None, 1), (unmade, 1), (ledger(5, 5).capacity, 4)):
        with pytest.raises((TypeError, ValueError)):
            MemoryHolding.__new__(MemoryHolding, *arguments)

    nothing = MemoryHolding(ledger(5, 5, 5).capacity, 0b101)
    assert (nothing.positions(), nothing.shares(), nothing.sizes()) == ((0, 2), {}, [])


def test_a_holding_is_given_back_once():
    """To each ledger that knows it: a copy has its own books."""
    memory = MemoryLedger(MemoryCapacity({"memory": (8, 8)}))
    holding = memory.allocate(asking(4), (), 1, True)
    memory.allocate(asking(4), (), 1, True)
    before, copy = memory.copy(), memory.copy()
    memory.release(holding)
    with pytest.raises(ValueError, match="got one that gave it back"):
        memory.release(holding)

    assert memory.free == {"memory": (4, 8)}
    copy.release(holding)
    assert copy.free == {"memory": (4, 8)}
    memory.assign(before)  # as if it had not been released
    memory.release(holding)
    assert memory.free == {"memory": (4, 8)}
