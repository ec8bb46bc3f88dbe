"""Selectors beyond the vectors: each function with its cost, limits, and how errors are absorbed.

`functions.json` has what cel-go in the environment of Kubernetes 1.37.2 answers to expressions:
match or kind of error, cost, and the text of an error that shows a value.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.claims.scenarios import answer_selector
from alignup.claims.selectors import evaluate, libraries
from alignup.claims.selectors.check import Overload, check, functions
from alignup.claims.selectors.syntax import CompileError, NotUnderstood, parse
from checks.many_cases import check_each

DEVICE: dict[str, Any] = {
    "attributes": {
        "model": {"string": "A100"},
        "index": {"int": 3},
        "version": {"version": "1.2.3"},
        "resource.kubernetes.io/numaNode": {"ints": [1, 0]},
    },
    "capacity": {"memory": {"value": "40Gi"}},
}

NEEDS_RE2 = pytest.mark.skipif(find_spec("re2") is None, reason="google-re2 is not installed")

A = 'device.attributes["gpu.example.com"]'
TABLE = json.loads((Path(__file__).parent / "functions.json").read_text())

TABLE_DEVICE = {
    "attributes": {
        "model": {"string": "A100"},
        "index": {"int": 3},
        "ok": {"bool": True},
        "version": {"version": "1.2.3"},
        "o.example.com/x": {"string": "y"},
        "l": {"ints": [1, 2]},
        "s": {"strings": ["a", "b"]},
    },
    "capacity": {"memory": {"value": "40Gi"}},
}


def ask(expression: str, device: dict[str, Any] = DEVICE) -> Any:
    """Return whether a device matches, or the first word for why there is no answer."""
    line = {
        "name": "n",
        "expression": expression,
        "driver": "gpu.example.com",
        "device": device,
        "listGate": True,
    }
    answer = answer_selector(line, "line")
    (key,) = answer.keys() - {"name", "cost"}
    return answer[key] if key == "match" else key


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{A}.index + 9223372036854775807 > 0", "error"),
        (f"{A}.absent == 1 || true", True),
        (f"{A}.absent == 1 && false", False),
        (f"[1, 2].exists(i, {A}.absent == i || i == 2)", True),
        (f"[{A}.model, dyn('b')].map(m, m + 'x')[0] == 'A100x'", True),
        (f"[{A}.model, 'b'].map(m, m + 'x')[0] == 'A100x'", "compileError"),
        (f"{A}.transformList(k, v, k).size() == 3", True),
        (f"{A}.?model.optMap(m, m + '!').orValue('') == 'A100!'", True),
        (f"{A}.model.matches('^A[0-9]+$')", True),
        pytest.param(f"{A}.model.matches('(A+)+')", True, marks=NEEDS_RE2),
        pytest.param(f"{A}.model.matches('(?=a)')", "compileError", marks=NEEDS_RE2),
        pytest.param(f"{A}.model.matches('[')", "compileError", marks=NEEDS_RE2),
        pytest.param(f"{A}.model.matches({A}.model + '[')", "error", marks=NEEDS_RE2),
        ("timestamp('2020-01-01T00:00:00Z') > timestamp('2019-01-01T00:00:00Z')", True),
        ("nothing(1) == 2", "compileError"),
        ("[1, 2, 3].all(1, true)", "compileError"),
        ("has(device)", "compileError"),
        (f"{A}.?model.or(1, 2) == 1", "compileError"),
        ("in == 1", "compileError"),
        ("'\\q' == ''", "compileError"),
        ("b'\\xff' == b'\\377'", True),
        ("99999999999999999999 == 1", "compileError"),
        ("{true: 1}[true] == 1", True),
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
    assert ask("lists.range(1000000000).size() > 0") == "error"
    assert ask("optional.of(1)" + ".optMap(x, x)" * 40 + ".hasValue()") == "notUnderstood"
    assert ask("'%.99999999f'.format([1.0]) == ''") == "notUnderstood"
    assert ask("lists.range(70000).map(x, x).size() == 70000") is True


@NEEDS_RE2
def test_a_regular_expression_does_not_try_each_way_to_match() -> None:
    assert ask("'" + "a" * 5000 + "'.matches('a*a*a*a*b')") is False


@given(
    st.text(max_size=40)
    | st.from_regex(r"[a-z0-9.?:()\[\]{}&|<>=!+*/%'\"` -]{0,40}", fullmatch=True)
)
def test_any_text_has_an_answer(text) -> None:
    assert ask(text.encode("utf-8", "replace").decode()) in (
        True,
        False,
        "error",
        "compileError",
        "notUnderstood",
    )


def test_each_function_answers_and_costs_what_it_does_in_the_scheduler() -> None:
    unanswered = []

    def answers(expression: str, kind: object, cost: int | None, error: str | None = None) -> None:
        line = {
            "name": "n",
            "expression": expression,
            "driver": "d.example.com",
            "device": TABLE_DEVICE,
        }
        answer = answer_selector({**line, "listGate": True}, "line")
        (key,) = answer.keys() - {"name", "cost"}
        if "alignup[claims]" in answer.get("notUnderstood", ""):
            unanswered.append(expression)
            return

        assert (answer[key] if key == "match" else key, answer.get("cost")) == (kind, cost)
        assert error is None or answer["error"] == error

    check_each(answers, [(row[0], tuple(row)) for row in TABLE])
    if unanswered:
        pytest.skip(
            f"google-re2 is not installed, whose regular expressions are in {len(unanswered)} rows"
        )


@pytest.mark.parametrize(
    ("argument", "longer", "more"),
    [("1", "1 + 1 + 1", 2), ("dyn(1)", "dyn(1 + 1 + 1)", 0)],
    ids=["one form", "several forms"],
)
def test_a_call_in_one_of_several_forms_ends_at_its_first_error(argument, longer, more) -> None:
    """What comes after the error is then not evaluated, and costs nothing."""

    def cost(argument: str) -> int:
        line = {
            "name": "n",
            "expression": f"quantity('none').add({argument}).isInteger()",
            "driver": "gpu.example.com",
            "device": DEVICE,
        }
        answer = answer_selector(line, "line")
        assert "quantities must match" in answer["error"]
        return answer["cost"]

    assert cost(longer) - cost(argument) == more


def test_the_table_calls_each_function_in_each_form() -> None:
    """What the environment declares and no expression calls would be untested."""
    called = set()
    for expression, *_ in TABLE:
        try:
            calls = check(parse(expression)).calls.values()
        except CompileError:
            continue
        called |= {
            _form(call.function.name, overload) for call in calls for overload in call.overloads
        }

    assert {
        _form(name, overload)
        for name, function in functions().items()
        for overload in function.overloads
    } - called == set()


def _form(name: str, overload: Overload) -> tuple[str, bool, int, str]:
    return name, overload.is_method, len(overload.parameters), overload.implementation


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'abc'.matches('^a.c$')", True),
        ("'abc'.matches('[0-9]+')", False),
        ("'a1b2'.findAll('[0-9]') == ['1', '2']", True),
        ("'a\\n'.matches('a$')", False),
        ("'abc'.matches('(a+)+$')", "notUnderstood"),
        ("'abc'.matches('a*b*c*')", "notUnderstood"),
        ("'abc'.matches('\\\\p{L}')", "notUnderstood"),
    ],
)
def test_without_re2_plain_patterns_only_are_understood(monkeypatch, expression, expected) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    libraries.pattern_of.cache_clear()
    evaluate.program_of.cache_clear()
    assert ask(expression) == expected
    libraries.pattern_of.cache_clear()
    evaluate.program_of.cache_clear()


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ((3, 11), "without alignup[claims] (google-re2)"),
        ((3, 14), "without alignup[claims] (google-re2)"),
        ((3, 15), "(google-re2, which has no wheel for Python 3.15: pip builds it with RE2"),
        ((3, 16), "(google-re2, which has no wheel for Python 3.16: pip builds it with RE2"),
    ],
)
def test_where_there_is_no_wheel_of_re2_the_extra_says_so(monkeypatch, version, words) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    libraries.pattern_of.cache_clear()
    with pytest.raises(NotUnderstood, match=re.escape(words)):
        libraries.pattern_of("(a+)+$")
