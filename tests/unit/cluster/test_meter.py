"""What a simulated cluster uses: the mean over time, the peak, and what is stranded."""

from __future__ import annotations

import numpy as np
import pytest

from alignup.cluster import Cluster
from alignup.cluster.node_totals import Totals
from alignup.cluster.simulation import Meter
from inputs.cluster_files import node_line


@pytest.fixture
def totals():
    return Totals(Cluster.from_json_lines([node_line(name) for name in "ab"]).nodes)


def request(totals, cpus):
    return np.array([1000 * cpus if name == "cpu" else 0 for name in totals.resources], np.int64)


def test_without_time_the_mean_is_what_is_used_now(totals):
    meter = Meter(totals)
    totals.add(0, request(totals, 3))
    meter.note()
    used = dict(zip(totals.resources, meter.mean.tolist(), strict=True))
    assert used["cpu"] == pytest.approx(
        3000 / totals.allocatable[:, totals.resources.index("cpu")].sum()
    )


def test_the_mean_is_weighted_with_time_and_the_peak_stays(totals):
    cpu = totals.resources.index("cpu")
    whole = totals.allocatable[:, cpu].sum()
    meter = Meter(totals)
    meter.advance(0)
    for now, cpus in ((1, 4), (3, -2), (7, -2)):
        meter.advance(now)
        totals.add(0, request(totals, cpus))
        meter.note()
    meter.advance(7)  # no time passes
    assert meter.mean[cpu] == pytest.approx((0 * 1 + 4000 * 2 + 2000 * 4) / 7 / whole)
    assert meter.peak[cpu] == pytest.approx(4000 / whole)


def test_what_is_free_where_a_pod_fits_and_is_refused_is_stranded(totals):
    meter = Meter(totals)
    assert meter.stranded.tolist() == [0] * len(totals.resources)
    meter.strand(np.array([True, True]), np.array([True, False]))
    meter.strand(np.array([True, True]), np.array([True, True]))
    assert meter.stranded.tolist() == pytest.approx([0.25] * len(totals.resources))


def test_what_is_stranded_is_a_part_of_what_is_free_by_amount_not_by_node(totals):
    """Nodes with little free count for little, and each moment for as much as any other."""
    cpu, used = totals.resources.index("cpu"), 3
    whole = int(totals.allocatable[0, cpu]) // 1000
    totals.add(0, request(totals, used))
    meter = Meter(totals)
    free = [whole - used, whole]
    meter.strand(np.array([True, True]), np.array([False, True]))  # the first is stranded
    meter.strand(np.array([True, False]), np.array([False, False]))  # where nothing fits nothing is
    meter.strand(np.array([True, True]), np.array([False, False]))
    parts = [free[0] / sum(free), free[0] / sum(free), 1]
    assert meter.stranded[cpu] == pytest.approx(sum(parts) / 3)
