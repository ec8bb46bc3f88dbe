"""Servers: what clients do wrong is a line of their log.

Certificates are read again when their files change, and one that ends soon is complained of.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from alignup.control_plane import serving
from alignup.control_plane.serving import ServedCertificate, end_of, trace
from alignup.errors import InputError
from running.certificates import certificate

if TYPE_CHECKING:
    from pathlib import Path

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates"
)

SERVER = """
import asyncio
from aiohttp import web
from alignup.cli.agent import start_logging
from alignup.control_plane.process import run_until_told
from alignup.control_plane.serving import serve
start_logging("{form}", "info")
async def work():
    runner, port = await serve(web.Application(), ("127.0.0.1", 0))
    print(port, flush=True)
    try:
        await asyncio.sleep(3600)
    finally:
        await runner.cleanup()
asyncio.run(run_until_told(work()))
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_client_does_wrong_is_one_line_of_the_log(form: str) -> None:
    """No traceback of the server's library."""
    wrong = [
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ]

    async def ask(port: int) -> list[bytes]:
        answers = []
        for request in wrong:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            answers.append(await reader.read(12))
            writer.close()

        return answers

    with subprocess.Popen(  # noqa: S603  # ours
        [sys.executable, "-c", SERVER.format(form=form)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        answers = asyncio.run(ask(int(process.stdout.readline())))
        process.terminate()
        _, logged = process.communicate(timeout=60)

    assert process.returncode == 0
    assert all(answer.startswith(b"HTTP/1.") for answer in answers)
    lines = logged.splitlines()
    assert 1 <= len(lines) <= len(wrong)
    assert "Traceback" not in logged
    for line in lines:
        if form == "json":
            assert isinstance(json.loads(line), dict)
        else:
            assert "Error handling" in line


@pytest.mark.parametrize(("most", "accepted"), [(512, 16), (3, 3)])
def test_few_connections_are_accepted_at_once_and_many_may_wait(
    monkeypatch, most, accepted
) -> None:
    """How many may wait the kernel tells in the facts of a socket.

    There it tells of other sockets which packets were lost.
    """
    servers: list[tuple[asyncio.Server, int]] = []
    create_server = asyncio.BaseEventLoop.create_server

    async def noted(loop, *arguments, backlog: int, **options):
        server = await create_server(loop, *arguments, backlog=backlog, **options)
        servers.append((server, backlog))
        return server

    async def scenario() -> None:
        runner, _ = await serving.serve(web.Application(), ("127.0.0.1", 0))
        [(server, at_once)] = servers
        facts = server.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        await runner.cleanup()
        assert at_once == accepted
        assert struct.unpack_from("I", facts, 28) == (128,)

    monkeypatch.setattr(serving, "MOST_CONNECTIONS", most)
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_server", noted)
    asyncio.run(scenario())


def shaken(served: ServedCertificate, client: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a client gets; None: one of the two refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        served.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(6):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError:
        return None
    return ends[0].getpeercert(binary_form=True)


def client_of(folder: Path, name: str = "") -> ssl.SSLContext:
    """Return a client that believes anybody, and shows a certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if name:
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


@pytest.fixture
def files(tmp_path) -> Path:
    for name, issuer in (
        ("ca", ""),
        ("other", ""),
        ("one", "ca"),
        ("two", "ca"),
        ("client", "ca"),
        ("guest", "other"),
    ):
        certificate(tmp_path, name, issuer)
    for ending in ("crt", "key"):
        shutil.copy(tmp_path / f"one.{ending}", tmp_path / f"tls.{ending}")
    shutil.copy(tmp_path / "ca.crt", tmp_path / "clients.crt")
    return tmp_path


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@needs_openssl
def test_new_files_are_served_and_bad_ones_leave_the_old_in_use(files) -> None:
    said: list[str] = []
    paths = [str(files / name) for name in ("tls.crt", "tls.key", "clients.crt")]
    served = ServedCertificate(*paths, said.append)
    assert shaken(served, client_of(files)) == der(files / "one.crt")

    shutil.copy(files / "two.crt", files / "tls.crt")  # without its key
    served.look(0.0)
    assert shaken(served, client_of(files)) == der(files / "one.crt")
    assert "from before stays in use" in said[-1]

    shutil.copy(files / "two.key", files / "tls.key")
    served.look(0.0)
    assert shaken(served, client_of(files)) == der(files / "two.crt")

    (files / "tls.crt").unlink()
    served.look(0.0)
    assert shaken(served, client_of(files)) == der(files / "two.crt")
    assert len(said) == 3


@needs_openssl
def test_the_authorities_of_clients_are_read_again_and_old_ones_forgotten(files) -> None:
    served = ServedCertificate(
        *(str(files / name) for name in ("tls.crt", "tls.key", "clients.crt")), lambda _: None
    )

    def is_let_in(name: str) -> bool:
        return shaken_by_server(served, client_of(files, name))

    assert [is_let_in("client"), is_let_in("guest")] == [True, False]
    shutil.copy(files / "other.crt", files / "clients.crt")
    served.look(0.0)
    assert [is_let_in("client"), is_let_in("guest")] == [False, True]


def shaken_by_server(served: ServedCertificate, client: ssl.SSLContext) -> bool:
    """Return whether the server has verified the client."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        served.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(6):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError:
        return False
    return bool(ends[1].getpeercert())


@needs_openssl
def test_a_certificate_that_ends_soon_is_complained_of_once_a_day(files) -> None:
    said: list[str] = []
    served = ServedCertificate(
        *(str(files / name) for name in ("tls.crt", "tls.key", "clients.crt")), said.append
    )
    now = time.time()
    served.look(now - 30 * 86400)
    assert said == []

    served.look(now)
    served.look(now + 3600)
    assert len(said) == 2
    assert all("ends at" in complaint for complaint in said)

    served.look(now + 90000)
    assert len(said) == 4
    assert served.ends().keys() == {"server", "clients"}


def openssl(folder: Path, *words: str) -> str:
    done = subprocess.run(  # noqa: S603  # ours
        ["openssl", *words],  # noqa: S607  # ours
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@needs_openssl
@pytest.mark.parametrize("days", [1, 8000, 9500, 60_000])
def test_the_end_is_that_of_openssl(files, days) -> None:
    """In either form of time, of which the longer begins with 2050.

    Before a chain, and behind a key and words.
    """
    openssl(files, "req", "-new", "-key", "one.key", "-subj", "/CN=far", "-out", "far.csr")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-days", str(days), "-out", "far.crt")
    openssl(files, "x509", "-req", "-in", "far.csr", *signed)
    text = "".join((files / name).read_text() for name in ("one.key", "far.crt", "ca.crt"))
    (files / "chain.crt").write_text(f"of far\n{text}")
    for name in ("ca", "far", "chain"):
        said = openssl(files, "x509", "-enddate", "-noout", "-in", f"{name}.crt")
        expected = datetime.strptime(said, "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
        assert end_of(files / f"{name}.crt") == expected.timestamp()


@needs_openssl
def test_torn_certificates_have_an_end_or_none(files) -> None:
    """Any byte changed, and the rest left out at any place.

    An error of the system, which callers expect.
    """
    whole = der(files / "one.crt")
    for at in range(len(whole)):
        for torn in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            (files / "torn.crt").write_text(ssl.DER_cert_to_PEM_cert(torn))
            with suppress(OSError):
                assert isinstance(end_of(files / "torn.crt"), float)


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_has_no_end(tmp_path, text) -> None:
    (tmp_path / "one.crt").write_text(text)
    with pytest.raises(OSError, match=r"PEM|ASN1|asn1"):
        end_of(tmp_path / "one.crt")


def modules_for_traces() -> list[str]:
    """Return the modules of OpenTelemetry that are imported."""
    return [name for name in list(sys.modules) if name.partition(".")[0] == "opentelemetry"]


def test_without_the_extra_a_wish_for_traces_is_answered_in_one_line_and_nothing_is_imported(
    monkeypatch,
) -> None:
    """Whatever the environment asks for, and whatever tests before this one have imported."""
    said: list[str] = []
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)

    for name in modules_for_traces():
        monkeypatch.delitem(sys.modules, name)

    trace(web.Application(), "e", said.append)
    assert said == []
    assert modules_for_traces() == []

    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    trace(web.Application(), "e", said.append)
    assert said == [
        "OTEL_* ask for traces, which need the extra tracing: pip install 'alignup[tracing]'"
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(98, "address already in use"), "address already in use"),
        (OSError("could not bind on any address"), "could not bind on any address"),
        (OSError(), "OSError"),
        (UnicodeError("label too long"), "no host can have the name"),
    ],
)
def test_an_address_that_cannot_be_had_is_an_error_with_a_reason(
    monkeypatch, error, reason
) -> None:
    """Some of asyncio's errors have no number of the system."""

    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_server", fail)
    with pytest.raises(InputError) as caught:
        asyncio.run(serving.serve(web.Application(), ("127.0.0.1", 1)))
    assert str(caught.value) == f"cannot listen on 127.0.0.1:1: {reason}"
