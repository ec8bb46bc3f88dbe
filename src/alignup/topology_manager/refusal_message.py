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
    """The hints for one resource as sets of NUMA node ids: the narrowest, and how many there are.

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
    views = [
        view_of(resource, hints, numa_node_ids, accounts.get(resource, ""))
        for resources in refusal.hints
        for resource, hints in sorted((resources or {}).items())
    ]

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
        "resources": [json_fields(view, *names) for view in views],
    }


def view_of(
    resource: str, hints: Offered | None, numa_node_ids: Sequence[int] | None, account: str = ""
) -> ResourceView:
    """Return the hints of a resource as sets of NUMA node ids."""
    if hints is None:
        return ResourceView(resource, (), (), anywhere=True, account=account)

    pairs = mask_pairs(hints)
    preferred = [mask for mask, is_preferred in pairs if mask and is_preferred]
    not_preferred = [mask for mask, is_preferred in pairs if mask and not is_preferred]
    return ResourceView(
        resource,
        sets_of(sorted(preferred, key=_width_and_mask), numa_node_ids),
        sets_of(sorted(not_preferred, key=_width_and_mask), numa_node_ids),
        anywhere=(None, True) in pairs,
        preferred_count=len(preferred),
        other_count=len(not_preferred),
        account=account,
        is_whole=len(pairs) < LOOKED_AT,
    )


def _width_and_mask(mask: int) -> tuple[int, int]:
    """Return what masks are sorted by: the narrowest first."""
    return mask.bit_count(), mask


def sets_of(masks: Sequence[int], numa_node_ids: Sequence[int] | None) -> tuple[NodeSet, ...]:
    """Return the first masks as sets of ids.

    Ids that the machine lacks, and masks without any that it has, are left out.
    """
    sets = []
    for mask in masks[:KEPT]:
        nodes = BitMask.from_int(mask).bits()
        if numa_node_ids is not None:
            nodes = tuple(numa_node_ids[bit] for bit in nodes if bit < len(numa_node_ids))
        if nodes:
            sets.append(nodes)

    return tuple(sets)


class Amounts(NamedTuple):
    """What is known of a resource when a pod is refused: CPUs, bytes or devices.

    Attributes:
        free: on all NUMA nodes together; None where some of it is near none.
        on_one_node: the most that is free on, or near to, one NUMA node.
        allocatable: what containers can have if nobody holds any; None where `free` is, or unknown.
        is_alone: no other pod is on the node.
        reserved: what no container can have.
        unaligned: free devices near no NUMA node, which the others do not count since they cannot
            be aligned.
    """

    requested: int
    free: int | None
    on_one_node: int
    allocatable: int | None = None
    is_alone: bool = False
    reserved: int = 0
    unaligned: int = 0

    @property
    def is_too_little(self) -> bool:
        """Whether less is free than was asked for."""
        return self.free is not None and self.free < self.requested

    @property
    def is_lasting(self) -> bool:
        """Whether no other pod holds any of it, so that nobody's going can help."""
        return bool(self.allocatable) and (self.is_alone or self.allocatable == self.free)


def refusal_message(refusal: Refusal, numa_node_ids: Sequence[int] | None = None) -> str:
    """Return the cause of a refusal as a sentence that names resources and NUMA nodes.

    Of a refusal by the kubelet's own checks it is the kubelet's message.
    """
    if refusal.provider == KUBELET:
        return refusal.detail

    subject = "pod" if refusal.container is None else f"container {refusal.container!r}"
    if refusal.detail:
        return one_line(f"{subject}: {refusal.detail}")

    sentence = f"{subject} refused by policy {refusal.policy!r}: {cause(refusal, numa_node_ids)}"
    if refusal.best is not None and not refusal.best.exact:
        sentence += LIMIT_REACHED
    return one_line(sentence)


