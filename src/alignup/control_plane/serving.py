"""Serves an HTTP application, perhaps over TLS.

Questions are traced by OpenTelemetry where its variables `OTEL_*` ask for it (`trace`).

Certificates are read again when their files change: a Secret of Kubernetes changes its mounted
files while the process runs. Connections that begin after a change get the new certificate, and are
judged by the new authorities; one that cannot be read leaves the old one in use.

Used by the extender and by simulated kubelets. Needs the extra `cluster`.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import socket
import ssl
import time
from binascii import a2b_base64
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from alignup.errors import InputError, system_errors, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler

# At once, and with few descriptors as many as a quarter of these; the one that has been idle for
# the longest makes room for another.
MOST_CONNECTIONS: Final = 512
# Connections that are accepted in one turn of the loop, before any has made room for them: who is
# connected already waits for their handshakes.
_AT_ONCE: Final = 16
# Connections that the kernel keeps until they are accepted; further ones try again after a second.
_BACKLOG: Final = 128
_HANDSHAKE_SECONDS: Final = 10.0
# Seconds for requests that are being answered when the process ends.
_LAST_ANSWERS: Final = 5.0
# Variables that name where spans go.
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_LOOK_SECONDS: Final = 10.0
_SOON: Final = 7 * 86400.0

# Seconds between two complaints about a certificate that ends soon.
_AGAIN: Final = 86400.0

# Python decodes certificates of authorities and of peers only: the tags of DER that RFC 5280 has on
# the way to the end.
_PEM: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----\s([^-]*)-----END ")

# Tags of DER that are looked for.
_VERSION: Final = 0xA0
_SHORT_TIME: Final = 0x17

# The bit of a length that takes several bytes, and those that tell how many.
_LONG: Final = 0x80
_REST: Final = 0x7F

# What the span of the request that is being answered tells of it: its handler adds that.
ABOUT: Final[ContextVar[dict[str, str]]] = ContextVar("about")


def tls_context(
    certificate: str | None, key: str | None, client_ca: str | None
) -> ssl.SSLContext | None:
    """Return how to serve TLS; None without a certificate.

    Args:
        certificate: the file of the server's certificate.
        key: the file of its key.
        client_ca: the file of the authorities whose client certificates are accepted. A client may
            come without one: the application decides what it answers then.

    Raises:
        InputError: only one of the first two is given, the last one without these, or a file cannot
            be read.
    """
    if certificate is None and key is None:
        if client_ca is not None:
            raise InputError("--client-ca needs a certificate and its key")
        return None

    if certificate is None or key is None:
        raise InputError("a certificate and its key are given together")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with system_errors(f"cannot use the certificate {certificate} and its key {key}", "--tls-cert"):
        context.load_cert_chain(certificate, key)

    if client_ca is not None:
        with system_errors(f"cannot use the authorities in {client_ca}", "--client-ca"):
            context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL

    return context


class ServedCertificate:
    """A server's certificate and its clients' authorities, as their files are now.

    Args:
        certificate: the file of the server's certificate.
        key: the file of its key.
        client_ca: as `tls_context` has it.
        complain: called with what went wrong, or is about to, in one line.

    Raises:
        InputError: as `tls_context`.
    """

    def __init__(
        self, certificate: str, key: str, client_ca: str | None, complain: Callable[[str], None]
    ) -> None:
        self._files = {"server": certificate, "key": key}
        if client_ca:
            self._files["clients"] = client_ca

        self._arguments = (certificate, key, client_ca)
        self._complain = complain
        self._stamp = self._stamps()
        self._current = self._read()
        # When a certificate that ends soon was complained of.
        self._complained = float("-inf")

        # What to serve with: each connection gets what there is when it begins.
        self.context = self._read()
        self.context.sni_callback = self._choose
        # who comes back shows the certificate again, for the authorities of then
        self.context.num_tickets = 0

    def _read(self) -> ssl.SSLContext:
        context = tls_context(*self._arguments)
        assert context is not None  # noqa: S101  # a certificate is given
        return context

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._current

    def _stamps(self) -> list[tuple[int, int, int]]:
        """Return what changes when a file does, of those that are there."""
        states = [path.stat() for path in map(Path, self._files.values()) if path.exists()]
        return [(state.st_ino, state.st_mtime_ns, state.st_size) for state in states]

    def look(self, now: float) -> None:
        """Read the files again if they have changed, and complain of a certificate that ends soon.

        Args:
            now: seconds since 1970.
        """
        stamp = self._stamps()
        if stamp != self._stamp:
            self._stamp = stamp  # of files that do not fit together yet, the other one changes too
            try:
                self._current = self._read()
                self._complained = float("-inf")
                self._complain(f"the certificate in {self._files['server']} was read again")
            except InputError as error:
                self._complain(f"the certificate from before stays in use: {error}")

        soon = {role: end for role, end in self.ends().items() if end < now + _SOON}
        if soon and now >= self._complained + _AGAIN:
            self._complained = now
            for role, end in soon.items():
                moment = datetime.fromtimestamp(end, UTC).isoformat()
                self._complain(f"the certificate in {self._files[role]} ends at {moment}")

    def ends(self) -> dict[str, float]:
        """Return when the certificates end, in seconds since 1970.

        The keys are `server`, and `clients` for their authority.
        """
        ends = {}
        for role in self._files.keys() & {"server", "clients"}:
            try:
                ends[role] = end_of(Path(self._files[role]))
            except OSError:  # being replaced; `look` complains of what stays so
                continue

        return ends

    async def keep(self) -> None:
        """Look again and again until cancelled."""
        while True:
            with suppress(OSError):  # a file that is replaced right now
                self.look(time.time())
            await asyncio.sleep(_LOOK_SECONDS)


def end_of(path: Path) -> float:
    """Return when the first certificate of a PEM file ends, in seconds since 1970.

    Raises:
        OSError: the file has none.
    """
    try:
        text = _PEM.findall(path.read_bytes())[0]
        certificate = _elements(_elements(a2b_base64(text))[0][1])[0][1]
        # serial, algorithm, issuer, validity
        fields = [content for tag, content in _elements(certificate) if tag != _VERSION]
        tag, moment = _elements(fields[3])[1]
        time_text = moment.decode()
        if tag == _SHORT_TIME:
            century = "20" if moment < b"5" else "19"
            time_text = century + time_text

        return datetime.strptime(time_text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except (ValueError, IndexError) as error:
        raise OSError(f"no certificate in PEM in {path}") from error


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Return the tags and contents of elements of DER that follow one another."""
    elements = []
    position = 0
    while position < len(data):
        tag = data[position]
        length = data[position + 1]
        start = position + 2
        if length & _LONG:
            start += length & _REST
            length = int.from_bytes(data[position + 2 : start], "big")

        position = start + length
        elements.append((tag, data[start:position]))
    return elements


