"""Metrics say what is free and held and what was decided, on loopback or a socket."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from alignup.errors import AllocationError, InputError
from alignup.host.agent import metrics_server as module
from alignup.host.agent.metrics_server import serving_metrics
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.processes.identity import identify
from fakes.device_plugins import short_folder
from inputs import leasing
from running.agents import client, eventually, running_agent


@contextmanager
def serving(where, registry=None):
    """Serve metrics from the event loop of another thread while the block runs."""
    ready, end = Future(), threading.Event()

    async def serve():
        try:
            async with serving_metrics(str(where), registry or CollectorRegistry()):
                ready.set_result(None)
                await asyncio.to_thread(end.wait)
        except InputError as error:
            ready.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        ready.result(60)
        yield
    finally:
        end.set()
        thread.join()


def request_for(**wishes):
    return LeaseRequest(make_request(**wishes), identify(1), command="", name="x")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def read(path):
    """Return the samples at a socket, by name and labels."""
    with closing(UnixConnection(path)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_free_and_held_and_decided():
    with short_folder() as folder, running_agent(folder, metrics=str(folder / "m.sock")):
        source = client(folder)
        source.acquire(request_for(cpus=3, memory="1Gi", devices={leasing.GPU: 1}), 1.0)
        with pytest.raises(AllocationError):
            source.acquire(request_for(cpus=16))
        samples = read(folder / "m.sock")

    assert samples["alignup_agent_free", "0", "cpu"] == 5
    assert samples["alignup_agent_held", "0", "cpu"] == 3
    assert samples["alignup_agent_held", "0", "memory"] == leasing.GI
    assert samples["alignup_agent_free", "1", "memory"] == 16 * leasing.GI
    assert (
        samples["alignup_agent_free", "0", leasing.GPU],
        samples["alignup_agent_held", "0", leasing.GPU],
    ) == (1, 1)
    assert (samples["alignup_agent_leases_held",], samples["alignup_agent_waiting",]) == (1, 0)
    assert samples["alignup_agent_admissions_total", "", "admitted"] == 1
    assert samples["alignup_agent_admissions_total", "UnexpectedAdmissionError", "refused"] == 1
    assert samples["alignup_agent_leases_total", "1"] == 1
    prefix = "kubelet_topology_manager_admission"
    assert (samples[f"{prefix}_requests_total",], samples[f"{prefix}_errors_total",]) == (2, 1)
    assert samples[f"{prefix}_duration_ms_count",] == 2


@pytest.mark.parametrize("address", ["", "127.0.0.1:", "localhost:", "[::1]:"])
def test_a_port_alone_is_on_loopback(address):
    family, loopback = socket.AF_INET, "127.0.0.1"
    if "::1" in address:
        family, loopback = socket.AF_INET6, "::1"

    try:
        with socket.socket(family) as free:
            free.bind((loopback, 0))
            port = free.getsockname()[1]
    except OSError:
        pytest.skip("there is no IPv6")
    url = f"http://{address or '127.0.0.1:'}{port}/metrics"
    with serving(f"{address}{port}"), urlopen(url, timeout=60) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("where", ["x", "70000", "127.0.0.1:", "/no/such/folder/m.sock"])
def test_a_place_that_cannot_be_is_an_error(where):
    with (
        pytest.raises(InputError, match=r"cannot serve metrics at .*ADDRESS:.PORT or a path: "),
        serving(where),
    ):
        pass


def test_a_file_at_the_path_stays():
    with short_folder() as folder:
        (folder / "m").write_text("precious")
        with (
            pytest.raises(InputError, match=r"/m is a file, not a socket, at --metrics"),
            serving(folder / "m"),
        ):
            pass
        assert (folder / "m").read_text() == "precious"


@pytest.fixture
def served():
    """A socket where metrics are served until the test ends."""
    with short_folder() as folder:
        with serving(folder / "m.sock"):
            yield folder / "m.sock"
        assert not (folder / "m.sock").exists()


def ended(connection):
    """Return what comes until the other end ends the connection, in whatever way."""
    try:
        return connection.recv(1)
    except ConnectionError:
        return b""


def connected(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(path))
    return connection


def test_who_goes_away_early_leaves_no_words(served, capfd, caplog):
    for request in (b"", b"GET /", b"GET / HTTP/1.0\r\n\r\n", b"x" * (1 << 18)):
        with connected(served) as connection, suppress(ConnectionError):
            connection.sendall(request)
    assert read(served) == {}
    assert (capfd.readouterr().err, caplog.text) == ("", "")


def test_the_form_is_the_one_that_is_asked_for(served):
    with connected(served) as connection:
        connection.sendall(
            b"GET / HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n"
        )
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text")
    assert answer.endswith(b"# EOF\n")


def test_a_failure_is_for_the_log(caplog):
    class Failing(CollectorRegistry):
        def collect(self):
            raise ZeroDivisionError

    with (
        short_folder() as folder,
        serving(folder / "m.sock", Failing()),
        connected(folder / "m.sock") as connection,
    ):
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with suppress(ConnectionError):
            assert connection.recv(1) == b""
        eventually(lambda: "a request for metrics failed" in caplog.text)

    assert "ZeroDivisionError" in caplog.text


def test_many_may_come_at_once_and_who_is_silent_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.1)
    with short_folder() as folder, serving(folder / "m.sock"):
        silent = [connected(folder / "m.sock") for _ in range(40)]
        assert [ended(connection) for connection in silent] == [b""] * 40
        for connection in silent:
            connection.close()


def test_so_many_connections_are_answered_and_no_more():
    """Each takes a thread, however many come to a port that everybody on the machine reaches."""
    with short_folder() as folder, serving(folder / "m.sock"):
        silent = [connected(folder / "m.sock") for _ in range(module._AT_ONCE)]
        for connection in silent:
            connection.sendall(b"G")
        with connected(folder / "m.sock") as more:
            assert ended(more) == b""
        for connection in silent:
            connection.close()

        def is_answered():
            with suppress(ConnectionError):
                return read(folder / "m.sock") == {}
            return False

        eventually(is_answered)


def test_who_sends_little_by_little_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    with (
        short_folder() as folder,
        serving(folder / "m.sock"),
        connected(folder / "m.sock") as slow,
        suppress(ConnectionError),
    ):
        for _ in range(1000):
            slow.sendall(b"G")
            time.sleep(0.05)
        pytest.fail("a thousand letters were waited for")
