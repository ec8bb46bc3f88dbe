"""Explains a refusal: first as data, then as a sentence.

The facts come from a `Refusal`: the hints of each provider and the result of the policy. Nothing is
decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

from alignup.errors import one_line
from alignup.kubernetes.pod import is_device, is_pinned_memory
from alignup.records import Record, json_fields
from alignup.text.counting import amount_in, counted, shared_unit
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
from alignup.topology_manager.refusal_account import MemoryAccount, in_words
from alignup.topology_manager.scope import KUBELET, Refusal

__all__ = [
    "Amounts",
    "Offer",
    "ResourceView",
    "blamed",
    "cause",
    "kind_of",
    "refusal_dict",
    "refusal_message",
]

SINGLE: Final = "single-numa-node"
LIMIT_REACHED: Final = " (search limit reached: not every set of NUMA nodes was tried)"

# The number of sets of NUMA nodes that a sentence lists before it says how many more there are.
SHOWN = 4

# The number of sets of NUMA nodes that an explanation keeps of each kind; all single nodes are
# among them.
KEPT = 64

NodeSet = tuple[int, ...]
Offered = HintList | Sequence[TopologyHint]

# The number of hints of a list that are considered; longer lists exist only beyond 12 NUMA nodes.
LOOKED_AT = 4096


class ResourceView(Record):
    """The hints for one resource: the first sets of NUMA node ids, narrowest first, and how many there are.

    Attributes:
        preferred: sets that can supply the request now, with as few nodes as on the empty machine.
        other: sets that can supply the request now, with more nodes than on the empty machine.
        anywhere: True if the resource has no preference.
        account: the requested amount and the free amounts as text; empty if the provider does not
            tell.
        is_whole: False: there are more sets than were looked at, so that the counts are too low.
    """

    resource: str
    preferred: tuple[NodeSet, ...]
    other: tuple[NodeSet, ...]
    anywhere: bool
    preferred_count: int = 0
    other_count: int = 0
    account: str = ""
    is_whole: bool = True

    @property
    def is_impossible(self) -> bool:
        """True if no set of nodes can supply the request now."""
        return not (self.anywhere or self.preferred or self.other)


def refusal_dict(refusal: Refusal, numa_node_ids: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the facts of a refusal in JSON's types, with NUMA node ids instead of masks.

    Args:
        refusal: the `refusal` of an `Admission`.
        numa_node_ids: the kernel's id for each position of a mask; None: positions are shown.
    """
    accounts = in_words(refusal.accounts)
    names = (
        "resource",
        "preferred",
        "other",
        "anywhere",
        "preferred_count",
        "other_count",
        "account",
    )
    return {
        **json_fields(refusal, "reason", "policy", "container", "detail"),
        "resources": [
            json_fields(view_of(resource, hints, numa_node_ids, accounts.get(resource, "")), *names)
            for resources in refusal.hints
            for resource, hints in sorted((resources or {}).items())
        ],
    }


def view_of(
    resource: str, hints: Offered | None, numa_node_ids: Sequence[int] | None, account: str = ""
) -> ResourceView:
    """Return the hints of a resource as sets of NUMA node ids."""
    if hints is None:
        return ResourceView(resource, (), (), anywhere=True, account=account)

    pairs = mask_pairs(hints)
    preferred, other = (
        [
            mask
            for _, mask in sorted(
                (mask.bit_count(), mask) for mask, is_good in pairs if mask and is_good == wanted
            )
        ]
        for wanted in (True, False)
    )
    return ResourceView(
        resource, sets_of(preferred, numa_node_ids), sets_of(other, numa_node_ids), (None, True) in pairs,
        len(preferred), len(other), account, len(pairs) < LOOKED_AT,
    )  # fmt: skip


def sets_of(masks: Sequence[int], numa_node_ids: Sequence[int] | None) -> tuple[NodeSet, ...]:
    """Return the first masks as sets of those ids that the machine has; masks without any are left out."""
    found = (BitMask.from_int(mask).bits() for mask in masks[:KEPT])
    if numa_node_ids is not None:
        found = (
            tuple(numa_node_ids[bit] for bit in bits if bit < len(numa_node_ids)) for bits in found
        )
    return tuple(filter(None, found))


