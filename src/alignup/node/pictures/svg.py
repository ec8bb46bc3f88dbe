"""Writes boxes as SVG: shapes, then what is held, then text, so that no pattern hides a number.

Elements are built with the standard library, which escapes what it is given; text is made drawable before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from alignup.node.pictures.boxes import CELL_FONT, FONT, HEADER, PADDING, Box, drawable, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_STYLE: Final = f"""
.au text{{font:{FONT}px "Liberation Sans",Arial,Helvetica,sans-serif;fill:#111}}
.au .au-label{{font-size:{CELL_FONT}px}}
.au .au-cell{{font-size:{CELL_FONT}px;paint-order:stroke;stroke:#fff;stroke-width:2px}}
.au .au-sign{{font-size:{CELL_FONT + 1}px;font-weight:bold;text-anchor:end;paint-order:stroke;stroke:#fff;
stroke-width:2.5px}}
.au .au-told{{font-size:{CELL_FONT}px;text-anchor:end}}
.au .au-title{{font-size:14px;font-weight:bold}}
.au .au-texts{{pointer-events:none}}
.au rect{{stroke:#555;stroke-width:1;fill:#fff}}
.au .au-machine{{stroke:none}}
.au .au-socket{{fill:#eceff4;stroke:#444}}
.au .au-node{{fill:#dfe8d8;stroke:#444}}
.au .au-apart{{fill:#f4f1e8;stroke:#888;stroke-dasharray:4 2}}
.au .au-l3{{fill:#f7f7f7;stroke:#888}}
.au .au-core{{fill:#dde1e7;stroke:#999}}
.au .au-cpu{{fill:#fff;stroke:#999}}
.au .au-pci{{fill:#e8e8ee;stroke:#999}}
.au .au-device{{fill:#fff;stroke:#555}}
.au .au-sick{{fill:#fff;stroke:#b00;stroke-dasharray:2 2}}
.au .au-held path{{stroke:#444;stroke-width:1}}
.au .au-subject path{{stroke:#000;stroke-width:2.5}}
"""
"""The look of every picture; its classes begin with `au`, since a notebook's page has others."""

_FRAMES: Final = frozenset({"socket", "node", "apart", "l3"})
_UNSEEN: Final = frozenset({"group", "text", "told", "title", "line", "machine"})


def add(parent: Element, tag: str, text: str = "", /, **attributes: object) -> Element:
    """Append an element to another and return it; underscores in names of attributes stand for hyphens."""
    names = {name.rstrip("_").replace("_", "-"): drawable(str(value)) for name, value in attributes.items()}
    made = SubElement(parent, tag, names)
    if text:
        made.text = drawable(text)
    return made


def svg_text(parent: Element, x: float, y: float, text: str, class_: str = "") -> None:
    """Append a line of text whose baseline begins, or ends, at a point."""
    if text:
        add(parent, "text", text, x=x, y=y, **({"class": class_} if class_ else {}))


def box_layers(boxes: Box) -> tuple[Element, Element]:
    """Return the shapes of a box and all inside it, and apart from them the text that is to be above all shapes."""
    shapes, texts = Element("g"), Element("g", {"class": "au-texts"})
    for box in walk(boxes):
        if box.kind not in _UNSEEN:
            shape = add(shapes, "rect", x=box.x, y=box.y, width=box.width, height=box.height, class_=f"au-{box.kind}")
            if box.kind in _FRAMES:
                shape.set("rx", "3")
            if box.title:
                add(shape, "title", box.title)
        _write_label(texts, box)
    return shapes, texts


def _write_label(texts: Element, box: Box) -> None:
    """Append the label of a box where boxes of its kind have it."""
    if box.kind in _FRAMES:
        svg_text(texts, box.x + PADDING, box.y + HEADER - 5, box.label)
    elif box.kind == "cpu":
        svg_text(texts, box.x + 3, box.y + CELL_FONT + 1, box.label, "au-cell")
    elif box.kind in {"title", "line"}:
        svg_text(texts, box.x, box.y + box.height - 4, box.label, f"au-{box.kind}")
    elif box.kind in _UNSEEN:
        svg_text(texts, box.x, box.y + box.height - 3, box.label, "au-label")
    elif box.label:
        svg_text(texts, box.x + 4, box.y + box.height - 5, box.label, "au-cell")


def picture(
    width: int, height: int, title: str, layers: Iterable[Element], patterns: Sequence[Element] = ()
) -> Element:
    """Return an SVG element of layers, the lowest first, with its style and the patterns that it uses."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "au", "role": "img"})
    root.set("width", str(width))
    root.set("height", str(height))
    root.set("viewBox", f"0 0 {width} {height}")
    add(root, "title", title)
    add(root, "style").text = _STYLE
    if patterns:
        add(root, "defs").extend(patterns)
    add(root, "rect", width=width, height=height, class_="au-machine")
    root.extend(layers)
    return root


def svg_document(root: Element) -> str:
    """Return an SVG element as the text of a file."""
    return tostring(root, encoding="unicode") + "\n"
