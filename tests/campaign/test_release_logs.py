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
from alignup.kubelet.log import KubeletLog, log_line, read_log
from rig.managers import PROGRAMS, answers, why_not
from rig.scenarios import scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from alignup.explanations.explanation import Explanation
    from alignup.kubelet.log import Decision, LoggedHint

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
    told: dict[str, Any], container: str | None
) -> list[dict[str, list[LoggedHint] | None]]:
    """Return what each provider offered for a container or the pod, as the program has it, in an order of its own."""
    hints = told["podHints"] if container is None else told["containers"][container]["hints"]
    return [
        {
            name: some and [(mask_of(one["numa"]), one["preferred"]) for one in some]
            for name, some in (by_name or {}).items()
        }
        for by_name in hints.values()
    ]


def mask_of(nodes: list[int] | None) -> int | None:
    """Return a hint's NUMA nodes as a mask."""
    return None if nodes is None else sum(1 << node for node in nodes)


def in_order(hints: list[dict[str, list[LoggedHint] | None]]) -> list[str]:
    """Return the same in one order."""
    return sorted(
        json.dumps({name: some and sorted(some, key=repr) for name, some in sorted(given.items())})
        for given in hints
    )


def refusals(case: dict[str, Any], answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the answers to pods that were refused, by the pods' names."""
    return {
        f"default/{asked['admit']['metadata']['name']}": told
        for asked, told in zip(case["steps"], answer["expect"], strict=True)
        if "admit" in asked and not told["admitted"]
    }


def read(answer: dict[str, Any], *, denied: bool) -> KubeletLog:
    """Return what a scenario's log says, with or without the line that tells why a pod was refused."""
    lines = (
        "".join(step.get("log", "") for step in answer["expect"]).encode().splitlines(keepends=True)
    )
    try:
        return read_log(
            (one for one in lines if denied or log_line(one.decode())[1] != DENIED), "LOG"
        )
    except InputError:  # the topology manager was asked nothing
        return KubeletLog()


def differences(
    case: dict[str, Any], told: dict[str, Any], found: Explanation, decisions: tuple[Decision, ...]
) -> Iterator[str]:
    """Yield what an explanation of a refused pod says otherwise than the program."""
    kubelet = case["kubelet"]
    if found.reason != told["reason"] or found.log["message"] not in {told["message"], ""}:
        yield (
            f"{found.reason}: {found.log['message']}, the kubelet: {told['reason']}: "
            f"{told['message']}"
        )

    if found.cause_kind == "unknown":
        yield f"no cause of {told['reason']}: {told['message']}"

    if found.policy != kubelet["topologyManagerPolicy"]:
        yield f"policy {found.policy}"

    for one in decisions:
        hints = offered(told, one.container)
        if in_order(one.hints) != in_order(hints):
            yield f"hints {one.hints}, the kubelet: {hints}"

    closest = (
        kubelet.get("topologyManagerPolicyOptions", {}).get("prefer-closest-numa-nodes") == "true"
    )
    if found.log["agrees"] is not (None if closest or not found.steps else True):
        yield f"merged {found.log['merged']}, the kubelet: {found.log['best']}"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_the_log_tells_what_the_managers_decided(program: Path, form: str, tmp_path: Path) -> None:
    release = program.parent.name
    cases = [scenario(seed) for seed in range(SEED, SEED + COUNT)]
    refused, merges, silent, wrong = 0, 0, 0, list[str]()
    options = ["-v=4", f"-logging-format={form}"]
    for case, answer in zip(cases, answers(program, cases, tmp_path, 5, options), strict=True):
        if "expect" not in answer:
            silent += 1
            continue

        # without that line in every release, as of logs that were cut
        for denied in [True, False] if int(release.split(".")[1]) > 30 else [False]:
            said, log = refusals(case, answer), read(answer, denied=denied)
            said = {pod: told for pod, told in said.items() if denied or told["reason"] == BY_MERGE}
            if {*log.refusals} != {*said}:
                wrong.append(
                    f"{case['name']}: refused {sorted(log.refusals)}, by the kubelet {sorted(said)}"
                )

            for pod in log.refusals.keys() & said.keys():
                found, decisions = (
                    explain_logged(log, log.refusals[pod]),
                    log.refusals[pod].decisions,
                )
                refused, merges = refused + 1, merges + (found.log["agrees"] is True)
                wrong += [
                    f"{case['name']}, {pod}: {one}"
                    for one in differences(case, said[pod], found, decisions)
                ]

    sys.stdout.write(
        f"kubelet {release}, {form}, seed {SEED}: {refused} refusals read from logs, {merges} "
        "merges replayed, "
        f"{len(wrong)} differ, {silent} scenarios that it does not start with or answer\n"
    )
    assert refused
    assert not wrong, "\n".join(wrong[:10])
