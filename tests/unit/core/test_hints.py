"""Hints, packed lists of them, and the doors through which providers make such lists."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import model
from alignup.topology_manager.hints import (
    IMPOSSIBLE,
    NO_PREFERENCE,
    BitMask,
    HintList,
    TopologyHint,
    feasible_hints,
    smallest_size,
)
from strategies import cases, demands, pairs

NARROW = cases(1, 8)
WIDE = cases(9, 10)


def hints_of(*given_pairs: tuple[int | None, bool]) -> HintList:
    return HintList(model.hint_list(given_pairs))


def test_a_hint_is_a_value() -> None:
    """Equal hints are equal, hash alike, evaluate back from their repr and survive pickling."""
    hint = TopologyHint(BitMask([0, 1]), True)

    assert hint == TopologyHint(BitMask([0, 1]), True)
    assert hash(hint) == hash(TopologyHint(BitMask([0, 1]), True))
    assert hint != TopologyHint(BitMask([0, 1]), False)
    assert hint != TopologyHint(None, True)
    assert hint != "hint"
    assert repr(hint) == "TopologyHint(BitMask([0, 1]), True)"
    assert repr(TopologyHint(None, False)) == "TopologyHint(None, False)"
    assert pickle.loads(pickle.dumps(hint)) == hint  # noqa: S301 - our own bytes


def test_a_hint_cannot_be_changed_and_can_be_matched() -> None:
    """Its two fields are read-only, and positional in a match statement."""
    hint = TopologyHint(BitMask([3]), False)
    match hint:
        case TopologyHint(affinity, preferred):
            assert (affinity, preferred) == (BitMask([3]), False)
    with pytest.raises(AttributeError):
        hint.preferred = True
    with pytest.raises(TypeError):
        TopologyHint([3], False)


@given(st.lists(pairs(9), max_size=12))
def test_a_list_keeps_what_it_was_given(given_pairs: list[tuple[int | None, bool]]) -> None:
    """Order, repetitions, empty masks and hints without a mask stay as they came, below and above 8 nodes."""
    given = model.hint_list(given_pairs)
    packed = HintList(given)

    assert list(packed) == given
    assert packed.pairs() == given_pairs
    assert (len(packed), bool(packed), packed.total()) == (len(given), bool(given), len(given))
    assert packed == HintList(iter(given))
    assert hash(packed) == hash(HintList(given))
    assert [packed[index] for index in range(len(given))] == given
    assert list(packed.sample(3)) == given[:3]
    assert all(hint in packed for hint in given)
    assert pickle.loads(pickle.dumps(packed)) == packed  # noqa: S301 - our own bytes
    assert eval(repr(packed)) == packed  # noqa: S307 - that a repr evaluates back is the promise


def test_lists_of_equal_hints_are_equal() -> None:
    """A list that a caller wrote equals one that was computed, if hints and order are the same."""
    computed = feasible_hints(2, [(None, [1, 1], 1)], universe=3, preferred_size=1)

    assert computed == hints_of((1, True), (2, True), (3, False))
    assert hash(computed) == hash(hints_of((1, True), (2, True), (3, False)))
    assert computed != hints_of((2, True), (1, True), (3, False))
    assert computed != [TopologyHint(BitMask([0]), True)]
    assert TopologyHint(BitMask([0]), True) in computed
    assert TopologyHint(BitMask([0]), False) not in computed


def test_the_empty_list_says_that_nothing_will_do() -> None:
    assert not HintList.empty()
    assert list(HintList.empty()) == []
    assert HintList.empty() == HintList([]) == HintList()
    assert HintList.empty().best() is None


def test_no_preference_and_impossible_are_spelled_differently() -> None:
    """Both name any node; only one of them is preferred."""
    assert NO_PREFERENCE.pairs() == [(None, True)]
    assert IMPOSSIBLE.pairs() == [(None, False)]


@pytest.mark.parametrize("wrong", [3, (1, True), None, BitMask([1])])
def test_a_list_takes_hints_only(wrong: object) -> None:
    with pytest.raises(TypeError, match="expected TopologyHint objects, got"):
        HintList([wrong])


@settings(max_examples=300)
@given(NARROW)
def test_feasible_hints_are_those_of_a_plain_enumeration(case: tuple[int, list[Any], dict[str, Any]]) -> None:
    """Up to 8 nodes: the same masks, the same preference, narrowest first."""
    numa_nodes, wanted, options = case

    assert feasible_hints(numa_nodes, wanted, **options).pairs() == model.feasible(
        numa_nodes, wanted, **options
    )


@settings(max_examples=80, deadline=None)
@given(WIDE)
def test_wide_feasible_hints_are_those_of_a_plain_enumeration(
    case: tuple[int, list[Any], dict[str, Any]],
) -> None:
    """Beyond 8 nodes a description is walked, sampled, counted and searched as the enumeration says."""
    numa_nodes, wanted, options = case
    expected = model.feasible(numa_nodes, wanted, **options)
    described = feasible_hints(numa_nodes, wanted, **options)

    assert described.pairs() == expected
    assert model.unpacked(described) == expected
    assert (described.total(), len(described)) == (len(expected), len(expected))
    assert [model.pair(hint) for hint in described.sample(5)] == expected[:5]
    assert bool(described) is bool(expected)


@given(cases(1, 10), st.integers(0, 1023))
@settings(max_examples=150, deadline=None)
def test_the_best_hint_is_preferred_then_narrowest_then_lowest(case: Any, inner: int) -> None:
    """`best` and `best_containing` agree with looking at every hint, for narrow, wide and listed families."""
    numa_nodes, wanted, options = case
    inner &= (1 << numa_nodes) - 1
    expected = model.feasible(numa_nodes, wanted, **options)
    ordered = sorted(expected, key=lambda hint: (not hint[1], hint[0].bit_count(), hint[0]))
    around = [hint for hint in ordered if hint[0] & inner == inner]

    for hints in (feasible_hints(numa_nodes, wanted, **options), hints_of(*expected)):
        assert hints.best() == (ordered[0] if ordered else None)
        assert hints.best_containing(inner) == (around[0] if around else None)


@given(
    st.integers(1, 10).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(demands(n), max_size=2), st.integers(0, 2**n - 1))
    )
)
@settings(max_examples=200, deadline=None)
def test_the_smallest_size_is_that_of_a_plain_enumeration(case: tuple[int, list[Any], int]) -> None:
    """The size is found over any universe, and 0 says that no mask will do."""
    assert smallest_size(*case) == model.smallest(*case)


def test_a_list_too_long_to_walk_is_sampled() -> None:
    """2^34 hints are counted and shown in part; walking, measuring or pickling them is refused."""
    everything = feasible_hints(34, [(None, [1] * 34, 1)], universe=(1 << 34) - 1, preferred_size=1)

    assert everything.total() == 2**34 - 1
    assert [model.pair(hint) for hint in everything.sample(35)] == [
        (1 << node, True) for node in range(34)
    ] + [(3, False)]
    assert everything.best() == (1, True)
    assert everything.best_containing(0b110) == (0b110, False)
    assert repr(everything) == (
        "<HintList of 17179869183 hints, first [TopologyHint(BitMask([0]), True), TopologyHint(BitMask([1]), True)]>"
    )
    assert everything
    for walk in (len, list, pickle.dumps, hash, lambda hints: hints[0], lambda hints: hints.pairs()):
        with pytest.raises(
            OverflowError, match=r"at most 65536 hints to walk through, got 17179869183; use sample\(\)"
        ):
            walk(everything)


def test_a_list_too_varied_to_count_says_so() -> None:
    """Nodes that all differ are not counted one by one: no total is known, and a sample is still there."""
    amounts = [3**node % 1009 + 1 for node in range(40)]
    varied = feasible_hints(
        40, [(None, amounts, sum(amounts) // 3)], universe=(1 << 40) - 1, preferred_size=9
    )

    assert varied.total() is None
    with pytest.raises(OverflowError, match="got too many to count"):
        len(varied)
    assert len(varied.sample(2)) == 2


@given(cases(1, 10), st.integers(0, 1023))
@settings(max_examples=100, deadline=None)
def test_hints_that_avoid_nodes_are_those_that_do_not_mix(case: Any, avoided: int) -> None:
    """Masks of several nodes of which one is avoided are left out; single nodes stay, and so does any node."""
    numa_nodes, wanted, options = case
    offered = model.feasible(numa_nodes, wanted, **options)
    expected = [
        (mask, preferred) for mask, preferred in offered if mask.bit_count() < 2 or not mask & avoided
    ]

    assert feasible_hints(numa_nodes, wanted, **options).avoiding(avoided).pairs() == expected
    assert hints_of((None, True), *offered).avoiding(avoided).pairs() == [(None, True), *expected]


def test_places_beyond_the_machine_hold_nothing() -> None:
    """A device near nodes that a machine does not have is near none."""
    assert feasible_hints(2, [([4, 1], [5, 1], 1)], universe=3, preferred_size=1).pairs() == [
        (1, True),
        (3, False),
    ]


@pytest.mark.parametrize("numa_nodes", [2, 9])
@pytest.mark.parametrize("amounts", [[], [1], [1, 1, 1]])
def test_amounts_must_fit_nodes_or_places(numa_nodes: int, amounts: list[int]) -> None:
    """Amounts are one a node or one a place; the error says how many came."""
    by_node = [(None, amounts, 1)]
    with pytest.raises(ValueError, match=f"expected amounts for {numa_nodes} NUMA nodes, got {len(amounts)}"):
        feasible_hints(numa_nodes, by_node, universe=3, preferred_size=1)
    with pytest.raises(ValueError, match=f"expected amounts for {numa_nodes} NUMA nodes, got {len(amounts)}"):
        smallest_size(numa_nodes, by_node, 3)
    with pytest.raises(ValueError, match=f"expected a place for each of {len(amounts)} amounts, got 2"):
        feasible_hints(numa_nodes, [([1, 2], amounts, 1)], universe=3, preferred_size=1)


def test_a_small_machine_has_so_many_different_places() -> None:
    """Eight nodes make 255 places; whoever lists more has not grouped them."""
    with pytest.raises(ValueError, match="at most 256 places up to 8 NUMA nodes, got 257"):
        feasible_hints(8, [([1] * 257, [1] * 257, 1)], universe=1, preferred_size=1)


@pytest.mark.parametrize("numa_nodes", [-1, 0, 65, 1000])
def test_the_number_of_nodes_is_1_to_64(numa_nodes: int) -> None:
    with pytest.raises(ValueError, match=f"expected 1 to 64 NUMA nodes, got {numa_nodes}"):
        feasible_hints(numa_nodes, [], universe=1, preferred_size=1)
    with pytest.raises(ValueError, match=f"expected 1 to 64 NUMA nodes, got {numa_nodes}"):
        smallest_size(numa_nodes, [], 1)


@pytest.mark.parametrize("numa_nodes", [2, 9])
@pytest.mark.parametrize(
    "demand", [("abc",), (None, ["one", 1], 1), (None, [1, 1], 2**70), ([-1, 1], [1, 1], 1)]
)
def test_what_is_no_demand_is_refused(numa_nodes: int, demand: Any) -> None:
    """Wrong types, and amounts beyond 64 bits, never reach the kernels."""
    with pytest.raises((TypeError, ValueError, OverflowError)):
        feasible_hints(numa_nodes, [demand], universe=3, preferred_size=1)


def test_too_many_groups_or_sockets_are_refused() -> None:
    """Eight nodes have at most eight of either."""
    with pytest.raises(ValueError, match="at most 8 groups of nodes, got 9"):
        feasible_hints(8, [], universe=1, preferred_size=1, groups=list(range(1, 10)))
    with pytest.raises(ValueError, match="at most 8 sockets, got 9"):
        feasible_hints(8, [], universe=1, preferred_size=1, sockets=list(range(1, 10)), preferred_sockets=1)


class Lying:
    """Says that it has one amount, and gives many."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter([1] * 100_000)


