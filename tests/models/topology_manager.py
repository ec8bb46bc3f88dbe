"""The obvious code of the Topology Manager.

Its merge is a literal walk of the product, and hints are found by enumeration.

Written for reading, used by tests and benchmarks only, and never shipped. Masks are ints, a hint is
a pair (mask or None for any node, preferred), and nothing here is clever. Tests call `merged`,
which asks both the product and the compiled merge, and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
from alignup.topology_manager.policy import make_policy

Hint = tuple[int | None, bool]
Distances = Sequence[Sequence[int]]
Demand = tuple[Sequence[int] | None, Sequence[int], int]


def lists_of(providers: Iterable[Mapping[str, Any] | None]) -> list[list[Hint]]:
    """Return a list of hints for each resource.

    It has what nothing and too little mean to a merge.
    """
    lists: list[list[Hint]] = []
    for resources in providers:
        if not resources:
            lists.append([(None, True)])
            continue
        for hints in resources.values():
            if hints is None:
                lists.append([(None, True)])
            else:
                lists.append([pair(hint) for hint in hints] or [(None, False)])
    return lists


def pair(hint: TopologyHint) -> Hint:
    return None if hint.affinity is None else int(hint.affinity), hint.preferred


def nodes_of(mask: int) -> list[int]:
    return [node for node in range(mask.bit_length()) if mask >> node & 1]


def merged_permutation(permutation: Sequence[Hint], every_node: int) -> tuple[int, bool]:
    """Return what one hint of each list comes down to."""
    masks = [mask for mask, _ in permutation if mask is not None]
    common = every_node
    for mask in masks:
        common &= mask
    return common, all(preferred for _, preferred in permutation) and len(set(masks)) <= 1


def is_fitter(mask: int, rival: int, distances: Distances | None) -> bool:
    """Return whether a mask is smaller, else (when given) nearer in itself, else lower."""
    if mask.bit_count() != rival.bit_count():
        return mask.bit_count() < rival.bit_count()
    if distances is not None and apart(mask, distances) != apart(rival, distances):
        return apart(mask, distances) < apart(rival, distances)
    return mask < rival


def apart(mask: int, distances: Distances) -> int:
    """Return the sum of distances between the nodes of a mask.

    Among masks of one size as good as a mean.
    """
    return sum(distances[a][b] for a in nodes_of(mask) for b in nodes_of(mask))


def is_better(
    new: tuple[int, bool], best: tuple[int, bool], target_size: int, distances: Distances | None
) -> bool:
    """Return whether a result replaces the best one so far.

    `target_size` is the size to come near to.
    """
    (mask, preferred), (best_mask, best_preferred) = new, best
    if preferred != best_preferred:
        return preferred
    size, best_size = mask.bit_count(), best_mask.bit_count()
    if preferred or size == best_size:
        return is_fitter(mask, best_mask, distances)
    if size <= target_size and best_size <= target_size:
        return size > best_size
    return size < best_size


def best_of_product(
    lists: Sequence[Sequence[Hint]], numa_nodes: int, distances: Distances | None = None
) -> tuple[int, bool]:
    """Return the best result of all permutations: one hint of each list, in every combination."""
    every_node = (1 << numa_nodes) - 1
    best = None
    target_size = wanted_size(lists)
    for permutation in product(*lists):
        new = merged_permutation(permutation, every_node)
        if new[0] and (best is None or is_better(new, best, target_size, distances)):
            best = new
    return best or (every_node, False)


def wanted_size(lists: Sequence[Sequence[Hint]]) -> int:
    """Return the largest of the lists' smallest sizes."""
    sizes = [[mask.bit_count() for mask, _ in hints if mask is not None] for hints in lists]
    return max((min(list_sizes) for list_sizes in sizes if list_sizes), default=0)


def best_of_folding(
    lists: Sequence[Sequence[Hint]], numa_nodes: int, distances: Distances | None = None
) -> tuple[int, bool]:
    """Return the same as `best_of_product` where the product is too long to walk.

    The tests compare the two.

    Preferred results are masks that every list prefers. All others are what sets of masks come to,
    list by list: permutations that have the same nodes in common need not be told apart.
    """
    every_node = (1 << numa_nodes) - 1
    sets = [set(hints) for hints in lists]
    named = {mask for hints in lists for mask, preferred in hints if preferred} | {None}
    best = None
    for mask in named:
        if all((mask, True) in hints or (None, True) in hints for hints in sets):
            new = (every_node if mask is None else every_node & mask, True)
            if new[0] and (best is None or is_better(new, best, 0, distances)):
                best = new

    if best:
        return best

    reached = {every_node}
    for hints in lists:
        masks = {every_node if mask is None else mask for mask, _ in hints}
        reached = {common & mask for common in reached for mask in masks}

    target_size = wanted_size(lists)
    for common in reached - {0}:
        if best is None or is_better((common, False), best, target_size, distances):
            best = common, False

    return best or (every_node, False)


