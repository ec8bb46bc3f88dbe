"""Merges all providers' scored hints into one under a named policy.

The order and the words are Koordinator's. The definition is a walk: take one hint of every list, in
lexicographic order, the last list fastest; merge the combination to (mask, preferred, unsatisfied,
score); let it replace the best so far by these rules: preferred beats not preferred, then fewer
nodes win, and among equally many a smaller mask *or* a higher score does. The last rule is no
order: mask 1 with score 10 and mask 2 with score 20 replace each other for ever. So the set of
reachable results is not enough, and the walk's order decides.

The product is never walked. Preference and size are a total order, so which class wins follows from
the masks alone, and all other combinations are as good as not there. Of the winning class only the
running intersection matters for what follows (a hint adds its score only if it is the final mask
itself), so there is one stretch of the walk for each list and intersection. A best so far is
replaced by the first element of a stretch with a smaller mask or a higher score; such an element is
a record: its mask is smaller than all before it, or its score higher. A stretch therefore acts
through its few records and what each leads to, and two stretches compose (`_then`). That is a
`_Block`.

This takes lists x reachable intersections x hints steps. Up to 8 nodes there are at most 255
intersections; on more nodes they can be as many as there are combinations of all lists but the
last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from alignup.errors import InputError
from alignup.koordinator.effective import BEST_EFFORT, POLICIES, RESTRICTED, SINGLE_NUMA_NODE
from alignup.records import Record


class ScoredHint(Record):
    """A hint with Koordinator's two additions: whether it falls short of the request, and a weight.

    Attributes:
        mask: NUMA nodes; bit i is the node whose id is i. None: any.
    """

    mask: int | None
    preferred: bool
    unsatisfied: bool = False
    score: float = 0


HintLists: TypeAlias = Sequence[Sequence[ScoredHint]]

# A candidate for the best so far: mask, score, unsatisfied.
_Outcome: TypeAlias = tuple[int, float, bool]

# A stretch of the walk: for each record its mask and score, and the best at the end if the best
# before is first replaced by it.
_Block: TypeAlias = tuple[tuple[int, float, _Outcome], ...]

_NO_PREFERENCE = ScoredHint(None, preferred=True)
_IMPOSSIBLE = ScoredHint(None, preferred=False, unsatisfied=True)


def best_in_order(lists: HintLists, all_nodes: int, violates: Callable[[int], bool]) -> ScoredHint:
    """Return what the walk over all combinations ends with.

    Args:
        lists: one list of hints for each resource; the order of the lists and of the hints counts.
        all_nodes: the mask of all NUMA nodes, where the walk starts from: not preferred, score 0.
        violates: whether a merged mask breaks a rule of exclusivity; such a result is not
            preferred.
    """
    agreed = _preferred_masks(lists, all_nodes, violates)
    results = {mask & all_nodes for mask in agreed} or _reachable(lists, all_nodes)
    size = min(map(int.bit_count, results), default=0)

    @cache
    def block(place: int, mask: int | None) -> _Block:
        """Return the block of all combinations of the lists from this place on.

        They stand behind this intersection.
        """
        if place == len(lists):
            result = all_nodes if mask is None else mask & all_nodes
            is_possible = mask is not None or not agreed or all_nodes in agreed
            if not is_possible or result.bit_count() != size:
                return ()
            return ((result, 0, (result, 0, False)),)

        records: _Block = ()
        for hint in reversed(lists[place]):
            intersection = _joined(mask, hint, agreed, all_nodes)
            if intersection == 0:
                continue

            behind = block(place + 1, intersection)
            if behind:
                records = _then(_with(hint, behind, size), records)

        return records

    whole = block(0, None) if results else ()
    outcome = whole[0][2] if agreed else _apply(whole, (all_nodes, 0, False))
    mask, score, unsatisfied = outcome
    return ScoredHint(mask, bool(agreed), unsatisfied, score)


def _joined(mask: int | None, hint: ScoredHint, agreed: set[int], all_nodes: int) -> int | None:
    """Return the intersection with one more hint.

    It is 0 where that leads to no result of the winning class.

    Args:
        mask: the intersection so far; None: any.
        hint: the hint.
        agreed: the masks that all lists prefer; where there are none, any intersection counts.
        all_nodes: the mask of all NUMA nodes.
    """
    if not agreed:
        if mask is None:
            mask = all_nodes
        return mask if hint.mask is None else mask & hint.mask

    if not hint.preferred or (hint.mask is not None and hint.mask not in agreed):
        return 0
    if mask is None:
        return hint.mask
    return mask if hint.mask in (None, mask) else 0


def _preferred_masks(lists: HintLists, all_nodes: int, violates: Callable[[int], bool]) -> set[int]:
    """Return the masks of the fewest nodes that all lists prefer.

    A preferred hint without a mask prefers any. If every list has one, they make a combination
    without a mask, whose result is `all_nodes`.
    """
    union: set[int] = set()
    closed: set[int] | None = None
    for hints in lists:
        preferred = {hint.mask for hint in hints if hint.preferred}
        masks = {mask for mask in preferred if mask is not None}
        union |= masks
        if None not in preferred:
            closed = masks if closed is None else closed & masks

    common = union | {all_nodes} if closed is None else closed

    possible = {mask for mask in common if mask & all_nodes and not violates(mask & all_nodes)}
    size = min(((mask & all_nodes).bit_count() for mask in possible), default=0)
    return {mask for mask in possible if (mask & all_nodes).bit_count() == size}


def _reachable(lists: HintLists, all_nodes: int) -> set[int]:
    """Return the non-empty intersections of `all_nodes` with one mask of each list."""
    reached = {all_nodes} - {0}
    for hints in lists:
        masks = {all_nodes if hint.mask is None else hint.mask for hint in hints}
        reached = {before & mask for before in reached for mask in masks} - {0}
    return reached


def _with(hint: ScoredHint, block: _Block, size: int) -> _Block:
    """Return a block behind one more hint.

    The hint adds its score if it is the result, and what falls short makes unsatisfied.
    """
    is_short = hint.unsatisfied or (hint.mask is not None and hint.mask.bit_count() > size)
    gain: float = 0
    if block[0][0] == hint.mask:  # then nothing else is reached behind it
        gain = hint.score

    return tuple(
        [
            (mask, score + gain, (best_mask, best_score + gain, is_short or unsatisfied))
            for mask, score, (best_mask, best_score, unsatisfied) in block
        ]
    )


def _apply(block: _Block, best: _Outcome) -> _Outcome:
    """Return the best after a stretch, given the best before it."""
    for mask, score, outcome in block:
        if mask < best[0] or score > best[1]:
            return outcome
    return best


def _then(first: _Block, second: _Block) -> _Block:
    """Return the block of one stretch followed by another."""
    if not second or not first:
        return first or second
    lowest = min([record[0] for record in first])
    highest = max([record[1] for record in first])
    return (
        *[(mask, score, _apply(second, outcome)) for mask, score, outcome in first],
        *[record for record in second if record[0] < lowest or record[1] > highest],
    )


# A provider's offers by resource, as `alignup.topology_manager.provider.ResourceHints`, with scored
# hints.
ProviderHints: TypeAlias = Mapping[str, Sequence[ScoredHint] | None] | None


class Merged(Record):
    """The best hint, whether the pod may come in with it, and if not, why not (sorted)."""

    hint: ScoredHint
    admitted: bool
    reasons: tuple[str, ...] = ()


def merge(
    policy: str,
    providers: Sequence[ProviderHints],
    all_nodes: int,
    violates: Callable[[int], bool] = lambda _: False,
) -> Merged:
    """Return the best hint and the verdict, as Koordinator's merge does.

    Args:
        policy: koordinator's name of the policy; "": admitted without looking at anything.
        providers: what each can offer. Their order counts, as does that of the hints in a list; the
            resources of one provider, which have no order in Koordinator, are taken by name.
        all_nodes: the mask of all NUMA nodes; bit i is the node whose id is i.
        violates: whether a merged mask breaks exclusivity: it then loses its preference.

    Raises:
        InputError: there is no such policy; Koordinator's scheduler crashes on one.
    """
    if policy not in POLICIES:
        raise InputError.at("policy", f"one of {', '.join(map(repr, POLICIES))}", policy)
    if not policy:
        return Merged(ScoredHint(None, preferred=False), admitted=True)

    lists, impossible, described = _flatten(providers)
    if policy == BEST_EFFORT:
        best = best_in_order(lists, all_nodes, violates)
        # a result that not every resource can be split over is worth less than no affinity at all
        if best.unsatisfied:
            best = ScoredHint(all_nodes, preferred=False)
        return Merged(best, admitted=True)

    if impossible:
        mask = None
        if policy == RESTRICTED:
            mask = all_nodes
        unpreferred = ScoredHint(mask, preferred=False)
        return Merged(unpreferred, admitted=False, reasons=tuple(sorted(impossible)))

    if policy == SINGLE_NUMA_NODE:
        best = _best_single(lists, all_nodes, violates)
        separator = ","
    else:
        best = best_in_order(lists, all_nodes, violates)
        separator = " & "

    if best.preferred:
        return Merged(best, admitted=True)

    reason = f"Unaligned NUMA Hint cause {separator.join(sorted(described))}"
    return Merged(best, admitted=False, reasons=(reason,))


def _best_single(
    lists: Sequence[Sequence[ScoredHint]], all_nodes: int, violates: Callable[[int], bool]
) -> ScoredHint:
    """Return the best hint when every resource must come from one node."""
    single = [
        [hint for hint in hints if hint.mask is None or hint.mask.bit_count() == 1]
        for hints in lists
    ]
    narrow = [[hint for hint in hints if hint.preferred] for hints in single]
    best = best_in_order(narrow, all_nodes, violates)

    # a mask of all nodes binds to none: the machine has one node, or no resource has a preference
    if best.mask == all_nodes:
        return ScoredHint(None, best.preferred)
    return best


def _flatten(
    providers: Sequence[ProviderHints],
) -> tuple[list[Sequence[ScoredHint]], list[str], list[str]]:
    """Return one list for each resource, what cannot be had at all, and what describes the rest."""
    lists: list[Sequence[ScoredHint]] = []
    impossible: list[str] = []
    described: list[str] = []
    for hints_by_resource in providers:
        if not hints_by_resource:
            lists.append((_NO_PREFERENCE,))
            continue

        for resource, hints in sorted(hints_by_resource.items()):
            if hints is None:
                lists.append((_NO_PREFERENCE,))
            elif not hints:
                lists.append((_IMPOSSIBLE,))
                impossible.append(f"Unsatisfied NUMA {resource}")
            else:
                lists.append(hints)
                described.append(_described(resource, hints))

    return lists, impossible, described


def _described(resource: str, hints: Sequence[ScoredHint]) -> str:
    """Return what a resource preferred and what it had to choose from."""
    possible = [hint for hint in hints if not hint.unsatisfied]
    preferred = " ".join(mask_text(hint.mask) for hint in possible if hint.preferred)
    return (
        f"{resource} prefer [{preferred}] among "
        f"[{' '.join(mask_text(hint.mask) for hint in possible)}]"
    )


def mask_text(mask: int | None) -> str:
    """Return a mask as Koordinator prints it: binary, or `<nil>` for none.

    The width is even and 2 or more, but a power of four above 1 is printed without its leading zero
    (`100`), as in the original.
    """
    if mask is None:
        return "<nil>"

    width = max(2, mask.bit_length())
    is_power_of_four = mask > 1 and mask.bit_count() == 1 and mask.bit_length() % 2 == 1
    if not is_power_of_four:
        width += width % 2
    return f"{mask:0{width}b}"