@pytest.mark.parametrize("numa_nodes", [1, 9])
def test_a_length_that_is_not_true_is_found_out(numa_nodes: int) -> None:
    """Kernels have room for so many amounts or places as were announced."""
    for demand in ((None, Lying(), 1), (Lying(), [1], 1)):
        with pytest.raises(ValueError, match="100000"):
            feasible_hints(numa_nodes, [demand], universe=1, preferred_size=1)


@pytest.mark.parametrize("numa_nodes", [3, 9])
def test_amounts_and_requests_are_whole_numbers(numa_nodes: int) -> None:
    """A fraction is refused, not cut off."""
    amounts = [1] * numa_nodes
    for demand in ((None, amounts, 1.5), (None, [*amounts[:-1], 1.5], 1)):
        with pytest.raises(TypeError, match="float"):
            feasible_hints(numa_nodes, [demand], universe=1, preferred_size=1)


@pytest.mark.parametrize("numa_nodes", [8, 9])
def test_demands_may_come_from_a_generator(numa_nodes: int) -> None:
    """They are read once, however many nodes there are."""
    demands_once = (demand for demand in [(None, [1] * numa_nodes, 2)])

    found = feasible_hints(numa_nodes, demands_once, universe=(1 << numa_nodes) - 1, preferred_size=2)

    assert found.best() == (3, True)


