"""Keys that nobody reads are found, with what was probably meant."""

from __future__ import annotations

import pytest

from alignup.text.known_keys import misspelt_keys, unknown_keys

KNOWN = ("kubelet", "machine", "preferredSets")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("kublet", "kubelet"),
        ("Machine", "machine"),
        ("preferred_sets", "preferredSets"),
        ("preferred-sets", "preferredSets"),
        ("kubeletConfiguration", "kubelet"),
    ],
)
def test_a_key_that_resembles_a_known_one_is_misspelt(key: str, meant: str) -> None:
    assert list(misspelt_keys(["machine", key], KNOWN)) == [(key, meant)]


def test_notes_of_the_writer_are_unknown_but_not_misspelt() -> None:
    assert not list(misspelt_keys(["cause", "seed", 3], KNOWN))
    assert list(unknown_keys(["cause", 3], KNOWN)) == [("cause", ""), ("3", "")]


def test_known_keys_are_passed_over() -> None:
    assert not list(unknown_keys(KNOWN, KNOWN))


def test_of_many_keys_the_first_thousand_are_compared() -> None:
    """To compare each of 600,000 keys of one pod took ten seconds."""
    keys = [*(f"k{number}" for number in range(999)), "kublet", "Kubelet"]
    *_, last_compared, other = unknown_keys(keys, KNOWN)
    assert (last_compared, other) == (("kublet", "kubelet"), ("Kubelet", ""))