class Amounts(NamedTuple):
    """What is known of a resource when a pod is refused: CPUs, bytes or devices.

    Attributes:
        free: on all NUMA nodes together; None where some of it is near none.
        on_one_node: the most that is free on, or near to, one NUMA node.
        there: what containers can have if nobody holds any; None where `free` is, or unknown.
        is_alone: no other pod is on the node.
        reserved: what no container can have.
        apart: free devices near no NUMA node, which the others do not count since they cannot be
            aligned.
    """

    asked: int
    free: int | None
    on_one_node: int
    there: int | None = None
    is_alone: bool = False
    reserved: int = 0
    apart: int = 0

    @property
    def is_too_little(self) -> bool:
        """Whether less is free than was asked for."""
        return self.free is not None and self.free < self.asked

    @property
    def is_lasting(self) -> bool:
        """Whether no other pod holds any of it, so that nobody's going can help."""
        return bool(self.there) and (self.is_alone or self.there == self.free)


def refusal_message(refusal: Refusal, numa_node_ids: Sequence[int] | None = None) -> str:
    """Return the cause of a refusal as a sentence that names the resources and NUMA nodes concerned.

    Of a refusal by the kubelet's own checks it is the kubelet's message.
    """
    if refusal.provider == KUBELET:
        return refusal.detail
    subject = "pod" if refusal.container is None else f"container {refusal.container!r}"
    if refusal.detail:
        return one_line(f"{subject}: {refusal.detail}")
    exact = refusal.best is None or refusal.best.exact
    words = f"{subject} refused by policy {refusal.policy!r}: {cause(refusal, numa_node_ids)}"
    return one_line(words + ("" if exact else LIMIT_REACHED))


def kind_of(refusal: Refusal) -> tuple[str, list[Offer]]:
    """Return the kind of cause why the policy found no set of NUMA nodes good enough, and the offers to blame.

    `too little`: more than all that is free. `one node`: more than one NUMA node has. `spread`:
    more NUMA nodes than on an empty machine. `conflict`: no set of NUMA nodes suits all.
    """
    offers = _Offers(refusal)
    found = offers.blamed()
    spread = [offer for offer in found if offers.good(offer) == frozenset()]
    if impossible := [offer for offer in spread if offer.is_impossible]:
        return "too little", impossible
    if spread:
        return ("one node" if refusal.policy == SINGLE else "spread"), spread
    return "conflict", found


def cause(
    refusal: Refusal,
    numa_node_ids: Sequence[int] | None,
    amounts: Mapping[str, Amounts] | None = None,
) -> str:
    """Return the reason why the resources cannot be aligned as the policy requires.

    Args:
        refusal: the facts about the refusal.
        numa_node_ids: the kernel's id for each position of a mask; None: positions are shown.
        amounts: by resource, where a sentence can be short since tables stand beside it; None: the
            accounts tell all.
    """
    accounts = in_words(refusal.accounts)
    kind, offers = kind_of(refusal)
    names = [name for offer in offers for name in offer.resources]
    if kind == "too little":
        return too_little(names, accounts, amounts or {})

    views = [
        view_of(
            " and ".join(offer.resources),
            offer.hints,
            numa_node_ids,
            _told(offer.resources, accounts),
        )
        for offer in offers
    ]
    if kind == "spread":
        needs = "; ".join(_spread(one, (amounts or {}).get(one.resource)) for one in views)
        return (
            f"{needs}; {refusal.policy} admits no more NUMA nodes than an empty machine would need"
        )

    if kind == "conflict":
        return _conflict(views, refusal.policy, amounts)

    known = [(name, amounts[name]) for name in names if amounts and name in amounts]
    lacking = {
        name: (one.asked, one.on_one_node) for name, one in known if one.on_one_node < one.asked
    }
    if len(lacking) == len(names):
        told = [(f"{asked} {name}", free) for name, (asked, free) in _in_one_unit(lacking).items()]
        when = "" if all(amount.is_alone for _, amount in known) else " free"
        wishes = [f"{wish}{when} (at most {free})" for wish, free in told]
        return f"no NUMA node has {_either(wishes)}; {SINGLE} needs one"

    parts = [
        _beyond_one(view, offer.resources, amounts or {})
        for view, offer in zip(views, offers, strict=True)
    ]
    return f"{'; '.join(parts)}; {SINGLE} needs one NUMA node for all"


