"""What the managers of each release log about random pods, explained.

Which it refused and why, and its merges again.

`ALIGNUP_MANAGERS` names the programs, as for test_fresh_scenarios.py; `ALIGNUP_FRESH` says how many
scenarios (300).
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from alignup.cli.explain_log import explain_logged
from alignup.errors import InputError
from alignup.kubelet.log import KubeletLog, LoggedHint, log_line, read_log
from rig.managers import PROGRAMS, answers, why_not
from rig.scenarios import scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from alignup.explanations.explanation import Explanation
    from alignup.kubelet.log import Decision

COUNT = int(os.environ.get("ALIGNUP_FRESH", "300"))
SEED = int(os.environ.get("ALIGNUP_SEED") or random.SystemRandom().randrange(10**6, 10**9))
BY_MERGE = "TopologyAffinityError"
DENIED = "Pod admission denied"
"""What kubelets from 1.31 on write of each refused pod."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "they can be asked"),
]


def offered(
    answer: dict[str, Any], container: str | None, *, scores: bool
) -> list[dict[str, list[LoggedHint] | None]]:
    """Return what each provider offered for a container or the pod, as the program has it.

    It is in an order of its own. Hints may have `scores`, of which the program leaves out 0.
    """
    no_score = 0 if scores else None
    hints = answer["podHints"] if container is None else answer["containers"][container]["hints"]
    return [
        {
            name: hints_of_resource
            and [
                LoggedHint(mask_of(hint["numa"]), hint["preferred"], hint.get("score", no_score))
                for hint in hints_of_resource
            ]
            for name, hints_of_resource in (by_name or {}).items()
        }
        for by_name in hints.values()
    ]


def mask_of(nodes: list[int] | None) -> int | None:
    """Return a hint's NUMA nodes as a mask."""
    if nodes is None:
        return None
    return sum(1 << node for node in nodes)


def in_order(hints: list[dict[str, list[LoggedHint] | None]]) -> list[str]:
    """Return the same in one order."""
    return sorted(
        json.dumps(
            {
                name: hints_of_resource and sorted(hints_of_resource, key=repr)
                for name, hints_of_resource in sorted(by_name.items())
            }
        )
        for by_name in hints
    )


def refusals(case: dict[str, Any], answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the answers to pods that were refused, by the pods' names."""
    return {
        f"default/{step['admit']['metadata']['name']}": pod_answer
        for step, pod_answer in zip(case["steps"], answer["expect"], strict=True)
        if "admit" in step and not pod_answer["admitted"]
    }


def read(answer: dict[str, Any], *, denied: bool) -> KubeletLog:
    """Return what a scenario's log says.

    It is with or without the line that tells why a pod was refused.
    """
    lines = (
        "".join(step.get("log", "") for step in answer["expect"]).encode().splitlines(keepends=True)
    )
    try:
        return read_log(
            (line for line in lines if denied or log_line(line.decode())[1] != DENIED), "LOG"
        )
    except InputError:  # the topology manager was asked nothing
        return KubeletLog()


def differences(
    case: dict[str, Any],
    answer: dict[str, Any],
    explanation: Explanation,
    decisions: tuple[Decision, ...],
    *,
    scores: bool,
) -> Iterator[str]:
    """Yield what an explanation of a refused pod says otherwise than the program."""
    kubelet = case["kubelet"]
    if explanation.reason != answer["reason"] or explanation.log["message"] not in {
        answer["message"],
        "",
    }:
        yield (
            f"{explanation.reason}: {explanation.log['message']}, the kubelet: {answer['reason']}: "
            f"{answer['message']}"
        )

    if explanation.cause_kind == "unknown":
        yield f"no cause of {answer['reason']}: {answer['message']}"

    if explanation.policy != kubelet["topologyManagerPolicy"]:
        yield f"policy {explanation.policy}"

    for decision in decisions:
        hints = offered(answer, decision.container, scores=scores)
        if in_order(decision.hints) != in_order(hints):
            yield f"hints {decision.hints}, the kubelet: {hints}"

    closest = (
        kubelet.get("topologyManagerPolicyOptions", {}).get("prefer-closest-numa-nodes") == "true"
    )
    agrees = True
    if closest or not explanation.steps:
        agrees = None
    if explanation.log["agrees"] is not agrees:
        yield f"merged {explanation.log['merged']}, the kubelet: {explanation.log['best']}"

    merged, best = explanation.log["merged"], explanation.log["best"]
    if agrees and "score" in (merged or {}) and merged["score"] != best["score"]:
        yield f"score {merged['score']}, the kubelet: {best['score']}"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_the_log_tells_what_the_managers_decided(program: Path, form: str, tmp_path: Path) -> None:
    release = program.parent.name
    minor = int(release.split(".")[1])
    cases = [scenario(seed) for seed in range(SEED, SEED + COUNT)]
    refused, merges, silent, wrong = 0, 0, 0, list[str]()
    options = ["-v=4", f"-logging-format={form}"]
    for case, answer in zip(cases, answers(program, cases, tmp_path, 5, options), strict=True):
        if "expect" not in answer:
            silent += 1
            continue

        # without that line in every release, as of logs that were cut
        forms = [False]
        if minor > 30:
            forms = [True, False]
        for denied in forms:
            refused_by_pod, log = refusals(case, answer), read(answer, denied=denied)
            refused_by_pod = {
                pod: pod_answer
                for pod, pod_answer in refused_by_pod.items()
                if denied or pod_answer["reason"] == BY_MERGE
            }
            if {*log.refusals} != {*refused_by_pod}:
                wrong.append(
                    f"{case['name']}: refused {sorted(log.refusals)}, "
                    f"by the kubelet {sorted(refused_by_pod)}"
                )

            for pod in log.refusals.keys() & refused_by_pod.keys():
                explanation, decisions = (
                    explain_logged(log, log.refusals[pod]),
                    log.refusals[pod].decisions,
                )
                refused, merges = refused + 1, merges + (explanation.log["agrees"] is True)
                wrong += [
                    f"{case['name']}, {pod}: {difference}"
                    for difference in differences(
                        case, refused_by_pod[pod], explanation, decisions, scores=minor > 37
                    )
                ]

    sys.stdout.write(
        f"kubelet {release}, {form}, seed {SEED}: {refused} refusals read from logs, {merges} "
        "merges replayed, "
        f"{len(wrong)} differ, {silent} scenarios that it does not start with or answer\n"
    )
    assert refused
    assert not wrong, "\n".join(wrong[:10])
