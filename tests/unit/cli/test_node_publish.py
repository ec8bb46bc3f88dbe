"""`alignup node publish`: bad usage ends in one line."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("name", ["\udcff", "a\udc80"])
def test_a_name_of_a_node_that_is_no_text_is_one_line(alignup, name) -> None:
    ended = alignup("node", "publish", "--name", name, "--kubeconfig", "no-such-kubeconfig")
    assert ended.complains("expected UTF-8, got", "--name")
