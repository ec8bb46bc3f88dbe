"""JSON from outside: values, or one line that says why not."""

from __future__ import annotations

import msgspec
import pytest

from alignup.errors import InputError
from alignup.text.json_text import decode_json


class Named(msgspec.Struct):
    name: str


def test_values_are_plain_or_what_the_decoder_makes():
    """Text and bytes alike."""
    assert decode_json('{"a": [1]}', "something") == {"a": [1]}
    assert decode_json(b'{"name": "x"}', "a name", decode=msgspec.json.Decoder(Named).decode) == Named("x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "truncated"),
        (b"{'a': 1}", "malformed"),
        (b'{"name": "\xff"}', "utf-8"),
        (b'{"name": 3}', "Expected `str`, got `int`"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b"[" * 50_000 + b"]" * 50_000, "Expected `object`, got `array`"),
        ('"\ud800"', "surrogates"),
    ],
)
def test_whatever_is_wrong_is_one_short_line(text, why):
    """It says what was expected, how the text begins, why it cannot be, and where."""
    with pytest.raises(InputError, match=r"^expected a name, got .* at line 3$") as caught:
        decode_json(text, "a name", "line 3", msgspec.json.Decoder(Named).decode)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_caller_may_add_the_place():
    with pytest.raises(InputError, match=r"^expected a name, got 'x' \(.*\)$"):
        decode_json(b"x", "a name")


def test_the_decoders_words_are_put_in_ours():
    with pytest.raises(InputError) as caught:
        decode_json(b"{}", "a name", "line 3", msgspec.json.Decoder(Named).decode)
    assert str(caught.value) == "expected a name, got '{}' (it lacks the key `name`) at line 3"
