"""The gate over benchmark ratios fails when one falls to half of what is recorded."""

from __future__ import annotations

import json
import subprocess
from unittest.mock import Mock, call

import check_ratios


def report_of(**ratios: float) -> dict:
    """Return what pytest-benchmark reports, as far as it matters."""
    benches = [{"fullname": name, "extra_info": {"ratio": ratio}} for name, ratio in ratios.items()]
    return {"benchmarks": [*benches, {"fullname": "plain", "extra_info": {}}]}


def test_a_ratio_may_fall_but_not_by_half(tmp_path, monkeypatch, capsys) -> None:
    """Recorded ratios are the measure; a benchmark that was not run is reported unless a part is, a new one is not."""
    report, recorded = tmp_path / "bench.json", tmp_path / "recorded.json"
    monkeypatch.setattr(check_ratios, "RECORDED", recorded)
    monkeypatch.setattr(check_ratios, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setattr(check_ratios, "run_again", lambda names: dict.fromkeys(names, 1.0))
    report.write_text(json.dumps(report_of(a=100.0, b=10.0)), encoding="utf-8")

    assert check_ratios.main([str(report), "--record"]) == 0
    assert check_ratios.main([str(report)]) == 0
    report.write_text(json.dumps(report_of(a=50.0, b=5.1, c=1.0)), encoding="utf-8")
    assert check_ratios.main([str(report)]) == 0
    report.write_text(json.dumps(report_of(a=49.0)), encoding="utf-8")
    capsys.readouterr()
    assert check_ratios.main([str(report)]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "a: expected a ratio of at least 50 (recorded 100), got 49",
        "b: expected a ratio of at least 5, but it was not run",
    ]
    assert check_ratios.main([str(report), "--part"]) == 1
    report.write_text(json.dumps(report_of(a=60.0)), encoding="utf-8")
    assert check_ratios.main([str(report), "--part"]) == 0
    report.write_text(json.dumps(report_of(c=60.0)), encoding="utf-8")
    assert check_ratios.main([str(report), "--part"]) == 1


def test_what_was_slow_once_is_run_again(tmp_path, monkeypatch, capsys) -> None:
    """Another process may have been in the way: the best of several runs counts, and only slow ones are repeated."""
    report, recorded = tmp_path / "bench.json", tmp_path / "recorded.json"
    monkeypatch.setattr(check_ratios, "RECORDED", recorded)
    monkeypatch.setattr(check_ratios, "HISTORY", tmp_path / "history.jsonl")
    report.write_text(json.dumps(report_of(a=100.0, b=10.0)), encoding="utf-8")
    assert check_ratios.main([str(report), "--record"]) == 0
    report.write_text(json.dumps(report_of(a=20.0, b=9.0)), encoding="utf-8")
    for answers, status, runs in (([{"a": 30.0}, {"a": 90.0}], 0, 2), ([{"a": 10.0}, {}, {"a": 49.0}], 1, 3)):
        run_again = Mock(side_effect=answers)
        monkeypatch.setattr(check_ratios, "run_again", run_again)
        assert check_ratios.main([str(report)]) == status
        assert run_again.call_args_list == [call(["a"])] * runs
    assert "got 49" in capsys.readouterr().out


def test_ratios_are_noted_where_nothing_failed_and_nothing_was_left_out(tmp_path, monkeypatch) -> None:
    """With the commit; a folder that is no clone has none."""
    report, history = tmp_path / "bench.json", tmp_path / "history.jsonl"
    monkeypatch.setattr(check_ratios, "RECORDED", tmp_path / "recorded.json")
    monkeypatch.setattr(check_ratios, "HISTORY", history)
    monkeypatch.setattr(check_ratios, "run_again", lambda names: dict.fromkeys(names, 1.0))
    report.write_text(json.dumps(report_of(a=100.0)), encoding="utf-8")
    assert check_ratios.main([str(report), "--record"]) == 0
    assert not history.exists()
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)  # noqa: S603, S607  # ours
    for ratio, words, status in ((90.0, [], 0), (10.0, [], 1), (80.0, ["--part"], 0), (70.0, ["--record"], 0)):
        report.write_text(json.dumps(report_of(a=ratio)), encoding="utf-8")
        assert check_ratios.main([str(report), *words]) == status
    lines = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
    assert [line["ratios"] for line in lines] == [{"a": 90.0}, {"a": 70.0}]
    assert all(len(line["commit"]) >= 7 and len(line["date"]) == 10 for line in lines)


def test_benchmarks_can_be_run_again(tmp_path, monkeypatch) -> None:
    """A run that leaves no report, or fails, has no ratios."""
    monkeypatch.setattr(check_ratios, "RECORDED", tmp_path / "benches" / "recorded.json")
    assert check_ratios.run_again(["missing.py::test"]) == {}


def test_wrong_usage_is_explained(capsys) -> None:
    """Without a report there is nothing to compare."""
    assert check_ratios.main([]) == 2
    assert "--benchmark-json" in capsys.readouterr().err
