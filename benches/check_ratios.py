"""Fails when a benchmark has lost half of its lead over the plain product of the same run.

    python -m pytest benches --benchmark-json=bench.json
    python benches/check_ratios.py bench.json               # compares with recorded.json
    python benches/check_ratios.py bench.json --part        # the same, though not all benchmarks were run
    python benches/check_ratios.py bench.json --record      # writes recorded.json, after a change for the better

Where nothing failed and nothing was left out, a line of history.jsonl notes the commit, its date and the ratios; the
site draws them (docs/curves.md).

Seconds differ between machines and between hours of one machine; ratios of one run much less. Each ratio is how often
a benchmark fits into the time in which the literal product in Python merges two lists of 255 hints, measured right
before and after the benchmark. Where a ratio is too low the benchmark is run again, up to three times, and the best
counts: what is slow every time is slow.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded.json")
HISTORY = Path(__file__).with_name("history.jsonl")
LEAST = 0.5
"""The part of a recorded ratio that must be left."""

TRIES = 3
"""How often a benchmark is run again before it fails."""


def ratios_of(report: dict) -> dict[str, float]:
    """Return the ratios in a report of pytest-benchmark, by benchmark; those without one are left out."""
    return {
        bench["fullname"]: bench["extra_info"]["ratio"]
        for bench in report["benchmarks"]
        if "ratio" in bench["extra_info"]
    }


def fallen(measured: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Return the benchmarks that were run and have fallen too far."""
    return [name for name, before in sorted(recorded.items()) if measured.get(name, before) < before * LEAST]


def run_again(names: list[str]) -> dict[str, float]:
    """Return the ratios of a further run of some benchmarks; of those that fail, none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", *names, f"--benchmark-json={report}"]
        subprocess.run(command, cwd=RECORDED.parent.parent, check=False)  # noqa: S603 - our own
        if not report.is_file() or not report.stat().st_size:
            return {}
        return ratios_of(json.loads(report.read_text(encoding="utf-8")))


def complaints(measured: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Return a line for each recorded benchmark that is missing or has fallen too far."""
    lines = []
    for name, before in sorted(recorded.items()):
        now = measured.get(name)
        if now is None:
            lines.append(f"{name}: expected a ratio of at least {before * LEAST:.4g}, but it was not run")
        elif now < before * LEAST:
            lines.append(
                f"{name}: expected a ratio of at least {before * LEAST:.4g} (recorded {before:.4g}), got {now:.4g}"
            )
    return lines


def note(measured: dict[str, float]) -> None:
    """Append the ratios to the history, if this is a clone."""
    command = ["git", "log", "-1", "--format=%h %cs"]
    done = subprocess.run(command, cwd=HISTORY.parent, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode == 0:
        commit, date = done.stdout.split()
        line = {"commit": commit, "date": date, "ratios": dict(sorted(measured.items()))}
        with HISTORY.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main(arguments: list[str]) -> int:
    """Compare or record; return the exit status."""
    if not 1 <= len(arguments) <= 2 or arguments[1:] not in ([], ["--record"], ["--part"]):
        print(__doc__, file=sys.stderr)
        return 2
    measured = ratios_of(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    if arguments[1:] == ["--record"]:
        RECORDED.write_text(json.dumps(measured, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        note(measured)
        print(f"recorded {len(measured)} ratios")
        return 0
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    if arguments[1:] == ["--part"]:
        recorded = {name: before for name, before in recorded.items() if name in measured}
        if not recorded:
            print("no benchmark with a recorded ratio was run")
            return 1
    for _ in range(TRIES):
        slow = fallen(measured, recorded)
        if not slow:
            break
        print(f"running again, as they were too slow: {', '.join(slow)}")
        for name, again in run_again(slow).items():
            measured[name] = max(again, measured.get(name, again))
    lines = complaints(measured, recorded)
    if not lines and not arguments[1:]:
        note(measured)
    print("\n".join(lines) or f"{len(measured)} ratios are at least {LEAST:.0%} of what is recorded")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
