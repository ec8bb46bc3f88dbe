"""Regular expressions of the package take no time that grows faster than what they read.

Two repetitions that can share letters, one within the other or one right behind the other, are
tried in every way: twice for twice the text becomes four times. Each that stays has a reason.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from alignup.claims.selectors import functions, libraries
from alignup.machine import archive

SRC = Path(__file__).parents[2] / "src/alignup"
_PARSER: Any = re._parser  # type: ignore[attr-defined]  # its name since Python 3.11
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
_MANY = 64
"""A repetition of at most so many costs a constant."""
LETTERS = [chr(code) for code in range(256)]
"""Letters above stand for nothing more: no expression of the package names one."""

REASONS = {
    r"data:[^,;]*(?:;(?!base64)[^,;]*)*(;base64)?,(.*)": (
        "each part begins with a semicolon, which none has within it"
    ),
    r"^(Name|PPid|Cpus_allowed_list|Mems_allowed_list|Kthread):[ \t]*(.*)$": "never fails behind",
    r"[\s|]*(?P<names>[A-Z]{2,4}\d*\b.*)CPU ?Affinity\b": "digits end at one place only",
    r"\s*(?:\.\.\.|…|[\[<(](?:\.\.\.|…|snip|truncated|cut|output omitted).*)\s*": (
        "the rest of a line is all there is"
    ),
    r"\s*(?P<key>[A-Z][A-Z0-9_]*):(?:\s++(?P<value>\S.*))?\s*": (
        "the rest of a line is all there is"
    ),
    r"(?P<kind>[A-Z]\w*)(?:\([^()]*\))?(?: L#(?P<logical>\d{1,6}))?"
    r"(?: \(?P#(?P<number>\d{1,6}))?(?P<rest>.*)": "the rest of a line is all there is",
}
"""By the expression, why it may stay."""
MADE = (archive, functions, libraries)
"""Modules that put expressions together of parts."""


def expressions() -> list[tuple[str, str]]:
    """Return where each expression is that a module gives to `re` as a text, and the expression."""
    places = []
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
                continue
            if node.func.attr == "escape" or not node.args:
                continue
            pattern = node.args[0]
            if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str | bytes):
                text = pattern.value
                places.append(
                    (
                        f"{path.relative_to(SRC)}:{node.lineno}",
                        text.decode("latin-1") if isinstance(text, bytes) else text,
                    )
                )
    for module in MADE:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                text = value.pattern
                text = text.decode("latin-1") if isinstance(text, bytes) else text
                places.append((f"{module.__name__}.{name}", text))
    return places


def letters_of(tree: Any) -> set[str]:
    """Return the letters that a part of an expression can match."""
    return {letter for node in tree for letter in _letters(*node)}


def _letters(code: Any, argument: Any) -> set[str]:
    name = str(code)
    if name == "IN":
        return {letter for letter in LETTERS if _is_in(letter, argument)}
    if name == "LITERAL":
        return {chr(argument)}
    if name in {"ANY", "NOT_LITERAL"}:
        return set(LETTERS) - ({"\n"} if name == "ANY" else {chr(argument)})
    return {letter for part in _parts(name, argument) for letter in letters_of(part)}


def _is_in(letter: str, members: Any) -> bool:
    is_negated = str(members[0][0]) == "NEGATE"
    categories = {"DIGIT": str.isdigit, "SPACE": str.isspace, "WORD": _is_of_word}
    is_member = False
    for code, argument in members[is_negated:]:
        name = str(code)
        if name == "LITERAL":
            is_member |= ord(letter) == argument
        elif name == "RANGE":
            is_member |= argument[0] <= ord(letter) <= argument[1]
        else:
            kind = str(argument).removeprefix("CATEGORY_")
            is_of_kind = categories[kind.removeprefix("NOT_")](letter)
            is_member |= is_of_kind != kind.startswith("NOT_")
    return is_member != is_negated


def _is_of_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _parts(name: str, argument: Any) -> list[Any]:
    """Return the parts that a node has."""
    if name in _REPEATS:
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "BRANCH":
        return list(argument[1])
    if name == "ATOMIC_GROUP":
        return [argument]
    return []


def can_be_empty(tree: Any) -> bool:
    """Return whether a part can match no letter."""
    for code, argument in tree:
        name = str(code)
        if name in _REPEATS and (argument[0] == 0 or can_be_empty(argument[2])):
            continue
        if name in {"SUBPATTERN", "BRANCH", "ATOMIC_GROUP"} and any(
            map(can_be_empty, _parts(name, argument))
        ):
            continue
        if name not in {"AT", "ASSERT", "ASSERT_NOT"}:
            return False
    return True


def ends_of(tree: Any, *, first: bool) -> list[set[str]]:
    """Return the letters of each long repetition that a part can begin with, or end with.

    Of a repetition of several letters, these are those of the repetitions at its own ends.
    """
    ends = []
    for code, argument in tree if first else reversed(tree):
        name = str(code)
        is_long = name in _REPEATS and argument[1] > _MANY and name != "POSSESSIVE_REPEAT"
        if is_long and argument[2].getwidth()[0] <= 1:
            ends.append(letters_of(argument[2]))
        else:
            ends += [end for part in _parts(name, argument) for end in ends_of(part, first=first)]
        if not can_be_empty([(code, argument)]):
            break
    return ends


def faults_of(tree: Any) -> list[str]:
    """Return what two repetitions of an expression can share letters."""
    faults = []
    nodes = list(tree)
    for place, (code, argument) in enumerate(nodes):
        name = str(code)
        for part in _parts(name, argument):
            faults += faults_of(part)
        if name in _REPEATS and argument[1] > _MANY:
            part = list(argument[2])
            around = ends_of(part, first=False), ends_of(part, first=True)
            if any(last & begin for last in around[0] for begin in around[1]):
                faults.append("nested")
        if place:
            before, behind = ends_of(nodes[:place], first=False), ends_of(nodes[place:], first=True)
            if any(last & begin for last in before for begin in behind):
                faults.append("adjacent")
    return faults


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"(a+)+", ["nested"]),
        (r"(?:a|b*)*", ["nested"]),
        (r"\s*\s+x", ["adjacent"]),
        (r"a*b?a*", ["adjacent"]),
        (r"\w+\d+", ["adjacent"]),
        (r"(?:\d+,)*\d+", []),
        (r"\s*a\s*", []),
        (r"a+b+", []),
        (r"\d{1,5}\d*", []),
        (r"(?:\s+\w*)+", ["nested"]),
        (r"(?:\s+\w+)+", []),
        (r"\w++\w*", []),
        (r"[0-9](?:_?[0-9])*\.?[0-9]*", ["adjacent"]),
    ],
)
def test_the_linter_sees_what_shares_letters(expression: str, expected: list[str]) -> None:
    assert sorted(set(faults_of(_PARSER.parse(expression)))) == expected


def test_no_expression_has_repetitions_that_share_letters() -> None:
    places = expressions()
    assert len(places) > 100
    bad = {}
    for place, expression in places:
        faults = faults_of(_PARSER.parse(expression, re.VERBOSE if "(?x" in expression else 0))
        if faults and expression not in REASONS:
            bad[place] = (expression, faults)
    assert bad == {}
    assert set(REASONS) <= {expression for _, expression in places}
