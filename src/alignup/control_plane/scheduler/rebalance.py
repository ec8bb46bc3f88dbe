"""Carries out plans that make room in a cluster.

It evicts pods, and waits for what the plan foretells. The plans are made by
`alignup.cluster.evictions`. Pods go by the Eviction API, which respects disruption budgets;
controllers make others in their place, and the scheduler binds all of them. Needs the extra
`cluster`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from alignup.cluster.evictions import RoomPlan, Step, plan_room
from alignup.control_plane.api_server.api_client import Api, evict, pod_path
from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.scheduler.ask import read_cluster
from alignup.errors import AlignupError

_LOOK_SECONDS: Final = 0.5
_HOUR: Final = 3600.0


async def plan_cluster(api: Api) -> RoomPlan:
    """Return how the waiting pods of a cluster find a place.

    Raises:
        AlignupError: the cluster cannot be asked, or its nodes publish nothing.
    """
    asked_cluster = await read_cluster(api)
    waiting = [waiting_pod.pod for waiting_pod in asked_cluster.waiting]
    return plan_room(
        asked_cluster.cluster(),
        waiting,
        standings=asked_cluster.rules.standings,
        budgets=asked_cluster.rules.budgets,
    )


async def apply_plan(api: Api, plan: RoomPlan, say: Callable[[str], None], patience: float) -> bool:
    """Carry out a plan step by step; return whether everything came as it foretells.

    The first step that does not is the last one that is done: the cluster is not as the plan knew
    it.

    Args:
        api: the API server.
        plan: the plan.
        say: called with what is done, in one line.
        patience: seconds to wait for a pod to be bound.
    """
    for step in plan.steps:
        name = step.pod.namespaced_name
        try:
            if step.action == "evict":
                say(f"evict {name} from {step.node}")
                await evict(api, step.pod.namespace, step.pod.name, step.pod.uid)
            elif step.action == "place":
                node = await _bound(api, step, patience)
                if node != step.node:
                    outcome = f"went to {node}" if node else "still waits"
                    say(f"stop: {name} was to go to {step.node}, and {outcome}")
                    return False

                say(f"{name} is on {node}")
        except AlignupError as error:
            say(f"stop: {name}: {error}")
            return False

    return True


async def _bound(api: Api, step: Step, patience: float) -> str:
    """Return the node that a pod is bound to, as soon as it is; empty: not in time."""
    deadline = time.monotonic() + patience
    while True:
        pod = decode_pod(await api.request("GET", pod_path(step.pod.namespace, step.pod.name)))
        if pod.spec.node_name or time.monotonic() > deadline:
            return pod.spec.node_name
        await asyncio.sleep(_LOOK_SECONDS)


async def rebalance_for_ever(
    api: Api, *, per_hour: int, interval: float, patience: float, say: Callable[[str], None]
) -> None:
    """Make room again and again, with at most so many evictions within an hour, until cancelled."""
    evicted: list[float] = []
    while True:
        try:
            plan = await plan_cluster(api)
            now = time.monotonic()
            evicted = [moment for moment in evicted if moment > now - _HOUR]
            if plan.evictions and len(evicted) + len(plan.evictions) > per_hour:
                say(
                    f"a plan of {len(plan.evictions)} evictions has to wait: {len(evicted)} were "
                    "done within an hour"
                )
            elif plan.evictions:
                # those that are not done because the plan stopped count too
                evicted += [now] * len(plan.evictions)
                await apply_plan(api, plan, say, patience)
        except AlignupError as error:
            say(str(error))

        await asyncio.sleep(interval)
