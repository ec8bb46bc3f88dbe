"""Too deep values are cut out of JSON text, and nothing else is."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.text.json_text import without_depths

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\[]{}\n,é'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('a"\\[{', max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


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
