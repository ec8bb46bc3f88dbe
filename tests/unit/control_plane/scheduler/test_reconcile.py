"""Rejected pods of controllers are deleted, ever more slowly, and no others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.scheduler.reconcile import Reconciler, Rules
from alignup.kubelet.node_resource_topology.report import Description
from fakes.api_server import EVENTS, PODS, ApiStub, running, served, until
from inputs.watched_objects import description, pod_object, topology, watched

QUICK = Rules(first=0.001, longest=0.002, limit=2)


def failed(
    name: str, owner: str | None = "rs", reason: str = "TopologyAffinityError"
) -> dict[str, Any]:
    pod = pod_object(name, "n")
    pod["status"] = {"phase": "Failed", "reason": reason}
    if owner is not None:
        pod["metadata"]["ownerReferences"] = [
            {"kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}", "controller": True}
        ]
    return pod


def with_rules(rules: Rules) -> Reconciler:
    """Return a reconciler that is asked for delays only."""
    nobody: Any = None
    return Reconciler(nobody, rules, say=lambda _: None)


def test_pauses_double_up_to_the_longest() -> None:
    reconciler = with_rules(Rules(first=10, longest=60, limit=100))
    delays, now = [], 0.0
    for _ in range(5):
        delay = reconciler.delay("a", now)
        delays.append(delay)
        now += delay
    assert delays == [10, 20, 40, 60, 60]


def test_pods_that_fail_together_are_deleted_one_after_another() -> None:
    reconciler = with_rules(Rules(first=10, longest=60, limit=100))
    assert [reconciler.delay("a", 0) for _ in range(3)] == [10, 30, 70]
    assert reconciler.delay("b", 0) == 10


def test_an_hour_of_quiet_forgets() -> None:
    reconciler = with_rules(Rules(first=10, longest=60, limit=1))
    assert reconciler.delay("a", 0) == 10
    assert reconciler.delay("a", 5) is None
    assert reconciler.delay("a", 4000) == 10


@given(st.lists(st.floats(0, 600), max_size=60))
def test_no_more_than_the_limit_is_deleted_within_an_hour(steps) -> None:
    rules = Rules(first=1, longest=30, limit=5)
    reconciler = with_rules(rules)
    now = 0.0
    due: list[float] = []
    for step in steps:
        now += step
        delay = reconciler.delay("a", now)
        if delay is not None:
            due.append(now + delay)
    assert due == sorted(due)
    assert all(sum(start < time <= start + 3600 for time in due) <= rules.limit for start in due)


def deleted(rules: Rules, *pods: dict[str, Any], **options: Any) -> tuple[list[str], list[str]]:
    """Run a reconciler until nothing is to be expected any more.

    Return what it said, and the pods that are left.
    """
    said: list[str] = []
    left: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        for pod in pods:
            await stub.put(PODS, pod)
        async with served(stub, said.append) as api:
            reconciler = Reconciler(api, rules, say=said.append, writes_events=False, **options)
            async with running(reconciler.run()):
                await until(lambda: stub.watches)
                await stub.put(PODS, failed("last", "other"))
                await until(lambda: any("last" in sentence for sentence in said))
                await asyncio.sleep(0.1)

        left.extend(name for _, name in stub.objects[PODS])

    asyncio.run(scenario())
    return said, left


def test_only_rejected_pods_of_controllers_go() -> None:
    said, left = deleted(
        QUICK, failed("mine"), failed("bare", None), failed("other", reason="Evicted")
    )
    assert left == ["bare", "other"]
    assert said[0] == "delete default/mine: TopologyAffinityError"


def test_a_pod_that_took_the_place_of_a_rejected_one_stays() -> None:
    """As those of a StatefulSet do, which have the names of those before.

    No watch has told of it yet.
    """

    async def scenario() -> None:
        stub = ApiStub()
        await stub.put(PODS, failed("p"))
        said: list[str] = []
        async with served(stub, said.append) as api:
            rules = Rules(first=0.2, longest=0.2)
            reconciler = Reconciler(api, rules, say=said.append, writes_events=False)
            async with running(reconciler.run()):
                await until(lambda: stub.watches)
                successor = pod_object("p", "n")
                successor["metadata"]["uid"] = "another"
                await stub.put(PODS, successor, silently=True)
                await until(lambda: said)
                await until(lambda: any(method == "DELETE" for method, _ in stub.requests))
                await asyncio.sleep(0.05)

        assert stub.get(PODS, "p", "default")["metadata"]["uid"] == "another"

    asyncio.run(scenario())


def test_beyond_the_limit_they_stay_which_is_said() -> None:
    said, left = deleted(QUICK, *[failed(f"p{number}") for number in range(4)])
    assert left == ["p2", "p3"]
    assert "pod default/p3 stays: 2 pods of ReplicaSet rs were deleted within an hour" in said


def test_a_rejected_pod_gets_an_event_with_the_cause_and_what_would_help() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        kubelet = Description().template(json.dumps(description()), {}).copy()
        kubelet.admit(watched("x", "n", cpu=2).pod)
        await stub.put(TOPOLOGIES, topology("n", described=description(), holdings=kubelet))
        await stub.put(TOPOLOGIES, topology("amounts"))
        rejected = {**failed("mine"), "spec": pod_object("mine", "n", cpu=5)["spec"]}
        await stub.put(PODS, rejected)
        await stub.put(PODS, {**failed("other"), "spec": pod_object("other", "amounts")["spec"]})
        said: list[str] = []
        async with served(stub, said.append) as api:
            reconciler = Reconciler(api, Rules(), say=said.append)
            async with running(reconciler.run()):
                await until(lambda: stub.objects.get(EVENTS) and said)

        (event,) = stub.objects[EVENTS].values()
        assert event["involvedObject"]["name"] == "mine"
        assert "what would help: " in event["message"]
        assert "publishes no holdings" in said[0]

    asyncio.run(scenario())


def test_a_dry_run_deletes_nothing() -> None:
    said, left = deleted(QUICK, failed("mine"), dry=True)
    assert left == ["mine", "last"]
    assert "would delete default/mine: TopologyAffinityError" in said


def test_what_a_new_list_lacks_is_not_deleted() -> None:
    said: list[str] = []

    async def scenario() -> None:
        nobody: Any = None
        reconciler = Reconciler(nobody, QUICK, say=said.append, dry=True, writes_events=False)
        pods = [decode_pod(json.dumps(failed(name))) for name in ("gone", "left")]
        reconciler.listed(pods)
        reconciler.listed(pods[1:])
        await asyncio.sleep(0.1)

    asyncio.run(scenario())
    assert said == ["would delete default/left: TopologyAffinityError"]
