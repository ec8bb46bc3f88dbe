"""Where the memory of a container goes that shared a group of NUMA nodes.

Row `release` of docs/deviations.md.

Kubelets give it back to the lowest nodes of the group, so that a later container can be given one
of them alone. Up to 1.31 they are followed; since then each byte comes back to the node that it
came from.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest

from alignup.replay import replay
from inputs.vectors import vectors
from replays.kubelet_answers import check_case

CASES = list(vectors("versions/released-memory", own=True))
NAMES = [f"{case['name']}-{case['kubeletVersion']}" for case in CASES]


def nodes_of(step: dict[str, Any]) -> list[list[int]]:
    """Return the NUMA nodes of each container's memory."""
    containers = step.get("containers", {}).values()
    return [
        block.get("numa", block.get("numaNodes"))
        for container in containers
        for block in container.get("memory", ())
    ]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_later_container_stays_in_the_group_but_for_older_kubelets(case: dict[str, Any]) -> None:
    if case["kubeletVersion"] in ("1.29", "1.30", "1.31"):
        check_case(case)
        return
    ours = replay(case)["steps"]
    pairs = [
        (nodes_of(step), nodes_of(expected))
        for step, expected in zip(ours, case["expect"], strict=True)
    ]
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    check_case({**case, "steps": case["steps"][:same], "expect": case["expect"][:same]})
    assert pairs[same] == ([[0, 1]], [[0]])
