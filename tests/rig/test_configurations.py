"""A real kubelet starts with a configuration exactly where `alignup` takes it."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from alignup.errors import InputError
from alignup.kubernetes.kubelet_config import load_config
from inputs.kernel_trees import server
from rig.lone_kubelet import KubeletRig, why_not
from rig.processes import RigError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

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


@pytest.fixture(scope="module")
def rig() -> Iterator[KubeletRig]:
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # sockets need a short path
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    with KubeletRig(folder, files) as kubelet:
        kubelet.stop()
        yield kubelet

    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def outcomes(rig: KubeletRig) -> dict[str, tuple[str, str]]:
    """What the kubelet and what `alignup` says to each; empty: it is taken."""
    usual = json.loads(rig.config_file.read_text())
    said = {}
    for name, overlay in OVERLAYS.items():
        text = json.dumps({**usual, **overlay})
        rig.config_file.write_text(text)
        answers = ["", ""]
        try:
            rig.start()
        except RigError as error:
            answers[0] = str(error)
        finally:
            rig.stop()

        try:
            load_config(text, "kubelet.json")
        except InputError as error:
            answers[1] = str(error)
        said[name] = answers[0], answers[1]

    return said


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_kubelet_starts_with_what_is_taken(
    outcomes: dict[str, tuple[str, str]], name: str
) -> None:
    by_kubelet, by_us = outcomes[name]
    assert bool(by_kubelet) is bool(by_us), (by_kubelet[-600:], by_us)


def test_some_are_taken_and_some_are_not(outcomes: dict[str, tuple[str, str]]) -> None:
    refused = sum(bool(by_us) for _, by_us in outcomes.values())
    assert 3 < refused < len(outcomes) - 3
