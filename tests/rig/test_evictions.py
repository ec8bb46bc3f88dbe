"""Asking a real cluster why a pod waits, and making room for it there.

Kubelets are simulated ones, and real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from inputs.watched_objects import description, pod_object
from rig.proof import EXTENDER, FLEET
from rig.published_kubelets import PROGRAMS, real_kubelets
from rig.servers import ALIGNUP, Server, alignup, control_plane, need_rig, wait_for_metric
from rig.workload import write_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rig.servers import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "rs",
    "uid": "uid-rs",
    "controller": True,
}

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a kubelet needs root")


def ask(plane: ControlPlane, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a subcommand that asks the cluster, and return its status and what it prints."""
    command = [*ALIGNUP, words[0], "--kubeconfig", plane.kubeconfig, "--json", *words[1:]]
    done = subprocess.run(  # noqa: S603  # ours
        command, capture_output=True, text=True, check=False, timeout=180
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def get(server: Server, name: str) -> dict[str, Any]:
    pod: dict[str, Any] = server.get(f"{PODS}/{name}")
    return pod


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def create(server: Server, name: str, cpu: int, node: str = "") -> None:
    pod = pod_object(name, cpu=cpu)
    del pod["metadata"]["uid"], pod["status"], pod["spec"]["priority"]
    pod["metadata"]["ownerReferences"] = [OWNER]
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    if node:
        pod["spec"]["nodeName"] = node
    assert server.ask("POST", PODS, pod) == 201


def reported(server: Server) -> list[str]:
    """Return the pods of all holdings."""
    reports = server.get("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies")["items"]
    holdings = [
        json.loads(report["metadata"]["annotations"]["alignup.dev/holdings"]) for report in reports
    ]
    return [pod["name"] for holding in holdings for pod in holding["pods"]]


def runs(server: Server, *names: str) -> bool:
    return all(get(server, name).get("status", {}).get("phase") == "Running" for name in names)


@contextmanager
def simulated_kubelets(plane: ControlPlane, nodes: list[dict[str, Any]]) -> Iterator[None]:
    arguments = (
        "fleet",
        "--kubeconfig",
        plane.kubeconfig,
        "--listen",
        FLEET,
        "--nodes",
        write_nodes(plane.folder, nodes),
    )
    with alignup(*arguments, ready=f"http://{FLEET}/healthz"):
        yield


@pytest.mark.parametrize("kubelets", [simulated_kubelets, pytest.param(real_kubelets, marks=ROOT)])
def test_waiting_pods_run_after_the_planned_evictions_and_nothing_is_rejected(kubelets) -> None:
    """Each of three nodes has 1 CPU and 2 left on its NUMA nodes, and a pod of 3 waits.

    One of 2 has to move.
    """
    if kubelets is real_kubelets:
        need_rig(*PROGRAMS)

    nodes = [{"name": f"node-{number}", **description()} for number in range(3)]
    with (
        control_plane() as plane,
        kubelets(plane, nodes),
        alignup(
            "extender",
            "--kubeconfig",
            plane.kubeconfig,
            "--listen",
            EXTENDER,
            ready=f"http://{EXTENDER}/healthz",
        ),
    ):
        server = Server(plane.kubeconfig)
        wait_for_metric(EXTENDER, 'alignup_extender_nodes{known_by="holdings"}', float(len(nodes)))
        plane.schedule_with(EXTENDER)
        names = [f"pod-{number}" for number in range(6)]
        for number, name in enumerate(names):
            create(server, name, 2, f"node-{number // 2}")
        until(lambda: runs(server, *names))
        create(server, "waits", 3)
        until(lambda: "NotAligned" in [event["reason"] for event in server.get(EVENTS)["items"]])
        until(lambda: len(reported(server)) == len(names))
        status, (why,) = ask(plane, "why", "default/waits")
        assert (status, why["admitting"], why["room"]["evictions"]) == (1, 0, 1)
        planned = why["room"]["steps"][0]["pod"]
        work = subprocess.Popen(  # noqa: S603  # ours
            [*ALIGNUP, "rebalance", "--kubeconfig", plane.kubeconfig, "--apply"],
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: not get(server, planned).get("spec"))
        out, _ = work.communicate(timeout=150)
        assert work.returncode == 0, out
        create(server, "again", 2)  # as its controller would
        until(lambda: runs(server, "waits", "again"))
        assert {pod["status"]["phase"] for pod in server.get(PODS)["items"]} == {"Running"}
        assert ask(plane, "why", "default/waits")[0] == 0
        status, (plan,) = ask(plane, "rebalance")
        assert (status, plan["steps"], plan["leftOut"]) == (0, [], [])
