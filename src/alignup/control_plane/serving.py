"""Runs an HTTP application beside its background work until the process is told to end.

Used by the extender and by simulated kubelets. Needs the extra `cluster`.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from alignup.errors import InputError, system_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiohttp.typedefs import Handler

_HIGHEST_PORT = 65535
MOST_CONNECTIONS: Final = 512
"""At once; the one that has been idle for the longest makes room for another."""
_HANDSHAKE_SECONDS: Final = 10.0
_LAST_ANSWERS: Final = 5.0
"""Seconds for requests that are being answered when the process ends."""
GRACE: Final = 20
"""Seconds from a signal to the end, whatever is under way; Kubernetes gives a pod 30."""


def address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host is in brackets; port 0 is any free one.

    Raises:
        InputError: it is no such text.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # without which the empty name would be all addresses
    # more digits than the highest port has can be more than Python makes a number of
    is_port = port.isdecimal() and port.isascii() and len(port) <= len(str(_HIGHEST_PORT))
    if not host or not is_port or int(port) > _HIGHEST_PORT:
        raise InputError.at("--listen", "HOST:PORT", text)
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tls_context(certificate: str | None, key: str | None, client_ca: str | None) -> ssl.SSLContext | None:
    """Return how to serve TLS; None without a certificate.

    Args:
        certificate: the file of the server's certificate.
        key: the file of its key.
        client_ca: the file of the authorities whose client certificates are accepted. A client may come without one:
            the application decides what it answers then.

    Raises:
        InputError: only one of the first two is given, the last one without these, or a file cannot be read.
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


class _Connections:
    """Accepts the connections of an application; the one that has been idle for the longest makes room for another."""

    def __init__(self, app: web.Application) -> None:
        self.server: web.Server | None = None
        self._since: dict[web.RequestHandler, tuple[bool, float]] = {}
        """Of each connection, whether a request is being answered, and since when this is so."""
        app.middlewares.append(self._note)

    def __call__(self) -> asyncio.Protocol:
        """Return what handles a new connection."""
        assert self.server is not None  # noqa: S101  # set before anybody connects
        transports = {one: one.transport for one in self.server.connections if one.transport is not None}
        now = False, monotonic()
        self._since = {one: self._since.get(one, now) for one, known in transports.items() if not known.is_closing()}
        for one in sorted(self._since, key=self._since.__getitem__)[: max(len(self._since) - MOST_CONNECTIONS + 1, 0)]:
            transports[one].abort()
        return self.server()

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._since[request.protocol] = True, monotonic()
        try:
            return await handler(request)
        finally:
            self._since[request.protocol] = False, monotonic()


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
        for one in listening:
            one.close()

    app.on_shutdown.append(stop)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=_LAST_ANSWERS)
    await runner.setup()
    connections.server = runner.server
    seconds = _HANDSHAKE_SECONDS if tls else None
    try:
        listening.append(
            await asyncio.get_running_loop().create_server(
                connections, where[0], where[1], ssl=tls, ssl_handshake_timeout=seconds
            )
        )
    except (OSError, UnicodeError) as error:
        await runner.cleanup()
        why = error.strerror if isinstance(error, OSError) else "no host can have the name"
        raise InputError(f"cannot listen on {where[0]}:{where[1]}: {why}") from error
    return runner, int(listening[0].sockets[0].getsockname()[1])


def end_on_signals(end: Callable[[], object]) -> None:
    """Call a function at SIGTERM or SIGINT; when that has not ended the process in time, the kernel does (SIGALRM)."""

    def told() -> None:
        signal.alarm(GRACE)
        end()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)


async def run_until_told(work: Coroutine[Any, Any, None], started: Callable[[], None] = lambda: None) -> None:
    """Run until the work ends, or the process gets SIGTERM or SIGINT, which end it in order.

    Args:
        work: runs for ever, or raises.
        started: called once signals are heard.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    end_on_signals(task.cancel)
    started()
    try:
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
