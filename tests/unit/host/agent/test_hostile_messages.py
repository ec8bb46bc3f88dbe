"""Messages that no command sends.

Each is answered in one line or loses its connection, and nothing is given for it.
"""

from __future__ import annotations

import json
import os
import socket
import struct

import pytest

from alignup.host.leases.agent_messages import (
    HEADER,
    LARGEST_REQUEST,
    Ask,
    Failed,
    Refused,
    decode_reply,
    frame,
)
from alignup.host.processes.identity import identify
from fakes.device_plugins import short_folder
from running.agents import LONG, client, running_agent

HUGE = 10**30


@pytest.fixture(scope="module")
def agent():
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("ALIGNUP_AGENT", raising=False)
        with running_agent(folder) as served:
            yield folder, served


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(HEADER, "big") + text


def ask(**fields) -> bytes:
    """Return a request of this process with other fields; None: without the field."""
    made = json.loads(frame(Ask("a" * 16, identify(os.getpid()), "", "x", cpus=1))[HEADER:])
    holder = fields.pop("holder_fields", {})
    made |= fields
    if holder:
        made["holder"] |= holder
    return framed(
        json.dumps({name: value for name, value in made.items() if value is not None}).encode()
    )


def said(text: str) -> bytes:
    return framed(text.encode())


REFUSED = {
    "cpus beyond 64 bits": ask(cpus=HUGE),
    "cpus of 63 bits": ask(cpus=(1 << 63) - 1),
    "cpus below zero": ask(cpus=-1),
    "cpus as a float": ask(cpus=1.5),
    "cpus as text": ask(cpus="1"),
    "cpus as a boolean": ask(cpus=True),
    "cpus as an exponent": said(ask().decode()[HEADER:].replace('"cpus": 1', '"cpus": 1e300')),
    "memory beyond 64 bits": ask(memory=HUGE),
    "memory below zero": ask(memory=-(1 << 40)),
    "memory of 63 bits": ask(memory=(1 << 63) - 1),
    "a device beyond 64 bits": ask(devices={"a/b": HUGE}),
    "a device below zero": ask(devices={"a/b": -3}),
    "devices as a list": ask(devices=["a/b"]),
    "a device without a name": ask(devices={"": 1}),
    "a device with NUL": ask(devices={"a/\0": 1}),
    "a device with a newline": ask(devices={"a/\nb": 1}),
    "hundreds of devices": ask(devices={f"a/{i}": 1 for i in range(2000)}),
    "an id of other letters": ask(id="../../../etc/x!!"),
    "an id with NUL": ask(id="\0" * 16),
    "an id in other digits": ask(id="١" * 16),  # noqa: RUF001  # Arabic ones
    "an id in capitals": ask(id="A" * 15 + "\n"),
    "an id that is a number": ask(id=1234567890123456),
    "no id": ask(id=None),
    "no holder": ask(holder=None),
    "a holder that is a number": ask(holder=1),
    "a holder below zero": ask(holder_fields={"pid": -1}),
    "a holder of zero": ask(holder_fields={"pid": 0}),
    "a holder beyond 32 bits": ask(holder_fields={"pid": 1 << 40}),
    "a holder beyond 64 bits": ask(holder_fields={"pid": HUGE}),
    "a holder that began before time": ask(holder_fields={"startTime": -(1 << 63)}),
    "init as a holder of another time": ask(holder_fields={"pid": 1}),
    "a keeper that is gone": ask(
        keeper={"pid": 1 << 21, "startTime": 1, "bootId": "x", "pidNamespace": 1}
    ),
    "wait that is no number": said(
        ask().decode()[HEADER:].replace('"cpus": 1', '"cpus": 1, "wait": NaN')
    ),
    "wait that is infinite": said(
        ask().decode()[HEADER:].replace('"cpus": 1', '"cpus": 1, "wait": Infinity')
    ),
    "wait as text": ask(wait="1s"),
    "a part of none": ask(part={"rank": 0, "parts": 0}),
    "a part below zero": ask(part={"rank": -1, "parts": 2}),
    "a part beyond the last": ask(part={"rank": 2, "parts": 2}),
    "more parts than CPUs": ask(part={"rank": 0, "parts": 1 << 62}),
    "a policy with a newline": ask(policy="none\n"),
    "a policy that is null": said(
        ask().decode()[HEADER:].replace('"cpus": 1', '"cpus": 1, "policy": null')
    ),
    "a release that is none": ask(kubelet_version="1." + "9" * 5000),
    "a release below zero": ask(kubelet_version="-1.-1"),
    "a field twice": said(ask().decode()[HEADER:].replace('"cpus": 1', '"cpus": 1, "cpus": 2')),
    "a tag twice": said('{"type":"list","type":"ask"}'),
    "another tag": said('{"type":"grant"}'),
    "a tag that is a number": said('{"type":7}'),
    "a tag that is null": said('{"type":null}'),
    "a list": said('["list"]'),
    "text": said('"list"'),
    "two values": said('{"type":"list"}{"type":"list"}'),
    "half a value": said('{"type":"li'),
    "a byte order mark": framed(b'\xef\xbb\xbf{"type":"list"}'),
    "UTF-16": framed('{"type":"list"}'.encode("utf-16")),
    "bytes that are no UTF-8": framed(b'{"type":"release","name":"\xff\xfe"}'),
    "half a surrogate": said('{"type":"release","name":"\\ud800"}'),
    "NUL within": framed(b'{"type":"list"\0}'),
    "NUL alone": framed(b"\0" * 100),
    "nothing": framed(b""),
    "white space alone": framed(b" " * LARGEST_REQUEST),
    "deep lists": framed(b"[" * 60_000),
    "deep objects": framed(b'{"a":' * 12_000),
    "deep devices": said(
        '{"type":"cut","parts":1,"devices":' + '{"a":' * 10_000 + "1" + "}" * 10_000 + "}"
    ),
    "a comment": said('{"type":"list"/**/}'),
    "single quotes": said("{'type':'list'}"),
    "a number of many digits": said('{"type":"cut","parts":' + "9" * 60_000 + "}"),
    "no parts": said('{"type":"cut","parts":0}'),
    "parts below zero": said('{"type":"cut","parts":-5}'),
    "a thousand million parts": said('{"type":"cut","parts":1000000000}'),
    "CPUs of parts below zero": said('{"type":"cut","parts":2,"cpus_per_part":-1}'),
    "CPUs of parts beyond all": said(
        '{"type":"cut","parts":2,"cpus_per_part":9223372036854775807}'
    ),
    "a release of a name with NUL": said('{"type":"release","name":"a\\u0000b"}'),
    "a release of no name": said('{"type":"release","name":""}'),
    "a release of a name of lines": said('{"type":"release","name":"a\\nb\\u001b[2J"}'),
    "giving back a path": said('{"type":"give-back","id":"../../leases.json"}'),
    "force that is no boolean": said('{"type":"release","name":"x","force":"yes"}'),
}


