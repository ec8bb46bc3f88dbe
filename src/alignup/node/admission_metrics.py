"""Counts admissions for Prometheus, as the kubelet does.

Names and units are those of the kubelet (`pkg/kubelet/metrics`). Needs the extra `metrics`
(prometheus-client). Only the agent's metrics import this module; without an observer nothing is
timed.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

# The upper bounds of the kubelet's histogram, in milliseconds: 0.05 to 819.2.
BUCKETS: Final = tuple(0.05 * 2**power for power in range(15))


class AdmissionMetrics:
    """An observer of a manager or node that feeds three metrics.

    `kubelet_topology_manager_admission_requests_total`,
    `kubelet_topology_manager_admission_errors_total` and the histogram
    `kubelet_topology_manager_admission_duration_ms`, whose milliseconds have decimals here; the
    kubelet cuts them off. Every admission counts as a request, and every refusal as an error,
    whoever refused.

    Args:
        registry: where to register; a registry takes one observer, which any number of nodes can
            share.

    Examples:
        >>> registry = CollectorRegistry()
        >>> node = Node(read_machine("xeon-2s"), observer=AdmissionMetrics(registry))
        >>> bool(node.admit({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}))
        True
        >>> registry.get_sample_value("kubelet_topology_manager_admission_requests_total")
        1.0
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        prefix = "kubelet_topology_manager_admission"
        requests = "The number of admission requests where resources have to be aligned."
        errors = "The number of admission request failures where resources could not be aligned."
        durations = "Duration in milliseconds to serve a pod admission request."
        self._requests = Counter(f"{prefix}_requests_total", requests, registry=registry)
        self._errors = Counter(f"{prefix}_errors_total", errors, registry=registry)
        self._milliseconds = Histogram(
            f"{prefix}_duration_ms", durations, buckets=BUCKETS, registry=registry
        )

    def admission(self, seconds: float, admitted: bool) -> None:
        """Count one admission."""
        self._requests.inc()
        if not admitted:
            self._errors.inc()

        self._milliseconds.observe(seconds * 1000)
