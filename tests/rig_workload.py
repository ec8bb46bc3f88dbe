"""A mixed cluster and a mixed workload, and what becomes of it on a control plane: the proof of the extender.

As a program: `python tests/rig_workload.py [NODES [PODS]]` runs the same arrivals with the default scheduler and with
the extender, and prints a table.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.cluster.scheduler.api_client import Api, ApiError
from alignup.cluster.scheduler.fleet import DURATION
from alignup.cluster.scheduler.objects import PodObject, decode_pod
from alignup.cluster.scheduler.watch import Follower, Pauses
from rigged import ControlPlane, alignup, control_plane

if TYPE_CHECKING:
    from pathlib import Path

GIBI = 1 << 30
PODS = "/api/v1/namespaces/default/pods"
POLICIES = (
    ("single-numa-node", "container"),
    ("single-numa-node", "pod"),
    ("restricted", "container"),
    ("restricted", "pod"),
    ("best-effort", "container"),
    ("none", "container"),
)
CPUS = 8
"""Of each NUMA node."""


def node(number: int, random: Random) -> dict[str, Any]:
    """Return a node of 2 to 8 NUMA nodes, with a GPU on each and a NIC on every second one."""
    count = (2, 4, 8)[number % 3]
    policy, scope = POLICIES[number % len(POLICIES)]
    nodes = [
        {
            "id": one,
            "memory": 32 * GIBI,
            "cores": [
                {"cpus": [cpu, cpu + count * CPUS // 2], "socket": one * 2 // count}
                for cpu in range(one * CPUS // 2, (one + 1) * CPUS // 2)
            ],
            "distances": [
                10 if one == other else 12 if one * 2 // count == other * 2 // count else 32
                for other in range(count)
            ],
        }
        for one in range(count)
    ]
    return {
        "name": f"node-{number:04}",
        "machine": {"numaNodes": nodes},
        "kubelet": {
            "topologyManagerPolicy": policy,
            "topologyManagerScope": scope,
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": random.choice([0, 1]), "limits": {"memory": "1Gi"}}],
        },
        "devices": {
            "example.com/gpu": [{"id": f"gpu{one}", "numa": one} for one in range(count)],
            "example.com/nic": [{"id": f"nic{one}", "numa": one} for one in range(0, count, 2)],
        },
    }


def container(name: str, random: Random) -> dict[str, Any]:
    """Return a container that asks for a part of a NUMA node, or for a little more than one."""
    amounts = {
        "cpu": str(random.choice([1, 2, 2, 3, 4, 4, 6, 8])),
        "memory": f"{random.choice([1, 4, 8, 16])}Gi",
    }
    if random.random() < 0.35:
        amounts["example.com/gpu"] = str(random.choice([1, 1, 1, 2]))
    if random.random() < 0.1:
        amounts["example.com/nic"] = "1"
    return {"name": name, "image": "none", "resources": {"limits": amounts, "requests": amounts}}


def pod(number: int, seconds: float, random: Random) -> dict[str, Any]:
    """Return a pod of one or two containers that runs for a while; a few ask for no CPUs of their own."""
    containers = [container("a", random)]
    if random.random() < 0.15:
        containers.append(container("b", random))
    if random.random() < 0.1:
        containers[0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:05}",
            "namespace": "default",
            "annotations": {DURATION: f"{random.uniform(0.5, 1.5) * seconds:.1f}s"},
        },
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
    }


@dataclass
class Seen:
    """What became of one pod, in seconds since the start."""

    cpus: float
    created: float
    bound: float | None = None
    running: float | None = None
    ended: float | None = None
    reason: str = ""
    node: str = ""


@dataclass
class Outcome:
    """What became of all pods."""

    pods: dict[str, Seen] = field(default_factory=dict)
    start: float = field(default_factory=time.monotonic)
    allocatable: float = 1.0

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.start

    def listed(self, found: list[PodObject]) -> None:
        """Take in a list of pods."""
        for one in found:
            self.changed(one)

    def changed(self, found: PodObject) -> None:
        """Take in a pod."""
        seen = self.pods.get(found.metadata.name)
        if seen is None:
            return
        if found.spec.node_name and seen.bound is None:
            seen.bound, seen.node = self.now(), found.spec.node_name
        if found.status.phase == "Running" and seen.running is None:
            seen.running = self.now()
        if found.has_ended and seen.ended is None:
            seen.ended = self.now()
            seen.reason = found.status.reason

    def gone(self, found: PodObject) -> None:
        """Take in that a pod was deleted."""

    @property
    def settled(self) -> bool:
        """Whether every pod has ended."""
        return all(one.ended is not None for one in self.pods.values())

    def summary(self) -> dict[str, Any]:
        """Return the numbers that are compared."""
        reasons = Counter(one.reason for one in self.pods.values() if one.reason)
        ran = [one for one in self.pods.values() if one.running is not None]
        pending = sorted(one.running - one.created for one in ran)
        span = max((one.created for one in self.pods.values()), default=0.0)
        used = sum(
            one.cpus * max(0.0, min(span, span if one.ended is None else one.ended) - one.running)
            for one in ran
        )
        return {
            "pods": len(self.pods),
            "ran": len(ran),
            "rejected": dict(sorted(reasons.items())),
            "never placed": sum(one.bound is None for one in self.pods.values()),
            "CPUs in use": f"{used / max(span, 1e-9) / self.allocatable:.1%}",
            "pending, median": f"{pending[len(pending) // 2]:.2f} s" if pending else "-",
            "pending, 99th percentile": f"{pending[len(pending) * 99 // 100]:.2f} s" if pending else "-",
            "seconds": round(self.now()),
        }


def cpus_of(found: dict[str, Any]) -> float:
    """Return the CPUs that a pod asks for."""
    texts = [one["resources"]["requests"]["cpu"] for one in found["spec"]["containers"]]
    return sum(float(text[:-1]) / 1000 if text.endswith("m") else float(text) for text in texts)


async def play(
    kubeconfig: str, pods: list[dict[str, Any]], span: float, outcome: Outcome, patience: float
) -> None:
    """Create pods at random moments within a span, and wait until all have ended or patience has."""
    api = await Api.connect(kubeconfig)
    follower = Follower(api, PODS, decode_pod, outcome, pauses=Pauses(first=0.05, longest=1.0))
    task = asyncio.create_task(follower.run())
    random = Random(7)  # arrivals, not secrets
    moments = sorted(random.uniform(0, span) for _ in pods)
    outcome.start = time.monotonic()
    try:
        for moment, one in zip(moments, pods, strict=True):
            await asyncio.sleep(max(0.0, moment - outcome.now()))
            outcome.pods[one["metadata"]["name"]] = Seen(cpus_of(one), outcome.now())
            await create(api, one)
        deadline = outcome.now() + patience
        while not outcome.settled and outcome.now() < deadline:  # noqa: ASYNC110  # the end is of many pods
            await asyncio.sleep(0.2)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()


async def create(api: Api, one: dict[str, Any]) -> None:
    """Create a pod, through a server that may be away for a while."""
    for _ in range(600):
        try:
            await api.request("POST", PODS, msgspec.json.encode(one))
        except ApiError as error:
            if error.status == 409:
                return
            await asyncio.sleep(0.2)
        else:
            return
    raise AssertionError("the API server did not come back")


def workload(
    nodes: int, pods: int, seconds: float, seed: int = 1
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return nodes and pods; pods run for so many seconds on average."""
    random = Random(seed)  # as above
    return [node(one, random) for one in range(nodes)], [pod(one, seconds, random) for one in range(pods)]


