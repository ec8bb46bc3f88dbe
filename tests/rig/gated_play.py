"""Plays pods on a control plane while something changes, and follows which got gates and places."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from alignup import read_pod
from alignup.control_plane.api_server.api_client import with_api
from alignup.control_plane.gates.installation import install
from alignup.control_plane.gates.node_affinity import GATE, NAMESPACE_LABEL
from alignup.control_plane.gates.waiting_pods import PLACE
from rig.outcome import PODS, Outcome, arrive, following, settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.control_plane.api_server.api_client import Api
    from rig.control_plane import ControlPlane
    from rig.outcome import WholePod
    from rig.servers import Server


@dataclass
class GatedOutcome(Outcome):
    """What became of all pods, with what the keeper did to them."""

    placed: dict[str, float] = field(default_factory=dict)
    """By name, when a pod was seen first with a place, in seconds since the start."""
    starts: Counter[str] = field(default_factory=Counter)
    """By name, how often a pod came to run."""
    _phases: dict[str, str] = field(default_factory=dict)

    def changed(self, pod: WholePod) -> None:
        """Take in a pod."""
        super().changed(pod)
        name = pod.metadata.name
        if PLACE in (pod.metadata.annotations or {}):
            self.placed.setdefault(name, self.now())

        phase = pod.status.phase
        self.starts[name] += phase == "Running" and self._phases.get(name) != phase
        self._phases[name] = phase

    @property
    def more_than_once(self) -> list[str]:
        """The names of pods that came to run more than once."""
        return sorted(name for name, count in self.starts.items() if count > 1)

    def check_each_ran_once(self) -> None:
        """Check that no pod was rejected, lost, or run twice."""
        summary = self.summary()
        assert summary["rejected"] == {}
        assert summary["never placed"] == 0
        assert summary["ran"] == len(self.pods)
        assert self.more_than_once == []


def until(holds: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)


def play_beside(
    kubeconfig: str,
    pods: list[dict[str, Any]],
    span: float,
    outcome: Outcome,
    patience: float,
    change: Callable[[], None],
) -> None:
    """Create pods at random moments of a span, and change something while they come.

    A third comes before the change begins, and a third once it is done, however long it takes.

    Args:
        kubeconfig: of the control plane.
        pods: the pods.
        span: seconds.
        outcome: where it is noted what becomes of them.
        patience: seconds for which the last pods may wait and run.
        change: what changes something; it may block.
    """
    random = Random(7)  # pauses, not secrets
    third = len(pods) // 3

    async def come(api: Api, arriving: list[dict[str, Any]]) -> None:
        for manifest in arriving:
            await asyncio.sleep(random.uniform(0, 2 * span / len(pods)))
            await arrive(api, manifest, outcome)

    async def all_come() -> None:
        async with following(kubeconfig, outcome) as api:
            await come(api, pods[:third])
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.to_thread(change))
                tasks.create_task(come(api, pods[third : 2 * third]))

            await come(api, pods[2 * third :])
            await settled(outcome, patience)

    asyncio.run(all_come())


def needs_place(manifest: dict[str, Any]) -> bool:
    """Return whether a pod is one to which the admission policy gives the gate."""
    pod = read_pod(manifest)
    return pod.qos == "Guaranteed" or bool(pod.devices)


def install_gates(plane: ControlPlane, server: Server) -> None:
    """Let new pods of the default namespace get the gate, and wait until they do."""
    with_api(plane.kubeconfig, lambda api: install(api, lambda _line: None))
    labelled = {"metadata": {"labels": {NAMESPACE_LABEL: "enabled"}}}
    assert server.ask("PATCH", "/api/v1/namespaces/default", labelled) == 200
    until(lambda: gives_gates(server))


def gives_gates(server: Server) -> bool:
    """Return whether a pod that is made now gets the gate."""
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "a", "image": "none", "resources": resources}
    pod = {"metadata": {"generateName": "dry-"}, "spec": {"containers": [container]}}
    status, answer = server.asked("POST", f"{PODS}?dryRun=All", pod)
    assert status == 201, answer
    return has_gate(answer)


def has_gate(pod: dict[str, Any]) -> bool:
    """Return whether a pod has the keeper's gate."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", ()))


def ungated_and_waiting(server: Server) -> list[str]:
    """Return the names of pods that need a place, are not bound, and never had the gate."""
    return [
        pod["metadata"]["name"]
        for pod in server.get(PODS)["items"]
        if not pod["spec"].get("nodeName")
        and not has_gate(pod)
        and PLACE not in pod["metadata"].get("annotations", {})
        and needs_place(pod)
    ]