def kind_of(refusal: Refusal) -> tuple[str, list[Offer]]:
    """Return why the policy found no set of NUMA nodes good enough, and the offers to blame.

    `too little`: more than all that is free. `one node`: more than one NUMA node has. `spread`:
    more NUMA nodes than on an empty machine. `conflict`: no set of NUMA nodes suits all.
    """
    offers = _Offers(refusal)
    to_blame = offers.blamed()
    spread = [offer for offer in to_blame if offers.good(offer) == frozenset()]
    if impossible := [offer for offer in spread if offer.is_impossible]:
        return "too little", impossible
    if spread and refusal.policy == SINGLE:
        return "one node", spread
    if spread:
        return "spread", spread
    return "conflict", to_blame


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
    amounts_of = amounts or {}
    kind, offers = kind_of(refusal)
    names = [name for offer in offers for name in offer.resources]
    if kind == "too little":
        return too_little(names, accounts, amounts_of)

    views = []
    for offer in offers:
        resource = " and ".join(offer.resources)
        account = _joined_accounts(offer.resources, accounts)
        views.append(view_of(resource, offer.hints, numa_node_ids, account))

    if kind == "spread":
        needs = "; ".join(_spread(view, amounts_of.get(view.resource)) for view in views)
        return (
            f"{needs}; {refusal.policy} refuses a pod that would span more NUMA nodes than it "
            "needs on an empty machine"
        )

    if kind == "conflict":
        return _conflict(views, refusal.policy, amounts)

    lacking = _lacking_on_one_node(names, amounts_of)
    if len(lacking) == len(names):
        free_word = "" if all(amounts_of[name].is_alone for name in lacking) else " free"
        wishes = [
            f"{requested} {name}{free_word} (at most {free})"
            for name, (requested, free) in _in_one_unit(lacking).items()
        ]
        return f"no NUMA node has {_either(wishes)}; {SINGLE} needs one"

    parts = [
        _beyond_one(view, offer.resources, amounts_of)
        for view, offer in zip(views, offers, strict=True)
    ]
    return f"{'; '.join(parts)}; {SINGLE} needs one NUMA node for all"


def _joined_accounts(resources: Sequence[str], accounts: Mapping[str, str]) -> str:
    """Return the accounts of resources, with their names where there are several."""
    if len(resources) == 1:
        return accounts.get(resources[0], "")
    return "; ".join(f"{name}: {accounts[name]}" for name in resources if name in accounts)


def _lacking_on_one_node(
    names: Sequence[str], amounts: Mapping[str, Amounts]
) -> dict[str, tuple[int, int]]:
    """Return by resource what is requested and free, where no NUMA node has enough of it."""
    return {
        name: (amounts[name].requested, amounts[name].on_one_node)
        for name in names
        if name in amounts and amounts[name].on_one_node < amounts[name].requested
    }


def _spread(view: ResourceView, amounts: Amounts | None) -> str:
    """Return that a resource now takes more NUMA nodes than on an empty machine."""
    if amounts is None or amounts.on_one_node >= amounts.requested:
        return f"{view.resource} can now come only from {other_sets(view)}{_accounted(view)}"

    requested, free = _texts_of(view.resource, amounts.requested, amounts.on_one_node)
    needed = counted(len(view.other[0]), "NUMA node")
    verb = f"need{_ending(requested)}"
    return f"{requested} {view.resource} {verb} {needed} (at most {free} free on one)"


def _ending(amount: str) -> str:
    """Return the ending of a verb whose subject is an amount.

    It is "1 gpu needs" and "8Gi memory needs", but "2 gpu need".
    """
    return "" if amount.isdecimal() and amount != "1" else "s"


def _accounted(view: ResourceView) -> str:
    """Return the requested and free amounts in brackets, if they are known."""
    return f" ({view.account})" if view.account else ""


def too_little(
    names: Sequence[str], accounts: Mapping[str, str], amounts: Mapping[str, Amounts]
) -> str:
    """Return that more is asked for than is free.

    Both amounts are said where they tell it all, or else the accounts.
    """
    too_scarce = {
        name: amounts[name] for name in names if name in amounts and amounts[name].is_too_little
    }
    texts = _in_one_unit(
        {name: (scarce.requested, scarce.free or 0) for name, scarce in too_scarce.items()}
    )
    sentences = {}
    for name, scarce in too_scarce.items():
        requested, free = texts[name]
        sentences[name] = f"{requested} {name} asked, {_stock(name, scarce, free)}"

    tells_all = len(names) > 1 or (names[0] in too_scarce and too_scarce[names[0]].is_lasting)
    if too_scarce.keys() == set(names) and tells_all:
        sentence = "; ".join(sentences.values())
        if all(scarce.is_lasting for scarce in too_scarce.values()):
            return sentence
        return f"not enough is free: {sentence}"

    parts = []
    for name in dict.fromkeys(names):
        account = accounts.get(name, "")
        if name in sentences:
            account = sentences[name].replace(f" {name}", "", 1)

        parts.append(f"not enough {name} is free{f': {account}' if account else ''}")

    return "; ".join(parts)


