"""Text is measured generously, cut where it does not fit, and holds nothing that XML cannot."""

from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

from hypothesis import given
from hypothesis import strategies as st

from alignup.node.pictures.measure import drawable, fitted, text_width, wrapped
from pictures import parsed


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
    found = wrapped(text, 100, 10, lines)

    assert len(found) <= lines
    assert all(text_width(line, 10) <= 100 for line in found)
    if not any(line.endswith("…") for line in found):
        assert " ".join(found) == text


def test_wide_letters_count_as_wide() -> None:
    assert text_width("漢字", 10) > 2 * text_width("il", 10)
    assert text_width("", 10) == text_width("\u0301", 10) == 0
