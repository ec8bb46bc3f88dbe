"""Lists the cross product of the hints that a decision merges, row by row, and the results that it can reach.

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
        return cls(None if mask is None else ids_of(mask, numa_node_ids), preferred)


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
    """Return the cross product of what the providers offered; None if no provider has a preference.

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
    rows = islice(product(*(_pairs(offered, MOST_ROWS) for _, offered in columns)), MOST_ROWS)
    made = tuple(_row(one, numa_node_ids, single=single, as_written=as_written) for one in rows)
    return Product(
        tuple(name for name, _ in columns), made, prod(_total(offered) for _, offered in columns)
    )


def _row(hints: tuple[Hint, ...], ids: tuple[int, ...], *, single: bool, as_written: bool) -> Row:
    """Return the row of these hints."""
    masks = [mask for mask, _ in hints if mask is not None]
    merged = ids_of(reduce(int.__and__, masks), ids) if masks else None
    preferred = all(is_preferred for _, is_preferred in hints) and (
        as_written or len(set(masks)) <= 1
    )
    considered = not single or all(_is_single(hint, as_written=as_written) for hint in hints)
    return Row(tuple(Choice.of(hint, ids) for hint in hints), merged, preferred, considered)


def _is_single(hint: Hint, *, as_written: bool) -> bool:
    """Return whether single-numa-node considers a hint: it is preferred, and names one NUMA node or none.

    As the documents have it, it need not be preferred.
    """
    mask, preferred = hint
    return (preferred or as_written) and (mask is None or mask & (mask - 1) == 0)


def reachable(
    hints: Mapping[str, ResourceHints], policy: str, *, as_written: bool = False
) -> list[Hint] | None:
    """Return every result that some row merges into, the preferred ones first, then by number of nodes and value.

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
        pairs = [
            one
            for one in _pairs(offered, total)
            if not single or _is_single(one, as_written=as_written)
        ]
        masks = {_both(mask, other) for mask in masks for other, _ in pairs} - {0}
        good = {mask for mask, is_preferred in pairs if is_preferred}
        if as_written:
            best = {
                _both(mask, other) for mask in ({None} if best is None else best) for other in good
            } - {0}
        else:
            best = _agreed(best, good)

    preferred = {None} if best is None else best
    found = [(mask, mask in preferred) for mask in masks]
    return sorted(found, key=lambda one: (not one[1], (one[0] or 0).bit_count(), one[0] or 0))


def _both(mask: int | None, other: int | None) -> int | None:
    if mask is None or other is None:
        return other if mask is None else mask
    return mask & other


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
    """Return the first hints by number of NUMA nodes and value; without any, one for an impossible request."""
    total = offered.total() if isinstance(offered, HintList) else len(offered)
    if isinstance(offered, HintList) and (total is None or total > max(limit, MOST_ROWS)):
        offered = offered.sample(limit)
    return sorted(
        mask_pairs(offered), key=lambda one: ((one[0] or 0).bit_count(), one[0] or 0)
    ) or [(None, False)]


def _total(offered: HintList | Sequence[TopologyHint]) -> int:
    """Return how many hints there are; a huge number where they cannot be counted."""
    if isinstance(offered, HintList):
        total = offered.total()
        return MOST_PAIRS + 1 if total is None else max(1, total)
    return max(1, len(offered))
