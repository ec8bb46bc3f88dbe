"""The functions through which providers turn amounts into hints.

And what hostile callers may give them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.topology_manager.hints import feasible_hints, smallest_size
from inputs.strategies import demands, examples
from models import topology_manager as model


@given(
    st.integers(1, 10).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(demands(n), max_size=2), st.integers(0, 2**n - 1))
    )
)
@examples(100)
def test_the_smallest_size_is_that_of_a_plain_enumeration(case: tuple[int, list[Any], int]) -> None:
    """The size is found over any universe, and 0 says that no mask will do."""
    assert smallest_size(*case) == model.smallest(*case)


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
    with pytest.raises(
        ValueError, match=f"expected amounts for {numa_nodes} NUMA nodes, got {len(amounts)}"
    ):
        feasible_hints(numa_nodes, by_node, universe=3, preferred_size=1)

    with pytest.raises(
        ValueError, match=f"expected amounts for {numa_nodes} NUMA nodes, got {len(amounts)}"
    ):
        smallest_size(numa_nodes, by_node, 3)

    with pytest.raises(
        ValueError, match=f"expected a place for each of {len(amounts)} amounts, got 2"
    ):
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
        feasible_hints(
            8, [], universe=1, preferred_size=1, sockets=list(range(1, 10)), preferred_sockets=1
        )


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

    hints = feasible_hints(
        numa_nodes, demands_once, universe=(1 << numa_nodes) - 1, preferred_size=2
    )

    assert hints.best() == (3, True)


@pytest.mark.parametrize("numa_nodes", [8, 9])
def test_masks_that_a_machine_cannot_have_are_no_hints(numa_nodes: int) -> None:
    """Empty ones and ones with nodes beyond the last are passed over, and doubles count once."""
    beyond = 1 << numa_nodes
    hints = feasible_hints(
        numa_nodes,
        [(None, [1] * numa_nodes, 2)],
        universe=beyond | 3,
        preferred_size=2,
        groups=[5, 5, 9, beyond | 8],
        extra=[0, beyond, beyond | 1, 6, 6, 3],
    )

    assert model.unpacked(hints) == [(3, True), (5, True), (6, True), (9, True)]
    assert hints.total() == 4
    assert smallest_size(numa_nodes, [(None, [1] * numa_nodes, 2)], beyond | 1) == 0


def test_a_described_list_has_its_limits() -> None:
    """Beyond 8 nodes a search takes so many demands.

    None of them may be lessened by more nodes.
    """
    with pytest.raises(ValueError, match="at most 32 demands beyond 8 NUMA nodes, got 33"):
        smallest_size(9, [(None, [1] * 9, 1)] * 33, 1)
    with pytest.raises(ValueError, match="amounts of 0 or more beyond 8 NUMA nodes, got -1"):
        feasible_hints(9, [(None, [-1] * 9, 1)], universe=1, preferred_size=1)


class Growing:
    """A number that makes the list it is in longer whenever it is read."""

    def __init__(self, home: list[Any]) -> None:
        self.home = home

    def __index__(self) -> int:
        self.home.extend([1] * 100_000)
        return 1


@pytest.mark.parametrize("numa_nodes", [2, 8, 9, 20])
@pytest.mark.parametrize("of_places", [False, True])
def test_a_list_that_grows_while_it_is_read_is_read_as_it_was(
    numa_nodes: int, of_places: bool
) -> None:
    """What a caller's numbers do when they are read never reaches beyond the kernels' room."""
    amounts: list[Any] = [1] * numa_nodes
    places: list[Any] | None = [1] * numa_nodes if of_places else None
    for home in (amounts, places):
        if home is not None:
            home[0] = Growing(home)

    hints = feasible_hints(
        numa_nodes, [(places, amounts, 1)], universe=(1 << numa_nodes) - 1, preferred_size=1
    )

    assert hints.best() == (1, True)
    assert smallest_size(numa_nodes, [(None, [1] * numa_nodes, 1)], 3) == 1


@pytest.mark.parametrize("numa_nodes", [2, 8, 9, 64])
@pytest.mark.parametrize("large", [1 << 56, 1 << 62, (1 << 63) - 1, -(1 << 63)])
def test_amounts_whose_sums_could_overflow_are_refused(numa_nodes: int, large: int) -> None:
    """The bound is far above any machine's bytes, and its sums fit the kernels' integers."""
    demand = (None, [large] * numa_nodes, 1)

    with pytest.raises(
        ValueError, match="expected amounts of at most 72057594037927936 in all, got"
    ):
        feasible_hints(numa_nodes, [demand], universe=3, preferred_size=1)
    with pytest.raises(
        ValueError, match="expected amounts of at most 72057594037927936 in all, got"
    ):
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
        hints = feasible_hints(numa_nodes, [(None, amounts, request)], universe=3, preferred_size=1)
        assert hints.best() == best
