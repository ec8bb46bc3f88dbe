"""Fails when a benchmark has lost half of its lead over the plain product of the same run.

    python -m pytest benches --benchmark-json=bench.json
    python benches/check_ratios.py bench.json               # compares with recorded.json
    python benches/check_ratios.py bench.json --record      # writes recorded.json, after a change for the better

Seconds differ between machines and between hours of one machine; ratios of one run much less. Each ratio is how often
a benchmark fits into the time in which the literal product in Python merges two lists of 255 hints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded.json")
LEAST = 0.5
"""The part of a recorded ratio that must be left."""


def ratios_of(report: dict) -> dict[str, float]:
    """Return the ratios in a report of pytest-benchmark, by benchmark; those without one are left out."""
    return {
        bench["fullname"]: bench["extra_info"]["ratio"]
        for bench in report["benchmarks"]
        if "ratio" in bench["extra_info"]
    }


def complaints(measured: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Return a line for each benchmark that is missing or has fallen too far."""
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


def main(arguments: list[str]) -> int:
    """Compare or record; return the exit status."""
    if not 1 <= len(arguments) <= 2 or arguments[1:] not in ([], ["--record"]):
        print(__doc__, file=sys.stderr)
        return 2
    measured = ratios_of(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    if arguments[1:]:
        RECORDED.write_text(json.dumps(measured, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        print(f"recorded {len(measured)} ratios")
        return 0
    lines = complaints(measured, json.loads(RECORDED.read_text(encoding="utf-8")))
    print("\n".join(lines) or f"{len(measured)} ratios are at least {LEAST:.0%} of what is recorded")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
