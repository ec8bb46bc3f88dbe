"""Errors: one line each, whatever names they have in them."""

from __future__ import annotations

import pickle

import pytest

from alignup import Node, read_machine
from alignup.errors import (
    AlignupWarning,
    AllocationError,
    ConfigError,
    InputError,
    PodExistsError,
    UnknownPodError,
    one_line,
    text_of,
    typed_text_of,
    warn,
)

HOSTILE = "a\nb\r\x1b[31m\u2028\udcff\0"
ESCAPED = r"a\nb\r\x1b[31m\u2028\udcff\x00"


KINDS = [AllocationError, ConfigError, InputError, PodExistsError, UnknownPodError]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_short_whatever_is_echoed_in_it(kind) -> None:
    """What is expected stands before, and the place behind."""
    error = kind(f"expected a name, got {'x' * 65536!r} at the place")
    assert len(str(error)) < 2100
    assert str(error).startswith("expected a name, got 'xxx")
    assert str(error).endswith("xxx' at the place")
    assert getattr(error, "detail", str(error)) == str(error)


class Long:
    """A value of as many letters."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __repr__(self) -> str:
        return "x" * self.length


@pytest.mark.parametrize(
    ("fits", "is_cut"),
    [("x" * 78, "x" * 79), (Long(80), Long(81)), ([[0]], [[[0]]])],  # a text with its quotes
)
def test_a_value_is_echoed_up_to_80_letters_and_two_levels(fits, is_cut) -> None:
    assert f"got {fits!r} at x" in str(InputError.at("x", "y", fits))
    assert "..." in str(InputError.at("x", "y", is_cut))


def test_a_place_is_told_up_to_250_letters() -> None:
    for length in (250, 251):
        assert str(InputError.at("p" * length, "y", 3)).endswith(" at " + "p" * 250)


def test_a_number_that_python_does_not_write_is_echoed_in_words() -> None:
    error = InputError.at("a place", "a number", 10**5_000)
    assert str(error) == "expected a number, got a number of thousands of digits at a place"
    error = InputError.at("a place", "a number", [1, -(10**5_000)])
    assert str(error) == "expected a number, got [1, a number of thousands of digits] at a place"


def test_a_message_of_2000_letters_is_whole_and_a_longer_one_lacks_its_middle() -> None:
    assert str(InputError("x" * 2000)) == "x" * 2000
    longer = str(InputError("x" * 1000 + "!" + "y" * 1000))
    assert longer == "x" * 1000 + "..." + "y" * 1000


def test_a_warning_is_short_too() -> None:
    with pytest.warns(AlignupWarning) as caught:
        warn("x" * 65536)
    assert len(str(caught[0].message)) < 2100


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_printed_is_escaped(kind) -> None:
    """What can is left as it is."""
    assert str(kind(HOSTILE)) == ESCAPED
    assert str(kind("ä plain 'sentence'")) == "ä plain 'sentence'"
    assert str(pickle.loads(pickle.dumps(kind(HOSTILE)))) == ESCAPED  # noqa: S301  # our own
    assert one_line(ESCAPED) == ESCAPED


def test_refusals_are_one_line_whatever_resources_are_called() -> None:
    """A device plugin chooses names and ids."""
    node = Node.from_dict(
        {
            "machine": read_machine("align-up-article").to_dict(),
            "kubelet": {"topologyManagerPolicy": "single-numa-node"},
            "devices": {"x/y\nz": [{"id": "a\nb", "numa": [0]}, {"id": "c\nd", "numa": [1]}]},
        }
    )
    pod = {
        "metadata": {"name": "p\nq"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"x/y\nz": "2"}}}]},
    }

    message = node.admit(pod).message
    assert message.isprintable()
    assert r"x/y\nz does not fit into one NUMA node" in message


@pytest.mark.parametrize(
    ("error", "text", "typed"),
    [
        (ValueError("no pod"), "no pod", "ValueError: no pod"),
        (TimeoutError(), "TimeoutError", "TimeoutError"),
        (OSError("closed"), "closed", "OSError: closed"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_an_error_without_a_text_has_its_name(error, text, typed) -> None:
    assert text_of(error) == text
    assert typed_text_of(error) == typed
