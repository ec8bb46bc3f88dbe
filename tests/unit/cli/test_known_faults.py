"""A kubelet that would not answer is told beside the answer.

Every command that decides on pods does so.
"""

from __future__ import annotations

import json

import pytest

from alignup.providers.cpu import provider

KUBELET = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {
        "full-pcpus-only": "true",
        "distribute-cpus-across-numa": "true",
    },
    "reservedSystemCPUs": "0-1",
    "featureGates": {"CPUManagerPolicyAlphaOptions": True},
}


@pytest.fixture
def files(write, monkeypatch):
    """Return the files of a pod that a kubelet answers, in a program that takes the kubelet not to.

    When a distribution has no end is the business of `test_distribution.py`.
    """
    monkeypatch.setattr(provider, "never_ends", lambda *_, **__: True)

    machine = {
        "numaNodes": [
            {
                "id": node,
                "memory": 8 << 30,
                "distances": [10, 20][:: 1 - 2 * node],
                "cores": [
                    {"cpus": [cpu, cpu + 1], "socket": node}
                    for cpu in range(8 * node, 8 * node + 8, 2)
                ],
            }
            for node in (0, 1)
        ]
    }

    resources = {"limits": {"cpu": "4", "memory": "1Gi"}}
    pod = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }

    scenario = {"machine": machine, "kubelet": KUBELET, "steps": [{"admit": pod}]}
    return {
        "words": ("-m", write("m.json", machine), "-c", write("c.json", KUBELET)),
        "pod": write("p.json", {"apiVersion": "v1", "kind": "Pod", **pod}),
        "scenario": write("s.jsonl", json.dumps(scenario)),
    }


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_a_pod_is_decided_and_the_fault_is_said(alignup, files, command):
    ended = alignup(command, *files["words"], "--json", files["pod"])
    assert ended.status == 0
    assert ended.lines[0]["kubelet"] == "does not answer"
    assert (
        "kubelet 1.37 does not answer: full-pcpus-only with distribute-cpus-across-numa waits"
        in ended.err
    )


def test_releases_are_compared_by_it(alignup, files):
    ended = alignup("replay", "--compare-versions", "1.36,1.37", files["scenario"])
    assert "the kubelet does not answer" in ended.out

    answers = alignup("replay", "--compare-versions", "1.36,1.37", "--json", files["scenario"])
    assert {answer["steps"][0]["kubelet"] for answer in answers.lines} == {"does not answer"}
