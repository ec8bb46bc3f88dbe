"""A process that serves an extender of made-up nodes on loopback.

It is for benchmarks that time answers on the wire. Run as a program it prints its port and serves
until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from alignup import read_pod
from alignup.cli.cluster import keep_from_collection
from alignup.control_plane.api_server.objects import PodReader
from alignup.control_plane.publishers.fleet import read_fleet
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.extender_server import make_app
from alignup.control_plane.serving import serve
from alignup.kubelet.node_resource_topology.report import decode_report
from rig.workload import node, pod


def made_state(nodes: int) -> ClusterState:
    """Return nodes of 2, 4 and 8 NUMA nodes and all policies, with up to three pods each.

    They are the same each time.
    """
    random = Random(1)
    lines = [json.dumps(node(number, random)) for number in range(nodes)]
    state = ClusterState()
    for fleet_node in read_fleet("\n".join(lines).encode(), "nodes"):
        for number in range(random.randint(0, 3)):
            manifest = pod(number, 1.0, random)
            manifest["metadata"] = {"name": f"old-{number}", "uid": f"{fleet_node.name}-{number}"}
            fleet_node.admit(read_pod(manifest))
        state.report_seen(
            decode_report(msgspec.json.encode(fleet_node.report(with_holdings=True))), 0
        )
    return state


async def no_budgets() -> tuple[()]:
    """Return the disruption budgets of the cluster: none."""
    return ()


async def main(nodes: int) -> None:
    """Serve until ended."""
    state = made_state(nodes)
    extender = SimpleNamespace(
        answers=Answers(state),
        state=state,
        clock=time.monotonic,
        watch=SimpleNamespace(is_synced=True, lists=0),
        check_ready=lambda: None,
        tell=lambda *_: None,
        budgets=no_budgets,
        read=PodReader().read,
    )
    keep_from_collection()  # as the command does
    _, port = await serve(make_app(extender), ("127.0.0.1", 0))
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
