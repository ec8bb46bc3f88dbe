"""What becomes of pods on a control plane.

They are created at random moments, watched, and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.control_plane.api_server.api_client import Api, ApiError, Pauses
from alignup.control_plane.api_server.objects import PodSpec, PodStatus
from alignup.control_plane.api_server.watch import Follower
from alignup.control_plane.publishers.fleet import DURATION
from alignup.kubernetes.wire import Metadata  # noqa: TC001  # msgspec reads annotations
from rig.workload import cpus_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PODS = "/api/v1/namespaces/default/pods"


class Condition(msgspec.Struct):
    """A condition of a pod."""

    type: str
    status: str
    reason: str = ""


class Status(PodStatus, rename="camel"):
    """The status of a pod, with its conditions."""

    conditions: list[Condition] = msgspec.field(default_factory=list)


class WholePod(msgspec.Struct, rename="camel"):
    """A pod."""

    metadata: Metadata
    spec: PodSpec
    status: Status


DECODE = msgspec.json.Decoder(WholePod).decode


@dataclass
class Seen:
    """What became of one pod, in seconds since the start."""

    cpus: float
    created: float
    seconds: float
    """How long it shall run."""
    bound: float | None = None
    running: float | None = None
    ended: float | None = None
    waited: bool = False
    """Whether the scheduler found no node at first."""
    gated: bool = False
    """Whether it came with a gate."""
    reason: str = ""
    node: str = ""
    version: int = 0
    """Of the object when it was first seen bound.

    In the order in which the server took the bindings.
    """


def percentiles(values: list[float]) -> dict[str, float]:
    """Return how many there are, the median and the 99th percentile; those of none are 0."""
    ordered = sorted(values) or [0.0]
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return {"pods": len(values), "median s": middle, "p99 s": late}


@dataclass
class Outcome:
    """What became of all pods."""

    pods: dict[str, Seen] = field(default_factory=dict)
    start: float = field(default_factory=time.monotonic)
    allocatable: float = 1.0

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.start

    def listed(self, pods: list[WholePod]) -> None:
        """Take in a list of pods."""
        for pod in pods:
            self.changed(pod)

    def changed(self, pod: WholePod) -> None:
        """Take in a pod."""
        record = self.pods.get(pod.metadata.name)
        if record is None:
            return

        status = pod.status
        reasons = {
            condition.reason
            for condition in status.conditions
            if condition.type == "PodScheduled" and condition.status == "False"
        }
        if "SchedulingGated" in reasons:
            record.gated = True
        elif reasons:
            record.waited = True

        if pod.spec.node_name and record.bound is None:
            record.bound, record.node = self.now(), pod.spec.node_name
            record.version = int(pod.metadata.resource_version)

        if status.phase == "Running" and record.running is None:
            record.running = self.now()

        if status.phase in {"Succeeded", "Failed"} and record.ended is None:
            record.ended = self.now()
            record.reason = status.reason

    def gone(self, pod: WholePod) -> None:
        """Take in that a pod was deleted."""
        record = self.pods.get(pod.metadata.name)
        if record is not None and record.ended is None:
            record.ended = self.now()

    def bound_to(self, node: str) -> list[str]:
        """Return the pods that were bound to a node, in order."""
        pods = [(record.version, name) for name, record in self.pods.items() if record.node == node]
        return [name for _, name in sorted(pods)]

    @property
    def settled(self) -> bool:
        """Whether every pod has ended."""
        return all(record.ended is not None for record in self.pods.values())

    def in_use(self) -> float:
        """Return the part of all CPUs that pods used.

        It is from when the first could have ended until the last came.
        """
        pods = list(self.pods.values())
        stop = max((record.created for record in pods), default=0.0)
        start = min(sum(record.seconds for record in pods) / max(len(pods), 1), stop / 2)
        used = sum(
            record.cpus
            * max(
                0.0,
                min(stop, stop if record.ended is None else record.ended)
                - max(start, record.running),
            )
            for record in pods
            if record.running is not None
        )
        return used / max(stop - start, 1e-9) / self.allocatable

    def summary(self) -> dict[str, Any]:
        """Return the numbers that are compared; of times the count, median and 99th percentile."""
        pods = self.pods.values()
        ran = [record for record in pods if record.running is not None]
        return {
            "pods": len(pods),
            "ran": len(ran),
            "rejected": dict(
                sorted(Counter(record.reason for record in pods if record.reason).items())
            ),
            "never placed": sum(record.bound is None for record in pods),
            "CPUs in use": self.in_use(),
            "created to running": percentiles([record.running - record.created for record in ran]),
            "of these, placed at once": percentiles(
                [record.running - record.created for record in ran if not record.waited]
            ),
            "of these, waited for room": percentiles(
                [record.running - record.created for record in ran if record.waited]
            ),
            "bound to running": percentiles([record.running - record.bound for record in ran]),
            "seconds": round(self.now()),
        }


async def play(
    kubeconfig: str,
    pods: list[dict[str, Any]],
    span: float,
    outcome: Outcome,
    patience: float,
    real: frozenset[str] = frozenset(),
) -> None:
    """Create pods at random moments within a span, and wait until all have ended or patience has.

    Args:
        kubeconfig: of the control plane.
        pods: the pods.
        span: seconds.
        outcome: where it is noted what becomes of them.
        patience: seconds after the last has come.
        real: nodes whose kubelets do not know of durations; pods there are deleted when their time
            is up.
    """
    random = Random(7)  # arrivals, not secrets
    moments = sorted(random.uniform(0, span) for _ in pods)
    async with following(kubeconfig, outcome) as api:
        ending = asyncio.create_task(end_on(real, api, outcome))
        arriving = []
        for moment, manifest in zip(moments, pods, strict=True):
            await asyncio.sleep(max(0.0, moment - outcome.now()))
            arriving.append(asyncio.create_task(arrive(api, manifest, outcome)))

        await settled(outcome, patience)
        for task in (ending, *arriving):
            task.cancel()
        await asyncio.gather(ending, *arriving, return_exceptions=True)


async def play_gangs(
    kubeconfig: str,
    gangs: list[list[dict[str, Any]]],
    disturb: Callable[[], None],
    outcome: Outcome,
    patience: float,
) -> None:
    """Create the pods of each gang at once, and disturb.

    It calls `disturb` as soon as one of them is bound, and goes on with the next.

    Args:
        kubeconfig: of the control plane.
        gangs: the pods.
        disturb: what happens in the middle; it may block.
        outcome: where it is noted what becomes of them.
        patience: seconds after the last gang has come.
    """
    async with following(kubeconfig, outcome) as api:
        for gang in gangs:
            await asyncio.gather(*(arrive(api, manifest, outcome) for manifest in gang))
            names = [manifest["metadata"]["name"] for manifest in gang]
            # the end is of many pods
            while all(outcome.pods[name].bound is None for name in names):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.to_thread(disturb)

        await settled(outcome, patience)


@asynccontextmanager
async def following(kubeconfig: str, outcome: Outcome) -> AsyncIterator[Api]:
    """Note what becomes of all pods, as long as the block runs."""
    api = await Api.connect(kubeconfig)
    api.pauses = Pauses(first=0.05, longest=1.0)
    following = asyncio.create_task(Follower(api, PODS, DECODE, outcome).run())
    outcome.start = time.monotonic()
    try:
        yield api
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await api.close()
        await asyncio.sleep(0.25)  # connections under TLS take a moment to close


async def arrive(api: Api, manifest: dict[str, Any], outcome: Outcome) -> None:
    """Create a pod, and note it."""
    outcome.pods[manifest["metadata"]["name"]] = Seen(
        cpus_of(manifest), outcome.now(), seconds_of(manifest)
    )
    await create(api, manifest)


async def settled(outcome: Outcome, patience: float) -> None:
    """Wait until all pods have ended, or so many seconds."""
    deadline = outcome.now() + patience
    # the end is of many pods
    while not outcome.settled and outcome.now() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.2)


def seconds_of(manifest: dict[str, Any]) -> float:
    """Return how long a pod shall run."""
    return float(manifest["metadata"]["annotations"][DURATION][:-1])


async def end_on(nodes: frozenset[str], api: Api, outcome: Outcome) -> None:
    """Delete the pods on some nodes when their time is up, until cancelled."""
    deleted: set[str] = set()
    while nodes:
        for name, record in list(outcome.pods.items()):
            is_over = record.running is not None and outcome.now() - record.running > record.seconds
            if is_over and record.node in nodes and name not in deleted:
                deleted.add(name)
                with suppress(ApiError):  # it is gone
                    await api.request("DELETE", f"{PODS}/{name}")
        await asyncio.sleep(0.1)


async def create(api: Api, manifest: dict[str, Any]) -> None:
    """Create a pod, through a server that may be away for a while."""
    for _ in range(600):
        try:
            await api.request("POST", PODS, msgspec.json.encode(manifest))
        except ApiError as error:
            if error.status == 409:
                return
            await asyncio.sleep(0.2)
        else:
            return
    raise AssertionError("the API server did not come back")
