"""Scenarios that the kubelet cannot finish in two seconds end here, and as its rules say they must.

Its merge walks the product of all hints: a hundred and more of each of four or five resources. The
answers are compared with a plain model of the same merge that folds list by list; providers are
compared with the kubelet on scenarios that it does finish.
"""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from alignup.replay import replay
from inputs.exponential import scenario
from models.topology_manager import best_of_folding, hint_list, merge

SCENARIOS = 20
TOO_MANY = 10**7
"""Permutations that take the kubelet more than two seconds: it walks three million a second."""


def offered(hints: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Return the hints of all providers, in the form that merges take."""
    return [
        resources and {name: pairs(listed) for name, listed in resources.items()}
        for resources in hints.values()
    ]


def pairs(hints: list[dict[str, Any]] | None) -> Any:
    if hints is None:
        return None
    return hint_list(
        (
            None if h["numaNodes"] is None else sum(1 << node for node in h["numaNodes"]),
            h["preferred"],
        )
        for h in hints
    )


def permutations(providers: list[dict[str, Any] | None]) -> int:
    """Return how many permutations of hints there are."""
    return prod(
        len(hints or (None,)) for resources in providers for hints in (resources or {}).values()
    )


def decisions(
    case: dict[str, Any], step: dict[str, Any]
) -> list[tuple[list[Any], dict[str, Any] | None]]:
    """Return what each merge of a step had to go by, and what came out if the pod was admitted."""
    containers = step["containers"]
    if case["kubelet"]["topologyManagerScope"] == "pod":
        return [(offered(step["podHints"]), next(iter(containers.values()), {}).get("affinity"))]
    return [(offered(got["hints"]), got.get("affinity")) for got in containers.values()]


def check(case: dict[str, Any]) -> int:
    """Compare every decision of a scenario with the model; return the most permutations of one."""
    most = 0
    kubelet = case["kubelet"]
    distances = None
    if "topologyManagerPolicyOptions" in kubelet:
        distances = [node["distances"] for node in case["machine"]["numaNodes"]]

    for step, answer in zip(case["steps"], replay(case, with_hints=True)["steps"], strict=True):
        if "remove" in step:
            continue
        merges = decisions(case, answer)
        for index, (providers, affinity) in enumerate(merges):
            most = max(most, permutations(providers))
            mask, preferred, admit = merge(
                kubelet["topologyManagerPolicy"], 8, providers, distances, best_of_folding
            )
            if affinity is not None:
                nodes = [node for node in range(8) if mask is not None and mask >> node & 1]
                assert (nodes, preferred) == (affinity["numaNodes"], affinity["preferred"])

            if answer["reason"] == "TopologyAffinityError":
                # the container that was refused is the last one that was asked about
                assert admit == (index < len(merges) - 1)
            else:
                assert admit

    return most


@pytest.mark.parametrize("batch", range(4))
def test_every_decision_is_the_products(batch: int) -> None:
    """All of them end, whole scenarios at a time.

    Most have more permutations than a kubelet can walk.
    """
    sizes = [check(scenario(seed)) for seed in range(batch, SCENARIOS, 4)]

    assert sum(size > TOO_MANY for size in sizes) > len(sizes) / 2


@pytest.mark.slow
def test_many_more_end_as_well() -> None:
    """The same for two thousand scenarios."""
    for seed in range(SCENARIOS, SCENARIOS + 2000):
        check(scenario(seed))
