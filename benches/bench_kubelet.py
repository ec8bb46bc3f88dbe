"""The real kubelet beside alignup, in one run: merges and admissions of the same cases.

Answers are compared. Runs when ALIGNUP_KUBELET_BENCH=1 and Go is there; the first builds of
kubelet/ and of tests/rig/cmd/merges download and compile for minutes; ALIGNUP_MERGES names a folder
of programs `merges` that are built already, each in a folder named after its release. The kubelet's
device manager writes under /var/lib/kubelet/device-plugins, and empties it: not for a machine with
a kubelet.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from alignup import Node, read_pod
from alignup.topology_manager.policy import make_policy
from cases import ONE_NODE, pairs_of, providers_of, scenario, summary

SOURCES = Path(__file__).with_name("kubelet")
RIG = Path(__file__).parents[1] / "tests/rig"
# The newest release that walks all combinations, and the oldest that searches preferred ones first.
WALKS_ALL, PREFERRED_FIRST = "1.37.2", "1.38.0-beta.0"
# Of merges with a preferred hint, beside a kubelet that searches for these first.
LEAST_TIMES_FASTER = 8
SECONDS = 1.0
ASKED = os.environ.get("ALIGNUP_KUBELET_BENCH") == "1"

pytestmark = [
    pytest.mark.skipif(
        not ASKED,
        reason="set ALIGNUP_KUBELET_BENCH=1 to time the real kubelet (builds for minutes)",
    ),
    pytest.mark.skipif(
        shutil.which("go") is None, reason="the real kubelet needs Go, which is not installed"
    ),
]


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory):
    """Build the program, and return a function that runs one case."""
    program = tmp_path_factory.mktemp("kubelet") / "kubelet"
    build = ["go", "build", "-mod=mod", "-o", program, "."]
    subprocess.run(build, cwd=SOURCES, check=True)  # noqa: S603  # the user's Go

    def run(case: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(  # noqa: S603 - built above
            [program], input=json.dumps(case), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def merges(tmp_path_factory):
    """Return a function that has a kubelet of some release merge, and builds it once."""
    folder = Path(os.environ.get("ALIGNUP_MERGES") or tmp_path_factory.mktemp("merges"))

    def run(release: str, case: dict[str, Any]) -> dict[str, Any]:
        program = folder / release / "merges"
        if not program.exists():
            build = [RIG / "build", program.parent, release, program.name]
            subprocess.run(build, check=True)  # noqa: S603  # ours

        done = subprocess.run(  # noqa: S603  # built above
            [program], input=json.dumps(case), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def note(benchmark, calls: int, kubelet_us: float) -> float:
    """Keep what the kubelet took beside what was just measured; return how often that fits in."""
    benchmark.extra_info["kubelet_calls"] = calls
    benchmark.extra_info["kubelet_median_us"] = round(kubelet_us, 1)
    if benchmark.stats is None:
        return float("inf")

    median = benchmark.stats.stats.median
    times_faster = kubelet_us / 1e6 / median
    benchmark.extra_info["median_us"] = round(median * 1e6, 2)
    benchmark.extra_info["times_faster"] = round(times_faster, 1)
    return times_faster


@pytest.mark.parametrize(
    ("release", "name", "lists"),
    [
        (WALKS_ALL, "preferred-exists", 2),
        (WALKS_ALL, "preferred-exists", 3),
        (WALKS_ALL, "every-mask-none-preferred", 2),
        (WALKS_ALL, "every-mask-none-preferred", 3),
        (PREFERRED_FIRST, "preferred-exists", 2),
        (PREFERRED_FIRST, "preferred-exists", 3),
        (PREFERRED_FIRST, "preferred-exists", 4),
        (PREFERRED_FIRST, "every-mask-none-preferred", 2),
        (PREFERRED_FIRST, "every-mask-none-preferred", 3),
    ],
)
@pytest.mark.benchmark(group="kubelet: merge at 8 nodes")
def test_merge(benchmark, merges, release, name, lists):
    """Four lists are left out where all combinations are walked, which takes about 20 minutes."""
    pairs = pairs_of(name, lists)
    kubelet_answer = merges(
        release,
        {
            "numaNodes": 8,
            "policy": "restricted",
            "seconds": SECONDS,
            "lists": [
                [{"mask": mask, "preferred": preferred} for mask, preferred in hints]
                for hints in pairs
            ],
        },
    )

    best, admit = benchmark(make_policy("restricted", 8).merge, providers_of(pairs))
    assert (int(best.affinity), best.preferred, admit) == (
        *kubelet_answer["best"].values(),
        kubelet_answer["admit"],
    )
    times_faster = note(benchmark, kubelet_answer["calls"], kubelet_answer["median"])
    assert times_faster >= LEAST_TIMES_FASTER


@pytest.mark.parametrize(
    ("policy", "numa_nodes"),
    [("single-numa-node", 8), ("single-numa-node", 2), ("restricted", 2), ("restricted", 4)],
)
@pytest.mark.benchmark(group="kubelet: admission")
def test_admission(benchmark, kubelet, policy, numa_nodes):
    """CPU, memory and two devices.

    At 8 nodes, restricted, the kubelet's merge of four lists takes 20 minutes.
    """
    case = scenario(numa_nodes, policy)
    case["kubelet"]["topologyManagerPolicyOptions"] = {}
    manifest = ONE_NODE.manifest("pod")
    kubelet_answer = kubelet(
        {
            "kind": "admission",
            "name": policy,
            "seconds": SECONDS,
            "pod": manifest,
            "container": "c0",
            **case,
        }
    )

    node = Node.from_dict(case)
    pod = read_pod(manifest)
    mask, preferred, cpus, devices = summary(node.admit(pod).containers["c0"])
    affinity = kubelet_answer["affinity"]
    assert kubelet_answer["admitted"]
    assert (mask, preferred, cpus) == (
        affinity["mask"],
        affinity["preferred"],
        kubelet_answer["cpus"],
    )

    # Which of two equal devices it is, the kubelet leaves to chance.
    assert {r: len(ids) for r, ids in devices.items()} == {
        r: len(ids) for r, ids in kubelet_answer["devices"].items()
    }
    benchmark.pedantic(
        node.admit, (pod,), setup=lambda: node.remove("pod"), rounds=2000, warmup_rounds=100
    )
    note(benchmark, kubelet_answer["timing"]["calls"], kubelet_answer["timing"]["median"])


@pytest.mark.benchmark(group="kubelet: admission")
def test_admission_restricted_with_three_lists(benchmark, kubelet):
    """The same at 8 nodes, restricted, with CPU, memory and one device: it needs seconds."""
    case = scenario(8)
    del case["devices"]["example.com/nic"]
    case["kubelet"]["topologyManagerPolicyOptions"] = {}
    manifest = ONE_NODE.manifest("pod")
    limits = manifest["spec"]["containers"][0]["resources"]["limits"]
    del limits["example.com/nic"]
    kubelet_answer = kubelet(
        {
            "kind": "admission",
            "name": "three",
            "seconds": SECONDS,
            "pod": manifest,
            "container": "c0",
            **case,
        }
    )

    node = Node.from_dict(case)
    pod = read_pod(manifest)
    mask, preferred, cpus, _ = summary(node.admit(pod).containers["c0"])
    assert kubelet_answer["admitted"]
    assert (mask, preferred, cpus) == (*kubelet_answer["affinity"].values(), kubelet_answer["cpus"])
    benchmark.pedantic(
        node.admit, (pod,), setup=lambda: node.remove("pod"), rounds=2000, warmup_rounds=100
    )
    note(benchmark, kubelet_answer["timing"]["calls"], kubelet_answer["timing"]["median"])
