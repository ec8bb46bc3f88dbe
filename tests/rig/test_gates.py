"""`alignup gates` with the real API server, its scheduler by its defaults, and a fleet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.gates.node_affinity import GATE
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL
from rig.control_plane import free_address
from rig.outcome import Outcome, play
from rig.proof import add_gates, metrics_of, run
from rig.servers import ALIGNUP, Server, alignup, control_plane, wait_for_metric
from rig.workload import allocatable, node, single_numa_nodes, span_for, workload, write_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig.control_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

SECONDS = 8.0
PODS = "/api/v1/namespaces/default/pods"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def gated(
    name: str, cpus: int, seconds: float = 60, device: str = "", **spec: Any
) -> dict[str, Any]:
    """Return a pod with the gate that runs for a while."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    if device:
        amounts[device] = "1"

    resources = {"limits": amounts, "requests": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"alignup.dev/duration": f"{seconds}s"}},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "a", "image": "none", "resources": resources}],
            **spec,
        },
    }


class Rig:
    """A control plane with nodes of 7 and 8 CPUs, and a keeper."""

    def __init__(self, plane: ControlPlane, address: str) -> None:
        self.plane = plane
        self.address = address
        self.server = Server(plane.kubeconfig)

    def create(self, pod: dict[str, Any]) -> None:
        status, answer = self.server.asked("POST", PODS, pod)
        assert status == 201, answer

    def pod(self, name: str) -> dict[str, Any]:
        return self.server.get(f"{PODS}/{name}")

    def until(self, name: str, phase: str, seconds: float = 30.0) -> dict[str, Any]:
        """Return a pod once it is in a phase."""
        deadline = time.monotonic() + seconds
        while True:
            pod = self.pod(name)
            if pod["status"]["phase"] == phase:
                return pod
            assert time.monotonic() < deadline, json.dumps(pod)
            time.sleep(0.05)

    def labels(self) -> list[str]:
        """Return the keys of the labels of places on all nodes."""
        nodes = self.server.get("/api/v1/nodes")["items"]
        return [
            key
            for node_object in nodes
            for key in node_object["metadata"]["labels"]
            if key.startswith(PLACE_LABEL)
        ]

    def cordon(self, name: str) -> None:
        path = f"/api/v1/nodes/{name}"
        assert self.server.ask("PATCH", path, {"spec": {"unschedulable": True}}) == 200


@contextmanager
def rig(count: int, *options: str) -> Iterator[Rig]:
    """Run a control plane with nodes of two NUMA nodes, single-numa-node, and a keeper."""
    with control_plane() as plane:
        plane.schedule({})
        described = single_numa_nodes(count)

        path = write_nodes(plane.folder, described)
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        fleet, keeper = free_address(), free_address()
        with (
            alignup("fleet", *listen, fleet, "--nodes", path, ready=f"http://{fleet}/healthz"),
            alignup("gates", *listen, keeper, *options, ready=f"http://{keeper}/healthz"),
        ):
            yield Rig(plane, keeper)


