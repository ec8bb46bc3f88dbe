"""The CPUs of a machine as compiled words, beside plain Python, and what is no CPU."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger, CpuShortage
from alignup.providers.cpu.topology import cpu_topology
from inputs.cpu_machines import grid, odd_machines
from inputs.strategies import examples
from models import topology_manager as model


def ledger(nodes=2, cores=2, reserved=0, **options):
    """Return the ledger of a machine of two CPUs a core."""
    return CpuLedger(CpuCapacity(cpu_topology(grid(nodes, cores, smt=2)), reserved, **options))


def counted():
    return CpuLedger.from_counts(CpuCapacity.from_counts([4, 4], [4, 3]), [2, 3])


def pairs(hints):
    return dict(model.unpacked(hints))


def subset(random: Random, cpus: int) -> int:
    """Return a random subset of some CPUs."""
    return cpus & random.getrandbits(max(1, cpus.bit_length()))


@examples(80)
@given(machine=odd_machines(), seed=st.integers(0, 2**32), full=st.booleans(), strict=st.booleans())
def test_nothing_is_lost_on_odd_machines(machine, seed, full, strict):
    """Whatever is given and taken back.

    Counts are those of the sets, and what has come back is free again.
    """
    random, topology = Random(seed), cpu_topology(machine)
    reserved = subset(random, topology.cpus)
    capacity = CpuCapacity(
        topology, reserved, full_pcpus_only=full, strict_reservation=strict, irregular_size=1
    )
    compiled = CpuLedger(capacity)
    start = compiled.free_by_node()
    for _ in range(6):
        got = compiled.choose(random.randint(1, 4), 0, random.choice([None, 1]))
        compiled.give(0 if isinstance(got, CpuShortage) else got)
        compiled.give(subset(random, topology.cpus))
        free_counts = [
            (cpus & capacity.allocatable & ~compiled.given).bit_count()
            for cpus in topology.node_cpus
        ]
        assert compiled.free_by_node() == tuple(free_counts)

    copy = compiled.copy()
    compiled.take_back(compiled.given)
    assert compiled.given == 0
    assert compiled.free_by_node() == start
    assert copy.given != 0 or copy.free_by_node() == start
    shareable = capacity.allocatable if strict else topology.cpus
    assert capacity.shareable == shareable


def test_a_copy_is_independent():
    cpus = ledger(reserved=0b1)
    cpus.give(0b10)
    copy = cpus.copy()
    copy.give(0b100)
    cpus.take_back(0b10)
    assert (cpus.given, copy.given) == (0, 0b110)
    assert (cpus.free_by_node(), copy.free_by_node()) == ((3, 4), (1, 4))
    assert copy.capacity is cpus.capacity


def test_counts_alone():
    """They have hints, and no CPU that could be named."""
    cpus = counted()
    assert cpus.free_by_node() == (2, 3)
    assert pairs(cpus.hints(3)) == {0b10: True, 0b11: False}
    assert pairs(cpus.copy().hints(5)) == {0b11: False} or pairs(cpus.hints(5)) == {0b11: True}
    assert pairs(cpus.hints(6)) == {}

    for naming in (
        lambda: cpus.give(1),
        lambda: cpus.take_back(1),
        lambda: cpus.hints(1, 1),
        lambda: cpus.hints(1, 0, 1),
        lambda: cpus.choose(1, 0, None),
        lambda: cpus.choose(1, 1, 1),
    ):
        with pytest.raises(ValueError, match="counts"):
            naming()


@pytest.mark.parametrize(
    ("capacity", "allocatable"),
    [
        ([], []),
        ([1], []),
        ([1] * 65, [1] * 65),
        ([-1], [1]),
        ([1], [-1]),
        ([1 << 70], [1]),
        ([float("nan")], [1]),
        (["a"], [1]),
        (None, [1]),
    ],
    ids=str,
)
def test_counts_that_are_none(capacity, allocatable):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        CpuCapacity.from_counts(capacity, allocatable)


@pytest.mark.parametrize("available", [[], [1], [-1, 1], [1 << 70, 1], ["a", 1], None], ids=str)
def test_free_counts_that_are_none(available):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        CpuLedger.from_counts(CpuCapacity.from_counts([1, 1], [1, 1]), available)
    with pytest.raises((ValueError, TypeError)):
        CpuLedger.from_counts(ledger().capacity, [1, 1])


def test_requests_sets_and_masks_that_are_none():
    """They are errors, and nothing is given."""
    cpus = ledger()
    for wrong in (1 << 70, float("nan"), "a", None):
        for ask in (
            cpus.hints,
            lambda request: cpus.choose(request, 0, None),
            cpus.check_whole_cores,
        ):
            with pytest.raises((ValueError, OverflowError, TypeError)):
                ask(wrong)

    for wrong in (1 << 70, -1, 0b100, float("nan"), "a"):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            cpus.choose(1, 0, wrong)

    for wrong in (-1, float("nan"), "a"):
        for ask in (cpus.give, cpus.take_back, lambda reusable: cpus.choose(1, reusable, None)):
            with pytest.raises((ValueError, OverflowError, TypeError, AttributeError)):
                ask(wrong)

    assert cpus.given == 0


def test_cpus_that_are_not_there_are_passed_over():
    cpus = ledger()
    cpus.give(1 << 400 | 0b1)
    assert cpus.given == 0b1
    cpus.take_back(1 << 400 | 0b1)
    assert cpus.given == 0


def test_nothing_is_made_by_halves():
    for arguments in ((), (None,), (3,), (CpuCapacity.__new__(CpuCapacity),)):
        with pytest.raises((TypeError, ValueError)):
            CpuLedger(*arguments)
        with pytest.raises((TypeError, ValueError)):
            CpuLedger.__new__(CpuLedger, *arguments)

    with pytest.raises(ValueError, match="not made yet"):
        CpuLedger.from_counts(CpuCapacity.__new__(CpuCapacity), [])

    with pytest.raises(TypeError, match="made already"):
        ledger().capacity.__init__(cpu_topology(grid(1, 1)), 0)

    for wrong in (
        (None, 0),
        (3, 0),
        (cpu_topology(grid(1, 1)), -1),
        (cpu_topology(grid(1, 1)), "a"),
    ):
        with pytest.raises((TypeError, ValueError, OverflowError, AttributeError)):
            CpuCapacity(*wrong)
