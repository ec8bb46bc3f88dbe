"""A machine is laid out so that every part is there once, and can be read.

Each is within the part that it belongs to.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations

import pytest

from alignup.machine.device_inventory import Device
from alignup.machine.load import catalog_entries
from alignup.machine.machine import machine_from_dict
from alignup.pictures.boxes import CELL_FONT, FONT, Box, text_width, walk
from alignup.pictures.layout import lay_out
from inputs.machines import machine_of
from inputs.pictures import MACHINES, ODD_DEVICES, machine, odd_machine, overlap

WHOLE = pytest.mark.parametrize("name", MACHINES)


@cache
def layout(name: str) -> Box:
    """Return the layout of a machine."""
    return lay_out(MACHINES[name], ODD_DEVICES if name == "odd" else {})


def labels(box: Box) -> list[str]:
    return [inner_box.label for inner_box in walk(box) if inner_box.label]


def overlapping(box: Box) -> list[tuple[Box, Box]]:
    """Return the pairs of neighbours that overlap, in this box and those inside it."""
    pairs = [pair for pair in combinations(box.children, 2) if overlap(*pair)]
    return pairs + [pair for child in box.children for pair in overlapping(child)]


@WHOLE
def test_every_cpu_is_there_once(name: str) -> None:
    drawn_machine = MACHINES[name]
    numbers = {cpu for node in drawn_machine.numa_nodes for core in node.cores for cpu in core.cpus}
    numbers |= {cpu for core in drawn_machine.unassigned_cores for cpu in core.cpus}

    drawn = Counter(int(box.label) for box in walk(layout(name)) if box.kind == "cpu")
    assert drawn == dict.fromkeys(numbers, 1)


@WHOLE
def test_boxes_lie_within_each_other_and_beside_each_other(name: str) -> None:
    assert overlapping(layout(name)) == []
    for box in walk(layout(name)):
        for child in box.children:
            assert 0 <= child.x <= child.x + child.width <= box.width, (box.label, child)
            assert 0 <= child.y <= child.y + child.height <= box.height, (box.label, child)


@WHOLE
def test_cpus_of_a_core_touch_each_other(name: str) -> None:
    """So that one sees which are threads of one core."""
    for box in walk(layout(name)):
        if box.kind == "core":
            ends = [child.y + child.height for child in box.children]
            assert [child.y for child in box.children][1:] == ends[:-1]


@WHOLE
def test_labels_fit_their_boxes(name: str) -> None:
    for box in walk(layout(name)):
        size = FONT if box.kind in {"socket", "node", "l3", "apart"} else CELL_FONT
        assert text_width(box.label, size) <= box.width, box


@WHOLE
def test_every_numa_node_is_named(name: str) -> None:
    """By a box of its own, or in the line of those that have nothing."""
    node_ids = {box.key[1] for box in walk(layout(name)) if box.key[:1] == ("node",)}
    empty = " ".join(
        label for label in labels(layout(name)) if label.endswith("no CPUs, no memory")
    )
    for node in MACHINES[name].numa_nodes:
        if node.cores or node.memory:
            assert node.id in node_ids
        else:
            assert empty


@WHOLE
def test_the_picture_is_of_a_shape_that_screens_have(name: str) -> None:
    box = layout(name)
    assert 0.2 <= box.width / box.height <= 6


@WHOLE
def test_a_machine_fits_on_a_slide(name: str) -> None:
    """1200 pixels wide, so that no letter shrinks there, but of some that have too many CPUs."""
    count = MACHINES[name].cpus.bit_count()
    assert layout(name).width <= (1200 if count <= 1024 else 2460)


@pytest.mark.parametrize("name", list(catalog_entries()))
def test_machines_of_the_catalog_fit_on_a_slide(name: str) -> None:
    entry = catalog_entries()[name]
    assert lay_out(entry.machine, entry.devices).width <= 1200


def test_what_is_short_stands_out() -> None:
    """Remarks on what a NUMA node cannot supply, and names of resources."""
    remarks = {0: ["✓ cpu: 1 asked, 2 free", "✗ gpu: 1 asked, 0 free"]}
    devices = {"gpu": [Device("gpu0", (0,))], "nic": [Device("nic0", (0,))]}
    box = lay_out(machine(2, 4), devices, remarks, ["gpu"])
    assert [part.label for part in walk(box) if part.kind == "short"] == [
        "✗ gpu: 1 asked, 0 free",
        "gpu",
    ]


def test_an_odd_machine_leaves_nothing_out() -> None:
    text = labels(lay_out(odd_machine(), ODD_DEVICES))

    for label in (
        "sockets 0, 1",
        "NUMA nodes without CPUs",
        "NUMA nodes 253, 255: no CPUs, no memory",
        "512 x 2Mi",
        "2 x 1Gi",
        "5Gi memory",
        "gpu0",
        "near NUMA nodes 0, 8",
        "without NUMA node",
        "100 devices",
        "GPU 17:00.0",
        "network 10000:01:00.0",
        "in no NUMA node: nothing is placed here",
        "offline: CPUs 9-10",
    ):
        assert label in text, label


def test_nodes_without_cpus_stand_in_the_nearest_socket() -> None:
    sockets = [box for box in walk(layout("gb200")) if box.kind == "socket"]
    nodes = [
        [inner_box.key[1] for inner_box in walk(box) if inner_box.kind == "node"] for box in sockets
    ]

    assert [box.label for box in sockets] == ["socket 0", "socket 1"]
    assert nodes == [[0, 2, 10], [1, 18, 26]]


def test_caches_are_drawn_where_they_are_known() -> None:
    assert "L3 1" in labels(lay_out(machine(1, 8, l3=4), {}))
    assert not any(label.startswith("L3") for label in labels(lay_out(machine(1, 8), {})))


def test_remarks_stand_in_their_node() -> None:
    box = lay_out(machine(2, 4), {}, {1: ["cpu: 4 asked, 2 free"]})
    nodes = [node for node in walk(box) if node.kind == "node"]

    assert ["cpu: 4 asked, 2 free" in labels(node) for node in nodes] == [False, True]


def test_a_node_that_is_as_near_to_two_sockets_stands_in_neither() -> None:
    described = machine_of(2, 2)
    for node in described["numaNodes"]:
        node["distances"] = [*node["distances"], 30]
    described["numaNodes"].append(
        {"id": 2, "memory": 1 << 30, "cores": [], "distances": [30, 30, 10]}
    )
    box = lay_out(machine_from_dict(described), {})
    sockets = [socket for socket in walk(box) if socket.kind == "socket"]
    homes = {
        socket.label: [node.key[1] for node in walk(socket) if node.kind == "node"]
        for socket in sockets
    }
    assert homes == {"socket 0": [0], "socket 1": [1], "NUMA nodes without CPUs": [2]}
