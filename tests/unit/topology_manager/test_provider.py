"""The interface of providers: the example in its docstring is a provider that works."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from alignup import (
    AllocationError,
    BitMask,
    HintProvider,
    Node,
    Pod,
    TopologyHint,
    read_machine,
    read_pod,
)

LICENCE = "example.com/licence"


def example() -> HintProvider:
    """Return the provider that the docstring shows."""
    text = inspect.cleandoc(HintProvider.__doc__ or "")  # Python 3.13 has done so already
    names: dict[str, Any] = {
        "AllocationError": AllocationError,
        "BitMask": BitMask,
        "TopologyHint": TopologyHint,
    }
    source = textwrap.dedent(text[text.index("    class Licences:") :])
    exec(source, names)  # noqa: S102  # what is tested
    provider: HintProvider = names["Licences"]()
    return provider


def pod(name: str, count: int) -> Pod:
    limits = {"limits": {LICENCE: str(count)}}
    return read_pod(
        {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": limits}]}}
    )


def test_the_example_hands_out_two_licences_and_says_why_there_is_no_third() -> None:
    provider = example()
    assert isinstance(provider, HintProvider)
    node = Node(
        read_machine("xeon-2s"), {"topologyManagerPolicy": "restricted"}, providers=[provider]
    )
    assert node.admit(pod("two", 2)).admitted
    refused = node.admit(pod("one", 1))
    node.remove("default/two")
    assert f"{LICENCE} is free: 1 asked, 0 free" in refused.message
    assert node.admit(pod("one", 1)).admitted
