"""What members of a PodGroup were offered counts for the next ones."""

from __future__ import annotations

import json
from random import Random

import pytest

from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.group_holds import MIXED, TAKEN
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.groups import Membership
from alignup.records import replace
from inputs.watched_objects import description, report, watched

NAMES = ["a", "b", "c"]


def answers_of(*names):
    """Return answers about nodes with 3 and 4 CPUs on two NUMA nodes."""
    state = ClusterState()
    for name in names:
        empty = Description().template(json.dumps(description()), {})
        state.report_seen(report(name, described=description(), holdings=empty), 0)
    return Answers(state)


def member(name, cpu=4, group="g"):
    membership = Membership("podgroup", "default", group, object_name=group)
    return replace(watched(name, cpu=cpu), membership=membership)


def round_of(answers, names, pods, now=0.0):
    """Ask for the members one after another, as a scheduler does; return what each was offered."""
    offers = []
    for pod in pods:
        passed = answers.filter(pod, names, now).passed
        offers.append(passed)
        if not passed:
            break
    return offers


def test_each_member_is_offered_one_node_and_the_next_another() -> None:
    answers = answers_of(*NAMES)
    offers = round_of(answers, NAMES, [member(f"m{number}") for number in range(3)])
    assert [len(offer) for offer in offers] == [1, 1, 1]
    assert {offer[0] for offer in offers} == set(NAMES)
    refused = answers.filter(member("other", group="h"), NAMES, 0)
    assert refused.passed == []


def test_where_the_last_has_no_place_nothing_stays_taken_and_nobody_is_woken() -> None:
    answers = answers_of(*NAMES)
    answers.state.changed.clear()
    pods = [member(f"m{number}") for number in range(4)]
    assert round_of(answers, NAMES, pods)[-1] == []
    assert answers.state.assumed == {}
    assert answers.state.changed == set()
    assert answers.woken(1) == ""
    assert answers.filter(watched("single", cpu=4), NAMES, 1).passed == NAMES

    # once there is room, all get places
    answers = answers_of(*NAMES, "d")
    assert all(round_of(answers, [*NAMES, "d"], pods))


def test_a_new_round_begins_anew() -> None:
    answers = answers_of(*NAMES)
    pods = [member(f"m{number}") for number in range(3)]
    for now in range(3):
        assert all(round_of(answers, NAMES, pods, now))


def test_a_group_that_is_asked_for_no_more_holds_nothing_after_some_seconds() -> None:
    answers = answers_of("a")
    assert answers.filter(member("m0"), ["a"], 0).passed == ["a"]
    answers.state.changed.clear()
    assert answers.filter(watched("other", cpu=4), ["a"], 2).passed == []
    assert answers.filter(watched("other", cpu=4), ["a"], 4).passed == ["a"]

    assert answers.filter(member("m1"), ["a"], 4).passed == ["a"]
    answers.woken(10)
    assert answers.state.assumed == {}


def test_a_node_that_a_member_holds_takes_equal_ones_only() -> None:
    answers = answers_of("a", "b")
    assert answers.filter(member("m0", cpu=1), ["a", "b"], 0).passed == ["a"]
    other = answers.filter(member("m1", cpu=2), ["a", "b"], 0)
    assert other.passed == ["b"]
    assert other.failed["a"] == MIXED
    equal = answers.filter(member("m2", cpu=1), ["a", "b"], 0)
    assert equal.failed in ({"b": MIXED}, {"b": MIXED, "a": TAKEN})
    assert equal.passed == ["a"]

    # a third kind has no node left: the group is given up
    assert answers.filter(member("m3", cpu=3), ["a", "b"], 0).passed == []
    assert answers.state.assumed == {}


def test_a_member_that_may_be_bound_is_not_let_go_when_it_is_asked_for_again() -> None:
    """Its scheduler has lost the answer to its binding, and asks as often as it likes."""
    answers = answers_of(*NAMES)
    pod = member("m0")
    (name,) = answers.filter(pod, NAMES, 0).passed
    answers.holds.end(pod.pod.uid)
    answers.state.assume(replace(pod, node=name), 0)
    answers.forget(pod.pod.uid)

    for now in (1, 2):
        assert answers.filter(pod, NAMES, now).passed == [name]
    answers.woken(10)
    assert answers.state.pods.keys() == {pod.pod.uid}
    assert answers.filter(watched("other", cpu=4), [name], 10).passed == []


def test_a_member_that_is_gone_holds_nothing() -> None:
    answers = answers_of("a")
    assert answers.filter(member("m0"), ["a"], 0).passed == ["a"]
    answers.forget("uid-m0")
    assert answers.filter(watched("other", cpu=4), ["a"], 0).passed == ["a"]


@pytest.mark.parametrize("kind", ["alignup", "kueue", ""])
def test_pods_that_are_bound_one_by_one_are_offered_all_nodes(kind) -> None:
    answers = answers_of(*NAMES)
    pod = watched("p", cpu=4)
    if kind:
        pod = replace(pod, membership=Membership(kind, "default", "g", 3))
    assert answers.filter(pod, NAMES, 0).passed == NAMES
    assert answers.state.assumed == {}


@pytest.mark.parametrize("seed", range(25))
def test_what_a_whole_group_was_offered_kubelets_admit_in_any_order(seed) -> None:
    random = Random(seed)
    names = list("abcde")
    answers = answers_of(*names)
    bound = []
    for number in range(12):
        pods = [
            member(f"{number}-{index}", random.choice((1, 2, 3, 4)), str(number))
            for index in range(random.randint(1, 4))
        ]
        offers = round_of(answers, names, pods, number)
        if not offers[-1]:
            assert {pod.pod.uid for pod in answers.state.pods.values()} == {
                pod.pod.uid for pod, _ in bound
            }
            continue

        pairs = [(pod, offer[0]) for pod, offer in zip(pods, offers, strict=True)]
        random.shuffle(pairs)
        for pod, name in pairs:
            answers.holds.end(pod.pod.uid)
            assert answers.admits(pod, name)
            answers.state.assume(replace(pod, node=name), number)
            answers.forget(pod.pod.uid)
            bound.append((pod, name))

    nodes = {name: Description().template(json.dumps(description()), {}).copy() for name in names}
    assert bound
    for pod, name in bound:
        assert nodes[name].admit(pod.pod).admitted
