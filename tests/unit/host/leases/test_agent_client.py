"""A client asks again while its agent is started again, and waits no longer than it may.

It believes nothing odd.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from alignup.errors import AllocationError, InputError
from alignup.host.leases import source as module
from alignup.host.leases.agent_messages import (
    HEADER,
    LARGEST_REPLY,
    Done,
    Failed,
    Grant,
    KnownLease,
    Leases,
    Refused,
    decode_request,
    frame,
)
from alignup.host.leases.record import MemoryShare, Near, PartOf
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.source import AgentSource
from alignup.host.processes.identity import identify
from fakes.device_plugins import LONG, short_folder
from inputs import leasing
from running.agents import running_agent

MACHINE = leasing.site().identity


@pytest.fixture
def folder():
    with short_folder() as made:
        yield made


@contextmanager
def agent(folder, *replies):
    """Answer one request for each reply, with these bytes; yield what was asked."""
    requests = []
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "a.sock"))
    listening.listen()
    listening.settimeout(LONG)

    def work():
        for reply in replies:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as stream:
                length = int.from_bytes(stream.read(HEADER), "big")
                requests.append(decode_request(stream.read(length)))
                connection.sendall(reply if isinstance(reply, bytes) else frame(reply))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield requests
    finally:
        thread.join(LONG)
        listening.close()
        (folder / "a.sock").unlink()


def source(folder, tell=lambda _: None, patience=LONG):
    return AgentSource(folder / "a.sock", tell, patience)


def request_for(**wishes):
    return LeaseRequest(make_request(**wishes), identify(os.getpid()), command="c", name="stem")


def granted(name="one"):
    return Grant(leasing.record(name), MACHINE, "/leases.json", (0,), True)


def test_everything_of_a_request_is_asked(folder):
    request = request_for(
        memory="1Gi",
        devices={leasing.GPU: 2},
        policy="restricted",
        name="n",
        part=PartOf(1, 4),
        kubelet_version="1.33",
    )
    with agent(folder, granted()) as requests:
        grant = source(folder).acquire(request, 2.5)

    (ask,) = requests
    assert (ask.id, ask.holder, ask.command, ask.stem) == (request.id, request.holder, "c", "stem")
    assert (ask.memory, ask.devices, ask.policy, ask.name) == (
        1 << 30,
        {leasing.GPU: 2},
        "restricted",
        "n",
    )
    assert (ask.part, ask.kubelet_version, ask.wait) == ((1, 4), "1.33", 2.5)
    assert (grant.lease, grant.agent) == (leasing.record(), str(folder / "a.sock"))


@pytest.mark.parametrize("node", [0, 1])
def test_an_agent_places_near_what_is_asked(folder, node):
    """The client names it, and the NUMA nodes that it is near."""
    with running_agent(folder, leasing.site()):
        to_agent = AgentSource(folder / "agent.sock", lambda _: None, LONG)
        grant = to_agent.acquire(request_for(cpus=2, near=Near("eth0", (node,))))
        assert grant.lease.numa_nodes == (node,)

        demand = msgspec.structs.replace(make_request(cpus=1), near=Near("x", (0,) * 2000))
        crowd = LeaseRequest(demand, identify(os.getpid()), command="c", name="stem")
        with pytest.raises(InputError, match="near"):
            to_agent.acquire(crowd)


@pytest.mark.parametrize("nodes", [(-1,), (1 << 16,), (10**9,)])
def test_amounts_that_no_machine_has_are_refused(folder, nodes):
    """Memory would be bound to a billion nodes."""
    hostile = msgspec.structs.replace(granted(), memory_nodes=nodes)
    with agent(folder, hostile), pytest.raises(InputError, match="impossible"):
        source(folder).acquire(request_for(cpus=1))


def test_impossible_memory_is_refused(folder):
    lease = leasing.record(memory=(MemoryShare(0, "memory", -1),))
    hostile = msgspec.structs.replace(granted(), lease=lease)
    with agent(folder, hostile), pytest.raises(InputError, match="impossible"):
        source(folder).acquire(request_for(cpus=1))


@pytest.mark.parametrize(
    ("server", "is_own", "is_trusted"),
    [(1000, True, True), (0, False, True), (12345, False, False)],
)
def test_a_grant_says_whose_agent_gave_it(folder, monkeypatch, server, is_own, is_trusted):
    """Whatever the agent itself says of that."""
    lies = msgspec.structs.replace(granted(), is_own=True, is_trusted=True, agent="/lies")
    monkeypatch.setattr(module, "peer", lambda _: (1, server))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with agent(folder, lies):
        grant = AgentSource(folder / "a.sock", lambda _: None, is_named=True).acquire(
            request_for(cpus=1)
        )
    assert (grant.is_own, grant.is_trusted, grant.agent) == (
        is_own,
        is_trusted,
        str(folder / "a.sock"),
    )


@pytest.mark.parametrize(("wait", "sent"), [(None, 0.0), (0.0, 0.0), (math.inf, -1.0)])
def test_patience_is_told(folder, wait, sent):
    with agent(folder, granted()) as requests:
        source(folder).acquire(request_for(cpus=1), wait)
    assert (requests[0].wait, requests[0].kubelet_version) == (sent, "")


def test_the_same_request_is_sent_again_when_the_agent_goes_away(folder):
    """An agent that was killed may have made the lease before, and gives the same again."""
    said = []
    with agent(folder, b"", frame(granted())[:9], granted()) as requests:
        source(folder, said.append).acquire(request_for(cpus=1))
    assert len(requests) == 3
    assert len({ask.id for ask in requests}) == 1
    assert said == [f"waiting for the agent at {folder}/a.sock, which does not answer"]


def test_an_agent_that_is_not_there_yet_is_waited_for(folder):
    answers = []
    asking = threading.Thread(target=lambda: answers.append(source(folder).overview().leases))
    asking.start()
    with agent(folder, Leases((KnownLease(leasing.record(), "running"),))):
        asking.join(LONG)
    assert [(known_lease.lease, known_lease.state) for known_lease in answers[0]] == [
        (leasing.record(), "running")
    ]


def test_patience_has_an_end(folder):
    said = []
    with pytest.raises(
        InputError, match=r"does not answer at .*: start it again, or take the leases"
    ):
        source(folder, said.append, 0.05).overview()
    assert len(said) == 1


@contextmanager
def stopped_agent(folder, backlog=9):
    """Do as an agent that is stopped: connections are made by the kernel, and nobody answers."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(folder / "a.sock"))
        deaf.listen(backlog)
        yield


