"""Merges all providers' scored hints into one under a named policy, in Koordinator's order and words.

The definition is a walk. Take one hint of every list, in lexicographic order, the last list fastest; merge
the combination to (mask, preferred, unsatisfied, score); let it replace the best so far by these rules:
preferred beats not preferred, then fewer nodes win, and among equally many a smaller mask *or* a higher score
does. The last rule is no order: mask 1 with score 10 and mask 2 with score 20 replace each other for ever. So
the set of reachable results is not enough, and the walk's order decides.

The shape used instead rests on four facts.

1. Preference and size are a total order. Whether any combination is preferred, and the smallest size of the
   better class, follow from the sets of masks alone; all other combinations are as good as not there.
2. Call what is left elements: (mask, score), in the order of the walk. A best so far is replaced by the first
   element with a smaller mask or a higher score. Such a first element is a record: its mask is smaller than
   all before it, or its score higher. A stretch of the walk therefore acts on any best so far through its few
   records and what each leads to; two stretches compose (`_then`). That is a `Block`.
3. Once the running intersection has the wanted size it can only stay as it is. The elements that follow have
   one mask, so only the highest score, at its first occurrence, matters; and since the score is a sum over
   lists, every list contributes its first highest on its own (`_Tail`).
4. Before that, no score has been collected that can count: only hints equal to the final mask add to it. So
   the stretch that follows depends on (list, running intersection), and on nothing else.

A preferred combination is one mask throughout: by fact 3 one pass over the hints, with a tail for each mask,
and the walk's order matters only between single elements. Otherwise there is one block for each list and
intersection: lists x reachable intersections x hints steps, where the walk takes the product of the lengths.

So the product itself is never walked, but the saving rests on combinations meeting in the same intersection.
Up to 8 nodes there are at most 255 of these. On more nodes they can be as many as there are combinations of
all lists but the last: then every step is needed, since any of them may hold a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from alignup.errors import InputError
from alignup.koordinator.effective import BEST_EFFORT, POLICIES, RESTRICTED, SINGLE_NUMA_NODE


@dataclass(frozen=True, slots=True)
class ScoredHint:
    """A hint with Koordinator's two additions: whether it falls short of the request, and a weight."""

    mask: int | None
    """NUMA nodes; bit i is the node whose id is i. None: any."""
    preferred: bool
    unsatisfied: bool = False
    score: float = 0


HintLists: TypeAlias = Sequence[Sequence[ScoredHint]]

_Outcome: TypeAlias = tuple[int, float, bool]
"""A candidate for the best so far: mask, score, unsatisfied."""

_Block: TypeAlias = tuple[tuple[int, float, _Outcome], ...]
"""A stretch of the walk: for each record its mask and score, and the best at the end if the best before is
first replaced by it."""

_Tail: TypeAlias = tuple[float, bool]
"""The addition of the remaining lists to a mask that stays as it is: highest score, and unsatisfied, at its first
occurrence."""


def best_in_order(lists: HintLists, all_nodes: int, violates: Callable[[int], bool]) -> ScoredHint:
    """Return what the walk over all combinations ends with.

    Args:
        lists: one list of hints for each resource; the order of the lists and of the hints counts.
        all_nodes: the mask of all NUMA nodes, where the walk starts from: not preferred, score 0.
        violates: whether a merged mask breaks a rule of exclusivity; such a result is not preferred.
    """
    masks = _preferred_masks(lists, all_nodes, violates)
    if masks:
        size = min((mask & all_nodes).bit_count() for mask in masks)
        chosen = {mask for mask in masks if (mask & all_nodes).bit_count() == size}
        block = _preferred_block(lists, chosen, all_nodes)
        mask, score, unsatisfied = block[0][2]
        return ScoredHint(mask, True, unsatisfied, score)
    mask, score, unsatisfied = _best_other(lists, all_nodes)
    return ScoredHint(mask, False, unsatisfied, score)


def _preferred_masks(lists: HintLists, all_nodes: int, violates: Callable[[int], bool]) -> set[int]:
    """Return the masks that every list has as a preferred hint, or has a preferred null in place of.

    If every list has a preferred null, they make a combination without a mask, whose result is `all_nodes`.
    """
    union: set[int] = set()
    closed: set[int] | None = None
    for hints in lists:
        found = {hint.mask for hint in hints if hint.preferred}
        masks = {mask for mask in found if mask is not None}
        union |= masks
        if None not in found:
            closed = masks if closed is None else closed & masks
    common = union | {all_nodes} if closed is None else closed
    return {mask for mask in common if mask & all_nodes and not violates(mask & all_nodes)}


