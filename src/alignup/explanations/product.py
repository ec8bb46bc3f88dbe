"""Lists the cross product of the hints that a decision merges, and the results that it can reach.

The decision itself does not walk the product, and neither does `reachable`, which folds one list
after the other.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain, islice, permutations, product
from math import factorial, prod
from typing import TYPE_CHECKING, Any, Final

from alignup.machine.bits import bit_numbers, ids_of
from alignup.records import Record, json_fields
from alignup.topology_manager.hints import HintList, TopologyHint
from alignup.topology_manager.refusal_message import mask_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.node.holdings import HintScores
    from alignup.topology_manager.provider import ResourceHints

MOST_ROWS: Final = 200
# The hints of a list that are looked at, at most; up to 12 NUMA nodes there are never more.
MOST_HINTS: Final = 1 << 12
# The pairs of masks that a fold looks at, at most; up to 8 NUMA nodes it never takes more.
MOST_PAIRS: Final = 1 << 18
# The orders of lists that a score is worked out for, at most.
MOST_ORDERS: Final = 6

# A mask of positions (None: any NUMA node), and whether it is preferred.
Hint = tuple[int | None, bool]


# The same, and the hint's score.
ScoredHint = tuple[int | None, bool, int]


class Choice(Record):
    """A hint, or a result of merging some.

    Attributes:
        numa_nodes: kernel ids; None: any.
        score: of a hint of 1.38 and later, how full the NUMA nodes are in percent; 0: it has none.
            None: hints of the release have no scores.
    """

    numa_nodes: tuple[int, ...] | None
    preferred: bool
    score: int | None = None

    @classmethod
    def of(cls, hint: Hint, numa_node_ids: tuple[int, ...], score: int | None = None) -> Choice:
        """Return the choice that a mask stands for."""
        mask, preferred = hint
        if mask is None:
            return cls(None, preferred, score)
        return cls(ids_of(mask, numa_node_ids), preferred, score)

    def to_dict(self) -> dict[str, Any]:
        """Return the choice in JSON's types; without a score where the release has none."""
        names = ["numa_nodes", "preferred"]
        if self.score is not None:
            names.append("score")
        return json_fields(self, *names)


class Row(Record):
    """One permutation: a hint of each list, and what they merge into.

    Attributes:
        hints: in the order of `Product.resources`.
        merged: the kernel ids of the NUMA nodes that all hints have in common; (): none, so the row
            is ignored. None: any.
        preferred: all hints are preferred, and all that name NUMA nodes name the same.
        considered: False where single-numa-node leaves the row out: a hint is not preferred, or
            names several NUMA nodes.
        score: the average of its hints' scores that are not 0; 0: there is none. None: the row is
            left out, or hints of the release have no scores.
    """

    hints: tuple[Choice, ...]
    merged: tuple[int, ...] | None
    preferred: bool
    considered: bool
    score: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row in JSON's types; without a score where it has none."""
        names = ["hints", "merged", "preferred", "considered"]
        if self.score is not None:
            names.append("score")
        return json_fields(self, *names)


class Product(Record):
    """The cross product of the hints of one decision.

    Attributes:
        rows: the first `MOST_ROWS`.
        count: the number of all rows.
    """

    resources: tuple[str, ...]
    rows: tuple[Row, ...]
    count: int


def product_of(
    hints: Mapping[str, ResourceHints],
    policy: str,
    numa_node_ids: tuple[int, ...],
    *,
    as_written: bool = False,
    scores: HintScores | None = None,
) -> Product | None:
    """Return the cross product of what the providers offered.

    None if no provider has a preference.

    A provider or resource without a preference is left out: it joins any row. A resource that
    cannot be had counts as one hint for any NUMA node that is not preferred, as in the kubelet.

    Args:
        hints: by provider.
        policy: the name of the policy that merges them.
        numa_node_ids: by position.
        as_written: rows are preferred and left out as the documents have it.
        scores: those of the hints, in a release whose hints have some.
    """
    columns = [
        (provider, resource, offered)
        for provider, resources in hints.items()
        for resource, offered in sorted((resources or {}).items())
        if offered is not None
    ]
    if not columns:
        return None

    single = policy == "single-numa-node"
    combinations = product(*(_pairs(offered, MOST_ROWS) for *_, offered in columns))
    rows = []
    for combination in islice(combinations, MOST_ROWS):
        hint_scores = None
        if scores is not None:
            hint_scores = [
                _score_of(hint, provider, resource, scores)
                for hint, (provider, resource, _) in zip(combination, columns, strict=True)
            ]
        rows.append(
            _row(combination, numa_node_ids, hint_scores, single=single, as_written=as_written)
        )

    return Product(
        tuple(resource for _, resource, _ in columns),
        tuple(rows),
        count=prod(_total(offered) for *_, offered in columns),
    )


