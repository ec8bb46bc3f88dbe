"""Calls and types of an expression are checked as the API server does."""

from __future__ import annotations

import pytest

from alignup.claims.selectors.check import check, functions, more_general
from alignup.claims.selectors.syntax import CompileError, NotUnderstood, parse
from alignup.claims.selectors.values import BOOL, DYN, INT, Type

ATTRIBUTE = 'device.attributes["d"].x'


def test_the_environment_is_read_once_and_has_operators_and_libraries() -> None:
    assert functions() is functions()
    assert {"_+_", "size", "quantity", "semver"} <= functions().keys()
    for function in functions().values():
        assert function.overloads, function.name
        assert function.cost


def test_a_letter_stands_for_each_of_its_types() -> None:
    """As many overloads as there are choices of types."""
    numbers = {
        overload.parameters
        for overload in functions()["_<_"].overloads
        if all(parameter.name in ("int", "uint", "double") for parameter in overload.parameters)
    }
    assert len(numbers) == 9


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "1 < 2.0",
        f"{ATTRIBUTE}",
        f"{ATTRIBUTE} == 1",
        f"{ATTRIBUTE}.startsWith('a')",
        "device.driver == 'd'",
        "[1, 2].exists(i, i == 1)",
        "[1, 2].size() == 2",
        "[].size() == 0",
        "{}.size() == 0",
        "'%s %d'.format([device.driver, 1]) == 'a 1'",
        "'%s'.format([[1, {'a': 2.0}]]) == ''",
        "'%s'.format(dyn(['a'])) == 'a'",
        "{'a': 1}['a'] == 1",
        "optional.of(1).orValue(2) == 1",
        "null == null",
        "type(1) == int",
        "dyn(1) == 'a'",
        "has(device.attributes.x)",
        "[[1], [2]].map(l, l[0]).all(i, i > 0)",
    ],
)
def test_what_is_a_condition_compiles(expression: str) -> None:
    check(parse(expression))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
        ("[true]", "not list(bool)"),
        ("nothing", "undeclared reference"),
        ("nothing()", "undeclared reference"),
        ("device.none == 1", "undefined field"),
        ("1 == 'a'", "found no matching overload"),
        ("1 + 'a' == 2", "found no matching overload"),
        ("'a'.startsWith(1)", "found no matching overload"),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'"),
        ("size(1, 2) == 1", "found no matching overload"),
        ("[1, 'a'].all(i, i > 0) == 1", "found no matching overload"),
    ],
)
def test_what_is_none_does_not(expression: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        check(parse(expression))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("expression", "is_of_driver"),
    [
        ("device.driver == 'd'", True),
        ("true", True),
        (f"{ATTRIBUTE} == 1", False),
        ("device.driver == 'd' && device.allowMultipleAllocations", False),
        ("'memory' in device.capacity['d']", False),
    ],
)
def test_what_reads_the_driver_only_is_seen(expression: str, is_of_driver: bool) -> None:
    assert check(parse(expression)).is_of_driver is is_of_driver


def test_a_call_has_the_overloads_that_its_arguments_allow() -> None:
    """One where the types are known, several where an attribute may be anything."""
    [typed] = check(parse("1 < 2")).calls.values()
    assert [overload.parameters for overload in typed.overloads] == [(INT, INT)]
    calls = check(parse(f"{ATTRIBUTE} < 2")).calls.values()
    [untyped] = [call for call in calls if call.function.name == "_<_"]
    assert len(untyped.overloads) > 1
    assert {overload.parameters[1] for overload in untyped.overloads} == {INT}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (DYN, INT, DYN),
        (INT, DYN, DYN),
        (INT, INT, INT),
        (Type("list", (DYN,)), Type("list", (INT,)), Type("list", (DYN,))),
        (Type("list", (INT,)), Type("list", (DYN,)), Type("list", (DYN,))),
        (Type("~1"), BOOL, Type("~1")),
    ],
)
def test_the_more_general_type_has_the_values_of_both(first, second, expected) -> None:
    assert more_general(first, second) == expected


def test_a_clause_of_format_is_checked_with_its_arguments() -> None:
    check(parse("'%d'.format([1]) == '1'"))
    with pytest.raises((CompileError, NotUnderstood)):
        check(parse("'%d'.format(['a']) == '1'"))
