"""BitMask is a set of NUMA node positions, and speaks the words of KEP-693."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.topology_manager.hints import BitMask

MASKS = [BitMask.from_int(value) for value in range(256)]
SETS = [{bit for bit in range(8) if value >> bit & 1} for value in range(256)]
WORDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("of_masks", "of_sets"),
    [
        pytest.param(lambda a, b: a & b, lambda a, b: a & b, id="and"),
        pytest.param(lambda a, b: a.and_(b), lambda a, b: a & b, id="and_"),
        pytest.param(lambda a, b: a | b, lambda a, b: a | b, id="or"),
        pytest.param(lambda a, b: a.or_(b), lambda a, b: a | b, id="or_"),
        pytest.param(lambda a, b: a ^ b, lambda a, b: a ^ b, id="xor"),
        pytest.param(lambda a, b: a - b, lambda a, b: a - b, id="difference"),
        pytest.param(lambda a, b: a.add(*b), lambda a, b: a | b, id="add"),
        pytest.param(lambda a, b: a.remove(*b), lambda a, b: a - b, id="remove"),
    ],
)
def test_operations_that_make_masks_agree_with_sets(of_masks, of_sets) -> None:
    """All 256 x 256 pairs give the mask of the set that Python's own sets give."""
    for (left, left_set), (right, right_set) in product(zip(MASKS, SETS, strict=True), repeat=2):
        assert set(of_masks(left, right)) == of_sets(left_set, right_set)


@pytest.mark.parametrize(
    ("of_masks", "of_sets"),
    [
        pytest.param(lambda a, b: a == b, lambda a, b: a == b, id="equal"),
        pytest.param(lambda a, b: a != b, lambda a, b: a != b, id="unequal"),
        pytest.param(lambda a, b: a.is_equal(b), lambda a, b: a == b, id="is_equal"),
        pytest.param(lambda a, b: a <= b, lambda a, b: a <= b, id="subset"),
        pytest.param(lambda a, b: a < b, lambda a, b: a < b, id="strict-subset"),
        pytest.param(lambda a, b: a >= b, lambda a, b: a >= b, id="superset"),
        pytest.param(lambda a, b: a > b, lambda a, b: a > b, id="strict-superset"),
        pytest.param(lambda a, b: a.isdisjoint(b), lambda a, b: a.isdisjoint(b), id="isdisjoint"),
        pytest.param(lambda a, b: a.any_set(b), lambda a, b: bool(a & b), id="any_set"),
        pytest.param(
            lambda a, b: a.is_narrower_than(b),
            lambda a, b: (len(a), sorted(a, reverse=True)) < (len(b), sorted(b, reverse=True)),
            id="is_narrower_than",
        ),
        pytest.param(
            lambda a, b: a.is_less_than(b),
            lambda a, b: sum(1 << bit for bit in a) < sum(1 << bit for bit in b),
            id="is_less_than",
        ),
        pytest.param(
            lambda a, b: a.is_greater_than(b),
            lambda a, b: sum(1 << bit for bit in a) > sum(1 << bit for bit in b),
            id="is_greater_than",
        ),
    ],
)
def test_comparisons_agree_with_sets(of_masks, of_sets) -> None:
    """All 256 x 256 pairs compare as Python's own sets do."""
    for (left, left_set), (right, right_set) in product(zip(MASKS, SETS, strict=True), repeat=2):
        assert of_masks(left, right) is of_sets(left_set, right_set)


def test_a_mask_describes_itself_as_a_set_does() -> None:
    """Size, truth, membership, iteration and integer value agree for all masks of 8 positions."""
    for value, (mask, bits) in enumerate(zip(MASKS, SETS, strict=True)):
        assert (len(mask), mask.count(), bool(mask), mask.is_empty()) == (
            len(bits),
            len(bits),
            bool(bits),
            not bits,
        )

        assert list(mask) == list(mask.bits()) == sorted(bits)
        assert [bit for bit in range(-2, 70) if bit in mask] == sorted(bits)
        assert [bit for bit in range(-2, 70) if mask.is_set(bit)] == sorted(bits)
        assert int(mask) == value == mask.__index__()
        assert BitMask(bits) == mask == BitMask(mask)
        assert hash(BitMask(bits)) == hash(mask)
        assert eval(repr(mask)) == mask  # noqa: S307 - that a repr evaluates back is the promise

        pickled = pickle.loads(pickle.dumps(mask))  # noqa: S301 - our own bytes
        assert pickled == mask == copy.deepcopy(mask)