def _preferred_block(lists: HintLists, chosen: set[int], all_nodes: int) -> _Block:
    """Return the block of all combinations whose masks are one of `chosen` (all of one size) throughout."""
    # what follows while no list has given a mask yet, and what follows once one has
    block = _element(all_nodes, 0, unsatisfied=False) if all_nodes in chosen else ()
    tails: dict[int, _Tail] = dict.fromkeys(chosen, (0, False))
    for hints in reversed(lists):
        preferred = [hint for hint in hints if hint.preferred]
        here: _Block = ()
        for hint in reversed(preferred):
            if hint.mask is None:
                here = _then(_spoilt(block) if hint.unsatisfied else block, here)
            elif hint.mask in tails:
                here = _then(_closing(hint, hint.mask & all_nodes, tails[hint.mask]), here)
        block = here
        tails = _lengthened(tails, preferred, all_nodes)
    return block


def _lengthened(tails: Mapping[int, _Tail], preferred: Sequence[ScoredHint], all_nodes: int) -> dict[int, _Tail]:
    """Return the tails with one more list in front, of which a mask may take itself or a null."""
    nulls: list[tuple[int, ScoredHint]] = []
    by_mask: dict[int, list[tuple[int, ScoredHint]]] = {mask: [] for mask in tails}
    for place, hint in enumerate(preferred):
        if hint.mask is None:
            nulls.append((place, hint))
        elif hint.mask in by_mask:
            by_mask[hint.mask].append((place, hint))
    longer = {}
    for mask, candidates in by_mask.items():
        in_order = [hint for _, hint in sorted([*candidates, *nulls[:1]], key=lambda pair: pair[0])]
        longer.update(_longer(mask, mask & all_nodes, in_order, tails))
    return longer


def _longer(key: int, result: int, candidates: Iterable[ScoredHint], tails: Mapping[int, _Tail]) -> dict[int, _Tail]:
    """Return {key: its tail with one more list in front}; {} if no candidate of that list keeps it."""
    first_highest = max(candidates, key=lambda hint: _gain(hint, result), default=None)
    if first_highest is None:
        return {}
    score, unsatisfied = tails[key]
    return {key: (score + _gain(first_highest, result), unsatisfied or _falls_short(first_highest, result.bit_count()))}


def _best_other(lists: HintLists, all_nodes: int) -> _Outcome:
    """Return what the walk ends with when no combination is preferred."""
    start: _Outcome = (all_nodes, 0, False)
    reached = _reachable(lists, all_nodes)
    size = min((mask.bit_count() for mask in reached[-1]), default=-1)
    if size < 0:
        return start
    tails: dict[int, _Tail] = {mask: (0, False) for masks in reached for mask in masks if mask.bit_count() == size}
    blocks: dict[int, _Block] = {}
    for hints, masks in zip(reversed(lists), reversed(reached[:-1]), strict=True):
        wider = [mask for mask in masks if mask.bit_count() > size]
        made = {mask: _block_at(mask, hints, blocks, tails, all_nodes) for mask in wider}
        blocks = {mask: block for mask, block in made.items() if block}
        longer: dict[int, _Tail] = {}
        for mask in tails:
            keeping = (hint for hint in hints if hint.mask is None or hint.mask & mask == mask)
            longer.update(_longer(mask, mask, keeping, tails))
        tails = longer
    if all_nodes in blocks:
        return blocks[all_nodes][0][2]
    return _apply(_element(all_nodes, *tails[all_nodes]), start)


def _reachable(lists: HintLists, all_nodes: int) -> list[set[int]]:
    """Return the non-empty intersections of `all_nodes` with the first 0, 1, 2, ... lists' masks."""
    reached = [{all_nodes} if all_nodes else set()]
    for hints in lists:
        masks = {all_nodes if hint.mask is None else hint.mask for hint in hints}
        reached.append({before & mask for before in reached[-1] for mask in masks} - {0})
    return reached


def _block_at(
    mask: int, hints: Sequence[ScoredHint], blocks: Mapping[int, _Block], tails: Mapping[int, _Tail], all_nodes: int
) -> _Block:
    """Return the block of all combinations of the remaining lists, the first of which is `hints`.

    `mask` is the intersection so far and wider than wanted. Unless it is `all_nodes`, some hint before was
    wider than the result will be, so that every result is unsatisfied; blocks of such masks say so already.
    """
    block: _Block = ()
    spoilt = mask != all_nodes
    for hint in reversed(hints):
        inner = mask if hint.mask is None else mask & hint.mask
        if inner in blocks:
            first = blocks[inner]
            if inner == all_nodes and (hint.unsatisfied or hint.mask is not None):
                first = _spoilt(first)
        elif inner in tails:
            first = _closing(hint, inner, tails[inner], spoilt=spoilt)
        else:
            continue
        block = _then(first, block)
    return block


def _closing(hint: ScoredHint, result: int, tail: _Tail, *, spoilt: bool = False) -> _Block:
    """Return the one element that a hint and the tail behind it make."""
    score, unsatisfied = tail
    short = spoilt or unsatisfied or _falls_short(hint, result.bit_count())
    return _element(result, score + _gain(hint, result), unsatisfied=short)


def _gain(hint: ScoredHint, result: int) -> float:
    """Return what a hint adds to the score of a result: its own score if it is that very mask."""
    return hint.score if hint.mask == result else 0


