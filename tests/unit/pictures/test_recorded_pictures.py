"""Pictures and pages look as they did when somebody last looked at them.

`tests/vectors/pictures` has them as files that a browser shows. After a change that is meant, look
at the new ones, which the failing test names, and put them there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from alignup import draw, explain
from alignup.node.holdings import holdings_of
from alignup.pictures.drawing import explanation_scene
from alignup.pictures.picture import Scene, drawing_of, machine_page
from inputs.pictures import ODD_DEVICES, machine, odd_machine, pod, used_node

RECORDED = Path(__file__).parents[2] / "vectors" / "pictures"


def of_an_odd_machine() -> str:
    """NUMA nodes without CPUs, without anything, and devices near one, two or none."""
    return drawing_of(Scene("odd", odd_machine(), ODD_DEVICES))


def of_caches() -> str:
    return drawing_of(Scene("caches", machine(4, 32, smt=2, sockets=2, l3=2, first_id=2, gap=3)))


def of_a_node() -> str:
    """Holders of CPUs, memory and devices, one of them drawn with heavy lines, and remarks."""
    node = used_node(5)
    devices = {name: pool.devices for name, pool in node.devices.pools.items()}
    remarks = {1: ["1 CPU free", "13Gi free, of which the pod may have all or at least a part"]}
    return drawing_of(
        Scene("node-a", node.machine, devices, holdings_of(node), "pod-2", remarks=remarks)
    )


def of_a_machine_page() -> str:
    return machine_page(Scene("odd", odd_machine(), ODD_DEVICES))


def of_a_refusal() -> str:
    """What each NUMA node has of what the pod asked for, and who holds the rest."""
    return drawing_of(explanation_scene(explain(used_node(5), pod("new", 3, 9, gpu=2, vf=3))))


def of_an_admission() -> str:
    return draw(used_node().admit(pod("new", 2, gpu=1)))._repr_html_() or ""


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("odd.svg", of_an_odd_machine),
        ("caches.svg", of_caches),
        ("node.svg", of_a_node),
        ("odd.html", of_a_machine_page),
        ("refusal.svg", of_a_refusal),
        ("admission.html", of_an_admission),
    ],
)
def test_it_looks_as_it_did(name: str, drawn, tmp_path: Path) -> None:
    new = tmp_path / name
    new.write_text(drawn(), "utf-8")

    assert new.read_text("utf-8") == (RECORDED / name).read_text("utf-8"), (
        f"{new} is not as {RECORDED / name}"
    )
