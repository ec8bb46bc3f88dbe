"""Counts admissions under the names of KEP-693, for Prometheus.

Needs the extra `metrics` (prometheus-client). Nothing else imports this module; without an observer nothing is timed.

>>> from alignup.metrics import AdmissionMetrics
>>> node = Node(machine, config, observer=AdmissionMetrics())      # doctest: +SKIP
"""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

__all__ = ["AdmissionMetrics"]

SECONDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1, 1.0)


class AdmissionMetrics:
    """An observer of a manager or node that feeds three metrics.

    `topology_manager_admission_requests_total`, `topology_manager_admission_errors_total` and the histogram
    `topology_manager_admission_duration_seconds`. (The kubelet observes milliseconds under the last name; here it
    is seconds, as the name says.)

    Args:
        registry: where to register; a registry takes one observer, which any number of nodes can share.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._requests = Counter(
            "topology_manager_admission_requests_total",
            "The number of admission requests.",
            registry=registry,
        )
        self._errors = Counter(
            "topology_manager_admission_errors_total", "The number of refused admissions.", registry=registry
        )
        self._seconds = Histogram(
            "topology_manager_admission_duration_seconds",
            "The time it took to serve an admission request, in seconds.",
            buckets=SECONDS,
            registry=registry,
        )

    def admission(self, seconds: float, admitted: bool) -> None:
        """Count one admission."""
        self._requests.inc()
        if not admitted:
            self._errors.inc()
        self._seconds.observe(seconds)
