"""The same arrivals of pods on a control plane with and without the extender.

And what becomes of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alignup import read_pod
from alignup.control_plane.gates.node_affinity import GATE
from rig.control_plane import free_address
from rig.outcome import Outcome, percentiles, play
from rig.room import waits_beside_room
from rig.servers import alignup
from rig.workload import allocatable, span_for, workload, write_nodes

if TYPE_CHECKING:
    from rig.control_plane import ControlPlane

FLEET, EXTENDER = free_address(), free_address()


def run(
    plane: ControlPlane,
    nodes: int,
    pods: int,
    *,
    extender: bool,
    keeper: tuple[str, ...] | None = None,
    overlay: dict[str, Any] | None = None,
    gates: dict[str, bool] | None = None,
    single: bool = False,
    amounts_only: bool = False,
    seconds: float = 60.0,
    load: float = 1.0,
    patience: float | None = None,
) -> dict[str, Any]:
    """Run one workload on a fresh control plane, and return what became of it.

    Args:
        plane: the control plane.
        nodes: how many simulated nodes.
        pods: how many pods.
        extender: let the scheduler ask the extender.
        keeper: options of `alignup gates`, which lets pods wait behind its gate; None: it does not
            run.
        overlay: fields of the configuration of a scheduler that asks none.
        gates: feature gates of the scheduler.
        single: let all nodes have two NUMA nodes with two GPUs each, and the policy
            single-numa-node.
        amounts_only: let nodes publish the amounts of their NUMA nodes only, as other exporters do.
        seconds: for which pods run, on average.
        load: the part of all CPUs that pods ask for.
        patience: seconds after the last pod has come; None: until all have ended.
    """
    plane.gates = gates or {}
    if single:
        described, manifests = single_numa_workload(nodes, pods, seconds)
    else:
        described, manifests = workload(nodes, pods, seconds)

    if patience is None:
        patience = 6 * seconds
    if keeper is not None:
        add_gates(manifests)

    path = write_nodes(plane.folder, described)
    outcome = Outcome(allocatable=allocatable(described))
    listen = ("--kubeconfig", plane.kubeconfig, "--listen")

    span = span_for(described, manifests, seconds, load)
    fleet_address, extender_address = free_address(), free_address()
    options = [fleet_address, "--nodes", path]
    if amounts_only:
        options.append("--amounts-only")

    with ExitStack() as stack:

        def started(command: str, address: str, *words: str) -> int:
            """Start a command of ours that is to be there to the end; return its id."""
            ready = f"http://{address}/healthz"
            server = stack.enter_context(alignup(command, *listen, address, *words, ready=ready))
            return server.pid

        servers = {"fleet": started("fleet", *options)}
        if extender:
            servers["extender"] = started("extender", extender_address)
            plane.schedule_with(extender_address)
        else:
            plane.schedule(overlay or {})

        keeper_address = free_address()
        if keeper is not None:
            servers["keeper"] = started("gates", keeper_address, *keeper)

        asyncio.run(play(plane.kubeconfig, manifests, span, outcome, patience))
        report = {**processor_time(plane, **servers), **cycles(plane)}
        if extender:
            report["questions"] = questions(extender_address)
        if keeper is not None:
            report["keeper"] = metrics_of(keeper_address)

    waits = waits_beside_room(path, manifests, outcome.pods)
    return {**report, **outcome.summary(), "from room to running": percentiles(waits)}


def single_numa_workload(
    nodes: int, pods: int, seconds: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a workload for nodes of two NUMA nodes with four GPUs, single-numa-node."""
    described, manifests = workload(3 * nodes, pods, seconds)
    described = described[::3]
    for node_line in described:
        node_line["kubelet"]["topologyManagerPolicy"] = "single-numa-node"
        node_line["devices"]["example.com/gpu"] = [
            {"id": f"gpu{gpu}", "numa": gpu % 2} for gpu in range(4)
        ]
    return described, manifests


def add_gates(manifests: list[dict[str, Any]]) -> None:
    """Give the keeper's gate to the pods that get it by its admission policy."""
    for manifest in manifests:
        pod = read_pod(manifest)
        if pod.qos == "Guaranteed" or pod.devices:
            manifest["spec"]["schedulingGates"] = [{"name": GATE}]


def metrics_of(address: str) -> dict[str, float]:
    """Return what a server of ours counts."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()

    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def processor_time(plane: ControlPlane, **ours: int) -> dict[str, dict[str, float]]:
    """Return the processor time of each program so far, in seconds."""
    tick = os.sysconf("SC_CLK_TCK")
    seconds_by_program = {}
    for name, pid in {**plane.processes.pids, **ours}.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds_by_program[name] = (int(fields[11]) + int(fields[12])) / tick
    return {"processor seconds": seconds_by_program}


def cycles(plane: ControlPlane) -> dict[str, object]:
    """Return how often the scheduler looked for a node and took one.

    And how long that took on average, and what for.

    It looks for one pod at a time, and lets bindings be done meanwhile. Pods come to its queue, or
    from a place to wait in it to another one, by events.
    """
    context = ssl._create_unverified_context()  # noqa: S323  # its certificate is its own
    with urllib.request.urlopen(
        f"https://{plane.scheduler_address}/metrics", timeout=5, context=context
    ) as response:
        text = response.read().decode()

    def counted(name: str) -> tuple[float, float]:
        counts, sums = (
            re.findall(rf"^{name}_{part}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
            for part in ("count", "sum")
        )
        return float(counts[0]), float(sums[0])

    count, total = counted("scheduler_scheduling_algorithm_duration_seconds")
    placed, tries = counted("scheduler_pod_scheduling_attempts")
    moves = re.findall(
        r'^scheduler_queue_incoming_pods_total{event="(.*?)",queue="(.*?)"} (\S+)$',
        text,
        re.MULTILINE,
    )
    return {
        "choices": int(count),
        "ms a choice": 1000 * total / max(count, 1),
        "tries of a placed pod": tries / max(placed, 1),
        "to its queues": {
            f"{event} to {queue}": int(float(number)) for event, queue, number in moves
        },
    }


def questions(address: str) -> dict[str, str]:
    """Return how often the extender was asked, and how long it took on average."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
        lines = dict(
            line.rsplit(" ", 1) for line in response.read().decode().splitlines() if line[0] != "#"
        )
    name = "alignup_extender_request_seconds"
    figures = {}
    for verb in ("filter", "prioritize", "bind"):
        count = float(lines.get(f'{name}_count{{verb="{verb}"}}', 0))
        total = float(lines.get(f'{name}_sum{{verb="{verb}"}}', 0))
        figures[verb] = f"{count:.0f}: {1000 * total / max(count, 1):.2f} ms"
    return figures
