"""Where memory can come from, how it is given and given back, beside a plain model."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.memory_ledger import (
    MemoryCapacity,
    MemoryHolding,
    MemoryLedger,
    MemoryShortage,
)
from inputs.strategies import examples, seeds
from models import topology_manager as model
from models.memory import Held, Memory

KINDS = ("hugepages-2Mi", "memory")


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
