"""Where CPUs can come from, and which ones a container gets, beside plain Python."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger, CpuShortage
from alignup.providers.cpu.topology import cpu_topology
from inputs.cpu_machines import grid, machines
from inputs.strategies import examples
from models import assignment as model_assignment
from models import topology_manager as model


def ledger(nodes=2, cores=2, reserved=0, **options):
    """Return the ledger of a machine of two CPUs a core."""
    return CpuLedger(CpuCapacity(cpu_topology(grid(nodes, cores, smt=2)), reserved, **options))


def pairs(hints):
    return dict(model.unpacked(hints))


def near(node_cpus, mask):
    """Return the CPUs of some NUMA nodes."""
    return sum(cpus for node, cpus in enumerate(node_cpus) if mask >> node & 1)


def subset(random: Random, cpus: int) -> int:
    """Return a random subset of some CPUs."""
    return cpus & random.getrandbits(max(1, cpus.bit_length()))


def expected_hints(capacity, free, request, reusable):
    """Return the masks with enough free CPUs that reach all that are handed on.

    Every mask is looked at.
    """
    nodes = capacity.topology.node_cpus
    pool = free | reusable
    if pool.bit_count() < request:
        return {}

    with_cpus = [
        mask
        for mask in range(1, 1 << len(nodes))
        if all(cpus for i, cpus in enumerate(nodes) if mask >> i & 1)
    ]
    large = [mask.bit_count() for mask in with_cpus if near(nodes, mask).bit_count() >= request]
    return {
        mask: mask.bit_count() == min(large)
        for mask in with_cpus
        if (near(nodes, mask) & pool).bit_count() >= request and not reusable & ~near(nodes, mask)
    }


def expected_choice(capacity, allocated, request, reusable, mask, **options):
    """Return the CPUs that a container gets: near the affinity first, then from anywhere."""
    topology = capacity.topology
    free = (capacity.allocatable & ~allocated) | reusable
    unavailable = allocated & ~reusable
    chosen = 0
    if mask is not None:
        aligned = near(topology.node_cpus, mask) & free
        count = min(request, aligned.bit_count())
        chosen = model_assignment.pack(topology, aligned, count, unavailable, **options)

    missing = request - chosen.bit_count()
    if missing > 0:
        others = free & ~chosen
        if missing > others.bit_count():
            return None
        chosen |= model_assignment.pack(topology, others, missing, unavailable, **options)

    return chosen


@examples(80)
@given(
    machine=machines(even=True),
    seed=st.integers(0, 2**32),
    spreads=st.booleans(),
    by_l3=st.booleans(),
)
def test_the_ledger_follows_the_plain_model(machine, seed, spreads, by_l3):
    """Hints, choices, counts by node.

    CPUs that are given and those that are free are all there are.
    """
    random, topology = Random(seed), cpu_topology(machine)
    reserved = subset(random, subset(random, topology.cpus))
    capacity = CpuCapacity(topology, reserved, spreads=spreads, by_l3=by_l3)
    compiled, given_cpus = CpuLedger(capacity), 0
    assert capacity.allocatable == topology.cpus & ~reserved
    for _ in range(8):
        request = random.randint(1, topology.cpus.bit_count() + 1)
        reusable = subset(random, given_cpus) if random.random() < 0.3 else 0
        free = capacity.allocatable & ~given_cpus
        assert pairs(compiled.hints(request, reusable)) == expected_hints(
            capacity, free, request, reusable
        )
        mask = random.choice([None, random.randrange(1, 1 << len(topology.node_cpus))])
        expected = expected_choice(
            capacity, given_cpus, request, reusable, mask, spread=spreads, by_l3=by_l3
        )
        got = compiled.choose(request, reusable, mask)
        if expected is None:
            assert isinstance(got, CpuShortage)
            assert got.cause == "too few"
        else:
            assert got == expected
            assert compiled.given == given_cpus
            compiled.give(got)
            given_cpus |= got

        back = subset(random, given_cpus)
        compiled.take_back(back)
        given_cpus &= ~back
        assert compiled.given == given_cpus
        free_counts = [
            (cpus & capacity.allocatable & ~given_cpus).bit_count() for cpus in topology.node_cpus
        ]
        assert compiled.free_by_node() == tuple(free_counts)


def test_whole_cores_are_counted_without_those_of_reserved_cpus():
    """Of the sibling of a reserved CPU nothing is left to count when it is given."""
    cpus = ledger(reserved=0b1, full_pcpus_only=True)
    cpus.give(0b10)
    assert cpus.check_whole_cores(6) is None
    cpus.take_back(0b10)
    assert cpus.check_whole_cores(8).cause == "too few whole"


def test_whole_cores():
    """A request must be of whole cores, and so many must be free.

    They are counted as the kubelet does.
    """
    cpus = ledger(reserved=0b1, full_pcpus_only=True)
    assert cpus.check_whole_cores(3).cause == "not whole cores"
    assert cpus.check_whole_cores(6) is None
    assert cpus.check_whole_cores(8).cause == "too few whole"
    cpus.give(0b100)
    assert cpus.check_whole_cores(6).cause == "too few whole"
    assert ledger().check_whole_cores(3) is None
    assert cpus.capacity.reserved_cores == 0b11


def test_across_numa_nodes_somebody_else_chooses():
    """With distribute-cpus-across-numa: near the affinity first, then from what is left.

    The number of NUMA nodes of the affinity counts for what is near to them.
    """
    cpus = ledger(distributes=True)
    calls = []

    def lowest(free, count, unavailable, hinted_nodes):
        calls.append((free, count, unavailable, hinted_nodes))
        return sum(1 << cpu for cpu in [i for i in range(8) if free >> i & 1][:count])

    cpus.give(0b1)
    assert cpus.choose(5, 0, 0b1, lowest) == 0b111110
    assert cpus.given == 0b1
    cpus.give(0b111110)
    assert calls == [(0b1110, 3, 0b1, 1), (0b11110000, 2, 0b1111, 0)]
    assert cpus.given == 0b111111
    assert cpus.choose(3, 0, None, lowest).cause == "too few"
    with pytest.raises(ZeroDivisionError):
        cpus.choose(1, 0, None, lambda *_: 1 // 0)

    assert cpus.given == 0b111111


def test_hints_of_cpus_that_are_held():
    """They are counted in place of those that are free."""
    cpus = ledger()
    cpus.give(0b00010011)
    assert pairs(cpus.hints(2, 0, 0b00010011)) == {0b01: True, 0b11: False}
    assert pairs(cpus.hints(4, 0, 0b00010011)) == {}
