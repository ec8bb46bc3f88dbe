"""Labels by which nodes are places of single pods."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from alignup.control_plane.gates.place_labels import PlaceLabels
from alignup.control_plane.gates.waiting_pods import PLACE_LABEL
from inputs.keepers import keeper_of, labels, let_go, node
from inputs.waiting_pods import waiting_pod

if TYPE_CHECKING:
    from alignup.control_plane.gates.decisions import Label


def test_a_label_that_is_refused_is_asked_for_again_some_time_later() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("a", is_unschedulable=True), 2)
    (label,) = keeper.decide(2)
    keeper.label_refused(label)
    assert keeper.decide(2.5) == []
    assert keeper.decide(3.5) == [label]


def test_a_node_that_is_gone_gets_no_label() -> None:
    keeper = keeper_of("a", "b", "c")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("a", is_unschedulable=True), 2)
    (label,) = keeper.decide(2)
    keeper.node_gone("b")
    keeper.label_refused(label)
    # it gets yet another one, and the one that is gone is not asked for
    assert labels(keeper.decide(4)) == [("c", "p", True)]
    assert labels(keeper.decide(6)) == []


def test_a_label_that_another_one_sets_late_is_taken_away() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("b", labels={f"{PLACE_LABEL}uid-p": "true"}), 3)
    assert labels(keeper.decide(3)) == [("b", "p", False)]
    assert keeper.places["uid-p"].nodes == ("a",)


class LabelledNodes:
    """Nodes as an API server has them, and wishes that change."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.own = PlaceLabels()
        self.keys = [f"{PLACE_LABEL}{number}" for number in range(3)]
        self.nodes: dict[str, set[str]] = {name: set() for name in "abc"}
        self.wishes: set[tuple[str, str]] = set()
        self.patches: list[Label] = []

    def step(self) -> None:
        name = self.random.choice(list(self.nodes))
        match self.random.randrange(10):
            case 0 | 1 | 2:
                self.wishes ^= {(name, self.random.choice(self.keys))}
            case 3:
                # it goes before its labels are seen, and comes back
                for patch in [patch for patch in self.patches if patch.node == name]:
                    self.patches.remove(patch)
                self.nodes[name] = set()
                self.own.node_gone(name)
                self.see(name)
            case 4 if self.patches:
                self.own.refused(self.patches.pop(self.random.randrange(len(self.patches))))
            case 5:
                self.own.ask_refused_again()
            case 6 | 7 if self.patches:
                self.carry_out(self.patches.pop(0))
            case _:
                self.patches += self.own.to_write(self.wishes)

    def see(self, name: str) -> None:
        uids = self.own.seen(name, dict.fromkeys([*self.nodes[name], "other"], "true"))
        assert {PLACE_LABEL + uid for uid in uids} == self.nodes[name]

    def carry_out(self, patch: Label) -> None:
        labels = self.nodes[patch.node]
        labels ^= {patch.key} if patch.is_set is not (patch.key in labels) else set()
        self.see(patch.node)

    def settle(self) -> None:
        for patch in self.patches:
            self.carry_out(patch)
        self.own.ask_refused_again()
        for patch in self.own.to_write(self.wishes):
            self.carry_out(patch)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_written_is_what_is_wished_whatever_comes_between(seed) -> None:
    """Wishes change, patches come late or are refused, nodes go: in the end all is as wished."""
    world = LabelledNodes(seed)
    for _ in range(60):
        world.step()
    world.settle()
    assert world.own.to_write(world.wishes) == []
    present = {(name, key) for name, labels in world.nodes.items() for key in labels}
    assert present == world.wishes
    for key in world.keys:
        assert world.own.nodes_with(key) == {name for name, wished in present if wished == key}


def test_a_label_that_names_an_old_version_is_asked_for_again_once_the_node_is_seen() -> None:
    own = PlaceLabels()
    wishes = [("a", f"{PLACE_LABEL}p")]
    own.seen("a", {}, "1")
    (label,) = own.to_write(wishes)
    assert label.version == "1"
    own.refused(label, is_outdated=True)
    assert own.to_write(wishes) == []
    own.seen("a", {}, "2")
    (label,) = own.to_write(wishes)
    assert label.version == "2"

    # it was seen before the answer came
    own.seen("a", {}, "3")
    own.refused(label, is_outdated=True)
    (label,) = own.to_write(wishes)
    assert label.version == "3"

    # nothing is seen for long
    own.refused(label, is_outdated=True)
    own.ask_refused_again()
    assert own.to_write(wishes) == [label]


def test_a_label_that_is_refused_for_another_reason_waits_though_the_node_changes() -> None:
    own = PlaceLabels()
    wishes = [("a", f"{PLACE_LABEL}p")]
    own.seen("a", {}, "1")
    (label,) = own.to_write(wishes)
    own.refused(label)
    own.seen("a", {}, "2")
    assert own.to_write(wishes) == []


def test_requests_that_are_forgotten_are_made_again() -> None:
    own = PlaceLabels()
    (label,) = own.to_write([("a", f"{PLACE_LABEL}p")])
    assert own.to_write([("a", f"{PLACE_LABEL}p")]) == []
    own.forget_requests()
    assert own.to_write([("a", f"{PLACE_LABEL}p")]) == [label]
