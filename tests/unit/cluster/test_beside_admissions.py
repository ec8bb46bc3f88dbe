"""A cluster is asked while its nodes change in other threads.

Each answer is that between two operations.
"""

from __future__ import annotations

import sys
from threading import Event, Thread
from typing import Any

import pytest

from alignup import Cluster, Node, Pod, read_pod
from inputs.machines import machine_of, manifest

KUBELET = {
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}


def node() -> Node:
    return Node.from_dict({"machine": machine_of(2, 4), "kubelet": KUBELET})


def pod(uid: str, cpus: int) -> Pod:
    return read_pod(manifest(uid, cpus, 1, 0))


def in_a_thread(call: Any) -> tuple[Thread, list[Any]]:
    results: list[Any] = []
    thread = Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


@pytest.mark.parametrize("threads", [1, 2])
def test_a_node_in_mid_change_is_waited_for(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alignup.cluster.cluster._WORTH_A_THREAD", 0)
    nodes = [node() for _ in range(3)]
    cluster = Cluster.from_nodes(nodes)
    changing = nodes[1]
    assert changing.cpu is not None
    ledger = changing.cpu.ledger
    with changing.manager.lock.guard() as guard, guard.take():
        ledger.give(ledger.capacity.allocatable)
        # a change within this one does not end it
        with changing.manager.lock.guard() as inner, inner.take():
            pass
        thread, answers = in_a_thread(lambda: cluster.evaluate(pod("p", 4), threads=threads))
        thread.join(0.2)
        assert thread.is_alive()
        ledger.take_back(ledger.capacity.allocatable)

    thread.join()
    assert answers[0].admitted.all()
    assert answers[0].exact.all()


def test_who_changes_a_node_may_ask_about_it() -> None:
    nodes = [node(), node()]
    cluster = Cluster.from_nodes(nodes)
    with nodes[0].manager.lock.guard() as guard, guard.take():
        assert cluster.evaluate(pod("p", 4)).admitted.all()
        assert nodes[0].admit(pod("first", 7)).admitted
        assert nodes[0].admit(pod("second", 7)).admitted
        assert cluster.evaluate(pod("p", 4)).admitted.tolist() == [False, True]


@pytest.mark.slow
def test_trials_beside_evaluations_change_no_answer() -> None:
    """Threads switch as often as they can; no pod is ever admitted for good."""
    nodes = [node() for _ in range(100)]
    cluster = Cluster.from_nodes(nodes)
    small = pod("asked", 7)
    expected = cluster.evaluate(small).affinity.copy()
    tried = manifest("tried", 7, 20, 0)
    tried["spec"]["initContainers"] = [{**tried["spec"]["containers"][0], "name": "init"}]
    stop = Event()

    def churn() -> None:
        while not stop.is_set():
            for busy_node in nodes:
                busy_node.try_admit(tried)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread, _ = in_a_thread(churn)
    try:
        for _ in range(1000):
            answer = cluster.evaluate(small)
            assert answer.admitted.all()
            assert (answer.affinity == expected).all()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
