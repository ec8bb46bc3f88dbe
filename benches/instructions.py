"""Counts the instructions of the hot paths, and fails where one takes 3 % more.

    python benches/instructions.py             # compares with instructions.json
    python benches/instructions.py --record    # writes it anew, after a change that is meant
    python benches/instructions.py --base PYTHON FOLDER    # compares with another commit:
                                               # its interpreter, its tree

No load of the machine changes the counts, but where objects lie in memory does: CPython's cache of
methods goes by addresses, and of sixteen seeds of hashes one took 3 % more for `try_admit`. So a
path that takes too much is counted again with other seeds (`SEEDS`), of both trees, and the least
of each counts. A count holds for one interpreter, compiler and kind of processor (`key`): each has
figures of its own in instructions.json. Where there are none, and where there is no valgrind, the
reason is printed and the status is 77, as of a step that was skipped; `--base` needs no recorded
figures.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from alignup.core import merge

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).with_name("instructions.json")
MOST = 1.03
"""The part of the recorded instructions that a path may take."""

SEEDS = ("0", "1", "2", "3")
"""Of the hashes of a run; the first is that of the recorded figures."""

SKIPPED = 77

Counts = dict[str, int]


def key() -> str:
    """Return what a count depends on.

    That is Python's minor version, the processor, the compiler and Cython of the core.
    """
    code = Path(merge.__file__).read_bytes()
    compiler = re.search(rb"(GCC): \([^)]*\) (\d+)|(clang) version (\d+)", code)
    cython = re.search(rb"_cython_(\d+_\d+)", code)
    made_by = (
        b" ".join(filter(None, compiler.groups())).decode() if compiler else "an unknown compiler"
    )
    version = cython[1].decode().replace("_", ".") if cython else "unknown"
    return (
        f"Python {platform.python_version().rpartition('.')[0]}, {platform.machine()}, "
        f"{made_by}, Cython {version}"
    )


def counted(python: str = sys.executable, root: Path = ROOT, seed: str = SEEDS[0]) -> Counts:
    """Return the instructions of one run of each path, in the order in which they were run.

    Hashes are those of the seed, and of the environment only what finds programs is passed on.
    """
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        valgrind = [
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--dump-before=getppid",
            f"--callgrind-out-file={out}",
        ]
        done = subprocess.run(  # noqa: S603  # our own
            [*valgrind, python, "-s", "benches/hot_paths.py"],
            cwd=root,
            env={**environment, "PYTHONHASHSEED": seed, "PYTHONPATH": "tests"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        totals = [
            total(file)
            for file in sorted(Path(folder).glob("out.*"), key=lambda file: int(file.suffix[1:]))
        ]

    return counts_of(done.stdout, totals)


def total(file: Path) -> int:
    """Return all instructions that a file of callgrind counts."""
    [line] = [
        line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("totals:")
    ]
    return int(line.split()[1])


def counts_of(printed: str, totals: list[int]) -> Counts:
    """Return instructions by path.

    Of the parts that the marks divide a run into, every second is a path's.
    """
    lines = [line.rpartition(" ") for line in printed.splitlines()]
    if len(totals) != 2 * len(lines):
        raise ValueError(
            f"expected two marks around each of {len(lines)} paths, got {len(totals)} marks"
        )
    return {
        name: round(part / int(times))
        for (name, _, times), part in zip(lines, totals[1::2], strict=True)
    }


def least(*runs: Counts) -> Counts:
    """Return the least count of each path that was counted in every run."""
    return {
        name: min(run[name] for run in runs) for name in runs[0] if all(name in run for run in runs)
    }


def complaints(now: Counts, before: Counts) -> list[str]:
    """Return a line for each path that takes too many instructions, or was not counted."""
    lines = []
    for name, allowed in before.items():
        expected = (
            f"{name}: expected at most {round(allowed * MOST):,} instructions ({allowed:,} before)"
        )
        if name not in now:
            lines.append(f"{expected}, but it was not counted")
        elif now[name] > allowed * MOST:
            lines.append(f"{expected}, got {now[name]:,}")
    return lines


def table(now: Counts, before: Counts) -> str:
    """Return both counts of each path, as a table in Markdown."""
    rows = [
        f"| {name} | {before[name]:,} | {count:,} | {count / before[name] - 1:+.1%} |"
        if name in before
        else f"| {name} | | {count:,} | new |"
        for name, count in now.items()
    ]
    return "\n".join(("| instructions | before | now | |", "|---|--:|--:|--:|", *rows))


def main(arguments: list[str]) -> int:
    """Compare or record; return the exit status."""
    against = arguments[1:] if arguments[:1] == ["--base"] and len(arguments) == 3 else None
    if against is None and arguments not in ([], ["--record"]):
        print(__doc__, file=sys.stderr)
        return 2
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        return SKIPPED

    machine_key = key()
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    if arguments == ["--record"]:
        recorded[machine_key] = counted()
        RECORDED.write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        print(f"recorded for {machine_key}: {recorded[machine_key]}")
        return 0

    if against:
        python, root = against[0], Path(against[1])
        if not (root / "benches/hot_paths.py").exists():
            print("skipped: the base has no benches/hot_paths.py")
            return SKIPPED

        before = counted(python, root)
    elif machine_key in recorded:
        before = recorded[machine_key]
    else:
        print(
            f"skipped: nothing is recorded for {machine_key}, only for "
            f"{'; '.join(recorded) or 'nothing'}"
        )
        return SKIPPED

    now = counted()
    lines = complaints(now, before)
    for seed in SEEDS[1:]:
        if not lines:
            break

        now = least(now, counted(seed=seed))
        if against:
            before = least(before, counted(python, root, seed=seed))
        lines = complaints(now, before)

    print(table(now, before), "", sep="\n")
    print("\n".join(lines) or f"no path takes more than {MOST - 1:.0%} more instructions")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
