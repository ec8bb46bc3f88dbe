"""Boxes become elements of SVG: shapes below, text above, and nothing that is no text."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

import pytest

from alignup.pictures.boxes import CELL_FONT, FONT, HEADER, PADDING, Box
from alignup.pictures.svg import add, box_layers, picture, style, svg_document, svg_text
from inputs.pictures import HOSTILE, parsed

TEXT_OF_KIND = {
    "node": (PADDING, HEADER - 6, None),
    "cpu": (3, CELL_FONT + 1, "au-cell"),
    "title": (0, 36, "au-title"),
    "group": (0, 37, "au-label"),
    "device": (4, 35, "au-cell"),
}


def test_names_of_attributes_may_be_words_of_python() -> None:
    shape = add(Element("g"), "rect", class_="au-cpu", stroke_width=2)

    assert (shape.tag, shape.attrib) == ("rect", {"class": "au-cpu", "stroke-width": "2"})
    assert shape.text is None


def test_whatever_is_written_can_be_read_again() -> None:
    root = Element("svg")
    add(root, "title", HOSTILE, note=HOSTILE)
    [title] = parsed(svg_document(root))

    assert title.text.startswith('<script>alert("&amp;")</script>')
    assert title.text == title.get("note")
    assert "\x1b" not in title.text


def test_empty_text_is_no_element() -> None:
    parent = Element("g")
    svg_text(parent, 1, 2, "")
    assert not list(parent)

    svg_text(parent, 1, 2, "a")
    svg_text(parent, 1, 2, "b", "au-cell")
    assert [text.get("class") for text in parent] == [None, "au-cell"]


def test_places_are_those_in_the_whole_picture() -> None:
    cpu = Box("cpu", 10, 20, "7", "CPU 7").at(5, 6)
    outer_box = Box("node", 100, 200, "NUMA node 0", children=(cpu,)).at(30, 40)
    shapes, texts = box_layers(outer_box)
    frame, cell = shapes

    assert (frame.get("class"), frame.get("rx"), frame.find("title")) == ("au-node", "3", None)
    assert [cell.get(name) for name in ("x", "y", "width", "height")] == ["35", "46", "10", "20"]
    assert (cell.get("rx"), cell.findtext("title")) == (None, "CPU 7")
    assert [text.text for text in texts] == ["NUMA node 0", "7"]


@pytest.mark.parametrize("kind", TEXT_OF_KIND)
def test_a_label_stands_where_boxes_of_its_kind_have_it(kind: str) -> None:
    _, [text] = box_layers(Box(kind, 30, 40, "label"))
    x, y, class_ = TEXT_OF_KIND[kind]

    assert (text.get("x"), text.get("y"), text.get("class")) == (str(x), str(y), class_)


@pytest.mark.parametrize("kind", ["group", "text", "title", "line", "machine"])
def test_boxes_that_only_hold_others_have_no_shape(kind: str) -> None:
    shapes, _ = box_layers(Box(kind, 30, 40, "label"))

    assert not list(shapes)


def test_a_picture_has_its_layers_above_the_machine_in_order() -> None:
    layers = [Element("g", {"id": name}) for name in ("shapes", "held", "texts")]
    root = picture(300, 200, "Machine", layers)

    assert [element.tag for element in root] == ["title", "style", "rect", "g", "g", "g"]
    assert root.get("viewBox") == "0 0 300 200"
    assert root.findtext("title") == "Machine"
    assert [element.get("id") for element in root.findall("g")] == ["shapes", "held", "texts"]

    patterned = picture(300, 200, "Machine", layers, [Element("pattern")])
    assert [element.tag for element in patterned.find("defs")] == ["pattern"]


def test_the_style_of_a_picture_is_for_nothing_else_in_a_page() -> None:
    """Nor is what it says of dark screens."""
    rules = re.sub(r"@media [^{]+\{", "", style("picture"))
    selectors = [selector.strip() for selector in re.findall(r"([^{}]+)\{", rules)]

    assert len(selectors) > 10
    assert {selector.split(maxsplit=1)[0][:6] for selector in selectors} <= {".au", "svg.au"}


def test_no_letter_is_smaller_than_twelve_pixels() -> None:
    sizes = [int(size) for size in re.findall(r"font(?:-size)?:(\d+)px", style("picture"))]
    assert len(sizes) > 4
    assert min(sizes) >= 12
    assert min(FONT, CELL_FONT) >= 12


def test_a_heading_tells_by_its_colour_whether_a_pod_is_admitted() -> None:
    for kind, class_ in (("good", "au-title au-good"), ("bad", "au-title au-bad")):
        shapes, [text] = box_layers(Box(kind, 30, 23, "label"))
        assert text.get("class") == class_
        assert len(shapes) == 0
        for name in class_.split():
            assert f".{name}{{" in style("picture")


def test_a_line_of_what_is_short_stands_out() -> None:
    _, [text] = box_layers(Box("short", 30, 16, "✗ cpu"))
    assert text.get("class") == "au-label au-bad"


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours, as the guidelines for web content (WCAG) measure it."""

    def luminance(colour: str) -> float:
        digits = colour.removeprefix("#")
        if len(digits) == 3:
            digits = "".join(digit * 2 for digit in digits)
        parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
        red, green, blue = (
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lower, higher = sorted((luminance(first), luminance(second)))
    return (higher + 0.05) / (lower + 0.05)


def test_letters_of_pictures_can_be_read_upon_everything_below_them() -> None:
    css = style("picture")
    grounds = re.findall(r"\.au-(?:machine|socket|node|apart|l3|pci)\{fill:(#\w+)", css)
    letters = re.findall(r"\.au (?:text\{[^}]*|\.au-(?:good|bad)\{)fill:(#\w+)", css)
    assert len(letters) == 3
    assert len(grounds) == 5
    for letter in letters:
        for ground in (*grounds, "#fff"):
            assert contrast(letter, ground) >= 4.5, (letter, ground)


def test_letters_of_pages_can_be_read_in_light_and_in_the_dark() -> None:
    roots = re.findall(r":root\{([^}]+)\}", style("page"))
    assert len(roots) == 2
    for root in roots:
        colours = dict(re.findall(r"--(\w+):(#\w+)", root))
        for name in ("text", "good", "bad"):
            assert contrast(colours[name], colours["page"]) >= 4.5, name
