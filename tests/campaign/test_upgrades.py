"""What `alignup` suggests of another release of the kubelet, tried on the managers of both.

`ALIGNUP_MANAGERS` names the folder of `test_fresh_scenarios.py`. Random nodes, of which some cores
lack a CPU, are filled under the older release; where the next pod is told to be better off on the
newer one, the kubelet is updated, all pods have to stay, and the pod gets what was foretold.
`ALIGNUP_FRESH` says how many scenarios (300), `ALIGNUP_SEED` from which seed.
"""

from __future__ import annotations

import os
import random
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from alignup.errors import AlignupError
from alignup.explanations.why import explain
from alignup.kubernetes.versions import parse_version
from alignup.node import Node
from alignup.replay import replay
from rig.managers import PROGRAMS, minor_of, upgraded, why_not
from rig.scenarios import scenario

if TYPE_CHECKING:
    from pathlib import Path

COUNT = int(os.environ.get("ALIGNUP_FRESH", "300"))
SEED = int(os.environ.get("ALIGNUP_SEED") or random.SystemRandom().randrange(10**6, 10**9))
PATIENCE = 20
BY_RELEASE = sorted(PROGRAMS, key=lambda path: parse_version(minor_of(path.parent.name)))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "they can be asked"),
]


def uneven(seed: int) -> dict[str, Any]:
    """Return a random scenario, on whose machine some cores lack a CPU."""
    case = scenario(seed)
    rng = random.Random(seed)
    reserved = case["kubelet"].get("reservedSystemCPUs", "")
    for node in case["machine"]["numaNodes"]:
        for core in node["cores"]:
            if len(core["cpus"]) > 1 and rng.random() < 0.4 and str(core["cpus"][-1]) != reserved:
                core["cpus"].pop()

    return case


def suggested(case: dict[str, Any], older: str, newer: str) -> dict[str, Any] | None:
    """Return a scenario up to the first pod that is better off on the newer release, which updates.

    None: there is no such pod.
    """
    try:
        node = Node.from_dict({**case, "kubeletVersion": older})
    except AlignupError:
        return None

    for number, step in enumerate(case["steps"]):
        if "admit" not in step:
            return None

        updates = [
            suggestion
            for suggestion in explain(node, step["admit"]).suggestions
            if suggestion.kind == "update" and suggestion.after == "restart"
        ]
        if updates:
            assert updates[0].attempt == {"kubeletVersion": newer}
            restart = {"restart": True, "kubeletVersion": newer}
            return {**case, "steps": [*case["steps"][:number], restart, step]}
        node.admit(step["admit"])

    return None


@pytest.mark.parametrize(
    "programs",
    [pytest.param(pair, id=pair[1].parent.name) for pair in pairwise(BY_RELEASE)],
)
def test_an_update_does_what_was_foretold(programs: tuple[Path, Path], tmp_path: Path) -> None:
    older, newer = (minor_of(program.parent.name) for program in programs)
    cases = [suggested(uneven(seed), older, newer) for seed in range(SEED, SEED + COUNT)]
    told = [case for case in cases if case is not None]
    parted, wrong = 0, []
    for case, answer in zip(told, upgraded(programs, told, tmp_path, PATIENCE), strict=True):
        foretold = replay(case, kubelet_version=older)["steps"]
        answers = answer.get("expect", [])
        before, foretold_before = (
            [(step["admitted"], step["sharedCpus"]) for step in steps[:-2]]
            for steps in (answers, foretold)
        )
        if before != foretold_before:
            parted += 1  # it gives CPUs of others, and alignup does not
            continue

        stays = bool(answers) and all(pod["admitted"] for pod in answers[-2]["again"])
        cpus = [
            {name: given["cpus"] or "" for name, given in (step.get("containers") or {}).items()}
            for step in (*answers[-1:], foretold[-1])
        ]
        if not (stays and answers[-1]["admitted"] and cpus[0] == cpus[1]):
            wrong.append(f"{case['name']}: {answers[-1:]} in place of {foretold[-1]}")

    sys.stdout.write(
        f"{older} to {newer}, seed {SEED}: {len(told)} told, {len(wrong)} wrong, "
        f"{parted} parted before\n"
    )
    assert not wrong, "\n".join(wrong[:10])
