"""What a real browser makes of the pictures.

No text overlaps another or leaves the picture, and something is seen.
"""

from __future__ import annotations

import pytest

from alignup import Node, explain, read_machine
from alignup.node.holdings import holdings_of
from alignup.pictures.drawing import explanation_scene, explanations_page
from alignup.pictures.picture import Scene, drawing_of, machine_page
from inputs.pictures import HOSTILE, MACHINES, ODD_DEVICES, machine, pod, used_node
from running import browser

pytestmark = pytest.mark.slow


def crowded() -> Scene:
    """Return a node of 256 CPUs that holds a hundred pods.

    Some of them have names that are anything but polite.
    """
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

    return Scene(
        "crowded", node.machine, {}, holdings_of(node), "pod-7", {0: ["cpu: 4 asked, 0 free"]}
    )


def used() -> Scene:
    node = used_node()
    devices = {name: pool.devices for name, pool in node.devices.pools.items()}
    return Scene("used", node.machine, devices, holdings_of(node))


SCENES = {
    **{
        name: Scene(name, machine, ODD_DEVICES if name == "odd" else {})
        for name, machine in MACHINES.items()
    },
    "crowded": crowded(),
    "admitted": explanation_scene(explain(used_node(), pod("new", 2))),
    "refused": explanation_scene(explain(used_node(), pod("new", 60, vf=200))),
    "used": used(),
}


@pytest.mark.parametrize("name", SCENES)
def test_no_text_overlaps_or_leaves_the_picture(name: str, tmp_path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        machine_page(SCENES[name]) + drawing_of(SCENES[name]) + browser.MEASURE, "utf-8"
    )
    seen = browser.measured(page)

    assert seen["found"] == []
    assert seen["texts"] > 5


@pytest.mark.parametrize("width", [500, 800, 1200, 1400])
@pytest.mark.parametrize("name", ["align-up-article", "epyc-2s-nps4"])
def test_nothing_of_an_explanation_is_cut_off_or_broken_inside_a_word(
    name: str, width: int, tmp_path
) -> None:
    """Neither the picture of eight NUMA nodes, nor tables, nor headings."""
    nic = {"example.com/nic": [{"id": "nic0", "numa": 0}]}
    node = Node(
        read_machine(name),
        {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"},
        nic,
    )
    explanations = [explain(node, pod("first", 2)), explain(node, pod("second", 40, nic=1))]
    page = tmp_path / "page.html"
    page.write_text(explanations_page("Why", explanations) + browser.FIT, "utf-8")

    assert browser.measured(page, width) == {"cut": [], "broken": [], "page": 0}
    assert "\N{REPLACEMENT CHARACTER}" not in page.read_text("utf-8")


@pytest.mark.parametrize("name", ["4 CPUs", "34 nodes", "crowded"])
def test_something_is_seen(name: str, tmp_path) -> None:
    page = tmp_path / "page.html"
    page.write_text(machine_page(SCENES[name]), "utf-8")
    image = browser.screenshot(page, 1300, 900)

    assert image.startswith(b"\x89PNG\r\n")
    assert len(image) > 10_000
