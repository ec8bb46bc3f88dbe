"""The keeper of gates where reports come late, and where it is away for a long time itself.

`ALIGNUP_RIG_AWAY` says for how many seconds it is away: 600 are the ten minutes of the whole
campaign.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates.node_affinity import GATE
from alignup.control_plane.publishers.fleet import DURATION
from rig.control_plane import free_address
from rig.gated_play import GatedOutcome, has_gate, until
from rig.outcome import PODS, Seen, following, play
from rig.proof import add_gates, metrics_of
from rig.servers import ALIGNUP, Server, alignup, control_plane
from rig.workload import allocatable, single_numa_nodes, span_for, workload, write_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rig.control_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

AWAY = float(os.environ.get("ALIGNUP_RIG_AWAY", "20"))
LATE_FLEET = (sys.executable, Path(__file__).with_name("late_fleet.py"))


def test_reports_that_come_late_let_no_pod_be_rejected(capsys) -> None:
    """What happens on a node is in its report after 5 to 30 seconds only."""
    nodes, pods = workload(12, 120, 15.0)
    add_gates(pods)
    outcome = GatedOutcome(allocatable=allocatable(nodes))
    fleet, keeper = free_address(), free_address()
    with control_plane() as plane:
        plane.schedule({})
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        nodes_file = write_nodes(plane.folder, nodes)
        with (
            alignup(
                "fleet",
                *listen,
                fleet,
                "--nodes",
                nodes_file,
                ready=f"http://{fleet}/healthz",
                program=LATE_FLEET,
            ),
            alignup("gates", *listen, keeper, ready=f"http://{keeper}/healthz"),
        ):
            asyncio.run(
                play(plane.kubeconfig, pods, span_for(nodes, pods, 15.0, 0.9), outcome, 400)
            )

    with capsys.disabled():
        print(json.dumps(outcome.summary()))  # noqa: T201  # a campaign tells its numbers
    outcome.check_each_ran_once()


class Keeper:
    """A keeper that goes away and comes back."""

    def __init__(self, plane: ControlPlane, way: str) -> None:
        self.address = free_address()
        self._way = way
        self._command = [*ALIGNUP, "gates", "--kubeconfig", plane.kubeconfig]
        self._command += ["--listen", self.address, "--leader-elect"]
        self.process = subprocess.Popen(self._command)  # noqa: S603  # ours

    def leads(self) -> bool:
        """Return whether it gives places."""
        with suppress(OSError):
            return bool(metrics_of(self.address)["alignup_gates_leads"])
        return False

    def go(self) -> None:
        """Be killed, or stopped."""
        if self._way == "killed":
            self.process.kill()
            self.process.wait()
        else:
            self.process.send_signal(signal.SIGSTOP)

    def come_back(self) -> None:
        """Be started anew, or go on."""
        if self._way == "killed":
            self.process = subprocess.Popen(self._command)  # noqa: S603  # ours
        else:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End it, wherever it is."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(30)


class Script:
    """What users and nodes do before, while and after the keeper is away."""

    def __init__(self, plane: ControlPlane, outcome: GatedOutcome, nodes: list[str]) -> None:
        self.server = Server(plane.kubeconfig)
        self.outcome = outcome
        self.nodes = nodes
        self.random = Random(3)  # durations and choices, not secrets
        self.deleted: set[str] = set()
        self.by_hand: set[str] = set()

    def create(self, name: str, seconds: float, **spec: Any) -> None:
        """Create a pod, with the gate unless it has a node.

        Its CPUs are of one NUMA node, of which often more are free on two.
        """
        cpus = self.random.choice((3, 5, 6))
        amounts = {"cpu": str(cpus), "memory": "1Gi"}
        container = {
            "name": "a",
            "image": "none",
            "resources": {"limits": amounts, "requests": amounts},
        }
        pod = {
            "metadata": {"name": name, "annotations": {DURATION: f"{seconds:.1f}s"}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
        }
        if "nodeName" not in spec:
            pod["spec"]["schedulingGates"] = [{"name": GATE}]

        self.outcome.pods[name] = Seen(cpus, self.outcome.now(), seconds)
        status, answer = self.server.asked("POST", PODS, pod)
        assert status == 201, answer

    def names(self, wanted: Callable[[dict[str, Any]], bool]) -> list[str]:
        """Return the names of pods that are as wanted."""
        pods = self.server.get(PODS)["items"]
        return [pod["metadata"]["name"] for pod in pods if wanted(pod)]

    def waiting(self) -> list[str]:
        """Return the names of pods with the gate."""
        return self.names(has_gate)

    def running(self) -> list[str]:
        """Return the names of pods that run."""
        return self.names(lambda pod: pod["status"]["phase"] == "Running")

    def delete(self, names: list[str]) -> None:
        """Delete pods, as their users do."""
        for name in names:
            assert self.server.ask("DELETE", f"{PODS}/{name}") == 200
            self.deleted.add(name)

    def run(self, keeper: Keeper) -> None:
        """Let pods come, and the keeper go in the middle of them; let it come back later."""
        until(keeper.leads)
        for number in range(40):
            self.create(f"before-{number}", self.random.uniform(15, 60))
            if number == 20:
                # of some it has just taken off the gates, or is about to
                keeper.go()
                gone_at = time.monotonic()

        # what it let go gets bound
        until(
            lambda: (
                not self.names(lambda pod: not pod["spec"].get("nodeName") and not has_gate(pod))
            )
        )
        waiting = self.waiting()
        assert len(waiting) >= 15
        self.delete(waiting[:3])
        self.delete(self.random.sample(self.running(), 3))
        self.open_by_hand(waiting[3])
        self.bind_elsewhere()
        cordoned = {"spec": {"unschedulable": True}}
        assert self.server.ask("PATCH", f"/api/v1/nodes/{self.nodes[0]}", cordoned) == 200
        for number in range(20):
            self.create(f"meanwhile-{number}", self.random.uniform(5, 15))

        time.sleep(max(0.0, gone_at + AWAY - time.monotonic()))
        self.still_waiting = set(self.waiting())
        self.bound_before = set(self.outcome.bound_to(self.nodes[0]))
        keeper.come_back()
        for number in range(10):
            self.create(f"after-{number}", self.random.uniform(5, 15))
        until(lambda: not self.waiting() and self.is_over(), 300)

    def is_over(self) -> bool:
        """Return whether all pods that are there have ended."""
        return not self.names(lambda pod: pod["status"]["phase"] in {"Pending", "Running"})

    def open_by_hand(self, name: str) -> None:
        """Take the gate off a pod, as an impatient user does."""
        opened = {"spec": {"schedulingGates": None}}
        assert self.server.ask("PATCH", f"{PODS}/{name}", opened) == 200
        self.by_hand.add(name)

    def bind_elsewhere(self) -> None:
        """Bind pods that no keeper and no scheduler has seen, which kubelets may reject."""
        for number, name in enumerate(self.nodes[1:4]):
            self.create(f"bound-{number}", AWAY + 20, nodeName=name)
            self.by_hand.add(f"bound-{number}")


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_a_keeper_that_was_away_for_long_gives_nothing_twice(capsys, way) -> None:
    """Pods are made, deleted, bound and opened meanwhile, and a node is cordoned."""
    described = single_numa_nodes(8)

    outcome = GatedOutcome(allocatable=allocatable(described))
    fleet = free_address()
    with control_plane() as plane, ExitStack() as stack:
        plane.schedule({})
        script = Script(plane, outcome, [node_line["name"] for node_line in described])
        assert (
            script.server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "alignup"}})
            == 201
        )
        nodes_file = write_nodes(plane.folder, described)
        listen = ("--kubeconfig", plane.kubeconfig, "--listen", fleet, "--nodes", nodes_file)
        stack.enter_context(alignup("fleet", *listen, ready=f"http://{fleet}/healthz"))
        keeper = Keeper(plane, way)
        stack.callback(keeper.end)

        async def followed() -> None:
            async with following(plane.kubeconfig, outcome):
                await asyncio.to_thread(script.run, keeper)

        asyncio.run(followed())
        metrics = metrics_of(keeper.address)

    ours = outcome.pods.keys() - script.by_hand
    rejected = {name for name in ours if outcome.pods[name].reason}
    never_ran = {name for name in ours - script.deleted if outcome.pods[name].running is None}
    figures = {
        "waited while it was away": len(script.still_waiting),
        "places": metrics["alignup_gates_places_total"],
        "rejected of those bound by hand": sum(
            bool(outcome.pods[name].reason) for name in script.by_hand
        ),
    }
    with capsys.disabled():
        print(json.dumps(outcome.summary() | figures))  # noqa: T201  # a campaign tells its numbers

    assert rejected == set()
    assert never_ran == set()
    assert outcome.more_than_once == []
    assert len(script.still_waiting) >= 30
    # nobody comes to the node that was cordoned
    assert set(outcome.bound_to(script.nodes[0])) == script.bound_before
