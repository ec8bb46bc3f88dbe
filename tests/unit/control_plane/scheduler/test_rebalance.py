"""Plans that make room are carried out where the cluster does as foretold."""

from __future__ import annotations

import asyncio

import pytest

from alignup.control_plane.scheduler.rebalance import apply_plan, plan_cluster, rebalance_for_ever
from fakes.api_server import PODS, ApiStub, running, until
from fakes.published_nodes import published_nodes
from inputs.watched_objects import pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("fields", "goes"),
    [
        ({}, True),
        ({"affinity": {"podAntiAffinity": {"preferred": [{}]}}}, True),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}}, False),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, True),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, False),
        ({"nodeSelector": {"disk": "fast"}}, False),
    ],
)
def test_a_pod_that_does_not_take_every_node_is_not_evicted(fields, goes) -> None:
    """Nobody knows here whether there would be a place for it."""

    async def scenario() -> None:
        async with published_nodes(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            for name in "xyzu":
                pod = stub.get(PODS, name, "default")
                await stub.put(PODS, {**pod, "spec": {**pod["spec"], **fields}})
            await stub.put(PODS, pod_object("w", cpu=4))
            assert bool((await plan_cluster(api)).evictions) is goes

    asyncio.run(scenario())


async def bind(stub: ApiStub, name: str, node: str) -> None:
    """Bind a pod, as a scheduler would."""
    pod = stub.get(PODS, name, "default")
    await stub.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}})


@pytest.mark.parametrize("end", ["as foretold", "elsewhere", "still waits", "protected"])
def test_a_plan_is_carried_out_until_the_cluster_does_otherwise(end) -> None:
    async def scenario() -> None:
        async with published_nodes(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            await stub.put(PODS, pod_object("w", cpu=4))
            plan = await plan_cluster(api)
            assert plan.proven
            (eviction,) = plan.evictions
            (placement,) = plan.placements
            evicted = [eviction.pod.name]
            if end == "protected":
                stub.protected.update(evicted)
                evicted = []

            said: list[str] = []
            patience = 60.0
            if end == "still waits":
                patience = 0.1

            task = asyncio.ensure_future(apply_plan(api, plan, said.append, patience))
            if end in {"as foretold", "elsewhere"}:
                await until(lambda: stub.evicted)
                node = "elsewhere"
                if end == "as foretold":
                    node = placement.node
                await bind(stub, "w", node)

            assert await task is (end == "as foretold")
            assert stub.evicted == evicted
            last = {
                "elsewhere": "went to elsewhere",
                "still waits": "still waits",
                "protected": "429",
            }
            assert last.get(end, f"is on {placement.node}") in said[-1]

    asyncio.run(scenario())


def test_room_is_made_again_and_again_within_the_budget_of_an_hour() -> None:
    async def scenario() -> None:
        async with published_nodes(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            said: list[str] = []
            await stub.put(PODS, pod_object("w", cpu=4))
            work = rebalance_for_ever(
                api, per_hour=1, interval=0.01, patience=0.05, say=said.append
            )
            async with running(work):
                await until(lambda: any("has to wait" in line for line in said))
            assert len(stub.evicted) == 1

    asyncio.run(scenario())