def trace(app: web.Application, service: str, complain: Callable[[str], None]) -> None:
    """Make a span of each question as OpenTelemetry's variables ask, if they do.

    Spans are sent by OTLP over HTTP.

    Args:
        app: the application, not started yet.
        service: the name of the service, where no variable has one.
        complain: called, in one line, where they ask for traces and the extra `tracing` is not
            installed.
    """
    exporter = os.environ.get("OTEL_TRACES_EXPORTER")
    if not exporter:
        exporter = "otlp" if any(map(os.environ.get, _ENDPOINTS)) else "none"
    if exporter != "otlp" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return

    try:  # an extra
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider, export  # noqa: PLC0415
    except ImportError:
        complain(
            "OTEL_* ask for traces, which need the extra tracing: pip install 'alignup[tracing]'"
        )
        return

    service_name = os.environ.get("OTEL_SERVICE_NAME", service)
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(export.BatchSpanProcessor(OTLPSpanExporter()))
    trace_with(app, provider)


def trace_with(app: web.Application, provider: Any) -> None:
    """Make a span of each question, whose parent its headers name.

    Args:
        app: the application, not started yet.
        provider: a `TracerProvider` of OpenTelemetry's SDK.
    """
    from opentelemetry.propagate import extract  # noqa: PLC0415  # as above
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    tracer = provider.get_tracer("alignup")

    @web.middleware
    async def traced(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method != "POST":
            return await handler(request)

        ABOUT.set({})
        path = request.match_info.get_info().get("path", "unknown")
        with tracer.start_as_current_span(
            path.strip("/"), extract(request.headers), SpanKind.SERVER
        ) as span:
            try:
                return await handler(request)
            finally:
                span.set_attributes(ABOUT.get())

    async def close(_: web.Application) -> None:
        await asyncio.to_thread(provider.shutdown)  # which sends what is left

    app.middlewares.append(traced)
    app.on_cleanup.append(close)


class _Connections:
    """Accepts the connections of an application.

    The one that has been idle for the longest makes room for another.
    """

    def __init__(self, app: web.Application) -> None:
        self.server: web.Server | None = None
        self.most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        # Of each connection, whether a request is being answered, and since when this is so.
        self._since: dict[web.RequestHandler, tuple[bool, float]] = {}
        app.middlewares.append(self._note)

    def __call__(self) -> asyncio.Protocol:
        """Return what handles a new connection."""
        assert self.server is not None  # noqa: S101  # set before anybody connects
        now = False, time.monotonic()
        transports = {}
        since = {}
        for connection in self.server.connections:
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                transports[connection] = transport
                since[connection] = self._since.get(connection, now)

        self._since = since
        surplus = max(len(since) - self.most + 1, 0)
        for connection in sorted(since, key=since.__getitem__)[:surplus]:
            transports[connection].abort()

        return self.server()

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._since[request.protocol] = True, time.monotonic()
        try:
            return await handler(request)
        finally:
            self._since[request.protocol] = False, time.monotonic()


async def serve(
    app: web.Application, where: tuple[str, int], tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, int]:
    """Start to serve; return the server, whose `cleanup` ends it, and its port.

    Bodies of requests are not unpacked: an application must look at their `Content-Encoding`.

    Raises:
        InputError: the address cannot be had.
    """
    connections = _Connections(app)
    listening: list[asyncio.Server] = []

    async def stop(_: web.Application) -> None:
        for server in listening:
            server.close()

    app.on_shutdown.append(stop)
    runner = web.AppRunner(
        app, access_log=None, auto_decompress=False, shutdown_timeout=_LAST_ANSWERS
    )
    await runner.setup()
    connections.server = runner.server

    seconds = _HANDSHAKE_SECONDS if tls else None
    at_once = min(_AT_ONCE, connections.most)
    try:
        server = await asyncio.get_running_loop().create_server(
            connections, *where, ssl=tls, ssl_handshake_timeout=seconds, backlog=at_once
        )
        # asyncio has one number for both, and does not show its sockets
        for listener in server.sockets:
            with socket.socket(fileno=os.dup(listener.fileno())) as same_socket:
                same_socket.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        await runner.cleanup()
        reason = "no host can have the name"
        if isinstance(error, OSError):
            reason = error.strerror or text_of(error)

        raise InputError(f"cannot listen on {where[0]}:{where[1]}: {reason}") from error

    listening.append(server)
    return runner, int(server.sockets[0].getsockname()[1])
