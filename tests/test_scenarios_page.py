"""The page about scenarios shows what is so.

Its examples are run, and its keys are the ones that are known.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from alignup.cluster import Cluster
from alignup.node.inputs import KEYS
from alignup.replay import replay

PAGE = (Path(__file__).parent.parent / "docs" / "scenarios.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def test_the_example_is_answered_as_shown() -> None:
    scenario, answer, *_ = EXAMPLES

    assert replay(scenario) == answer


def test_a_restart_is_answered_as_shown() -> None:
    scenario, _, answer, _ = EXAMPLES
    steps = [scenario["steps"][0], {"restart": True}]

    assert replay({**scenario, "steps": steps})["steps"][1] == answer


def test_the_node_line_is_a_node() -> None:
    cluster = Cluster.from_json_lines(json.dumps(EXAMPLES[3]))

    assert cluster.names == ("node-a",)
    assert [pod.name for pod in cluster.nodes[0].pods] == ["old"]


def test_every_key_is_described() -> None:
    """Those that are read, but for one that serves scenarios only."""
    assert set(KEYS) - {"keepRefusedBindings"} <= set(re.findall(r"`(\w+)`", PAGE))
