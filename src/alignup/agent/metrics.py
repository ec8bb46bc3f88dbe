"""Counts for Prometheus what the agent does, and shows what is free and held: on loopback, or on a unix socket.

Needs prometheus-client. The three metrics of the kubelet's Topology Manager are there under their own names.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from alignup.agent.service import Observer
from alignup.errors import InputError
from alignup.metrics import AdmissionMetrics
from alignup.trusted_files import clear, mode_of_new_files, remove, why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from alignup.leases.ledger import Ledger
    from alignup.leases.record import LeaseRecord

_LOG: Final = logging.getLogger(__name__)
_LOOPBACK: Final = "127.0.0.1"
_PATIENCE: Final = 5.0
"""Seconds for the event loop to say how things are, and for who connects to ask and to take the answer."""
_AT_ONCE: Final = 16
"""Connections that are answered; each takes a thread, and more are closed."""
_WAITS: Final = (0.01, 0.1, 1, 10, 60, 600, 3600)


class AgentMetrics(Observer):
    """The metrics of an agent.

    Args:
        ledger: what it has.
        loop: the event loop in which the ledger changes.
    """

    def __init__(self, ledger: Ledger, loop: asyncio.AbstractEventLoop) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Holdings(ledger, loop))
        self._admissions = AdmissionMetrics(self.registry)
        self._verdicts = Counter(
            "alignup_agent_admissions",
            "The number of requests by verdict and reason.",
            ("verdict", "reason"),
            registry=self.registry,
        )
        self._aligned = Counter(
            "alignup_agent_leases",
            "The number of leases that were made, by the number of NUMA nodes they are of.",
            ("numa_nodes",),
            registry=self.registry,
        )
        self._waits = Histogram(
            "alignup_agent_wait_seconds",
            "How long requests waited that were willing to.",
            buckets=_WAITS,
            registry=self.registry,
        )

    def admitted(self, lease: LeaseRecord, seconds: float) -> None:
        """See `Observer`."""
        self._admissions.admission(seconds, admitted=True)
        self._verdicts.labels("admitted", "").inc()
        self._aligned.labels(str(len(lease.numa_nodes))).inc()

    def refused(self, reason: str, seconds: float) -> None:
        """See `Observer`."""
        self._admissions.admission(seconds, admitted=False)
        self._verdicts.labels("refused", reason).inc()

    def waited(self, seconds: float) -> None:
        """See `Observer`."""
        self._waits.observe(seconds)


class _Holdings(Collector):
    """Shows what is free and held, when somebody looks."""

    def __init__(self, ledger: Ledger, loop: asyncio.AbstractEventLoop) -> None:
        self._ledger = ledger
        self._loop = loop

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the names are known, and nobody need ask the ledger for them."""
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges; called from a thread of the HTTP server."""
        gauges = asyncio.run_coroutine_threadsafe(self._gauges(), self._loop)
        try:
            return gauges.result(_PATIENCE)
        except LateError:
            return []

    async def _gauges(self) -> list[GaugeMetricFamily]:
        labels = ("numa_node", "resource")
        free = GaugeMetricFamily("alignup_agent_free", "CPUs, bytes and devices that could be given.", labels=labels)
        held = GaugeMetricFamily("alignup_agent_held", "CPUs, bytes and devices that leases hold.", labels=labels)
        for (node, resource), (is_free, is_held) in self._ledger.amounts().items():
            free.add_metric((node, resource), is_free)
            held.add_metric((node, resource), is_held)
        leases = GaugeMetricFamily("alignup_agent_leases_held", "The number of leases.", len(self._ledger.leases))
        waiting = GaugeMetricFamily(
            "alignup_agent_waiting", "The number of requests that wait.", len(self._ledger.waiting)
        )
        return [free, held, leases, waiting]


def serve_metrics(where: str, registry: CollectorRegistry) -> Callable[[], None]:
    """Serve the metrics of a registry from a thread; return how to end that.

    Args:
        where: `[ADDRESS:]PORT`, on loopback if there is no address; or the path of a unix socket, with a slash.
        registry: the metrics.

    Raises:
        InputError: they cannot be served there.
    """
    try:
        if "/" in where:
            return _serve_at_socket(Path(where), registry)
        address, _, port = where.rpartition(":")
        server, thread = start_http_server(int(port), address.strip("[]") or _LOOPBACK, registry)
        assert isinstance(server, ThreadingWSGIServer)  # noqa: S101  # it says so
        return _stopping(server, thread)
    except (OSError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot serve metrics at {where}, [ADDRESS:]PORT or a path: {why(error)}") from error


class _UnixServer(ThreadingWSGIServer):
    """Serves at a unix socket, whose clients have no address."""

    address_family = socket.AF_UNIX
    request_queue_size = 64

    def server_bind(self) -> None:
        """Bind the socket, for its group only from the beginning."""
        with mode_of_new_files(0o660):
            self.socket.bind(self.server_address)
        self.server_name, self.server_port = "metrics", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Return a connection, with an address that its handler can show."""
        connection, _ = self.socket.accept()
        return connection, ("", 0)


def _serve_at_socket(path: Path, registry: CollectorRegistry) -> Callable[[], None]:
    """Serve at a unix socket, in the place of one that was left there; return how to end that.

    Raises:
        InputError: there is something else, or somebody serves it.
        OSError: it cannot be made.
    """
    clear(path, "--metrics")
    server = _UnixServer(str(path), WSGIRequestHandler)  # type: ignore[arg-type]  # a path is the address here
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    stop = _stopping(server, thread)
    thread.start()

    def stop_and_remove() -> None:
        stop()
        remove(path)

    return stop_and_remove


def _stopping(server: ThreadingWSGIServer, thread: threading.Thread) -> Callable[[], None]:
    """Return how to end a server, in which nobody who comes and goes, or says nothing, is of consequence."""

    class Handler(WSGIRequestHandler):
        timeout = _PATIENCE

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server.RequestHandlerClass = Handler
    server.handle_error = _note_error  # type: ignore[assignment]  # of this one server
    free = threading.Semaphore(_AT_ONCE)

    def begin(request: socket.socket, address: Any) -> None:
        if free.acquire(blocking=False):
            threading.Thread(target=handle, args=(request, address), daemon=True).start()
        else:
            server.shutdown_request(request)

    def handle(request: socket.socket, address: Any) -> None:
        late = threading.Timer(_PATIENCE, _end, (request,))
        late.start()
        try:
            server.process_request_thread(request, address)
        finally:
            late.cancel()
            free.release()

    server.process_request = begin  # type: ignore[assignment]  # as above

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _end(request: socket.socket) -> None:
    """End a connection that takes too long, however often something comes."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _note_error(*_: object) -> None:
    """Ignore clients that disconnect; log anything else."""
    if not isinstance(sys.exception(), OSError):
        _LOG.exception("a request for metrics failed")
