"""Pools of devices, and what plugins prefer among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError
from alignup.machine.device_inventory import Device
from alignup.providers.devices.inventory import (
    DevicePlugin,
    DevicePool,
    PreferredSets,
    preference_of,
)

NVLINK_PAIRS = PreferredSets([["0", "3"], ["1", "2"], ["4", "7"], ["5", "6"]])
"""The example of KEP-693: eight GPUs and the pairs that share a link."""


@pytest.mark.parametrize(
    ("available", "must_include", "size", "expected"),
    [
        ("01234567", "", 2, "03"),
        ("1234567", "", 2, "12"),
        ("24567", "", 2, "47"),
        ("01234567", "", 4, "0123"),
        ("01234567", "", 3, "013"),
        ("01234567", "5", 2, "56"),
        ("01234567", "3", 2, "03"),
        ("0246", "", 2, "02"),
        ("02", "", 4, "02"),
        ("012", "12", 1, "12"),
    ],
)
def test_pairs_that_share_a_link_are_preferred(available, must_include, size, expected):
    """Whole pairs first, in order, as long as they fit; then single devices in ascending order."""
    assert (
        "".join(NVLINK_PAIRS.preferred_allocation(list(available), list(must_include), size))
        == expected
    )


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4)),
    st.sets(st.sampled_from("abcdefgh")),
    st.data(),
)
def test_an_answer_is_of_the_right_size_and_available(sets, available, data):
    """As many devices as asked for come back if there are so many.

    The necessary ones are among them.
    """
    must = data.draw(st.sets(st.sampled_from(sorted(available)))) if available else set()
    size = data.draw(st.integers(len(must), 8))
    answer = PreferredSets(sets).preferred_allocation(sorted(available), sorted(must), size)

    assert must <= set(answer) <= available
    assert len(answer) == min(size, len(available))


def test_an_object_or_a_function_can_be_a_plugin():
    """Anything else is a TypeError."""
    assert isinstance(NVLINK_PAIRS, DevicePlugin)
    assert preference_of(NVLINK_PAIRS)(["1", "2"], [], 1) == ["1"]
    assert preference_of(lambda available, _must, size: available[:size])(["1", "2"], [], 1) == [
        "1"
    ]
    with pytest.raises(TypeError, match="got 'pairs'"):
        preference_of("pairs")


ON_NODES = "1 on NUMA node 0, 1 on NUMA node 8, 1 on NUMA nodes 0+8"
UNALIGNED = "1 other free device without a NUMA node cannot be aligned"


def pool_of(*places, ids=(0, 8), **options):
    """Return a pool of GPUs `d`, `c`, ... near to NUMA nodes of these ids, or to none (None)."""
    devices = [
        Device(name, None if place is None else tuple(place))
        for name, place in zip("dcba", places, strict=False)
    ]
    return DevicePool("example.com/gpu", devices, ids, **options)


def test_a_set_of_devices_is_an_int_in_the_order_of_the_inventory():
    pool = pool_of([0], [8], None)

    assert [device.id for device in pool.devices] == ["d", "c", "b"]
    assert pool.ids(0b101) == ("d", "b")
    assert (pool.sorted_ids(0b111), pool.sorted_ids(0b10), pool.sorted_ids(0)) == (
        ("b", "c", "d"),
        ("c",),
        (),
    )
    assert pool.bits(["b", "d", "unheard"]) == 0b101
    assert (pool.knows("b"), pool.knows("unheard")) == (True, False)


def test_places_are_masks_of_positions():
    """Devices near to no node are in none of them."""
    assert list(pool_of([0], [8], [8, 0], None).places) == [(1, 0b1), (2, 0b10), (3, 0b100)]


def test_devices_that_the_plugin_no_longer_reports_are_known_and_not_healthy():
    pool = pool_of([0], [8], unreported=[Device("old", (0,))])

    assert [device.id for device in pool.reported] == ["d", "c"]
    assert (pool.knows("old"), pool.healthy, pool.ledger.free) == (True, 0b11, 0b11)


def test_a_copy_of_a_pool_gives_its_own_devices():
    """It shares the inventory, and nothing of what is given."""
    pool = pool_of([0], [8])
    copy = pool.copy()
    copy.ledger.give(0b1)

    assert (pool.ledger.given, copy.ledger.given) == (0, 0b1)
    assert (copy.resource, copy.devices is pool.devices) == (pool.resource, True)


@pytest.mark.parametrize(
    ("request_count", "free", "aligned", "text"),
    [
        (
            4,
            0b0111,
            False,
            f"4 asked, 3 of 4 free: {ON_NODES}",
        ),
        (2, 0b0001, False, "2 asked, 1 of 4 free, on NUMA node 0"),
        (2, 0b0000, False, "2 asked, 0 of 4 free"),
        (
            4,
            0b1111,
            False,
            f"4 asked, the machine has 4: {ON_NODES}, 1 without a NUMA node",
        ),
        (4, 0b1010, True, f"4 asked, 1 of 3 free, on NUMA node 8; {UNALIGNED}"),
    ],
)
def test_an_account_says_what_was_free_where(request_count, free, aligned, text):
    pool = pool_of([0], [8], [0, 8], None)

    assert pool.account(request_count, free, aligned=aligned) == text


def test_a_plugin_advises_on_a_choice_and_no_more():
    """What it names beyond the choice or the request is passed over."""
    calls = []

    def preference(available, must_include, size):
        calls.append((available, must_include, size))
        return ["a", "unheard", "c", "b", "d"]

    pool = pool_of([0], [0], [0], [8], preference=preference)

    assert pool.choose(2, 0, 0b01) == 0b110
    assert calls == [(("d", "c", "b"), (), 2)]
    assert pool.choose(3, 0, 0b01) == 0b111
    assert len(calls) == 1  # all that are near were needed
    with pytest.raises(AllocationError, match=r"too few devices of .* are free: 5 asked"):
        pool.choose(5, 0, None)
