"""What an extender takes of a processor for pods, from their first question to their end.

    python benches/extender_lives.py [PODS]

plays a scheduler, its API server and 100 kubelets of the policy single-numa-node beside one
`alignup extender`: each pod is asked for, scored, bound, reported, runs and ends; nodes are nearly
full, and each pod that waits is asked for again whenever a pod is bound, when it ends, before its
node reports that, and afterwards.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from alignup import read_pod
from alignup.control_plane.api_server.api_client import NODES, PODS, TOPOLOGIES
from alignup.control_plane.publishers.fleet import FleetNode, read_fleet
from fakes.api_server import ApiStub, served
from rig.workload import allocatable, cpus_of, workload
from whole_cluster import kubeconfig, processor_seconds

COUNT = 100
LOAD = 0.9
WAITING = 4
"""Pods that wait at most: of others the oldest running one ends."""
MOMENT = 0.004
"""Seconds for events to be taken in, before the next question."""


class Play:
    """A scheduler, and what it looks at."""

    def __init__(
        self, stub: ApiStub, url: str, session: aiohttp.ClientSession, fleet: dict[str, FleetNode]
    ) -> None:
        self.stub = stub
        self.url = url
        self.session = session
        self.fleet = fleet
        self.running: list[tuple[dict[str, Any], str]] = []
        self.waiting: list[dict[str, Any]] = []
        self.questions = 0

    async def ask(self, verb: str, fields: dict[str, Any]) -> Any:
        """Return the extender's answer."""
        self.questions += 1
        async with self.session.post(f"{self.url}/{verb}", json=fields) as response:
            return await response.json()

    async def place(self, pod: dict[str, Any]) -> bool:
        """Try to place a pod; return whether it was."""
        args = {"Pod": pod, "Nodes": None, "NodeNames": list(self.fleet)}
        passed = (await self.ask("filter", args))["NodeNames"]
        if not passed:
            return False

        scores = await self.ask("prioritize", {**args, "NodeNames": passed})
        name = max(scores, key=lambda score: score["Score"])["Host"]
        metadata = pod["metadata"]
        binding = {
            "PodName": metadata["name"],
            "PodNamespace": "default",
            "PodUID": metadata["uid"],
            "Node": name,
        }
        assert (await self.ask("bind", binding))["Error"] == ""
        assert self.fleet[name].admit(read_pod(pod)) is None
        await self.report(name)
        await self.status(pod, "Running")
        self.running.append((pod, name))
        return True

    async def status(self, pod: dict[str, Any], phase: str) -> None:
        """Let the kubelet write a phase of a pod."""
        manifest = self.stub.get(PODS, pod["metadata"]["name"], "default")
        await self.stub.put(
            PODS, {**manifest, "status": {"phase": phase, "startTime": "2026-01-02T03:04:05Z"}}
        )
        await asyncio.sleep(MOMENT)

    async def report(self, name: str) -> None:
        """Let a node report what its pods hold."""
        await self.stub.put(TOPOLOGIES, self.fleet[name].report(with_holdings=True))
        await asyncio.sleep(MOMENT)

    async def retry(self) -> None:
        """Try to place all pods that wait, in the order of the queue."""
        self.waiting = [pod for pod in self.waiting if not await self.place(pod)]

    async def end_oldest(self) -> None:
        """Let the pod that runs for the longest end."""
        pod, name = self.running.pop(0)
        await self.status(pod, "Succeeded")
        await self.retry()  # as a scheduler does at once, and the node has not reported yet
        self.fleet[name].end(pod["metadata"]["uid"])
        await self.report(name)
        await self.retry()

    async def play(self, pods: list[dict[str, Any]], cpu_limit: float) -> None:
        """Let pods come one after another; so many CPUs are asked for at most."""
        for pod in pods:
            await self.stub.put(PODS, pod)
            while self.running and (
                len(self.waiting) >= WAITING
                or sum(cpus_of(running_pod) for running_pod, _ in self.running) + cpus_of(pod)
                > cpu_limit
            ):
                await self.end_oldest()
            if await self.place(pod):
                await self.retry()  # an event of another pod makes a scheduler try those that wait
            else:
                self.waiting.append(pod)


async def measured(pods: int, folder: Path) -> tuple[float, int]:
    """Return the processor seconds of an extender that so many pods come to.

    With them comes how often it was asked.
    """
    described, pod_manifests = workload(3 * COUNT, pods, 1.0)
    described = described[::3]
    for description in described:
        description["kubelet"]["topologyManagerPolicy"] = "single-numa-node"
        description["devices"]["example.com/gpu"] = [
            {"id": f"gpu{gpu}", "numa": gpu % 2} for gpu in range(4)
        ]

    lines = "\n".join(map(json.dumps, described)).encode()
    fleet = {fleet_node.name: fleet_node for fleet_node in read_fleet(lines, "nodes")}
    for fleet_node in fleet.values():
        # what nodes have in total is the scheduler's to count, and none does here
        fleet_node.node.whole_verdict = False

    for manifest in pod_manifests:
        manifest["metadata"]["uid"] = f"uid-{manifest['metadata']['name']}"

    stub = ApiStub()
    for name, fleet_node in fleet.items():
        await stub.put(NODES, {"metadata": {"name": name, "labels": {}}})
        await stub.put(TOPOLOGIES, fleet_node.report(with_holdings=True))

    async with (
        served(stub) as api,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session,
    ):
        # where the stub is served
        port = int(str(api._configuration.host).rpartition(":")[2])  # noqa: SLF001
        arguments = [
            "-m",
            "alignup",
            "extender",
            "--kubeconfig",
            str(kubeconfig(folder, port)),
            "--listen",
            "127.0.0.1:0",
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-u", *arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        url = "http://" + (await process.stdout.readline()).decode().rpartition(" ")[2].strip()
        health = f"{url}/healthz"
        while stub.watches < 3 or (await session.get(health)).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

        play = Play(stub, url, session, fleet)
        begun = processor_seconds(process.pid)
        await play.play(pod_manifests, LOAD * allocatable(described))
        took = processor_seconds(process.pid) - begun
        process.terminate()
        await process.wait()

    return took, play.questions


def main(pods: int = 600) -> None:
    """Print what one pod takes."""
    with tempfile.TemporaryDirectory() as folder:
        took, questions = asyncio.run(measured(pods, Path(folder)))
        print(
            json.dumps(
                {"processor ms a pod": 1000 * took / pods, "questions a pod": questions / pods}
            )
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
