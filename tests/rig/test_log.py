"""What a real kubelet logs of random pods, explained.

The pods that it refused, their reasons, and its merges again.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest

from alignup.cli.explain_log import explain_logged
from alignup.kubelet.log import read_log
from inputs.kernel_trees import server
from inputs.kubelet_files import guaranteed
from rig.lone_kubelet import NODE_NAME, KubeletRig, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

GPUS = [{"id": f"gpu{i}", "numa": [i % 2]} for i in range(6)]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("policy", "scope"),
    [
        ("none", "container"),
        ("best-effort", "container"),
        ("restricted", "container"),
        ("single-numa-node", "pod"),
    ],
)
def test_the_log_tells_what_the_kubelet_said(policy, scope, form):
    chance = random.Random(f"{policy}{form}")
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    overlay = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "logging": {"format": form},
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    }
    failures = {}
    with KubeletRig(folder, files, overlay, {"nvidia.com/gpu": GPUS}) as rig:
        for number in range(16):
            wish = (chance.randint(1, 20), chance.choice((1, 2, 4, 9, 20)), chance.randint(0, 4))
            status = rig.admit(
                guaranteed(f"p{number}", wish, *([wish] if chance.random() < 0.2 else []))
            )
            if status["phase"] == "Failed":
                failures[f"p{number}"] = (
                    status["reason"],
                    status["message"].removeprefix("Pod was rejected: "),
                )

        lines = rig.log.encode().splitlines(keepends=True)

    shutil.rmtree(folder, ignore_errors=True)
    log = read_log(lines, "LOG")
    explanations = {
        explanation.pod.rpartition("/")[2].removesuffix(f"-{NODE_NAME}"): explain_logged(
            log, explanation
        )
        for explanation in log.refusals.values()
    }
    assert {
        name: (explanation.reason, explanation.log["message"])
        for name, explanation in explanations.items()
    } == failures
    assert failures
    for explanation in explanations.values():
        assert explanation.policy == policy
        assert (
            explanation.log["agrees"] is (None if policy == "none" else True)
            or not explanation.steps
        )
        assert explanation.cause_kind != "unknown"
