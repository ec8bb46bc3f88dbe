"""Finds the resources because of which a policy refused: each by itself, or a smallest set that conflicts.

It works on the hints of the providers; `alignup.topology_manager.refusal_message` puts the result into words. A
resource that could be left out without changing the verdict on the others is never named.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from alignup.topology_manager.hints import HintList
from alignup.topology_manager.refusal_account import MemoryAccount

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.scope import Refusal

__all__ = ["LOOKED_AT", "Offer", "blamed", "mask_pairs", "offers_of"]

LOOKED_AT = 4096
"""The number of hints of a list that are considered; longer lists exist only beyond 12 NUMA nodes."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The hints of one resource, or of several types of memory, which are hinted at together."""

    resources: tuple[str, ...]
    hints: HintList | Sequence[TopologyHint] | None
    """None: no preference."""

    @property
    def is_whole(self) -> bool:
        """True if all hints are considered."""
        if not isinstance(self.hints, HintList):
            return True
        total = self.hints.total()
        return total is not None and total <= LOOKED_AT

    def good(self, policy: str) -> frozenset[int] | None:
        """Return the masks that would do for the policy; None: any mask would."""
        if self.hints is None:
            return None
        preferred = {mask for mask, is_preferred in self._pairs() if is_preferred}
        if None in preferred:
            return None
        single = policy == "single-numa-node"
        return frozenset(mask for mask in preferred if mask and not (single and mask & (mask - 1)))

    def _pairs(self) -> Sequence[tuple[int | None, bool]]:
        """Return the mask of each hint that is considered, and whether it is preferred."""
        return mask_pairs(self.hints or ())


def mask_pairs(hints: HintList | Sequence[TopologyHint]) -> Sequence[tuple[int | None, bool]]:
    """Return the mask of each of the first hints, None for any node, and whether the hint is preferred."""
    if isinstance(hints, HintList):
        return hints.pairs(LOOKED_AT)
    return [(None if one.affinity is None else int(one.affinity), one.preferred) for one in hints]


def offers_of(refusal: Refusal) -> list[Offer]:
    """Return the offers behind a refusal, by resource; types of memory that came together are one offer."""
    offers: list[Offer] = []
    for resources in refusal.hints:
        known = dict(sorted((resources or {}).items()))
        together = tuple(name for name in known if _families(refusal, name))
        if together:
            offers.append(Offer(together, known[together[0]]))
        offers += [Offer((name,), hints) for name, hints in known.items() if name not in together]
    return offers


def _families(refusal: Refusal, name: str) -> Mapping[frozenset[str], HintList | Sequence[TopologyHint]]:
    """Return what the hints would be for fewer types of memory; empty for any other resource."""
    account = refusal.accounts.get(name)
    return account.families if isinstance(account, MemoryAccount) else {}


def blamed(refusal: Refusal) -> list[Offer]:
    """Return the offers because of which the policy refused.

    Either each of them rules out every mask by itself, or they do so together and none of them could be left out.
    An offer of several types of memory is cut to those types that are needed for that.
    """
    offers = _Offers(refusal)
    names = offers.names
    alone = [name for name in names if not offers.can_agree([name])]
    if alone:
        return [offer for name in alone for offer in offers.cut([name])]
    if offers.can_agree(names) or not all(offer.is_whole for offer in offers.listed):
        return offers.listed  # too many hints to tell which could be left out, or a policy of another kind
    needed = names
    for name in names:
        fewer = [other for other in needed if other != name]
        if not offers.can_agree(fewer):
            needed = fewer
    return offers.cut(needed)


class _Offers:
    """The offers behind a refusal, for asking again and again which of them can agree on a mask."""

    def __init__(self, refusal: Refusal) -> None:
        self.listed = offers_of(refusal)
        self.names = [name for offer in self.listed for name in offer.resources]
        self._refusal = refusal
        self._good: dict[int, frozenset[int] | None] = {}

    def cut(self, names: Collection[str]) -> list[Offer]:
        """Return the offers as they would be if only these resources were requested."""
        found = []
        for offer in self.listed:
            kept = tuple(name for name in offer.resources if name in names)
            if kept == offer.resources:
                found.append(offer)
            elif kept:
                families = _families(self._refusal, kept[0])
                found.append(Offer(kept, families.get(frozenset(kept), offer.hints)))
        return found

    def can_agree(self, names: Collection[str]) -> bool:
        """Return whether some mask would do for these resources."""
        masks = [good for offer in self.cut(names) if (good := self._masks(offer)) is not None]
        return not masks or bool(reduce(frozenset.intersection, masks))

    def _masks(self, offer: Offer) -> frozenset[int] | None:
        key = id(offer.hints)  # which the refusal keeps alive; two providers may use one name
        if key not in self._good:
            self._good[key] = offer.good(self._refusal.policy)
        return self._good[key]