def _stock(name: str, amounts: Amounts, free: str) -> str:
    """Return how much is free, or that the machine has no more, whoever goes."""
    unaligned = ""
    if amounts.unaligned:
        unaligned = (
            f" with a NUMA node (the device plugin reports none for {amounts.unaligned} more)"
        )
    if not amounts.is_lasting:
        return f"{free} free{unaligned}"

    free_amount = amounts.free or 0
    if amounts.allocatable and amounts.allocatable != amounts.free:
        taken = amounts.allocatable - free_amount
        taken_text, allocatable_text = _texts_of(name, taken, amounts.allocatable)
        return (
            f"the machine has {allocatable_text}, "
            f"of which the pod's other containers take {taken_text}"
        )

    if not amounts.reserved or is_device(name):
        return f"the machine has {free}{unaligned}"

    total = amounts.reserved + free_amount
    reserved_text, total_text = _texts_of(name, amounts.reserved, total)
    return f"the machine has {free} ({total_text} less {reserved_text} reserved)"


def _beyond_one(
    view: ResourceView, resources: Sequence[str], amounts: Mapping[str, Amounts]
) -> str:
    """Return that resources do not fit into any single NUMA node."""
    is_plural = len(resources) > 1
    verb, pronoun = ("do", "they") if is_plural else ("does", "it")
    sentence = f"{view.resource} {verb} not fit into one NUMA node"

    lacking = _lacking_on_one_node(resources, amounts)
    if not lacking:
        reasons = [view.account] if view.account else []
        if wider := preferred_sets(view) or other_sets(view):
            reasons.append(f"{pronoun} would take {wider}")
        return f"{sentence} ({'; '.join(reasons)})"

    parts = [
        f"{f'{name} ' if is_plural else ''}{requested} asked, at most {free} free on one"
        for name, (requested, free) in _in_one_unit(lacking).items()
    ]
    return f"{sentence}: {', '.join(parts)}"


def _in_one_unit(amounts: Mapping[str, tuple[int, int]]) -> dict[str, tuple[str, str]]:
    """Return by resource what is asked for and free, as text.

    All bytes are in one unit, other things are numbers.
    """
    unit = shared_unit(
        (requested, [free]) for name, (requested, free) in amounts.items() if is_pinned_memory(name)
    )
    texts = {}
    for name, (requested, free) in amounts.items():
        if is_pinned_memory(name):
            texts[name] = (amount_in(unit, requested, up=True), amount_in(unit, free))
        else:
            texts[name] = (str(requested), str(free))

    return texts


def _texts_of(name: str, requested: int, free: int) -> tuple[str, str]:
    """Return two amounts of one resource as text, in one unit."""
    return _in_one_unit({name: (requested, free)})[name]


def _conflict(
    views: Sequence[ResourceView], policy: str, amounts: Mapping[str, Amounts] | None
) -> str:
    """Return that no set of NUMA nodes suits all resources.

    Their accounts are said unless their amounts are given.
    """
    bound = [view for view in views if not view.anywhere]
    both = "both" if len(bound) == 2 else "all"  # noqa: PLR2004  # English has a word for two
    differ = len({len(nodes) for view in bound for nodes in view.preferred}) > 1
    rule = f"needs {both} on {'one NUMA node' if policy == SINGLE else 'the same NUMA nodes'}"
    parts = []
    for place, view in enumerate(bound):
        name = view.resource
        ending = "" if " and " in name else "s"
        if policy == SINGLE:
            single_nodes = listed([nodes for nodes in view.preferred if len(nodes) == 1])
            part = f"only on {single_nodes}" if place else f"fits only on {single_nodes}"
        elif differ and view.preferred:  # how many it takes says why, and which ones does not
            rule = f"refuses unless {both} need the same NUMA nodes"
            if amounts and name in amounts:
                amount, _ = _texts_of(name, amounts[name].requested, 0)
                ending = _ending(amount)
                name = f"{amount} {name}"

            part = f"need{ending} {counted(len(view.preferred[0]), 'NUMA node')}"
        else:
            part = f"prefer{ending} {preferred_sets(view)}"

        account = _accounted(view) if amounts is None else ""
        parts.append(f"{name} {part}{account}")

    return f"{', '.join(parts)}; {policy} {rule}"


