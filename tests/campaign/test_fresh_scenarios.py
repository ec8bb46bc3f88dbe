"""Fresh random scenarios, decided by the managers of a kubelet's release and by `alignup`.

`ALIGNUP_MANAGERS` names a folder with a folder for each release, such as `1.35.4`, in which
`tests/rig/build` has built `managers`. `ALIGNUP_FRESH` says how many scenarios (300),
`ALIGNUP_SEED` from which seed, `ALIGNUP_PATIENCE` how many seconds a kubelet has for one. Each is
asked twice, and one that differs thrice more, as an answer that varies can be alike twice. What
differs, and what a kubelet does not answer, is kept in the test's folder.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from alignup.node import Node
from alignup.node.faults import known_faults
from replays.deviations import until_reserved_cpus_are_shared
from replays.kubelet_answers import check_case
from rig.managers import PROGRAMS, answers, compacted, minor_of, why_not
from rig.themes import fresh

if TYPE_CHECKING:
    from pathlib import Path

COUNT = int(os.environ.get("ALIGNUP_FRESH", "300"))
SEED = int(os.environ.get("ALIGNUP_SEED") or random.SystemRandom().randrange(10**6, 10**9))
PATIENCE = float(os.environ.get("ALIGNUP_PATIENCE", "5"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "they can be asked"),
]


def faults_on_the_way(case: dict[str, Any]) -> set[str]:
    """Return what `alignup` tells of known faults of that kubelet.

    It is up to the first that it does not survive.
    """
    node, faults = Node.from_dict(case), set[str]()
    for step in case["steps"]:
        if "admit" in step:
            faults |= {fault.does for fault in known_faults(node, node.read(step["admit"]))}
            node.admit(step["admit"])
        elif "remove" in step and any(pod.uid == step["remove"] for pod in node.pods):
            node.remove(step["remove"])
    return faults


def difference(vector: dict[str, Any]) -> Exception | None:
    """Return how our answers differ from a kubelet's; None: they do not."""
    try:
        check_case(vector)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is not the kubelet's answer
        return error
    return None


def still_different(
    program: Path, different: list[tuple[dict[str, Any], list[dict[str, Any]]]], private: Path
) -> list[dict[str, Any]]:
    """Return those of the scenarios that a kubelet answers alike three times more, as vectors."""
    again = answers(program, (case for case, _ in different for _ in range(3)), private, PATIENCE)
    vectors = []
    for case, first in different:
        more = [next(again) for _ in range(3)]
        if not any("unanswered" in answer for answer in more):
            vector = compacted(case, [*first, *more])
            if vector is not None:
                vectors.append(vector)

    return vectors


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_all_end_as_in_the_kubelet(program: Path, tmp_path: Path) -> None:
    minor = minor_of(program.parent.name)
    cases = [case | {"kubeletVersion": minor} for _, case in fresh(SEED, COUNT)]
    first = list(answers(program, cases, tmp_path / "kubelet-0", PATIENCE))
    asked_twice = [
        case for case, answer in zip(cases, first, strict=True) if "unanswered" not in answer
    ]
    second = answers(program, asked_twice, tmp_path / "kubelet-1", PATIENCE)
    compared, unanswered, unstable, deviating, steps, different = 0, 0, 0, 0, 0, []
    for case, answer in zip(cases, first, strict=True):
        case_answers = [answer]
        if "unanswered" not in answer:
            case_answers.append(next(second))

        if "unanswered" in case_answers[-1]:
            unanswered += 1
            with (tmp_path / "unanswered.jsonl").open("a") as file:
                file.write(json.dumps({**case, "faults": sorted(faults_on_the_way(case))}) + "\n")
            continue

        vector = compacted(case, case_answers)
        if vector is None:
            unstable += 1
            continue

        compared, steps = compared + 1, steps + len(vector.get("expect", ()))
        error = difference(vector)
        documented = None if error is None else until_reserved_cpus_are_shared(vector)
        if documented is not None:
            error = difference(documented)
            if error is None:
                deviating += 1

        if error is not None:
            different.append((case, case_answers))

    vectors = still_different(program, different, tmp_path / "kubelet-2")
    unstable += len(different) - len(vectors)
    compared -= len(different) - len(vectors)
    with (tmp_path / "different.jsonl").open("w") as file:
        file.writelines(f"{json.dumps(vector)}\n" for vector in vectors)

    wrong = [f"{vector['name']}: {difference(vector)!r:.300}" for vector in vectors]
    sys.stdout.write(
        f"kubelet {program.parent.name}, seed {SEED}: {compared} compared ({steps} steps), "
        f"{len(wrong)} differ, {deviating} deviate as documented (strict), "
        f"{unstable} unstable, {unanswered} unanswered; {tmp_path}\n"
    )
    assert not wrong, "\n".join(wrong[:10])
