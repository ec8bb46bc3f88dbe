"""An explanation is shown with what the pod got or could not get, and with all of its facts."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from itertools import pairwise

import pytest

from alignup import Node, draw, explain, read_machine
from alignup.errors import InputError
from alignup.pictures.drawing import MOST_SHOWN, explanation_scene, explanations_page
from alignup.pictures.picture import drawing_of
from inputs.pictures import HOSTILE, parsed, pod, read_page, texts_of, used_node

REFUSED = explain(used_node(), pod("new", 4, gpu=1))
ADMITTED = explain(used_node(), pod("new", 2))


def test_what_an_admitted_pod_got_has_heavy_lines() -> None:
    scene = explanation_scene(ADMITTED)
    drawn = drawing_of(scene)

    assert scene.subject == "new"
    assert not scene.remarks
    assert 'au-subject"' in drawn
    assert "default/new" in texts_of(drawn)
    assert any("default/new, container c0: CPUs 5-6" in text for text in texts_of(drawn))


def test_numa_nodes_say_what_they_have_of_what_a_refused_pod_asked_for() -> None:
    scene = explanation_scene(REFUSED)
    texts = texts_of(drawing_of(scene))

    assert scene.remarks == {
        0: [
            "○ cpu: 4 asked, 1 free",
            "✓ memory: 1Gi asked, 11Gi free",
            "✗ example.com/gpu: 1 asked, 0 free",
        ],
        1: [
            "○ cpu: 4 asked, 3 free",
            "✓ memory: 1Gi asked, 14Gi free",
            "✓ example.com/gpu: 1 asked, 1 free",
        ],
    }
    assert "default/new refused: TopologyAffinityError" in texts
    assert {line for lines in scene.remarks.values() for line in lines} <= set(texts)
    assert 'au-subject"' not in drawing_of(scene)


def test_what_earlier_containers_of_a_refused_pod_had_is_drawn() -> None:
    """As it was when the refusal was decided.

    So what is free in the picture is what the remarks say.
    """
    manifest = pod("new", 2)
    manifest["spec"]["containers"] += pod("new", 60)["spec"]["containers"]
    manifest["spec"]["containers"][1]["name"] = "c1"
    scene = explanation_scene(explain(used_node(), manifest))
    drawn = drawing_of(scene)

    assert any("default/new, container c0: CPUs 5-6" in text for text in texts_of(drawn))
    assert 'au-subject"' in drawn
    assert scene.remarks[1][0] == "✗ cpu: 60 asked, 1 free"


def test_remarks_leave_empty_nodes_alone() -> None:
    """A machine of 34 NUMA nodes keeps those that have nothing in one line."""
    kubelet = {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"},
    }
    node = Node(read_machine("gb200"), kubelet | {"reservedSystemCPUs": "0"})
    scene = explanation_scene(explain(node, pod("new", 100)))

    assert set(scene.remarks) == {0, 1}
    assert "NUMA nodes 3-9, 11-17: no CPUs, no memory" in texts_of(drawing_of(scene))


@pytest.mark.parametrize("explanation", [REFUSED, ADMITTED])
def test_a_page_has_every_fact(explanation) -> None:
    seen = read_page(explanations_page("Why", [explanation]))

    assert {"script", "img", "link"}.isdisjoint(seen.tags)
    assert explanation.cause in seen.text
    for suggestion in explanation.suggestions:
        assert suggestion.text in seen.text
    for part in explanation.resources:
        for place in part.places:
            assert str(place.free) in seen.text or part.unit == "bytes"
            for holder in place.holders:
                assert holder.pod in seen.text


def test_headings_of_a_page_leave_out_no_level() -> None:
    """Who reads by ear walks from one to the next."""
    tags = read_page(explanations_page("Why", [REFUSED, ADMITTED])).tags
    levels = [int(tag[1]) for tag in tags if tag in {"h1", "h2", "h3", "h4", "h5", "h6"}]

    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


def test_a_page_of_many_pods_says_how_many_it_shows() -> None:
    text = explanations_page("Why", [replace(ADMITTED, machine=None)] * 30)

    assert "the first 20 of 30 pods" in text
    assert "<svg" not in text


def test_an_explanation_without_a_machine_has_no_scene() -> None:
    with pytest.raises(ValueError, match="does not know its machine"):
        explanation_scene(replace(ADMITTED, machine=None))


def test_hostile_names_stay_text() -> None:
    manifest = pod("x", 2)
    manifest["metadata"] = {"name": HOSTILE, "uid": HOSTILE}
    manifest["spec"]["containers"][0]["name"] = HOSTILE
    seen = read_page(explanations_page(HOSTILE, [explain(used_node(), manifest)]))

    assert "script" not in seen.tags
    assert '<script>alert("&amp;")</script>' in seen.text


@pytest.mark.parametrize(
    ("small_amount", "large_amount"),
    [("1500Mi", "300Gi"), ("1Gi", "301G"), ("3Ki", "1Ti"), ("7777777", "600Gi")],
)
def test_bars_and_remarks_write_amounts_alike(small_amount: str, large_amount: str) -> None:
    """One page has one unit for what is asked of a resource and what is free of it."""
    kubelet = {
        "topologyManagerPolicy": "single-numa-node",
        "memoryManagerPolicy": "Static",
        "kubeReserved": {"memory": "1Gi"},
        "evictionHard": {"memory.available": "0%"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    node = Node(read_machine("xeon-2s"), kubelet)
    small, large = pod("small", 1), pod("large", 1)
    small["spec"]["containers"][0]["resources"]["limits"]["memory"] = small_amount
    large["spec"]["containers"][0]["resources"]["limits"]["memory"] = large_amount
    assert node.admit(small).admitted
    scene = explanation_scene(explain(node, large))
    drawn = texts_of(drawing_of(scene))

    for numa_id, remarks in scene.remarks.items():
        (free,) = [line.rpartition(", ")[2] for line in remarks if "memory: " in line]
        assert free in drawn, (numa_id, free)

    assert not any(text.endswith(": 0Gi") for text in drawn)


def test_what_is_drawn_is_saved_as_a_picture_or_a_page(tmp_path) -> None:
    """The ending of the file, in letters of any case, says which; an admission is a page only."""
    node = used_node()
    admission = node.admit(pod("new", 2))
    subjects = {"machine": node.machine, "node": node, "explanation": explain(node, pod("x", 60))}
    for name, subject in subjects.items():
        picture, page = tmp_path / f"{name}.SVG", tmp_path / f"{name}.html"
        draw(subject).save(picture)
        draw(subject).save(str(page))
        assert parsed(picture.read_text("utf-8")).tag.endswith("svg")
        assert {"html", "svg", "table"} <= set(read_page(page.read_text("utf-8")).tags)

    draw(admission).save(tmp_path / "admission.html")
    seen = read_page((tmp_path / "admission.html").read_text("utf-8"))
    assert "svg" not in seen.tags
    assert "✓ admitted" in seen.text

    with pytest.raises(InputError, match=r"expected a file \.html, got .* at the drawing"):
        draw(admission).save(tmp_path / "admission.svg")
    with pytest.raises(InputError, match=r"expected a file \.svg or \.html, got .* at the drawing"):
        draw(node).save(tmp_path / "node.png")
    with pytest.raises(InputError, match=r"cannot write the drawing"):
        draw(node).save(tmp_path / "no-folder" / "node.svg")


def test_a_notebook_shows_a_picture_or_a_page_in_its_own_theme() -> None:
    node = used_node()
    for subject in (node.machine, node):
        assert draw(subject)._repr_svg_()
        assert "data-jp-theme-light=false" in draw(subject)._repr_html_()
    for subject in (node.admit(pod("new", 2)), explain(node, pod("x", 60))):
        assert draw(subject)._repr_html_()
        assert draw(subject)._repr_svg_() is None

    with pytest.raises(TypeError, match="expected a Machine, Node, Admission or Explanation, got"):
        draw("node")


def test_of_a_page_of_many_pods_the_first_are_shown() -> None:
    node = used_node()
    explained = [replace(explain(node, pod(f"x{number}", 60)), machine=None) for number in (1, 2)]
    several = [explained[0]] * (MOST_SHOWN - 1) + [explained[1]]

    page = explanations_page("node", several)
    assert page.count("default/x2: ✗ refused") == 1
    assert f"the first {MOST_SHOWN} of" not in page

    page = explanations_page("node", [explained[0], *several])
    assert "default/x2" not in page
    assert f"the first {MOST_SHOWN} of {MOST_SHOWN + 1} pods" in page


def test_suggestions_are_numbered_in_the_order_of_the_terminal() -> None:
    """With a line for each container where several amounts change."""
    page = explanations_page("Why", [REFUSED])
    [numbered] = re.findall(r"<ol>(.*?)</ol>", page)
    assert numbered.count("<li>") >= len(REFUSED.suggestions) > 0
    for suggestion in REFUSED.suggestions:
        for text in suggestion.changes or (suggestion.text,):
            assert escape(text, quote=False) in numbered


def test_refused_pods_come_first_and_their_verdict_has_a_colour() -> None:
    page = explanations_page("Why", [ADMITTED, REFUSED])
    refused, admitted = '<h2 class="refused">', '<h2 class="admitted">'
    assert 0 < page.index(refused) < page.index(admitted)


def test_the_verdict_of_a_picture_has_a_colour_and_what_is_short_stands_out() -> None:
    refused, admitted = (drawing_of(explanation_scene(case)) for case in (REFUSED, ADMITTED))
    assert 'class="au-title au-bad"' in refused
    assert 'class="au-title au-good"' in admitted
    assert 'class="au-label au-bad">✗ example.com/gpu: 1 asked, 0 free<' in refused
    assert 'class="au-label au-bad"' not in admitted
