"""The strategy `document` of a cluster is that of Koordinator's design.

It is so for pods that prefer to keep apart, too.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup.cluster import Cluster
from alignup.node import Node
from inputs.machines import machine_of

SPEC = "scheduling.koordinator.sh/numa-topology-spec"


def pod(name: str, cpu: int, policy: str, exclusive: str = "") -> dict[str, Any]:
    spec = {"numaTopologyPolicy": policy}
    if exclusive:
        spec["singleNUMANodeExclusive"] = exclusive

    resources = {"limits": {"cpu": str(cpu), "memory": "1Gi"}}
    return {
        "metadata": {"name": name, "uid": name, "annotations": {SPEC: json.dumps(spec)}},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


@pytest.mark.parametrize(
    ("exclusive", "cpus", "mixed"), [("Preferred", 10, True), ("Preferred", 4, False)]
)
def test_a_pod_that_would_mix_although_it_prefers_not_to_scores_0(
    exclusive: str, cpus: int, mixed: bool
) -> None:
    nodes = [Node(machine_of(2, 4), {"cpuManagerPolicy": "static"}) for _ in range(2)]
    assert nodes[0].admit(pod("there", 4, "SingleNUMANode")).admitted
    evaluation = Cluster.from_nodes(nodes).evaluate(
        pod("new", cpus, "Restricted", exclusive), "document"
    )

    assert evaluation.admitted.tolist() == [True, True]
    assert bool(evaluation.score[0] == 0) == mixed
    assert evaluation.score[1] > 0
