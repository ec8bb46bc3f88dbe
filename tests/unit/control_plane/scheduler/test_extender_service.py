"""An extender beside an API server of our own.

It follows the cluster, binds, wakes and writes events.
"""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import unquote

import pytest

from alignup.control_plane.api_server.api_client import CLAIMS, TOPOLOGIES
from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.scheduler import cluster_watch
from alignup.control_plane.scheduler.cluster_state import (
    LONGEST_BINDING,
    REPORT_DELAY,
    ClusterState,
)
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.extender_service import WOKEN, Extender
from alignup.errors import AlignupWarning
from alignup.koordinator.effective import NODE_LABEL
from alignup.kubelet.node_resource_topology.report import HOLDINGS, NODE
from fakes.api_server import EVENTS, NODES, PODS, ApiStub, running, served, until
from inputs.small_claims import claim_named, class_of, slice_of
from inputs.watched_objects import description, pod_object, topology
from running.served_extender import EMPTY, extender


def test_a_choice_that_another_binding_spoilt_is_refused_and_nothing_is_bound(caplog) -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            pods = [pod_object(name, cpu=4) for name in ("p", "q")]
            for pod in pods:
                await client.stub.put(PODS, pod)
                assert (await client.filter(pod, "a"))["NodeNames"] == ["a"]

            assert await client.bind("p", "a") == ""
            assert await client.bind("q", "a") == "NUMA: node a can no longer take the pod"
            assert "nodeName" not in client.stub.get(PODS, "q", "default")["spec"]

    with caplog.at_level("DEBUG", "alignup"):
        asyncio.run(scenario())

    assert {
        "pod default/p: 1 nodes of 1",
        "pod 'p' is bound to 'a'",
        "pod 'q' is not bound: node 'a' can no longer take it",
    } <= set(caplog.messages)


def test_what_a_member_of_a_group_was_offered_is_judged_anew_when_it_is_bound() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as client:
            members = [pod_object(name, cpu=4) for name in ("m0", "m1")]
            offers = []
            for pod in members:
                pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
                await client.stub.put(PODS, pod)
                (offer,) = (await client.filter(pod, "a", "b"))["NodeNames"]
                offers.append(offer)

            # somebody binds another pod, without asking
            await client.stub.put(PODS, pod_object("other", offers[1], cpu=4))
            await until(lambda: "uid-other" in client.extender.state.pods)
            assert await client.bind("m0", offers[0]) == ""
            answer = await client.bind("m1", offers[1])
            assert answer == f"NUMA: node {offers[1]} can no longer take the pod"
            assert client.extender.state.assumed.keys() <= {"uid-m0"}

    asyncio.run(scenario())


def test_a_binding_that_the_server_refuses_holds_nothing() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            await client.filter(pod_object("ghost", cpu=4), "a")
            assert "404" in await client.bind("ghost", "a")
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_binding_asks_for_no_other_object_than_a_pod_of_the_name() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            await client.stub.put(PODS, pod_object("p"))
            for name in ("../../../nodes/a?x=", "p/status", "p#", "p%2Fbinding", "p;x"):
                assert "404" in await client.bind(name, "a")
                paths = [path for _, path in client.stub.requests if "/pods/" in path]
                assert {unquote(path.split("/")[6]) for path in paths} == {name}
                assert {path.rpartition("/pods/")[0] for path in paths} == {
                    "/api/v1/namespaces/default"
                }
                client.stub.requests.clear()

            for name in ("", ".", ".."):
                assert f"'{name}' cannot be the name of an object" in await client.bind(name, "a")
            assert not [
                path
                for method, path in client.stub.requests
                if method == "POST" or "/pods/" in path
            ]

    asyncio.run(scenario())


def test_a_binding_whose_answer_got_lost_is_done() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            client.stub.binds_then_fails = True
            await client.stub.put(PODS, pod_object("p", cpu=4))
            assert await client.bind("p", "a") == ""
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == []

    asyncio.run(scenario())


