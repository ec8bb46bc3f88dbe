"""Compares whole scenarios with what a kubelet answered."""

from __future__ import annotations

from typing import Any

from alignup.replay import replay
from replays.kubelet_steps import ATTEMPTS, check_step, replay_following


def check_attempt(case: dict[str, Any], attempt: int) -> None:
    """Replay a scenario and compare every step."""
    answers = replay_following(case, attempt)
    refused: dict[str, dict[str, Any]] = {}
    for index, (scenario_step, step, expected) in enumerate(
        zip(case["steps"], answers, case["expect"], strict=True)
    ):
        if "admit" in scenario_step:
            uid = scenario_step["admit"]["metadata"]["uid"]
            refused[uid] = {} if expected["admitted"] else expected

        refused |= {pod["uid"]: pod for pod in expected.get("again", ()) if not pod["admitted"]}

        # the program that records passes over the start of a pod that is not there; no kubelet is
        # asked
        not_there = {}
        if expected["admitted"]:  # a kubelet that does not run says so itself
            not_there = refused.get(scenario_step.get("start", ""), {})

        refusal = {
            key: not_there[key] for key in ("admitted", "reason", "message") if key in not_there
        }
        try:
            check_step(case, step, {**expected, **refusal})
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
