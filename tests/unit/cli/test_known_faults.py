"""A kubelet that would not answer is told beside the answer, in every command that decides on pods."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

VECTORS = Path(__file__).parents[2] / "vectors/unanswered.jsonl.gz"


@pytest.fixture
def hung(write):
    """Return the files of a scenario that a kubelet 1.37.2 did not answer at its first pod."""
    with gzip.open(VECTORS) as file:
        scenario = next(
            one for one in map(json.loads, file) if one.get("unanswered") and len(one["steps"]) == 1
        )
    kubelet = {**scenario["kubelet"], "featureGates": {"CPUManagerPolicyAlphaOptions": True}}
    pod = scenario["steps"][0]["admit"]
    return {
        "words": ("-m", write("m.json", scenario["machine"]), "-c", write("c.json", kubelet)),
        "pod": write("p.json", {"apiVersion": "v1", "kind": "Pod", **pod}),
        "scenario": write("s.jsonl", json.dumps(scenario)),
    }


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_a_pod_is_decided_and_the_fault_is_said(alignup, hung, command):
    ended = alignup(command, *hung["words"], "--json", hung["pod"])
    assert ended.lines[0]["kubelet"] == "does not answer"
    assert (
        "kubelet 1.37 does not answer: full-pcpus-only with distribute-cpus-across-numa waits"
        in ended.err
    )


def test_releases_are_compared_by_it(alignup, hung):
    ended = alignup("replay", "--compare-versions", "1.36,1.37", hung["scenario"])
    assert "the kubelet does not answer" in ended.out
    told = alignup("replay", "--compare-versions", "1.36,1.37", "--json", hung["scenario"]).lines
    assert {one["steps"][0]["kubelet"] for one in told} == {"does not answer"}