def test_a_pod_whose_binding_is_under_way_keeps_its_place_though_its_scheduler_has_given_up() -> (
    None
):
    """It asks again after its own time limit; the server binds the pod all the same."""

    async def scenario() -> None:
        async with extender("a", "b") as client:
            for name in ("p", "q"):
                await client.stub.put(PODS, pod_object(name, cpu=4))
            client.stub.held["p"] = asyncio.Event()
            first = asyncio.create_task(client.bind("p", "a"))
            await until(lambda: client.extender.state.pods.get("uid-p"))
            assert (await client.filter(pod_object("p", cpu=4), "a", "b"))["NodeNames"] == ["a"]
            assert (await client.filter(pod_object("q", cpu=4), "a", "b"))["NodeNames"] == ["b"]
            assert await client.bind("p", "b") == "NUMA: the pod may be bound to node a"
            again = asyncio.create_task(client.bind("p", "a"))
            client.stub.held["p"].set()
            assert (await first, await again) == ("", "")
            assert await client.bind("q", "a") == "NUMA: node a can no longer take the pod"

    asyncio.run(scenario())


@pytest.mark.parametrize("lands", [True, False])
def test_a_binding_without_an_answer_keeps_its_place_until_there_is_one(lands) -> None:
    """The server may still be at it.

    Etcd takes what is on its way though nobody waits for the answer any more.
    """

    async def scenario() -> None:
        async with extender("a") as client:
            for name in ("p", "q"):
                await client.stub.put(PODS, pod_object(name, cpu=4))
            client.stub.refused_writes[PODS] = [504, 403]
            assert "504" in await client.bind("p", "a")
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == []
            assert "403" in await client.bind(
                "p", "a"
            )  # which says nothing about the first request
            assert await client.bind("q", "a") == "NUMA: node a can no longer take the pod"

            if lands:
                await client.stub.put(PODS, pod_object("p", "a", cpu=4), silently=True)
            assert (await client.filter(pod_object("p", cpu=4), "a"))["NodeNames"] == ["a"]
            assert await client.bind("p", "a") == ""
            assert client.stub.get(PODS, "p", "default")["spec"]["nodeName"] == "a"

    asyncio.run(scenario())


def test_a_binding_that_is_never_answered_is_looked_up_in_a_list(monkeypatch) -> None:
    monkeypatch.setattr(cluster_watch, "_TICK_SECONDS", 0.01)

    async def scenario() -> None:
        async with extender("a") as client:
            ahead = [0.0]
            client.extender.clock = lambda: time.monotonic() + ahead[0]
            client.extender.watch.clock = client.extender.clock
            await client.stub.put(PODS, pod_object("p", cpu=4))
            client.stub.refused_writes[PODS] = [504]
            assert "504" in await client.bind("p", "a")

            ahead[0] = LONGEST_BINDING + REPORT_DELAY + 1
            await until(lambda: client.extender.watch.pods.lists > 1)
            # this list began, by the clock of the follower, too early
            assert client.extender.state.pods

            client.extender.state.assumed["uid-p"] = time.monotonic() - 1
            ahead[0] = REPORT_DELAY + 1
            await until(lambda: not client.extender.state.pods)
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_binding_that_the_server_refuses_for_good_holds_nothing() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            await client.stub.put(PODS, pod_object("p", cpu=4))
            client.stub.refused_writes[PODS] = [403]
            assert "403" in await client.bind("p", "a")
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_a_binding_of_a_pod_that_another_one_of_its_name_replaced_is_an_error() -> None:
    """The other one is bound to the very node.

    The pod that was asked for is not, and holds nothing.
    """

    async def scenario() -> None:
        async with extender("a") as client:
            await client.filter(pod_object("p", cpu=4), "a")
            replacement = pod_object("p", "a", cpu=1)
            replacement["metadata"]["uid"] = "uid-other"
            await client.stub.put(PODS, replacement)
            await until(lambda: client.extender.state.pods.get("uid-other"))
            assert "409" in await client.bind("p", "a")
            assert client.extender.state.pods.get("uid-p") is None
            assert [pod.uid for pod in client.extender.state.members["a"].node.pods] == [
                "uid-other"
            ]

    asyncio.run(scenario())


