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
    process, lines = None, queue.Queue[bytes]()
    try:
        for case in cases:
            starts = process is None
            if process is None:
                process, lines = _started(program, private, *options)
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(case).encode() + b"\n")
                process.stdin.flush()
                line = lines.get(timeout=patience + START * starts)
            except (queue.Empty, BrokenPipeError):
                line = b""

            answer = json.loads(line) if line else {"unanswered": True}
            yield {
                key: answer[key] for key in ("expect", "configError", "unanswered") if key in answer
            }
            if not line:
                _stop(process)
                process = None
    finally:
        if process is not None:
            _stop(process)


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


def compacted(case: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return a scenario with what a release answers, as vectors have it; None: its runs disagree.

    Devices are counts by NUMA nodes, and their ids are there only where all runs have the same
    ones.

    Args:
        case: the scenario.
        runs: the answers to it, of `answers`, all of them given.
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
            _step(question, answer, near)
            for question, answer in zip(case["steps"], run["expect"], strict=True)
        ]
        for run in runs
    ]
    for steps in zip(*steps_of_runs, strict=True):
        for name in steps[0].get("containers", {}):
            ids = [step.get("containers", {}).get(name, {}).get("deviceIds") for step in steps]
            if any(run_ids != ids[0] for run_ids in ids):
                for step in steps:
                    step.get("containers", {}).get(name, {}).pop("deviceIds", None)

    if any(steps != steps_of_runs[0] for steps in steps_of_runs):
        return None
    return {**case, "expect": steps_of_runs[0]}


def _step(
    step: dict[str, Any], answer: dict[str, Any], near: dict[str, dict[str, str]]
) -> dict[str, Any]:
    expected = {"admitted": answer["admitted"], "sharedCpus": answer["sharedCpus"]}
    if "admit" not in step:
        return expected | {key: answer[key] for key in ("message",) if answer.get(key)}

    expected |= {key: answer[key] for key in ("reason", "message") if not answer["admitted"]}
    expected |= {key: answer[key] for key in ("podCpus", "podMemory") if answer.get(key)}
    if answer.get("podHints"):
        expected["podHints"] = _hints(answer["podHints"])

    containers = {}
    for name, container in (answer.get("containers") or {}).items():
        entry: dict[str, Any] = {}
        if container.get("hints"):
            entry["hints"] = _hints(container["hints"])

        if answer["admitted"]:
            if container["affinity"] is not None:
                entry["affinity"] = [
                    _mask(container["affinity"]["numa"]),
                    int(container["affinity"]["preferred"]),
                ]

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


def _hints(hints: dict[str, Any]) -> dict[str, Any]:
    return {
        provider: resources
        and {
            name: hints_of_resource
            and [[_mask(hint["numa"]), int(hint["preferred"])] for hint in hints_of_resource]
            for name, hints_of_resource in sorted(resources.items())
        }
        for provider, resources in sorted(hints.items())
    }


def _mask(nodes: list[int] | None) -> int | None:
    if nodes is None:
        return None
    return sum(1 << node for node in nodes)
