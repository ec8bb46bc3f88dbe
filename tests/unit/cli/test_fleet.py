"""`alignup fleet`: bad usage ends in one line."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["either --nodes or --machine"]),
        (["--nodes", "no-such-file"], ["no-such-file"]),
        (["--machine", "no such"], ["one of the catalog"]),
        (["--machine", "align-up-article", "--nodes", "x"], ["either --nodes or --machine"]),
        (["--machine", "align-up-article", "--label", "x"], ["KEY=VALUE"]),
        (["--machine", "align-up-article", "--listen", "x"], ["HOST:PORT"]),
    ],
)
def test_bad_usage_is_one_line(alignup, words, parts) -> None:
    found = alignup("fleet", "--kubeconfig", "no-such-kubeconfig", *words)
    assert found.status == 2
    assert all(part in found.err for part in parts)
    assert "Traceback" not in found.err
