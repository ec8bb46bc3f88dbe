"""Metrics count admissions under KEP-693's names, and only when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from alignup.topology_manager.manager import TopologyManager
from alignup.topology_manager.policy import make_policy
from fakes import Licences, pod_of

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")

from prometheus_client import CollectorRegistry

from alignup.metrics import AdmissionMetrics


def test_admissions_and_refusals_are_counted() -> None:
    """Requests count both, errors the refused ones, and the histogram observes the seconds of each."""
    registry = CollectorRegistry()
    observer = AdmissionMetrics(registry)
    manager = TopologyManager(make_policy("restricted", 2), "container", [Licences([2, 0])], observer)
    for uid in ("a", "b", "c"):
        manager.admit(pod_of(uid))

    prefix = "topology_manager_admission_"
    assert registry.get_sample_value(f"{prefix}requests_total") == 3
    assert registry.get_sample_value(f"{prefix}errors_total") == 1
    assert registry.get_sample_value(f"{prefix}duration_seconds_count") == 3
    seconds = registry.get_sample_value(f"{prefix}duration_seconds_sum")
    assert seconds is not None
    assert 0 < seconds < 60
    assert registry.get_sample_value(f"{prefix}duration_seconds_bucket", {"le": "+Inf"}) == 3


def test_a_registry_takes_one_observer() -> None:
    """Two observers would report the same metric twice."""
    registry = CollectorRegistry()
    AdmissionMetrics(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        AdmissionMetrics(registry)


def test_nothing_is_imported_unless_asked_for() -> None:
    """A node without an observer needs no prometheus-client."""
    code = "import sys, alignup.node; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 - our own