@given(WORDS, WORDS)
def test_all_64_positions_work_alike(left_word: int, right_word: int) -> None:
    """Masks of 64 positions behave as the sets of their bits."""
    left, right = BitMask.from_int(left_word), BitMask.from_int(right_word)

    assert [int(left & right), int(left | right), int(left ^ right), int(left - right)] == [
        left_word & right_word,
        left_word | right_word,
        left_word ^ right_word,
        left_word & ~right_word,
    ]
    assert left.count() == left_word.bit_count()
    assert left.bits() == tuple(bit for bit in range(64) if left_word >> bit & 1)
    assert left.is_narrower_than(right) is (
        (left_word.bit_count(), left_word) < (right_word.bit_count(), right_word)
    )


def test_a_mask_cannot_be_changed() -> None:
    """There is nothing to assign to, and words that change a mask in the KEP return another one."""
    mask = BitMask([1])
    changed = [
        mask.add(2),
        mask.remove(1),
        mask.clear(),
        mask.fill(3),
        mask.and_(BitMask([2])),
        mask.or_(BitMask([2])),
    ]

    assert [int(result) for result in changed] == [6, 0, 0, 7, 0, 6]
    assert int(mask) == 2
    with pytest.raises(AttributeError):
        mask.word = 3

    with pytest.raises(TypeError):
        mask[0] = True


def test_masks_work_as_keys() -> None:
    """Equal masks are one key."""
    assert {BitMask([0, 2]): "a"}[BitMask.from_int(5)] == "a"
    assert len({*MASKS, *MASKS}) == 256


def test_and_and_or_take_any_number_of_masks() -> None:
    """As in the KEP, several masks go in at once, or none."""
    masks = [BitMask([0, 1]), BitMask([1, 2])]

    assert BitMask([1, 3]).and_(*masks) == BitMask([1])
    assert BitMask([3]).or_(*masks) == BitMask([0, 1, 2, 3])
    assert BitMask([3]).and_() == BitMask([3]) == BitMask([3]).or_()


def test_fill_goes_up_to_a_width() -> None:
    """A filled mask has every position below the width, 64 unless said otherwise."""
    assert [int(BitMask().fill(width)) for width in (0, 1, 8, 63, 64)] == [
        0,
        1,
        255,
        2**63 - 1,
        2**64 - 1,
    ]
    assert BitMask().fill().count() == 64


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "00"), (1, "01"), (2, "10"), (3, "11"), (4, "100"), (5, "0101"), (6, "0110"),
        (8, "1000"), (16, "10000"), (17, "010001"), (32, "100000"), (255, "11111111"),
        (256, "100000000"), (257, "0100000001"),
        (1 << 62, "1" + "0" * 62), ((1 << 62) + 1, "01" + "0" * 61 + "1"),
        ((1 << 64) - 1, "1" * 64),
    ],
)  # fmt: skip
def test_str_is_as_the_kubelet_prints(value: int, text: str) -> None:
    """Digits come in pairs; a power of four alone is printed as it is."""
    assert str(BitMask.from_int(value)) == text


@pytest.mark.parametrize("bit", [-1, 64, 1000, -(2**70), 2**70])
def test_a_position_out_of_range_is_named(bit: int) -> None:
    """The error says which position it was, in the constructor as in `add` and `remove`."""
    for attempt in (
        lambda: BitMask([0, bit]),
        lambda: BitMask().add(bit),
        lambda: BitMask().remove(bit),
    ):
        with pytest.raises(ValueError, match=f"expected NUMA node positions in 0..63, got {bit}"):
            attempt()


@pytest.mark.parametrize("bits", [["0"], [1.0], [None]])
def test_positions_are_whole_numbers(bits: list[object]) -> None:
    """Anything else is refused, by its value."""
    with pytest.raises(TypeError, match="expected NUMA node positions as int, got"):
        BitMask(bits)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_an_integer_beyond_64_bits_is_no_mask(value: int) -> None:
    with pytest.raises(ValueError, match=rf"expected a mask in 0\.\.2\*\*64-1, got {value}"):
        BitMask.from_int(value)


@pytest.mark.parametrize("width", [-1, 65])
def test_a_width_out_of_range_is_named(width: int) -> None:
    with pytest.raises(ValueError, match=rf"expected a width in 0\.\.64, got {width}"):
        BitMask().fill(width)


def test_a_mask_mixes_with_masks_only() -> None:
    """Operations with ints or sets are refused instead of guessed at."""
    mask = BitMask([1])
    for attempt in (
        lambda: mask & 1, lambda: mask | {1}, lambda: mask ^ 1, lambda: mask - 1, lambda: 1 & mask,
        lambda: mask < 1, lambda: mask.and_(1), lambda: mask.or_(1), lambda: mask.is_equal(None),
        lambda: mask.isdisjoint(1), lambda: mask.is_narrower_than(None),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            attempt()
    assert mask != 1
    assert "1" not in mask


@pytest.mark.parametrize("value", [3.5, "3", None])
def test_what_is_no_integer_is_no_mask(value: object) -> None:
    """A fraction is not cut off."""
    with pytest.raises(TypeError):
        BitMask.from_int(value)  # type: ignore[arg-type]
