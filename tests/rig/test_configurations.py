"""A real kubelet starts with a configuration exactly where `alignup` takes it.

`ALIGNUP_RIG_CONFIGURATIONS` says how many drawn ones (60), `ALIGNUP_SEED` from which seed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

import pytest

from alignup.errors import InputError
from alignup.kubelet.check import foretell
from alignup.kubelet.layout import FolderFiles
from alignup.kubernetes.kubelet_config import load_config
from inputs.kernel_trees import server
from rig.lone_kubelet import KubeletRig, why_not
from rig.processes import RigError
from rig.scenarios import CPU_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubelet.read import KubeletOptions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning"),
]

COUNT = int(os.environ.get("ALIGNUP_RIG_CONFIGURATIONS", "60"))
SEED = int(os.environ.get("ALIGNUP_SEED") or SystemRandom().randrange(10**6, 10**9))

# What the rig's own configuration has, so that thresholds of other signals change no sum.
KEPT = {"memory.available": "100Mi"}
RESERVED = {"memory": "924Mi"}

OVERLAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "maxPods below zero": {"maxPods": -1},
    "maxPods of 64 bits": {"maxPods": 3_000_000_000},
    "podsPerCore below zero": {"podsPerCore": -2},
    "podsPerCore": {"podsPerCore": 2},
    "an unknown signal": {"evictionHard": {**KEPT, "memory.free": "1Gi"}},
    "a threshold that is no quantity": {"evictionHard": {**KEPT, "nodefs.available": "lots"}},
    "a threshold below zero": {"evictionHard": {**KEPT, "nodefs.available": "-1Gi"}},
    "a threshold above all": {"evictionHard": {**KEPT, "nodefs.available": "101%"}},
    "a threshold as a number": {"evictionHard": {**KEPT, "nodefs.available": 1}},
    "thresholds of others": {
        "evictionHard": {**KEPT, "nodefs.available": "1%", "pid.available": "10"}
    },
    "what cannot be reserved": {"systemReserved": {**RESERVED, "hugepages-2Mi": "4Mi"}},
    "a device that is reserved": {"kubeReserved": {"example.com/nic": "1"}},
    "memory below zero": {"kubeReserved": {"memory": "-1Mi"}},
    "PIDs below zero": {"kubeReserved": {"pid": "-1"}},
    "PIDs": {"kubeReserved": {"pid": "100", "ephemeral-storage": "1Gi"}},
    "a number that is reserved": {"kubeReserved": {"pid": 100}},
    "CPUs that are not read beside a list": {"kubeReserved": {"cpu": "many"}},
    "a negative CPU beside a list": {"kubeReserved": {"cpu": "-1"}},
    "a cgroup of the system": {"systemReservedCgroup": "/system"},
    "a cgroup of the kubelet": {"kubeReservedCgroup": "/kube"},
    "default thresholds, too": {"mergeDefaultEvictionSettings": True},
}


TOPOLOGY_OPTIONS = ("prefer-closest-numa-nodes", "max-allowable-numa-nodes", "unknown")
GATES = (
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
    "PodLevelResources",
    "PodLevelResourceManagers",
    "MemoryManager",
    "CPUManagerPolicyOptions",
    "Unknown",
)
VALUES: dict[str, tuple[Any, ...]] = {
    "cpuManagerPolicy": ("none", "static", "Static", "dynamic", ""),
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node", "one", ""),
    "topologyManagerScope": ("pod", "container", "node", ""),
    "memoryManagerPolicy": ("None", "Static", "static", ""),
    "reservedSystemCPUs": ("0", "0-1", "", "99", "0-15", "1-0", "0,0", "a", " 0", "0-3,8", None),
    "systemReserved": (
        {"memory": "924Mi"},
        {"memory": "1Gi", "cpu": "1"},
        {"memory": "924Mi", "cpu": "500m"},
        {"memory": "100Gi"},
        {"cpu": "64"},
        {},
    ),
    "kubeReserved": ({"memory": "100Mi"}, {"cpu": "1"}, {"cpu": "0"}, {}),
    "evictionHard": (
        {"memory.available": "100Mi"},
        {"memory.available": "5%"},
        {"memory.available": "0%"},
        {"memory.available": "100%"},
        {"nodefs.available": "10%"},
        {},
    ),
    "reservedMemory": (
        [{"numaNode": node, "limits": {"memory": "512Mi"}} for node in (0, 1)],
        [{"numaNode": 5, "limits": {"memory": "1Gi"}}],
        [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
        [{"numaNode": 0, "limits": {"memory": "0"}}],
        [],
    ),
}


def drawn(random: Random) -> dict[str, Any]:
    """Return one or two fields of a configuration, with values that may be wrong."""
    made: dict[str, Any] = {name: random.choice(values) for name, values in VALUES.items()}
    chosen = random.sample((*CPU_OPTIONS, "unknown"), random.randint(1, 3))
    made["cpuManagerPolicyOptions"] = {
        option: random.choice(("true", "false", "1", "yes")) for option in chosen
    }
    chosen = random.sample(TOPOLOGY_OPTIONS, random.randint(1, 2))
    made["topologyManagerPolicyOptions"] = {
        option: random.choice(("true", "8", "16", "7", "x")) for option in chosen
    }
    chosen = random.sample(GATES, random.randint(1, 3))
    made["featureGates"] = {gate: random.random() < 0.5 for gate in chosen}
    return {name: made[name] for name in random.sample(sorted(made), random.randint(1, 2))}


@pytest.fixture(scope="module")
def rig() -> Iterator[KubeletRig]:
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # sockets need a short path
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    with KubeletRig(folder, files) as kubelet:
        kubelet.stop()
        yield kubelet

    shutil.rmtree(folder, ignore_errors=True)


def answers_to(rig: KubeletRig, usual: dict[str, Any], overlay: dict[str, Any]) -> tuple[str, str]:
    """Return what the kubelet and what `alignup` says to a configuration; empty: it is taken."""
    fields = {**usual, **overlay}
    text = json.dumps({key: value for key, value in fields.items() if value is not None})
    rig.config_file.write_text(text)
    by_kubelet = by_us = ""
    forget_state(rig)
    try:
        rig.start()
    except RigError as error:
        by_kubelet = str(error)
    finally:
        rig.stop()

    forget_state(rig)
    try:
        load_config(text, "kubelet.json")
        options: KubeletOptions = {"config": rig.config_file, "kubelet_version": rig.version[1:]}
        faults = foretell(FolderFiles(rig.root), options).faults
        by_us = "; ".join(fault.effect for fault in faults)
    except InputError as error:
        by_us = str(error)

    return by_kubelet, by_us


def forget_state(rig: KubeletRig) -> None:
    """Remove the files that another policy has written."""
    for name in ("cpu_manager_state", "memory_manager_state"):
        (rig.state / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def usual(rig: KubeletRig) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(rig.config_file.read_text())
    return fields


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_kubelet_starts_with_what_is_taken(
    rig: KubeletRig, usual: dict[str, Any], name: str
) -> None:
    by_kubelet, by_us = answers_to(rig, usual, OVERLAYS[name])
    assert bool(by_kubelet) is bool(by_us), (by_kubelet[-600:], by_us)


def test_a_kubelet_starts_with_drawn_configurations_that_are_taken(
    rig: KubeletRig, usual: dict[str, Any]
) -> None:
    counts: Counter[bool] = Counter()
    for seed in range(SEED, SEED + COUNT):
        overlay = drawn(Random(seed))
        by_kubelet, by_us = answers_to(rig, usual, overlay)
        assert bool(by_kubelet) is bool(by_us), (seed, overlay, by_kubelet[-600:], by_us)
        counts[bool(by_us)] += 1

    sys.stdout.write(f"seed {SEED}: {counts[False]} configurations taken, {counts[True]} refused\n")
    assert min(counts[True], counts[False]) > COUNT / 10
