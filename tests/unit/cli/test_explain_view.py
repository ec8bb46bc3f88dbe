"""Tables of an explanation: what is equal is told once, and amounts in one unit."""

from __future__ import annotations

from alignup.cli.explain_view import amounts_words, equal_places, nodes_words, offered_words, tie
from alignup.node.explain.explanation import PlacePart, ResourcePart
from alignup.topology_manager.refusal_message import ResourceView

GIBI = 1 << 30


def test_equal_places_are_told_once_and_empty_ones_not_at_all() -> None:
    places = [
        PlacePart((0,), 1, 0, 1),
        PlacePart((2,), 1, 0, 1),
        PlacePart((), 1, 0, 1),
        PlacePart((3,), 0, 0, 0),
    ]

    assert [name for name, _ in equal_places([*places, PlacePart((0, 1), 1, 0, 0)])] == [
        "node 0,2",
        "no node",
        "node 0+1",
    ]


def test_amounts_of_a_resource_have_one_unit() -> None:
    places = (PlacePart((0,), 4 * GIBI, 0, GIBI // 2),)
    memory = amounts_words(ResourcePart("memory", "c", "memory", GIBI, places))
    cpus = amounts_words(ResourcePart("cpu", "c", "cpu", 2))

    assert [memory(GIBI), memory(GIBI // 2), memory(0)] == ["1Gi", "0.5Gi", "0"]
    assert cpus(2) == "2"


def test_offers_in_words() -> None:
    def words(preferred=(), other=(), *, anywhere=False, is_whole=True) -> str:
        view = ResourceView("x", preferred, other, anywhere, len(preferred), len(other), "", is_whole)
        return offered_words(ResourcePart("x", "c", "p", 1, (), view))

    assert words(((0,), (1,)), ((0, 1),)) == "0 or 1; 0+1 (not preferred)"
    assert words(anywhere=True) == "any"
    assert words() == "none"
    sets = tuple((number,) for number in range(7))
    assert words(sets) == "0 or 1 or 2 or 3 or 3 more"
    assert words(sets, is_whole=False) == "0 or 1 or 2 or 3 or others"
    assert offered_words(ResourcePart("x", "c", "", 1)) == "not given out by NUMA node here"


def test_nodes_and_ties_in_words() -> None:
    assert (nodes_words(None), nodes_words((1,)), nodes_words((0, 2))) == ("any node", "node 1", "nodes 0+2")
    assert tie((0,), ("a", "b"), usable=True) == "NUMA node 0 gives memory by itself only: memory of a, b"
    assert tie((0, 1), (), usable=False) == (
        "NUMA nodes 0+1 give memory to nobody new together: a binding that a pod left behind"
    )