def _told(resources: Sequence[str], accounts: Mapping[str, str]) -> str:
    """Return the accounts of resources, with their names where there are several."""
    several = len(resources) > 1
    return "; ".join(
        f"{name}: {accounts[name]}" if several else accounts[name]
        for name in resources
        if name in accounts
    )


def _spread(view: ResourceView, amounts: Amounts | None) -> str:
    """Return that a resource now takes more NUMA nodes than on an empty machine."""
    if amounts is None or amounts.on_one_node >= amounts.asked:
        return f"{view.resource} can now come only from {other_sets(view)}{_accounted(view)}"
    asked, free = _in_one_unit({view.resource: (amounts.asked, amounts.on_one_node)})[view.resource]
    needed = counted(len(view.other[0]), "NUMA node")
    return f"{asked} {view.resource} need{_ending(asked)} {needed} (at most {free} free on one)"


def _ending(amount: str) -> str:
    """Return the ending of a verb whose subject is an amount: "1 gpu needs", "8Gi memory needs", "2 gpu need"."""
    return "" if amount.isdecimal() and amount != "1" else "s"


def _accounted(view: ResourceView) -> str:
    """Return the requested and free amounts in brackets, if they are known."""
    return f" ({view.account})" if view.account else ""


def too_little(
    names: Sequence[str], accounts: Mapping[str, str], amounts: Mapping[str, Amounts]
) -> str:
    """Return that more is asked for than is free, with both amounts where they tell it all, or else the accounts."""
    known = {name: one for name in names if (one := amounts.get(name)) and one.is_too_little}
    texts = _in_one_unit({name: (one.asked, one.free or 0) for name, one in known.items()})
    told = {
        name: f"{texts[name][0]} {name} asked, {_left(name, one, texts[name][1])}"
        for name, one in known.items()
    }
    if known.keys() == set(names) and (len(names) > 1 or known[names[0]].is_lasting):
        lasting = all(one.is_lasting for one in known.values())
        return f"{'' if lasting else 'not enough is free: '}{'; '.join(told.values())}"

    each = {
        name: told[name].replace(f" {name}", "", 1) if name in told else accounts.get(name, "")
        for name in names
    }
    return "; ".join(
        f"not enough {name} is free{f': {words}' if words else ''}" for name, words in each.items()
    )


def _left(name: str, amounts: Amounts, free: str) -> str:
    """Return how much is free, or that the machine has no more, whoever goes."""
    apart = (
        f" with a NUMA node (the device plugin reports none for {amounts.apart} more)"
        if amounts.apart
        else ""
    )
    if not amounts.is_lasting:
        return f"{free} free{apart}"
    if amounts.there and amounts.there != amounts.free:
        taken, there = _in_one_unit({name: (amounts.there - (amounts.free or 0), amounts.there)})[
            name
        ]
        return f"the machine has {there}, of which the pod's other containers take {taken}"

    if not amounts.reserved or is_device(name):
        return f"the machine has {free}{apart}"

    reserved, there = _in_one_unit(
        {name: (amounts.reserved, amounts.reserved + (amounts.free or 0))}
    )[name]
    return f"the machine has {free} ({there} less {reserved} reserved)"


