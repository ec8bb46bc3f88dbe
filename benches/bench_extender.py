"""The extender over HTTP on loopback, in its own process: filter and prioritize for 5,000 nodes known exactly."""

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
class Asked:
    """The questions about a pod as bytes, and the answers as bytes."""

    questions: dict[str, bytes]
    answers: dict[str, bytes]


@pytest.fixture(scope="module")
def connection():
    """A connection to an extender of its own process, kept alive as a scheduler keeps it."""
    program = Path(__file__).with_name("extender_process.py")
    command = [sys.executable, program, str(NODES)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    made = HTTPConnection("127.0.0.1", int(process.stdout.readline()))
    yield made
    made.close()
    process.kill()
    process.wait()
    process.stdout.close()


def answer_to(connection, verb: str, question: bytes) -> bytes:
    """Ask, and return the whole answer."""
    connection.request("POST", f"/{verb}", question, {"Content-Type": "application/json"})
    return connection.getresponse().read()


def asked_about(connection, one: dict, names: list[str]) -> Asked:
    """Ask as a scheduler does: which nodes can take a pod, then how well each of these does."""
    filtering = msgspec.json.encode({"Pod": one, "Nodes": None, "NodeNames": names})
    filtered = answer_to(connection, "filter", filtering)
    passed = msgspec.json.decode(filtered)["NodeNames"]
    scoring = msgspec.json.encode({"Pod": one, "Nodes": None, "NodeNames": passed})
    scored = answer_to(connection, "prioritize", scoring)
    assert [score["Host"] for score in msgspec.json.decode(scored)] == passed
    return Asked(
        {"filter": filtering, "prioritize": scoring}, {"filter": filtered, "prioritize": scored}
    )


def test_filter_and_prioritize_on_the_wire(benchmark, connection, promise) -> None:
    """Each answer is checked against the nodes themselves before anything is timed, and against itself then.

    Timed is what a scheduler waits for: from the first byte of the question to the last of the
    answer.
    """
    random = Random(2)
    state = made_state(NODES)
    names = list(state.members)
    pods = [pod(number, 1.0, random) for number in range(PODS)]
    for number, one in enumerate(pods):
        one["metadata"]["uid"] = f"new-{number}"

    asked = [asked_about(connection, one, names) for one in pods]
    some = random.sample(names, CHECKED_NODES)
    for one, found in zip(pods[:CHECKED], asked, strict=False):
        passed = set(msgspec.json.decode(found.answers["filter"])["NodeNames"])
        for name in some:
            assert bool(state.members[name].node.try_admit(one)) == (name in passed)

    turn = iter(range(1_000_000))

    def ask() -> None:
        found = asked[next(turn) % PODS]
        for verb, question in found.questions.items():
            assert answer_to(connection, verb, question) == found.answers[verb]

    benchmark.pedantic(ask, rounds=500, warmup_rounds=5)
    promise(10_000, 15_000)
