"""Merge at 8 NUMA nodes, through the Python door: 2 to 4 lists of 255 hints."""

from __future__ import annotations

from timeit import repeat

import pytest

from alignup.core.merge import Merger
from alignup.topology_manager.policy import flatten, make_policy
from cases import HARD, pairs_of, providers_of
from models import topology_manager as model

ANSWERS = {
    "preferred-exists": (1, True),
    "none-in-common": (1, False),
    "every-mask-none-preferred": (1, False),
}

GROUPS = 1000


@pytest.mark.parametrize("lists", [2, 3, 4])
@pytest.mark.parametrize("name", HARD)
@pytest.mark.benchmark(group="merge at 8 nodes")
def test_merge(benchmark, promise, name, lists):
    """Under 20 us, whatever is preferred.

    The answer is the plain product's, beyond two lists that of folding.
    """
    pairs = pairs_of(name, lists)
    providers, policy = providers_of(pairs), make_policy("restricted", 8)
    best, admit = policy.merge(providers)
    assert (int(best.affinity), best.preferred) == ANSWERS[name]
    assert (int(best.affinity), best.preferred, admit) == model.merge(
        "restricted",
        8,
        providers,
        best_of=model.best_of_product if lists == 2 else model.best_of_folding,
    )
    benchmark(policy.merge, providers)
    promise(20)


@pytest.mark.parametrize("lists", [2, 3, 4])
@pytest.mark.benchmark(group="kernel at 8 nodes")
def test_kernel(benchmark, promise, lists):
    """Under 5 us in the kernel, for the worst case.

    That is what `merge` takes more than for one list of one hint. The compiled door is called with
    either; what it does around the kernel (checks, making a hint) is the same, and so the
    difference, `kernel_us`, is the kernel with the copy of the lists, less the kernel on next to
    nothing.
    """
    merger = Merger(8)
    packed = flatten(providers_of(pairs_of("every-mask-none-preferred", lists)))
    next_to_nothing = flatten(providers_of([[(1, True)]]))
    best = merger.merge(packed)
    assert (int(best.affinity), best.preferred) == (1, False)
    benchmark(merger.merge, packed)
    promise(15)
    if benchmark.stats is None:
        return

    full, empty = (
        min(repeat(lambda case=case: merger.merge(case), number=2000, repeat=15)) / 2000
        for case in (packed, next_to_nothing)
    )
    benchmark.extra_info["kernel_us"] = round((full - empty) * 1e6, 2)


@pytest.mark.benchmark(group="merge at 8 nodes")
def test_plain_product_of_two_lists(benchmark):
    """What the others are compared with: the literal walk in Python, 65,025 permutations."""
    lists = pairs_of("every-mask-none-preferred", 2)
    assert benchmark.pedantic(model.best_of_product, (lists, 8), rounds=3) == (1, False)


@pytest.mark.benchmark(group="many merges at 8 nodes")
def test_merge_many(benchmark, promise):
    """1,000 groups of 4 lists of 255, none preferred: under 2 ms in one call.

    The answers are those of one by one.
    """
    merger = Merger(8)
    groups = [flatten(providers_of(pairs_of("every-mask-none-preferred", 4)))] * (GROUPS - 1)
    groups.append(flatten(providers_of(pairs_of("preferred-exists", 4))))
    masks, preferred, exact = merger.merge_many(groups)
    single_answers = [merger.merge(group) for group in groups]
    assert masks.tolist() == [int(best.affinity) for best in single_answers]
    assert (
        preferred.tolist()
        == [best.preferred for best in single_answers]
        == [False] * (GROUPS - 1) + [True]
    )
    assert exact.all()
    benchmark(merger.merge_many, groups)
    promise(2000)
