"""Counts for Prometheus what the agent does, and shows what is free and held: on loopback, or on a unix socket.

Needs prometheus-client. The three metrics of the kubelet's Topology Manager are there under their own names.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import socketserver
import sys
import threading
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import MetricsHandler
from prometheus_client.registry import Collector

from alignup.agent.observer import Observer
from alignup.errors import InputError
from alignup.leases.socket_path import clear, remove
from alignup.metrics import AdmissionMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from alignup.agent.ledger import Ledger
    from alignup.leases.record import LeaseRecord

__all__ = ["AgentMetrics", "serve_metrics"]

_LOG: Final = logging.getLogger(__name__)
_LOOPBACK: Final = "127.0.0.1"
_PATIENCE: Final = 5.0
"""Seconds for the event loop to say how things are, and for who connects to ask and to take the answer."""
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
        free = GaugeMetricFamily(
            "alignup_agent_free", "CPUs, bytes and devices that could be given.", labels=labels
        )
        held = GaugeMetricFamily(
            "alignup_agent_held", "CPUs, bytes and devices that leases hold.", labels=labels
        )
        for (node, resource), (is_free, is_held) in self._ledger.amounts().items():
            free.add_metric((node, resource), is_free)
            held.add_metric((node, resource), is_held)
        leases = GaugeMetricFamily(
            "alignup_agent_leases_held", "The number of leases.", len(self._ledger.leases)
        )
        waiting = GaugeMetricFamily(
            "alignup_agent_waiting", "The number of requests that wait.", self._ledger.waiting
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
        return _serve_at_port(address.strip("[]") or _LOOPBACK, int(port), registry)
    except InputError:
        raise
    except (OSError, ValueError, OverflowError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(
            f"expected [ADDRESS:]PORT or a path to serve metrics at, got {why!r} at {where}"
        ) from error


class _Calm(socketserver.ThreadingMixIn):
    """What the servers have in common: nobody who comes and goes, or says nothing, is of consequence."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  # socketserver's signature
        """Pass over who has gone away before the end of an answer; anything else is for the log."""
        if not isinstance(sys.exception(), OSError):
            _LOG.exception("a request for metrics failed")


class _UnixServer(_Calm, socketserver.UnixStreamServer):
    """Serves at a unix socket."""


class _TCPServer(_Calm, socketserver.TCPServer):
    """Serves at a port."""

    allow_reuse_address = True


class _TCP6Server(_TCPServer):
    """Serves at a port of an address of IPv6."""

    address_family = socket.AF_INET6


def _serve_at_socket(path: Path, registry: CollectorRegistry) -> Callable[[], None]:
    """Serve at a unix socket, in the place of one that was left there; return how to end that.

    Raises:
        InputError: there is something else, or somebody serves it.
        OSError: it cannot be made.
    """
    clear(path, "--metrics")
    server = _UnixServer(str(path), _handler(registry))
    path.chmod(0o660)
    stop = _serve(server)

    def stop_and_remove() -> None:
        stop()
        remove(path)

    return stop_and_remove


def _serve_at_port(address: str, port: int, registry: CollectorRegistry) -> Callable[[], None]:
    """Serve at a port of an address or of a host's name; return how to end that.

    Raises:
        OSError: it cannot be had.
    """
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = found[0]
    kind = _TCP6Server if family == socket.AF_INET6 else _TCPServer
    return _serve(kind((str(place[0]), port), _handler(registry)))


def _handler(registry: CollectorRegistry) -> type[MetricsHandler]:
    """Return what answers a request, for which it waits a while."""
    kind: type[MetricsHandler] = MetricsHandler.factory(registry)
    kind.timeout = _PATIENCE
    return kind


def _serve(server: socketserver.BaseServer) -> Callable[[], None]:
    """Serve from a thread; return how to end that."""
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
