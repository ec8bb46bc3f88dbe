"""Selectors beyond the vectors: limits, what is not understood, and how errors are absorbed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.claims.scenarios import answer_selector

DEVICE: dict[str, Any] = {
    "attributes": {
        "model": {"string": "A100"},
        "index": {"int": 3},
        "version": {"version": "1.2.3"},
        "resource.kubernetes.io/numaNode": {"ints": [1, 0]},
    },
    "capacity": {"memory": {"value": "40Gi"}},
}


def ask(expression: str, device: dict[str, Any] = DEVICE) -> Any:
    """Return whether a device matches, or the first word for why there is no answer."""
    line = {"name": "n", "expression": expression, "driver": "gpu.example.com", "device": device, "listGate": True}
    answer = answer_selector(line, "line")
    name, key = answer
    assert name == "name"
    return answer[key] if key == "match" else key


A = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{A}.index + 9223372036854775807 > 0", "error"),
        (f"{A}.absent == 1 || true", True),
        (f"{A}.absent == 1 && false", False),
        (f"[1, 2].exists(i, {A}.absent == i || i == 2)", True),
        (f"[{A}.model, 'b'].map(m, m + 'x')[0] == 'A100x'", True),
        (f"{A}.transformList(k, v, k).size() == 3", True),
        (f"{A}.?model.optMap(m, m + '!').orValue('') == 'A100!'", True),
        (f"{A}.model.matches('^A[0-9]+$')", True),
        (f"{A}.model.matches('(a+)+$')", "notUnderstood"),
        (f"{A}.model.matches('(?=a)')", "compileError"),
        (f"{A}.model.matches('[')", "compileError"),
        (f"{A}.model.matches({A}.model + '[')", "error"),
        ("timestamp('2020-01-01T00:00:00Z') > timestamp('2019-01-01T00:00:00Z')", "notUnderstood"),
        ("nothing(1) == 2", "compileError"),
        ("[1, 2, 3].all(1, true)", "compileError"),
        ("has(device)", "compileError"),
        (f"{A}.?model.or(1, 2) == 1", "compileError"),
        ("in == 1", "compileError"),
        ("'\\q' == ''", "compileError"),
        ("b'\\xff' == b'\\377'", True),
        ("99999999999999999999 == 1", "compileError"),
        ("{true: 1}[true] == 1", "notUnderstood"),
        ("semver('v1.2', true) == semver('1.2.0')", True),
        ("quantity('10E').isGreaterThan(quantity('9E'))", True),
        ("'a,b'.split(',') == ['a', 'b'] && sets.contains([1, 2], [2])", True),
        ("device", "compileError"),
        ("dyn(1)", "error"),
    ],
)
def test_answers(expression, expected) -> None:
    assert ask(expression) == expected


def test_a_version_that_is_none_is_an_error_of_every_selector() -> None:
    assert ask("true", {"attributes": {"version": {"version": "1.2"}}}) == "error"
    assert ask("true", {"attributes": {"nothing": {}}}) == "error"


def test_expressions_are_bounded() -> None:
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    nested = "true"
    for variable in "abcdef":
        nested = f"{ten}.all({variable}, {nested})"
    assert ask(nested) == "error"
    assert ask("(" * 500 + "true" + ")" * 500) == "notUnderstood"
    assert ask("!" * 5000 + "true") in (True, False)
    assert ask("1" + " + 1" * 2000 + " > 0") == "notUnderstood"
    assert ask("true" + " && true" * 1000) is True
    assert ask(f"'{'a' * 11_000}' == ''") == "compileError"
    assert ask("lists.range(1000000000).size() > 0") == "notUnderstood"
    assert ask("'" + "a" * 5000 + "'.matches('a*a*a*a*b')") in (False, "error", "notUnderstood")


@given(st.text(max_size=40) | st.from_regex(r"[a-z0-9.?:()\[\]{}&|<>=!+*/%'\"` -]{0,40}", fullmatch=True))
def test_any_text_has_an_answer(text) -> None:
    assert ask(text.encode("utf-8", "replace").decode()) in (True, False, "error", "compileError", "notUnderstood")
