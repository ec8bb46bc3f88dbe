"""Boxes are arranged without overlapping, and a frame goes round all that is in it."""

from __future__ import annotations

from itertools import combinations
from xml.etree.ElementTree import Element, tostring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.pictures.boxes import (
    Box,
    drawable,
    fitted,
    framed,
    in_rows,
    stacked,
    text_width,
    walk,
    wrapped,
)
from inputs.pictures import overlap, parsed

SIZES = st.lists(st.tuples(st.integers(1, 80), st.integers(1, 80)), min_size=1, max_size=12)
ARRANGED = {"stacked": stacked, "rows": lambda boxes: in_rows(boxes, 100)}


@pytest.mark.parametrize("arrange", ARRANGED.values(), ids=ARRANGED.keys())
@given(sizes=SIZES)
def test_no_two_boxes_overlap(arrange, sizes) -> None:
    placed = arrange([Box("core", *size) for size in sizes])

    assert len(placed) == len(sizes)
    assert not any(overlap(*pair) for pair in combinations(placed, 2))


@given(sizes=SIZES)
def test_rows_keep_to_their_width(sizes) -> None:
    placed = in_rows([Box("core", *size) for size in sizes], 100)
    assert all(not box.x or box.x + box.width <= 100 for box in placed)


@given(sizes=SIZES)
def test_a_frame_holds_its_contents(sizes) -> None:
    frame = framed("node", stacked([Box("core", *size) for size in sizes]), "NUMA node 0").at(7, 9)

    for box in walk(frame):
        assert frame.x <= box.x <= box.x + box.width <= frame.x + frame.width
        assert frame.y <= box.y <= box.y + box.height <= frame.y + frame.height


@given(st.text(), st.integers(20, 300))
def test_what_is_fitted_fits(text: str, width: int) -> None:
    shown = fitted(text, width, 10)

    assert text_width(shown, 10) <= width
    assert shown == drawable(text) or shown.endswith("…")


@given(st.text())
def test_what_is_drawable_survives_xml(text: str) -> None:
    element = Element("text")
    element.text = drawable(text)

    assert (parsed(tostring(element)).text or "") == drawable(text)


@given(st.text(st.sampled_from("ab m\u6f22"), max_size=200), st.integers(1, 6))
def test_wrapped_lines_fit_and_say_all_that_has_room(text: str, lines: int) -> None:
    wrapped_lines = wrapped(text, 100, 10, lines)

    assert len(wrapped_lines) <= lines
    assert all(text_width(line, 10) <= 100 for line in wrapped_lines)
    if not any(line.endswith("…") for line in wrapped_lines):
        assert " ".join(wrapped_lines) == text


def test_wide_letters_count_as_wide() -> None:
    assert text_width("漢字", 10) > 2 * text_width("il", 10)
    assert text_width("", 10) == text_width("\u0301", 10) == 0
