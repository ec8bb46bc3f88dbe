"""Draws upon a machine what is reserved and what each container holds, and the legend of it.

Each pod has a sign, a colour and a pattern, which tell it apart in black and white too. What a
container's CPUs and devices look like depends on the container alone, so that a picture of many
moments draws them once; bars of memory and of many devices depend on all containers, and are drawn
for each moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement

from alignup.pictures.boxes import (
    CELL_FONT,
    Box,
    Key,
    drawable,
    fitted,
    framed,
    in_rows,
    text_width,
    walk,
)
from alignup.pictures.svg import add, svg_text
from alignup.records import Record
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.node.holdings import ContainerHolding, Holdings, PlaceAmounts, ResourceAmounts


_SIGN_FONT: Final = 12
_NARROWEST_PART: Final = 3

# Without I and O, which resemble digits, and R, which stands for what is reserved.
_LETTERS: Final = "ABCDEFGHJKLMNPQSTUVWXYZ"

# Light tints, and the colours of the lines on them.
_TINTS: Final = (
    "#cfe2f7",
    "#fbd9b5",
    "#cdeacb",
    "#f6cfe2",
    "#f7eea6",
    "#c5ecee",
    "#dfd3f2",
    "#e6d5c3",
)

_LINES: Final = (
    "#3b78b8",
    "#c9741a",
    "#3f8f3a",
    "#b8407f",
    "#a08c00",
    "#218a8f",
    "#6f4fae",
    "#80592e",
)

# Lines of a tile of 6 by 6 pixels; none: the plain tint.
_MOTIFS: Final = (
    "",
    "M-1 1L1 -1M-1 7L7 -1M5 7L7 5",
    "M2 3h2",
    "M-1 5L1 7M-1 -1L7 7M5 -1L7 1",
    "M0 3h6",
    "M3 0v6",
)

_CROSSED: Final = "M-1 1L1 -1M-1 7L7 -1M5 7L7 5M-1 5L1 7M-1 -1L7 7M5 -1L7 1"
_WIDEST_NAME: Final = 270
_SWATCH: Final = (38, 18)


class Layer(Record):
    """Shapes, and the text that is to be above the shapes of all layers."""

    shapes: Element
    texts: Element


def places_of(boxes: Box) -> dict[Key, Box]:
    """Return the boxes that have a key, with their places in the picture as a whole."""
    return {box.key: box for box in walk(boxes) if box.key}


def reserved_layer(places: Mapping[Key, Box], cpus: Iterable[int]) -> Layer:
    """Return the CPUs that no container gets for itself."""
    title = "reserved: no container gets these CPUs for itself"
    return _marked(places, [("cpu", cpu) for cpu in cpus], RESERVED, title)


def holding_layer(
    places: Mapping[Key, Box], holding: ContainerHolding, sign: Sign, *, is_subject: bool = False
) -> Layer:
    """Return the CPUs and devices of a container.

    Args:
        places: where everything is.
        holding: what the container holds.
        sign: of its pod.
        is_subject: draw it with heavy lines.
    """
    keys: list[Key] = [("cpu", cpu) for cpu in holding.cpus or ()]
    for resource, device_ids in holding.devices.items():
        keys += [("device", resource, device_id) for device_id in device_ids]

    return _marked(places, keys, sign, holding_title(holding), is_subject=is_subject)


def holding_title(holding: ContainerHolding) -> str:
    """Return what a container holds, in words."""
    cpus, *other_cells = holding.cells(", ")
    parts = ["in the shared pool" if holding.cpus is None else f"CPUs {cpus}"]
    parts += [cell for cell in other_cells if cell != "-"]
    return f"{holding.pod}, container {holding.container}: {'; '.join(parts)}"


def _marked(
    places: Mapping[Key, Box],
    keys: Sequence[Key],
    sign: Sign,
    title: str,
    *,
    is_subject: bool = False,
) -> Layer:
    """Return boxes filled with the pattern of a sign, and the sign in a corner of each."""
    boxes = [places[key] for key in keys if key in places]
    shapes = Element("g", {"class": _holder_class(is_subject=is_subject), "fill": sign.fill})
    texts = Element("g", {"class": "au-signs"})
    if boxes:
        outlines = "".join(_outline(box.x, box.y, box.width, box.height) for box in boxes)
        add(shapes, "title", f"{sign.text}: {title}")
        add(shapes, "path", d=outlines)

    for box in boxes:
        svg_text(texts, box.x + box.width - 2, box.y + box.height - 3, sign.text, "au-sign")

    return Layer(shapes, texts)


def _holder_class(*, is_subject: bool) -> str:
    """Return the class of the shapes of a holder."""
    return "au-held au-subject" if is_subject else "au-held"


def _outline(x: int, y: int, width: int, height: int) -> str:
    return f"M{x} {y}h{width}v{height}h-{width}z"


def amounts_layer(
    places: Mapping[Key, Box],
    holdings: Holdings,
    signs: Mapping[str, Sign],
    subject: str = "",
    units: Mapping[str, Callable[[int], str]] | None = None,
) -> Layer:
    """Return the parts of each bar that are reserved and held, and how much is free.

    Args:
        places: where everything is.
        holdings: who holds what.
        signs: by uid of the pod.
        subject: the uid of the pod to be drawn with heavy lines.
        units: how amounts of a resource are written, where not as everywhere.
    """
    layer = Layer(Element("g", {"class": "au-bars"}), Element("g", {"class": "au-signs"}))
    for resource in holdings.resources:
        unit = (units or {}).get(resource.resource, str if resource.devices else short_bytes)
        for place in resource.places:
            key: Key = ("memory", *place.numa_nodes, resource.resource)
            if key not in places:
                key = ("devices", resource.resource, *place.numa_nodes)
            if key not in places:
                continue

            parts = []
            if place.reserved:
                title = f"reserved: {unit(place.reserved)}"
                parts.append(_BarPart(place.reserved, RESERVED, title))

            for uid, (pod, amount) in _pod_amounts(holdings, resource, place).items():
                sign = signs.get(uid)
                if sign is not None:
                    title = f"{sign.text}: {pod}: {unit(amount)}"
                    parts.append(_BarPart(amount, sign, title, is_subject=uid == subject))

            line = places["told", *key]
            text = f"{unit(place.free)} free"
            svg_text(layer.texts, line.x + line.width, line.y + line.height - 3, text, "au-told")
            _draw_bar(layer, places[key], place.capacity, parts)

    return layer


class _BarPart(Record):
    """What one holder has of the amount that a bar shows."""

    amount: int
    sign: Sign
    title: str
    is_subject: bool = False


def _draw_bar(layer: Layer, box: Box, capacity: int, parts: Iterable[_BarPart]) -> None:
    """Append the parts of a bar, each as wide as its amount asks for and wide enough to be seen."""
    x = box.x
    end = box.x + box.width
    for part in parts:
        proportional_width = round(box.width * part.amount / max(1, capacity))
        width = min(max(_NARROWEST_PART, proportional_width), end - x)
        if width <= 0:
            break

        outline = _outline(x, box.y, width, box.height)
        _draw_part(layer.shapes, outline, part.sign.fill, part.title, is_subject=part.is_subject)
        x += width
        if text_width(part.sign.text, _SIGN_FONT) + 4 <= width:
            svg_text(layer.texts, x - 2, box.y + box.height - 4, part.sign.text, "au-sign")


def _draw_part(shapes: Element, outline: str, fill: str, title: str, *, is_subject: bool) -> None:
    """Append what somebody holds, or an entry of the legend."""
    group = add(shapes, "g", fill=fill, class_=_holder_class(is_subject=is_subject))
    add(group, "title", title)
    add(group, "path", d=outline)


def _pod_amounts(
    holdings: Holdings, resource: ResourceAmounts, place: PlaceAmounts
) -> dict[str, tuple[str, int]]:
    """Return by uid the name of each pod that holds some of a resource in a place, and how much."""
    pods: dict[str, tuple[str, int]] = {}
    for holding, amount, reused in holdings.holders(resource, place.numa_nodes):
        _, amount_before = pods.get(holding.pod_uid, ("", 0))
        pods[holding.pod_uid] = holding.pod, amount_before + amount - reused

    return pods


class Sign(Record):
    """How one holder is shown.

    Attributes:
        text: one or more letters.
        number: chooses colour and pattern; -1: reserved.
    """

    text: str
    number: int

    @property
    def fill(self) -> str:
        """The value of the attribute `fill`."""
        return f"url(#{self._name})"

    @property
    def _name(self) -> str:
        if self.number < 0:
            return "au-r"
        return f"au-p{self.number % (len(_TINTS) * len(_MOTIFS) // 2)}"

    def pattern(self) -> Element:
        """Return the definition of the pattern that `fill` names."""
        if self.number < 0:
            tint, line, motif = "#d6d6d6", "#777", _CROSSED
        else:
            tint, line, motif = (
                choices[self.number % len(choices)] for choices in (_TINTS, _LINES, _MOTIFS)
            )

        element = Element(
            "pattern",
            {"id": self._name, "patternUnits": "userSpaceOnUse", "width": "6", "height": "6"},
        )
        SubElement(element, "path", {"d": "M0 0h6v6h-6z", "fill": tint})
        if motif:
            stroke = {"stroke": line, "stroke-opacity": "0.6", "fill": "none"}
            SubElement(element, "path", {"d": motif, **stroke})

        return element


# The sign of what no pod can have for itself.
RESERVED: Final = Sign("R", -1)


def signs_of(holders: Iterable[str]) -> dict[str, Sign]:
    """Return a sign for each of these, in their order: A, B, ... Z, AA, AB..."""
    return {holder: sign_of(number) for number, holder in enumerate(dict.fromkeys(holders))}


def sign_of(number: int) -> Sign:
    """Return the sign of a holder by its number, counted from 0."""
    text = ""
    quotient = number
    while quotient >= 0:
        quotient, letter = divmod(quotient, len(_LETTERS))
        text = _LETTERS[letter] + text
        quotient -= 1

    return Sign(text, number)


def patterns(signs: Iterable[Sign]) -> list[Element]:
    """Return the definition of each pattern that these signs use, once."""
    by_fill = {sign.fill: sign for sign in signs}
    return [sign.pattern() for sign in by_fill.values()]


def legend(names: Mapping[Sign, str], subject: Sign | None, width: int) -> tuple[Box, Layer]:
    """Return the box of a legend and what is drawn in it, from its left upper corner.

    Args:
        names: of the holders.
        subject: the holder that is drawn with heavy lines.
        width: pixels that the legend may have.
    """
    entries = [(Sign("", 0), "free, or in the shared pool"), (RESERVED, "reserved"), *names.items()]
    boxes = []
    for _, name in entries:
        label = fitted(name, _WIDEST_NAME, CELL_FONT)
        entry_width = _SWATCH[0] + text_width(label, CELL_FONT) + 18
        boxes.append(Box("entry", entry_width, 22, label, drawable(name)))

    whole = framed("group", in_rows(boxes, width - 20, 2), padding=10)
    layer = Layer(Element("g"), Element("g", {"class": "au-texts"}))
    for (sign, _), box in zip(entries, whole.children, strict=True):
        fill = sign.fill if sign.text else "#fff"
        outline = _outline(box.x, box.y, *_SWATCH)
        _draw_part(layer.shapes, outline, fill, box.title, is_subject=sign == subject)

        right = box.x + _SWATCH[0]
        baseline = box.y + _SWATCH[1] - 4
        svg_text(layer.texts, right - 3, baseline, sign.text, "au-sign")
        svg_text(layer.texts, right + 5, baseline, box.label, "au-label")

    return whole, layer