def test_pods_get_places_in_both_shapes_and_wait_for_what_ends() -> None:
    own_term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [own_term, own_term]}}}
    with rig(1) as here:
        here.create(gated("first", 6, seconds=6))
        first = here.until("first", "Running")
        assert first["metadata"]["annotations"][PLACE] == first["spec"]["nodeName"]
        terms = first["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert len(terms) == 2

        here.create(gated("own", 6, affinity=affinity))
        own = here.until("own", "Running")
        terms = own["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert [len(term["matchExpressions"]) for term in terms] == [2, 2]

        # 3 CPUs are free, on two NUMA nodes
        here.create(gated("waits", 6, seconds=3))
        time.sleep(1)
        assert here.pod("waits")["spec"]["schedulingGates"]
        here.until("waits", "Running")
        assert here.until("first", "Succeeded")
        assert here.labels() == []


def test_metrics_say_what_pods_wait_for_and_how_soon_they_are_bound(capsys) -> None:
    with rig(1) as here:
        ungated = gated("ungated", 1)
        del ungated["spec"]["schedulingGates"]
        here.create(ungated)
        here.until("ungated", "Running")
        here.create(gated("first", 6, seconds=8))
        here.create(gated("second", 6, seconds=60))
        for name in ("first", "second"):
            here.until(name, "Running")

        here.create(gated("waits", 6))
        kueue = gated("other", 6)
        kueue["spec"]["schedulingGates"].append({"name": "example.com/other"})
        here.create(kueue)
        reason = 'alignup_gates_waiting_by_reason_pods{{reason="{}"}}'.format
        wait_for_metric(here.address, reason("no_node_aligns"), 1)
        metrics = metrics_of(here.address)
        assert metrics[reason("other_gate")] == 1
        assert sum(metrics[name] for name in metrics if name.startswith(reason("")[:-3])) == 2
        assert metrics["alignup_gates_ungated_pods"] == 1

        here.until("waits", "Running")
        wait_for_metric(here.address, "alignup_gates_room_to_bound_seconds_count", 3)
        metrics = metrics_of(here.address)
        seconds = metrics["alignup_gates_room_to_bound_seconds_sum"] / 3
        with capsys.disabled():
            print(f"from room to binding {seconds:.3f} s on average")  # noqa: T201
        assert 0 < seconds < 10
        assert metrics[reason("no_node_aligns")] == 0


def test_a_pod_moves_from_a_cordoned_node_by_a_label(capsys) -> None:
    with rig(2) as here:
        # nobody binds pods while the scheduler is away
        here.plane.end("kube-scheduler")
        here.create(gated("p", 6))
        deadline = time.monotonic() + 20
        while PLACE not in here.pod("p")["metadata"]["annotations"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)

        place = here.pod("p")["metadata"]["annotations"][PLACE]
        begun = time.monotonic()
        here.cordon(place)
        while not here.labels():
            assert time.monotonic() < begun + 20
            time.sleep(0.01)
        took = time.monotonic() - begun

        here.plane.up()
        pod = here.until("p", "Running")
        assert pod["spec"]["nodeName"] != place
        deadline = time.monotonic() + 20
        while here.labels():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    with capsys.disabled():
        print(f"{took:.2f} s from the cordon to the label")  # noqa: T201  # a campaign tells its numbers
    # 0.2 s where the machine is its own; as much as this where it is not
    assert took < 5


def test_pods_of_which_the_scheduler_knows_more_have_several_candidates() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    with rig(3) as here:
        for number in range(3):
            pod = gated(f"p{number}", 1, topologySpreadConstraints=[spread])
            pod["metadata"]["labels"] = {"app": "a"}
            here.create(pod)

        nodes = {here.until(f"p{number}", "Running")["spec"]["nodeName"] for number in range(3)}
        assert len(nodes) == 3
        assert metrics_of(here.address)["alignup_gates_places"] == 0


def test_no_pod_is_rejected_and_each_is_tried_once(capsys) -> None:
    with control_plane() as plane:
        summary = run(
            plane, 24, 150, extender=False, keeper=(), single=True, seconds=SECONDS, load=0.7
        )
    with capsys.disabled():
        print(json.dumps(summary))  # noqa: T201  # a campaign tells its numbers
    assert summary["rejected"] == {}
    assert summary["tries of a placed pod"] < 1.1
    fits_nowhere = summary["keeper"]["alignup_gates_waiting_pods"]
    assert summary["never placed"] == fits_nowhere
    assert summary["ran"] == 150 - fits_nowhere


@pytest.mark.parametrize("victim", ["keeper", "kube-apiserver"])
def test_what_is_away_in_the_middle_loses_nothing(victim) -> None:
    """A keeper that is killed, and an API server that is away for half a minute."""
    with control_plane() as plane, ExitStack() as stack:
        plane.schedule({})
        nodes, pods = workload(16, 80, SECONDS)
        add_gates(pods)
        outcome = Outcome(allocatable=allocatable(nodes))
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        fleet, keeper = free_address(), free_address()
        path = write_nodes(plane.folder, nodes)
        stack.enter_context(
            alignup("fleet", *listen, fleet, "--nodes", path, ready=f"http://{fleet}/healthz")
        )
        process = stack.enter_context(
            alignup("gates", *listen, keeper, ready=f"http://{keeper}/healthz")
        )
        restarted: list[subprocess.Popen[bytes]] = []

        def disturb() -> None:
            if victim == "keeper":
                process.kill()
                process.wait()
                time.sleep(3)
                command = [*ALIGNUP, "gates", *listen, keeper]
                restarted.append(subprocess.Popen(command))  # noqa: S603  # ours
            else:
                plane.end(victim)
                time.sleep(30)
                plane.up()

        span = span_for(nodes, pods, SECONDS, 0.5)
        timer = threading.Timer(span / 2, disturb)
        timer.start()
        try:
            asyncio.run(play(plane.kubeconfig, pods, span, outcome, 90))
            timer.join()
            waiting = metrics_of(keeper)["alignup_gates_waiting_pods"]
        finally:
            for restarted_process in restarted:
                restarted_process.terminate()
                restarted_process.wait(30)

    summary = outcome.summary()
    assert summary["rejected"] == {}
    assert summary["never placed"] == waiting


class Gateway:
    """Passes connections on to a server, and keeps back what clients send while it is closed."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.kept = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Keep back what clients send from now on."""
        self._open.clear()

    def open(self) -> None:
        """Send what was kept back, and go on."""
        self._open.set()

    def end(self) -> None:
        """Take no more connections, and wait until those that there are have ended."""
        self.open()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(30)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            answers = threading.Thread(target=self._pass_on, args=(server, client))
            answers.start()
            self._pass_on(client, server, keeps=True)
            answers.join()

    def _pass_on(self, source: socket.socket, sink: socket.socket, *, keeps: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if keeps and not self._open.is_set():
                    self.kept += len(data)
                    self._open.wait()
                sink.sendall(data)
        # what was kept back goes on even if the client has given up meanwhile
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def through(plane: ControlPlane, gateway: Gateway) -> str:
    """Return a kubeconfig by which clients reach the API server through a gateway."""
    config = json.loads((plane.folder / "kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://{gateway.address}"
    path = plane.folder / "kubeconfig-gateway"
    path.write_text(json.dumps(config))
    return str(path)


def until(holds: Any, seconds: float = 60.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_late_patch_of_a_leader_that_was_stopped_is_refused() -> None:
    """Its patch is held in its socket, and it is stopped for a minute.

    The next leader gives the room to another pod: both together pass the scheduler's sums, and the
    kubelet would reject the second one.
    """
    with control_plane() as plane, ExitStack() as stack:
        plane.schedule({})
        server = Server(plane.kubeconfig)
        described = [node(0, Random(1))]
        described[0]["kubelet"]["topologyManagerPolicy"] = "single-numa-node"
        path = write_nodes(plane.folder, described)
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        fleet, first, second = free_address(), free_address(), free_address()
        stack.enter_context(
            alignup("fleet", *listen, fleet, "--nodes", path, ready=f"http://{fleet}/healthz")
        )
        assert server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "alignup"}}) == 201
        gateway = Gateway(server.url.removeprefix("https://"))
        stack.callback(gateway.end)
        held = ("--kubeconfig", through(plane, gateway), "--listen")
        stopped = stack.enter_context(
            alignup("gates", *held, first, "--leader-elect", ready=f"http://{first}/healthz")
        )
        until(lambda: metrics_of(first)["alignup_gates_leads"])
        stack.enter_context(
            alignup("gates", *listen, second, "--leader-elect", ready=f"http://{second}/healthz")
        )

        # both need NUMA node 0, which has 7 CPUs and the NIC
        late = gated("late", 4, device="example.com/nic")
        # connections that are open already, so that the patch itself is held, and no handshake
        shared = {"name": "a", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
        for number in range(5):
            pod = gated(f"shared{number}", 1, containers=[shared])
            assert server.ask("POST", PODS, pod) == 201
        until(lambda: metrics_of(first)["alignup_gates_released_pods_total"] == 5)
        time.sleep(1)

        gateway.close()
        assert server.ask("POST", PODS, late) == 201
        until(lambda: gateway.kept and metrics_of(first)["alignup_gates_places"])
        time.sleep(0.5)
        os.kill(stopped.pid, signal.SIGSTOP)
        stopped_at = time.monotonic()
        try:
            priority = {"metadata": {"name": "high"}, "value": 1000}
            classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
            assert server.ask("POST", classes, priority) == 201
            assert server.ask("POST", PODS, gated("other", 4, priorityClassName="high")) == 201
            until(lambda: server.get(f"{PODS}/other")["status"]["phase"] == "Running", seconds=90)
            assert server.get(f"{PODS}/late")["spec"]["schedulingGates"]
            time.sleep(max(0.0, stopped_at + 60 - time.monotonic()))
        finally:
            gateway.open()
            time.sleep(2)
            os.kill(stopped.pid, signal.SIGCONT)

        time.sleep(5)
        waits = server.get(f"{PODS}/late")
        assert waits["spec"]["schedulingGates"]
        assert not metrics_of(first)["alignup_gates_leads"]
        assert metrics_of(second)["alignup_gates_leads"]

        assert server.ask("DELETE", f"{PODS}/other") == 200
        until(lambda: server.get(f"{PODS}/late")["status"]["phase"] == "Running")
