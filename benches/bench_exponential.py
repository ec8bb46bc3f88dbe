"""Whole scenarios that a product of all hints never ends.

They have eight NUMA nodes, CPU, memory and two or three devices.
"""

from __future__ import annotations

from typing import Any

import pytest

from alignup.replay import replay
from inputs.exponential import scenario

LONGEST = 50_000
"""Microseconds for a scenario, from its JSON to all its answers."""


def hardest(count: int) -> list[dict[str, Any]]:
    """Return those of the first hundred scenarios that offer the most hints."""

    def hints(case: dict[str, Any]) -> int:
        steps = replay(case, with_hints=True)["steps"]
        return sum(len(hint_list or ()) for step in steps for hint_list in every_list(step))

    return sorted(map(scenario, range(100)), key=hints, reverse=True)[:count]


def every_list(step: dict[str, Any]) -> list[list[Any] | None]:
    """Return all lists of hints that a step shows."""
    hints_of_askers = [container.get("hints", {}) for container in step["containers"].values()] + [
        step.get("podHints", {})
    ]
    return [
        hints
        for providers in hints_of_askers
        for resources in providers.values()
        for hints in (resources or {}).values()
    ]


@pytest.mark.parametrize("rank", range(3), ids=["hardest", "second", "third"])
@pytest.mark.benchmark(group="exponential")
def test_replay(benchmark, promise, rank):
    """The kubelet does not finish any of them in two seconds; here each takes less than 50 ms."""
    case = hardest(3)[rank]
    expected = replay(case)
    assert {step["admitted"] for step in expected["steps"]} == {True, False}

    assert benchmark(replay, case) == expected

    promise(LONGEST)
