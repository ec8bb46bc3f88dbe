"""Compares the benchmarks of a change with those of the commit before; fails where one is slower.

    python benches/compare.py --base base-1.json base-2.json --change change-1.json change-2.json
    ... --slow FILE       # writes the names of the slower ones, a line each, to run these again
    ... --history FILE    # appends the ratios of the change, which docs/curves.md draws

The files are reports of pytest-benchmark, best of runs in turns on one machine (`.ci/run
benchmarks_of_both`). A run counts by its quickest round. A benchmark is slower where the quickest
run of the change takes 15 % more than the slowest run of the base: whatever lies between the runs
of the base is their spread. Prints a table in Markdown. What only one side has is listed and not
judged; so where a benchmark times something else, give it another name.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

MOST = 1.15
"""The part of the base's slowest run that the change's quickest may take."""

Runs = dict[str, list[float]]
"""Seconds of the quickest round of each run, by benchmark."""


def runs_of(reports: list[dict[str, Any]]) -> Runs:
    """Return what each benchmark took in each report that has it."""
    runs = defaultdict(list)
    for report in reports:
        for bench in report["benchmarks"]:
            runs[bench["fullname"]].append(bench["stats"]["min"])
    return dict(runs)


def slower(base: Runs, change: Runs) -> list[str]:
    """Return the benchmarks that are slower beyond the spread of the base."""
    return [
        name
        for name in sorted(base.keys() & change.keys())
        if min(change[name]) > max(base[name]) * MOST
    ]


def table(base: Runs, change: Runs, slow: list[str]) -> str:
    """Return both sides of each benchmark, the slower ones first and marked."""
    lines = ["| benchmark | base | spread | change | |", "|---|--:|--:|--:|--:|"]
    for name in sorted(base.keys() | change.keys(), key=lambda name: (name not in slow, name)):
        before = base.get(name)
        now = change.get(name)
        spread = f"{max(before) / min(before) - 1:.0%}" if before else ""
        difference = "new" if now else "gone"
        if before and now:
            difference = f"{min(now) / min(before) - 1:+.0%}"

        mark = f"**{difference}**" if name in slow else difference
        lines.append(
            f"| {name.removeprefix('benches/')} | {took(before)} | {spread} | {took(now)} | "
            f"{mark} |"
        )

    return "\n".join(lines)


def took(seconds: list[float] | None) -> str:
    """Return the quickest run in a unit that suits it; nothing where there is none."""
    if not seconds:
        return ""
    for unit, length in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if min(seconds) >= length:
            return f"{min(seconds) / length:.3g} {unit}"
    return f"{min(seconds) / 1e-9:.3g} ns"


def note(history: Path, reports: list[dict[str, Any]]) -> None:
    """Append the best ratio of each benchmark to its yardstick, with the commit of this clone."""
    ratios: dict[str, float] = {}
    for bench in (bench for report in reports for bench in report["benchmarks"]):
        if "ratio" in bench["extra_info"]:
            name, ratio = bench["fullname"], bench["extra_info"]["ratio"]
            ratios[name] = max(ratio, ratios.get(name, ratio))

    command = ["git", "log", "-1", "--format=%h %cs"]
    done = subprocess.run(  # noqa: S603  # ours
        command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True
    )
    commit, date = done.stdout.split()
    with history.open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"commit": commit, "date": date, "ratios": dict(sorted(ratios.items()))})
            + "\n"
        )


def main(arguments: list[str]) -> int:
    """Compare; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", nargs="+", type=Path, required=True, metavar="REPORT")
    parser.add_argument("--change", nargs="+", type=Path, required=True, metavar="REPORT")
    parser.add_argument("--slow", type=Path, metavar="FILE")
    parser.add_argument("--history", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    before, after = (
        [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        for paths in (options.base, options.change)
    )
    base, change = runs_of(before), runs_of(after)
    slow = slower(base, change)
    if options.slow:
        options.slow.write_text("".join(f"{name}\n" for name in slow), encoding="utf-8")

    if not base.keys() & change.keys():
        print("no benchmark was run on both sides")
        return 1

    print(table(base, change, slow), "", sep="\n")
    print(
        f"{len(slow)} of {len(base.keys() & change.keys())} benchmarks are {MOST - 1:.0%} slower "
        "beyond the spread"
    )
    if options.history and not slow:
        note(options.history, after)

    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
