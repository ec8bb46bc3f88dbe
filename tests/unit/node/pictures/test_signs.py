"""Holders are told apart: by letters, and by patterns that differ in more than colour."""

from __future__ import annotations

from itertools import pairwise
from xml.etree.ElementTree import tostring

from alignup.node.pictures.signs import RESERVED, patterns, signs_of


def test_letters_go_on_and_are_all_different() -> None:
    signs = signs_of(str(number) for number in range(1000))
    texts = [sign.text for sign in signs.values()]

    assert texts[:2] == ["A", "B"]
    assert texts[22:24] == ["Z", "AA"]
    assert len(set(texts)) == 1000
    assert not set("IOR") & set("".join(texts))


def test_a_holder_that_comes_twice_has_one_sign() -> None:
    assert [sign.text for sign in signs_of(["x", "y", "x"]).values()] == ["A", "B"]


def test_neighbours_differ_in_pattern_and_colour() -> None:
    drawn = [sign.pattern() for sign in signs_of(map(str, range(24))).values()]
    motifs = [[path.get("d") for path in one] for one in drawn]
    colours = [one[0].get("fill") for one in drawn]

    assert len({tostring(one) for one in drawn}) == 24
    assert all(one != other for one, other in pairwise(motifs))
    assert all(one != other for one, other in pairwise(colours))


def test_each_pattern_is_defined_once() -> None:
    signs = signs_of(map(str, range(100)))
    defined = {one.get("id") for one in patterns([RESERVED, *signs.values()])}

    assert len(patterns(signs.values())) == 24
    assert {f"url(#{name})" for name in defined} == {sign.fill for sign in [RESERVED, *signs.values()]}
