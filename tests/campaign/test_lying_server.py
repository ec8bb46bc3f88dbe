"""An extender beside an API server that is behind, repeats itself and forgets.

Time runs faster for the extender than for this test: what takes a minute takes two seconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.scheduler import cluster_watch
from alignup.kubelet.node_resource_topology.report import holdings_of
from fakes.api_server import PODS, ApiStub, running, until
from inputs.watched_objects import description, pod_object, topology
from running.served_extender import EMPTY, Asked, extender

if TYPE_CHECKING:
    from alignup.node import Node

FASTER = 30.0
LONGEST_STEP = 0.05
SECONDS = float(os.environ.get("ALIGNUP_CAMPAIGN_SECONDS", "60"))
NAMES = ("a", "b", "c")
GRACE = 30


class Clock:
    """The extender's time, which all but stands still while the event loop does.

    So load makes nobody late.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    async def run(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(LONGEST_STEP / 10)
            moment = time.monotonic()
            self.seconds += min(moment - before, LONGEST_STEP) * FASTER
            before = moment


async def pause(random: Random, most: float) -> None:
    """Wait for as many of the extender's seconds at most."""
    await asyncio.sleep(random.uniform(0, most) / FASTER)


class Cluster:
    """Kubelets, who holds what there, and what was refused."""

    def __init__(self, stub: ApiStub, random: Random) -> None:
        self.stub, self.random = stub, random
        self.kubelets: dict[str, Node] = {name: EMPTY.copy() for name in NAMES}
        self.bound = 0
        self.refused: list[str] = []
        # The static pods whose CPUs counted as free at some moment.
        self.free: list[str] = []
        self.static: dict[str, dict[str, Any]] = {}
        self._taken: set[str] = set()
        self._events: list[Any] = []

    async def report(self, name: str) -> None:
        reported = topology(name, described=description(), holdings=self.kubelets[name])
        await self.stub.put(TOPOLOGIES, reported)

    async def start_static(self, name: str) -> None:
        """Start a static pod, and make its copy."""
        made = pod_object(f"static-{name}", name, cpu=1)
        uid = f"hash-{name}"
        made["metadata"] |= {
            "annotations": {
                "kubernetes.io/config.mirror": uid,
                "kubernetes.io/config.hash": uid,
                "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{"kind": "Node", "name": name, "uid": name, "controller": True}],
        }
        of_kubelet = deepcopy(made)
        of_kubelet["metadata"]["uid"] = uid
        assert self.kubelets[name].admit(of_kubelet)
        self.static[name] = made
        await self.report(name)
        await self.stub.put(PODS, deepcopy(made))

    async def run_kubelets(self) -> None:
        """Admit what is bound, in the order of binding, and say so a little later."""
        while True:
            pods = [
                pod
                for pod in self.stub.objects.get(PODS, {}).values()
                if pod["spec"].get("nodeName")
            ]
            for pod in sorted(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
                uid, name = pod["metadata"]["uid"], pod["spec"]["nodeName"]
                if uid in self._taken or pod["metadata"]["name"].startswith("static"):
                    continue
                self._taken.add(uid)
                if not self.kubelets[name].admit(pod):
                    self.refused.append(uid)
                    await self.stub.put(PODS, {**pod, "status": {"phase": "Failed"}})
            await pause(self.random, 2)
            for name in NAMES:
                await self.report(name)
            await pause(self.random, 2)

    async def end_pods(self) -> None:
        """End pods, with and without patience, and delete copies of static pods."""
        while True:
            await pause(self.random, 4)
            pods = [
                (name, pod)
                for (_, name), pod in self.stub.objects.get(PODS, {}).items()
                if pod["spec"].get("nodeName") and pod["metadata"]["uid"] in self._taken
            ]
            if self.random.random() < 0.2:
                await self._lose_copy()
            if not pods:
                continue
            name, pod = self.random.choice(pods)
            uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
            if self.random.random() < 0.5 and self.kubelets[node].manager.has_pod(uid):
                self.kubelets[node].remove(uid)
                await self.stub.put(PODS, {**pod, "status": {"phase": "Succeeded"}})
                continue
            await self.stub.delete(PODS, name, "default", silently=self.random.random() < 0.2)
            asyncio.get_running_loop().call_later(
                self.random.uniform(0, GRACE) / FASTER, self._remove, node, uid
            )

    def _remove(self, node: str, uid: str) -> None:
        if self.kubelets[node].manager.has_pod(uid):
            self.kubelets[node].remove(uid)

    async def _lose_copy(self) -> None:
        name = self.random.choice(NAMES)
        if ("default", f"static-{name}") in self.stub.objects[PODS]:
            await self.stub.delete(PODS, f"static-{name}", "default")
            await pause(self.random, 10)
            made = deepcopy(self.static[name])
            made["metadata"]["uid"] = f"copy-{self.stub.version}"
            await self.stub.put(PODS, made)

    async def lie(self) -> None:
        """Repeat events, tell of deletions that are none, drop connections, and be behind."""
        stub = self.stub
        while True:
            stub.behind = stub.version, deepcopy(stub.objects.get(PODS, {}))
            await pause(self.random, 20)
            lie = self.random.choice([self._repeat, self._deny, stub.hang_up, stub.compact])
            await lie()

    async def _repeat(self) -> None:
        """Send an event of a pod once more."""
        events = [event for event in self.stub.events[-60:] if event[1] == PODS]
        if events:
            _, kind, word, stored, _ = self.random.choice(events)
            if word != "DELETED":
                await self._send(kind, "MODIFIED", stored)

    async def _deny(self) -> None:
        """Send the deletion of a pod that is there."""
        pods = [
            pod for pod in self.stub.objects.get(PODS, {}).values() if pod["spec"].get("nodeName")
        ]
        if pods:
            await self._send(PODS, "DELETED", self.random.choice(pods))

    async def _send(self, kind: str, word: str, stored: dict[str, Any]) -> None:
        async with self.stub.changed:
            self.stub.version += 1
            sent = deepcopy(stored)
            sent["metadata"]["resourceVersion"] = str(self.stub.version)
            self.stub.events.append((self.stub.version, kind, word, sent, sent))
            self.stub.changed.notify_all()

    async def watch(self, client: Asked) -> None:
        """Look at whether anything is free that a kubelet holds, and has said so, all the time."""
        while True:
            for name, member in client.extender.state.members.items():
                uid = f"hash-{name}"
                cpus = self.kubelets[name].cpu.cpus(uid, "main")
                if set(cpus) & set(member.node.cpu.free_cpus):
                    self.free.append(uid)
            await asyncio.sleep(0.01)

    async def schedule(self, client: Asked) -> None:
        """Ask for pods, and bind them where they may go."""
        number = 0
        while True:
            await pause(self.random, 1.5)
            number += 1
            name = f"p{number}"
            size = self.random.choice([{"cpu": 1}, {"cpu": 2, "gpu": 1}, {"cpu": 3}])
            pod = pod_object(name, **size)
            pod["spec"]["terminationGracePeriodSeconds"] = GRACE
            await self.stub.put(PODS, pod)
            passed = (await client.filter(pod, *NAMES))["NodeNames"]
            if passed and not await client.bind(name, self.random.choice(passed)):
                self.bound += 1
            else:
                await self.stub.delete(PODS, name, "default")


@pytest.mark.parametrize(
    "seconds", [5.0, pytest.param(SECONDS, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_no_lie_of_an_api_server_lets_a_kubelet_refuse_what_was_bound(
    seconds, monkeypatch, capsys
) -> None:
    """And when it lies no more, the extender knows within minutes what kubelets hold."""
    monkeypatch.setattr(cluster_watch, "_TICK_SECONDS", 5.0 / FASTER)
    monkeypatch.setattr(cluster_watch, "_RELIST_SECONDS", (20.0 / FASTER, 40.0 / FASTER))

    async def scenario() -> Cluster:
        async with extender(*NAMES) as client:
            made = client.extender
            made.clock = made.watch.clock = made.watch.pods._clock = clock = Clock()
            cluster = Cluster(client.stub, Random(7))
            for name in NAMES:
                await cluster.start_static(name)
            await until(lambda: len(made.state.pods) == len(NAMES))

            async with AsyncExitStack() as stack:
                for work in (clock.run(), cluster.run_kubelets()):
                    await stack.enter_async_context(running(work))
                async with AsyncExitStack() as lies:
                    for work in (
                        cluster.end_pods(),
                        cluster.lie(),
                        cluster.schedule(client),
                        cluster.watch(client),
                    ):
                        await lies.enter_async_context(running(work))
                    await asyncio.sleep(seconds)

                client.stub.behind = None

                def is_known() -> bool:
                    return not made.state.uncertain and all(
                        {pod.uid: pod for pod in holdings_of(made.state.members[name].node).pods}
                        == {pod.uid: pod for pod in holdings_of(kubelet).pods}
                        for name, kubelet in cluster.kubelets.items()
                    )

                await until(is_known)
            return cluster

    cluster = asyncio.run(scenario())
    assert not cluster.refused
    assert not cluster.free
    assert cluster.bound > seconds
    if seconds > 5:
        with capsys.disabled():
            print(f"{cluster.bound} pods bound")  # noqa: T201  # a campaign tells its numbers