@pytest.mark.parametrize("numa_nodes", [8, 9])
def test_masks_that_a_machine_cannot_have_are_no_hints(numa_nodes: int) -> None:
    """Empty ones and ones that name nodes beyond the last are passed over, and doubles count once."""
    beyond = 1 << numa_nodes
    found = feasible_hints(
        numa_nodes,
        [(None, [1] * numa_nodes, 2)],
        universe=beyond | 3,
        preferred_size=2,
        groups=[5, 5, 9, beyond | 8],
        extra=[0, beyond, beyond | 1, 6, 6, 3],
    )

    assert model.unpacked(found) == [(3, True), (5, True), (6, True), (9, True)]
    assert found.total() == 4
    assert smallest_size(numa_nodes, [(None, [1] * numa_nodes, 2)], beyond | 1) == 0


def test_a_described_list_has_its_limits() -> None:
    """Beyond 8 nodes a search takes so many demands, none of which may be lessened by more nodes."""
    with pytest.raises(ValueError, match="at most 32 demands beyond 8 NUMA nodes, got 33"):
        smallest_size(9, [(None, [1] * 9, 1)] * 33, 1)
    with pytest.raises(ValueError, match="amounts of 0 or more beyond 8 NUMA nodes, got -1"):
        feasible_hints(9, [(None, [-1] * 9, 1)], universe=1, preferred_size=1)


