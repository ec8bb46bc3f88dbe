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

            found = json.loads(line) if line else {"unanswered": True}
            yield {
                key: found[key] for key in ("expect", "configError", "unanswered") if key in found
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
        return {**case, **runs[0]} if all("configError" in run for run in runs) else None

    near = {
        resource: {
            one["id"]: "any" if one["numa"] is None else ",".join(map(str, one["numa"]))
            for one in some
        }
        for resource, some in (case.get("devices") or {}).items()
    }
    made = [
        [_step(asked, told, near) for asked, told in zip(case["steps"], run["expect"], strict=True)]
        for run in runs
    ]
    for steps in zip(*made, strict=True):
        for name in steps[0].get("containers", {}):
            ids = [step.get("containers", {}).get(name, {}).get("deviceIds") for step in steps]
            if any(one != ids[0] for one in ids):
                for step in steps:
                    step.get("containers", {}).get(name, {}).pop("deviceIds", None)

    return None if any(one != made[0] for one in made) else {**case, "expect": made[0]}


def _step(
    asked: dict[str, Any], told: dict[str, Any], near: dict[str, dict[str, str]]
) -> dict[str, Any]:
    found = {"admitted": told["admitted"], "sharedCpus": told["sharedCpus"]}
    if "admit" not in asked:
        return found | {key: told[key] for key in ("message",) if told.get(key)}

    found |= {key: told[key] for key in ("reason", "message") if not told["admitted"]}
    found |= {key: told[key] for key in ("podCpus", "podMemory") if told.get(key)}
    if told.get("podHints"):
        found["podHints"] = _hints(told["podHints"])

    containers = {}
    for name, got in (told.get("containers") or {}).items():
        one: dict[str, Any] = {"hints": _hints(got["hints"])} if got.get("hints") else {}
        if told["admitted"]:
            if got["affinity"] is not None:
                one["affinity"] = [
                    _mask(got["affinity"]["numa"]),
                    int(got["affinity"]["preferred"]),
                ]

            ids = {
                resource: sorted(some) for resource, some in sorted((got["devices"] or {}).items())
            }
            places = {
                resource: [near[resource][id_] for id_ in some] for resource, some in ids.items()
            }
            one |= {"cpus": got["cpus"], "memory": got["memory"] or []}
            one["devices"] = {
                name: {at: some.count(at) for at in sorted({*some})}
                for name, some in places.items()
            }
            one |= {"deviceIds": ids} if ids else {}

        if one:
            containers[name] = one

    return found | ({"containers": containers} if containers else {})


def _hints(told: dict[str, Any]) -> dict[str, Any]:
    return {
        provider: resources
        and {
            name: some and [[_mask(one["numa"]), int(one["preferred"])] for one in some]
            for name, some in sorted(resources.items())
        }
        for provider, resources in sorted(told.items())
    }


def _mask(nodes: list[int] | None) -> int | None:
    return None if nodes is None else sum(1 << node for node in nodes)
