"""Draws upon a machine what is reserved and what each container holds, and the legend of it.

Each pod has a sign, a colour and a pattern, which tell it apart in black and white too. What a container's CPUs and
devices look like depends on the container alone, so that a picture of many moments draws them once; bars of memory and
of many devices depend on all containers, and are drawn for each moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement

from alignup.node.pictures.boxes import Box, drawable, fitted, framed, in_columns, text_width, walk
from alignup.node.pictures.layout import CELL_FONT
from alignup.node.pictures.svg import add, svg_text
from alignup.text.byte_sizes import format_bytes, short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.node.holdings import ContainerHolding, Holdings, PlaceAmounts, ResourceAmounts
    from alignup.node.pictures.boxes import Key


_SIGN_FONT: Final = 10
_NARROWEST_PART: Final = 3


@dataclass(frozen=True, slots=True)
class Layer:
    """Shapes, and the text that is to be above the shapes of all layers."""

    shapes: Element
    texts: Element


def places_of(boxes: Box) -> dict[Key, Box]:
    """Return the boxes that have a key, with their places in the picture as a whole."""
    return {box.key: box for box in walk(boxes) if box.key}


def reserved_layer(places: Mapping[Key, Box], cpus: Iterable[int]) -> Layer:
    """Return the CPUs that no container gets for itself."""
    return _marked(
        places, [("cpu", cpu) for cpu in cpus], RESERVED, "reserved: no container gets these CPUs for itself"
    )


def holding_layer(
    places: Mapping[Key, Box], holding: ContainerHolding, sign: Sign, *, is_subject: bool = False, name: str = ""
) -> Layer:
    """Return the CPUs and devices of a container.

    Args:
        places: where everything is.
        holding: what the container holds.
        sign: of its pod.
        is_subject: draw it with heavy lines.
        name: a further class of both elements.
    """
    keys: list[Key] = [("cpu", cpu) for cpu in holding.cpus or ()]
    keys += [("device", resource, one) for resource, ids in holding.devices.items() for one in ids]
    return _marked(places, keys, sign, holding_title(holding), is_subject=is_subject, name=name)


def holding_title(holding: ContainerHolding) -> str:
    """Return what a container holds, in words."""
    parts = ["in the shared pool" if holding.cpus is None else f"CPUs {holding.cpus}"]
    for kind, shares in holding.memory.items():
        told = [f"{format_bytes(size)} on NUMA node {node}" for node, size in shares.items() if size]
        if told:
            parts.append(f"{kind} {', '.join(told)}")
    parts += [f"{resource} {', '.join(ids)}" for resource, ids in holding.devices.items() if ids]
    return f"{holding.pod}, container {holding.container}: {'; '.join(parts)}"


def _marked(
    places: Mapping[Key, Box], keys: Sequence[Key], sign: Sign, title: str, *, is_subject: bool = False, name: str = ""
) -> Layer:
    """Return boxes filled with the pattern of a sign, and the sign in the right lower corner of each."""
    boxes = [places[key] for key in keys if key in places]
    classes = " ".join(filter(None, ("au-held", "au-subject" if is_subject else "", name)))
    shapes = Element("g", {"class": classes, "fill": sign.fill})
    texts = Element("g", {"class": f"au-signs {name}".rstrip()})
    if boxes:
        add(shapes, "title", f"{sign.text}: {title}")
        add(shapes, "path", d="".join(_outline(box.x, box.y, box.width, box.height) for box in boxes))
    for box in boxes:
        svg_text(texts, box.x + box.width - 2, box.y + box.height - 3, sign.text, "au-sign")
    return Layer(shapes, texts)


def _outline(x: int, y: int, width: int, height: int) -> str:
    return f"M{x} {y}h{width}v{height}h-{width}z"


def amounts_layer(
    places: Mapping[Key, Box], holdings: Holdings, signs: Mapping[str, Sign], subject: str = "", name: str = ""
) -> Layer:
    """Return the parts of each bar that are reserved and held, and how much is free.

    Args:
        places: where everything is.
        holdings: who holds what.
        signs: by uid of the pod.
        subject: the uid of the pod to be drawn with heavy lines.
        name: a further class of both elements.
    """
    shapes = Element("g", {"class": f"au-bars {name}".rstrip()})
    texts = Element("g", {"class": f"au-signs {name}".rstrip()})
    for resource in holdings.resources:
        for place in resource.places:
            memory: Key = ("memory", *place.numa_nodes, resource.resource)
            devices: Key = ("devices", resource.resource, *place.numa_nodes)
            if memory in places:
                parts = _parts(place, _memory_parts(holdings, resource.resource, place), signs, subject, short_bytes)
                _draw_bar(shapes, texts, places, memory, place.capacity, parts, short_bytes(place.free))
            elif devices in places:
                parts = _parts(place, _device_parts(holdings, resource, place), signs, subject, str)
                _draw_bar(shapes, texts, places, devices, place.capacity, parts, str(place.free))
    return Layer(shapes, texts)


def _draw_bar(
    shapes: Element, texts: Element, places: Mapping[Key, Box], key: Key, whole: int, parts: Sequence[_Part], free: str
) -> None:
    """Append the parts of a bar, each as wide as its amount asks for and wide enough to be seen, and what is free."""
    told, box = places["told", *key], places[key]
    svg_text(texts, told.x + told.width, told.y + told.height - 3, f"{free} free", "au-told")
    x, end = box.x, box.x + box.width
    for part in parts:
        width = max(_NARROWEST_PART, round(box.width * part.amount / max(1, whole)))
        width = min(width, end - x)
        if width <= 0:
            break
        group = add(shapes, "g", fill=part.sign.fill, class_="au-held au-subject" if part.is_subject else "au-held")
        add(group, "title", part.title)
        add(group, "path", d=_outline(x, box.y, width, box.height))
        x += width
        if text_width(part.sign.text, _SIGN_FONT) + 4 <= width:
            svg_text(texts, x - 2, box.y + box.height - 4, part.sign.text, "au-sign")


def _memory_parts(holdings: Holdings, kind: str, place: PlaceAmounts) -> dict[str, tuple[str, int]]:
    """Return by uid the name of each pod that holds memory of a type on a NUMA node, and how many bytes."""
    parts: dict[str, tuple[str, int]] = {}
    for holding, size in holdings.memory_holders(kind, place.numa_nodes[0]):
        _, before = parts.get(holding.pod_uid, ("", 0))
        parts[holding.pod_uid] = (holding.pod, before + size)
    return parts


def _device_parts(holdings: Holdings, resource: ResourceAmounts, place: PlaceAmounts) -> dict[str, tuple[str, int]]:
    """Return by uid the name of each pod that holds devices of a place, and how many."""
    parts: dict[str, tuple[str, int]] = {}
    for identity, holders in holdings.device_holders(resource.resource).items():
        if resource.devices.get(identity) == place.numa_nodes:
            _, before = parts.get(holders[0].pod_uid, ("", 0))
            parts[holders[0].pod_uid] = (holders[0].pod, before + 1)
    return parts


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a bar."""

    amount: int
    sign: Sign
    title: str
    is_subject: bool = False


