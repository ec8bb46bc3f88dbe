"""How many NUMA nodes a request needs on an empty machine, which is what makes a hint preferred."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from alignup.core.amounts.memory_ledger import MemoryCapacity, MemoryLedger
from inputs.strategies import examples
from models import topology_manager as model


def preferred_sizes(hints) -> set[int]:
    return {mask.bit_count() for mask, preferred in model.unpacked(hints) if preferred}


def device_ledger(nodes, places) -> DeviceLedger:
    return DeviceLedger(DeviceInventory(nodes, places, (1 << len(places)) - 1, len(places)))


@examples(100)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_devices_near_to_several_nodes(seed: int, nodes: int) -> None:
    """As few nodes as devices near to any of them are enough, by looking at every set."""
    random = Random(seed)
    places = [random.randrange(1, 1 << nodes) for _ in range(random.randint(1, 6))]
    request = random.randint(1, len(places))
    universe = 0
    for place in places:
        universe |= place

    size = model.smallest(nodes, [(places, [1] * len(places), request)], universe)

    assert preferred_sizes(device_ledger(nodes, places).hints(request)) == {size}


def test_devices_in_use_count_for_the_smallest_size() -> None:
    """One node had both; now it takes two nodes, and that is more than it should."""
    ledger = device_ledger(3, [0b011, 0b011, 0b100])
    ledger.give(0b001)

    assert dict(model.unpacked(ledger.hints(2))) == {0b101: False, 0b110: False, 0b111: False}


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_devices_near_to_several_of_many_nodes(count: int, size: int) -> None:
    """Beyond 8 nodes: two devices on node 0 of which one reaches node 9, and one on 5 and on 7."""
    places = [1, 1 | 1 << 9, 1 << 5, 1 << 7]
    hints = device_ledger(10, places).hints(count)

    assert hints.best()[1] is True
    assert hints.best()[0].bit_count() == size
    assert preferred_sizes(hints) == {size}


@examples(100)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_several_types_of_memory_together(seed: int, nodes: int) -> None:
    """A mask has to hold both types; none is preferred where no set could ever hold them."""
    random = Random(seed)
    amounts = {
        kind: tuple(random.choice([0, 2, 4, 9]) for _ in range(nodes))
        for kind in ("hugepages-2Mi", "memory")
    }
    requests = tuple((kind, random.randint(1, 12)) for kind in amounts)

    demands = [(None, amounts[kind], size) for kind, size in requests]
    size = model.smallest(nodes, demands, (1 << nodes) - 1)

    hints = MemoryLedger(MemoryCapacity(amounts)).hints(requests)
    assert preferred_sizes(hints) == ({size} if size else set())
    assert bool(hints) is bool(size)


@pytest.mark.parametrize(
    ("pages", "size"),
    [
        ((8, 0, 0), 1),  # node 0 has enough of both
        ((0, 4, 4), 3),  # pages on nodes 1 and 2, memory on node 0 only
        ((0, 8, 0), 2),
    ],
)
@pytest.mark.parametrize("more_nodes", [0, 7])
def test_types_of_memory_on_different_nodes(
    pages: tuple[int, ...], size: int, more_nodes: int
) -> None:
    """On 3 nodes, and on 10 of which the others have nothing."""
    nothing = (0,) * more_nodes
    memory = MemoryLedger(
        MemoryCapacity({"hugepages-2Mi": pages + nothing, "memory": (8, 0, 0, *nothing)})
    )
    hints = memory.hints((("hugepages-2Mi", 8), ("memory", 8)))

    assert preferred_sizes(hints) == {size}
