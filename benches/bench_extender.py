"""The extender over HTTP on loopback, in its own process.

It filters and prioritizes 5,000 nodes that it knows exactly.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import msgspec
import pytest

from extender_process import made_state
from rig.workload import pod

NODES = 5_000
PODS = 100
CHECKED = 5
CHECKED_NODES = 200


@dataclass
class Exchange:
    """The questions about a pod as bytes, and the answers as bytes."""

    questions: dict[str, bytes]
    answers: dict[str, bytes]


@pytest.fixture(scope="module")
def connection():
    """A connection to an extender of its own process, kept alive as a scheduler keeps it."""
    program = Path(__file__).with_name("extender_process.py")
    command = [sys.executable, program, str(NODES)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    client = HTTPConnection("127.0.0.1", int(process.stdout.readline()))
    yield client
    client.close()
    process.kill()
    process.wait()
    process.stdout.close()


def answer_to(connection, verb: str, question: bytes) -> bytes:
    """Ask, and return the whole answer."""
    connection.request("POST", f"/{verb}", question, {"Content-Type": "application/json"})
    return connection.getresponse().read()


def asked_about(connection, manifest: dict, names: list[str]) -> Exchange:
    """Ask as a scheduler does: which nodes can take a pod, then how well each of these does."""
    filtering = msgspec.json.encode({"Pod": manifest, "Nodes": None, "NodeNames": names})
    filtered = answer_to(connection, "filter", filtering)
    passed = msgspec.json.decode(filtered)["NodeNames"]
    scoring = msgspec.json.encode({"Pod": manifest, "Nodes": None, "NodeNames": passed})
    scored = answer_to(connection, "prioritize", scoring)
    assert [score["Host"] for score in msgspec.json.decode(scored)] == passed
    return Exchange(
        {"filter": filtering, "prioritize": scoring}, {"filter": filtered, "prioritize": scored}
    )


def test_filter_and_prioritize_on_the_wire(benchmark, connection, promise) -> None:
    """Each answer is checked against the nodes themselves before anything is timed.

    Later it is checked against itself. Timed is what a scheduler waits for: from the first byte of
    the question to the last of the answer.
    """
    random = Random(2)
    state = made_state(NODES)
    names = list(state.members)
    pods = [pod(number, 1.0, random) for number in range(PODS)]
    for number, manifest in enumerate(pods):
        manifest["metadata"]["uid"] = f"new-{number}"

    exchanges = [asked_about(connection, manifest, names) for manifest in pods]
    checked_nodes = random.sample(names, CHECKED_NODES)
    for manifest, exchange in zip(pods[:CHECKED], exchanges, strict=False):
        passed = set(msgspec.json.decode(exchange.answers["filter"])["NodeNames"])
        for name in checked_nodes:
            assert bool(state.members[name].node.try_admit(manifest)) == (name in passed)

    turn = iter(range(1_000_000))

    def ask() -> None:
        exchange = exchanges[next(turn) % PODS]
        for verb, question in exchange.questions.items():
            assert answer_to(connection, verb, question) == exchange.answers[verb]

    benchmark.pedantic(ask, rounds=500, warmup_rounds=5)
    promise(10_000, 15_000)