def _row(
    hints: tuple[Hint, ...],
    ids: tuple[int, ...],
    scores: Sequence[int] | None,
    *,
    single: bool,
    as_written: bool,
) -> Row:
    """Return the row of these hints."""
    masks = [mask for mask, _ in hints if mask is not None]
    merged = ids_of(reduce(int.__and__, masks), ids) if masks else None
    is_agreed = as_written or len(set(masks)) <= 1
    is_considered = not single or all(_is_single(hint, as_written=as_written) for hint in hints)

    merged_score = None
    hint_scores: Sequence[int | None] = [None] * len(hints)
    if scores is not None:
        hint_scores = scores
        if is_considered:
            merged_score = average(scores)

    return Row(
        tuple(Choice.of(hint, ids, score) for hint, score in zip(hints, hint_scores, strict=True)),
        merged,
        preferred=is_agreed and all(is_preferred for _, is_preferred in hints),
        considered=is_considered,
        score=merged_score,
    )


def _score_of(hint: Hint, provider: str, resource: str, scores: HintScores) -> int:
    """Return the score of a hint; a hint of any NUMA node has none, which is 0."""
    mask, _ = hint
    return 0 if mask is None else scores(provider, resource, mask)


def average(scores: Iterable[int]) -> int:
    """Return the score of a merged hint, of the scores of those that were merged into it.

    Those that are 0 do not count (`topologymanager/policy.go`, aggregateHintScores).
    """
    counted = [score for score in scores if score > 0]
    return sum(counted) // len(counted) if counted else 0


def _is_single(hint: Hint, *, as_written: bool) -> bool:
    """Return whether single-numa-node considers a hint.

    It is preferred, and names one NUMA node or none. As the documents have it, it need not be
    preferred.
    """
    mask, preferred = hint
    return (preferred or as_written) and (mask is None or mask & (mask - 1) == 0)


def reachable(
    hints: Mapping[str, ResourceHints], policy: str, *, as_written: bool = False
) -> list[Hint] | None:
    """Return every result that some row merges into.

    The preferred ones come first, then those with fewer nodes, then those with lower masks.

    None if there are too many sets of NUMA nodes to fold. A result that some rows prefer is told
    once, as preferred.
    """
    lists = [
        offered
        for resources in hints.values()
        for offered in (resources or {}).values()
        if offered is not None
    ]
    single = policy == "single-numa-node"
    masks: set[int | None] = {None}
    best: set[int | None] | None = None
    steps = 0
    for offered in lists:
        total = _total(offered)
        steps += total * max(1, len(masks))
        if total > MOST_HINTS or steps > MOST_PAIRS:
            return None

        pairs = _pairs(offered, total)
        if single:
            pairs = [hint for hint in pairs if _is_single(hint, as_written=as_written)]

        masks = _combined(masks, {mask for mask, _ in pairs})
        preferred = {mask for mask, is_preferred in pairs if is_preferred}
        if not as_written:
            best = _agreed(best, preferred)
        elif best is None:
            best = _combined({None}, preferred)
        else:
            best = _combined(best, preferred)

    best = {None} if best is None else best
    results = [(mask, mask in best) for mask in masks]
    return sorted(results, key=lambda hint: (not hint[1], *_width_and_mask(hint)))