def test_pods_are_bound_to_one_node_one_after_another() -> None:
    """Two that are on their way at once can arrive in the other order.

    In that the kubelet then admits them.
    """

    async def scenario() -> None:
        async with extender("a", "b") as client:
            for name in ("first", "second", "elsewhere"):
                await client.stub.put(PODS, pod_object(name, cpu=3))
            client.stub.held["first"] = asyncio.Event()
            first = asyncio.create_task(client.bind("first", "a"))
            await until(lambda: client.extender.state.pods.get("uid-first"))
            second = asyncio.create_task(client.bind("second", "a"))
            assert await client.bind("elsewhere", "b") == ""
            assert not any(path.endswith("second/binding") for _, path in client.stub.requests)
            client.stub.held["first"].set()
            assert (await first, await second) == ("", "")

    asyncio.run(scenario())


def test_a_refused_pod_is_woken_by_its_node_when_another_ends() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            await client.stub.put(PODS, pod_object("p", "a", cpu=4))
            await until(lambda: client.extender.state.pods)
            refused = await client.filter(pod_object("q", cpu=4), "a")
            assert refused["FailedNodes"] == {"a": "NUMA: not enough cpu is free on the node"}
            assert WOKEN not in client.stub.get(NODES, "a")["metadata"].get("annotations", {})
            ended = {**pod_object("p", "a", cpu=4), "status": {"phase": "Failed"}}
            await client.stub.put(PODS, ended)
            await until(
                lambda: WOKEN in client.stub.get(NODES, "a")["metadata"].get("annotations", {})
            )

    asyncio.run(scenario())


@pytest.mark.parametrize("replaced", [True, False])
def test_a_pod_deleted_before_any_report_is_free_once_one_should_have_come(
    monkeypatch, replaced
) -> None:
    """Its kubelet may have taken it, and takes its time to end it: then a report says so."""
    monkeypatch.setattr(cluster_watch, "_TICK_SECONDS", 0.01)

    async def scenario() -> None:
        async with extender("a") as client:
            ahead = [0.0]
            client.extender.clock = lambda: time.monotonic() + ahead[0]
            client.extender.watch.clock = client.extender.clock
            await client.stub.put(PODS, pod_object("p", "a", cpu=4))
            await until(lambda: client.extender.state.pods)
            await client.stub.delete(PODS, "p", "default")
            if replaced:
                another = pod_object("p", "", cpu=4)
                another["metadata"]["uid"] = "uid-another"
                await client.stub.put(PODS, another)
            await until(lambda: not client.extender.state.pods)
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == []
            lists = len(client.stub.lists)
            ahead[0] = REPORT_DELAY + 1
            await until(lambda: client.extender.state.members["a"].node.pods == ())
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]
            assert len(client.stub.lists) == lists

    asyncio.run(scenario())


def test_a_pod_that_was_said_to_be_gone_and_is_there_is_seen_again() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            await client.stub.put(PODS, pod_object("p", "a", cpu=4))
            await until(lambda: client.extender.state.pods)
            stub = client.stub
            async with stub.changed:
                stub.version += 1
                stored = stub.get(PODS, "p", "default")
                stub.events.append((stub.version, PODS, "DELETED", stored, stored))
                stub.changed.notify_all()
            await until(lambda: ("GET", "/api/v1/namespaces/default/pods/p") in stub.requests)
            await until(lambda: client.extender.state.pods)
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == []

    asyncio.run(scenario())


def test_an_event_without_the_name_of_a_node_changes_nothing() -> None:
    """No server takes a binding back: the event is from before it."""

    async def scenario() -> None:
        async with extender("a") as client:
            for name in ("p", "x"):
                await client.stub.put(PODS, pod_object(name, "a", cpu=2))
            await until(lambda: len(client.extender.state.pods) == 2)
            unbound = client.extender.read(decode_pod(json.dumps(pod_object("p")).encode()))
            client.extender._pod_seen(unbound)
            assert client.extender.state.pods["uid-p"].node == "a"

    asyncio.run(scenario())


