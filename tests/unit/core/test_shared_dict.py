"""Mappings whose copies share their entries until one of them is written to, beside plain dicts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.shared_dict import SharedDict
from inputs.strategies import examples


def change(random: Random, mapping: SharedDict, plain: dict) -> None:
    """Change a mapping and a plain dict alike."""
    key, value = random.randrange(4), random.randrange(100)
    kind = random.choice(["set", "pop", "delete", "update"])
    if kind == "set":
        mapping[key] = plain[key] = value
    elif kind == "pop":
        assert mapping.pop(key, value) == plain.pop(key, value)
    elif kind == "delete" and key in plain:
        del mapping[key]
        del plain[key]
    elif kind == "update":
        mapping.update({key: value, key + 1: value})
        plain.update({key: value, key + 1: value})


@examples(150)
@given(st.integers(0, 2**32))
def test_copies_are_as_independent_as_plain_dicts(seed: int) -> None:
    """Whichever of them is copied or written to, and in which order."""
    random = Random(seed)
    pairs = [(SharedDict({0: 0}), {0: 0})]
    for _ in range(30):
        mapping, plain = random.choice(pairs)
        if random.random() < 0.3:
            pairs.append((mapping.copy(), dict(plain)))
        else:
            change(random, mapping, plain)

        for shared, expected in pairs:
            assert dict(shared.items()) == expected


def test_it_is_read_like_a_dict() -> None:
    mapping = SharedDict({"a": 1, "b": 2})

    assert (len(mapping), list(mapping), "a" in mapping, "c" in mapping) == (
        2,
        ["a", "b"],
        True,
        False,
    )
    assert (mapping["a"], mapping.get("c"), mapping.get("c", 3)) == (1, None, 3)
    assert (list(mapping.keys()), list(mapping.values())) == (["a", "b"], [1, 2])
    assert repr(mapping) == "SharedDict({'a': 1, 'b': 2})"
    assert (SharedDict().pop("a"), len(SharedDict())) == (None, 0)


@pytest.mark.parametrize("view", [iter, SharedDict.keys, SharedDict.values, SharedDict.items])
def test_who_iterates_sees_the_entries_as_they_were(view) -> None:
    """A write meanwhile is no error, as it would be with a dict."""
    mapping = SharedDict({"a": 1, "b": 2})
    before = list(view(mapping))

    visited = []
    for entry in view(mapping):
        visited.append(entry)
        mapping["c"] = 3
        mapping.pop("b")

    assert visited == before
    assert dict(mapping.items()) == {"a": 1, "c": 3}


def test_what_it_was_made_of_stays_as_it_was() -> None:
    entries = {"a": 1}
    mapping = SharedDict(entries)
    mapping["b"] = 2
    entries["c"] = 3

    assert (dict(mapping.items()), entries) == ({"a": 1, "b": 2}, {"a": 1, "c": 3})


def test_a_key_that_is_not_there_is_an_error() -> None:
    """Neither the mapping nor a copy is changed by it."""
    mapping = SharedDict({"a": 1})
    copy = mapping.copy()
    with pytest.raises(KeyError):
        mapping["b"]
    with pytest.raises(KeyError):
        del mapping["b"]

    assert dict(mapping.items()) == dict(copy.items()) == {"a": 1}
