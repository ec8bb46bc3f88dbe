"""The comparison of two commits' benchmarks fails where the change is slower.

That is 15 % slower than the base's slowest run.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

import compare

SECONDS = st.lists(st.floats(1e-9, 100), min_size=1, max_size=4)


@pytest.fixture
def run(tmp_path):
    """Return a function that compares runs, a dict of seconds by benchmark each."""

    def reports(side: str, runs: list[dict[str, float]]) -> list[str]:
        paths = []
        for number, seconds in enumerate(runs):
            path = tmp_path / f"{side}-{number}.json"
            benches = [
                {
                    "fullname": f"benches/{name}",
                    "stats": {"min": taken},
                    "extra_info": {"ratio": 1 / taken},
                }
                for name, taken in seconds.items()
            ]
            path.write_text(json.dumps({"benchmarks": benches}), encoding="utf-8")
            paths.append(str(path))

        return paths

    def compared(base: list[dict[str, float]], change: list[dict[str, float]], *words: str) -> int:
        return compare.main(
            ["--base", *reports("base", base), "--change", *reports("change", change), *words]
        )

    return compared


@pytest.mark.parametrize(
    ("base", "change", "status"),
    [
        ([1.0], [1.14], 0),
        ([1.0], [1.16], 1),
        ([1.0, 1.1], [1.25], 0),  # the base itself took 1.1 once
        ([1.0, 1.1], [1.27], 1),
        ([1.0], [2.0, 1.1], 0),  # another process had the core in the first run
        ([1.0], [0.5], 0),
    ],
)
def test_slower_is_what_is_slower_in_every_run(run, base, change, status) -> None:
    assert run([{"a": taken} for taken in base], [{"a": taken} for taken in change]) == status


@given(base=SECONDS, change=SECONDS)
def test_slower_is_every_pair_of_runs(base, change) -> None:
    """The plain model: each run of the change beside each of the base."""
    every = all(now > before * compare.MOST for now in change for before in base)
    assert compare.slower({"a": base}, {"a": change}) == (["a"] if every else [])


def test_the_table_has_both_sides_and_the_slower_first(run, tmp_path, capsys) -> None:
    """What one side lacks is named and not judged."""
    slow = tmp_path / "slow"
    base = [{"a": 2e-6, "b": 1e-3, "old": 3e-8}, {"a": 2.2e-6, "b": 1e-3}]
    assert run(base, [{"a": 1e-6, "b": 2e-3, "new": 1.5}], "--slow", str(slow)) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| b | 1 ms | 0% | 2 ms | **+100%** |",
        "| a | 2 µs | 10% | 1 µs | -50% |",
        "| new |  |  | 1.5 s | new |",
        "| old | 30 ns | 0% |  | gone |",
        "",
        "1 of 2 benchmarks are 15% slower beyond the spread",
    ]
    assert slow.read_text(encoding="utf-8") == "benches/b\n"


def test_sides_without_a_benchmark_in_common_are_no_comparison(run, capsys) -> None:
    assert run([{"a": 1.0}], [{"b": 1.0}]) == 1
    assert capsys.readouterr().out == "no benchmark was run on both sides\n"


def test_the_history_gets_a_line_where_nothing_is_slower(run, tmp_path, monkeypatch) -> None:
    """The best ratio of the runs, with the commit."""
    history = tmp_path / "history.jsonl"
    monkeypatch.setattr(compare, "__file__", str(tmp_path / "compare.py"))
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for arguments in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)  # noqa: S603, S607  # ours
    assert run([{"a": 0.1}], [{"a": 0.2}], "--history", str(history)) == 1
    assert not history.exists()
    assert run([{"a": 0.5}], [{"a": 0.5}, {"a": 0.25}], "--history", str(history)) == 0
    [line] = map(json.loads, history.read_text(encoding="utf-8").splitlines())
    assert line["ratios"] == {"benches/a": 4.0}
    assert len(line["commit"]) >= 7
    assert len(line["date"]) == 10
