"""Sums over whole nodes are what the default scheduler sees and scores by."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alignup import read_pod
from alignup.cluster import Cluster
from alignup.cluster.node_totals import Totals
from alignup.errors import InputError
from inputs.cluster_files import node_line, pod_manifest

GIBI = 1 << 30


def test_totals_are_what_the_default_scheduler_sees():
    """Reservations are taken off, requests count in fractions, init containers by their peak."""
    cluster = Cluster.from_json_lines(
        [node_line("n0", pods=[pod_manifest("old", cpus=2, memory="3Gi", gpu=1)])]
    )
    totals = Totals(cluster.nodes)
    assert dict(zip(totals.resources, totals.allocatable[0].tolist(), strict=True)) == {
        "cpu": 15_000,
        "memory": 63 * GIBI,
        "example.com/any": 1,
        "example.com/gpu": 2,
    }
    assert totals.free[0].tolist() == [13_000, 1, 1, 60 * GIBI]

    manifest = pod_manifest("new", cpus=2)
    manifest["spec"]["initContainers"] = [
        {
            "name": "i",
            "image": "i",
            "resources": {"requests": {"cpu": "12500m", "ephemeral-storage": "1Gi"}},
        }
    ]
    assert totals.request(read_pod(manifest)).tolist() == [12_500, 0, 0, GIBI]
    assert totals.fits(totals.request(read_pod(manifest))).tolist() == [True]
    assert totals.fits(totals.request(read_pod(pod_manifest("large", cpus=14)))).tolist() == [False]
    assert totals.fits(totals.request(read_pod(pod_manifest("strange", tpu=1)))).tolist() == [False]


def test_hugepages_and_missing_resources_in_totals():
    line = json.loads(node_line("a"))
    line["machine"]["numaNodes"][0]["hugepages"] = {"2Mi": 512}
    line["devices"] = {}
    totals = Totals(Cluster.from_json_lines([json.dumps(line)]).nodes)
    assert dict(zip(totals.resources, totals.allocatable[0].tolist(), strict=True)) == {
        "cpu": 15_000,
        "hugepages-2Mi": GIBI,
        "memory": 62 * GIBI,
    }


def test_blind_scores():
    """By the parts of CPUs and memory that would be in use."""
    cluster = Cluster.from_json_lines([node_line("n0")])
    totals = Totals(cluster.nodes)
    request = totals.request(read_pod(pod_manifest("new", cpus=3, memory="31.5Gi")))
    assert totals.score(request, "most-allocated").tolist() == [
        pytest.approx(100 * (0.2 + 0.5) / 2)
    ]
    assert totals.score(request, "least-allocated").tolist() == [
        pytest.approx(100 * (0.8 + 0.5) / 2)
    ]
    assert totals.score(request, "balanced-allocation").tolist() == [
        pytest.approx(100 * (1 - np.std([0.2, 0.5])))
    ]

    strange = totals.request(read_pod(pod_manifest("strange", tpu=1)))
    assert totals.score(strange, "most-allocated").tolist() == [0]
    with pytest.raises(InputError, match="that sees totals only"):
        totals.score(request, "document")
