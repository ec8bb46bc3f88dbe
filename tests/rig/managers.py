"""Asks the program `managers` (cmd/managers) what a release decides.

Its answers are written as vectors have them.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRAMS = sorted(Path(os.environ.get("ALIGNUP_MANAGERS") or "/nowhere").glob("1.*/managers"))
"""The programs of releases in the folder that ALIGNUP_MANAGERS names."""
PLUGINS = Path("/var/lib/kubelet")
"""Where the program writes, whatever it is told: each gets a folder of its own there."""
START = 60
"""Seconds in which the program must have started, on a busy machine."""
ANSWERS = ("expect", "configError", "unanswered", "kept")
"""The keys of an answer that are not those of its scenario."""
FIRST: dict[str, Any] = {
    "machine": {"numaNodes": []},
    "kubelet": {"topologyManagerPolicy": "none"},
    "devices": {},
    "steps": [],
}
"""What is asked first, so that a scenario has its own seconds, and not those of the start."""


def minor_of(version: str) -> str:
    """Return the minor release of a version, such as 1.38 of 1.38.0-beta.0."""
    return ".".join(version.split(".")[:2])


def why_not() -> str:
    """Return why no managers can be asked here; empty: they can."""
    if not PROGRAMS:
        return "ALIGNUP_MANAGERS names no folder with managers of a release"
    return (
        ""
        if os.geteuid() == 0 and shutil.which("unshare")
        else "managers are run by root, by unshare"
    )


def answers(
    program: Path,
    cases: Iterable[dict[str, Any]],
    private: Path,
    patience: float = 2,
    options: Iterable[str] = (),
) -> Iterator[dict[str, Any]]:
    """Yield what the program answers to each scenario.

    Where it does not in time, or dies, the key is `unanswered`.

    Args:
        program: of a release.
        cases: scenarios.
        private: a folder for what it writes.
        patience: seconds for a scenario.
        options: of the program.
    """
    private.mkdir(parents=True, exist_ok=True)
    PLUGINS.mkdir(parents=True, exist_ok=True)
    process, lines, is_ready = None, queue.Queue[bytes](), False
    try:
        for case in cases:
            line = b""
            if process is None:
                process, lines = _started(program, private, *options)
                is_ready = bool(_asked(process, lines, FIRST, START))
            if is_ready:
                line = _asked(process, lines, case, patience)

            answer = json.loads(line) if line else {"unanswered": True}
            yield {key: answer[key] for key in ANSWERS if key in answer}
            if not line:
                _stop(process)
                process = None
    finally:
        if process is not None:
            _stop(process)


def _asked(
    process: subprocess.Popen[bytes],
    lines: queue.Queue[bytes],
    case: dict[str, Any],
    patience: float,
) -> bytes:
    """Return the line that answers a scenario; empty: there is none in time."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(case).encode() + b"\n")
        process.stdin.flush()
        return lines.get(timeout=patience)
    except (queue.Empty, BrokenPipeError):
        return b""


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(BrokenPipeError):
        process.stdin.close()  # type: ignore[union-attr]  # it has one
    process.wait()


