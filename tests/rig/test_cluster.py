"""The extender and simulated kubelets, with the real scheduler and API server of the rig."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from contextlib import ExitStack

import pytest

from rig.outcome import Outcome, play
from rig.proof import EXTENDER, FLEET, run
from rig.servers import ALIGNUP, alignup, control_plane, wait_for_metric
from rig.workload import allocatable, span_for, workload, write_nodes

pytestmark = [pytest.mark.slow, pytest.mark.rig]

SECONDS = 8.0


def test_no_simulated_kubelet_rejects_what_the_extender_let_pass(capsys) -> None:
    with control_plane() as plane:
        summary = run(plane, 24, 150, extender=True, seconds=SECONDS, load=0.7)
    with capsys.disabled():
        print(json.dumps(summary))  # noqa: T201  # a campaign tells its numbers
    assert summary["rejected"] == {}
    assert summary["ran"] == 150


def test_few_are_rejected_where_nodes_publish_amounts_only(capsys) -> None:
    """A yes is an upper bound there: amounts do not tell which NUMA nodes are tied by memory.

    A kubelet with the policy best-effort then goes on, and fails to allocate. That hangs on when
    pods come and end, so that most runs have no such pod.
    """
    with control_plane() as plane:
        summary = run(plane, 24, 150, extender=True, amounts_only=True, seconds=SECONDS, load=0.7)
    with capsys.disabled():
        print(json.dumps(summary))  # noqa: T201  # as above
    assert set(summary["rejected"]) <= {"TopologyAffinityError", "UnexpectedAdmissionError"}
    assert sum(summary["rejected"].values()) <= 5
    assert summary["never placed"] == 0


@pytest.mark.parametrize("victim", ["extender", "kube-apiserver", "etcd"])
def test_what_starts_again_in_the_middle_loses_nothing(victim) -> None:
    with control_plane() as plane, ExitStack() as stack:
        nodes, pods = workload(16, 80, SECONDS)
        outcome = Outcome(allocatable=allocatable(nodes))
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        path = write_nodes(plane.folder, nodes)
        ready = [f"http://{address}/healthz" for address in (FLEET, EXTENDER)]
        stack.enter_context(alignup("fleet", *listen, FLEET, "--nodes", path, ready=ready[0]))
        extender = stack.enter_context(alignup("extender", *listen, EXTENDER, ready=ready[1]))
        plane.schedule_with(EXTENDER)
        restarted: list[subprocess.Popen[bytes]] = []

        def disturb() -> None:
            if victim == "extender":
                extender.kill()
                extender.wait()
                command = [*ALIGNUP, "extender", *listen, EXTENDER]
                restarted.append(subprocess.Popen(command))  # noqa: S603  # ours
            else:
                plane.end(victim)
                plane.up()

        span = span_for(nodes, pods, SECONDS, 0.5)
        timer = threading.Timer(span / 2, disturb)
        timer.start()
        try:
            asyncio.run(play(plane.kubeconfig, pods, span, outcome, 90))
            timer.join()
            wait_for_metric(EXTENDER, "alignup_extender_pods", 0.0)
        finally:
            for process in restarted:
                process.terminate()
                process.wait(30)

    summary = outcome.summary()
    assert summary["rejected"] == {}
    assert summary["never placed"] == 0
    assert outcome.settled
