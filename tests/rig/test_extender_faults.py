"""A real scheduler beside an extender that is killed again and again.

It asks one over TLS, too, and one that is cut off from its API server.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import yaml

from inputs.watched_objects import description, pod_object
from rig.control_plane import free_address
from rig.outcome import Outcome, play, play_gangs
from rig.servers import Server, alignup, control_plane
from rig.workload import allocatable, span_for, workload, write_nodes

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.rig]

SECONDS = 8.0
KILLS = 100
GANG = 6
GAP = 20
"""Seconds without a leader at most, on a machine that is not busy."""


def filtered(address: str) -> str:
    """Return the error in the answer to a question; empty: it was answered."""
    body = json.dumps({"Pod": pod_object("p", cpu=1), "NodeNames": ["n0"]}).encode()
    request = urllib.request.Request(f"http://{address}/filter", body)
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # our own server
        return json.load(response)["Error"]


def leading(addresses: list[str], seconds: float) -> str:
    """Return the address that answers, once one does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for address in addresses:
            if not filtered(address):
                return address
        time.sleep(0.1)
    raise AssertionError(f"nobody leads after {seconds} seconds")


def bound(address: str, name: str) -> str:
    """Ask for a binding, and return its error."""
    question = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": "n0"}
    request = urllib.request.Request(f"http://{address}/bind", json.dumps(question).encode())
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # our own server
        return json.load(response)["Error"]


def test_killed_in_the_middle_of_gangs_it_lets_no_pod_be_rejected(capsys) -> None:
    """A hundred times: one pod of several that come together is bound, and the extender killed."""
    nodes, pods = workload(24, GANG * KILLS, SECONDS)
    outcome = Outcome(allocatable=allocatable(nodes))
    fleet, extender = free_address(), free_address()
    with control_plane() as plane, ExitStack() as stack, ExitStack() as running:
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        path = write_nodes(plane.folder, nodes)
        stack.enter_context(
            alignup("fleet", *listen, fleet, "--nodes", path, ready=f"http://{fleet}/healthz")
        )
        plane.schedule_with(extender)

        def start() -> subprocess.Popen[str]:
            return running.enter_context(
                alignup("extender", *listen, extender, ready=f"http://{extender}/healthz")
            )

        def kill() -> None:
            nonlocal process
            process.kill()
            running.close()
            process = start()

        process = start()
        gangs = [pods[number : number + GANG] for number in range(0, len(pods), GANG)]
        asyncio.run(play_gangs(plane.kubeconfig, gangs, kill, outcome, 600))

    summary = outcome.summary()
    with capsys.disabled():
        print(json.dumps(summary))  # noqa: T201  # a campaign tells its numbers

    assert summary["rejected"] == {}
    assert summary["never placed"] == 0


def page_block(first: str) -> str:
    """Return the commands of the page about a cluster whose first line starts so."""
    page = (ROOT / "docs/questions/scheduler.md").read_text("utf-8")
    (commands,) = [block for block in page.split("```sh\n")[1:] if block.startswith(first)]
    return commands.partition("```")[0]