def _falls_short(hint: ScoredHint, size: int) -> bool:
    """Return whether a hint makes a result of `size` nodes unsatisfied: it says so, or is wider."""
    return hint.unsatisfied or (hint.mask is not None and hint.mask.bit_count() > size)


def _element(mask: int, score: float, unsatisfied: bool) -> _Block:
    return ((mask, score, (mask, score, unsatisfied)),)


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


def _spoilt(block: _Block) -> _Block:
    """Return the same block behind a hint that makes every result unsatisfied."""
    return tuple([(mask, score, (best, height, True)) for mask, score, (best, height, _) in block])


ProviderHints: TypeAlias = Mapping[str, Sequence[ScoredHint] | None] | None
"""A provider's offers by resource, as `alignup.topology_manager.provider.ResourceHints`, with scored hints."""

_NO_PREFERENCE = ScoredHint(None, preferred=True)
_IMPOSSIBLE = ScoredHint(None, preferred=False, unsatisfied=True)


@dataclass(frozen=True, slots=True)
class Merged:
    """The best hint, whether the pod may come in with it, and if not, why not (sorted)."""

    hint: ScoredHint
    admitted: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Flattened:
    """One list for each resource, what cannot be had at all, and a description of the rest (both sorted)."""

    lists: tuple[Sequence[ScoredHint], ...]
    impossible: tuple[str, ...]
    described: tuple[str, ...]


def merge(
    policy: str,
    providers: Sequence[ProviderHints],
    all_nodes: int,
    violates: Callable[[int], bool] = lambda _mask: False,
) -> Merged:
    """Return the best hint and the verdict, as Koordinator's merge does.

    Args:
        policy: koordinator's name of the policy; "": admitted without looking at anything.
        providers: what each can offer. Their order counts, as does that of the hints in a list; the resources
            of one provider, which have no order in Koordinator, are taken by name.
        all_nodes: the mask of all NUMA nodes; bit i is the node whose id is i.
        violates: whether a merged mask breaks exclusivity: it then loses its preference.

    Raises:
        InputError: there is no such policy; Koordinator's scheduler crashes on one.
    """
    if policy not in POLICIES:
        raise InputError.at("policy", f"one of {', '.join(map(repr, POLICIES))}", policy)
    if not policy:
        return Merged(ScoredHint(None, preferred=False), admitted=True)
    flattened = _flatten(providers)
    if policy == BEST_EFFORT:
        best = best_in_order(flattened.lists, all_nodes, violates)
        # a result that not every resource can be split over is worth less than no affinity at all
        return Merged(ScoredHint(all_nodes, preferred=False) if best.unsatisfied else best, admitted=True)
    if flattened.impossible:
        anywhere = all_nodes if policy == RESTRICTED else None
        return Merged(ScoredHint(anywhere, preferred=False), admitted=False, reasons=flattened.impossible)
    if policy == SINGLE_NUMA_NODE:
        best, separator = _best_single(flattened.lists, all_nodes, violates), ","
    else:
        best, separator = best_in_order(flattened.lists, all_nodes, violates), " & "
    if best.preferred:
        return Merged(best, admitted=True)
    reason = f"Unaligned NUMA Hint cause {separator.join(flattened.described)}"
    return Merged(best, admitted=False, reasons=(reason,))


def _best_single(lists: Sequence[Sequence[ScoredHint]], all_nodes: int, violates: Callable[[int], bool]) -> ScoredHint:
    """Return the best hint when every resource must come from one node."""
    narrow = [[hint for hint in hints if hint.preferred and _is_single(hint.mask)] for hints in lists]
    best = best_in_order(narrow, all_nodes, violates)
    # a mask of all nodes binds to none: the machine has one node, or no resource has a preference
    return ScoredHint(None, best.preferred) if best.mask == all_nodes else best


def _is_single(mask: int | None) -> bool:
    return mask is None or mask.bit_count() == 1


def _flatten(providers: Sequence[ProviderHints]) -> _Flattened:
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
    return _Flattened(tuple(lists), tuple(sorted(impossible)), tuple(sorted(described)))


def _described(resource: str, hints: Sequence[ScoredHint]) -> str:
    """Return what a resource preferred and what it had to choose from."""
    possible = [hint for hint in hints if not hint.unsatisfied]
    preferred = " ".join(mask_text(hint.mask) for hint in possible if hint.preferred)
    return f"{resource} prefer [{preferred}] among [{' '.join(mask_text(hint.mask) for hint in possible)}]"


def mask_text(mask: int | None) -> str:
    """Return a mask as Koordinator prints it: binary, of an even width of 2 or more; `<nil>` for none.

    A power of four above 1 is printed without its leading zero (`100`), as in the original.
    """
    if mask is None:
        return "<nil>"
    width = max(2, mask.bit_length())
    is_power_of_four = mask > 1 and mask.bit_count() == 1 and mask.bit_length() % 2 == 1
    return f"{mask:0{width if is_power_of_four else width + width % 2}b}"
