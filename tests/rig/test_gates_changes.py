"""Gates while something about them changes and pods arrive: an upgrade, a policy that is gone.

`ALIGNUP_RIG_PODS` says how many pods come, 300 for the full size.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.api_server.api_client import with_api
from alignup.control_plane.gates.installation import uninstall
from alignup.control_plane.publishers.fleet import DURATION
from rig.control_plane import free_address
from rig.gated_play import (
    GatedOutcome,
    gives_gates,
    install_gates,
    needs_place,
    play_beside,
    ungated_and_waiting,
    until,
)
from rig.outcome import PODS as NAMESPACED
from rig.outcome import Seen
from rig.proof import metrics_of
from rig.servers import Server, alignup, control_plane
from rig.workload import allocatable, span_for, workload, write_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig.control_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

NODES, SECONDS, LOAD = 12, 20.0, 1.1
PODS = int(os.environ.get("ALIGNUP_RIG_PODS", "100"))
PATIENCE = 300.0
"""Seconds for which the last pods may wait and run."""
BESIDE = 3.0
"""Seconds within which two pods are on their way to a node at once."""


class Cluster:
    """A control plane with a fleet, an extender and a keeper where they are wanted."""

    def __init__(self, plane: ControlPlane, stack: ExitStack) -> None:
        self.plane = plane
        self.server = Server(plane.kubeconfig)
        self.nodes, self.pods = workload(NODES, PODS, SECONDS)
        self.outcome = GatedOutcome(allocatable=allocatable(self.nodes))
        self.span = span_for(self.nodes, self.pods, SECONDS, LOAD)
        self.keeper = ""
        self._stack = stack
        self._extending = stack.enter_context(ExitStack())
        self._run("fleet", stack, "--nodes", write_nodes(plane.folder, self.nodes))

    def _run(self, name: str, stack: ExitStack, *options: object) -> str:
        address = free_address()
        arguments = ("--kubeconfig", self.plane.kubeconfig, "--listen", address, *options)
        stack.enter_context(alignup(name, *arguments, ready=f"http://{address}/healthz"))
        return address

    def begin_extender(self) -> None:
        self.plane.schedule_with(self._run("extender", self._extending))

    def end_extender(self) -> None:
        """Let the scheduler go on by its defaults."""
        self.plane.schedule({})
        self._extending.close()

    def begin_gates(self) -> None:
        """Let a keeper run, and new pods get the gate."""
        self.keeper = self._run("gates", self._stack)
        install_gates(self.plane, self.server)

    def create_more_than_fit(self) -> None:
        """Create pods without the gate of which some wait for a minute: each fills a NUMA node."""
        numa_nodes = sum(len(line["machine"]["numaNodes"]) for line in self.nodes)
        seconds = 60.0
        for number in range(int(1.5 * numa_nodes)):
            amounts = {"cpu": "6", "memory": "1Gi"}
            resources = {"limits": amounts, "requests": amounts}
            name = f"large-{number}"
            pod = {
                "metadata": {"name": name, "annotations": {DURATION: f"{seconds}s"}},
                "spec": {"containers": [{"name": "a", "image": "none", "resources": resources}]},
            }
            self.outcome.pods[name] = Seen(6.0, self.outcome.now(), seconds)
            assert self.server.ask("POST", NAMESPACED, pod) == 201

    def play(self, change: Any) -> None:
        kubeconfig = self.plane.kubeconfig
        play_beside(kubeconfig, self.pods, self.span, self.outcome, PATIENCE, change)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a control plane with a fleet."""
    with control_plane() as plane, ExitStack() as stack:
        yield Cluster(plane, stack)


def tell(capsys: pytest.CaptureFixture[str], figures: dict[str, Any]) -> None:
    with capsys.disabled():
        print(json.dumps(figures))  # noqa: T201  # a campaign tells its numbers


def test_an_upgrade_from_the_extender_to_gates_rejects_and_loses_no_pod(capsys) -> None:
    """By the steps of docs/gates.md, while pods arrive all the time."""
    waited_for: list[int] = []
    with cluster() as here:
        here.begin_extender()

        def upgrade() -> None:
            here.create_more_than_fit()
            here.begin_gates()
            waited_for.append(len(ungated_and_waiting(here.server)))
            until(lambda: not ungated_and_waiting(here.server), PATIENCE)
            here.end_extender()

        here.play(upgrade)
        released = metrics_of(here.keeper)["alignup_gates_released_pods_total"]

    outcome = here.outcome
    gated = [name for name, record in outcome.pods.items() if record.gated]
    summary = outcome.summary()
    figures = {"gated": len(gated), "released": released, "ungated that waited": waited_for}
    tell(capsys, summary | figures)
    assert waited_for[0] > 0
    outcome.check_each_ran_once()
    assert released == len(gated)
    assert set(outcome.placed) <= set(gated)
    # some came before, some after
    exclusive = [pod["metadata"]["name"] for pod in here.pods if needs_place(pod)]
    assert 0 < len(gated) < len(exclusive)


@pytest.mark.parametrize("extender", [True, False], ids=["with the extender", "alone"])
def test_ungated_pods_come_beside_gated_ones_once_the_policy_is_deleted(capsys, extender) -> None:
    """Nobody is rejected where the extender judges those without a gate.

    Without it a gated pod is rejected only beside an ungated one that was on its way at once.
    """
    with cluster() as here:
        if extender:
            here.begin_extender()
        else:
            here.plane.schedule({})
        here.begin_gates()

        def delete_policy() -> None:
            with_api(here.plane.kubeconfig, lambda api: uninstall(api, lambda _line: None))
            until(lambda: not gives_gates(here.server))

        here.play(delete_policy)
        waiting = metrics_of(here.keeper)["alignup_gates_waiting_pods"]

    outcome = here.outcome
    exclusive = {pod["metadata"]["name"] for pod in here.pods if needs_place(pod)}
    gated = {name for name in exclusive if outcome.pods[name].gated}
    rejected = {name for name, record in outcome.pods.items() if record.reason}
    summary = outcome.summary()
    figures = {
        "exclusive": len(exclusive),
        "gated": len(gated),
        "gated and rejected": len(rejected & gated),
    }
    tell(capsys, summary | figures)
    assert 0 < len(gated) < len(exclusive)
    assert waiting == 0
    assert summary["never placed"] == 0
    assert outcome.more_than_once == []
    if extender:
        outcome.check_each_ran_once()
    for name in rejected & gated:
        assert has_ungated_beside(outcome, name, exclusive - gated), name


def has_ungated_beside(outcome: GatedOutcome, name: str, ungated: set[str]) -> bool:
    """Return whether an ungated pod came to a pod's node after that had got its place there."""
    record = outcome.pods[name]
    return any(
        other in ungated
        and outcome.placed[name] - BESIDE < outcome.pods[other].bound
        and outcome.pods[other].version < record.version
        for other in outcome.bound_to(record.node)
    )
