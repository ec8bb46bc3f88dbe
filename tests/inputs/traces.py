"""Scenarios of pods that come and go, made up from a seed."""

from __future__ import annotations

from random import Random
from typing import Any

from inputs.pictures import pod

KUBELET = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedSystemCPUs": "0",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}


def scenario(seed: int, steps: int = 60, policy: str = "restricted", **keys: Any) -> dict[str, Any]:
    """Return a scenario on the machine `align-up-article`.

    It has a GPU and a NIC near each of two NUMA nodes.
    """
    random = Random(seed)
    live: list[str] = []
    events: list[dict[str, Any]] = []
    for number in range(steps):
        if live and random.random() < 0.35:
            events.append({"remove": live.pop(random.randrange(len(live)))})
            continue

        requested: dict[str, int] = {}
        if random.random() < 0.4:
            requested = {"gpu": 1}
        elif random.random() < 0.2:
            requested = {"any": 1}

        manifest = pod(
            f"pod-{number}", random.choice([1, 1, 2, 3, 4]), random.choice([1, 2, 4]), **requested
        )
        live.append(manifest["metadata"]["uid"])
        events.append({"admit": manifest})

    devices = {
        "example.com/gpu": [{"id": "gpu0", "numa": 0}, {"id": "gpu1", "numa": 1}],
        "example.com/any": [{"id": "any0", "numa": None}, {"id": "both", "numa": [0, 1]}],
    }
    kubelet = {**KUBELET, "topologyManagerPolicy": policy}
    return {
        "name": f"node-{seed}",
        "machine": "align-up-article",
        "kubelet": kubelet,
        "devices": devices,
        "steps": events,
        **keys,
    }
