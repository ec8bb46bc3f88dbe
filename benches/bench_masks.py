"""Masks: what one operation on a set of NUMA nodes costs."""

from __future__ import annotations

import pytest

from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints

ONE, OTHER = BitMask([0, 2, 5]), BitMask([2, 3])

OPERATIONS = {
    "make": (lambda: BitMask([0, 2, 5]), ONE),
    "from-int": (lambda: BitMask.from_int(37), ONE),
    "and": (lambda: ONE & OTHER, BitMask([2])),
    "or": (lambda: ONE | OTHER, BitMask([0, 2, 3, 5])),
    "subset": (lambda: OTHER <= ONE, False),
    "narrower": (lambda: OTHER.is_narrower_than(ONE), True),
    "count": (ONE.count, 3),
    "iterate": (lambda: list(ONE), [0, 2, 5]),
    "print": (lambda: str(ONE), "100101"),
    "hash": (lambda: hash(ONE), hash(BitMask.from_int(37))),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.benchmark(group="masks")
def test_an_operation(benchmark, promise, name):
    """Well under a microsecond each."""
    operation, expected = OPERATIONS[name]
    assert operation() == expected
    benchmark(operation)
    promise(1)


@pytest.mark.benchmark(group="masks")
def test_packing_255_hints(benchmark, promise):
    """A list of a user's own is packed once."""
    hints = [TopologyHint(BitMask.from_int(mask), mask.bit_count() == 1) for mask in range(1, 256)]
    packed = benchmark(HintList, hints)
    assert list(packed) == hints
    promise(60)


@pytest.mark.benchmark(group="masks")
def test_hints_of_8_nodes(benchmark, promise):
    """What a provider does for each request: all 255 masks against what lies in each node."""

    def find():
        return feasible_hints(8, [(None, [4] * 8, 6)], universe=255, preferred_size=2)

    assert len(find()) == 255 - 8
    benchmark(find)
    promise(5)
