"""Expressions become trees, macros expanded, or errors with their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.claims.selectors.syntax import (
    CompileError,
    Node,
    NotUnderstood,
    Uint,
    parse,
    path_of,
)


def shape(node: Node) -> object:
    """Return a tree without places: names and literals as they are, calls as tuples."""
    if node.kind in ("literal", "name"):
        return node.value
    return (node.value, *map(shape, node.parts))


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("1 + 2 * 3", ("_+_", 1, ("_*_", 2, 3))),
        ("1 * 2 + 3", ("_+_", ("_*_", 1, 2), 3)),
        ("1 - 2 - 3", ("_-_", ("_-_", 1, 2), 3)),
        ("(1 + 2) * 3", ("_*_", ("_+_", 1, 2), 3)),
        ("a < 1 == true", ("_==_", ("_<_", "a", 1), True)),
        ("a || b && c", ("_||_", "a", ("_&&_", "b", "c"))),
        ("a || b || c", ("_||_", "a", "b", "c")),
        ("a ? b : c ? d : e", ("_?_:_", "a", "b", ("_?_:_", "c", "d", "e"))),
        ("a in b", ("@in", "a", "b")),
        ("!a", ("!_", "a")),
        ("!!a", "a"),
        ("- -a", "a"),
        ("-a.b", ("-_", ("b", "a"))),
        ("-1.f()", ("f", -1)),
        ("a.b.c", ("c", ("b", "a"))),
        ("a.`b-c/d`", ("b-c/d", "a")),
        ("a.?b", ("_?._", "a", "b")),
        ("a[?0]", ("_[?_]", "a", 0)),
        ("a[0][1]", ("_[_]", ("_[_]", "a", 0), 1)),
        (".a", "a"),
        ("f(1, 2,)", None),
        ("f(1, 2)", ("f", 1, 2)),
        ("// comment\n a // another", "a"),
    ],
)
def test_operators_bind_as_in_the_grammar(expression: str, tree: object) -> None:
    if tree is None:
        with pytest.raises(CompileError):
            parse(expression)
        return

    assert shape(parse(expression)) == tree


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("null", None),
        ("true", True),
        ("0x1F", 31),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551615u", Uint(2**64 - 1)),
        ("1e3", 1000.0),
        (".5", 0.5),
        (r"'a\n\x41\u00e9\101\"'", 'a\nA\u00e9A"'),
        (r"r'a\n'", r"a\n"),
        (r"'\ud7ff\ue000\U0010ffff'", "\ud7ff\ue000\U0010ffff"),
        ("-0x8000000000000000", -(2**63)),
        ("9223372036854775807", 2**63 - 1),
        ("'''a\r\nb'''", "a\nb"),
        ('"it\'s"', "it's"),
        (r"b'\xff\377a'", b"\xff\xffa"),
        ("bR'\\x'", b"\\x"),
    ],
)
def test_literals_have_their_values(expression: str, value: object) -> None:
    node = parse(expression)
    assert (node.kind, node.value, type(node.value)) == ("literal", value, type(value))


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_is_read_as_it_is_written(value: int) -> None:
    assert parse(str(value)).value == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "1:1: Syntax error: unexpected '<EOF>'"),
        ("1 +", "1:4: Syntax error: unexpected '<EOF>'"),
        ("a b", "1:3: Syntax error: unexpected 'b'"),
        ("a.1", "1:2: Syntax error: unexpected '.1'"),
        ("§", "1:1: Syntax error: token recognition error at: '§'"),
        ("'a", '1:1: Syntax error: token recognition error at: "\'a"'),
        (r"'\q'", r"1:1: Syntax error: unknown escape \q"),
        (r"b'\u0041'", "1:1: Syntax error: no unicode escapes in bytes"),
        (r"'\ud800'", "1:1: Syntax error: invalid unicode code point"),
        (r"'\udfff'", "1:1: Syntax error: invalid unicode code point"),
        (r"'\U00110000'", "1:1: Syntax error: invalid unicode code point"),
        ("-9223372036854775809", "1:1: Syntax error: invalid int literal"),
        ("9223372036854775808", "1:1: Syntax error: invalid int literal"),
        ("18446744073709551616u", "1:1: Syntax error: invalid uint literal"),
        pytest.param("9" * 5_000, "1:1: Syntax error: invalid int literal", id="long int"),
        pytest.param("9" * 5_000 + "u", "1:1: Syntax error: invalid uint literal", id="long uint"),
        pytest.param("-" + "9" * 5_000, "1:2: Syntax error: invalid int literal", id="negative"),
        pytest.param("0x" + "f" * 17, "1:1: Syntax error: invalid int literal", id="hexadecimal"),
        pytest.param("0x" + "f" * 17 + "u", "1:1: Syntax error: invalid uint literal", id="hex u"),
        ("1e999", "1:1: Syntax error: invalid double literal"),
        ("while", "1:1: Syntax error: unexpected 'while'"),
        ("has(a)", "1:1: invalid argument to has() macro"),
        ("a.all(1, true)", "1:7: argument must be a simple name"),
        ("a.map(x, x, x, x, x)", None),
        ("a.all(__result__, true)", "1:7: iteration variable overwrites accumulator variable"),
        ("[1].map(i, i).sortBy(i, i)", None),
        ("{1: 2}.sortBy(i, i)", "1:8: sortBy can only be applied to a list"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(expression: str, message: str | None) -> None:
    if message is None:
        assert isinstance(parse(expression), Node)
        return

    with pytest.raises(CompileError) as error:
        parse(expression)
    assert str(error.value).startswith(f"ERROR: <input>:{message}")


def test_optional_parts_are_named_by_their_places() -> None:
    assert parse("[1, ?a, ?b]").value == frozenset({1, 2})
    assert parse("{?'k': a, 'l': b}").value == frozenset({1})
    assert parse("int32{?value: 1}").value == ("int32", frozenset({1}))


@pytest.mark.parametrize(
    ("expression", "accumulator", "variables"),
    [
        ("a.all(i, i)", True, ("i", "@result")),
        ("a.exists(i, i)", False, ("i", "@result")),
        ("a.exists_one(i, i)", 0, ("i", "@result")),
        ("a.all(k, v, v)", True, ("k", "v", "@result")),
        ("cel.bind(x, 1, x)", 1, ("#unused", "x")),
    ],
)
def test_a_macro_becomes_a_walk(expression: str, accumulator: object, variables) -> None:
    """Over the range, from a first value on, while a condition holds, to a result."""
    node = parse(expression)
    assert (node.kind, node.value, len(node.parts)) == ("fold", variables, 5)
    assert node.parts[1].value == accumulator


def test_a_macro_of_another_target_or_number_of_arguments_is_a_call() -> None:
    assert parse("other.bind(x, 1, x)").kind == "method"
    assert parse("a.all(i)").kind == "method"
    assert parse("a.filter(i, i > 1, i)").kind == "method"


@pytest.mark.parametrize(
    ("expression", "path"),
    [("a", "a"), ("a.b.c", "a.b.c"), ("a().b", ""), ("a[0].b", ""), ("1", "")],
)
def test_a_chain_of_fields_has_a_path(expression: str, path: str) -> None:
    assert path_of(parse(expression)) == path


def test_expressions_are_bounded() -> None:
    with pytest.raises(CompileError, match="longer than 10240 bytes"):
        parse(f"'{'é' * 5120}'")
    assert parse(f"'{'a' * 10238}'").kind == "literal"
    for expression in ("(" * 61 + "1" + ")" * 61, "1" + " + 1" * 151):
        with pytest.raises(NotUnderstood):
            parse(expression)


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
def test_literals_of_64_bits_are_taken(number: int) -> None:
    assert shape(parse(str(number))) == number


@pytest.mark.parametrize("number", [-(2**63) - 1, -(2**64), 2**63, 2**64])
def test_literals_beyond_64_bits_are_refused(number: int) -> None:
    with pytest.raises(CompileError):
        parse(str(number))
