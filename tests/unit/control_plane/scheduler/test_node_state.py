"""Nodes as they are known here.

The copy of one that reports is as far as its kubelet is, or as it soon will be. Of one of which
only amounts are known, pods that its object does not count yet are subtracted.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from alignup.control_plane.api_server.objects import WatchedPod, decode_pod
from alignup.control_plane.scheduler.node_state import (
    AmountsMember,
    ExactMember,
    emptied,
    taken_by,
)
from alignup.errors import AlignupError, InputError
from alignup.kubelet.node_resource_topology.report import (
    Description,
    Holdings,
    decode_holdings,
    holdings_of,
    restored_node,
)
from alignup.kubelet.node_resource_topology.write import fingerprint
from inputs.strategies import examples
from inputs.watched_objects import GIBI, READER, description, pod_object, report, watched

EMPTY = Description().template(json.dumps(description()), {})

TOPOLOGY = report("n").topology()

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
    holdings = Holdings([])
    if kubelet is not None:
        holdings = holdings_of(kubelet)
    return ExactMember("n", EMPTY, [], holdings)


def test_a_bound_pod_counts_at_once() -> None:
    node_copy = member()
    node_copy.bind(watched("a", "n", cpu=3), 0)
    assert str(node_copy.node.cpu.free_cpus) == "4-7"
    assert node_copy.pending == ("uid-a",)


def test_what_a_pod_held_stays_taken_until_the_report_leaves_it_out() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    node_copy = member(kubelet)
    node_copy.bind(watched("a", "n", cpu=3), 0)
    assert node_copy.pending == ()
    node_copy.gone("uid-a", 0)
    assert str(node_copy.node.cpu.free_cpus) == "4-7"
    kubelet.remove("uid-a")
    assert node_copy.report(holdings_of(kubelet))
    assert str(node_copy.node.cpu.free_cpus) == "1-7"


def test_what_no_report_ever_listed_is_free_at_once() -> None:
    node_copy = member()
    node_copy.bind(watched("a", "n", cpu=3), 0)
    node_copy.gone("uid-a", 0)
    assert str(node_copy.node.cpu.free_cpus) == "1-7"


def test_a_node_that_reports_nothing_goes_by_the_order_of_its_pods() -> None:
    node_copy = ExactMember("n", EMPTY, [watched("a", "n", cpu=3)], None)
    node_copy.gone("uid-a", 0)
    assert str(node_copy.node.cpu.free_cpus) == "1-7"
    assert not node_copy.is_uncertain


def test_a_place_that_differs_from_the_report_is_put_right() -> None:
    kubelet = EMPTY.copy()
    for name in ("old", "a"):  # here `old` was never seen
        kubelet.admit(watched(name, cpu=3).pod)
    kubelet.remove("uid-old")
    node_copy = member()
    node_copy.bind(watched("a", "n", cpu=3), 0)
    assert str(node_copy.node.cpu.free_cpus) == "4-7"
    assert node_copy.report(holdings_of(kubelet))
    assert node_copy.node.cpu.free_cpus == kubelet.cpu.free_cpus
    assert node_copy.node.memory.free == kubelet.memory.free


def test_the_node_is_uncertain_while_one_pod_leaves_and_another_is_not_reported() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    node_copy = member(kubelet)
    node_copy.bind(watched("a", "n", cpu=3), 0)
    node_copy.bind(watched("b", "n", cpu=3), 0)
    assert not node_copy.is_uncertain
    node_copy.gone("uid-a", 0)
    assert node_copy.is_uncertain
    kubelet.admit(watched("b", cpu=3).pod)
    kubelet.remove("uid-a")
    assert node_copy.report(holdings_of(kubelet))
    assert not node_copy.is_uncertain


def test_the_node_is_uncertain_after_the_end_of_an_unlisted_pod_until_those_behind_it_are() -> None:
    """Its kubelet may have admitted them before or after that end."""
    node_copy = member()
    for name in "abc":
        node_copy.bind(watched(name, "n", cpu=2), 0)

    node_copy.gone("uid-c", 0)
    assert not node_copy.is_uncertain
    node_copy.gone("uid-a", 0)
    assert node_copy.is_uncertain
    kubelet = EMPTY.copy()
    kubelet.admit(watched("b", cpu=2).pod)
    assert node_copy.report(holdings_of(kubelet))
    assert not node_copy.is_uncertain
    assert node_copy.node.cpu.free_cpus == kubelet.cpu.free_cpus


def test_the_place_of_pods_behind_one_that_ended_is_not_doubted_for_ever() -> None:
    node_copy = member()
    for name in "ab":
        node_copy.bind(watched(name, "n", cpu=2), 0)
    node_copy.gone("uid-a", 5)
    assert not node_copy.expire(5)
    assert node_copy.is_uncertain
    assert node_copy.expire(6)
    assert not node_copy.is_uncertain
    assert not node_copy.expire(7)


def test_a_report_that_never_comes_is_not_waited_for_for_ever() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    node_copy = member(kubelet)
    node_copy.bind(watched("a", "n", cpu=3), 0)
    node_copy.gone("uid-a", 5)
    assert not node_copy.expire(5)
    assert node_copy.expire(6)
    assert str(node_copy.node.cpu.free_cpus) == "1-7"
    assert not node_copy.expire(7)


def test_a_pod_that_had_ended_and_is_seen_again_is_waited_for_no_longer() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    node_copy = member(kubelet)
    node_copy.bind(watched("a", "n", cpu=3), 0)
    node_copy.gone("uid-a", 5)
    node_copy.bind(watched("a", "n", cpu=3), 6)
    assert not node_copy.is_uncertain
    assert not node_copy.expire(100)
    assert str(node_copy.node.cpu.free_cpus) == "4-7"


def test_a_report_that_lists_a_pod_that_was_waited_for_too_long_is_believed_again() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    node_copy = member(kubelet)
    node_copy.bind(watched("a", "n", cpu=3), 0)
    node_copy.gone("uid-a", 5)
    assert node_copy.expire(6)
    assert node_copy.report(holdings_of(kubelet))
    assert str(node_copy.node.cpu.free_cpus) == "4-7"


def test_a_report_of_a_pod_that_nobody_bound_here_is_believed() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("static", cpu=2, gpu=1).pod)
    node_copy = member(kubelet)
    assert node_copy.node.cpu.free_cpus == kubelet.cpu.free_cpus
    assert node_copy.node.devices.free == kubelet.devices.free


def two_containers(name: str, **limits) -> WatchedPod:
    """A pod of two containers that ask for the same."""
    pod = pod_object(name, "n", **limits)
    first = pod["spec"]["containers"][0]
    pod["spec"]["containers"] = [first, {**first, "name": "second"}]
    return READER.read(decode_pod(json.dumps(pod).encode()))


@pytest.mark.parametrize("missing", ["second container", "memory of the first", "device"])
def test_a_pod_of_which_a_report_lists_a_part_is_not_reported_yet(missing) -> None:
    """A kubelet writes its state files after each container.

    For seconds it has given to the first one only.
    """
    kubelet = EMPTY.copy()
    pod = two_containers("a", cpu=1, gpu=1)
    kubelet.admit(pod.pod)
    (whole,) = holdings_of(kubelet).pods
    main = whole.containers["main"]
    containers = {
        "second container": {"main": main},
        "memory of the first": {"main": structs.replace(main, memory={})},
        "device": {
            **whole.containers,
            "second": structs.replace(whole.containers["second"], devices={}),
        },
    }[missing]
    part = Holdings([structs.replace(whole, containers=containers)])
    for node_copy in (member(), ExactMember("n", EMPTY, [pod], part)):
        node_copy.bind(pod, 0)
        node_copy.report(part)
        assert node_copy.pending == ("uid-a",)
        assert holdings_of(node_copy.node).pods == [whole]

        node_copy.report(Holdings([whole]))
        assert node_copy.pending == ()

        node_copy.report(part)  # the containers of a pod end one after another, too
        assert node_copy.pending == ()


def with_init_container(name: str, memory: str) -> WatchedPod:
    """A pod whose init container asks for more than the one after it."""
    pod = pod_object(name, "n", cpu=2)
    limits = {"cpu": "3", "memory": memory}
    pod["spec"]["initContainers"] = [
        {"name": "init", "resources": {"limits": limits, "requests": limits}}
    ]
    return READER.read(decode_pod(json.dumps(pod).encode()))


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
    bound_first = member()
    bound_first.bind(pod, 0)
    assert bound_first.report(holdings_of(kubelet))
    for copied in (bound_first, late):
        assert copied.pending == ()
        assert copied.node.cpu.free_cpus == kubelet.cpu.free_cpus
        assert copied.node.memory.free == kubelet.memory.free


def test_a_part_of_a_pod_that_was_refused_here_is_not_reported_yet() -> None:
    """Other pods were there when this copy admitted it."""
    node_copy = member()
    node_copy.bind(watched("big", "n", cpu=3, memory="6Gi"), 0)
    node_copy.bind(watched("bigger", "n", cpu=4, memory="6Gi"), 0)
    pod = two_containers("a", cpu=2)
    node_copy.bind(pod, 0)
    kubelet = EMPTY.copy()
    kubelet.admit(pod.pod)
    (whole,) = holdings_of(kubelet).pods
    node_copy.report(
        Holdings([structs.replace(whole, containers={"main": whole.containers["main"]})])
    )
    assert "uid-a" not in {
        pod_holdings.uid
        for pod_holdings in holdings_of(node_copy.node).pods
        if pod_holdings.containers
    }

    node_copy.report(Holdings([whole]))
    assert whole in holdings_of(node_copy.node).pods


def test_a_report_that_does_not_fit_changes_nothing() -> None:
    node_copy = member()
    node_copy.bind(watched("a", "n", cpu=3), 0)
    wrong = decode_holdings(
        '{"pods": [{"uid": "x", "name": "x", "containers": {"c": {"devices": {"no": ["1"]}}}}]}'
    )
    with pytest.raises(AlignupError):
        node_copy.report(wrong)
    assert str(node_copy.node.cpu.free_cpus) == "4-7"


@pytest.mark.parametrize("text", ["{", "[]", '{"pods": 3}', '{"pods": [{"uid": 3}]}'])
def test_holdings_of_another_form_are_refused_in_one_line(text) -> None:
    with pytest.raises(InputError, match=r"alignup\.dev/holdings"):
        decode_holdings(text)


@examples(100)
@given(STEPS)
def test_after_a_report_the_copy_is_the_kubelet_whatever_happened_before(steps) -> None:
    """A kubelet that admits and frees in the order of events, and reports now and then."""
    kubelet, node_copy = EMPTY.copy(), member()
    for number, event in steps:
        admitted_uids = {admitted.uid for admitted in kubelet.pods}
        pod = watched(f"p{number}", "n", **SIZES[number])
        if (
            event == "come"
            and pod.pod.uid not in admitted_uids
            and pod.pod.uid not in node_copy.pods
        ):
            is_admitted = bool(kubelet.admit(pod.pod))
            node_copy.bind(pod, 0)
            if not is_admitted:
                node_copy.gone(pod.pod.uid, 0)
        elif event == "go" and pod.pod.uid in admitted_uids:
            kubelet.remove(pod.pod.uid)
            node_copy.gone(pod.pod.uid, 0)
        elif event == "report":
            node_copy.report(holdings_of(kubelet))

    node_copy.report(holdings_of(kubelet))
    holdings = {pod.uid: pod for pod in holdings_of(kubelet).pods}
    assert {pod.uid: pod for pod in holdings_of(node_copy.node).pods} == holdings
    assert node_copy.node.memory.free == kubelet.memory.free


def test_a_pod_that_no_report_lists_yet_is_placed_anew_without_those_that_have_ended() -> None:
    kubelet = EMPTY.copy()
    kubelet.admit(watched("a", cpu=3).pod)
    node_copy = member(kubelet)
    node_copy.bind(watched("a", "n", cpu=3), 0)
    node_copy.bind(watched("b", "n", cpu=3), 0)
    assert str(node_copy.node.cpu.free_cpus) == "7"
    kubelet.remove("uid-a")
    assert node_copy.report(holdings_of(kubelet))
    assert str(node_copy.node.cpu.free_cpus) == "4-7"


@examples(200)
@given(STEPS)
def test_a_node_after_pods_have_ended_is_as_one_that_is_made_of_the_report(steps) -> None:
    kubelet = EMPTY.copy()
    node_copy = member(kubelet)
    present: list[str] = []
    for step, (number, event) in enumerate(steps):
        pod = watched(f"p{step}", "n", **SIZES[number])
        if event == "come" and kubelet.admit(pod.pod).admitted:
            present.append(pod.pod.uid)
            node_copy.bind(pod, 0)
        elif event == "go" and present:
            uid = present.pop(number % len(present))
            kubelet.remove(uid)
            node_copy.gone(uid, 0)
        elif event == "report":
            holdings = holdings_of(kubelet)
            node_copy.report(holdings)
            pods = {uid: bound.pod for uid, bound in node_copy.pods.items()}
            made_anew = restored_node(EMPTY, holdings, pods)
            assert holdings_of(node_copy.node) == holdings_of(made_anew)
            for size in SIZES:
                asking = watched("asking", **size).pod
                nodes = node_copy.node.copy(), made_anew.copy()
                messages = [node.admit(asking).message for node in nodes]
                assert messages[0] == messages[1]
                assert holdings_of(nodes[0]) == holdings_of(nodes[1])


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
    node_copy = member(kubelet)
    node_copy.bind(watched("a", "n", cpu=3), 0)
    shared = watched("shared", "n", cpu="500m", memory="0")
    node_copy.bind(shared, 0)
    assert node_copy.pending == ()
    node_copy.gone("uid-a", 0)
    assert not node_copy.is_uncertain
    node_copy.gone("uid-shared", 0)
    assert "uid-shared" not in node_copy.pods


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
