"""The compiled merge gives what a walk of the product gives, on 1 to 8 nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alignup.topology_manager.hints import HintList
from alignup.topology_manager.policy import make_policy
from inputs.strategies import POLICIES, distance_matrices, examples, pairs
from models import topology_manager as model

ANY_POLICY = st.sampled_from(POLICIES)


@st.composite
def narrow_cases(draw: st.DrawFn, most_lists: int = 3, most_hints: int = 6) -> Any:
    """A machine of 1 to 8 nodes, and lists; distances or none.

    Some hints have no mask, or name other nodes.
    """
    numa_nodes = draw(st.integers(1, 8))
    hints = pairs(draw(st.sampled_from([numa_nodes, numa_nodes, 8])))
    lists = draw(st.lists(st.lists(hints, max_size=most_hints), max_size=most_lists))
    return numa_nodes, lists, draw(st.none() | distance_matrices(numa_nodes))


@examples(150)
@given(ANY_POLICY, narrow_cases())
def test_a_merge_is_the_best_of_the_product(policy: str, case: Any) -> None:
    """Whatever the lists, each policy agrees with walking every permutation."""
    model.merged_lists(policy, *case)


@examples(80)
@given(narrow_cases(), st.randoms(use_true_random=False))
def test_the_order_of_lists_and_hints_never_matters(case: Any, random: Random) -> None:
    numa_nodes, lists, distances = case
    shuffled = [random.sample(hints, len(hints)) for hints in random.sample(lists, len(lists))]
    for policy in POLICIES:
        assert model.merged_lists(policy, numa_nodes, lists, distances) == model.merged_lists(
            policy, numa_nodes, shuffled, distances
        )


@examples(60)
@given(narrow_cases(most_lists=3))
def test_folding_agrees_with_the_product(case: Any) -> None:
    """The quicker model, which the longer tests compare with, agrees with the literal one."""
    numa_nodes, lists, distances = case
    filled = [hints or [(None, False)] for hints in lists]

    assert model.best_of_folding(filled, numa_nodes, distances) == model.best_of_product(
        filled, numa_nodes, distances
    )


@settings(examples(60), suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(st.sampled_from(POLICIES[1:]), st.integers(4, 20), st.integers(0, 2**32), st.booleans())
@example("best-effort", 6, 0, False)
@example("best-effort", 7, 0, False)
@example("restricted", 12, 0, True)
@example("restricted", 13, 0, True)
@example("best-effort", 64, 0, True)
def test_many_lists_are_merged_exactly(policy: str, count: int, seed: int, closest: bool) -> None:
    """Counts of permutations are folded before they outgrow 64 bits.

    Long lists, and many of them.
    """
    random = Random(seed)
    numa_nodes = random.randint(2, 8)
    size = random.choice([2, 20, 255])
    lists = [
        [
            (
                random.randrange(1 << numa_nodes) | random.randrange(1 << numa_nodes),
                random.random() < 0.3,
            )
            for _ in range(size)
        ]
        for _ in range(count)
    ]

    distances = None
    if closest:
        distances = [
            [random.choice([10, 12, 21]) for _ in range(numa_nodes)] for _ in range(numa_nodes)
        ]

    providers = [{"resource": model.hint_list(hints)} for hints in lists]
    model.merged(policy, numa_nodes, providers, distances, model.best_of_folding)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7, 12, 13, 64])
def test_every_mask_from_every_provider(count: int) -> None:
    """At 8 nodes, with every mask and nothing preferred, the best is the lowest single node."""
    hints = HintList(model.hint_list([(mask, False) for mask in range(1, 256)]))

    best, admit = make_policy("restricted", 8).merge([{"resource": hints}] * count)

    assert (int(best.affinity), best.preferred, admit) == (1, False, False)


def test_counts_of_permutations_never_overflow() -> None:
    """One list holds only {0, 1}, eleven hold its 64 supersets.

    64^11 permutations, a multiple of every 2^64.
    """
    supersets = [(mask, False) for mask in range(256) if mask & 3 == 3]
    lists = [model.hint_list([(3, False)]), *[model.hint_list(supersets)] * 11]

    best, _ = make_policy("restricted", 8).merge([{"resource": hints} for hints in lists])

    assert (int(best.affinity), best.preferred) == (3, False)


def test_single_numa_node_ignores_distances() -> None:
    """The kubelet's single-numa-node compares by size and value.

    It does so even with prefer-closest-numa-nodes.
    """
    far = [[40, 10], [10, 10]]
    lists = [[(1, True), (2, True)]]

    assert model.merged_lists("single-numa-node", 2, lists, far) == (1, True, True)
    assert model.merged_lists("restricted", 2, lists, far) == (2, True, True)


def test_masks_beyond_a_small_machine_are_cut() -> None:
    """Hints that name nodes a machine lacks are cut to those it has.

    The kubelet's default mask does so.
    """
    assert model.merged_lists(
        "best-effort", 2, [[(1 << 40 | 1, False)], [(1 << 40 | 3, True)]]
    ) == (1, False, True)


def test_masks_beyond_a_small_machine_keep_their_distances() -> None:
    """One mask that names a node too many leaves the others to be compared by distance."""
    distances = [[10 if row == column else 40 for column in range(4)] for row in range(4)]
    distances[2][3] = distances[3][2] = 20

    for beyond in (1 << 5, 1 << 20):
        lists = [[(0b0011, True), (0b1100, True), (beyond, True)]]
        assert model.merged_lists("restricted", 4, lists, distances) == (0b1100, True, True)
