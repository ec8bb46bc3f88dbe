"""Fresh claims beside the allocators of kube-scheduler.

And fresh pods whose claims count as resources of their node.

`ALIGNUP_ALLOCATORS` names a folder with a folder for each release (1.36 to 1.38), such as `1.37.2`,
in which `tests/rig/build OUT/1.37.2 1.37.2 allocator` has built its program. `ALIGNUP_CLAIMS` says
how many questions (2,000), `ALIGNUP_SEED` from which seed. What differs is kept in the test's
folder.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from alignup.claims.scenarios import answer_scenario
from alignup.errors import InputError
from conformance.test_claims import devices
from inputs import compatible_devices
from inputs.claims_on_nodes import drawn_pod, is_told, outcome
from inputs.wide_claims import classes_of, drawn, settable

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS = sorted(
    Path(os.environ.get("ALIGNUP_ALLOCATORS") or "/nowhere").glob("1.3[678].*/allocator")
)
COUNT = int(os.environ.get("ALIGNUP_CLAIMS", "2000"))
SEED = int(os.environ.get("ALIGNUP_SEED") or random.SystemRandom().randrange(10**6, 10**9))
# What a search may take there; where it is given up, nothing is compared.
LIMIT = "2s"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PROGRAMS, reason="ALIGNUP_ALLOCATORS names no folder with allocators of 1.36 to 1.38"
    ),
]


def answers_of(
    program: Path, questions: Sequence[dict[str, Any]], *options: str
) -> list[dict[str, Any]]:
    text = "".join(f"{json.dumps(question)}\n" for question in questions)
    command = [program, *options]
    done = subprocess.run(  # noqa: S603  # ours
        command, input=text, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def compared(answer: dict[str, Any]) -> object:
    """Return what is compared of an answer; of errors, the class."""
    selectors = [result.get("nodeSelector") for result in answer["result"] or ()]
    return answer.get("class"), devices(answer["result"]), selectors


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_devices_are_the_allocators(program: Path, tmp_path: Path) -> None:
    release = ".".join(program.parent.name.split(".")[:2])
    cases = []
    for seed in range(SEED, SEED + COUNT):
        case = drawn(random.Random(seed), f"case-{seed}")
        features = settable(case["features"], release)
        cases.append({**case, "release": release, "features": features})

    answers = answers_of(program, cases, "-limit", LIMIT)
    outcomes, kinds, wrong = Counter[str](), Counter[str](), []
    for case, answer in zip(cases, answers, strict=True):
        if not answer["stable"] or answer.get("class") in ("timeout", "gates"):
            outcomes[answer.get("class", "unstable")] += 1
            continue

        kind = answer.get("class")
        if not kind:
            kind = "none" if answer["result"] is None else "found"
        outcomes[kind] += 1
        kinds.update(classes_of(case))
        answer_here = answer_scenario(case, "the question")
        if compared(answer_here) != compared(answer):
            wrong.append((case["name"], answer.get("error"), answer_here.get("error")))
            with (tmp_path / "different.jsonl").open("a") as file:
                file.write(json.dumps({**case, "expect": answer, "mine": answer_here}) + "\n")

    sys.stdout.write(
        f"allocator of {program.parent.name}, seed {SEED}: {dict(outcomes)}, {len(wrong)} differ; "
        f"{tmp_path}\n"
        f"compared by kind: {dict(sorted(kinds.items()))}\n"
    )
    assert outcomes["gates"] == 0
    assert not wrong


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_devices_that_have_to_go_together_are_the_allocators(program: Path) -> None:
    release = ".".join(program.parent.name.split(".")[:2])
    if release == "1.36":
        pytest.skip("1.36 knows no compatibility groups")

    cases = [
        compatible_devices.scenario(random.Random(seed), f"case-{seed}", release)
        for seed in range(SEED, SEED + COUNT)
    ]
    outcomes = Counter[str]()
    wrong = []
    for case, answer in zip(cases, answers_of(program, cases, "-limit", LIMIT), strict=True):
        if not answer["stable"] or answer.get("class") in ("timeout", "gates"):
            outcomes[answer.get("class", "unstable")] += 1
            continue

        outcomes["none" if answer["result"] is None else "found"] += 1
        if compared(answer_scenario(case, "the question")) != compared(answer):
            wrong.append(case["name"])

    sys.stdout.write(
        f"compatibility groups of {program.parent.name}, seed {SEED}: {dict(outcomes)}, "
        f"{len(wrong)} differ\n"
    )
    assert outcomes["gates"] == 0
    assert not wrong


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_what_claims_count_as_is_the_schedulers(program: Path, tmp_path: Path) -> None:
    if program.parent.name.startswith("1.36"):
        pytest.skip("the scheduler of 1.36 is asked for nothing of this")

    release = ".".join(program.parent.name.split(".")[:2])
    questions = [drawn_pod(random.Random(seed)) for seed in range(SEED, SEED + COUNT)]
    outcomes, wrong = Counter[str](), []
    for number, (question, answer) in enumerate(
        zip(questions, answers_of(program, questions, "-counted"), strict=True)
    ):
        try:
            refusal, requests = outcome(question, release)
        except InputError:
            outcomes["refused by the API server"] += 1
            continue

        outcomes[
            " ".join(refusal.split()[:3])
            if refusal.startswith("pod level")
            else refusal and "error"
        ] += 1
        if not is_told(answer, refusal, requests):
            wrong.append((SEED + number, answer["refusals"], refusal))
            (tmp_path / f"{SEED + number}.json").write_text(
                json.dumps({**question, "expect": answer})
            )

    sys.stdout.write(
        f"counted by {program.parent.name}, seed {SEED}: {dict(outcomes)}, {len(wrong)} differ\n"
    )
    assert not wrong
