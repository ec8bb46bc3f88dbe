"""The chart is upgraded by a real helm, and the extender's replicas are replaced.

Pods come all the time. There is no container runtime here: the replicas of the Deployment are
processes, each with the token and the Pod object of one replica, and are replaced as the Deployment
says: a new one is ready before an old one gets SIGTERM. What stands for the Service takes each
connection to the pod that has the label of the leader.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import pytest
import yaml

from rig.control_plane import free_address
from rig.outcome import Outcome, play
from rig.programs import BIN
from rig.servers import DEPLOY, Server, alignup, control_plane
from rig.workload import allocatable, span_for, workload, write_nodes

if TYPE_CHECKING:
    from pathlib import Path

HELM = shutil.which("helm", path=str(BIN)) or shutil.which("helm")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(
        HELM is None, reason=f"needs helm, in {BIN} (ALIGNUP_RIG_BIN) or on the path"
    ),
]

NODES, PODS, SECONDS, LOAD = 24, 300, 30.0, 0.5
NAMESPACE, NAME = "alignup", "alignup-extender"
NEW = {f"{NAME}-2", f"{NAME}-3"}
LEADER = "alignup.dev/leader"


class Service:
    """Stands for the Service.

    It takes each connection to the replica whose pod has the label of the leader.
    """

    def __init__(self, server: Server, addresses: dict[str, str]) -> None:
        self.server, self.addresses, self.leader = server, addresses, ""
        self.changes: list[tuple[float, str]] = []
        self.has_leader, self.is_new = asyncio.Event(), asyncio.Event()

    async def run(self, listen: str) -> None:
        """Listen until cancelled."""
        host, _, port = listen.rpartition(":")
        selected = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={LEADER}%3Dtrue"
        async with await asyncio.start_server(self.forward, host, int(port)):
            while True:
                listing = await asyncio.to_thread(self.server.get, selected)
                names = [pod["metadata"]["name"] for pod in listing.get("items", ())]
                if names and names[0] != self.leader:
                    self.leader = names[0]
                    self.changes.append((time.monotonic(), self.leader))
                    self.has_leader.set()
                    if self.leader in NEW:
                        self.is_new.set()

                await asyncio.sleep(0.1)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        with suppress(OSError, KeyError), closing(writer):
            host, _, port = self.addresses[self.leader].rpartition(":")
            back, out = await asyncio.open_connection(host, int(port))
            both = [
                asyncio.create_task(carry(reader, out)),
                asyncio.create_task(carry(back, writer)),
            ]
            with closing(out):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry what comes to the other side, until one of both ends."""
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


def helm(kubeconfig: str, *words: str) -> None:
    """Run helm."""
    done = subprocess.run(  # noqa: S603  # built by ourselves
        [str(HELM), *words, "--kubeconfig", kubeconfig], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def next_chart(folder: Path) -> Path:
    """Return a copy of the chart that is of the next version."""
    shutil.copytree(DEPLOY, folder)
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    chart |= {"version": "0.1.1", "appVersion": "0.1.1"}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
    return folder


def image(server: Server) -> str:
    """Return the image of the extender's Deployment."""
    deployment = server.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")
    return deployment["spec"]["template"]["spec"]["containers"][0]["image"]


class Replicas:
    """The replicas of the extender, as processes."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.running: dict[str, ExitStack] = {}
        self.addresses: dict[str, str] = {}

    def start(self, number: int) -> None:
        """Start one with the rights of the chart, and wait until it is ready."""
        deployment = self.server.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")
        name, template = f"{NAME}-{number}", deployment["spec"]["template"]
        labels = template["metadata"]["labels"]
        # never placed: it stands for the pod of this process
        spec = {**template["spec"], "schedulerName": "nobody"}
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        status, answer = self.server.asked(
            "POST", pods, {"metadata": {"name": name, "labels": labels}, "spec": spec}
        )
        assert status == 201, answer
        config = yaml.safe_load((self.folder / "kubeconfig").read_text())
        config["users"][0]["user"] = {"token": self.server.token_of(NAMESPACE, NAME, name)}
        path = self.folder / f"kubeconfig-{number}"
        path.write_text(json.dumps(config))
        address = self.addresses[name] = free_address()

        stack = self.running[name] = ExitStack()
        arguments = ("--kubeconfig", path, "--listen", address, "--leader-elect", "--pod", name)
        stack.enter_context(alignup("extender", *arguments, ready=f"http://{address}/healthz"))

    def stop(self, number: int) -> float:
        """End one by SIGTERM, and return the seconds it took."""
        name, start = f"{NAME}-{number}", time.monotonic()
        self.running.pop(name).close()
        duration = time.monotonic() - start
        self.server.ask(
            "DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", {"gracePeriodSeconds": 0}
        )
        return duration

    def stop_all(self) -> None:
        """End all."""
        for stack in self.running.values():
            stack.close()


def test_an_upgrade_of_the_chart_lets_no_pod_be_rejected(tmp_path, capsys) -> None:
    nodes, pods = workload(NODES, PODS, SECONDS)
    outcome = Outcome(allocatable=allocatable(nodes))
    fleet, service_address = free_address(), free_address()
    seconds: list[float] = []
    with control_plane() as plane, ExitStack() as stack:
        server = Server(plane.kubeconfig)
        helm(plane.kubeconfig, "install", "alignup", str(DEPLOY))
        assert image(server) == "alignup:0.1.0"
        replicas = Replicas(server, plane.folder)
        stack.callback(replicas.stop_all)
        path = write_nodes(plane.folder, nodes)
        arguments = ("--kubeconfig", plane.kubeconfig, "--listen", fleet, "--nodes", path)
        stack.enter_context(alignup("fleet", *arguments, ready=f"http://{fleet}/healthz"))
        replicas.start(0)
        replicas.start(1)
        plane.schedule_with(service_address)
        service = Service(server, replicas.addresses)
        span = span_for(nodes, pods, SECONDS, LOAD)

        def upgrade() -> None:
            helm(plane.kubeconfig, "upgrade", "alignup", str(next_chart(tmp_path / "next")))
            assert image(server) == "alignup:0.1.1"
            for number in (0, 1):
                replicas.start(number + 2)
                seconds.append(replicas.stop(number))

        async def upgrade_later() -> None:
            await asyncio.sleep(span / 3)
            await asyncio.to_thread(upgrade)

        async def both() -> None:
            serving = asyncio.create_task(service.run(service_address))
            await service.has_leader.wait()
            upgrading = asyncio.create_task(upgrade_later())
            await play(plane.kubeconfig, pods, span, outcome, 240)
            await upgrading
            async with asyncio.timeout(60):
                await service.is_new.wait()
            serving.cancel()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.25)  # connections take a moment to close

        asyncio.run(both())

    figures = outcome.summary() | {
        "leaders": [name for _, name in service.changes],
        "s to end after SIGTERM": [round(duration, 2) for duration in seconds],
    }
    with capsys.disabled():
        print(json.dumps(figures))  # noqa: T201  # a campaign tells its numbers

    assert figures["rejected"] == {}
    assert figures["never placed"] == 0
    assert figures["ran"] == PODS
    assert service.leader in NEW
