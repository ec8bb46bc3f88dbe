"""The same arrivals of pods under kube-scheduler, with the extender, and with NodeResourceTopologyMatch: see README.md.

    python benches/peer/compare.py PEER [WAYS [NODES [PODS [ROUNDS]]]]

PEER is the peer's scheduler. Prints a line of JSON for each run, one way after the other in each round, and then of
each number the median, the least and the most of all rounds.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from rig_proof import run
from rigged import BIN, control_plane

SECONDS, LOAD, PATIENCE = 15.0, 0.9, 30.0
PLUGIN = "NodeResourceTopologyMatch"


def peer(informer: str) -> dict[str, Any]:
    """Return the configuration of a scheduler with the plugin, its cache of what it placed renewed each 5 seconds."""
    arguments = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": f"{PLUGIN}Args",
        "scoringStrategy": {"type": "LeastAllocated"},
        "cacheResyncPeriodSeconds": 5,
        "cache": {"informerMode": informer},
    }
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": PLUGIN}]}},
        "pluginConfig": [{"name": PLUGIN, "args": arguments}],
    }
    return {"percentageOfNodesToScore": 100, "profiles": [profile]}


WAYS: dict[str, dict[str, Any]] = {
    "default": {"extender": False, "overlay": {"percentageOfNodesToScore": 100}},
    "extender": {"extender": True},
    "amounts": {"extender": True, "amounts_only": True},
    "peer": {"extender": False, "overlay": peer("Dedicated")},
    "peer-shared": {"extender": False, "overlay": peer("Shared")},
}


def numbers(found: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a run that are compared."""
    texts = re.findall(r"[\d.]+", found["created to running"])
    count, choice = re.findall(r"[\d.]+", found["choices of the scheduler"])
    return {
        "ran": found["ran"],
        "rejected": sum(found["rejected"].values()),
        "never placed": found["never placed"],
        "CPUs in use, %": float(found["CPUs in use"].rstrip("%")),
        "to running, median s": float(texts[1]) if len(texts) > 1 else 0.0,
        "to running, p99 s": float(texts[2]) if len(texts) > 1 else 0.0,
        "choices": float(count),
        "ms a choice": float(choice),
    }


def once(way: str, scheduler: Path, nodes: int, pods: int) -> dict[str, float]:
    """Run one way on a control plane of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("etcd", "kube-apiserver"):
            Path(folder, name).symlink_to(BIN / name)
        Path(folder, "kube-scheduler").symlink_to(scheduler if way.startswith("peer") else BIN / "kube-scheduler")
        with control_plane(Path(folder)) as plane:
            how = {"seconds": SECONDS, "load": LOAD, "patience": PATIENCE, "single": True}
            return numbers(run(plane, nodes, pods, **how, **WAYS[way]))


def main() -> None:
    """Run all ways in turn, as often as there are rounds."""
    scheduler = Path(sys.argv[1]).resolve()
    words = [*sys.argv[2:], *("default,extender,peer,peer-shared", "24", "140", "5")[len(sys.argv[2:]) :]]
    ways, (nodes, pods, rounds) = words[0].split(","), map(int, words[1:])
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            found[way].append(once(way, scheduler, nodes, pods))
            print(json.dumps({"way": way, **found[way][-1]}), flush=True)
    for way, some in found.items():
        told = {key: [one[key] for one in some] for key in some[0]}
        print(way, {key: f"{median(all_):g} ({min(all_):g} to {max(all_):g})" for key, all_ in told.items()})


if __name__ == "__main__":
    main()