def shell(kubeconfig: str, commands: str) -> None:
    """Run commands in the root of the repository, as who administers a cluster."""
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    done = subprocess.run(  # noqa: S603  # a page's
        ["bash", "-ec", commands],  # noqa: S607  # a page's
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_the_page_about_a_cluster_lets_the_scheduler_ask_over_tls_and_nobody_else(tmp_path) -> None:
    """Its commands run as shown, but for the image and the folder of the scheduler.

    Nobody runs the image here.
    """
    nodes, pods = workload(8, 30, SECONDS)
    outcome = Outcome(allocatable=allocatable(nodes))
    fleet, extender = free_address(), free_address()
    with control_plane() as plane, ExitStack() as stack:
        listen = ("--kubeconfig", plane.kubeconfig, "--listen")
        path = write_nodes(plane.folder, nodes)
        stack.enter_context(
            alignup("fleet", *listen, fleet, "--nodes", path, ready=f"http://{fleet}/healthz")
        )
        install = page_block("# the kind").splitlines()
        applied = [
            line
            for line in install
            if line.startswith(("kubectl kustomize", "deploy/certificates"))
        ]
        assert len(applied) == 2
        shell(plane.kubeconfig, "\n".join(applied))
        fetch = page_block("mkdir")
        for program in ("scheduler", "extender"):
            into = fetch.replace("/etc/kubernetes/alignup", str(tmp_path / program))
            shell(plane.kubeconfig, into.replace("alignup-scheduler-tls", f"alignup-{program}-tls"))

        files = {"--tls-cert": "tls.crt", "--tls-key": "tls.key", "--client-ca": "ca.crt"}
        options = []
        for option, file in files.items():
            options += [option, tmp_path / "extender" / file]

        stranger = ssl.create_default_context(cafile=str(tmp_path / "extender/ca.crt"))
        stranger.check_hostname = False
        ready = f"https://{extender}/healthz"
        stack.enter_context(
            alignup("extender", *listen, extender, *options, ready=ready, tls=stranger)
        )
        stanza = (ROOT / "deploy/scheduler-configuration.yaml").read_text()
        overlay = yaml.safe_load(
            stanza.replace("/etc/kubernetes/alignup", str(tmp_path / "scheduler"))
        )
        overlay["extenders"][0]["urlPrefix"] = f"https://{extender}"
        plane.schedule(
            {key: value for key, value in overlay.items() if key not in {"apiVersion", "kind"}}
        )
        asyncio.run(play(plane.kubeconfig, pods, span_for(nodes, pods, SECONDS, 0.5), outcome, 90))
        for verb in ("filter", "prioritize", "preempt", "bind"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(
                    f"https://{extender}/{verb}", b"{}", timeout=30, context=stranger
                )

    summary = outcome.summary()
    assert summary["ran"] == 30
    assert summary["rejected"] == {}


def test_one_extender_leads_and_another_takes_over(tmp_path) -> None:
    """Killed, and stopped for longer than its lease: it binds nothing when it wakes."""
    (tmp_path / "nodes.jsonl").write_text(json.dumps({"name": "n0", **description()}))
    with control_plane() as plane, ExitStack() as stack:
        server = Server(plane.kubeconfig)
        server.deployed()
        fleet = free_address()
        arguments = (
            "fleet",
            "--kubeconfig",
            plane.kubeconfig,
            "--nodes",
            tmp_path / "nodes.jsonl",
            "--listen",
            fleet,
        )
        stack.enter_context(alignup(*arguments, ready=f"http://{fleet}/healthz"))
        processes: dict[str, subprocess.Popen[str]] = {}
        for _ in range(3):
            address = free_address()
            arguments = (
                "extender",
                "--kubeconfig",
                plane.kubeconfig,
                "--listen",
                address,
                "--leader-elect",
            )
            processes[address] = stack.enter_context(
                alignup(*arguments, ready=f"http://{address}/healthz")
            )

        first = leading(list(processes), 60)
        standbys = [candidate for candidate in processes if candidate != first]
        assert all("stands by" in filtered(candidate) for candidate in standbys)
        os.kill(processes[first].pid, signal.SIGKILL)
        second = leading(standbys, GAP)
        (third,) = [candidate for candidate in standbys if candidate != second]
        os.kill(processes[second].pid, signal.SIGSTOP)
        try:
            assert leading([third], GAP) == third
            assert (
                server.ask("POST", "/api/v1/namespaces/default/pods", pod_object("p", cpu=1)) == 201
            )
        finally:
            os.kill(processes[second].pid, signal.SIGCONT)

        assert "stands by" in bound(second, "p")
        assert filtered(third) == ""


class Cable:
    """Passes connections on to an address, until it is cut."""

    def __init__(self, address: str) -> None:
        self.target = address
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.open: list[socket.socket] = []
        self.is_cut = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        """Take connections, and pass on what comes over each in both directions."""
        with suppress(OSError):
            while True:
                inner, _ = self.server.accept()
                host, port = self.target.rsplit(":", 1)
                outer = socket.create_connection((host, int(port)))
                self.open += [inner, outer]
                for source, target in ((inner, outer), (outer, inner)):
                    threading.Thread(
                        target=self.pass_on, args=(source, target), daemon=True
                    ).start()

    def pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """Pass on what comes in, as long as the cable is whole.

        Then it goes nowhere, as behind a cut cable.
        """
        with suppress(OSError):
            while data := source.recv(65536):
                if not self.is_cut:
                    target.sendall(data)

    def close(self) -> None:
        """End all connections."""
        for connection in (self.server, *self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def test_a_leader_cut_off_from_the_api_server_makes_way(tmp_path) -> None:
    """Another leads before the lease is twenty seconds old.

    The one cut off binds nothing, then or later.
    """
    (tmp_path / "nodes.jsonl").write_text(json.dumps({"name": "n0", **description()}))
    with control_plane() as plane, ExitStack() as stack:
        server = Server(plane.kubeconfig)
        server.deployed()
        fleet = free_address()
        arguments = (
            "fleet",
            "--kubeconfig",
            plane.kubeconfig,
            "--nodes",
            tmp_path / "nodes.jsonl",
            "--listen",
            fleet,
        )
        stack.enter_context(alignup(*arguments, ready=f"http://{fleet}/healthz"))
        cables: dict[str, Cable] = {}
        for number in range(2):
            cable = Cable(server.url.removeprefix("https://"))
            stack.callback(cable.close)
            kubeconfig = tmp_path / f"kubeconfig-{number}"
            kubeconfig.write_text(
                Path(plane.kubeconfig).read_text().replace(server.url, f"https://{cable.address}")
            )
            address = free_address()
            arguments = (
                "extender",
                "--kubeconfig",
                kubeconfig,
                "--listen",
                address,
                "--leader-elect",
            )
            stack.enter_context(alignup(*arguments, ready=f"http://{address}/healthz"))
            cables[address] = cable

        first = leading(list(cables), 60)
        (second,) = [candidate for candidate in cables if candidate != first]
        cables[first].is_cut = True
        began = time.monotonic()
        assert leading([second], GAP) == second
        assert server.ask("POST", "/api/v1/namespaces/default/pods", pod_object("p", cpu=1)) == 201
        assert bound(first, "p")
        assert filtered(first)
        assert time.monotonic() - began < 2 * GAP
        cables[first].is_cut = False
        assert "stands by" in bound(first, "p")
        assert filtered(second) == ""
