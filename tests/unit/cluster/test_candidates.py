"""What is kept of each demand is what looking at every node again would say."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from alignup import read_pod
from alignup.cluster import Cluster
from alignup.cluster.node_totals import Totals
from alignup.cluster.simulation import Candidates
from inputs.cluster_files import node_line, pod_manifest


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("strategy", ["least-allocated", "balanced-allocation"])
def test_kept_demands_follow_the_nodes(blind, strategy):
    """Pods come and go; after each step every demand that was asked for before is as a new one would be."""
    random = Random(f"{blind} {strategy}")
    cluster = Cluster.from_json_lines([node_line(str(n)) for n in range(6)])
    totals = Totals(cluster.nodes)
    kept = Candidates(cluster, totals, strategy, blind=blind)
    pods = [
        read_pod(pod_manifest("a", cpus=cpus, gpu=gpu)) for cpus in (1, 3, 7) for gpu in (0, 1, 2)
    ]
    there = {}
    for number in range(60):
        index = random.randrange(len(cluster))
        if there and random.random() < 0.4:
            uid, (index, request) = random.choice(list(there.items()))
            del there[uid]
            cluster.nodes[index].remove(uid)
            totals.remove(index, request)
        else:
            pod = read_pod(pod_manifest(f"p{number}", cpus=random.choice([1, 3, 7]), gpu=1))
            if cluster.nodes[index].admit(pod).admitted:
                there[pod.uid] = (index, totals.request(pod))
                totals.add(*there[pod.uid])

        kept.changed(index)
        asked = random.choice(pods)
        known, fresh = kept.of(asked), Candidates(cluster, totals, strategy, blind=blind)
        new = fresh.of(asked)
        assert known.fits.tolist() == new.fits.tolist()
        assert known.scores.tolist() == new.scores.tolist()
        fits = np.flatnonzero(known.fits)
        assert kept.admitted(known)[fits].tolist() == fresh.admitted(new)[fits].tolist()

    assert there


def test_what_no_node_has_fits_nowhere():
    cluster = Cluster.from_json_lines([node_line("a")])
    demand = Candidates(cluster, Totals(cluster.nodes), "least-numa-nodes", blind=False).of(
        read_pod(pod_manifest("strange", tpu=1))
    )
    assert demand.request is None
    assert demand.scores.tolist() == [-np.inf]
