"""What is drawn upon a machine is what its containers hold, where it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from alignup.node.holdings import ContainerHolding, holdings_of
from alignup.node.pictures.machine_layout import lay_out
from alignup.node.pictures.overlay import (
    amounts_layer,
    holding_layer,
    holding_title,
    places_of,
    reserved_layer,
)
from alignup.node.pictures.signs import signs_of
from pictures import texts_of, titles_of, used_node

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

NODE = used_node()
HELD = holdings_of(NODE)
PLACES = places_of(lay_out(NODE.machine, {name: pool.devices for name, pool in NODE.devices.pools.items()}))
SIGNS = signs_of(one.pod_uid for one in HELD.containers)


def corners(element: Element) -> set[tuple[int, int]]:
    """Return the left upper corners of all rectangles of all paths."""
    text = "".join(path.get("d", "") for path in element.iter("path"))
    return {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)", text)}


def test_cpus_and_devices_of_a_container_are_marked() -> None:
    first = HELD.containers[0]
    layer = holding_layer(PLACES, first, SIGNS["pod-0"], name="p7")
    keys = [("cpu", cpu) for cpu in first.cpus] + [("device", "example.com/gpu", "gpu0")]

    assert corners(layer.shapes) == {(PLACES[key].x, PLACES[key].y) for key in keys}
    assert texts_of(layer.texts) == ["A"] * len(keys)
    assert [one.get("class").split()[-1] for one in (layer.shapes, layer.texts)] == ["p7", "p7"]
    assert list(titles_of(layer.shapes)) == [
        "A: default/pod-0, container c0: CPUs 1; memory 2Gi on NUMA node 0; example.com/gpu gpu0"
    ]


def test_the_subject_is_drawn_with_heavy_lines() -> None:
    layer = holding_layer(PLACES, HELD.containers[0], SIGNS["pod-0"], is_subject=True)
    assert "au-subject" in layer.shapes.get("class")


def test_reserved_cpus_are_marked() -> None:
    layer = reserved_layer(PLACES, HELD.reserved_cpus)

    assert corners(layer.shapes) == {(PLACES["cpu", 0].x, PLACES["cpu", 0].y)}
    assert texts_of(layer.texts) == ["R"]


def test_amounts_are_told_and_add_up() -> None:
    layer = amounts_layer(PLACES, HELD, SIGNS, subject="pod-0")
    titles = list(titles_of(layer.shapes))

    assert titles[:2] == ["reserved: 1Gi", "A: default/pod-0: 2Gi"]
    assert {"33 free", "7"} <= {*texts_of(layer.texts), titles[-1].rpartition(" ")[2]}
    free = {f"{HELD.amounts('memory').places[node].free >> 30}Gi free" for node in (0, 1)}
    assert free <= set(texts_of(layer.texts))


def test_parts_of_a_bar_stay_inside_it() -> None:
    layer = amounts_layer(PLACES, HELD, SIGNS)
    bars = [box for key, box in PLACES.items() if key[0] in {"memory", "devices"}]
    for path in layer.shapes.iter("path"):
        x, y, width, height = map(int, re.findall(r"\d+", path.get("d"))[:4])
        assert any(
            box.x <= x and x + width <= box.x + box.width and (y, height) == (box.y, box.height)
            for box in bars
        )


def test_a_container_of_the_shared_pool_is_said_to_be_there() -> None:
    assert (
        holding_title(ContainerHolding("u", "default/a", "c")) == "default/a, container c: in the shared pool"
    )


def test_what_the_machine_lacks_is_passed_over() -> None:
    gone = ContainerHolding("pod-0", "default/a", "c", devices={"example.com/gpu": ("gone",)})

    assert not corners(holding_layer(PLACES, gone, SIGNS["pod-0"]).shapes)