def _started(
    program: Path, private: Path, *options: str
) -> tuple[subprocess.Popen[bytes], queue.Queue[bytes]]:
    shell = f"mount --bind {private} {PLUGINS} && exec {' '.join([str(program), *options])}"
    process = subprocess.Popen(  # noqa: S603  # ours
        ["unshare", "--mount", "sh", "-c", shell],  # noqa: S607  # on PATH
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    return process, lines


def _read(process: subprocess.Popen[bytes], lines: queue.Queue[bytes]) -> None:
    assert process.stdout is not None
    with process.stdout as out:
        for line in out:
            lines.put(line)
    lines.put(b"")


def upgraded(
    programs: tuple[Path, Path],
    cases: Iterable[dict[str, Any]],
    private: Path,
    patience: float = 2,
) -> Iterator[dict[str, Any]]:
    """Yield what the programs of two releases answer where the second goes on from the first.

    A scenario has one step `restart` with a `kubeletVersion`, that of the second: the first answers
    the steps before it, and leaves files and pods behind.

    Args:
        programs: of the release before and of the one after.
        cases: scenarios.
        private: a folder for what they write.
        patience: seconds for each program's part of a scenario.
    """
    whole = list(cases)
    turns = [
        next(number for number, step in enumerate(case["steps"]) if "kubeletVersion" in step)
        for case in whole
    ]
    parts = [
        {**case, "steps": case["steps"][:turn], "keep": True}
        for case, turn in zip(whole, turns, strict=True)
    ]
    before = list(answers(programs[0], parts, private / "before", patience))
    parts = [
        {**case, "steps": case["steps"][turn:], "kept": answer["kept"]}
        for case, turn, answer in zip(whole, turns, before, strict=True)
        if "kept" in answer
    ]
    after = answers(programs[1], parts, private / "after", patience)
    for answer in before:
        if "kept" not in answer:
            yield answer
            continue

        rest = next(after)
        if "expect" in rest:
            rest["expect"] = answer["expect"] + rest["expect"]
        yield rest


def compacted(
    case: dict[str, Any], runs: list[dict[str, Any]], *, scores: bool = False
) -> dict[str, Any] | None:
    """Return a scenario with what a release answers, as vectors have it; None: its runs disagree.

    Devices are counts by NUMA nodes, and their ids are there only where all runs have the same
    ones.

    Args:
        case: the scenario.
        runs: the answers to it, of `answers`, all of them given.
        scores: whether hints have a third item, their score.
    """
    if any("configError" in run for run in runs):
        if not all("configError" in run for run in runs):
            return None
        return {**case, **runs[0]}

    near = {
        resource: {
            device["id"]: "any" if device["numa"] is None else ",".join(map(str, device["numa"]))
            for device in devices
        }
        for resource, devices in (case.get("devices") or {}).items()
    }
    steps_of_runs = [
        [
            _step(question, answer, near, scores)
            for question, answer in zip(case["steps"], run["expect"], strict=True)
        ]
        for run in runs
    ]
    for admissions in zip(*map(_admissions, steps_of_runs), strict=False):
        for name in admissions[0].get("containers", {}):
            ids = [
                admission.get("containers", {}).get(name, {}).get("deviceIds")
                for admission in admissions
            ]
            if any(run_ids != ids[0] for run_ids in ids):
                for admission in admissions:
                    admission.get("containers", {}).get(name, {}).pop("deviceIds", None)

    if any(steps != steps_of_runs[0] for steps in steps_of_runs):
        return None
    return {**case, "expect": steps_of_runs[0]}


def _admissions(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers of steps and those of pods that were admitted again, in one list."""
    return [admission for step in steps for admission in (step, *step.get("again", ()))]


def _step(
    step: dict[str, Any], answer: dict[str, Any], near: dict[str, dict[str, str]], scores: bool
) -> dict[str, Any]:
    if "admit" in step:
        return _admission(answer, near, scores)

    expected = {"admitted": answer["admitted"], "sharedCpus": answer["sharedCpus"]}
    if "again" in answer:
        expected["again"] = [
            {"uid": again["uid"], **_admission(again, near, scores)} for again in answer["again"]
        ]
    return expected | {key: answer[key] for key in ("message",) if answer.get(key)}


def _admission(
    answer: dict[str, Any], near: dict[str, dict[str, str]], scores: bool
) -> dict[str, Any]:
    expected = {"admitted": answer["admitted"], "sharedCpus": answer["sharedCpus"]}
    expected |= {
        key: answer.get(key, "") for key in ("reason", "message") if not answer["admitted"]
    }
    expected |= {key: answer[key] for key in ("podCpus", "podMemory") if answer.get(key)}
    if answer.get("podHints"):
        expected["podHints"] = _hints(answer["podHints"], scores)

    containers = {}
    for name, container in (answer.get("containers") or {}).items():
        entry: dict[str, Any] = {}
        if container.get("hints"):
            entry["hints"] = _hints(container["hints"], scores)

        if answer["admitted"]:
            if container["affinity"] is not None:
                entry["affinity"] = _hint(container["affinity"], scores)

            ids = {
                resource: sorted(values)
                for resource, values in sorted((container["devices"] or {}).items())
            }
            places = {
                resource: [near[resource][id_] for id_ in values]
                for resource, values in ids.items()
            }
            entry |= {"cpus": container["cpus"], "memory": container["memory"] or []}
            entry["devices"] = {
                name: {place: values.count(place) for place in sorted({*values})}
                for name, values in places.items()
            }
            if ids:
                entry["deviceIds"] = ids

        if entry:
            containers[name] = entry

    if containers:
        expected["containers"] = containers
    return expected


def _hints(hints: dict[str, Any], scores: bool) -> dict[str, Any]:
    return {
        provider: resources
        and {
            name: hints_of_resource and [_hint(hint, scores) for hint in hints_of_resource]
            for name, hints_of_resource in sorted(resources.items())
        }
        for provider, resources in sorted(hints.items())
    }


def _hint(hint: dict[str, Any], scores: bool) -> list[int | None]:
    pair = [_mask(hint["numa"]), int(hint["preferred"])]
    return [*pair, hint.get("score", 0)] if scores else pair


def _mask(nodes: list[int] | None) -> int | None:
    if nodes is None:
        return None
    return sum(1 << node for node in nodes)
