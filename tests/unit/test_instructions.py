"""The gate over instructions fails where a hot path takes three percent more than is recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

import instructions

PRINTED = "admit 100\n10,000 nodes, 1 container 1\n"


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Record 1,000 and 2,000 instructions for this machine in a file of the test's own.

    Valgrind seems to be there.
    """
    file = tmp_path / "instructions.json"
    file.write_text(json.dumps({instructions.key(): {"a": 1000, "b": 2000}}), encoding="utf-8")
    monkeypatch.setattr(instructions, "RECORDED", file)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    return file


def test_every_second_part_of_a_run_is_a_path() -> None:
    """The other parts set the next path up; a path that was run often counts once."""
    assert instructions.counts_of(PRINTED, [7, 1050, 9, 77]) == {
        "admit": 10,
        "10,000 nodes, 1 container": 77,
    }
    with pytest.raises(ValueError, match="two marks around each of 2 paths, got 3"):
        instructions.counts_of(PRINTED, [7, 1050, 9])


def test_all_parts_of_a_profile_are_one_total(tmp_path) -> None:
    file = tmp_path / "out.1"
    file.write_text("# callgrind format\nevents: Ir\n\nfn=(1)\n1 5\ntotals: 12\n", encoding="utf-8")
    assert instructions.total(file) == 12


@pytest.mark.parametrize(
    ("now", "status", "last"),
    [
        ({"a": 1030, "b": 1000}, 0, "no path takes more than 3% more instructions"),
        (
            {"a": 1031, "b": 2000},
            1,
            "a: expected at most 1,030 instructions (1,000 before), got 1,031",
        ),
        (
            {"a": 1000},
            1,
            "b: expected at most 2,060 instructions (2,000 before), but it was not counted",
        ),
        ({"a": 1000, "b": 2000, "c": 9}, 0, "no path takes more than 3% more instructions"),
    ],
)
@pytest.mark.usefixtures("recorded")
def test_a_path_may_take_three_percent_more(monkeypatch, capsys, now, status, last) -> None:
    monkeypatch.setattr(instructions, "counted", lambda **seed: now)  # noqa: ARG005  # of any
    assert instructions.main([]) == status
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == last
    assert f"| a | 1,000 | {now['a']:,} | {now['a'] / 1000 - 1:+.1%} |" in printed


def test_recording_keeps_the_figures_of_other_machines(recorded, monkeypatch) -> None:
    recorded.write_text('{"another": {"a": 1}}', encoding="utf-8")
    monkeypatch.setattr(instructions, "counted", lambda: {"a": 5})
    assert instructions.main(["--record"]) == 0
    assert json.loads(recorded.read_text(encoding="utf-8")) == {
        "another": {"a": 1},
        instructions.key(): {"a": 5},
    }
    assert instructions.main([]) == 0


def test_what_cannot_be_compared_is_skipped_with_the_reason(
    recorded, tmp_path, monkeypatch, capsys
) -> None:
    """No figures for this interpreter, a base without the program, no valgrind."""
    recorded.write_text('{"another": {"a": 1}}', encoding="utf-8")
    assert instructions.main([]) == instructions.SKIPPED
    assert (
        f"nothing is recorded for {instructions.key()}, only for another" in capsys.readouterr().out
    )
    assert instructions.main(["--base", sys.executable, str(tmp_path)]) == instructions.SKIPPED
    assert "the base has no benches/hot_paths.py" in capsys.readouterr().out
    monkeypatch.setattr(shutil, "which", lambda name: None)  # noqa: ARG005  # nothing is found
    assert instructions.main([]) == instructions.SKIPPED
    assert capsys.readouterr().out == "skipped: valgrind is not installed\n"


@pytest.mark.usefixtures("recorded")
def test_a_base_is_counted_by_its_own_interpreter(tmp_path, monkeypatch, capsys) -> None:
    """What is recorded does not matter then."""
    (tmp_path / "benches").mkdir()
    (tmp_path / "benches/hot_paths.py").touch()
    monkeypatch.setattr(
        instructions,
        "counted",
        lambda *base, **seed: {"a": 100 if base else 105},  # noqa: ARG005
    )
    assert instructions.main(["--base", "/base/python", str(tmp_path)]) == 1
    assert "a: expected at most 103 instructions (100 before), got 105" in capsys.readouterr().out


def test_a_path_that_takes_more_is_counted_with_other_seeds(tmp_path, monkeypatch, capsys) -> None:
    """Where objects lie is chance: the least of each tree counts."""
    (tmp_path / "benches").mkdir()
    (tmp_path / "benches/hot_paths.py").touch()
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    bases = {"0": 100, "1": 101, "2": 99}
    changes = {"0": 104, "1": 105, "2": 101}
    counted = []

    def count(*base: object, seed: str = "0") -> dict[str, int]:
        counts = bases if base else changes
        counted.append(counts[seed])
        return {"a": counts[seed]}

    monkeypatch.setattr(instructions, "counted", count)
    assert instructions.main(["--base", "/base/python", str(tmp_path)]) == 0
    assert "| a | 99 | 101 | +2.0% |" in capsys.readouterr().out
    assert counted == [100, 104, 105, 101, 101, 99]


def test_the_program_marks_what_is_counted() -> None:
    """Without valgrind it runs as well, and names six paths."""
    done = subprocess.run(  # ours
        [sys.executable, "benches/hot_paths.py"],
        cwd=instructions.ROOT,
        env={"PYTHONPATH": "tests", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line.rpartition(" ")[0] for line in done.stdout.splitlines()]
    assert len(names) == 6
    for counts in json.loads(instructions.RECORDED.read_text(encoding="utf-8")).values():
        assert set(counts) == set(names)


def test_wrong_usage_is_explained(capsys) -> None:
    assert instructions.main(["--base"]) == 2
    assert "--record" in capsys.readouterr().err
