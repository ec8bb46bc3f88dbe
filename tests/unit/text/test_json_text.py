"""JSON from outside: values, or one line that says why not; lines of it, numbered."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import ConfigError, InputError, errors_at
from alignup.text.json_text import DEPTH_LIMIT, decode_json, numbered_lines, without_depths

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\[]{}\n,é'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('a"\\[{', max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


class Named(msgspec.Struct):
    name: str


def test_values_are_plain_or_what_the_decoder_makes():
    """Text and bytes alike."""
    assert decode_json('{"a": [1]}', "something") == {"a": [1]}
    assert decode_json(b'{"name": "x"}', "a name", kind=Named) == Named("x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "truncated"),
        (b"{'a': 1}", "malformed"),
        (b'{"name": "\xff"}', "utf-8"),
        (b'{"name": 3}', "Expected `str`, got `int`"),
        (b'{"a":' * 50_000, "levels deep"),
        (b"[" * 50_000 + b"]" * 50_000, "levels deep"),
        ('"\ud800"', "surrogates"),
    ],
)
def test_whatever_is_wrong_is_one_short_line(text, why):
    """It says what was expected, how the text begins, why it cannot be, and where."""
    with pytest.raises(InputError, match=r"^expected a name, got .* at line 3$") as caught:
        decode_json(text, "a name", "line 3", Named)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_caller_may_add_the_place():
    with pytest.raises(InputError, match=r"^expected a name, got 'x' \(.*\)$"):
        decode_json(b"x", "a name")


def test_the_decoders_words_are_put_in_ours():
    with pytest.raises(InputError) as caught:
        decode_json(b"{}", "a name", "line 3", Named)
    assert str(caught.value) == "expected a name, got '{}' (it lacks the key `name`) at line 3"


@pytest.mark.parametrize("make", [str, str.encode])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[", "]"),
        ('{"a":', "}"),
        ('[[],"]]]",', "]"),
        ('["[[[{", {}, ', "]"),
        ('{"\\"[":', "}"),
        ('["\\\\", ', "]"),
    ],
)
def test_levels_are_counted(make, before: str, after: str) -> None:
    """By themselves, and not by what an interpreter bears; brackets in strings are none."""
    for levels, is_fine in ((DEPTH_LIMIT, True), (DEPTH_LIMIT + 1, False), (3000, False)):
        inner = levels - 1
        text = make(before * inner + "[" + "]" + after * inner)
        if is_fine:
            decode_json(text, "JSON")
        else:
            with pytest.raises(
                InputError, match=f"values are nested more than {DEPTH_LIMIT} levels deep"
            ):
                decode_json(text, "JSON")


def test_many_values_side_by_side_are_no_depth() -> None:
    assert len(decode_json(b"[" + b'["}", {}],' * 10_000 + b"0]", "JSON")) == 10_001


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', b'{"b": [{"a": 1, "c": 2, "a": 3}]}', '{"a": 1, "\\u0061": 2}']
)
def test_a_key_that_comes_twice_is_refused(text):
    """As in YAML: the last one would win, silently."""
    with pytest.raises(
        InputError, match=r"^expected a pod, got .* \(it has the key 'a' twice\) at pod.json$"
    ):
        decode_json(text, "a pod", "pod.json")


@given(
    value=st.recursive(
        st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_has_every_key_once_is_read(value):
    """Numbers of any size too."""
    text = json.dumps(value)
    assert json.dumps(decode_json(text, "a value")) == json.dumps(msgspec.json.decode(text))


def test_a_type_can_be_held_to_it_too():
    assert decode_json('{"name": "x", "name": "y"}', "a name", kind=Named) == Named("y")
    with pytest.raises(InputError, match="the key 'name' twice"):
        decode_json('{"name": "x", "name": "y"}', "a name", kind=Named, once=True)


@pytest.mark.parametrize(
    "lines",
    ["a\r\n\n  \n b\n", b"a\r\n\n  \n b\n", ["a\n", "\n", "", " b"], iter([b"a", b"", b" ", b"b"])],
)
def test_blank_lines_count_and_are_passed_over(lines):
    """A text, its lines with their ends, or without."""
    numbered = [
        (where, line if isinstance(line, str) else line.decode())
        for where, line in numbered_lines(lines, "x")
    ]
    assert numbered == [("x:1", "a"), ("x:4", "b")]


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_a_line_ends_at_a_newline_only(separator):
    """JSON allows most of these within a string."""
    line = f'"a{separator}b"'
    assert list(numbered_lines(f"{line}\n{line}", "x")) == [("x:1", line), ("x:2", line)]


@pytest.mark.parametrize("kind", [InputError, ConfigError])
def test_errors_name_the_line_and_keep_their_type(kind):
    """Others pass as they are."""
    with pytest.raises(InputError, match=r"^x:3: wrong$") as caught, errors_at("x:3"):
        raise kind("wrong")
    assert type(caught.value) is kind
    with pytest.raises(KeyError), errors_at("x:3"):
        raise KeyError("a")


@pytest.mark.parametrize("kind", [str, bytes])
def test_millions_of_blank_lines_cost_little(kind):
    """They are not looked at one by one."""
    text = "\n" * 5_000_000 + " a \n\r\n\n\tb"
    numbered = list(numbered_lines(text if kind is str else text.encode(), "f"))
    assert [(where, line if kind is str else line.decode()) for where, line in numbered] == [
        ("f:5000001", "a"),
        ("f:5000004", "b"),
    ]


def cut(value: object, levels: int) -> object:
    """Return a value as it should be cut."""
    if not isinstance(value, list | dict):
        return value
    if not levels:
        return None
    if isinstance(value, list):
        return [cut(inner, levels - 1) for inner in value]
    return {key: cut(inner, levels - 1) for key, inner in value.items()}


@given(VALUES, st.integers(0, 4), st.booleans())
def test_values_below_so_many_levels_become_null(value, levels, ascii_only) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert json.loads(without_depths(text, levels)) == cut(value, levels)


def test_a_value_of_thousands_of_levels_leaves_the_others() -> None:
    text = b'{"name": "n", "odd": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b', "last": [1]}'
    assert msgspec.json.decode(without_depths(text, 64))["last"] == [1]


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": [[[',
        b'"' + b'\\"' * 50_000,
        b'"' + b'\\"' * 200_000 + b"\\",
        b"]" * 5000 + b"[" * 5000,
        b"[" * 50_000,
    ],
)
def test_what_is_no_json_stays_none(text) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(without_depths(text, 64))
