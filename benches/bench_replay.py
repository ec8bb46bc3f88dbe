"""Reports on long traces: steps on a machine of eight NUMA nodes, with what they do to each."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from alignup.replay import replay
from alignup.replay.scenario import read_steps
from alignup.replay.summary import summarized

STEPS = 2000
LONGEST = STEPS * 150
"""Microseconds: 15 s for 100,000 steps."""


def trace() -> dict[str, Any]:
    """Return a node with 256 CPUs and a GPU near each NUMA node, on which pods come and go.

    Some of them are refused.
    """
    random = Random(3)
    live: list[str] = []
    steps: list[dict[str, Any]] = []
    for number in range(STEPS):
        if live and (len(live) > 40 or random.random() < 0.4):
            steps.append({"remove": live.pop(random.randrange(len(live)))})
            continue

        cpus = random.choice([1, 2, 4, 8, 12, 16])
        gpus = {"nvidia.com/gpu": random.choice(["1", "1", "2"])} if random.random() < 0.5 else {}
        limits = {"cpu": str(cpus), "memory": f"{random.choice([1, 2, 4]) * cpus}Gi", **gpus}
        live.append(f"p{number}")
        containers = [{"name": "c0", "resources": {"limits": limits}}]
        steps.append(
            {
                "admit": {
                    "metadata": {"name": live[-1], "uid": live[-1]},
                    "spec": {"containers": containers},
                }
            }
        )

    kubelet = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0,128",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    devices = {"nvidia.com/gpu": [{"id": f"gpu{numa}", "numa": numa} for numa in range(8)]}
    return {"machine": "epyc-2s-nps4", "kubelet": kubelet, "devices": devices, "steps": steps}


@pytest.mark.benchmark(group="replay")
def test_summary(benchmark, promise):
    """From plain objects to the report."""
    case = trace()
    answers = replay(case)["steps"]
    refused = sum(not answer["admitted"] for answer in answers)
    assert 0 < refused < STEPS / 2

    report = benchmark(lambda: summarized(case, read_steps(case)))

    assert report.counts.refused == refused
    promise(LONGEST)
