"""JSON lines, numbered."""

from __future__ import annotations

import pytest

from alignup.errors import ConfigError, InputError, errors_at
from alignup.text.json_text import numbered_lines


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
