"""Many simulated kubelets in one process, and many pods that are bound to them all at once.

100 nodes and 1,000 pods by default; `ALIGNUP_FLEET_NODES=1000` and `ALIGNUP_FLEET_PODS=10000` are
the whole campaign.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from alignup.control_plane.api_server.api_client import Api, Pauses
from alignup.control_plane.api_server.watch import Follower
from rig.outcome import DECODE, PODS, Outcome, Seen, create, percentiles
from rig.proof import FLEET, processor_time
from rig.servers import alignup, control_plane
from rig.workload import workload, write_nodes

pytestmark = [pytest.mark.slow, pytest.mark.rig]

NODES = int(os.environ.get("ALIGNUP_FLEET_NODES") or 100)
PODS_ASKED = int(os.environ.get("ALIGNUP_FLEET_PODS") or 1000)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_SECONDS = 40
"""A node whose lease is older is taken to be dead."""
AT_ONCE = 8
BUSY = 3
"""Processes that want each core, from which on every request takes long, those for leases too."""
MEBI = 1 << 20


def pod(number: int, node: str) -> dict:
    """Return a pod that is bound already; ten of them fit on any node."""
    amounts = {"cpu": "200m", "memory": "1Gi"}
    if number % 2:
        amounts["cpu"] = "1"

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:05}", "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "a",
                    "image": "none",
                    "resources": {"limits": amounts, "requests": amounts},
                }
            ],
        },
    }


async def oldest_lease(api: Api) -> float:
    """Return how many seconds ago the lease was renewed that was renewed first."""
    leases = msgspec.json.decode(await api.request("GET", LEASES))["items"]
    assert len(leases) == NODES
    renewed = min(datetime.fromisoformat(lease["spec"]["renewTime"]) for lease in leases)
    return time.time() - renewed.timestamp()


def all_run(outcome: Outcome) -> bool:
    return all(record.running is not None for record in outcome.pods.values())


async def load(kubeconfig: str, pods: list[dict], outcome: Outcome) -> list[float]:
    """Create pods as fast as the server takes them, wait until all run.

    Return the ages of the oldest leases.
    """
    api = await Api.connect(kubeconfig)
    api.pauses = Pauses(first=0.05, longest=1.0)
    follower = Follower(api, PODS, DECODE, outcome)
    watching = asyncio.create_task(follower.run())
    slots = asyncio.Semaphore(AT_ONCE)
    outcome.start = time.monotonic()

    async def create_bound(manifest: dict) -> None:
        async with slots:
            outcome.pods[manifest["metadata"]["name"]] = Seen(1.0, outcome.now(), 0.0)
            await create(api, manifest)

    creating = asyncio.gather(*map(create_bound, pods))
    ages = []
    try:
        async with asyncio.timeout(900):
            while not creating.done() or not all_run(outcome):
                ages.append(await oldest_lease(api))
                await asyncio.sleep(5)

        await creating
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await api.close()
        await asyncio.sleep(0.25)  # connections under TLS take a moment to close

    return ages


def test_many_nodes_and_pods_in_one_process(capsys) -> None:
    nodes, _ = workload(NODES, 0, 0)
    pods = [pod(number, nodes[number % NODES]["name"]) for number in range(PODS_ASKED)]
    outcome = Outcome()
    with control_plane() as plane:
        listen = ("--kubeconfig", plane.kubeconfig, "--listen", FLEET)
        path = write_nodes(plane.folder, nodes)
        begun = time.monotonic()
        with alignup("fleet", *listen, "--nodes", path, ready=f"http://{FLEET}/healthz") as fleet:
            registered = time.monotonic() - begun
            ages = asyncio.run(load(plane.kubeconfig, pods, outcome))
            status = Path(f"/proc/{fleet.pid}/status").read_text()
            figures = {
                "nodes": NODES,
                "pods": len(pods),
                "seconds until registered": round(registered, 1),
                "seconds until all ran": round(outcome.now(), 1),
                "bound to running": percentiles(
                    [record.running - record.bound for record in outcome.pods.values()]
                ),
                "oldest lease": f"{max(ages):.0f} s",
                "memory": f"{int(status.partition('VmHWM:')[2].split()[0]) * 1024 // MEBI} MiB",
                **processor_time(plane, fleet=fleet.pid),
            }

    with capsys.disabled():
        print(json.dumps(figures))  # noqa: T201  # a campaign tells its numbers

    assert not any(record.reason for record in outcome.pods.values())
    if os.getloadavg()[0] < BUSY * (os.cpu_count() or 1):
        assert max(ages) < LEASE_SECONDS
