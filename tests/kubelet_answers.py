"""Compares whole scenarios with what a kubelet answered."""

from __future__ import annotations

from typing import Any

from alignup.replay import replay
from kubelet_steps import ATTEMPTS, check_step, replay_following


def check_attempt(case: dict[str, Any], attempt: int) -> None:
    """Replay a scenario and compare every step."""
    answers = replay_following(case, attempt)
    for index, (step, expected) in enumerate(zip(answers, case["expect"], strict=True)):
        try:
            check_step(case, step, expected)
        except AssertionError as error:
            raise AssertionError(f"{case['name']} step {index}: {error}") from error


def check_case(case: dict[str, Any]) -> None:
    """Replay a scenario; some sequence of arbitrary picks must lead to all that is recorded."""
    if "configError" in case:
        assert "configError" in replay(case), case["name"]
        return
    for attempt in range(ATTEMPTS):
        try:
            check_attempt(case, attempt)
        except AssertionError:
            if attempt == ATTEMPTS - 1 or not case.get("devices"):
                raise
        else:
            return
