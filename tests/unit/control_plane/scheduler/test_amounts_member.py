"""A node of which only amounts are known.

Pods that its object does not count yet are subtracted.
"""

from __future__ import annotations

from alignup.control_plane.scheduler.node_state import AmountsMember, emptied, taken_by
from alignup.kubelet.node_resource_topology.write import fingerprint
from inputs.watched_objects import GIBI, report, watched

TOPOLOGY = report("n").topology()


def test_a_bound_pod_is_taken_from_its_numa_node() -> None:
    member = AmountsMember("n", TOPOLOGY, [])
    member.bind(watched("a", "n", cpu=2, gpu=1), 0b10, 0)
    assert member.amounts.resources["cpu"][2] == (3, 2)
    assert member.amounts.resources["example.com/gpu"][2] == (1, 0)
    assert member.amounts.resources["memory"][2] == (7 * GIBI, 7 * GIBI)
    assert member.pending == ("uid-a",)


def test_it_counts_once_however_often_it_is_seen() -> None:
    member = AmountsMember("n", TOPOLOGY, [])
    for _ in range(3):
        member.bind(watched("a", "n", cpu=2), 1, 0)
    assert member.amounts.resources["cpu"][2] == (1, 4)


def test_it_is_forgotten_when_the_object_knows_it() -> None:
    member = AmountsMember("n", TOPOLOGY, [])
    member.bind(watched("a", "n", cpu=2), 1, 0)
    left = [6 * GIBI, 8 * GIBI]
    before = member.amounts
    member.report(report("n", cpu=[1, 4], memory=left).topology(), ["uid-a"])
    assert member.amounts == before
    assert member.amounts.resources["cpu"][2] == (1, 4)


def test_it_is_forgotten_when_it_ends_before_the_object_knew_it() -> None:
    member = AmountsMember("n", TOPOLOGY, [])
    member.bind(watched("a", "n", cpu=2), 1, 0)
    member.gone("uid-a")
    assert member.amounts == TOPOLOGY.amounts


def test_pods_that_were_there_first_are_in_the_object() -> None:
    member = AmountsMember("n", TOPOLOGY, [watched("a", "n", cpu=2)])
    assert member.amounts == TOPOLOGY.amounts


def test_what_one_numa_node_lacks_comes_from_the_next() -> None:
    left = taken_by(TOPOLOGY.amounts, watched("a", cpu=6).pod, 0b10)
    assert left.resources["cpu"][2] == (1, 0)


def test_an_empty_node_has_all_it_can_allocate() -> None:
    used = report("n", cpu=[0, 1], gpu=[0, 0]).topology().amounts
    assert emptied(used) == TOPOLOGY.amounts


def test_a_fingerprint_tells_which_pods_a_report_knows() -> None:
    member = AmountsMember("n", TOPOLOGY, [watched("old", "n")])
    for name in ("a", "b", "c"):
        member.bind(watched(name, "n", cpu=1), 1, 0)
    pods = [("default", name) for name in ("old", "a", "b")]
    assert member.known_to(fingerprint(pods)) == ["uid-a", "uid-b"]
    assert member.known_to(fingerprint(pods[:1])) == []
    assert member.known_to(fingerprint([*pods, ("default", "c")])) == ["uid-a", "uid-b", "uid-c"]
    assert member.known_to(fingerprint([("default", "stranger")])) == []
