"""Pages are one file that needs no other, in which text stays text."""

from __future__ import annotations

from alignup.node.holdings import holdings_of
from alignup.pictures.overlay import signs_of
from alignup.pictures.picture import (
    Scene,
    containers_table,
    fragment,
    heading,
    holders_table,
    machine_page,
    page,
    paragraph,
    table,
)
from inputs.pictures import HOSTILE, MACHINES, ODD_DEVICES, odd_machine, pod, read_page, used_node


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


def test_distances_are_shown_where_they_are_known() -> None:
    assert "Distances" in read_page(machine_page(Scene("x", MACHINES["8 nodes"]))).text


def test_a_fragment_is_no_page() -> None:
    assert fragment([paragraph("<b>")]) == "<div><p>&lt;b&gt;</p></div>"


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
