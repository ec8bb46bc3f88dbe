"""Errors of decoded documents, in our words."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from alignup.errors import InputError
from alignup.text.typed_json import convert


class Inner(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=0)]
    name: str | None = None


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: list[Inner]
    by_name: dict[str, int] = {}
    nested: dict[str, Inner] = {}


def test_what_fits_is_converted():
    assert convert({"inner": [{"size": 1}]}, Outer, "doc").inner[0].size == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "expected a mapping, got 7 at doc"),
        ({}, "expected the field 'inner', which is missing at doc"),
        ({"inner": [{"size": "x"}]}, "expected a whole number, got 'x' at doc.inner[0].size"),
        ({"inner": [{"size": -1}]}, "expected a whole number >= 0, got -1 at doc.inner[0].size"),
        ({"inner": [{"size": 1, "name": 3}]}, "expected text or null, got 3 at doc.inner[0].name"),
        ({"inner": [], "by_name": {"a": "b"}}, "expected a whole number, got {'a': 'b'} at doc.by_name[...]"),
        (
            {"inner": [], "nested": {"a": {"size": -2}}},
            "expected a whole number >= 0, got {'a': {'size': -2}} at doc.nested[...].size",
        ),
        ({"inner": "y" * 200}, f"expected a list, got '{'y' * 59}... at doc.inner"),
        ({"inner": [], "other": 1}, "object contains unknown field `other` at doc"),
    ],
)
def test_errors_say_what_was_expected_what_came_and_where(data, message):
    """In one line, with long values cut."""
    with pytest.raises(InputError) as caught:
        convert(data, Outer, "doc")

    assert str(caught.value) == message
