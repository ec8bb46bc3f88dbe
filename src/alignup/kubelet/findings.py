"""Declares findings about a kubelet's files, and says of each kind what the kubelet does about it, and the repair.

The effects were seen with a kubelet 1.36 that was started on such files (`tests/rig/test_faults.py`). Words in
quotation marks are its own, from its log. What is found is decided in `alignup.kubelet.check` and modules beside it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from alignup.records import Record, json_fields


class Finding(Record):
    """Something in the files of a kubelet that is not as it should be."""

    kind: str
    file: str
    """Where it is."""
    text: str
    """The fault, in words."""
    effect: str
    """The way the kubelet deals with it at its next start."""
    repair: str
    """How to mend it."""

    def to_dict(self) -> dict[str, str]:
        """Return the finding in JSON's types."""
        return json_fields(self)


def finding(kind: str, file: str, text: str, message: str = "") -> Finding:
    """Return a finding of a known kind.

    Args:
        kind: one of those that this module knows.
        file: where it is.
        text: what it is.
        message: the kubelet's own words, where it does not start and says what it has found.
    """
    told = _kinds()[kind]
    return Finding(kind, file, text, told.get("effect") or f'the kubelet does not start: "{message}"', told["repair"])


@cache
def _kinds() -> dict[str, dict[str, str]]:
    """Return by kind what the kubelet does, where that is always the same, and how to mend it."""
    kinds: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    return kinds
