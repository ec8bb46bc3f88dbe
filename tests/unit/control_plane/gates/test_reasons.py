"""Why pods wait behind the gate is said in a sentence, and seldom."""

from __future__ import annotations

import asyncio
import json

import pytest

from alignup.control_plane.gates.reasons import WAITS, Reasons, ReasonWriter, standing
from alignup.kubernetes.node_fit import NodeObject
from fakes.api_server import ApiStub, running, served, until
from inputs.keepers import ROOM, grouped_pod, keeper_of
from inputs.waiting_pods import GATED_READER, gated_object, waiting_pod
from inputs.watched_objects import pod_object

EVENTS = "/api/v1/events"


def test_the_causes_of_all_nodes_are_counted() -> None:
    keeper = keeper_of("a", "b", "c")
    keeper.node_seen(NodeObject("b", allocatable=ROOM, is_unschedulable=True), 0)
    keeper.node_seen(NodeObject("c", allocatable=ROOM | {"cpu": 2000}), 0)
    keeper.node_seen(NodeObject("silent", allocatable=ROOM), 0)
    pod = waiting_pod("p", cpu=5)
    keeper.pod_seen(pod, 1)
    assert keeper.decide(1) == []
    reason = Reasons(keeper).reason(pod)
    assert reason.startswith("0/4 nodes have a place: ")
    assert "1 node(s) were unschedulable" in reason
    assert "1 Insufficient cpu" in reason
    assert "1 node(s) do not report their topology" in reason
    assert "NUMA node" in reason


def test_what_a_group_waits_for() -> None:
    keeper = keeper_of("a", "b")
    members = [grouped_pod(f"m{number}", size=3) for number in range(3)]
    for pod in members[:2]:
        keeper.pod_seen(pod, 1)
    keeper.decide(1)
    reasons = Reasons(keeper)
    assert reasons.reason(members[0]) == "2 of 3 members are there"

    keeper.pod_seen(members[2], 2)
    keeper.decide(2)
    reason = reasons.reason(members[0])
    assert reason.startswith("2 of 3 members fit; with these in place, m2 lacks one: 0/2 nodes")
    assert "2 node(s) would be taken by other members" in reason


def test_each_pod_is_named_once_a_minute_and_where_the_reason_has_changed() -> None:
    keeper = keeper_of("a")
    for number in range(12):
        keeper.pod_seen(waiting_pod(f"p{number}", cpu=5), 0)
    keeper.decide(0)
    reasons = Reasons(keeper)
    assert reasons.due(5) == []

    told = []
    for now in range(10, 40):
        sentences = reasons.due(now)
        assert len(sentences) <= 5
        told += [pod.uid for pod, _ in sentences]
    assert sorted(told) == sorted(f"uid-p{number}" for number in range(12))

    # the same reason is not said again
    assert [reasons.due(now) for now in range(100, 110)] == [[]] * 10
    keeper.node_seen(NodeObject("a", allocatable=ROOM, is_unschedulable=True), 110)
    later = [pod.uid for now in range(200, 210) for pod, _ in reasons.due(now)]
    assert len(later) == 12


def test_events_are_written_while_the_keeper_leads() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        keeper = keeper_of("a")
        keeper.pod_seen(waiting_pod("p", cpu=5), -100)
        keeper.decide(1)
        leads = False
        async with (
            asyncio.timeout(30),
            served(stub) as api,
            running(ReasonWriter(api, keeper).run(lambda: leads)),
        ):
            await asyncio.sleep(1.3)
            assert not stub.objects.get(EVENTS)
            leads = True
            await until(lambda: stub.objects.get(EVENTS))

        (event,) = stub.objects[EVENTS].values()
        assert event["reason"] == WAITS
        assert event["involvedObject"]["name"] == "p"
        assert event["source"]["component"] == "alignup-gates"

    asyncio.run(scenario())


def test_how_far_a_pod_is_by_the_objects() -> None:
    first = waiting_pod("first", cpu=1, priority=5).watched
    older = waiting_pod("older", cpu=1, created="2025-01-01T00:00:00Z").watched
    younger = waiting_pod("younger", cpu=1, created="2027-01-01T00:00:00Z").watched
    manifest = gated_object("p", cpu=1)
    assert standing(manifest, [first, older, younger]) == (
        "default/p waits behind the gate alignup.dev/room; "
        "2 pods without a node before it by priority or age"
    )

    manifest["spec"]["schedulingGates"].append({"name": "kueue.x-k8s.io/admission"})
    assert "the gates kueue.x-k8s.io/admission have to go first" in standing(manifest, [])

    manifest = gated_object("m0", cpu=1)
    manifest["metadata"]["labels"] = {"alignup.dev/group": "g"}
    manifest["metadata"]["annotations"] = {
        "alignup.dev/group-size": "4",
        "alignup.dev/place": "a",
    }
    assert standing(manifest, [grouped_pod("m0").watched, grouped_pod("m1").watched, first]) == (
        "default/m0 waits behind the gate alignup.dev/room; with its group it is to go to node a; "
        "2 of 4 members of its group g wait; 1 pod without a node before it by priority or age"
    )
    assert standing(pod_object("bound", "a"), []) == ""
    assert standing(pod_object("pending", ""), []) == ""


@pytest.mark.filterwarnings("ignore")
def test_a_pod_that_cannot_be_read_is_told_so() -> None:
    keeper = keeper_of("a")
    manifest = gated_object("p", cpu="much")
    keeper.pod_seen(GATED_READER.decode(json.dumps(manifest).encode()), 0)
    ((pod, sentence),) = Reasons(keeper).due(20)
    assert pod.uid == "uid-p"
    assert sentence.startswith("the pod cannot be read: expected a quantity")
    assert sentence in standing(manifest, [])
