"""Near which nodes devices are, and which ones a container gets, beside plain Python."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger, DeviceShortage
from inputs.strategies import examples
from models import topology_manager as model
from models.devices import Devices, first


def ledger(nodes=2, places=(1, 1, 2, 2), allocated=0):
    return DeviceLedger(
        DeviceInventory(nodes, list(places), (1 << len(places)) - 1, len(places)), allocated
    )


def pairs(hints):
    return None if hints is None else dict(model.unpacked(hints))


def subset(random: Random, devices: int) -> int:
    """Return a subset of some devices."""
    return devices & random.getrandbits(max(1, devices.bit_length()))


class Both:
    """A ledger and the plain model, of the same inventory."""

    def __init__(self, random: Random, nodes: int, count: int) -> None:
        self.random = random
        style = random.choice(["one", "several", "any", "mixed"])
        places: list[int | None] = []
        for _ in range(count):
            single = 1 << random.randrange(nodes)
            multiple = random.randrange(1, 1 << nodes)
            kinds = {
                "one": [single],
                "several": [single, multiple],
                "any": [None, 0],
                "mixed": [single, multiple, None, 0],
            }
            places.append(random.choice(kinds[style]))

        reported = random.randint(max(0, count - 2), count)
        healthy = ((1 << reported) - 1) & ~(random.getrandbits(count) & random.getrandbits(count))
        self.plain = Devices(nodes, places, healthy, reported)
        self.ledger = DeviceLedger(DeviceInventory(nodes, places, healthy, reported))
        # that a plugin no longer reports, and somebody holds
        unreported = ((1 << count) - 1) & ~self.plain.present
        self.ledger.give(unreported)
        self.plain.given |= unreported

    def advise(self):
        """Return a plugin that is the same for both, or none."""
        seed = self.random.random()
        if seed < 0.5:
            return None
        return lambda choice, chosen, request: (
            chosen | first(subset(Random(seed), choice & ~chosen), request - chosen.bit_count())
        )

    def step(self):
        random, plain, compiled = self.random, self.plain, self.ledger
        nodes, count = plain.nodes, len(plain.places)
        request = random.randint(0, count + 1)
        reusable = subset(random, plain.given) if random.random() < 0.4 else 0
        allocated = subset(random, plain.given) if random.random() < 0.2 else None
        assert pairs(compiled.hints(request, reusable, allocated)) == plain.hints(
            request, reusable, allocated
        )
        mask = random.choice([None, random.randrange(1, 1 << nodes)])
        advise = self.advise()
        got = compiled.choose(request, reusable, mask, advise)
        expected = plain.choose(request, reusable, mask, advise)
        if isinstance(expected, str):
            assert isinstance(got, DeviceShortage)
            assert got.cause == expected
        else:
            assert got == expected
            if random.random() < 0.6:
                compiled.give(got)
                plain.given |= got

        back = subset(random, plain.given) if random.random() < 0.4 else 0
        compiled.take_back(back)
        plain.given &= ~back
        assert (compiled.given, compiled.free) == (plain.given, plain.free)


@examples(80)
@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 6), count=st.integers(1, 12))
def test_the_ledger_follows_the_plain_model(seed, nodes, count):
    """Hints, choices with and without a plugin, shortages.

    Devices that are sick, gone, or near to no node.
    """
    both = Both(Random(seed), nodes, count)
    for _ in range(10):
        both.step()


@pytest.mark.parametrize(("nodes", "count"), [(8, 70), (3, 200), (9, 30), (6, 130)])
def test_more_devices_than_a_word_has_bits(nodes, count):
    """And more than 8 nodes, where hints are described."""
    both = Both(Random(nodes * count), nodes, count)
    for _ in range(10 if nodes < 8 else 2):
        both.step()


@pytest.mark.parametrize("nodes", [2, 10])
def test_no_mask_is_near_to_a_device_that_is_taken_over_and_near_to_no_node(nodes):
    devices = ledger(nodes, places=(1, 0))
    assert pairs(devices.hints(1, reusable=0b01))[0b01]
    assert pairs(devices.hints(1, reusable=0b10)) == {}


@pytest.mark.parametrize("advised", [0, 0b0001, 0b1100, 0b10011, 0b0111])
def test_advice_that_is_no_part_of_the_choice_is_refused(advised):
    """Devices near to the other node, unknown or too many, or without those that are handed on."""
    devices = ledger(places=(1, 1, 1, 2), allocated=0b0010)

    def advise(choice, chosen, request):
        assert (choice, chosen, request) == (0b0101, 0b0010, 2)
        return advised

    with pytest.raises(ValueError, match="expected at most 2 devices of"):
        devices.choose(2, 0b0010, 1, advise)
    assert devices.choose(2, 0b0010, 1, lambda *_: 0b0110) == 0b0110
