"""Metrics say what is free and held and what was decided, on loopback or a socket."""

from __future__ import annotations

import http.client
import socket
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import leasing
from agents import client, running_agent
from alignup.errors import AllocationError, InputError
from alignup.leases.acquire import Claim
from alignup.leases.agent.metrics import serve_metrics
from alignup.leases.process import identify
from alignup.leases.request import make_request
from fake_plugins import short_folder


def claim(**wishes):
    return Claim(make_request(**wishes), identify(1), command="", name="x")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def read(path):
    """Return the samples at a socket, by name and labels."""
    connection = UnixConnection(path)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_free_and_held_and_decided():
    with short_folder() as folder, running_agent(folder, metrics=str(folder / "m.sock")):
        source = client(folder)
        source.acquire(claim(cpus=3, memory="1Gi", devices={leasing.GPU: 1}), 1.0)
        with pytest.raises(AllocationError):
            source.acquire(claim(cpus=16))
        found = read(folder / "m.sock")
    assert found["alignup_agent_free", "0", "cpu"] == 5
    assert found["alignup_agent_held", "0", "cpu"] == 3
    assert found["alignup_agent_held", "0", "memory"] == leasing.GI
    assert found["alignup_agent_free", "1", "memory"] == 16 * leasing.GI
    assert (found["alignup_agent_free", "0", leasing.GPU], found["alignup_agent_held", "0", leasing.GPU]) == (
        1,
        1,
    )
    assert (found["alignup_agent_leases_held",], found["alignup_agent_waiting",]) == (1, 0)
    assert found["alignup_agent_admissions_total", "", "admitted"] == 1
    assert found["alignup_agent_admissions_total", "UnexpectedAdmissionError", "refused"] == 1
    assert found["alignup_agent_leases_total", "1"] == 1
    prefix = "kubelet_topology_manager_admission"
    assert (found[f"{prefix}_requests_total",], found[f"{prefix}_errors_total",]) == (2, 1)
    assert found[f"{prefix}_duration_ms_count",] == 2


def test_a_port_alone_is_on_loopback():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stop = serve_metrics(str(port), CollectorRegistry())
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        assert answer.status == 200
    stop()


@pytest.mark.parametrize("where", ["x", "70000", "127.0.0.1:", "/no/such/folder/m.sock"])
def test_a_place_that_cannot_be_is_an_error(where):
    with pytest.raises(InputError, match=r"expected .ADDRESS:.PORT or a path"):
        serve_metrics(where, CollectorRegistry())
