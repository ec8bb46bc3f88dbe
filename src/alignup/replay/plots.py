"""Draws plots for reports: bars for a number of several things, and areas for parts over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element

from alignup.node.pictures.measure import fitted, text_width
from alignup.node.pictures.svg import add, picture, svg_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["areas", "bars"]

_ROW: Final = 22
_AREA_ROW: Final = 34
_WIDTH: Final = 360
_FONT: Final = 11
_WIDEST_LABEL: Final = 220
_TEXT_WIDTH: Final = 190
_FILL: Final = "#7f9fc4"
_LINE: Final = "#2f4f74"


def _label_width(labels: Sequence[str]) -> int:
    return min(max([60, *(text_width(label, _FONT) for label in labels)]), _WIDEST_LABEL)


def bars(title: str, rows: Sequence[tuple[str, float | None, str]], *, whole: float | None = None) -> Element:
    """Return horizontal bars below each other.

    Args:
        title: the tooltip of the whole.
        rows: label, value (not negative; None: there is none) and text of each.
        whole: the value whose bar is as wide as the plot; None: the largest.
    """
    left = _label_width([label for label, _, _ in rows]) + 10
    most = whole or max([0.0, *(value or 0.0 for _, value, _ in rows)]) or 1.0
    shapes, texts = Element("g"), Element("g")
    for index, (label, value, text) in enumerate(rows):
        y = index * _ROW
        width = round(_WIDTH * (value or 0.0) / most)
        add(shapes, "path", d=f"M{left} {y + 3}h{width}v{_ROW - 8}h-{width}z", fill=_FILL, stroke=_LINE)
        svg_text(texts, 0, y + 14, fitted(label, left - 10, _FONT))
        svg_text(texts, left + width + 6, y + 14, fitted(text, _TEXT_WIDTH, _FONT))
    return picture(left + _WIDTH + _TEXT_WIDTH, max(1, len(rows)) * _ROW, title, [shapes, texts])


def areas(title: str, rows: Sequence[tuple[str, Sequence[float], str]]) -> Element:
    """Return areas below each other, each of parts from 0 to 1 from left to right.

    Args:
        title: the tooltip of the whole.
        rows: label, curve and text of each.
    """
    left = _label_width([label for label, _, _ in rows]) + 10
    shapes, texts = Element("g"), Element("g")
    for index, (label, curve, text) in enumerate(rows):
        top, bottom = index * _AREA_ROW + 4, (index + 1) * _AREA_ROW - 4
        add(shapes, "path", d=f"M{left} {top}h{_WIDTH}M{left} {bottom}h{_WIDTH}", stroke="#bbb", fill="none")
        if curve:
            add(shapes, "path", d=_area(curve, left, top, bottom), fill=_FILL, stroke=_LINE)
        svg_text(texts, 0, bottom - 8, fitted(label, left - 10, _FONT))
        svg_text(texts, left + _WIDTH + 6, bottom - 8, fitted(text, _TEXT_WIDTH, _FONT))
    return picture(left + _WIDTH + _TEXT_WIDTH, max(1, len(rows)) * _AREA_ROW, title, [shapes, texts])


def _area(curve: Sequence[float], left: int, top: int, bottom: int) -> str:
    """Return the outline of an area of steps."""
    points = [f"M{left} {bottom}"]
    for index, part in enumerate(curve):
        y = bottom - (bottom - top) * min(1.0, max(0.0, part))
        points.append(f"V{y:.1f}H{left + _WIDTH * (index + 1) / len(curve):.1f}")
    return "".join([*points, f"V{bottom}z"])
