"""The program of the page about tables runs as it is shown, where pandas and matplotlib are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "tables.md"


def test_the_program_makes_a_table_and_a_plot(tmp_path, monkeypatch, capsys) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: extra docs")
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed: extra docs")
    matplotlib.use("svg")
    monkeypatch.chdir(tmp_path)
    [program] = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)

    names: dict[str, object] = {"__name__": "page"}
    exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102  # the page's own program

    table = names["table"]
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == 200
    assert 0 < table["admitted"].sum() < 200
    assert "TopologyAffinityError" in set(table["reason"])
    assert "<svg" in (tmp_path / "admitted.svg").read_text("utf-8")
    assert "TopologyAffinityError" in capsys.readouterr().out