def preferred_sets(view: ResourceView) -> str:
    """Return the sets of NUMA nodes that a resource prefers, as text."""
    return listed(view.preferred, view.preferred_count, is_whole=view.is_whole)


def other_sets(view: ResourceView) -> str:
    """Return the other sets of NUMA nodes that can supply a resource, as text."""
    return listed(view.other, view.other_count, is_whole=view.is_whole)


def listed(sets: Sequence[NodeSet], count: int = 0, *, is_whole: bool = True) -> str:
    """Return sets of nodes as text: the first `SHOWN`, then how many more there are.

    Args:
        sets: the first sets.
        count: how many there are; less than there are sets: no more than these.
        is_whole: False: there are more than `count`, nobody knows how many.
    """
    if not sets:
        return ""

    noun = "NUMA nodes" if len(sets[0]) > 1 else "NUMA node"
    texts = ["+".join(map(str, nodes)) for nodes in sets[:SHOWN]]
    more = max(count, len(sets)) - SHOWN
    if more > 0:
        texts.append(counted(more, "other") if is_whole else "others")

    return f"{noun} {_either(texts)}"


def _either(texts: Sequence[str]) -> str:
    """Return texts as alternatives: "a", "a or b", "a, b or c"."""
    *firsts, last = texts
    if not firsts:
        return last
    return f"{', '.join(firsts)} or {last}"


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
        if self.hints is None:
            return False
        return not any(
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
    """Return the mask of each of the first hints, and whether the hint is preferred.

    A mask that is None stands for any node.
    """
    if isinstance(hints, HintList):
        return hints.pairs(LOOKED_AT)
    return [
        (None if hint.affinity is None else int(hint.affinity), hint.preferred) for hint in hints
    ]


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
            hints_of = dict(sorted((resources or {}).items()))
            together = tuple(name for name in hints_of if self._families(name))
            if together:
                self.listed.append(Offer(together, hints_of[together[0]]))

            self.listed += [
                Offer((name,), hints) for name, hints in hints_of.items() if name not in together
            ]

        self.names = [name for offer in self.listed for name in offer.resources]

    def _families(self, name: str) -> Mapping[frozenset[str], Offered]:
        """Return the hints for fewer types of memory; empty for any other resource."""
        account = self._refusal.accounts.get(name)
        if not isinstance(account, MemoryAccount):
            return {}
        return account.families

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
            fewer = [needed_name for needed_name in needed if needed_name != name]
            if not self.can_agree(fewer):
                needed = fewer

        return self.cut(needed)

    def cut(self, names: Collection[str]) -> list[Offer]:
        """Return the offers as they would be if only these resources were requested."""
        offers = []
        for offer in self.listed:
            kept = tuple(name for name in offer.resources if name in names)
            if kept == offer.resources:
                offers.append(offer)
            elif kept:
                hints = self._families(kept[0]).get(frozenset(kept), offer.hints)
                offers.append(Offer(kept, hints))

        return offers

    def can_agree(self, names: Collection[str]) -> bool:
        """Return whether some mask would do for these resources."""
        masks = [self.good(offer) for offer in self.cut(names)]
        bounds = [good_masks for good_masks in masks if good_masks is not None]
        return not bounds or bool(reduce(frozenset.intersection, bounds))

    def good(self, offer: Offer) -> frozenset[int] | None:
        """Return what `Offer.good` does for the policy; None: any mask would do."""
        key = id(offer.hints)  # which the refusal keeps alive; two providers may use one name
        if key not in self._good:
            self._good[key] = offer.good(self._refusal.policy)

        return self._good[key]
