"""A machine's memory as compiled amounts, beside plain Python, and what it refuses to hold."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.memory_ledger import (
    LARGEST_REQUEST,
    MOST_DONORS,
    MemoryCapacity,
    MemoryHolding,
    MemoryLedger,
    MemoryShortage,
)
from inputs.strategies import examples, seeds
from models import topology_manager as model
from models.memory import Held, Memory

KINDS = ("hugepages-2Mi", "memory")


def ledger(*amounts, **more):
    """Return a ledger of one type."""
    return MemoryLedger(MemoryCapacity({"memory": amounts or (10, 10)}), **more)


def asking(amount):
    return (("memory", amount),)


def pairs(hints):
    return dict(model.unpacked(hints))


def state_of(memory):
    """Return all that decides, of a ledger or of the plain model."""
    return (
        {kind: list(amounts) for kind, amounts in memory.free.items()},
        sorted(memory.groups),
        memory.alone,
        memory.unused,
    )


class Both:
    """A ledger and the plain model, asked the same."""

    def __init__(self, random: Random, nodes: int, *, checks_groups: bool = True) -> None:
        self.random = random
        self.nodes = nodes
        amounts = {kind: [random.choice([0, 4, 8, 9]) for _ in range(nodes)] for kind in KINDS}
        self.ledger = MemoryLedger(MemoryCapacity(amounts, checks_groups=checks_groups))
        self.plain = Memory(amounts, checks_groups=checks_groups)
        self.pods: list[list[tuple[MemoryHolding, Held]]] = []

    def request(self):
        """Return what a container asks for: one type or both, seldom one that is not there."""
        kinds = self.random.choice([KINDS[1:], KINDS[1:], KINDS, KINDS[:1]])
        sizes = [(kind, self.random.choice([0, 1, 3, 5, 9, 14])) for kind in kinds]
        if self.random.random() < 0.05:
            sizes.append(("hugepages-1Gi", 1))
        return tuple(sizes)

    def come(self):
        """Let a pod of up to three containers come.

        All but the last are init containers that hand on.
        """
        random = self.random
        holdings: list[tuple[MemoryHolding, Held]] = []
        for _ in range(random.choice([1, 1, 2, 3])):
            donors = [donor for donor, _ in holdings]
            plain_donors = [donor for _, donor in holdings]
            request = self.request()
            assert pairs(self.ledger.hints(request, donors)) == self.plain.hints(
                request, plain_donors
            )
            mask = random.choice([None, random.randrange(1, 1 << self.nodes)])
            preferred = random.random() < 0.3
            got = self.ledger.allocate(request, donors, mask, preferred)
            expected = self.plain.allocate(request, plain_donors, mask, preferred=preferred)
            if isinstance(expected, str):
                assert isinstance(got, MemoryShortage)
                assert got.cause == expected
                break

            self.compare(got, expected)
            holdings.append((got, expected))

        if holdings:
            self.pods.append(holdings)

    def go(self):
        """Let a pod go."""
        if self.pods:
            for got, expected in self.pods.pop(self.random.randrange(len(self.pods))):
                self.compare(got, expected)
                self.ledger.release(got)
                self.plain.release(expected)

    @staticmethod
    def compare(got, expected):
        assert got.mask == expected.mask
        assert {kind: list(parts) for kind, parts in got.shares().items()} == expected.taken
        assert got.sizes() == sorted((kind, sum(parts)) for kind, parts in expected.taken.items())

    def step(self):
        if self.random.random() < 0.6:
            self.come()
        else:
            self.go()
        assert state_of(self.ledger) == state_of(self.plain)


@examples(60)
@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 5), checks_groups=st.booleans())
def test_the_ledger_follows_the_plain_model(seed, nodes, checks_groups):
    """Hints, choices, shares, shortages and bindings.

    And when all have gone, everything is free again.

    Kubelets up to 1.31 can lose memory of one NUMA node where they give another pod's back on
    another one.
    """
    both = Both(Random(seed), nodes, checks_groups=checks_groups)
    for _ in range(25):
        both.step()
    while both.pods:
        both.go()
    if checks_groups:
        assert both.ledger.free == both.ledger.capacity.amounts()
    assert (both.ledger.groups, both.ledger.alone) == ((), (1 << nodes) - 1)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_beyond_eight_nodes_the_rules_are_the_same(seed):
    """9 nodes are described where 8 are listed."""
    both = Both(Random(seed), 9, checks_groups=seed % 2 == 0)
    for _ in range(8):
        both.step()


@examples(60)
@given(seed=st.integers(0, 2**32))
def test_what_is_given_and_what_is_free_is_all_there_is(seed):
    """For every type and node, whoever came and went."""
    both = Both(Random(seed), 3)
    for _ in range(20):
        both.step()
        for kind, capacity in both.ledger.capacity.amounts().items():
            accounted = list(both.ledger.free[kind])
            for holdings in both.pods:
                for holding, _ in holdings:
                    shares = holding.shares().get(kind, ())
                    for position, part in zip(holding.positions(), shares, strict=False):
                        accounted[position] += part

            assert tuple(accounted) == capacity


@examples(40)
@given(seed=st.integers(0, 2**32))
def test_a_copy_is_independent_and_can_be_assigned(seed):
    """Whatever happens to one is unseen by the other, until it is assigned."""
    both = Both(Random(seed), 3)
    for _ in range(10):
        both.step()

    copy = both.ledger.copy()
    before = state_of(copy)
    assert before == state_of(both.ledger)
    for _ in range(5):
        both.step()

    assert state_of(copy) == before
    copy.allocate(asking(1), (), None, False)
    assert state_of(both.ledger) == state_of(both.plain)

    kept, changed = both.ledger.copy(), state_of(both.ledger)
    both.ledger.assign(copy)
    assert state_of(both.ledger) == state_of(copy)
    both.ledger.assign(kept)
    assert state_of(both.ledger) == changed


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
