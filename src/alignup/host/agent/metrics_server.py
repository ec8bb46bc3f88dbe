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
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from alignup.errors import InputError, system_reason
from alignup.host.agent.service import Observer
from alignup.host.trusted_files import clear, mode_of_new_files, remove
from alignup.node.admission_metrics import AdmissionMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from alignup.host.leases.ledger import Ledger
    from alignup.host.leases.record import LeaseRecord

_LOG: Final = logging.getLogger(__name__)
_LOOPBACK: Final = "127.0.0.1"
# Seconds for the event loop to say how things are, and for who connects to ask and to take the answer.
_PATIENCE: Final = 5.0
# Connections that are answered; each takes a thread, and more are closed.
_AT_ONCE: Final = 16
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
        words = "The number of requests by verdict and reason."
        self._verdicts = Counter("alignup_agent_admissions", words, ("verdict", "reason"), registry=self.registry)
        words = "The number of leases that were granted, by the number of NUMA nodes that they span."
        self._aligned = Counter("alignup_agent_leases", words, ("numa_nodes",), registry=self.registry)
        words = "Seconds that requests with --wait waited for a lease."
        self._waits = Histogram("alignup_agent_wait_seconds", words, buckets=_WAITS, registry=self.registry)

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
    is_path = "/" in where
    try:
        if is_path:
            clear(Path(where), "--metrics")
            server = _Server(socket.AF_UNIX, where, registry)
        else:
            host, _, port = where.rpartition(":")
            found = socket.getaddrinfo(host.strip("[]") or _LOOPBACK, int(port), type=socket.SOCK_STREAM)
            family, *_, address = found[0]
            server = _Server(family, (address[0], int(port)), registry)
    except InputError:
        raise
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"cannot serve metrics at {where}, [ADDRESS:]PORT or a path: {system_reason(error)}"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()
        if is_path:
            remove(Path(where))

    return stop


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(ThreadingWSGIServer):
    """Serves metrics at an address or a unix socket; nobody who comes and goes, or says nothing, is of consequence."""

    request_queue_size = 64

    def __init__(self, family: int, address: Any, registry: CollectorRegistry) -> None:
        self.address_family = family
        self._free = threading.Semaphore(_AT_ONCE)
        super().__init__(address, _Handler)
        self.set_app(make_wsgi_app(registry))

    def server_bind(self) -> None:
        """Bind the socket, which is for its group only from the beginning if it is a unix socket."""
        with mode_of_new_files(0o660):
            TCPServer.server_bind(self)
        self.server_name, self.server_port = "metrics", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Return a connection, with an address that its handler can show."""
        connection, address = super().get_request()
        return connection, address or ("", 0)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there are not too many."""
        if self._free.acquire(blocking=False):
            threading.Thread(target=self._answer, args=(request, client_address), daemon=True).start()
        else:
            self.shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect; log anything else."""
        if not isinstance(sys.exception(), OSError):
            _LOG.exception("a request for metrics failed")

    def _answer(self, request: socket.socket, address: Any) -> None:
        late = threading.Timer(_PATIENCE, _end, (request,))
        late.start()
        try:
            self.process_request_thread(request, address)
        finally:
            late.cancel()
            self._free.release()


def _end(request: socket.socket) -> None:
    """End a connection that takes too long, however often something comes."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