def _beyond_one(
    view: ResourceView, resources: Sequence[str], amounts: Mapping[str, Amounts]
) -> str:
    """Return that resources do not fit into any single NUMA node."""
    known = {name: amounts[name] for name in resources if name in amounts}
    short = {
        name: (one.asked, one.on_one_node)
        for name, one in known.items()
        if one.on_one_node < one.asked
    }
    several = len(resources) > 1
    what = f"{view.resource} {'do' if several else 'does'} not fit into one NUMA node"
    if not short:
        wider = preferred_sets(view) or other_sets(view)
        takes = f"{'they' if several else 'it'} would take {wider}" if wider else ""
        return f"{what} ({'; '.join(filter(None, (view.account, takes)))})"

    parts = [
        f"{f'{name} ' if several else ''}{asked} asked, at most {free} free on one"
        for name, (asked, free) in _in_one_unit(short).items()
    ]
    return f"{what}: {', '.join(parts)}"


def _in_one_unit(amounts: Mapping[str, tuple[int, int]]) -> dict[str, tuple[str, str]]:
    """Return by resource what is asked for and free in words: all bytes in one unit, other things as numbers."""
    unit = shared_unit(
        (asked, [free]) for name, (asked, free) in amounts.items() if is_pinned_memory(name)
    )
    return {
        name: (amount_in(unit, asked, up=True), amount_in(unit, free))
        if is_pinned_memory(name)
        else (f"{asked}", f"{free}")
        for name, (asked, free) in amounts.items()
    }


def _conflict(
    views: Sequence[ResourceView], policy: str, amounts: Mapping[str, Amounts] | None
) -> str:
    """Return that no set of NUMA nodes suits all resources; with their accounts, unless their amounts are given."""
    bound = [view for view in views if not view.anywhere]
    both = "both" if len(bound) == 2 else "all"  # noqa: PLR2004  # English has a word for two
    differ = len({len(nodes) for view in bound for nodes in view.preferred}) > 1
    rule = f"needs {both} on {'one NUMA node' if policy == SINGLE else 'the same NUMA nodes'}"
    parts = []
    for place, view in enumerate(bound):
        name, ending = view.resource, "" if " and " in view.resource else "s"
        if policy == SINGLE:
            single = [nodes for nodes in view.preferred if len(nodes) == 1]
            words = f"{'' if place else 'fits '}only on {listed(single)}"
        elif differ and view.preferred:  # how many it takes says why, and which ones does not
            rule = f"refuses unless {both} need the same NUMA nodes"
            if amounts and name in amounts:
                amount = _in_one_unit({name: (amounts[name].asked, 0)})[name][0]
                name, ending = f"{amount} {name}", _ending(amount)

            words = f"need{ending} {counted(len(view.preferred[0]), 'NUMA node')}"
        else:
            words = f"prefer{ending} {preferred_sets(view)}"

        parts.append(f"{name} {words}{_accounted(view) if amounts is None else ''}")

    return f"{', '.join(parts)}; {policy} {rule}"


def preferred_sets(view: ResourceView) -> str:
    """Return the sets of NUMA nodes that a resource prefers, as text."""
    return listed(view.preferred, view.preferred_count, is_whole=view.is_whole)


def other_sets(view: ResourceView) -> str:
    """Return the other sets of NUMA nodes that can supply a resource, as text."""
    return listed(view.other, view.other_count, is_whole=view.is_whole)


def listed(sets: Sequence[NodeSet], count: int = 0, *, is_whole: bool = True) -> str:
    """Return sets of nodes as text: the first `SHOWN`, then how many more there are of `count`, if that is whole."""
    if not sets:
        return ""
    texts = ["+".join(map(str, nodes)) for nodes in sets[:SHOWN]]
    more = max(count, len(sets)) - SHOWN
    if more > 0:
        texts.append(counted(more, "other") if is_whole else "others")
    return f"NUMA node{'s' * (len(sets[0]) > 1)} {_either(texts)}"


def _either(texts: Sequence[str]) -> str:
    """Return texts as alternatives: "a", "a or b", "a, b or c"."""
    *first, last = texts
    return " or ".join(filter(None, (", ".join(first), last)))


