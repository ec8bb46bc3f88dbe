"""Families of masks beyond 8 nodes, which are described and listed."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from alignup import HintList, Merger
from alignup.topology_manager.hints import feasible_hints
from fakes.hint_providers import hint
from inputs.strategies import cases, examples
from models import topology_manager as model

EVERY_MASK = range(1, 1 << 9)


@examples(40)
@given(cases(9, 9))
def test_a_family_knows_which_masks_it_prefers(case: Any) -> None:
    """A written hint is looked up in the description.

    The merge of the two is preferred exactly if the description prefers that mask as well.
    """
    numa_nodes, demands, options = case
    hints = feasible_hints(numa_nodes, demands, **options)
    merger = Merger(numa_nodes)
    preferred = {
        mask
        for mask in EVERY_MASK
        if merger.merge([hints, HintList.from_arrays([mask], [True])]).preferred
    }

    assert preferred == {
        mask for mask, is_good in model.feasible(numa_nodes, demands, **options) if is_good
    }


def test_a_family_that_avoids_nodes_keeps_them_one_by_one() -> None:
    """Of 40 nodes with one CPU each half is avoided: no list of 2^40 masks is made."""
    hints = feasible_hints(40, [(None, [1] * 40, 1)], universe=(1 << 40) - 1, preferred_size=1)
    avoiding = hints.avoiding((1 << 20) - 1)

    assert avoiding.total() == 20 + 2**20 - 1
    assert avoiding.best() == (1, True)
    assert avoiding.best_containing(1 << 20 | 1 << 39) == (1 << 20 | 1 << 39, False)
    assert avoiding.best_containing(1 << 19 | 1 << 39) is None


def test_a_mask_of_the_preferred_size_is_preferred_whatever_sockets_it_touches() -> None:
    """With align-by-socket either is enough.

    That size, or as many sockets as nodes of that size take.
    """
    sockets = [0b00_0000_1111, 0b00_1111_0000, 0b11_0000_0000]
    hints = feasible_hints(
        10,
        [(None, [5, 1, 1, 1, 5, 1, 1, 1, 0, 0], 10)],
        universe=(1 << 10) - 1,
        preferred_size=2,
        sockets=sockets,
        preferred_sockets=1,
    )
    assert Merger(10).merge([hints]) == hint(True, 0, 4)
    assert hints.best() == (0b1_0001, True)


def test_a_described_mask_goes_before_a_higher_one_of_its_size_that_is_listed() -> None:
    """Nodes that may be used alone only are listed beside those that combine freely."""
    hints = feasible_hints(
        10, [(None, [1] * 10, 1)], universe=0b110, preferred_size=1, alone=1 << 9
    )
    assert Merger(10).merge([hints]) == hint(True, 1)
