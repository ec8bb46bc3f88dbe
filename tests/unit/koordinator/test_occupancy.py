"""Who holds which NUMA nodes, and as which kind of pod."""

from __future__ import annotations

import pytest

from alignup.koordinator.effective import NOTHING_HELD, Occupancy
from alignup.koordinator.node_policies import pod_occupancy
from fakes.hint_providers import hint


@pytest.mark.parametrize(
    ("policy", "containers", "expected"),
    [
        ("single-numa-node", [(0b01, hint(True, 0))], Occupancy(single=0b01)),
        (
            "single-numa-node",
            [(0b01, hint(True, 0)), (0b10, hint(True, 1))],
            Occupancy(single=0b11),
        ),
        ("single-numa-node", [(0, hint(True, 1))], Occupancy(single=0b10)),
        ("single-numa-node", [(0, hint(True))], NOTHING_HELD),
        ("restricted", [(0b011, hint(True, 0, 1))], Occupancy(multi=0b11)),
        ("restricted", [(0b001, hint(True, 0, 1))], Occupancy(multi=0b11)),
        ("restricted", [(0b01, hint(True, 0)), (0b10, hint(True, 1))], NOTHING_HELD),
        ("restricted", [(0, hint(True, 0, 1, 2))], NOTHING_HELD),
        ("restricted", [(0, hint(True, 0, 1))], Occupancy(multi=0b011)),
        ("best-effort", [(0b010, hint(False, 0, 1, 2))], NOTHING_HELD),
        ("best-effort", [(0b110, hint(False, 1))], Occupancy(multi=0b110)),
        ("none", [(0b01, None), (0b10, None)], Occupancy(multi=0b11)),
        ("none", [(0b01, None), (0b00, None)], NOTHING_HELD),
    ],
)
def test_what_a_pod_holds(policy, containers, expected):
    """By what its containers got, and by affinities that say so.

    A pod in one node by chance holds nothing.
    """
    assert pod_occupancy(policy, containers, 0b111) == expected
