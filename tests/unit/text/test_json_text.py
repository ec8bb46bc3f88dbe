"""JSON from outside: values, or one line that says why not."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.text.json_text import DEPTH_LIMIT, decode_json


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
