"""The gate over benchmark ratios fails when one falls to half of what is recorded."""

from __future__ import annotations

import json

import check_ratios


def report_of(**ratios: float) -> dict:
    """Return what pytest-benchmark reports, as far as it matters."""
    benches = [{"fullname": name, "extra_info": {"ratio": ratio}} for name, ratio in ratios.items()]
    return {"benchmarks": [*benches, {"fullname": "plain", "extra_info": {}}]}


def test_a_ratio_may_fall_but_not_by_half(tmp_path, monkeypatch, capsys) -> None:
    """Recorded ratios are the measure; a benchmark that was not run is reported, a new one is not."""
    report, recorded = tmp_path / "bench.json", tmp_path / "recorded.json"
    monkeypatch.setattr(check_ratios, "RECORDED", recorded)
    report.write_text(json.dumps(report_of(a=100.0, b=10.0)), encoding="utf-8")

    assert check_ratios.main([str(report), "--record"]) == 0
    assert check_ratios.main([str(report)]) == 0
    report.write_text(json.dumps(report_of(a=51.0, b=5.1, c=1.0)), encoding="utf-8")
    assert check_ratios.main([str(report)]) == 0
    report.write_text(json.dumps(report_of(a=49.0)), encoding="utf-8")
    capsys.readouterr()
    assert check_ratios.main([str(report)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "a: expected a ratio of at least 50 (recorded 100), got 49",
        "b: expected a ratio of at least 5, but it was not run",
    ]


def test_wrong_usage_is_explained(capsys) -> None:
    """Without a report there is nothing to compare."""
    assert check_ratios.main([]) == 2
    assert "--benchmark-json" in capsys.readouterr().err
