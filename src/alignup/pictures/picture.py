"""Makes whole pictures and pages of a machine, alone or with what the containers of a node hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, tostring

from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Machine, summary
from alignup.node.holdings import Holdings, allocation_cells
from alignup.pictures import overlay
from alignup.pictures.boxes import FONT, Box, drawable, fitted, framed, group, stacked, wrapped
from alignup.pictures.layout import lay_out
from alignup.pictures.svg import add, box_layers, picture, style, svg_document
from alignup.records import Record, field, replace
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from alignup.machine.device_inventory import Inventory
    from alignup.node.holdings import ContainerHolding, Holdings
    from alignup.pictures.overlay import Sign

_TITLE_FONT: Final = 16
_MOST_LINES: Final = 5
_LEAST_WIDTH: Final = 720
_MARGIN: Final = 10
# By the verdict that a title tells.
_TITLES: Final = {None: "title", True: "good", False: "bad"}


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[str] = frozenset()
) -> Element:
    """Return a table of texts; `numbers` are columns that are right-aligned."""
    element = Element("table")
    for part, tag, lines in (("thead", "th", [columns]), ("tbody", "td", rows)):
        parent = add(element, part)
        for cells in lines:
            line = add(parent, "tr")
            for column, text in zip(columns, cells, strict=True):
                cell = add(line, tag, text.replace("\n", "; "))
                if column in numbers:
                    cell.set("class", "number")

    return element


def heading(text: str, level: int = 2, *, verdict: bool | None = None) -> Element:
    """Return a heading; one that tells whether a pod is admitted has a colour."""
    return _coloured(paragraph(text, f"h{level}"), verdict)


def verdict_paragraph(text: str, *, verdict: bool) -> Element:
    """Return a paragraph that tells whether a pod is admitted."""
    return _coloured(paragraph(text), verdict)


def _coloured(element: Element, verdict: bool | None) -> Element:
    if verdict is not None:
        element.set("class", "admitted" if verdict else "refused")

    return element


def paragraph(text: str, tag: str = "p") -> Element:
    """Return a paragraph, or another element with a text."""
    element = Element(tag)
    element.text = drawable(text)
    return element


def listed(texts: Iterable[str]) -> Element:
    """Return a list of texts."""
    element = Element("ul")
    for text in texts:
        add(element, "li", text)

    return element


def numbered(texts: Iterable[tuple[str, Sequence[str]]]) -> Element:
    """Return a numbered list of texts, each with parts that are listed below it."""
    element = Element("ol")
    for text, parts in texts:
        item = add(element, "li", text)
        if parts:
            item.append(listed(parts))

    return element


def scrolling(element: Element) -> Element:
    """Return an element in a box of its own that scrolls when it is wider than the page."""
    box = Element("div", {"class": "scrolling"})
    box.append(element)
    return box


def page(title: str, parts: Iterable[Element]) -> str:
    """Return a whole page.

    Args:
        title: in the browser's tab, and above all else.
        parts: the elements of the body, in order.
    """
    root = Element("html", {"lang": "en"})
    head = add(root, "head")
    add(head, "meta", charset="utf-8")
    add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add(head, "title", title)
    add(head, "style").text = style("page")

    body = add(root, "body")
    body.append(heading(title, 1))
    body.extend(parts)

    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def fragment(parts: Iterable[Element]) -> str:
    """Return elements as HTML to be shown within another page, such as a notebook.

    Its colours are for light and dark: what JupyterLab and VS Code say of their own theme counts
    before what the system prefers.
    """
    root = Element("div", {"class": "alignup"})
    add(root, "style").text = style("fragment")
    root.extend(parts)
    return tostring(root, encoding="unicode", method="html")


def containers_table(containers: Mapping[str, Mapping[str, Any]]) -> Element:
    """Return what each container got.

    Args:
        containers: by name, as `Admission.to_dict` has them.
    """
    rows = []
    for name, allocation in containers.items():
        cells = allocation_cells(allocation, "; ")
        rows.append((name, *(cell.replace(",", ", ") for cell in cells)))

    return table(("container", "NUMA nodes", "preferred", "CPUs", "memory", "devices"), rows)


def holders_table(holdings: Holdings, signs: Mapping[str, Sign]) -> Element:
    """Return what each container on a node holds, with the sign of its pod in the picture.

    Args:
        holdings: of the node.
        signs: by uid of the pod.
    """
    rows = []
    for holding in holdings.containers:
        sign = signs.get(holding.pod_uid)
        text = "-" if sign is None else sign.text
        rows.append((text, holding.pod, holding.container, *holding.cells("; ")))

    return table(("sign", "pod", "container", "CPUs", "memory", "devices"), rows)


class Scene(Record):
    """What a picture shows.

    Attributes:
        holdings: None: the machine alone.
        subject: the uid of a pod to be drawn with heavy lines.
        remarks: lines to write into NUMA nodes, by kernel id.
        units: by resource, how its amounts are written where the page has a unit for them.
        subtitle: empty: the machine in one line.
        is_headed: False: title and subtitle stand elsewhere on the page.
        verdict: whether the title tells of an admission, or of a refusal; None: of neither.
        short: resources of which there is too little.
    """

    title: str
    machine: Machine
    devices: Inventory = field(default_factory=dict)
    holdings: Holdings | None = None
    subject: str = ""
    remarks: Mapping[int, Sequence[str]] = field(default_factory=dict)
    units: Mapping[str, Callable[[int], str]] = field(default_factory=dict)
    subtitle: str = ""
    is_headed: bool = True
    verdict: bool | None = None
    short: Collection[str] = ()

    @property
    def signs(self) -> dict[str, overlay.Sign]:
        """The sign of each pod that holds something, by uid."""
        return overlay.signs_of(holding.pod_uid for holding in self.holders)

    @property
    def holders(self) -> list[ContainerHolding]:
        """The containers that hold something."""
        if not self.holdings:
            return []
        return [holding for holding in self.holdings.containers if holding]


def drawing_of(scene: Scene) -> str:
    """Return a picture as the text of an SVG file."""
    return svg_document(scene_element(scene))


def scene_element(scene: Scene) -> Element:
    """Return a picture as an SVG element."""
    boxes = lay_out(scene.machine, scene.devices, scene.remarks, scene.short)
    if scene.is_headed:
        boxes = group(stacked([_heading(scene, max(boxes.width, _LEAST_WIDTH)), boxes]))

    width = max(boxes.width, _LEAST_WIDTH)
    height = boxes.height
    layers = [overlay.Layer(*box_layers(boxes))]
    legend_signs: list[overlay.Sign] = []
    if scene.holdings is not None:
        places = overlay.places_of(boxes)
        signs = scene.signs
        layers.append(overlay.reserved_layer(places, scene.holdings.reserved_cpus))
        layers.append(
            overlay.amounts_layer(places, scene.holdings, signs, scene.subject, units=scene.units)
        )

        # the subject comes last, so that no neighbour hides its lines
        for holding in sorted(scene.holders, key=lambda holder: holder.pod_uid == scene.subject):
            is_subject = holding.pod_uid == scene.subject
            sign = signs[holding.pod_uid]
            layers.append(overlay.holding_layer(places, holding, sign, is_subject=is_subject))

        names = {signs[holding.pod_uid]: holding.pod for holding in scene.holders}
        legend_signs = [overlay.RESERVED, *names]
        box, layer = overlay.legend(names, signs.get(scene.subject), width)
        for element in (layer.shapes, layer.texts):
            element.set("transform", f"translate(0 {height})")

        layers.append(layer)
        height += box.height

    elements = [*(layer.shapes for layer in layers), *(layer.texts for layer in layers)]
    return picture(width, height, scene.title, elements, overlay.patterns(legend_signs))


def _heading(scene: Scene, width: int) -> Box:
    """Return the title, and the lines below it."""
    room = width - 2 * _MARGIN
    title = Box(_TITLES[scene.verdict], room, 23, fitted(scene.title, room, _TITLE_FONT + 1))
    lines = wrapped(scene.subtitle or summary(scene.machine), room, FONT, _MOST_LINES)
    boxes = [title, *(Box("line", room, 18, line) for line in lines)]
    return framed("group", stacked(boxes, 0), padding=_MARGIN)


def machine_page(scene: Scene) -> str:
    """Return the page of a scene's machine as the text of an HTML file."""
    picture = scrolling(scene_element(replace(scene, is_headed=False)))
    tables = machine_tables(scene.machine, scene.devices)
    return page(scene.title, [paragraph(summary(scene.machine)), picture, *tables])