@pytest.mark.parametrize(
    "work",
    [
        lambda one: one.overview().leases,
        lambda one: one.release("x", force=False),
        lambda one: one.give_back(leasing.record()),
        lambda one: one.parts(2, 0, {}),
    ],
)
def test_what_takes_the_agent_no_time_is_not_waited_for_long(folder, work):
    with stopped_agent(folder), pytest.raises(InputError, match=r"did not answer within 0\.1 s"):
        work(source(folder, patience=0.1))


def test_an_agent_that_others_wait_for_too_is_asked_again(folder):
    said = []
    with stopped_agent(folder, 0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(folder / "a.sock"))
        with pytest.raises(InputError, match="does not answer"):
            source(folder, said.append, 0.1).acquire(request_for(cpus=1))
    assert len(said) == 1


def test_a_request_that_is_not_taken_is_given_up(folder):
    """However long an answer may take."""
    name = "x" * (1 << 20)
    with stopped_agent(folder), pytest.raises(InputError, match=r"took no request within 0\.1 s"):
        source(folder, patience=0.1)._ask(module.messages.Release(name), Done, 100.0)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_silence_is_explained_at_a_terminal(folder, monkeypatch, is_terminal):
    said = []
    monkeypatch.setattr(module, "_SILENCE", 0.01)
    monkeypatch.setattr(module, "_ANSWER", 0.1)
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: is_terminal, raising=False)
    agent_source = source(folder, said.append)
    with stopped_agent(folder):
        for _ in range(2):
            with pytest.raises(InputError, match=r"did not answer within 0\.1 s"):
                agent_source.acquire(request_for(cpus=1))
    assert said == [f"waiting for the agent at {folder}/a.sock to answer"] * is_terminal


def test_time_to_wait_has_no_upper_bound(folder):
    with agent(folder, granted()) as requests:
        source(folder).acquire(request_for(cpus=1), 1e12)
    assert requests[0].wait == 1e12


def test_no_lease_has_a_name_that_is_no_text(folder):
    with pytest.raises(AllocationError, match="no lease has the name"):
        source(folder).release("\udcff", force=True)


def test_an_answer_that_never_comes_is_given_up(folder, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER", 0.1)
    with stopped_agent(folder):
        with pytest.raises(InputError, match=r"did not answer within 0\.1 s"):
            source(folder)._ask(module.messages.List(), Leases, 0.1)
        with pytest.raises(InputError, match=r"did not answer within 0\.15 s"):
            source(folder).acquire(request_for(cpus=1), 0.05)


def test_refusals_and_failures_are_raised(folder):
    with agent(folder, Refused("no", "TopologyAffinityError"), Refused("no"), Failed("never")):
        for reason in ("TopologyAffinityError", "UnexpectedAdmissionError"):
            with pytest.raises(AllocationError, match="no") as caught:
                source(folder).acquire(request_for(cpus=1))
            assert caught.value.reason == reason
        with pytest.raises(InputError, match="never"):
            source(folder).acquire(request_for(cpus=1))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Done(), "answered with Done"),
        (b"\0\0\0\2{}", "expected a reply of the agent"),
        ((LARGEST_REPLY + 1).to_bytes(HEADER, "big"), f"expected up to {LARGEST_REPLY} bytes"),
    ],
)
def test_an_odd_reply_is_an_error(folder, reply, reason):
    with agent(folder, reply), pytest.raises(InputError, match=reason):
        source(folder).overview()


def test_what_was_released_is_returned(folder):
    with agent(folder, Done(leasing.record()), Done()):
        assert source(folder).release("one", force=True).state == "running"
        with pytest.raises(InputError, match="did not say which lease was released"):
            source(folder).release("one", force=True)


def test_a_path_that_is_no_socket_is_an_error_at_once(folder):
    start = time.monotonic()
    with pytest.raises(InputError, match="expected a path of up to 107 bytes for a socket"):
        AgentSource(folder / ("x" * 200), pytest.fail, LONG).overview()
    with pytest.raises(InputError, match="is not trusted"):
        AgentSource(Path("/dev/null/x"), pytest.fail, LONG).overview()
    assert time.monotonic() - start < LONG
