"""A picture is one well-formed SVG file that says what it shows, whatever names its pods have.

Pages are one file that needs no other, in which text stays text.
"""

from __future__ import annotations

import pytest

from alignup import draw, explain, read_machine
from alignup.node.holdings import holdings_of
from alignup.pictures.overlay import signs_of
from alignup.pictures.picture import (
    Scene,
    containers_table,
    drawing_of,
    fragment,
    heading,
    holders_table,
    machine_page,
    page,
    paragraph,
    table,
)
from inputs.pictures import (
    HOSTILE,
    MACHINES,
    ODD_DEVICES,
    odd_machine,
    parsed,
    pod,
    read_page,
    texts_of,
    used_node,
)


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

    assert set(seen.tags) == {"div", "style", "p"}
    assert "✗ refused: TopologyAffinityError" in seen.text


def test_text_is_escaped_and_kept() -> None:
    made = table((HOSTILE, "n"), [(HOSTILE, "1")], frozenset({"n"}))
    seen = read_page(page(HOSTILE, [heading(HOSTILE), paragraph(HOSTILE), made]))

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


@pytest.mark.parametrize(
    ("name", "are_shown"), [("8 nodes", True), ("4 CPUs", True), ("one node", False)]
)
def test_distances_are_shown_where_they_are_known(name: str, are_shown: bool) -> None:
    """From a node to itself alone there is nothing to show."""
    seen = read_page(machine_page(Scene("x", MACHINES[name])))

    assert ("Distances" in seen.text) == are_shown


def test_a_fragment_is_no_page() -> None:
    page = fragment([paragraph("<b>")])

    assert page.startswith('<div class="alignup"><style>')
    assert page.endswith("</style><p>&lt;b&gt;</p></div>")


@pytest.mark.parametrize("cpus", [2, 60])
def test_a_verdict_has_its_colour_in_a_notebook(cpus: int) -> None:
    """Whatever theme the notebook says that it has, or else the system."""
    admission = used_node().admit(pod("new", cpus))
    page = draw(admission)._repr_html_() or ""
    verdict = "admitted" if admission else "refused"

    assert f'<p class="{verdict}">' in page
    assert f".alignup .{verdict}{{color:var(--" in page
    for theme in ("prefers-color-scheme:dark", "data-jp-theme-light=false", ".vscode-dark"):
        assert theme in page


def rows_of(made):
    return [tuple(cell.text for cell in row) for row in made.iter("tr")][1:]


def test_what_a_container_got() -> None:
    admission = used_node(0).admit(pod("new", 2, 1, gpu=1))
    made = containers_table(admission.to_dict()["containers"])

    assert rows_of(made) == [("c0", "0", "yes", "1-2", "memory 1Gi @ 0", "example.com/gpu gpu0")]


def test_containers_of_the_shared_pool_hold_nothing() -> None:
    node = used_node(1)
    node.admit({"metadata": {"name": "shared"}, "spec": {"containers": [{"name": "c0"}]}})
    holdings = holdings_of(node)
    made = holders_table(
        holdings, signs_of(container.pod_uid for container in holdings.containers if container)
    )

    assert rows_of(made) == [
        ("A", "default/pod-0", "c0", "1", "memory 2Gi on NUMA node 0", "example.com/gpu gpu0"),
        ("-", "default/shared", "c0", "shared", "-", "-"),
    ]
