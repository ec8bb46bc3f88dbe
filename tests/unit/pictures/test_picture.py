"""A picture is one well-formed SVG file that says what it shows, whatever names its pods have."""

from __future__ import annotations

import pytest

from alignup import draw, explain, read_machine
from alignup.node.holdings import holdings_of
from alignup.pictures.picture import Scene, drawing_of
from inputs.pictures import HOSTILE, MACHINES, parsed, pod, read_page, texts_of, used_node


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_drawn(name: str) -> None:
    drawn = parsed(drawing_of(Scene(name, MACHINES[name])))

    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert {name, "socket 0"} <= set(texts_of(drawn)) or "sockets 0, 1" in texts_of(drawn)
    assert drawn.get("viewBox") == f"0 0 {drawn.get('width')} {drawn.get('height')}"
    assert not [element for element in drawn.iter() if element.tag.endswith("script")]


def test_a_node_is_drawn_with_its_holders_and_a_legend() -> None:
    node = used_node()
    scene = Scene("node-a", node.machine, {}, holdings_of(node), subject="pod-2")
    drawn = drawing_of(scene)
    texts = texts_of(drawn)

    assert {
        "free, or in the shared pool",
        "reserved",
        "default/pod-0",
        "default/pod-2",
        "A",
        "C",
        "R",
    } <= set(texts)
    assert drawn.count('class="au-held au-subject"') >= 3  # CPUs, memory, the legend


def test_a_picture_is_the_same_each_time() -> None:
    node = used_node()
    scene = Scene("node-a", node.machine, {}, holdings_of(node))

    assert drawing_of(scene) == drawing_of(scene)


def test_hostile_names_stay_text() -> None:
    node = used_node(0)
    manifest = pod("x", 1)
    manifest["metadata"] = {"name": HOSTILE, "uid": HOSTILE}
    node.admit(manifest)
    drawn = drawing_of(Scene(HOSTILE, node.machine, {}, holdings_of(node), remarks={0: [HOSTILE]}))

    root = parsed(drawn)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert "<script" not in drawn
    assert any("漢字" in text for text in texts_of(root))


def test_a_machine_is_a_picture() -> None:
    assert "NUMA node 1" in texts_of(parsed(draw(read_machine("xeon-2s"))._repr_svg_()))


def test_a_node_is_a_picture_of_who_holds_what() -> None:
    texts = texts_of(parsed(draw(used_node())._repr_svg_()))

    assert "Node: policy restricted, 3 pods" in texts
    assert "default/pod-2" in texts


def test_an_admission_is_a_table() -> None:
    seen = read_page(draw(used_node().admit(pod("new", 2)))._repr_html_())

    assert "table" in seen.tags
    assert all(part in seen.text for part in ("✓ admitted", "c0", "5-6", "memory 1Gi @ 1"))


def test_an_explanation_is_a_page_of_its_own() -> None:
    seen = read_page(draw(explain(used_node(), pod("new", 60)))._repr_html_())

    assert {"svg", "table"} <= set(seen.tags)
    assert "html" not in seen.tags
    assert "default/new: ✗ refused: TopologyAffinityError" in seen.text


def test_a_refusal_says_why() -> None:
    manifest = pod("new", 60)
    manifest["spec"]["containers"][0]["name"] = HOSTILE
    seen = read_page(draw(used_node().admit(manifest))._repr_html_())

    assert set(seen.tags) == {"div", "p"}
    assert "✗ refused: TopologyAffinityError" in seen.text