def _parts(
    place: PlaceAmounts,
    held: Mapping[str, tuple[str, int]],
    signs: Mapping[str, Sign],
    subject: str,
    unit: Callable[[int], str],
) -> list[_Part]:
    """Return what is reserved, then what each pod holds."""
    found = [_Part(place.reserved, RESERVED, f"reserved: {unit(place.reserved)}")] if place.reserved else []
    found += [
        _Part(amount, signs[uid], f"{signs[uid].text}: {pod}: {unit(amount)}", uid == subject)
        for uid, (pod, amount) in held.items()
        if uid in signs
    ]
    return found


_LETTERS: Final = "ABCDEFGHJKLMNPQSTUVWXYZ"
"""Without I and O, which resemble digits, and R, which stands for what is reserved."""
_COLOURS: Final = (
    ("#cfe2f7", "#3b78b8"),
    ("#fbd9b5", "#c9741a"),
    ("#cdeacb", "#3f8f3a"),
    ("#f6cfe2", "#b8407f"),
    ("#f7eea6", "#a08c00"),
    ("#c5ecee", "#218a8f"),
    ("#dfd3f2", "#6f4fae"),
    ("#e6d5c3", "#80592e"),
)
"""A light tint, and the colour of the lines on it."""
_MOTIFS: Final = ("", "M-1 1L1 -1M-1 7L7 -1M5 7L7 5", "M2 3h2", "M-1 5L1 7M-1 -1L7 7M5 -1L7 1", "M0 3h6", "M3 0v6")
"""Lines of a tile of 6 by 6 pixels; none: the plain tint."""
_CROSSED: Final = "M-1 1L1 -1M-1 7L7 -1M5 7L7 5M-1 5L1 7M-1 -1L7 7M5 -1L7 1"


@dataclass(frozen=True, slots=True)
class Sign:
    """How one holder is shown."""

    text: str
    """One or more letters."""
    number: int
    """Chooses colour and pattern; -1: reserved."""

    @property
    def fill(self) -> str:
        """The value of the attribute `fill`."""
        return f"url(#{self._name})"

    @property
    def _name(self) -> str:
        return "au-r" if self.number < 0 else f"au-p{self.number % (len(_COLOURS) * len(_MOTIFS) // 2)}"

    def pattern(self) -> Element:
        """Return the definition of the pattern that `fill` names."""
        tint, line = ("#d6d6d6", "#777") if self.number < 0 else _COLOURS[self.number % len(_COLOURS)]
        motif = _CROSSED if self.number < 0 else _MOTIFS[self.number % len(_MOTIFS)]
        size = {"width": "6", "height": "6"}
        made = Element("pattern", {"id": self._name, "patternUnits": "userSpaceOnUse", **size})
        SubElement(made, "path", {"d": "M0 0h6v6h-6z", "fill": tint})
        if motif:
            SubElement(made, "path", {"d": motif, "stroke": line, "stroke-opacity": "0.6", "fill": "none"})
        return made


RESERVED: Final = Sign("R", -1)
"""The sign of what no pod can have for itself."""


def signs_of(holders: Iterable[str]) -> dict[str, Sign]:
    """Return a sign for each of these, in their order: A, B, ... Z, AA, AB..."""
    return {holder: sign_of(number) for number, holder in enumerate(dict.fromkeys(holders))}


def sign_of(number: int) -> Sign:
    """Return the sign of a holder by its number, counted from 0."""
    return Sign(_letters(number), number)


def _letters(number: int) -> str:
    text = ""
    while number >= 0:
        number, last = divmod(number, len(_LETTERS))
        text = _LETTERS[last] + text
        number -= 1
    return text


def patterns(signs: Iterable[Sign]) -> list[Element]:
    """Return the definition of each pattern that these signs use, once."""
    return [one.pattern() for one in {sign.fill: sign for sign in signs}.values()]


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
