"""Merges all providers' scored hints into one under a named policy, and words a refusal as Koordinator does.

The walk over combinations is in `alignup.koordinator.scored_merge`; the caller says which masks violate exclusivity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from alignup.errors import InputError
from alignup.koordinator.annotation import BEST_EFFORT, POLICIES, RESTRICTED, SINGLE_NUMA_NODE
from alignup.koordinator.scored_merge import ScoredHint, best_in_order

__all__ = ["Merged", "ProviderHints", "mask_text", "merge"]

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


def _best_single(
    lists: Sequence[Sequence[ScoredHint]], all_nodes: int, violates: Callable[[int], bool]
) -> ScoredHint:
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
