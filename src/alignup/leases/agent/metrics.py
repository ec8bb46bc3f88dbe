"""Counts for Prometheus what the agent does, and shows what is free and held: on loopback, or on a unix socket.

Needs prometheus-client. The three metrics of the kubelet's Topology Manager are there under their own names.
"""

from __future__ import annotations

import asyncio
import socketserver
import threading
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import MetricsHandler, start_http_server
from prometheus_client.registry import Collector

from alignup.errors import InputError
from alignup.leases.agent.observer import Observer
from alignup.metrics import AdmissionMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from alignup.leases.agent.ledger import Ledger
    from alignup.leases.record import LeaseRecord

__all__ = ["AgentMetrics", "serve_metrics"]

_LOOPBACK: Final = "127.0.0.1"
_PATIENCE: Final = 5.0
"""Seconds for the event loop to say how things are."""
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
        server, thread = start_http_server(int(port), address.strip("[]") or _LOOPBACK, registry)
    except (OSError, ValueError, OverflowError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(
            f"expected [ADDRESS:]PORT or a path to serve metrics at, got {why!r} at {where}"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def _serve_at_socket(path: Path, registry: CollectorRegistry) -> Callable[[], None]:
    """Serve at a unix socket, in the place of what was left there; return how to end that."""
    path.unlink(missing_ok=True)
    server = _Server(str(path), MetricsHandler.factory(registry))
    path.chmod(0o660)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()
        path.unlink(missing_ok=True)

    return stop
