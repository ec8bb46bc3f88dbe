r"""The same pods on the same simulated kubelets: kube-scheduler alone, with the extender, a peer.

    python benches/cluster                         # 600 pods on 100 nodes, default and extender
    python benches/cluster --nodes 10 --pods 60    # in two minutes
    python benches/cluster --ways default,extender,peer-shared --rounds 3
    python benches/cluster --mixed --at-once --nodes 200 --pods 2000 --seconds 200 \
        --load 1 --patience 1200

etcd, kube-apiserver and kube-scheduler are real (`tests/rig`; they are built when they are missing,
which takes Go). The ways take turns in each round, on a fresh control plane each, so that a busy
machine is as busy for all. Prints a line of JSON for each run to standard error, and then a table
of the medians of all rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from rig.programs import BIN, CONTROL_PLANE, built, why_not  # noqa: E402  # of tests/
from rig.proof import run  # noqa: E402
from rig.servers import control_plane  # noqa: E402

PEER = BIN / "peer-scheduler"
PLUGIN = "NodeResourceTopologyMatch"

COLUMNS = {
    "ran": lambda report: report["ran"],
    "rejected": lambda report: sum(report["rejected"].values()),
    "never placed": lambda report: report["never placed"],
    "CPUs in use, %": lambda report: 100 * report["CPUs in use"],
    "choices": lambda report: report["choices"],
    "tries of a placed pod": lambda report: report["tries of a placed pod"],
    "ms a choice": lambda report: report["ms a choice"],
    "to running, median s": lambda report: report["created to running"]["median s"],
    "p99 s": lambda report: report["created to running"]["p99 s"],
    "placed at once, median s": lambda report: report["of these, placed at once"]["median s"],
    "its p99 s": lambda report: report["of these, placed at once"]["p99 s"],
    "from room to running, median s": lambda report: report["from room to running"]["median s"],
    "from room p99 s": lambda report: report["from room to running"]["p99 s"],
    "processor s: scheduler": lambda report: report["processor seconds"]["kube-scheduler"],
    "extender or keeper": lambda report: sum(
        report["processor seconds"].get(name, 0.0) for name in ("extender", "keeper")
    ),
    "API server": lambda report: report["processor seconds"]["kube-apiserver"],
    "etcd": lambda report: report["processor seconds"]["etcd"],
}


def peer(informer: str) -> dict[str, Any]:
    """Return the configuration of a scheduler with the plugin.

    Its cache of what it placed is renewed each 5 seconds.
    """
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
    "gates": {"extender": False, "keeper": ()},
    "gates-final": {"extender": False, "keeper": ("--final",)},
    "both": {"extender": True, "keeper": ()},
    "backoff": {"extender": True, "gates": {"SchedulerPopFromBackoffQ": False}},
    "amounts": {"extender": True, "amounts_only": True},
    "peer": {"extender": False, "overlay": peer("Dedicated")},
    "peer-shared": {"extender": False, "overlay": peer("Shared")},
}
"""The ways.

- `gates`: pods wait behind a scheduling gate, and `alignup gates` lets each go to a node, under a
  scheduler by its defaults; `gates-final`: to that node only, whatever happens there.
- `both`: gates, and the extender beside them.
- `backoff`: the extender, under a scheduler that tries no pod before its backoff is over, though it
  has nothing else to do.
- `amounts`: the extender, where nodes publish the amounts of their NUMA nodes only.
- `peer` has an informer of its own, its default; `peer-shared` uses the scheduler's.
"""


def once(way: str, options: argparse.Namespace) -> dict[str, float]:
    """Run one way on a control plane of its own, and return its columns."""
    how = {
        "seconds": options.seconds,
        "load": options.load,
        "patience": options.patience,
        "single": not options.mixed,
    }
    with control_plane(PEER if way.startswith("peer") else BIN / "kube-scheduler") as plane:
        report = run(plane, options.nodes, options.pods, **how, **WAYS[way])
    print(json.dumps({"way": way, **report}), file=sys.stderr, flush=True)
    return {name: column(report) for name, column in COLUMNS.items()}


def table(rounds: dict[str, list[dict[str, float]]]) -> str:
    """Return the medians of all rounds as a table in Markdown."""
    lines = [["", *COLUMNS], ["---"] * (1 + len(COLUMNS))]
    for way, columns_of_rounds in rounds.items():
        medians = (median(columns[name] for columns in columns_of_rounds) for name in COLUMNS)
        lines.append(
            [way, *(f"{number:.4g}" if number < 1 else f"{number:.3g}" for number in medians)]
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="benches/cluster", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--ways", default="default,extender", help=f"some of {', '.join(WAYS)} (%(default)s)"
    )
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="that a pod runs, on average (%(default)s)"
    )
    parser.add_argument(
        "--load", type=float, default=0.9, help="part of all CPUs that pods ask for (%(default)s)"
    )
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds after the last pod came (%(default)s)"
    )
    parser.add_argument(
        "--mixed", action="store_true", help="nodes of 2 to 8 NUMA nodes under all policies"
    )
    parser.add_argument("--at-once", action="store_true", help="run all ways at the same time")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    if unknown := set(options.ways) - set(WAYS):
        parser.error(f"no such way: {', '.join(sorted(unknown))}")

    if reason := why_not(*CONTROL_PLANE):
        parser.error(reason)

    if any(way.startswith("peer") for way in options.ways) and not PEER.exists():
        parser.error(f"{PEER} is missing: benches/cluster/peer/build {BIN} makes it")

    return options


def main() -> None:
    """Run all ways in turn, or at once, as often as there are rounds."""
    options = arguments()
    built(*CONTROL_PLANE)
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in options.ways}
    with ThreadPoolExecutor(len(rounds) if options.at_once else 1) as pool:
        for _ in range(options.rounds):
            for way, columns in zip(
                rounds, pool.map(lambda way: once(way, options), rounds), strict=True
            ):
                rounds[way].append(columns)
    print(table(rounds))


if __name__ == "__main__":
    main()
