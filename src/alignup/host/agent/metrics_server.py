"""Counts for Prometheus what the agent does, and shows what is free and held.

It serves on loopback, or on a unix socket. Needs prometheus-client. The three metrics of the
kubelet's Topology Manager are there under their own names.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from email.parser import BytesParser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from alignup.errors import system_errors
from alignup.host.agent.service import Observer
from alignup.host.trusted_files import clear, mode_of_new_files, remove
from alignup.node.admission_metrics import AdmissionMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from alignup.host.leases.ledger import Ledger
    from alignup.host.leases.record import LeaseRecord

_LOG: Final = logging.getLogger(__name__)
_LOOPBACK: Final = "127.0.0.1"
# Seconds for who connects to ask and to take the answer.
_PATIENCE: Final = 5.0
# Connections that are answered; more are closed.
_AT_ONCE: Final = 16
_WAITS: Final = (0.01, 0.1, 1, 10, 60, 600, 3600)


class AgentMetrics(Observer, Collector):
    """The metrics of an agent.

    Args:
        ledger: what it has.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._ledger = ledger

        self._admissions = AdmissionMetrics(self.registry)
        self._verdicts = Counter(
            "alignup_agent_admissions",
            "The number of requests by verdict and reason.",
            ("verdict", "reason"),
            registry=self.registry,
        )
        self._aligned = Counter(
            "alignup_agent_leases",
            "The number of leases that were granted, by the number of NUMA nodes that they span.",
            ("numa_nodes",),
            registry=self.registry,
        )
        self._waits = Histogram(
            "alignup_agent_wait_seconds",
            "Seconds that requests with --wait waited for a lease.",
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

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the names are known, and nobody need ask the ledger for them."""
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return gauges of what is free and held now.

        Called in the event loop, where the ledger changes.
        """
        labels = ("numa_node", "resource")
        free_gauge = GaugeMetricFamily(
            "alignup_agent_free", "CPUs, bytes and devices that could be given.", labels=labels
        )
        held_gauge = GaugeMetricFamily(
            "alignup_agent_held", "CPUs, bytes and devices that leases hold.", labels=labels
        )
        for (node, resource), (free_amount, held_amount) in self._ledger.amounts().items():
            free_gauge.add_metric((node, resource), free_amount)
            held_gauge.add_metric((node, resource), held_amount)

        lease_gauge = GaugeMetricFamily(
            "alignup_agent_leases_held", "The number of leases.", len(self._ledger.leases)
        )
        waiting_gauge = GaugeMetricFamily(
            "alignup_agent_waiting", "The number of requests that wait.", len(self._ledger.waiting)
        )
        return [free_gauge, held_gauge, lease_gauge, waiting_gauge]


@asynccontextmanager
async def serving_metrics(where: str, registry: CollectorRegistry) -> AsyncIterator[None]:
    """Serve the metrics of a registry as long as the block runs.

    Args:
        where: `[ADDRESS:]PORT`, on loopback if there is no address; or the path of a unix socket,
            with a slash.
        registry: the metrics.

    Raises:
        InputError: they cannot be served there.
    """
    with system_errors(
        "cannot serve metrics at [ADDRESS:]PORT or a path", where, ValueError, OverflowError
    ):
        listening = _listening(where)

    free = asyncio.Semaphore(_AT_ONCE)
    server = await asyncio.start_server(partial(_answer, registry, free), sock=listening)
    try:
        yield
    finally:
        server.close()
        if "/" in where:
            remove(Path(where))


def _listening(where: str) -> socket.socket:
    """Return a socket at a place; one with a path is for its group only from the beginning."""
    family = socket.AF_UNIX
    address: Any = where
    if "/" in where:
        clear(Path(where), "--metrics")
    else:
        host, _, port = where.rpartition(":")
        addresses = socket.getaddrinfo(
            host.strip("[]") or _LOOPBACK, int(port), type=socket.SOCK_STREAM
        )
        family, _, _, _, socket_address = addresses[0]
        address = (socket_address[0], int(port))

    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with mode_of_new_files(0o660):
            listening.bind(address)
    except BaseException:
        listening.close()
        raise

    return listening


async def _answer(
    registry: CollectorRegistry,
    free: asyncio.Semaphore,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Answer whatever is asked with the metrics, if not too many ask.

    Nobody who comes and goes is of consequence.
    """
    try:
        if not free.locked():
            async with free, asyncio.timeout(_PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(registry, request))
                writer.close()
                await writer.wait_closed()

    except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError):
        pass
    except Exception:  # noqa: BLE001  # nobody is above
        _LOG.exception("a request for metrics failed")
    finally:
        writer.transport.abort()


def _response(registry: CollectorRegistry, request: bytes) -> bytes:
    """Return the answer to a request, in the form that its headers accept."""
    _, _, headers = request.partition(b"\r\n")
    accepted = BytesParser().parsebytes(headers, headersonly=True).get("Accept", "")
    encode, kind = choose_encoder(accepted)
    body = encode(registry)
    head = f"HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
