"""`alignup fleet`: bad usage ends in one line."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["either --nodes or --machine"]),
        (["--nodes", "no-such-file"], ["no-such-file"]),
        (["--machine", "no such"], ["one of the catalog"]),
        (["--machine", "align-up-article", "--nodes", "x"], ["either --nodes or --machine"]),
        (["--machine", "align-up-article", "--label", "x"], ["KEY=VALUE"]),
        (["--machine", "align-up-article", "--listen", "x"], ["HOST:PORT"]),
        (
            ["--machine", "align-up-article", "--podresources-dir", "/x" * 60],
            ["up to 107 bytes", "--podresources-dir"],
        ),
        (["--machine", "\udcff"], ["expected UTF-8", "--machine"]),
        (["--machine", "align-up-article", "--label", "a=\udcff"], ["expected UTF-8", "--label"]),
        (["--machine", "align-up-article", "--label", "\udcff=a"], ["expected UTF-8", "--label"]),
    ],
)
def test_bad_usage_is_one_line(alignup, arguments, parts) -> None:
    ended = alignup("fleet", "--kubeconfig", "no-such-kubeconfig", *arguments)
    assert ended.status == 2
    assert all(part in ended.err for part in parts)
    assert "Traceback" not in ended.err


def test_a_host_that_cannot_be_is_one_line(alignup, write) -> None:
    path = write(
        "kubeconfig",
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        },
    )
    arguments = ("--machine", "align-up-article", "--listen", "\udcff:5")
    assert alignup("fleet", "--kubeconfig", path, *arguments).complains(
        r"\udcff:5: no host can have the name"
    )
