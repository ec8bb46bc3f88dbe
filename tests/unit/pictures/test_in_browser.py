"""What a real browser makes of the pictures: no text overlaps another or leaves the picture, and something is seen."""

from __future__ import annotations

import pytest

import browser
from alignup import Node, explain, read_machine
from alignup.node.holdings import holdings_of
from alignup.pictures.drawing import explanation_scene, explanations_page
from alignup.pictures.picture import Scene, drawing_of, machine_page
from alignup.replay.report_page import replay_page
from alignup.replay.scenario import apply_step, read_steps
from alignup.replay.summary import Report, summarized
from pictures import HOSTILE, MACHINES, ODD_DEVICES, machine, pod, used_node
from traces import scenario

pytestmark = pytest.mark.slow


def crowded() -> Scene:
    """Return a node of 256 CPUs that holds a hundred pods, some of them with names that are anything but polite."""
    kubelet = {
        "topologyManagerPolicy": "best-effort",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0,128",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    node = Node(machine(8, 256, smt=2, sockets=2, l3=8), kubelet)
    for number in range(100):
        manifest = pod(f"pod-{number}", 1 + number % 3)
        manifest["metadata"]["name"] += HOSTILE if number % 10 == 0 else ""
        node.admit(manifest)
    return Scene("crowded", node.machine, {}, holdings_of(node), "pod-7", {0: ["cpu: 4 asked, 0 free"]})


def used() -> Scene:
    node = used_node()
    devices = {name: pool.devices for name, pool in node.devices.pools.items()}
    return Scene("used", node.machine, devices, holdings_of(node))


SCENES = {
    **{name: Scene(name, one, ODD_DEVICES if name == "odd" else {}) for name, one in MACHINES.items()},
    "crowded": crowded(),
    "admitted": explanation_scene(explain(used_node(), pod("new", 2))),
    "refused": explanation_scene(explain(used_node(), pod("new", 60, vf=200))),
    "used": used(),
}


@pytest.mark.parametrize("name", SCENES)
def test_no_text_overlaps_or_leaves_the_picture(name: str, tmp_path) -> None:
    page = tmp_path / "page.html"
    page.write_text(machine_page(SCENES[name]) + drawing_of(SCENES[name]) + browser.MEASURE, "utf-8")
    seen = browser.measured(page)

    assert seen["found"] == []
    assert seen["texts"] > 5


@pytest.mark.parametrize("width", [500, 800, 1200, 1400])
@pytest.mark.parametrize("name", ["align-up-article", "epyc-2s-nps4"])
def test_nothing_of_an_explanation_is_cut_off_or_broken_inside_a_word(name: str, width: int, tmp_path) -> None:
    """Neither the picture of eight NUMA nodes, nor tables, nor headings."""
    nic = {"example.com/nic": [{"id": "nic0", "numa": 0}]}
    node = Node(read_machine(name), {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"}, nic)
    found = [explain(node, pod("first", 2)), explain(node, pod("second", 40, nic=1))]
    page = tmp_path / "page.html"
    page.write_text(explanations_page("Why", found) + browser.FIT, "utf-8")

    assert browser.measured(page, width) == {"cut": [], "broken": [], "page": 0}
    assert "\N{REPLACEMENT CHARACTER}" not in page.read_text("utf-8")


@pytest.mark.parametrize("machine_name", ["align-up-article", "gb200"])
def test_no_text_overlaps_in_a_replay(machine_name: str, tmp_path) -> None:
    """Neither in the step that is shown at first, nor in the plots."""
    one = scenario(3, machine=machine_name)
    one["kubelet"] |= {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"}}
    report = Report([summarized(one, read_steps(one))])
    page = tmp_path / "page.html"
    page.write_text(replay_page([one], 1, report) + browser.MEASURE, "utf-8")

    assert browser.measured(page)["found"] == []


def test_each_step_of_a_replay_can_be_chosen(tmp_path) -> None:
    """Without a script of ours: the one that tries it is the test's."""
    one = scenario(5)
    page = tmp_path / "page.html"
    page.write_text(replay_page([one], 1, None) + browser.STEP, "utf-8")
    node, refused = Node.from_dict(one), {}
    for step, seen in zip(read_steps(one), browser.measured(page), strict=True):
        apply_step(node, step, refused)
        held = [holding for holding in holdings_of(node).containers if holding]
        assert seen["panels"] == 1
        assert sorted(seen["holders"]) == sorted({holding.pod for holding in held})
        assert seen["drawn"] == sum(1 for holding in held if holding.cpus or holding.devices)


@pytest.mark.parametrize("name", ["4 CPUs", "34 nodes", "crowded"])
def test_something_is_seen(name: str, tmp_path) -> None:
    page = tmp_path / "page.html"
    page.write_text(machine_page(SCENES[name]), "utf-8")
    image = browser.screenshot(page, 1300, 900)

    assert image.startswith(b"\x89PNG\r\n")
    assert len(image) > 10_000
