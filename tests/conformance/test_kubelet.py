"""Whole nodes decide as the real kubelet did.

Verdicts, allocations and every hint that was offered.
"""

from __future__ import annotations

from typing import Any

import pytest

from alignup.topology_manager.hints import BitMask, TopologyHint
from alignup.topology_manager.policy import make_policy
from inputs.vectors import vectors
from replays.kubelet_answers import check_case


@pytest.mark.parametrize("name", ["admission", "wide"])
def test_every_scenario_ends_as_in_the_kubelet(name: str) -> None:
    """All scenarios of a file agree, step by step; the first few that do not are shown."""
    failures = []
    total = 0
    for case in vectors(name):
        total += 1
        try:
            check_case(case)
        except AssertionError as error:
            failures.append(str(error)[:2000])

    assert not failures, f"{len(failures)} of {total} differ:\n" + "\n".join(failures[:3])
    assert total > 0


def hint_list(pairs: list[list[Any]] | None) -> list[TopologyHint] | None:
    if pairs is None:
        return None
    return [TopologyHint(None if m is None else BitMask.from_int(m), bool(p)) for m, p in pairs]


def test_every_merge_is_the_kubelets() -> None:
    """Each policy merges the recorded hints into the recorded hint.

    It does so in any order of the providers.
    """
    total = 0
    for case in vectors("merge"):
        total += 1
        options = {}
        if case.get("preferClosest"):
            options = {"prefer-closest-numa-nodes": "true"}

        policy = make_policy(case["policy"], len(case["numaNodes"]), case["distances"], options)
        providers = [
            None if provider is None else {r: hint_list(h) for r, h in provider.items()}
            for provider in case["providers"]
        ]
        expected = case["expect"]
        recorded = (expected["affinity"], bool(expected["preferred"]), expected["admit"])
        for ordered in (providers, providers[::-1]):
            best, admit = policy.merge(ordered)

            mask = None
            if best.affinity is not None:
                mask = int(best.affinity)

            assert recorded == (mask, best.preferred, admit), case["name"]

    assert total > 0