def span_for(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], seconds: float, load: float) -> float:
    """Return the time within which pods have to come so that they ask for a part of all CPUs."""
    return sum(map(cpus_of, pods)) * seconds / (load * allocatable(nodes))


def allocatable(nodes: list[dict[str, Any]]) -> float:
    """Return the CPUs that nodes can give to pods."""
    return sum(len(one["machine"]["numaNodes"]) * CPUS - 1 for one in nodes)


def write_nodes(folder: Path, nodes: list[dict[str, Any]]) -> Path:
    """Write nodes to a file."""
    path = folder / "nodes.jsonl"
    path.write_text("\n".join(map(json.dumps, nodes)))
    return path


def run(
    plane: ControlPlane, nodes: int, pods: int, *, extender: bool, seconds: float = 60.0, load: float = 1.0
) -> dict[str, Any]:
    """Run one workload on a fresh control plane, and return what became of it."""
    described, asked = workload(nodes, pods, seconds)
    path = write_nodes(plane.folder, described)
    outcome = Outcome(allocatable=allocatable(described))
    listen = ("--kubeconfig", plane.kubeconfig, "--listen")
    span = span_for(described, asked, seconds, load)
    with alignup(
        "fleet", *listen, "127.0.0.1:18791", "--nodes", path, ready="http://127.0.0.1:18791/healthz"
    ):
        if not extender:
            plane.schedule_with(None)
            asyncio.run(play(plane.kubeconfig, asked, span, outcome, 6 * seconds))
        else:
            with alignup("extender", *listen, "127.0.0.1:18792", ready="http://127.0.0.1:18792/healthz"):
                plane.schedule_with(18792)
                asyncio.run(play(plane.kubeconfig, asked, span, outcome, 6 * seconds))
    return outcome.summary()


def main() -> None:
    """Print what becomes of the same arrivals under both schedulers."""
    nodes, pods = (int(word) for word in (*sys.argv[1:], "200", "2000")[:2])
    for extender in (False, True):
        with control_plane() as plane:
            found = run(plane, nodes, pods, extender=extender)
        sys.stdout.write(f"{'extender' if extender else 'default scheduler'} {json.dumps(found)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
