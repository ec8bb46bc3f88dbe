"""Records show themselves in notebooks."""

from __future__ import annotations

from alignup import Machine
from pictures import HOSTILE, parsed, pod, read_page, texts_of, used_node


def test_a_machine_is_a_picture() -> None:
    assert "NUMA node 1" in texts_of(Machine.catalog()["xeon-2s"]._repr_svg_())


def test_a_node_is_a_picture_of_who_holds_what() -> None:
    texts = texts_of(parsed(used_node()._repr_svg_()))

    assert "Node: policy restricted, 3 pods" in texts
    assert "default/pod-2" in texts


def test_an_admission_is_a_table() -> None:
    seen = read_page(used_node().admit(pod("new", 2))._repr_html_())

    assert "table" in seen.tags
    assert all(part in seen.text for part in ("✓ admitted", "c0", "5-6", "memory 1Gi @ 1"))


def test_an_explanation_is_a_page_of_its_own() -> None:
    seen = read_page(used_node().explain(pod("new", 60))._repr_html_())

    assert {"svg", "table"} <= set(seen.tags)
    assert "html" not in seen.tags
    assert "default/new: ✗ refused: TopologyAffinityError" in seen.text


def test_a_refusal_says_why() -> None:
    manifest = pod("new", 60)
    manifest["spec"]["containers"][0]["name"] = HOSTILE
    seen = read_page(used_node().admit(manifest)._repr_html_())

    assert set(seen.tags) == {"div", "p"}
    assert "✗ refused: TopologyAffinityError" in seen.text
