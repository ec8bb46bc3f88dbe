"""What the managers of each release log about random pods, explained: which it refused and why, and its merges again.

`ALIGNUP_MANAGERS` names the programs, as for test_fresh_scenarios.py; `ALIGNUP_FRESH` says how many scenarios (300).
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from alignup.cli.explain_log import explain_logged
from alignup.errors import InputError
from alignup.kubelet.log import LoggedHint, log_line, read_log
from rig.managers import PROGRAMS, answers, why_not
from rig.scenarios import scenario

COUNT = int(os.environ.get("ALIGNUP_FRESH", "300"))
SEED = int(os.environ.get("ALIGNUP_SEED") or random.SystemRandom().randrange(10**6, 10**9))
BY_MERGE = "TopologyAffinityError"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "they can be asked")]


def offered(told: dict[str, Any], container: str | None) -> list[dict[str, list[LoggedHint] | None]]:
    """Return what each provider offered for a container or the pod, as the program has it, in an order of its own."""
    hints = told["podHints"] if container is None else told["containers"][container]["hints"]
    return [
        {name: some and [(_mask(one["numa"]), one["preferred"]) for one in some] for name, some in (given or {}).items()}
        for given in hints.values()
    ]


def _mask(nodes: list[int] | None) -> int | None:
    return None if nodes is None else sum(1 << node for node in nodes)


def in_order(hints: list[dict[str, list[LoggedHint] | None]]) -> list[str]:
    """Return the same in one order."""
    return sorted(
        json.dumps({name: some and sorted(some, key=repr) for name, some in sorted(given.items())}) for given in hints
    )


def differences(case: dict[str, Any], answer: dict[str, Any], *, denied: bool) -> tuple[int, int, list[str]]:
    """Return how many pods were refused, how many merges were replayed, and what the log says otherwise.

    Args:
        case: the scenario.
        answer: the program's.
        denied: whether the log has the line with which kubelets from 1.31 on tell that a pod was refused, and why.
    """
    lines = "".join(step.get("log", "") for step in answer["expect"]).encode().splitlines(keepends=True)
    if not denied:
        lines = [line for line in lines if log_line(line.decode())[1] != "Pod admission denied"]
    said = {
        f"default/{asked['admit']['metadata']['name']}": told
        for asked, told in zip(case["steps"], answer["expect"], strict=True)
        if "admit" in asked and not told["admitted"] and (denied or told["reason"] == BY_MERGE)
    }
    try:
        log = read_log(lines, "LOG")
    except InputError:  # nothing was asked of the topology manager
        return len(said), 0, [f"{case['name']}: no line is a kubelet's"] if said else []
    wrong, merges = [], 0
    if {*log.refusals} != {*said}:
        wrong.append(f"refused: {sorted(log.refusals)}, the kubelet: {sorted(said)}")
    for pod, told in said.items():
        if pod not in log.refusals:
            continue
        found = explain_logged(log, log.refusals[pod])
        message = told["message"] if denied else ""
        if (found.reason, found.log["message"]) != (told["reason"], message):
            wrong.append(f"{pod}: {found.reason}: {found.log['message']}, the kubelet: {told['reason']}: {message}")
        if found.cause_kind == "unknown":
            wrong.append(f"{pod}: no cause of {told['reason']}: {told['message']}")
        if found.policy != case["kubelet"]["topologyManagerPolicy"]:
            wrong.append(f"{pod}: policy {found.policy}")
        for one in log.refusals[pod].decisions:
            if in_order(one.hints) != in_order(offered(told, one.container)):
                wrong.append(f"{pod}: hints {one.hints}, the kubelet: {offered(told, one.container)}")
        closest = case["kubelet"].get("topologyManagerPolicyOptions", {}).get("prefer-closest-numa-nodes") == "true"
        merges += found.log["agrees"] is True
        if found.log["agrees"] is not (None if closest or not found.steps else True):
            wrong.append(f"{pod}: merged {found.log['merged']}, the kubelet: {found.log['best']}")
    return len(said), merges, [f"{case['name']}: {one}" for one in wrong]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_the_log_tells_what_the_managers_decided(program: Path, form: str, tmp_path: Path) -> None:
    release = program.parent.name
    cases = [scenario(seed) for seed in range(SEED, SEED + COUNT)]
    refused, merges, silent, wrong = 0, 0, 0, list[str]()
    for case, answer in zip(
        cases, answers(program, cases, tmp_path, 5, ["-v=4", f"-logging-format={form}"]), strict=True
    ):
        if "expect" not in answer:
            silent += 1
            continue
        # without the line in every release, as of logs that were cut
        for denied in [True, False] if int(release.split(".")[1]) > 30 else [False]:
            more, merged, otherwise = differences(case, answer, denied=denied)
            refused, merges, wrong = refused + more, merges + merged, wrong + otherwise
    sys.stdout.write(
        f"kubelet {release}, {form}, seed {SEED}: {refused} refusals read from logs, {merges} merges replayed, "
        f"{len(wrong)} differ, {silent} scenarios without an answer\n"
    )
    assert refused
    assert not wrong, "\n".join(wrong[:10])