@pytest.mark.parametrize("numa_nodes", [2, 9, 30])
def test_a_sample_has_no_negative_size(numa_nodes: int) -> None:
    hints = feasible_hints(numa_nodes, [], universe=(1 << numa_nodes) - 1, preferred_size=1)

    assert hints.sample(0) == ()
    with pytest.raises(ValueError, match="how many hints to return, got -1"):
        hints.sample(-1)


def test_a_list_is_a_sequence() -> None:
    """It has all that a sequence has, and equals a plain list of the same hints."""
    first, second = TopologyHint(BitMask([0]), True), TopologyHint(None, False)
    hints = HintList([first, second, first])

    assert isinstance(hints, Sequence)
    assert hints == [first, second, first]
    assert hints != [first]
    assert (hints.index(second), hints.index(first, 1), hints.count(first)) == (1, 2, 2)
    assert list(reversed(hints)) == [first, second, first]
    with pytest.raises(ValueError, match="not in"):
        hints.index(TopologyHint(BitMask([5]), True))


class Growing:
    """A number that makes the list it is in longer whenever it is read."""

    def __init__(self, home: list[Any]) -> None:
        self.home = home

    def __index__(self) -> int:
        self.home.extend([1] * 100_000)
        return 1


@pytest.mark.parametrize("numa_nodes", [2, 8, 9, 20])
@pytest.mark.parametrize("of_places", [False, True])
def test_a_list_that_grows_while_it_is_read_is_read_as_it_was(numa_nodes: int, of_places: bool) -> None:
    """What a caller's numbers do when they are read never reaches beyond the kernels' room."""
    amounts: list[Any] = [1] * numa_nodes
    places: list[Any] | None = [1] * numa_nodes if of_places else None
    for home in (amounts, places):
        if home is not None:
            home[0] = Growing(home)

    found = feasible_hints(
        numa_nodes, [(places, amounts, 1)], universe=(1 << numa_nodes) - 1, preferred_size=1
    )

    assert found.best() == (1, True)
    assert smallest_size(numa_nodes, [(None, [1] * numa_nodes, 1)], 3) == 1


@pytest.mark.parametrize("numa_nodes", [2, 8, 9, 64])
@pytest.mark.parametrize("large", [1 << 56, 1 << 62, (1 << 63) - 1, -(1 << 63)])
def test_amounts_whose_sums_could_overflow_are_refused(numa_nodes: int, large: int) -> None:
    """The bound is far above any machine's bytes, and its sums fit the kernels' integers."""
    demand = (None, [large] * numa_nodes, 1)

    with pytest.raises(ValueError, match="expected amounts of at most 72057594037927936 in all, got"):
        feasible_hints(numa_nodes, [demand], universe=3, preferred_size=1)
    with pytest.raises(ValueError, match="expected amounts of at most 72057594037927936 in all, got"):
        smallest_size(numa_nodes, [demand], 3)