def test_a_pod_that_goes_without_an_event_before_any_report_is_missed_soon(monkeypatch) -> None:
    """Lists that are cheap for the server are enough: what it remembers, in pages."""
    monkeypatch.setattr(cluster_watch, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(cluster_watch, "_RELIST_SECONDS", (0.01, 0.02))

    async def scenario() -> None:
        async with extender("a") as client:
            ahead = [0.0]
            client.extender.clock = lambda: time.monotonic() + ahead[0]
            client.extender.watch.clock = client.extender.clock
            client.extender.watch.pods._clock = client.extender.clock
            await client.stub.put(PODS, pod_object("p", "a", cpu=4))
            await until(lambda: client.extender.state.pods)
            await client.stub.delete(PODS, "p", "default", silently=True)
            ahead[0] = REPORT_DELAY + 1
            await until(lambda: not client.extender.state.pods)
            assert any(query.get("resourceVersion") == "0" for query in client.stub.lists)
            ahead[0] += REPORT_DELAY + 1
            await until(lambda: client.extender.state.members["a"].node.pods == ())
            assert (await client.filter(pod_object("q", cpu=4), "a"))["NodeNames"] == ["a"]

    asyncio.run(scenario())


def test_nothing_is_listed_again_while_reports_have_all_pods(monkeypatch) -> None:
    monkeypatch.setattr(cluster_watch, "_RELIST_SECONDS", (0.01, 0.02))

    async def scenario() -> None:
        async with extender("a") as client:
            lists = len(client.stub.lists)
            pod, kubelet = pod_object("p", "a", cpu=4), EMPTY.copy()
            kubelet.admit(pod)
            reported = topology("a", described=description(), holdings=kubelet)
            await client.stub.put(TOPOLOGIES, reported)
            await until(lambda: client.extender.state.members["a"].node.pods)
            await client.stub.put(PODS, pod)
            await until(lambda: client.extender.state.pods)
            await asyncio.sleep(0.1)
            assert len(client.stub.lists) == lists

    asyncio.run(scenario())


def test_what_an_ended_pod_held_stays_taken_until_its_node_says_otherwise() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            old, kubelet = pod_object("old", "a", cpu=4), EMPTY.copy()
            kubelet.admit(old)
            await client.stub.put(PODS, old)
            await client.stub.put(
                TOPOLOGIES, topology("a", described=description(), holdings=kubelet)
            )
            await until(
                lambda: (
                    not client.extender.state.members["a"].unsettled and client.extender.state.pods
                )
            )
            assert (await client.filter(pod_object("p", cpu=4), "a"))["NodeNames"] == []

            await client.stub.put(PODS, {**old, "status": {"phase": "Succeeded"}})
            await until(lambda: not client.extender.state.pods)
            assert (await client.filter(pod_object("p", cpu=4), "a"))["NodeNames"] == []

    asyncio.run(scenario())


def test_an_extender_that_starts_again_knows_what_is_bound() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            await client.stub.put(PODS, pod_object("p", "a", cpu=4))
            async with served(client.stub) as api:
                second = Extender(api, Answers(ClusterState()))
                async with running(second.run()):
                    await until(lambda: second.watch.is_synced)
                    assert second.state.pods.get("uid-p") is not None
                    assert not second.answers.state.members["a"].node.try_admit(
                        pod_object("q", cpu=4)
                    )

    asyncio.run(scenario())


def test_a_pod_gets_an_event_when_the_causes_of_its_refusal_change() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as client:

            def messages() -> list[str]:
                return [event["message"] for event in client.stub.objects.get(EVENTS, {}).values()]

            for _ in range(3):
                await client.ask("filter", Pod=pod_object("p", cpu=5), NodeNames=["a", "b"])
                await client.ask("filter", Pod=pod_object("fits", cpu=1), NodeNames=["a", "b"])

            await until(messages)
            await client.ask("filter", Pod=pod_object("p", cpu=1, gpu=3), NodeNames=["a", "b"])
            await until(lambda: len(messages()) > 1)
            assert messages() == [
                "none of 2 nodes can take the pod: 2 no NUMA node has enough cpu",
                "none of 2 nodes can take the pod: 2 not enough gpu is free on the node",
            ]
            (first, _) = client.stub.objects[EVENTS].values()
            assert first["involvedObject"]["uid"] == "uid-p"

    asyncio.run(scenario())


def test_an_event_that_the_server_refuses_keeps_no_later_one_back() -> None:
    async def scenario() -> None:
        async with extender("a") as client:
            client.stub.refused_writes = {EVENTS: [403]}
            for name in ("refused", "later"):
                await client.ask("filter", Pod=pod_object(name, cpu=5), NodeNames=["a"])
            await until(lambda: client.stub.objects.get(EVENTS))
            (event,) = client.stub.objects[EVENTS].values()
            assert event["involvedObject"]["uid"] == "uid-later"

    asyncio.run(scenario())


def test_a_node_that_goes_while_pods_are_evaluated_refuses_them() -> None:
    async def scenario() -> None:
        async with extender("a", "b") as client:
            pod = client.extender.read(decode_pod(json.dumps(pod_object("p", cpu=1)).encode())).pod
            verdict = client.extender.answers.evaluate(pod, ["gone", "b"])
            assert (verdict["admitted"], verdict["score"][0], verdict["numaNodes"][0]) == (
                [False, True],
                0.0,
                [],
            )

    asyncio.run(scenario())


@pytest.mark.parametrize("annotation", [NODE, HOLDINGS])
def test_a_hostile_report_hides_its_own_node_only(annotation) -> None:
    async def scenario() -> None:
        async with extender("a", "b") as client:
            hostile = topology("a", described=description(), holdings=EMPTY)
            hostile["metadata"]["annotations"][annotation] = '{"a":' * 5000 + "1" + "}" * 5000
            await client.stub.put(TOPOLOGIES, hostile)
            await until(lambda: "a" not in client.extender.state.members)
            await client.stub.put(PODS, pod_object("p", "b", cpu=4))
            await until(lambda: client.extender.state.pods)
            async with served(client.stub) as api:
                second = Extender(api, Answers(ClusterState()))
                async with running(second.run()):
                    await until(lambda: second.watch.is_synced)
                    assert set(second.state.members) == {"b"}

    with pytest.warns(AlignupWarning, match=f"what node a reports is ignored: .*{annotation}"):
        asyncio.run(scenario())


def test_nodes_that_are_listed_count_with_their_labels() -> None:
    """Also for an extender that starts later."""

    async def scenario() -> None:
        async with extender("a", "b") as client:
            labels = {NODE_LABEL: "BestEffort"}
            await client.stub.put(NODES, {"metadata": {"name": "a", "labels": labels}})
            async with served(client.stub) as api:
                second = Extender(api, Answers(ClusterState()))
                async with running(second.run()):
                    await until(lambda: second.watch.is_synced)
                    large = decode_pod(json.dumps(pod_object("p", cpu=5)).encode())
                    for service in (client.extender, second):
                        pod = service.read(large).pod
                        verdict = service.answers.evaluate(pod, ["a", "b"])
                        assert verdict["admitted"] == [True, False]

    asyncio.run(scenario())


def test_it_is_said_once_that_all_was_listed() -> None:
    said: list[str] = []

    async def scenario() -> None:
        async with served(ApiStub()) as api:
            service = Extender(api, Answers(ClusterState()), synced=lambda: said.append("all"))
            async with running(service.run()):
                await until(lambda: bool(said))
                assert service.watch.is_synced

    asyncio.run(scenario())
    assert said == ["all"]


@pytest.mark.parametrize(("forbidden", "complaints"), [(False, 0), (True, 3)])
def test_claims_are_followed_where_the_server_shows_them(forbidden, complaints) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        kinds = [
            f"{CLAIMS}/{kind}" for kind in ("resourceslices", "deviceclasses", "resourceclaims")
        ]
        if forbidden:
            stub.forbidden.update(kinds)

        for kind, claims_object in zip(
            kinds, (slice_of([0], node="a"), class_of(), claim_named("c")), strict=True
        ):
            await stub.put(kind, claims_object)

        said: list[str] = []
        async with served(stub, said.append) as api:
            service = Extender(api, Answers(ClusterState()))
            async with running(service.run()):
                await until(lambda: service.watch.is_synced)
                claims = service.state.claims
                assert [
                    len(objects_by_name.objects)
                    for objects_by_name in (claims.slices, claims.classes, claims.claims)
                ] == [not forbidden] * 3
                await stub.put(kinds[2], claim_named("d"))
                await until(lambda: forbidden or ("default", "d") in claims.claims.objects)
                await stub.delete(kinds[0], "a-gpu.example.com")
                await until(lambda: not claims.slices.objects)
                await until(lambda: len(said) == complaints)

        assert (
            all(any(kind in text and "403" in text for text in said) for kind in kinds) == forbidden
        )

    asyncio.run(scenario())
