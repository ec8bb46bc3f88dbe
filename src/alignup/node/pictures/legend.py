"""Draws the legend of a picture: what is free, what is reserved, and which sign belongs to which pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element

from alignup.node.pictures.boxes import Box, framed, in_columns, walk
from alignup.node.pictures.device_layout import CELL_FONT
from alignup.node.pictures.measure import drawable, fitted, text_width
from alignup.node.pictures.overlay import Layer
from alignup.node.pictures.signs import RESERVED, Sign
from alignup.node.pictures.svg import add, svg_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.node.pictures.boxes import Key

__all__ = ["legend"]

_WIDEST_NAME: Final = 200
_HEIGHT: Final = 18
_SWATCH_HEIGHT: Final = 15
_FREE: Final = Sign("", 0)


def legend(names: Mapping[Sign, str], subject: Sign | None, width: int) -> tuple[Box, Layer]:
    """Return the box of a legend and what is drawn in it, from its left upper corner.

    Args:
        names: of the holders.
        subject: the holder that is drawn with heavy lines.
        width: pixels that the legend may have.
    """
    listed = {_FREE: "free, or in the shared pool", RESERVED: "reserved", **names}
    boxes = []
    for sign, name in listed.items():
        swatch = _swatch_width(sign)
        room = min(text_width(drawable(name), CELL_FONT), _WIDEST_NAME)
        label = fitted(name, room, CELL_FONT)
        boxes.append(Box("entry", swatch + room + 18, _HEIGHT, label, drawable(name), ("entry", sign.text)))
    widest = max(box.width for box in boxes)
    columns = min(len(boxes), max(1, (width - 20) // widest))
    whole = framed("group", in_columns(boxes, columns, 2), padding=10)
    layer = Layer(Element("g"), Element("g", {"class": "au-texts"}))
    signs: dict[Key, Sign] = {("entry", sign.text): sign for sign in listed}
    for box in walk(whole):
        if box.key:
            _draw_entry(layer, box, signs[box.key], is_subject=signs[box.key] == subject)
    return whole, layer


def _swatch_width(sign: Sign) -> int:
    return max(20, text_width(sign.text, CELL_FONT + 1) + 8)


def _draw_entry(layer: Layer, box: Box, sign: Sign, *, is_subject: bool) -> None:
    """Append the swatch and the name of one entry."""
    width = _swatch_width(sign)
    classes = "au-held au-subject" if is_subject else "au-held"
    group = add(layer.shapes, "g", class_=classes, fill=sign.fill if sign.text else "#fff")
    add(group, "title", box.title)
    add(group, "path", d=f"M{box.x} {box.y}h{width}v{_SWATCH_HEIGHT}h-{width}z")
    svg_text(layer.texts, box.x + width - 3, box.y + _SWATCH_HEIGHT - 4, sign.text, "au-sign")
    svg_text(layer.texts, box.x + width + 5, box.y + _SWATCH_HEIGHT - 4, box.label, "au-label")