@pytest.mark.parametrize("numa_nodes", [2, 8, 9, 64])
def test_the_largest_amounts_and_requests_are_compared_exactly(numa_nodes: int) -> None:
    """Requests up to 64 bits simply do not fit, or are met by anything."""
    amounts = [0] * numa_nodes
    amounts[1] = 1 << 56
    for request, best in [
        (1 << 56, (2, True)),
        ((1 << 56) + 1, None),
        ((1 << 63) - 1, None),
        (-(1 << 63), (1, True)),
    ]:
        found = feasible_hints(numa_nodes, [(None, amounts, request)], universe=3, preferred_size=1)
        assert found.best() == best


def test_a_sample_is_bounded() -> None:
    """However much is asked for, no more than 65,536 hints are kept in memory."""
    everything = feasible_hints(34, [(None, [1] * 34, 1)], universe=(1 << 34) - 1, preferred_size=1)

    assert len(everything.sample(2**31 - 1)) == 65536


def arrays_of(hints: HintList) -> list[tuple[int, bool]]:
    return list(zip(hints.masks.tolist(), hints.preferred.tolist(), strict=True))


@given(st.lists(pairs(8) | pairs(20), max_size=12).map(lambda some: [one for one in some if one[0] != 0]))
def test_arrays_hold_each_hint_once_in_ascending_order(
    given_pairs: list[tuple[int | None, bool]],
) -> None:
    """0 stands for any node and comes first; a preferred hint comes before the other of its mask."""
    hints = hints_of(*given_pairs)
    expected = sorted({(mask or 0, not preferred) for mask, preferred in given_pairs})

    assert arrays_of(hints) == [(mask, not other) for mask, other in expected]
    assert hints.masks.dtype == ("u1" if all((mask or 0) < 256 for mask, _ in given_pairs) else "u8")
    assert hints.preferred.dtype == bool
    assert not hints.masks.flags.writeable
    assert not hints.preferred.flags.writeable


@given(st.lists(pairs(8) | pairs(64), max_size=12).map(lambda some: [one for one in some if one[0] != 0]))
def test_a_list_from_arrays_is_the_one_they_came_from(given_pairs: list[tuple[int | None, bool]]) -> None:
    """Up to order and repetitions; it can be walked, counted and sent elsewhere as any other."""
    hints = hints_of(*given_pairs)
    again = HintList.from_arrays(hints.masks, hints.preferred)

    assert arrays_of(again) == arrays_of(hints)
    assert set(again) == set(hints)
    assert len(again) == len(set(hints)) == again.total()
    assert pickle.loads(pickle.dumps(again)) == again  # noqa: S301 - our own bytes
    assert HintList.from_arrays(hints.masks[::-1], hints.preferred[::-1]) == again


@given(NARROW)
@settings(max_examples=50)
def test_arrays_of_computed_lists(case: tuple[int, list[Any], dict[str, Any]]) -> None:
    numa_nodes, wanted, options = case
    hints = feasible_hints(numa_nodes, wanted, **options)

    assert arrays_of(hints) == sorted(model.feasible(numa_nodes, wanted, **options))
    assert HintList.from_arrays(hints.masks, hints.preferred) == hints


def test_arrays_that_are_no_hints_are_refused() -> None:
    with pytest.raises(TypeError, match="expected masks of an integer type, got float64"):
        HintList.from_arrays([0.5], [True])
    with pytest.raises(TypeError, match="expected preferred of type bool, got int64"):
        HintList.from_arrays([1], [1])
    with pytest.raises(ValueError, match="expected masks of 0 or more, got -3 at 1"):
        HintList.from_arrays([1, -3], [True, True])
    for masks, preferred in ([[1]], [[True]]), ([1, 2], [True]), (1, True):
        with pytest.raises(ValueError, match="expected masks and preferred of one dimension and one length"):
            HintList.from_arrays(masks, preferred)


@pytest.mark.parametrize("other", [1, 1 << 20])
def test_a_hint_of_no_node_has_no_array(other: int) -> None:
    """0 would read as any node."""
    with pytest.raises(ValueError, match="hints of at least one node"):
        _ = hints_of((0, True), (other, True)).masks


def test_a_list_too_long_to_walk_has_no_arrays() -> None:
    everything = feasible_hints(34, [(None, [1] * 34, 1)], universe=(1 << 34) - 1, preferred_size=1)

    with pytest.raises(OverflowError, match="at most 65536 hints"):
        _ = everything.masks


def test_long_lists_that_were_given_can_be_walked() -> None:
    masks = list(range(1, 70_001))
    hints = HintList.from_arrays(masks, [False] * len(masks))

    assert hints.total() == len(hints) == 70_000
    assert hints.masks.tolist() == masks
