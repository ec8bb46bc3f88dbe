"""`POLICY[/SCOPE],...`."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.replay.configurations import parse_configurations


def test_policies_and_scopes() -> None:
    found = parse_configurations("none, restricted/pod,none")

    assert [one.label for one in found] == ["none", "restricted/pod"]
    assert found[1].fields == {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}
    assert found[0].fields == {"topologyManagerPolicy": "none"}


@pytest.mark.parametrize("text", ["", "nothing", "none,", "restricted/", "restricted/node"])
def test_unknown_ones_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="at --compare"):
        parse_configurations(text)
