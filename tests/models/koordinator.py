"""Koordinator's merge as it is defined.

The plain walk over the product, to compare cleverer ones with.
"""

from __future__ import annotations

from itertools import product

from alignup.koordinator.merging import ScoredHint


def walk(lists, all_nodes, violates):
    """Return what the walk over all combinations ends with."""
    best = ScoredHint(all_nodes, preferred=False)
    for combination in product(*lists):
        merged = merged_combination(combination, all_nodes)
        if not merged.mask:
            continue
        if violates(merged.mask):
            merged = ScoredHint(merged.mask, False, merged.unsatisfied, merged.score)
        if replaces(merged, best):
            best = merged
    return best


def merged_combination(combination, all_nodes):
    masks = [hint.mask for hint in combination if hint.mask is not None]
    result = all_nodes
    for mask in masks:
        result &= mask
    widest = max((mask.bit_count() for mask in masks), default=result.bit_count())
    return ScoredHint(
        mask=result,
        preferred=all(hint.preferred for hint in combination) and len(set(masks)) <= 1,
        unsatisfied=any(hint.unsatisfied for hint in combination) or widest != result.bit_count(),
        score=sum(hint.score for hint in combination if hint.mask == result),
    )


def replaces(new, best):
    if new.preferred != best.preferred:
        return new.preferred
    new_size, best_size = new.mask.bit_count(), best.mask.bit_count()
    if new_size != best_size:
        return new_size < best_size
    return new.mask < best.mask or new.score > best.score
