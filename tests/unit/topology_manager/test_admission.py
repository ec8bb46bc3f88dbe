"""An admission is its verdict, prints in one short line, and becomes plain data."""

from __future__ import annotations

import json
from typing import Any

from alignup import Node, replay
from alignup.core.hints import restored_hint
from alignup.topology_manager.admission import Admission, ContainerAllocation
from alignup.topology_manager.hints import BitMask

GPUS = {"example.com/gpu": [{"id": "gpu-0", "numa": [1]}]}
NODE = {"machine": "xeon-2s", "devices": GPUS}


def pod(name: str, gpus: int) -> dict[str, Any]:
    """Return a manifest that asks for whole CPUs, memory and GPUs."""
    limits = {"cpu": "2", "memory": "1Gi", "example.com/gpu": gpus}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c0", "resources": {"limits": limits}}]},
    }


def test_an_admission_is_its_verdict() -> None:
    """`if node.admit(pod):` is the first thing that people write."""
    node = Node.from_dict(NODE)

    assert node.admit(pod("a", 1))
    assert not node.admit(pod("b", 1))


def test_plain_data_is_a_step_of_a_replay() -> None:
    """Without the shared pool, which is the node's."""
    node = Node.from_dict(NODE)
    steps = replay.replay({**NODE, "steps": [{"admit": pod(name, 1)} for name in "ab"]})["steps"]

    for name, step in zip("ab", steps, strict=True):
        del step["sharedCpus"]
        described = node.admit(pod(name, 1)).to_dict()
        assert described == step
        assert json.loads(json.dumps(described)) == described


def test_an_admission_prints_in_one_short_line() -> None:
    """However many hints a refusal is made of."""
    node = Node.from_dict({**NODE, "machine": "epyc-2s-nps4"})

    assert repr(node.admit(pod("a", 1))) == "<Admission: admitted, c0>"
    refused = node.admit(pod("b", 1))
    assert repr(refused).startswith("<Admission: refused, ")
    assert len(repr(refused.refusal)) < 400


def test_many_containers_are_counted() -> None:
    containers = {f"c{number}": ContainerAllocation() for number in range(6)}

    assert (
        repr(Admission(True, containers=containers))
        == "<Admission: admitted, c0, c1, c2, c3 and 2 more>"
    )
    assert repr(Admission(True)) == "<Admission: admitted, no containers>"


def test_a_hint_of_a_search_that_was_cut_short_is_not_exact() -> None:
    """Neither is an admission with one; who has no hint takes nothing away."""
    both_nodes = BitMask([0, 1])
    exact, cut = (restored_hint(both_nodes, True, is_exact) for is_exact in (True, False))

    for hints, is_exact in (
        ([], True),
        ([None], True),
        ([None, exact], True),
        ([exact, cut], False),
        ([cut, None], False),
    ):
        containers = {
            f"c{number}": ContainerAllocation(affinity=hint) for number, hint in enumerate(hints)
        }
        admission = Admission(True, containers=containers)
        assert admission.exact == is_exact
        assert admission.to_dict().get("exact", True) == is_exact
