"""Pages are one file that needs no other, in which text stays text."""

from __future__ import annotations

from alignup.node.pictures.machine_page import machine_page
from alignup.node.pictures.machine_picture import Scene
from alignup.node.pictures.page import Table, fragment, heading, page, paragraph
from pictures import HOSTILE, MACHINES, ODD_DEVICES, odd_machine, read_page


def test_text_is_escaped_and_kept() -> None:
    table = Table((HOSTILE, "n"), [(HOSTILE, "1")], frozenset({"n"}))
    seen = read_page(page(HOSTILE, [heading(HOSTILE), paragraph(HOSTILE), table.element()]))

    assert "script" not in seen.tags
    assert seen.text.count('<script>alert("&amp;")</script>') == 6
    assert "\x1b" not in seen.text


def test_the_page_of_a_machine_needs_no_other_file() -> None:
    text = machine_page(Scene("odd", odd_machine(), ODD_DEVICES))
    seen = read_page(text)

    assert text.startswith("<!DOCTYPE html>")
    assert "@import" not in text
    assert seen.addresses == ["http://www.w3.org/2000/svg"]  # the name of the language, not a place
    assert {"svg", "table", "h1"} <= set(seen.tags)
    assert {"script", "link", "img"}.isdisjoint(seen.tags)
    assert all(part in seen.text for part in ("NUMA nodes", "Devices", "512 x 2Mi", "gpu2"))
    assert "Distances" not in seen.text


def test_distances_are_shown_where_they_are_known() -> None:
    assert "Distances" in read_page(machine_page(Scene("x", MACHINES["8 nodes"]))).text


def test_a_fragment_is_no_page() -> None:
    assert fragment([paragraph("<b>")]) == "<div><p>&lt;b&gt;</p></div>"
