"""What is drawn upon a machine is what its containers hold, where it is."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree.ElementTree import tostring

from alignup.node.holdings import ContainerHolding, holdings_of
from alignup.pictures.layout import lay_out
from alignup.pictures.overlay import (
    RESERVED,
    amounts_layer,
    holding_layer,
    holding_title,
    legend,
    patterns,
    places_of,
    reserved_layer,
    signs_of,
)
from inputs.pictures import HOSTILE, texts_of, titles_of, used_node

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

NODE = used_node()
HELD = holdings_of(NODE)
PLACES = places_of(
    lay_out(NODE.machine, {name: pool.devices for name, pool in NODE.devices.pools.items()})
)
SIGNS = signs_of(container.pod_uid for container in HELD.containers)


def corners(element: Element) -> set[tuple[int, int]]:
    """Return the left upper corners of all rectangles of all paths."""
    text = "".join(path.get("d", "") for path in element.iter("path"))
    return {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)", text)}


def test_cpus_and_devices_of_a_container_are_marked() -> None:
    first = HELD.containers[0]
    layer = holding_layer(PLACES, first, SIGNS["pod-0"])
    keys = [("cpu", cpu) for cpu in first.cpus] + [("device", "example.com/gpu", "gpu0")]

    assert corners(layer.shapes) == {(PLACES[key].x, PLACES[key].y) for key in keys}
    assert texts_of(layer.texts) == ["A"] * len(keys)
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
        holding_title(ContainerHolding("u", "default/a", "c"))
        == "default/a, container c: in the shared pool"
    )


def test_what_the_machine_lacks_is_passed_over() -> None:
    gone = ContainerHolding("pod-0", "default/a", "c", devices={"example.com/gpu": ("gone",)})

    assert not corners(holding_layer(PLACES, gone, SIGNS["pod-0"]).shapes)


def test_letters_go_on_and_are_all_different() -> None:
    signs = signs_of(str(number) for number in range(1000))
    texts = [sign.text for sign in signs.values()]

    assert texts[:2] == ["A", "B"]
    assert texts[22:24] == ["Z", "AA"]
    assert len(set(texts)) == 1000
    assert not set("IOR") & set("".join(texts))


def test_a_holder_that_comes_twice_has_one_sign() -> None:
    assert [sign.text for sign in signs_of(["x", "y", "x"]).values()] == ["A", "B"]


def test_neighbours_differ_in_pattern_and_colour() -> None:
    drawn = [sign.pattern() for sign in signs_of(map(str, range(24))).values()]
    motifs = [[path.get("d") for path in shapes] for shapes in drawn]
    colours = [shapes[0].get("fill") for shapes in drawn]

    assert len({tostring(shapes) for shapes in drawn}) == 24
    assert all(motif != neighbour for motif, neighbour in pairwise(motifs))
    assert all(colour != neighbour for colour, neighbour in pairwise(colours))


def test_each_pattern_is_defined_once() -> None:
    signs = signs_of(map(str, range(100)))
    defined = {pattern.get("id") for pattern in patterns([RESERVED, *signs.values()])}

    assert len(patterns(signs.values())) == 24
    assert {f"url(#{name})" for name in defined} == {
        sign.fill for sign in [RESERVED, *signs.values()]
    }


def test_every_holder_has_an_entry_with_its_sign() -> None:
    signs = signs_of(["a", "b", "c"])
    box, layer = legend({sign: f"default/{name}" for name, sign in signs.items()}, signs["b"], 400)

    assert texts_of(layer.texts) == [
        "free, or in the shared pool",
        *("R", "reserved", "A", "default/a", "B", "default/b", "C", "default/c"),
    ]
    assert [shape.get("class") for shape in layer.shapes].count("au-held au-subject") == 1
    assert box.width <= 400


def test_a_long_name_is_cut_and_told_in_full_by_the_tooltip() -> None:
    [sign] = signs_of(["a"]).values()
    _, layer = legend({sign: HOSTILE}, None, 400)

    assert texts_of(layer.texts)[-1].endswith("…")
    assert list(titles_of(layer.shapes))[-1].endswith("x" * 300)


def test_a_hundred_holders_have_room() -> None:
    signs = signs_of(map(str, range(100)))
    box, _ = legend({sign: f"default/pod-{name}" for name, sign in signs.items()}, None, 1200)

    assert box.width <= 1200
    assert box.height < 500
