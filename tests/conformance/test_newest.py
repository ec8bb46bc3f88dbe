"""Nodes decide as the kubelets 1.36 and 1.37 did on what 1.37 changed."""

from __future__ import annotations

import pytest

from inputs.vectors import vectors
from replays.kubelet_answers import check_case


@pytest.mark.parametrize("name", ["1.37", "pod-level-managers"])
def test_every_scenario_ends_as_in_that_release(name: str) -> None:
    failures = []
    cases = list(vectors(f"newest/{name}", own=True))
    for case in cases:
        try:
            check_case(case)
        except AssertionError as error:
            failures.append(str(error)[:2000])

    assert not failures, f"{len(failures)} of {len(cases)} differ:\n" + "\n".join(failures[:3])
    assert cases