def single_nodes(lists: Iterable[Iterable[Hint]]) -> list[list[Hint]]:
    """Return the preferred hints of one node or of any node."""
    return [
        [
            (mask, preferred)
            for mask, preferred in hints
            if preferred and (mask is None or mask.bit_count() == 1)
        ]
        for hints in lists
    ]


def merge(
    policy: str,
    numa_nodes: int,
    providers: Iterable[Mapping[str, Any] | None],
    distances: Distances | None = None,
    best_of: Any = best_of_product,
) -> tuple[int | None, bool, bool]:
    """Return the mask (None: any node), whether it is preferred, and whether the policy admits.

    `distances` mean prefer-closest-numa-nodes. `best_of` is one of the two functions above.
    """
    if policy == "none":
        return None, False, True

    lists = lists_of(providers)
    if policy == "single-numa-node":
        mask, preferred = best_of(single_nodes(lists), numa_nodes)
        return None if mask == (1 << numa_nodes) - 1 else mask, preferred, preferred

    mask, preferred = best_of(lists, numa_nodes, distances)
    return mask, preferred, preferred or policy == "best-effort"


def hint_list(pairs: Iterable[Hint] | None) -> list[TopologyHint] | None:
    """Return the hints that pairs stand for."""
    if pairs is None:
        return None
    return [
        TopologyHint(None if mask is None else BitMask.from_int(mask), preferred)
        for mask, preferred in pairs
    ]


def compiled(
    policy: str,
    numa_nodes: int,
    providers: Sequence[Mapping[str, Any] | None],
    distances: Distances | None = None,
) -> tuple[int | None, bool, bool]:
    """Return what the compiled merge says, in the form of `merge`."""
    options = {"max-allowable-numa-nodes": "64"}
    if distances is not None:
        options["prefer-closest-numa-nodes"] = "true"
    best, admit = make_policy(policy, numa_nodes, distances, options).merge(providers)
    return None if best.affinity is None else int(best.affinity), best.preferred, admit


def merged(
    policy: str,
    numa_nodes: int,
    providers: Sequence[Mapping[str, Any] | None],
    distances: Distances | None = None,
    best_of: Any = best_of_product,
) -> tuple[int | None, bool, bool]:
    """Return what the compiled merge and the model both say; a test fails where they differ."""
    got = compiled(policy, numa_nodes, providers, distances)

    assert got == merge(policy, numa_nodes, providers, distances, best_of)
    return got


def merged_lists(
    policy: str,
    numa_nodes: int,
    lists: Iterable[Sequence[Hint]],
    distances: Distances | None = None,
) -> tuple[int | None, bool, bool]:
    """Return the same for lists of pairs, each from a provider of its own."""
    return merged(
        policy, numa_nodes, [{"resource": hint_list(hints)} for hints in lists], distances
    )


def holds(mask: int, demands: Iterable[Demand]) -> bool:
    """Return whether the amounts that a mask touches are enough for every demand."""
    for places, amounts, request in demands:
        near = places if places is not None else [1 << node for node in range(len(amounts))]
        if (
            sum(amount for place, amount in zip(near, amounts, strict=True) if place & mask)
            < request
        ):
            return False
    return True


def feasible(
    numa_nodes: int,
    demands: Sequence[Demand],
    *,
    universe: int,
    preferred_size: int,
    touching: Sequence[int] = (),
    sockets: Sequence[int] = (),
    preferred_sockets: int = -1,
    alone: int = 0,
    groups: Sequence[int] = (),
    extra: Sequence[int] = (),
) -> list[Hint]:
    """Return what `feasible_hints` should find, narrowest first.

    Every mask there is is looked at.
    """
    hints = []
    for mask in range(1, 1 << numa_nodes):
        free = not mask & ~universe
        shaped = free or (mask.bit_count() == 1 and mask & alone) or mask in groups
        accepted = shaped and holds(mask, demands) and all(mask & place for place in touching)
        if accepted or mask in extra:
            touched = sum(1 for socket in sockets if socket & mask)
            hints.append((mask, mask.bit_count() == preferred_size or touched == preferred_sockets))

    return sorted(hints, key=lambda hint: (hint[0].bit_count(), hint[0]))


def smallest(numa_nodes: int, demands: Sequence[Demand], universe: int) -> int:
    """Return the size of the smallest subset of `universe` that holds every demand.

    It is 0 if none does.
    """
    sizes = [
        mask.bit_count()
        for mask in range(1, 1 << numa_nodes)
        if not mask & ~universe and holds(mask, demands)
    ]
    return min(sizes, default=0)


def unpacked(hints: HintList) -> list[Hint]:
    """Return the hints of a list as pairs, through its public face."""
    return [pair(hint) for hint in hints]
