"""`alignup admit` of pods that ask for devices that the machine does not have."""

from __future__ import annotations

from typing import Any

import pytest


def pod(name: str, **limits: Any) -> dict[str, Any]:
    """Return a manifest of two containers with these limits."""
    containers = [
        {"name": each, "image": "i", "resources": {"limits": limits}} for each in ("a", "b")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers},
    }


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_they_are_ignored_and_that_is_said_once(alignup, write, options: tuple[str, ...]) -> None:
    """On standard error, so that what is on standard output is still all of one form."""
    limits = {"example.com/fpga": 1, "nvidia.com/gpu": 1, "a.b/none": 0}
    pods = [write(f"{name}.json", pod(name, **limits)) for name in ("one", "two")]
    ended = alignup("admit", "-m", "dgx-h100", *options, *pods)

    assert ended.status == 0
    assert (
        ended.err
        == "alignup: example.com/fpga is not on this machine; ignored, as a kubelet does\n"
    )
    assert "fpga" not in ended.out


def test_nothing_is_said_where_nothing_is_ignored(alignup, write) -> None:
    ended = alignup(
        "admit", "-m", "dgx-h100", write("one.json", pod("one", **{"nvidia.com/gpu": 1}))
    )

    assert (ended.status, ended.err) == (0, "")
