"""What a real kubelet logs of random pods, explained.

The pods that it refused, their reasons, and its merges again; of 1.38 and later, the scores of
hints, as they follow from what its files say before.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from alignup.cli.explain_log import explain_logged
from alignup.explanations.why import explain
from alignup.kubelet.log import log_line, read_log
from alignup.kubelet.read import read_kubelet
from inputs.kernel_trees import server
from inputs.kubelet_files import guaranteed
from rig.lone_kubelet import NODE_NAME, KubeletRig, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

IMPOSSIBLE = (None, False, 0)
"""What a resource is merged as that no NUMA nodes can supply."""
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

        merged, best = explanation.log["merged"], explanation.log["best"]
        if merged is not None and "score" in merged:
            assert merged["score"] == best["score"]


def masks_of(hint):
    """Return a hint of an explanation as a log has it."""
    nodes = hint["numaNodes"]
    mask = None if nodes is None else sum(1 << node for node in nodes)
    return mask, hint["preferred"], hint["score"]


def logged(hint):
    return hint["NUMANodeAffinity"], hint["Preferred"], hint["Score"]


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
def test_scores_are_those_that_the_kubelet_logs(policy, nodes):
    """Of each hint, of each resource alone, and of the merged one; at -v=4."""
    chance = random.Random(f"{policy}{nodes}")
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    files = server(sockets=2, cores=12, nodes=nodes, memory=16 << 20)
    gpus = [{"id": f"gpu{place}", "numa": [place % nodes]} for place in range(2 * nodes)]
    compared, running = 0, []
    with KubeletRig(
        folder, files, {"topologyManagerPolicy": policy}, {"nvidia.com/gpu": gpus}
    ) as rig:
        if int(rig.version.split(".")[1]) < 38:
            pytest.skip("hints of this kubelet have no scores")

        for number in range(20):
            while running and (len(running) > 3 * nodes or chance.random() < 0.3):
                rig.remove(running.pop(chance.randrange(len(running))))

            name = f"p{number}"
            wish = (chance.choice((1, 2, 3, 8)), chance.choice((1, 2, 4, 20)), chance.randint(0, 2))
            manifest = guaranteed(name, wish)
            rig.read()  # until its files say what it says
            options = {"config": rig.config_file, "kubelet_version": rig.version}
            node = read_kubelet(rig.record(), **options).node
            [step] = explain(node, manifest, suggest=False).to_dict(product=True)["steps"]
            said = len(rig.log)
            status = rig.admit(manifest)
            if status["phase"] == "Running":
                running.append(name)
            else:
                rig.remove(name)

            lines = [log_line(line) for line in rig.log[said:].splitlines()]
            lines = [
                values for _, *values in lines if f"{name}-" in json.dumps(values[1].get("pod"))
            ]
            hints = {}
            for message, values in lines:
                if message == "TopologyHints":
                    hints |= values["hints"] or {}

            product = step["product"]
            for place, resource in enumerate(product["resources"]):
                ours = {masks_of(row["hints"][place]) for row in product["rows"]}
                kubelets = {*map(logged, hints[resource])} or {IMPOSSIBLE}
                # of many rows only the first are there
                is_whole = product["count"] == len(product["rows"])
                assert ours == kubelets if is_whole else ours <= kubelets, (name, resource)
                compared += len(ours)

            best = next(values["bestHint"] for message, values in lines if "bestHint" in values)
            assert masks_of(step["best"]) == logged(best), name

    shutil.rmtree(folder, ignore_errors=True)
    assert compared > 100