def machine_tables(machine: Machine, devices: Inventory) -> Iterator[Element]:
    """Yield the tables of a machine, with their headings."""
    yield heading("NUMA nodes")
    columns = ("NUMA node", "socket", "cores", "CPUs", "CPU numbers", "memory", "hugepages")
    rows: list[tuple[str, ...]] = []
    for node in machine.numa_nodes:
        cpus = CPUSet(cpu for core in node.cores for cpu in core.cpus)
        sockets = CPUSet({core.socket for core in node.cores})
        cells = (
            str(sockets),
            str(len(node.cores)),
            str(len(cpus)),
            str(cpus).replace(",", ", "),
            short_bytes(node.memory),
            ", ".join(f"{pages.count} x {pages.size}" for pages in node.hugepages if pages.count),
        )
        rows.append((str(node.id), *(cell or "-" for cell in cells)))

    yield table(columns, rows, frozenset({"NUMA node", "cores", "CPUs", "memory"}))
    if devices:
        yield heading("Devices")
        rows = []
        for resource, resource_devices in sorted(devices.items()):
            for device in resource_devices:
                numa_nodes = ", ".join(map(str, device.numa_nodes or ()))
                health = "yes" if device.healthy else "no"
                rows.append((resource, device.id, numa_nodes or "any", health))

        yield table(("resource", "device", "NUMA nodes", "healthy"), rows)

    if machine.distance_matrix and len(machine.numa_nodes) > 1:
        yield heading("Distances")
        ids = [str(numa_id) for numa_id in machine.numa_node_ids]
        rows = [(str(node.id), *map(str, node.distances)) for node in machine.numa_nodes]
        yield scrolling(table(("from \\ to", *ids), rows, frozenset(ids)))
