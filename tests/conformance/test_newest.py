"""Nodes decide as kubelets did on what the newest releases changed.

Those are 1.37, with 1.36 beside it, and the preview of 1.38, after restarts of the kubelet too.
"""

from __future__ import annotations

import pytest

from inputs.vectors import vectors
from replays.kubelet_answers import check_case


@pytest.mark.parametrize("name", ["1.37", "1.38", "1.38-restart", "pod-level-managers"])
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
