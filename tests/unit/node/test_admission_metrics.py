"""Metrics count admissions under the kubelet's names, and only when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from alignup.node import Node
from alignup.topology_manager.manager import TopologyManager
from alignup.topology_manager.policy import make_policy
from fakes.hint_providers import Licences, pod_of

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from prometheus_client import CollectorRegistry

from alignup.node.admission_metrics import AdmissionMetrics


def test_seconds_are_observed_in_milliseconds() -> None:
    registry = CollectorRegistry()
    AdmissionMetrics(registry).admission(2.5, admitted=True)
    assert registry.get_sample_value("kubelet_topology_manager_admission_duration_ms_sum") == 2500


def test_admissions_and_refusals_are_counted() -> None:
    """Requests count both, errors the refused ones.

    The histogram observes the milliseconds of each.
    """
    registry = CollectorRegistry()
    observer = AdmissionMetrics(registry)
    manager = TopologyManager(
        make_policy("restricted", 2), "container", [Licences([2, 0])], observer
    )
    for uid in ("a", "b", "c"):
        manager.admit(pod_of(uid))

    prefix = "kubelet_topology_manager_admission_"
    assert registry.get_sample_value(f"{prefix}requests_total") == 3
    assert registry.get_sample_value(f"{prefix}errors_total") == 1
    assert registry.get_sample_value(f"{prefix}duration_ms_count") == 3
    milliseconds = registry.get_sample_value(f"{prefix}duration_ms_sum")
    assert milliseconds is not None
    assert 0 < milliseconds < 60_000
    assert registry.get_sample_value(f"{prefix}duration_ms_bucket", {"le": "+Inf"}) == 3
    bounds = [
        sample.labels["le"]
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == f"{prefix}duration_ms_bucket"
    ]
    assert [float(bound) for bound in bounds[:-1]] == pytest.approx(
        [0.05 * 2**power for power in range(15)]
    )


def test_an_admission_that_no_merge_decides_is_counted() -> None:
    """A pod whose own policy is not the node's is refused before any provider is asked."""
    registry = CollectorRegistry()
    node = Node.from_dict({"machine": "align-up-article"}, observer=AdmissionMetrics(registry))
    annotation = {
        "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy": "Restricted"}'
    }
    pod = {
        "metadata": {"name": "p", "annotations": annotation},
        "spec": {"containers": [{"name": "c0"}]},
    }

    assert not node.admit(pod)
    assert registry.get_sample_value("kubelet_topology_manager_admission_requests_total") == 1
    assert registry.get_sample_value("kubelet_topology_manager_admission_errors_total") == 1
    assert registry.get_sample_value("kubelet_topology_manager_admission_duration_ms_count") == 1


def test_a_registry_takes_one_observer() -> None:
    """Two observers would report the same metric twice."""
    registry = CollectorRegistry()
    AdmissionMetrics(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        AdmissionMetrics(registry)


def test_nothing_is_imported_unless_asked_for() -> None:
    """A node without an observer needs no prometheus-client."""
    code = "import sys, alignup.node; sys.exit('prometheus_client' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603 - our own
    assert process.returncode == 0
