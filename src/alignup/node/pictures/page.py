"""Writes HTML: self-contained pages of headings, tables and pictures, without scripts.

Elements are built with the standard library, which escapes its input; text is made drawable before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, tostring

from alignup.node.pictures.boxes import drawable
from alignup.node.pictures.svg import add
from alignup.records import Record
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.node.holdings import Holdings
    from alignup.node.pictures.overlay import Sign
    from alignup.topology_manager.admission import Admission

_STYLE: Final = """
body{font:14px/1.45 "Liberation Sans",Arial,Helvetica,sans-serif;color:#111;background:#fff;margin:1.5em}
h1{font-size:1.4em}h2{font-size:1.15em;margin-top:1.6em}
table{border-collapse:collapse;margin:.6em 0}
th,td{text-align:left;padding:.2em .9em .2em 0;vertical-align:top;border-bottom:1px solid #ddd;overflow-wrap:anywhere;
white-space:pre-line}
th{border-bottom:1px solid #555}
.number{text-align:right}
.scrolling{overflow-x:auto}
.scrolling>svg{max-width:none}
"""


class Table(Record):
    """A table of texts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[str] = frozenset()
    """The columns that hold numbers, which are aligned at the right."""

    def element(self) -> Element:
        """Return the table as an HTML element."""
        made = Element("table")
        head = add(add(made, "thead"), "tr")
        for column in self.columns:
            self._cell(head, "th", column, column)
        body = add(made, "tbody")
        for row in self.rows:
            line = add(body, "tr")
            for column, text in zip(self.columns, row, strict=True):
                self._cell(line, "td", column, text)
        return made

    def _cell(self, line: Element, tag: str, column: str, text: str) -> None:
        cell = add(line, tag, text)
        if column in self.numbers:
            cell.set("class", "number")


def heading(text: str, level: int = 2) -> Element:
    """Return a heading."""
    made = Element(f"h{level}")
    made.text = drawable(text)
    return made


def paragraph(text: str) -> Element:
    """Return a paragraph."""
    made = Element("p")
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


def page(title: str, parts: Iterable[Element], style: str = "") -> str:
    """Return a whole page.

    Args:
        title: in the browser's tab, and above all else.
        parts: the elements of the body, in order.
        style: further rules of CSS.
    """
    root = Element("html", {"lang": "en"})
    head = add(root, "head")
    add(head, "meta", charset="utf-8")
    add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add(head, "title", title)
    add(head, "style").text = _STYLE + style
    body = add(root, "body")
    body.append(heading(title, 1))
    body.extend(parts)
    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def fragment(parts: Iterable[Element]) -> str:
    """Return elements as HTML to be shown within another page, such as a notebook."""
    root = Element("div")
    root.extend(parts)
    return tostring(root, encoding="unicode", method="html")


def containers_table(containers: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return what each container got.

    Args:
        containers: by name, as `Admission.to_dict` has them.
    """
    rows = [_container_row(name, got) for name, got in containers.items()]
    return Table(("container", "NUMA nodes", "preferred", "CPUs", "memory", "devices"), rows)


def _container_row(name: str, got: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a container got, as cells."""
    affinity = got["affinity"]
    nodes = None if affinity is None else affinity["numaNodes"]
    blocks = [
        f"{one['type']} {short_bytes(one['size'])} @ {', '.join(map(str, one['numaNodes']))}"
        for one in got["memory"]
        if one["size"]
    ]
    devices = [f"{resource} {', '.join(ids)}" for resource, ids in got["devices"].items() if ids]
    return (
        name,
        "any" if nodes is None else ", ".join(map(str, nodes)),
        "-" if affinity is None else "yes" if affinity["preferred"] else "no",
        (got["cpus"] or "shared").replace(",", ", "),
        "; ".join(blocks) or "-",
        "; ".join(devices) or "-",
    )


def holders_table(holdings: Holdings, signs: Mapping[str, Sign]) -> Table:
    """Return what each container on a node holds, with the sign of its pod in the picture, by uid."""
    rows = [
        (signs[one.pod_uid].text if one.pod_uid in signs else "-", one.pod, one.container, *one.cells("; "))
        for one in holdings.containers
    ]
    return Table(("sign", "pod", "container", "CPUs", "memory", "devices"), rows)


def admission_html(admission: Admission) -> str:
    """Return the verdict, and what each container got or why the pod was refused."""
    if not admission.admitted:
        return fragment([paragraph(f"✗ refused: {admission.reason}"), paragraph(admission.message)])
    table = containers_table(admission.to_dict()["containers"])
    return fragment([paragraph("✓ admitted"), table.element()])