class Offer(Record):
    """The hints of one resource, or of several types of memory, which are hinted at together.

    Attributes:
        hints: None: no preference.
    """

    resources: tuple[str, ...]
    hints: Offered | None

    @property
    def is_whole(self) -> bool:
        """True if all hints are considered."""
        if not isinstance(self.hints, HintList):
            return True
        total = self.hints.total()
        return total is not None and total <= LOOKED_AT

    @property
    def is_impossible(self) -> bool:
        """True if no set of nodes can supply the request now."""
        return self.hints is not None and not any(
            mask or (mask is None and is_preferred) for mask, is_preferred in mask_pairs(self.hints)
        )

    def good(self, policy: str) -> frozenset[int] | None:
        """Return the masks that would do for the policy; None: any mask would."""
        if self.hints is None:
            return None
        if isinstance(self.hints, HintList):
            preferred = self.hints.preferred_masks(LOOKED_AT)
        else:
            preferred = [mask for mask, is_preferred in mask_pairs(self.hints) if is_preferred]
        if None in preferred:
            return None
        return frozenset(
            mask for mask in preferred if mask and not (policy == SINGLE and mask & (mask - 1))
        )


def mask_pairs(hints: Offered) -> Sequence[tuple[int | None, bool]]:
    """Return the mask of each of the first hints, None for any node, and whether the hint is preferred."""
    if isinstance(hints, HintList):
        return hints.pairs(LOOKED_AT)
    return [(None if one.affinity is None else int(one.affinity), one.preferred) for one in hints]


def blamed(refusal: Refusal) -> list[Offer]:
    """Return the offers because of which the policy refused.

    Either each of them rules out every mask by itself, or they do so together and none of them
    could be left out. An offer of several types of memory is cut to those types that are needed for
    that.
    """
    return _Offers(refusal).blamed()


class _Offers:
    """The offers behind a refusal, for asking again and again which of them can agree on a mask.

    Each is of one resource; types of memory that came together are one offer.
    """

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self._good: dict[int, frozenset[int] | None] = {}
        self.listed: list[Offer] = []
        for resources in refusal.hints:
            known = dict(sorted((resources or {}).items()))
            together = tuple(name for name in known if self._families(name))
            if together:
                self.listed.append(Offer(together, known[together[0]]))
            self.listed += [
                Offer((name,), hints) for name, hints in known.items() if name not in together
            ]
        self.names = [name for offer in self.listed for name in offer.resources]

    def _families(self, name: str) -> Mapping[frozenset[str], Offered]:
        """Return what the hints would be for fewer types of memory; empty for any other resource."""
        account = self._refusal.accounts.get(name)
        return account.families if isinstance(account, MemoryAccount) else {}

    def blamed(self) -> list[Offer]:
        """Return what `blamed` does."""
        names = self.names
        if alone := [name for name in names if not self.can_agree([name])]:
            return [offer for name in alone for offer in self.cut([name])]
        if self.can_agree(names) or not all(offer.is_whole for offer in self.listed):
            # too many hints to tell which could be left out, or a policy of another kind
            return self.listed
        needed = names
        for name in names:
            fewer = [other for other in needed if other != name]
            if not self.can_agree(fewer):
                needed = fewer
        return self.cut(needed)

    def cut(self, names: Collection[str]) -> list[Offer]:
        """Return the offers as they would be if only these resources were requested."""
        found = []
        for offer in self.listed:
            kept = tuple(name for name in offer.resources if name in names)
            if kept == offer.resources:
                found.append(offer)
            elif kept:
                found.append(Offer(kept, self._families(kept[0]).get(frozenset(kept), offer.hints)))
        return found

    def can_agree(self, names: Collection[str]) -> bool:
        """Return whether some mask would do for these resources."""
        masks = [good for offer in self.cut(names) if (good := self.good(offer)) is not None]
        return not masks or bool(reduce(frozenset.intersection, masks))

    def good(self, offer: Offer) -> frozenset[int] | None:
        """Return what `Offer.good` does for the policy; None: any mask would do."""
        key = id(offer.hints)  # which the refusal keeps alive; two providers may use one name
        if key not in self._good:
            self._good[key] = offer.good(self._refusal.policy)
        return self._good[key]
