"""The devices of a resource as compiled amounts, beside plain Python, and what is no device."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from inputs.strategies import examples
from models import topology_manager as model


def ledger(nodes=2, places=(1, 1, 2, 2), allocated=0):
    return DeviceLedger(
        DeviceInventory(nodes, list(places), (1 << len(places)) - 1, len(places)), allocated
    )


def counted():
    return DeviceLedger.from_counts(DeviceInventory.from_counts([2, 2]), [1, 2])


def pairs(hints):
    return None if hints is None else dict(model.unpacked(hints))


def subset(random: Random, devices: int) -> int:
    """Return a subset of some devices."""
    return devices & random.getrandbits(max(1, devices.bit_length()))


@examples(60)
@given(data=st.data(), count=st.integers(1, 80))
def test_given_and_free_are_all_there_is(data, count):
    """The counts by place are those of the sets, whatever is given twice or taken back unasked."""
    random = Random(data.draw(st.integers(0, 2**32)))
    places = [1 << random.randrange(4) for _ in range(count)]
    compiled = ledger(4, places)
    everything = (1 << count) - 1

    for _ in range(10):
        compiled.give(subset(random, everything))
        compiled.take_back(subset(random, everything))
        assert compiled.given | compiled.free == everything
        assert compiled.given & compiled.free == 0
        for node in range(4):
            near = sum(
                1
                for index, place in enumerate(places)
                if compiled.free >> index & 1 and place == 1 << node
            )
            assert (1 << node in pairs(compiled.hints(max(1, near)))) == (near > 0)
            assert 1 << node not in pairs(compiled.hints(near + 1))


def test_a_copy_is_independent():
    devices = ledger(allocated=0b1)
    copy = devices.copy()
    copy.give(0b110)
    assert (devices.given, copy.given) == (0b1, 0b111)
    devices.take_back(0b1)
    assert (devices.given, copy.given) == (0, 0b111)
    assert copy.inventory is devices.inventory
    assert pairs(copy.hints(1)) == {0b10: True, 0b11: False}


def test_an_inventory_tells_what_it_was_made_of():
    inventory = DeviceInventory(2, [1, None, 2, 0, 1], 0b00111, 4)
    assert inventory.places() == [(1, 0b10001), (2, 0b100), (0, 0b1010)]
    assert (inventory.present, inventory.healthy) == (0b1111, 0b111)
    assert inventory.is_aligned
    assert not DeviceInventory(2, [None, 0], 0b11, 2).is_aligned
    assert ledger(2, [None, None]).hints(1) is None


def test_counts_alone():
    """They have hints, and no device that could be named."""
    devices = counted()
    assert pairs(devices.hints(1)) == {0b01: True, 0b10: True, 0b11: False}
    assert pairs(devices.hints(2)) == {0b10: True, 0b11: False}
    assert pairs(devices.hints(3)) == {0b11: True}
    assert pairs(devices.hints(4)) == {}
    assert (devices.given, devices.free) == (0, 0)
    assert pairs(devices.copy().hints(3)) == {0b11: True}

    for naming in (
        lambda: devices.give(1),
        lambda: devices.take_back(1),
        lambda: devices.choose(1, 1, None),
    ):
        with pytest.raises((OverflowError, ValueError)):
            naming()


@pytest.mark.parametrize(
    "arguments",
    [
        (0, [], 0, 0),
        (65, [1], 1, 1),
        (2, [4], 1, 1),
        (2, [-1], 1, 1),
        (2, [-1, 1], 1, 2),
        (2, [1], 1, 2),
        (2, [1], 1, -1),
        (2, [1], 0b10, 1),
        (2, [1], -1, 1),
        (2, [1], 1 << 70, 1),
        (2, [float("nan")], 1, 1),
        (2, ["a"], 1, 1),
        (2, None, 1, 1),
        (1 << 40, [1], 1, 1),
    ],
    ids=str,
)
def test_what_no_plugin_reports(arguments):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        DeviceInventory(*arguments)


@pytest.mark.parametrize(
    "totals", [[], [-1], [1] * 65, [1 << 70], [float("nan")], ["a"], None], ids=str
)
def test_counts_that_are_none(totals):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        DeviceInventory.from_counts(totals)


@pytest.mark.parametrize("available", [[], [1], [-1, 1], [1 << 70, 1], ["a", 1], None], ids=str)
def test_free_counts_that_are_none(available):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        DeviceLedger.from_counts(DeviceInventory.from_counts([1, 1]), available)
    with pytest.raises((ValueError, TypeError)):
        DeviceLedger.from_counts(DeviceInventory(2, [1, 2], 3, 2), [1, 1])


@pytest.mark.parametrize("count", [4, 70])
def test_sets_that_are_none(count):
    """Neither negative, nor no number, nor larger than there is room for."""
    devices = ledger(2, [1] * count)
    for wrong in (-1, 1 << 200, float("nan"), "a", None):
        for ask in (
            devices.give,
            devices.take_back,
            lambda reusable: devices.choose(1, reusable, None),
            lambda allocated: DeviceLedger(devices.inventory, allocated),
        ):
            with pytest.raises((ValueError, OverflowError, TypeError, AttributeError)):
                ask(wrong)

    assert devices.given == 0


def test_requests_and_masks_that_are_none():
    devices = ledger()
    for wrong in (1 << 70, float("nan"), "a", None):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            devices.hints(wrong)
        with pytest.raises((ValueError, OverflowError, TypeError)):
            devices.choose(wrong, 0, None)
    for wrong in (1 << 70, -1, float("nan"), "a"):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            devices.choose(1, 0, wrong)
    assert devices.choose(1 << 60, 0, None).cause == "too few"
    assert devices.choose(-1, 0, None) == 0


def test_a_plugin_that_answers_nonsense():
    """Its error comes through, and nothing is given."""
    devices = ledger()
    for wrong in (-1, 1 << 70, None, "a"):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            devices.choose(1, 0, 1, lambda *_, wrong=wrong: wrong)
    with pytest.raises(ZeroDivisionError):
        devices.choose(1, 0, 1, lambda *_: 1 // 0)
    assert devices.given == 0


def test_nothing_is_made_by_halves():
    for arguments in ((), (None,), (3,), (DeviceInventory.__new__(DeviceInventory),)):
        with pytest.raises((TypeError, ValueError)):
            DeviceLedger(*arguments)
        with pytest.raises((TypeError, ValueError)):
            DeviceLedger.__new__(DeviceLedger, *arguments)
    unmade = DeviceInventory.__new__(DeviceInventory)
    assert (unmade.places(), unmade.present, unmade.is_aligned) == ([(0, 0)], 0, False)
    with pytest.raises(TypeError, match="made already"):
        ledger().inventory.__init__(2, [1], 1, 1)


@pytest.mark.parametrize("count", [4, 64, 70])
def test_sets_of_devices_that_are_not_there_are_refused(count):
    devices = ledger(places=(1,) * count)
    beyond = max(63, count + 1)
    for wrong in (1 << count, 1 << beyond):
        with pytest.raises((ValueError, OverflowError)):
            devices.give(wrong)
        with pytest.raises((ValueError, OverflowError)):
            devices.take_back(wrong)
    assert devices.given == 0
    with pytest.raises(ValueError, match="only counts"):
        counted().give(1)
