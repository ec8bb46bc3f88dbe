"""Asking a real cluster why a pod waits, and making room for it there, with simulated kubelets."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from rig_proof import EXTENDER, FLEET
from rig_workload import write_nodes
from rigged import ALIGNUP, Server, alignup, control_plane
from watched import description, pod_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from rigged import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": True}


def ask(plane: ControlPlane, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a subcommand that asks the cluster, and return its status and what it prints."""
    command = [*ALIGNUP, words[0], "--kubeconfig", plane.kubeconfig, "--json", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)  # noqa: S603  # ours
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def get(server: Server, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"{PODS}/{name}")
    return found


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def create(server: Server, name: str, cpu: int, node: str = "") -> None:
    pod = pod_object(name, cpu=cpu)
    del pod["metadata"]["uid"], pod["status"], pod["spec"]["priority"]
    pod["metadata"]["ownerReferences"] = [OWNER]
    if node:
        pod["spec"]["nodeName"] = node
    assert server.ask("POST", PODS, pod) == 201


def reported(server: Server) -> list[str]:
    """Return the pods of all holdings."""
    found = server.get("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies")["items"]
    holdings = [json.loads(one["metadata"]["annotations"]["alignup.dev/holdings"]) for one in found]
    return [pod["name"] for one in holdings for pod in one["pods"]]


def runs(server: Server, *names: str) -> bool:
    return all(get(server, name).get("status", {}).get("phase") == "Running" for name in names)


def test_waiting_pods_run_after_the_planned_evictions_and_nothing_is_rejected() -> None:
    """Each of three nodes has 1 CPU and 2 left on its NUMA nodes, and a pod of 3 waits: one of 2 has to move."""
    with control_plane() as plane, ExitStack() as stack:
        server = Server(plane.kubeconfig)
        nodes = [{"name": f"node-{number}", **description()} for number in range(3)]
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        path = write_nodes(plane.folder, nodes)
        ready = [f"http://{one}/healthz" for one in (FLEET, EXTENDER)]
        stack.enter_context(alignup("fleet", *listen, FLEET, "--nodes", path, ready=ready[0]))
        stack.enter_context(alignup("extender", *listen, EXTENDER, ready=ready[1]))
        plane.schedule_with(EXTENDER)
        names = [f"pod-{number}" for number in range(6)]
        for number, name in enumerate(names):
            create(server, name, 2, f"node-{number // 2}")
        until(lambda: runs(server, *names))
        create(server, "waits", 3)
        until(lambda: "NotAligned" in [one["reason"] for one in server.get(EVENTS)["items"]])
        until(lambda: len(reported(server)) == len(names))
        status, (why,) = ask(plane, "why", "default/waits")
        assert (status, why["admitting"], why["room"]["evictions"]) == (1, 0, 1)
        planned = why["room"]["steps"][0]["pod"]
        work = subprocess.Popen(  # noqa: S603  # ours
            [*ALIGNUP, "rebalance", "--kubeconfig", plane.kubeconfig, "--apply"], stdout=subprocess.PIPE, text=True
        )
        until(lambda: not get(server, planned).get("spec"))
        out, _ = work.communicate(timeout=150)
        assert work.returncode == 0, out
        create(server, "again", 2)  # as its controller would
        until(lambda: runs(server, "waits", "again"))
        assert {one["status"]["phase"] for one in server.get(PODS)["items"]} == {"Running"}
        assert ask(plane, "why", "default/waits")[0] == 0
        status, (plan,) = ask(plane, "rebalance")
        assert (status, plan["steps"], plan["leftOut"]) == (0, [], [])
