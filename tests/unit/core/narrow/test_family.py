"""Up to 8 nodes all masks that hold a request are listed, the preferred ones apart."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from alignup.topology_manager.hints import feasible_hints
from inputs.strategies import cases, examples
from models import topology_manager as model

NARROW = cases(1, 8)


@examples(150)
@given(NARROW)
def test_feasible_hints_are_those_of_a_plain_enumeration(
    case: tuple[int, list[Any], dict[str, Any]],
) -> None:
    """Up to 8 nodes: the same masks, the same preference, narrowest first."""
    numa_nodes, demands, options = case

    assert feasible_hints(numa_nodes, demands, **options).pairs() == model.feasible(
        numa_nodes, demands, **options
    )