def merged_score(
    hints: Mapping[str, ResourceHints],
    policy: str,
    best: TopologyHint,
    scores: HintScores,
    numa_nodes: int,
) -> int | None:
    """Return the score of the best merged hint.

    It is that of the first combination, in the kubelet's order, that merges into it. None: it
    depends on the order of a provider's resources, which the kubelet does not keep, or there are
    too many hints or orders to try.

    Args:
        hints: by provider.
        policy: the name of the policy that merged them.
        best: what it merged them into.
        scores: those of the hints.
        numa_nodes: how many NUMA nodes the machine has, which hints for any stand for.
    """
    single = policy == "single-numa-node"
    if best.affinity is None:
        return 0

    mask = int(best.affinity)
    lists_by_provider = []
    for provider, resources in hints.items():
        lists = []
        for resource, offered in (resources or {}).items():
            if offered is None:
                continue
            if _total(offered) > MOST_HINTS:
                return None

            pairs = _pairs(offered, MOST_HINTS)
            if single:
                pairs = [hint for hint in pairs if _is_single(hint, as_written=False)]
            if best.preferred:
                pairs = [hint for hint in pairs if hint[1] and hint[0] in {None, mask}]

            lists.append(
                [(*hint, _score_of(hint, provider, resource, scores)) for hint in _in_turn(pairs)]
            )
        lists_by_provider.append(lists)

    if prod(factorial(len(lists)) for lists in lists_by_provider) > MOST_ORDERS:
        return None

    first_scores = {
        _first_score([*chain.from_iterable(order)], mask, (1 << numa_nodes) - 1)
        for order in product(*map(permutations, lists_by_provider))
    }
    return first_scores.pop() if len(first_scores) == 1 else None


def _in_turn(pairs: Iterable[Hint]) -> list[Hint]:
    """Return hints in the kubelet's order: few NUMA nodes first, then by their ids in turn."""

    def key(hint: Hint) -> tuple[int, list[int]]:
        mask = hint[0] or 0
        return mask.bit_count(), list(bit_numbers(mask))

    return sorted(pairs, key=key)


def _first_score(lists: Sequence[Sequence[ScoredHint]], best: int, all_nodes: int) -> int | None:
    """Return the score of the first combination of hints whose masks have `best` in common.

    A hint for any NUMA node has all of them.

    None if there is no such combination, as where nothing was merged, or too many to look for it.
    """
    reached: list[set[int | None]] = [{all_nodes}]
    steps = 0
    for hints in reversed(lists):
        steps += len(hints) * len(reached[-1])
        if steps > MOST_PAIRS:
            return None
        reached.append(_combined(reached[-1], {mask for mask, *_ in hints}))

    common: int | None = all_nodes
    chosen_scores = []
    for hints, rest in zip(lists, reached[-2::-1], strict=True):
        chosen = next(
            (
                (mask, score)
                for mask, _, score in hints
                if best in {_common(_common(common, mask), other) for other in rest}
            ),
            None,
        )
        if chosen is None:
            return 0
        common = _common(common, chosen[0])
        chosen_scores.append(chosen[1])

    return average(chosen_scores)


def _combined(masks: set[int | None], joined_masks: set[int | None]) -> set[int | None]:
    """Return what any two masks have in common, where that is something."""
    return {_common(mask, joined_mask) for mask in masks for joined_mask in joined_masks} - {0}


def _common(mask: int | None, joined_mask: int | None) -> int | None:
    """Return the NUMA nodes of both masks; None: any."""
    if mask is None:
        return joined_mask
    if joined_mask is None:
        return mask
    return mask & joined_mask


def _width_and_mask(hint: Hint) -> tuple[int, int]:
    """Return what hints are sorted by: those of few NUMA nodes first."""
    mask = hint[0] or 0
    return mask.bit_count(), mask


def _agreed(best: set[int | None] | None, preferred: set[int | None]) -> set[int | None]:
    """Return the masks that both prefer; what prefers any NUMA node joins the others' choice."""
    if best is None:
        return preferred

    agreed = best & preferred
    if None in preferred:
        agreed |= best
    if None in best:
        agreed |= preferred
    return agreed


def _pairs(offered: HintList | Sequence[TopologyHint], limit: int) -> list[Hint]:
    """Return the first hints by number of NUMA nodes and value.

    Where there is none, one for an impossible request.
    """
    if isinstance(offered, HintList):
        total = offered.total()
        if total is None or total > max(limit, MOST_ROWS):
            offered = offered.sample(limit)

    return sorted(mask_pairs(offered), key=_width_and_mask) or [(None, False)]


def _total(offered: HintList | Sequence[TopologyHint]) -> int:
    """Return how many hints there are; a huge number where they cannot be counted."""
    if not isinstance(offered, HintList):
        return max(1, len(offered))

    total = offered.total()
    if total is None:
        return MOST_PAIRS + 1
    return max(1, total)