def exchange(folder, data: bytes, *, half_closed: bool = False):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG)
        connection.connect(str(folder / "agent.sock"))
        connection.sendall(data)
        if half_closed:
            connection.shutdown(socket.SHUT_WR)
        stream = connection.makefile("rb")
        header = stream.read(HEADER)
        if not header:
            return None
        return decode_reply(stream.read(int.from_bytes(header, "big")))


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_refused_in_a_line_and_nothing_is_given(agent, kind, caplog):
    folder, _ = agent
    reply = exchange(folder, REFUSED[kind])
    if kind == "giving back a path":  # what is not there any more is given back
        assert type(reply).__name__ == "Done"
    else:
        assert isinstance(reply, Failed | Refused), reply
        assert reply.detail.isprintable()
        assert 10 < len(reply.detail) < 600
    assert not client(folder).overview().leases
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\0\0\0",
        framed(b'{"type":"list"}')[:-1],
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"\xf0\x0f" * 32,
    ],
    ids=["a byte", "most of a header", "all but a byte", "HTTP", "TLS", "noise"],
)
def test_who_stops_sending_in_the_middle_is_let_go(agent, data):
    folder, _ = agent
    reply = exchange(folder, data, half_closed=True)
    assert reply is None or isinstance(reply, Failed)
    assert not client(folder).overview().leases


def test_who_sends_and_resets_costs_nothing(agent, caplog):
    """The lease that it asked for is given back, or was never given."""
    folder, _ = agent
    for _ in range(50):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / "agent.sock"))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(said('{"type":"list"}') * 2)
    assert not client(folder).overview().leases
    assert not [record for record in caplog.records if record.exc_info]


def test_descriptors_that_are_sent_along_are_not_kept(agent):
    """A socket carries open files too."""
    folder, _ = agent

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # as the kernel tells

    client(folder).overview()
    before = opened()
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection, open(os.devnull) as file:  # noqa: PTH123
            connection.settimeout(LONG)
            connection.connect(str(folder / "agent.sock"))
            socket.send_fds(connection, [said('{"type":"list"}')], [file.fileno()] * 200)
            assert connection.recv(HEADER)

    client(folder).overview()
    assert opened() <= before + 2
