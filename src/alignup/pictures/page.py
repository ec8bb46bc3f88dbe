"""Writes HTML: self-contained pages of headings, tables and pictures, without scripts.

Elements are built with the standard library, which escapes its input; text is made drawable before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, tostring

from alignup.node.holdings import Holdings, allocation_cells
from alignup.pictures.boxes import drawable
from alignup.pictures.svg import add, style

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from alignup.pictures.overlay import Sign


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[str] = frozenset()) -> Element:
    """Return a table of texts; `numbers` are columns that are right-aligned."""
    made = Element("table")
    for part, tag, lines in (("thead", "th", [columns]), ("tbody", "td", rows)):
        parent = add(made, part)
        for cells in lines:
            line = add(parent, "tr")
            for column, text in zip(columns, cells, strict=True):
                cell = add(line, tag, text.replace("\n", "; "))
                if column in numbers:
                    cell.set("class", "number")
    return made


def heading(text: str, level: int = 2) -> Element:
    """Return a heading."""
    return paragraph(text, f"h{level}")


def paragraph(text: str, tag: str = "p") -> Element:
    """Return a paragraph, or another element with a text."""
    made = Element(tag)
    made.text = drawable(text)
    return made


def listed(texts: Iterable[str]) -> Element:
    """Return a list of texts."""
    made = Element("ul")
    for text in texts:
        add(made, "li", text)
    return made


def scrolling(element: Element) -> Element:
    """Return an element in a box of its own that scrolls when it is wider than the page."""
    made = Element("div", {"class": "scrolling"})
    made.append(element)
    return made


def page(title: str, parts: Iterable[Element], rules: str = "") -> str:
    """Return a whole page.

    Args:
        title: in the browser's tab, and above all else.
        parts: the elements of the body, in order.
        rules: further rules of CSS.
    """
    root = Element("html", {"lang": "en"})
    head = add(root, "head")
    add(head, "meta", charset="utf-8")
    add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add(head, "title", title)
    add(head, "style").text = style("page") + rules
    body = add(root, "body")
    body.append(heading(title, 1))
    body.extend(parts)
    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def fragment(parts: Iterable[Element]) -> str:
    """Return elements as HTML to be shown within another page, such as a notebook."""
    root = Element("div")
    root.extend(parts)
    return tostring(root, encoding="unicode", method="html")


def containers_table(containers: Mapping[str, Mapping[str, Any]]) -> Element:
    """Return what each container got.

    Args:
        containers: by name, as `Admission.to_dict` has them.
    """
    told = {name: allocation_cells(got, "; ") for name, got in containers.items()}
    rows = [(name, *(cell.replace(",", ", ") for cell in cells)) for name, cells in told.items()]
    return table(("container", "NUMA nodes", "preferred", "CPUs", "memory", "devices"), rows)


def holders_table(holdings: Holdings, signs: Mapping[str, Sign]) -> Element:
    """Return what each container on a node holds, with the sign of its pod in the picture, by uid."""
    texts = {uid: sign.text for uid, sign in signs.items()}
    rows = [(texts.get(one.pod_uid, "-"), one.pod, one.container, *one.cells("; ")) for one in holdings.containers]
    return table(("sign", "pod", "container", "CPUs", "memory", "devices"), rows)
