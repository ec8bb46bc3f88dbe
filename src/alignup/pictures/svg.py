"""Writes boxes as SVG: shapes, then what is held, then text, so that no pattern hides a number.

Elements are built with the standard library, which escapes what it is given; text is made drawable
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from alignup.pictures.boxes import CELL_FONT, HEADER, PADDING, Box, drawable, walk

_FRAMES: Final = frozenset({"socket", "node", "apart", "l3"})
# Kinds of headings, with the classes of their text.
_HEADINGS: Final = {
    "title": "au-title",
    "good": "au-title au-good",
    "bad": "au-title au-bad",
    "line": "au-line",
    "short": "au-label au-bad",
}
_UNSEEN: Final = frozenset({"group", "text", "told", "machine", *_HEADINGS})


@cache
def style(name: str) -> str:
    """Return the look of a thing.

    Classes of pictures begin with `au`, since a notebook's page has others.
    """
    return f"\n{Path(__file__).with_name(f'{name}.css').read_text('utf-8')}"


def add(parent: Element, tag: str, text: str = "", /, **attributes: object) -> Element:
    """Append an element to another and return it.

    Underscores in names of attributes stand for hyphens.
    """
    svg_attributes = {
        name.rstrip("_").replace("_", "-"): drawable(str(value))
        for name, value in attributes.items()
    }
    element = SubElement(parent, tag, svg_attributes)
    if text:
        element.text = drawable(text)

    return element


def svg_text(parent: Element, x: float, y: float, text: str, class_: str = "") -> None:
    """Append a line of text whose baseline begins, or ends, at a point."""
    if not text:
        return

    element = add(parent, "text", text, x=x, y=y)
    if class_:
        element.set("class", class_)


def box_layers(boxes: Box) -> tuple[Element, Element]:
    """Return the shapes of a box and all inside it, and the text that is to be above all shapes."""
    shapes = Element("g")
    texts = Element("g", {"class": "au-texts"})
    for box in walk(boxes):
        if box.kind not in _UNSEEN:
            shape = add(
                shapes,
                "rect",
                x=box.x,
                y=box.y,
                width=box.width,
                height=box.height,
                class_=f"au-{box.kind}",
            )
            if box.kind in _FRAMES:
                shape.set("rx", "3")
            if box.title:
                add(shape, "title", box.title)

        _write_label(texts, box)

    return shapes, texts


def _write_label(texts: Element, box: Box) -> None:
    """Append the label of a box where boxes of its kind have it."""
    if box.kind in _FRAMES:
        svg_text(texts, box.x + PADDING, box.y + HEADER - 6, box.label)
    elif box.kind == "cpu":
        svg_text(texts, box.x + 3, box.y + CELL_FONT + 1, box.label, "au-cell")
    elif box.kind in _HEADINGS:
        svg_text(texts, box.x, box.y + box.height - 4, box.label, _HEADINGS[box.kind])
    elif box.kind in _UNSEEN:
        svg_text(texts, box.x, box.y + box.height - 3, box.label, "au-label")
    elif box.label:
        svg_text(texts, box.x + 4, box.y + box.height - 5, box.label, "au-cell")


def picture(
    width: int, height: int, title: str, layers: Iterable[Element], patterns: Sequence[Element] = ()
) -> Element:
    """Return an SVG element of layers, the lowest first, with its style and patterns."""
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    root = Element(
        "svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "au", "role": "img", **size}
    )

    add(root, "title", title)
    add(root, "style").text = style("picture")
    if patterns:
        add(root, "defs").extend(patterns)

    add(root, "rect", width=width, height=height, class_="au-machine")
    root.extend(layers)
    return root


def svg_document(root: Element) -> str:
    """Return an SVG element as the text of a file."""
    return tostring(root, encoding="unicode") + "\n"
