"""A node that reports: its copy here is as far as the kubelet is, or as it soon will be."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from alignup.control_plane.api_server.objects import WatchedPod, decode_pod
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.errors import AlignupError, InputError
from alignup.kubelet.node_resource_topology.report import (
    Description,
    Holdings,
    decode_holdings,
    holdings_of,
    restored_node,
)
from inputs.strategies import examples
from inputs.watched_objects import READER, description, pod_object, watched

EMPTY = Description().template(json.dumps(description()), {})

STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["come", "go", "report"])), max_size=25
)

SIZES = (
    {"cpu": 1},
    {"cpu": 2, "gpu": 1},
    {"cpu": 3, "memory": "3Gi"},
    {"cpu": 4},
    {"gpu": 1},
    {"memory": "6Gi"},
)


def member(kubelet=None) -> ExactMember:
    return ExactMember("n", EMPTY, [], Holdings([]) if kubelet is None else holdings_of(kubelet))


def test_a_bound_pod_counts_at_once() -> None:
    found = member()
    found.bind(watched("a", "n", cpu=3), 0)
    assert str(found.node.cpu.free_cpus) == "4-7"
    assert found.pending == ("uid-a",)


def test_what_a_pod_held_stays_taken_until_the_report_leaves_it_out() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    found = member(kubelet)
    found.bind(watched("a", "n", cpu=3), 0)
    assert found.pending == ()
    found.gone("uid-a", 0)
    assert str(found.node.cpu.free_cpus) == "4-7"
    kubelet.remove("uid-a")
    assert found.report(holdings_of(kubelet))
    assert str(found.node.cpu.free_cpus) == "1-7"


def test_what_no_report_ever_listed_is_free_at_once() -> None:
    found = member()
    found.bind(watched("a", "n", cpu=3), 0)
    found.gone("uid-a", 0)
    assert str(found.node.cpu.free_cpus) == "1-7"


def test_a_node_that_reports_nothing_goes_by_the_order_of_its_pods() -> None:
    found = ExactMember("n", EMPTY, [watched("a", "n", cpu=3)], None)
    found.gone("uid-a", 0)
    assert str(found.node.cpu.free_cpus) == "1-7"
    assert not found.is_uncertain


def test_a_place_that_differs_from_the_report_is_put_right() -> None:
    kubelet = EMPTY.copy()
    for name in ("old", "a"):  # here `old` was never seen
        kubelet.admit(watched(name, cpu=3).pod)
    kubelet.remove("uid-old")
    found = member()
    found.bind(watched("a", "n", cpu=3), 0)
    assert str(found.node.cpu.free_cpus) == "4-7"
    assert found.report(holdings_of(kubelet))
    assert found.node.cpu.free_cpus == kubelet.cpu.free_cpus
    assert found.node.memory.free == kubelet.memory.free


def test_the_node_is_uncertain_while_one_pod_leaves_and_another_is_not_reported() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    found = member(kubelet)
    found.bind(watched("a", "n", cpu=3), 0)
    found.bind(watched("b", "n", cpu=3), 0)
    assert not found.is_uncertain
    found.gone("uid-a", 0)
    assert found.is_uncertain
    kubelet.admit(watched("b", cpu=3).pod)
    kubelet.remove("uid-a")
    assert found.report(holdings_of(kubelet))
    assert not found.is_uncertain


def test_the_node_is_uncertain_after_the_end_of_a_pod_that_no_report_listed_until_one_lists_those_behind_it() -> (
    None
):
    """Its kubelet may have admitted them before or after that end."""
    found = member()
    for name in "abc":
        found.bind(watched(name, "n", cpu=2), 0)

    found.gone("uid-c", 0)
    assert not found.is_uncertain
    found.gone("uid-a", 0)
    assert found.is_uncertain
    kubelet = EMPTY.copy()
    kubelet.admit(watched("b", cpu=2).pod)
    assert found.report(holdings_of(kubelet))
    assert not found.is_uncertain
    assert found.node.cpu.free_cpus == kubelet.cpu.free_cpus


def test_the_place_of_pods_behind_one_that_ended_is_not_doubted_for_ever() -> None:
    found = member()
    for name in "ab":
        found.bind(watched(name, "n", cpu=2), 0)
    found.gone("uid-a", 5)
    assert not found.expire(5)
    assert found.is_uncertain
    assert found.expire(6)
    assert not found.is_uncertain
    assert not found.expire(7)


def test_a_report_that_never_comes_is_not_waited_for_for_ever() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    found = member(kubelet)
    found.bind(watched("a", "n", cpu=3), 0)
    found.gone("uid-a", 5)
    assert not found.expire(5)
    assert found.expire(6)
    assert str(found.node.cpu.free_cpus) == "1-7"


def test_a_report_that_lists_a_pod_that_was_waited_for_too_long_is_believed_again() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    found = member(kubelet)
    found.bind(watched("a", "n", cpu=3), 0)
    found.gone("uid-a", 5)
    assert found.expire(6)
    assert found.report(holdings_of(kubelet))
    assert str(found.node.cpu.free_cpus) == "4-7"


def test_a_report_of_a_pod_that_nobody_bound_here_is_believed() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("static", cpu=2, gpu=1).pod)
    found = member(kubelet)
    assert found.node.cpu.free_cpus == kubelet.cpu.free_cpus
    assert found.node.devices.free == kubelet.devices.free


def two_containers(name: str, **limits) -> WatchedPod:
    """A pod of two containers that ask for the same."""
    made = pod_object(name, "n", **limits)
    first = made["spec"]["containers"][0]
    made["spec"]["containers"] = [first, {**first, "name": "second"}]
    return READER.read(decode_pod(json.dumps(made).encode()))


@pytest.mark.parametrize("missing", ["second container", "memory of the first", "device"])
def test_a_pod_of_which_a_report_lists_a_part_is_not_reported_yet(missing) -> None:
    """A kubelet writes its state files after each container, and for seconds has given to the first one only."""
    kubelet = EMPTY.copy()
    pod = two_containers("a", cpu=1, gpu=1)
    kubelet.admit(pod.pod)
    (whole,) = holdings_of(kubelet).pods
    main = whole.containers["main"]
    given = {
        "second container": {"main": main},
        "memory of the first": {"main": structs.replace(main, memory={})},
        "device": {
            **whole.containers,
            "second": structs.replace(whole.containers["second"], devices={}),
        },
    }[missing]
    part = Holdings([structs.replace(whole, containers=given)])
    for found in (member(), ExactMember("n", EMPTY, [pod], part)):
        found.bind(pod, 0)
        found.report(part)
        assert found.pending == ("uid-a",)
        assert holdings_of(found.node).pods == [whole]
        found.report(Holdings([whole]))
        assert found.pending == ()
        found.report(part)  # the containers of a pod end one after another, too
        assert found.pending == ()


def with_init_container(name: str, memory: str) -> WatchedPod:
    """A pod whose init container asks for more than the one after it."""
    made = pod_object(name, "n", cpu=2)
    limits = {"cpu": "3", "memory": memory}
    made["spec"]["initContainers"] = [
        {"name": "init", "resources": {"limits": limits, "requests": limits}}
    ]
    return READER.read(decode_pod(json.dumps(made).encode()))


def test_memory_of_an_init_container_that_has_ended_is_in_no_report() -> None:
    """The memory manager gives it back when the next container starts.

    Its CPUs stay in the state.
    """
    kubelet = EMPTY.copy()
    pod = with_init_container("a", "3Gi")
    kubelet.admit(pod.pod)
    kubelet.started("uid-a", "main")
    late = ExactMember("n", EMPTY, [pod], holdings_of(kubelet))
    assert late.pending == ()
    found = member()
    found.bind(pod, 0)
    assert found.report(holdings_of(kubelet))
    for one in (found, late):
        assert one.pending == ()
        assert one.node.cpu.free_cpus == kubelet.cpu.free_cpus
        assert one.node.memory.free == kubelet.memory.free


def test_a_part_of_a_pod_that_was_refused_here_is_not_reported_yet() -> None:
    """Other pods were there when this copy admitted it."""
    found = member()
    found.bind(watched("big", "n", cpu=3, memory="6Gi"), 0)
    found.bind(watched("bigger", "n", cpu=4, memory="6Gi"), 0)
    pod = two_containers("a", cpu=2)
    found.bind(pod, 0)
    kubelet = EMPTY.copy()
    kubelet.admit(pod.pod)
    (whole,) = holdings_of(kubelet).pods
    found.report(Holdings([structs.replace(whole, containers={"main": whole.containers["main"]})]))
    assert "uid-a" not in {held.uid for held in holdings_of(found.node).pods if held.containers}
    found.report(Holdings([whole]))
    assert whole in holdings_of(found.node).pods


def test_a_report_that_does_not_fit_changes_nothing() -> None:
    found = member()
    found.bind(watched("a", "n", cpu=3), 0)
    wrong = decode_holdings(
        '{"pods": [{"uid": "x", "name": "x", "containers": {"c": {"devices": {"no": ["1"]}}}}]}'
    )
    with pytest.raises(AlignupError):
        found.report(wrong)
    assert str(found.node.cpu.free_cpus) == "4-7"


@pytest.mark.parametrize("text", ["{", "[]", '{"pods": 3}', '{"pods": [{"uid": 3}]}'])
def test_holdings_of_another_form_are_refused_in_one_line(text) -> None:
    with pytest.raises(InputError, match=r"alignup\.dev/holdings"):
        decode_holdings(text)


@examples(100)
@given(STEPS)
def test_after_a_report_the_copy_is_the_kubelet_whatever_happened_before(steps) -> None:
    """A kubelet that admits and frees in the order of events, and reports now and then."""
    kubelet, found = EMPTY.copy(), member()
    for number, what in steps:
        there = {one.uid for one in kubelet.pods}
        pod = watched(f"p{number}", "n", **SIZES[number])
        if what == "come" and pod.pod.uid not in there and pod.pod.uid not in found.pods:
            admitted = bool(kubelet.admit(pod.pod))
            found.bind(pod, 0)
            if not admitted:
                found.gone(pod.pod.uid, 0)
        elif what == "go" and pod.pod.uid in there:
            kubelet.remove(pod.pod.uid)
            found.gone(pod.pod.uid, 0)
        elif what == "report":
            found.report(holdings_of(kubelet))

    found.report(holdings_of(kubelet))
    held = {one.uid: one for one in holdings_of(kubelet).pods}
    assert {one.uid: one for one in holdings_of(found.node).pods} == held
    assert found.node.memory.free == kubelet.memory.free


def test_holdings_come_back_from_json_as_they_were() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3, gpu=1).pod)
    holdings = decode_holdings(msgspec.json.encode(holdings_of(kubelet)).decode())
    assert holdings == holdings_of(kubelet)
    assert holdings_of(restored_node(EMPTY, holdings, {})) == holdings


def test_pods_that_hold_nothing_are_never_waited_for() -> None:
    """A kubelet's state files do not list them."""
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    found = member(kubelet)
    found.bind(watched("a", "n", cpu=3), 0)
    shared = watched("shared", "n", cpu="500m", memory="0")
    found.bind(shared, 0)
    assert found.pending == ()
    found.gone("uid-a", 0)
    assert not found.is_uncertain
    found.gone("uid-shared", 0)
    assert "uid-shared" not in found.pods
