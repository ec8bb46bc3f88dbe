"""Lists the cross product of the hints that a decision merges, and the results that it can reach.

The decision itself does not walk the product, and neither does `reachable`, which folds one list
after the other.
"""

from __future__ import annotations

from functools import reduce
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Final

from alignup.machine.bits import ids_of
from alignup.records import Record
from alignup.topology_manager.hints import HintList, TopologyHint
from alignup.topology_manager.refusal_message import mask_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.topology_manager.provider import ResourceHints

MOST_ROWS: Final = 200
# The hints of a list that are looked at, at most; up to 12 NUMA nodes there are never more.
MOST_HINTS: Final = 1 << 12
# The pairs of masks that a fold looks at, at most; up to 8 NUMA nodes it never takes more.
MOST_PAIRS: Final = 1 << 18

# A mask of positions (None: any NUMA node), and whether it is preferred.
Hint = tuple[int | None, bool]


class Choice(Record):
    """A hint, or a result of merging some.

    Attributes:
        numa_nodes: kernel ids; None: any.
    """

    numa_nodes: tuple[int, ...] | None
    preferred: bool

    @classmethod
    def of(cls, hint: Hint, numa_node_ids: tuple[int, ...]) -> Choice:
        """Return the choice that a mask stands for."""
        mask, preferred = hint
        if mask is None:
            return cls(None, preferred)
        return cls(ids_of(mask, numa_node_ids), preferred)


class Row(Record):
    """One permutation: a hint of each list, and what they merge into.

    Attributes:
        hints: in the order of `Product.resources`.
        merged: the kernel ids of the NUMA nodes that all hints have in common; (): none, so the row
            is ignored. None: any.
        preferred: all hints are preferred, and all that name NUMA nodes name the same.
        considered: False where single-numa-node leaves the row out: a hint is not preferred, or
            names several NUMA nodes.
    """

    hints: tuple[Choice, ...]
    merged: tuple[int, ...] | None
    preferred: bool
    considered: bool


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
    """
    columns = [
        (resource, offered)
        for resources in hints.values()
        for resource, offered in sorted((resources or {}).items())
        if offered is not None
    ]
    if not columns:
        return None

    single = policy == "single-numa-node"
    permutations = product(*(_pairs(offered, MOST_ROWS) for _, offered in columns))
    rows = tuple(
        _row(permutation, numa_node_ids, single=single, as_written=as_written)
        for permutation in islice(permutations, MOST_ROWS)
    )
    names = tuple(name for name, _ in columns)
    return Product(names, rows, count=prod(_total(offered) for _, offered in columns))


def _row(hints: tuple[Hint, ...], ids: tuple[int, ...], *, single: bool, as_written: bool) -> Row:
    """Return the row of these hints."""
    masks = [mask for mask, _ in hints if mask is not None]
    merged = ids_of(reduce(int.__and__, masks), ids) if masks else None
    is_agreed = as_written or len(set(masks)) <= 1
    return Row(
        tuple(Choice.of(hint, ids) for hint in hints),
        merged,
        preferred=is_agreed and all(is_preferred for _, is_preferred in hints),
        considered=not single or all(_is_single(hint, as_written=as_written) for hint in hints),
    )


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
