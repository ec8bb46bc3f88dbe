"""Plain objects as Structs, and what is said of fields that do not fit.

Every form of message of msgspec's that is read has a case here.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import msgspec
import pytest

from alignup.errors import InputError
from alignup.text.typed import decode

CASES = [
    (7, "a mapping, got 7", ""),
    ([1], "a mapping, got [1]", ""),
    ({"inner": {"a": 1}}, "a list, got {'a': 1}", ".inner"),
    ({"inner": [None]}, "a mapping, got None", ".inner[0]"),
    ({"inner": [{"size": "x"}]}, "a whole number, got 'x'", ".inner[0].size"),
    ({"inner": [{"size": -1}]}, "a whole number >= 0, got -1", ".inner[0].size"),
    ({"inner": [{"size": 1}, {"size": 1, "name": 3}]}, "a string, got 3", ".inner[1].name"),
    (
        {"inner": [{"size": 1, "words": {"a": "b", "c": 3}}]},
        "a string, got 3",
        '.inner[0].words["c"]',
    ),
    (
        {"inner": [{"size": 1, "words": {"a": "b", 7: "c"}}]},
        "a string as key, got 7",
        ".inner[0].words",
    ),
    ({"pair": [1, 2, 3]}, "a list of length <= 2, got [1, 2, 3]", ".pair"),
    ({"share": "x"}, "a number, got 'x'", ".share"),
    ({"flag": 1}, "true or false, got 1", ".flag"),
    ({"by_name": {"b": 1, "a": "b"}}, "a whole number, got 'b'", '.by_name["a"]'),
    (
        {"nested": {"a": {"size": -2}}},
        "a whole number >= 0, got {'a': {'size': -2}}",
        ".nested[...].size",
    ),
]

TWO_AT_ONCE = """
from __future__ import annotations
from threading import Event, Thread
import msgspec
from alignup.text.typed import decode

looking, asked = Event(), Event()

def slow():
    looking.set()
    asked.wait(0.5)
    return int

class Inner(msgspec.Struct):
    number: slow()

class Kind(msgspec.Struct):
    first: Inner

def use():
    assert decode({"first": {"number": 1}}, Kind).first.number == 1

threads = [Thread(target=use), Thread(target=use)]
threads[0].start()
looking.wait()
threads[1].start()
for thread in threads:
    thread.join()
"""


class Inner(msgspec.Struct):
    """A field of the type under test."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    name: str | None = None
    words: dict[str, str] | None = None


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """A type that names some of a document's fields."""

    inner: list[Inner] = []
    pair: Annotated[list[int], msgspec.Meta(max_length=2)] = []
    share: float = 0
    flag: bool = False
    by_name: dict[str, int] = {}
    nested: dict[str, Inner] = {}


def test_what_fits_is_decoded():
    """Defaults stand in for what is missing."""
    assert decode({"inner": [{"size": 1}]}, Outer).inner == [Inner(1)]


@pytest.mark.parametrize(("value", "message", "path"), CASES)
def test_errors_say_what_was_expected_what_came_and_where(value, message, path):
    """At the top, and beneath a place of the caller's."""
    with pytest.raises(InputError) as caught:
        decode(value, Outer)
    assert str(caught.value) == f"expected {message} at {path.removeprefix('.') or 'the top'}"
    with pytest.raises(InputError) as caught:
        decode(value, Outer, "items[2]")
    assert str(caught.value) == f"expected {message} at items[2]{path}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"inner": [{}]}, "expected the field 'size', which is missing at doc.inner[0]"),
        ({"other": 1}, "object contains unknown field `other` at doc"),
    ],
)
def test_what_is_missing_or_unknown(value, message):
    """There is no value to show."""
    with pytest.raises(InputError) as caught:
        decode(value, Outer, "doc")
    assert str(caught.value) == message


def test_long_values_are_cut():
    """The message is one line."""
    with pytest.raises(InputError) as caught:
        decode({"inner": "y" * 2000}, Outer, "doc")
    assert len(str(caught.value)) < 150


def test_two_threads_may_be_the_first_to_decode_a_kind() -> None:
    """It crashed the interpreter."""
    command = [sys.executable, "-c", TWO_AT_ONCE]
    done = subprocess.run(command, check=False, timeout=60)  # noqa: S603  # ours
    assert done.returncode == 0
