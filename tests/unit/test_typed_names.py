"""Every public name is used in the programs that type checkers read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import alignup
import alignup.cluster
import alignup.replay

TYPING = Path(__file__).parents[1] / "typing"


def used_names() -> set[str]:
    """Return the names that the programs use beside importing them."""
    names: set[str] = set()
    for path in TYPING.glob("*.py"):
        for part in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(part, ast.Name):
                names.add(part.id)
            elif isinstance(part, ast.Attribute):
                names.add(part.attr)
    return names


@pytest.mark.parametrize("module", [alignup, alignup.cluster, alignup.replay])
def test_type_checkers_see_a_use_of_every_public_name(module) -> None:
    assert sorted(set(module.__all__) - used_names()) == []


def test_the_two_other_public_classes_are_among_them() -> None:
    assert used_names() >= {"AdmissionMetrics", "DevicePlugins"}
