"""What described lists have in common: the nodes outside are divided among them."""

from __future__ import annotations

from alignup import Merger
from alignup.topology_manager.hints import feasible_hints
from fakes.hint_providers import hint


def test_a_list_may_leave_out_a_node_that_is_all_it_can_spare() -> None:
    """Each list can do without one node of nine; both can agree on the same one."""
    lists = [
        feasible_hints(9, [(None, [2] * 9, 16)], universe=(1 << 9) - 1, preferred_size=-1)
        for _ in range(2)
    ]
    assert Merger(9).merge(lists) == hint(False, *range(8))
