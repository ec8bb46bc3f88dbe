"""The pools of devices that a node reaches, in the order in which the scheduler tries them.

And which devices of a counter set of theirs go together (gate DRADeviceCompatibilityGroups, alpha):
they must all declare a group in common. Those that declare none go with one another, and with none
that declares some. The allocator keeps the groups that are left while it searches. As all devices
of a counter set have a group in common in the end, one search for each choice of groups, among the
devices of these groups alone, finds the same solutions; the allocator's own is the first of them.

Sources: `GatherPools` and `compatibilityGroupIntersection` in `structured/internal`, `stable`,
`incubating` and `experimental`.
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace as changed

from alignup.kubernetes.node_fit import FIELD_NAME, meets
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from alignup.claims.objects import Device, NodeSelector, Slice, Term
    from alignup.claims.scheduler_gates import Gates
    from alignup.kubernetes.node_fit import NodeObject

# The place of a pool, and the name of a counter set of it.
CounterSetKey = tuple[int, str]
Choice = dict[CounterSetKey, str | None]

# Stands for the group of devices that declare none; no group has such a name.
NO_GROUP: Final = ""
MOST_CHOICES: Final = 512


class PoolOnNode(Record):
    """A pool as one node sees it.

    Attributes:
        invalid: why it is invalid; empty: it is not.
        slices: those with devices for the node.
        elsewhere: those for other nodes, whose devices take from the same counters.
        counters: counter set, counter and value.
    """

    driver: str
    name: str
    is_incomplete: bool = False
    invalid: str = ""
    slices: tuple[Slice, ...] = ()
    elsewhere: tuple[Slice, ...] = ()
    counters: tuple[tuple[str, str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


def gather_pools(slices: Sequence[Slice], node: NodeObject, gates: Gates) -> list[PoolOnNode]:
    """Return the pools that a node reaches, in order."""
    is_stable = gates.is_simple

    def is_hoisted(part: Slice) -> bool:
        return gates.is_before_37 and bool(part.shared_counters)

    # the node's own slices come first; 1.36 takes the counters of a pool wherever they are
    ordered = slices
    if not is_stable:
        ordered = sorted(slices, key=lambda part: not part.node_name or is_hoisted(part))

    by_pool: dict[tuple[str, str], list[Slice]] = {}
    for part in ordered:
        if _is_hidden(part, gates) or not _is_near(
            part, node, is_stable=is_stable, is_old=gates.is_before_37
        ):
            continue

        parts = by_pool.setdefault((part.driver, part.pool.name), [])
        if parts and part.pool.generation < parts[0].pool.generation:
            continue
        if parts and part.pool.generation > parts[0].pool.generation:
            parts.clear()

        parts.append(part)

    pools = []
    for key, parts in by_pool.items():
        pool = _pool(key, parts, slices, gates)
        if pool is not None:
            pools.append(pool)

    if not is_stable:
        pools.sort(key=lambda pool: (_binds(pool), pool.driver.encode(), pool.name.encode()))

    return pools


def _is_hidden(part: Slice, gates: Gates) -> bool:
    is_partitioned = part.per_device_node_selection is not None or bool(part.shared_counters)
    if is_partitioned and not gates.partitionable_devices:
        return True

    return _has_unknown_groups(part, gates)


def _has_unknown_groups(part: Slice, gates: Gates) -> bool:
    """Return whether the allocator passes over a slice for the groups of its devices."""
    if gates.is_before_37 or gates.compatibility_groups:
        return False
    return part.uses_compatibility_groups


def _is_near(part: Slice, node: NodeObject, *, is_stable: bool, is_old: bool) -> bool:
    if (is_stable or is_old) and part.shared_counters:
        return True
    if part.node_name or part.all_nodes or part.node_selector is not None:
        return is_for(part, node)
    if not part.per_device_node_selection:
        return False

    return any(is_for(device, node) for device in part.devices)


def _pool(
    key: tuple[str, str], near: list[Slice], slices: Sequence[Slice], gates: Gates
) -> PoolOnNode | None:
    """Return a pool of the slices that the node sees; None: a newer generation takes its place."""
    generation = near[0].pool.generation
    slice_count = near[0].pool.resource_slice_count
    whole = near
    if len(near) != slice_count:
        of_pool = [part for part in slices if (part.driver, part.pool.name) == key]
        if any(part.pool.generation > generation for part in of_pool):
            return None

        whole = [part for part in of_pool if part.pool.generation == generation]
        whole = [part for part in whole if not _has_unknown_groups(part, gates)]
        if len(whole) != slice_count:
            return PoolOnNode(*key, is_incomplete=True)

    if not gates.is_simple:
        near = sorted(near, key=lambda part: part.name.encode())

    far: list[Slice] = []
    if len(near) < len(whole):
        near_names = {part.name for part in near}
        far = [part for part in whole if part.name not in near_names]

    splits = gates.partitionable_devices
    with_devices = tuple(part for part in near if not (splits and part.shared_counters))
    elsewhere = tuple(part for part in far if not (splits and part.shared_counters))
    counters: dict[str, dict[str, int]] = {}
    invalid = ""
    if splits:
        counters, invalid = _counters((*near, *far), with_devices, elsewhere)

    twice = _first_twice(device.name for part in with_devices for device in part.devices)
    if twice:
        invalid = f"duplicate device name {twice}"
    if invalid:
        return PoolOnNode(*key, invalid=invalid)

    values = tuple(
        (counter_set, name, value)
        for counter_set, by_name in counters.items()
        for name, value in by_name.items()
    )
    return PoolOnNode(*key, slices=with_devices, elsewhere=elsewhere, counters=values)


def _first_twice(names: Iterable[str]) -> str:
    """Return the first name that comes a second time; empty: none does."""
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            return name

        earlier.add(name)

    return ""


def _counters(
    slices: tuple[Slice, ...], with_devices: tuple[Slice, ...], elsewhere: tuple[Slice, ...]
) -> tuple[dict[str, dict[str, int]], str]:
    """Return the counters of a pool by set, and what is wrong with them or their use, or nothing.

    Args:
        slices: all of the pool.
        with_devices: those with devices for the node.
        elsewhere: those with devices for other nodes.
    """
    counter_sets = [counter_set for part in slices for counter_set in part.shared_counters]
    twice = _first_twice(counter_set.name for counter_set in counter_sets)
    if twice:
        return {}, f"duplicate counter set name {twice}"

    counters: dict[str, dict[str, int]] = {}
    for counter_set in counter_sets:
        counters[counter_set.name] = {
            name: counter.value for name, counter in counter_set.counters.items()
        }

    devices = [device for part in (*with_devices, *elsewhere) for device in part.devices]
    for use in (use for device in devices for use in device.consumes_counters):
        if use.counter_set not in counters:
            return {}, f"counter set {use.counter_set} not found"

        missing = use.counters.keys() - counters[use.counter_set].keys()
        if missing:
            return {}, f"counter {min(missing)} not found in counter set {use.counter_set}"

    return counters, ""


def _binds(pool: PoolOnNode) -> bool:
    devices = (device for part in pool.slices for device in part.devices)
    return any(device.binding_conditions is not None for device in devices)


def is_for(owner: Slice | Device, node: NodeObject) -> bool:
    """Return whether a slice, or a device that selects nodes itself, is for a node."""
    if owner.node_name:
        return owner.node_name == node.name
    if owner.all_nodes:
        return True

    return owner.node_selector is not None and selects(owner.node_selector, node)


def selects(selector: NodeSelector, node: NodeObject) -> bool:
    """Return whether a selector matches a node."""
    return any(_holds(term, node) for term in selector.node_selector_terms)


def _holds(term: Term, node: NodeObject) -> bool:
    """Return whether a term has conditions, and a node meets them all."""
    if not term.match_expressions and not term.match_fields:
        return False

    for label in term.match_expressions:
        if not meets(node.labels.get(label.key), label.operator, label.values):
            return False

    for node_field in term.match_fields:
        if node_field.key != FIELD_NAME:
            return False
        if not meets(node.name, node_field.operator, node_field.values):
            return False

    return True


def groups_of(place: int, device: Device) -> dict[CounterSetKey, frozenset[str]]:
    """Return the groups of a device by the counter sets that it takes from.

    Args:
        place: of its pool.
        device: the device.
    """
    return {
        (place, use.counter_set): frozenset(use.compatibility_groups or (NO_GROUP,))
        for use in device.consumes_counters
    }


def choices_of(
    devices: Iterable[tuple[int, Device]], used_devices: Iterable[tuple[int, Device]]
) -> Iterator[Choice]:
    """Yield the groups that the devices of counter sets may have in common, by counter set.

    None: no device of the counter set is to be had any more. Choices that come after one more than
    `MOST_CHOICES` are left out.

    Args:
        devices: those that may be allocated, each with the place of its pool.
        used_devices: those that claims have.
    """
    offered: dict[CounterSetKey, dict[str, None]] = {}
    for place, device in devices:
        for key, groups in groups_of(place, device).items():
            offered.setdefault(key, {}).update(dict.fromkeys(sorted(groups)))

    left = _left_by(used_devices)
    chosen: dict[CounterSetKey, list[str | None]] = {
        key: [*(group for group in groups if group in left.get(key, groups))] or [None]
        for key, groups in offered.items()
        if key in left or list(groups) != [NO_GROUP]
    }
    for common_groups in islice(product(*chosen.values()), MOST_CHOICES + 1):
        yield dict(zip(chosen, common_groups, strict=True))


def _left_by(used_devices: Iterable[tuple[int, Device]]) -> dict[CounterSetKey, frozenset[str]]:
    """Return by counter set which groups the devices that claims have leave to others.

    Without the gate some may have come together that would not go together now.
    """
    left: dict[CounterSetKey, frozenset[str]] = {}
    for place, device in used_devices:
        for key, groups in groups_of(place, device).items():
            earlier = left.get(key)
            if earlier is None:
                left[key] = groups
            elif NO_GROUP not in earlier and NO_GROUP not in groups:
                left[key] = earlier & groups

    return left


def is_refused(place: int, device: Device, choice: Choice) -> bool:
    """Return whether a device lacks a group that was chosen for a counter set of it."""
    return any(
        key in choice and choice[key] not in groups
        for key, groups in groups_of(place, device).items()
    )


def without_groups(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """Return slices with devices that declare no groups."""
    return tuple(
        changed(part, devices=tuple(map(_without_groups, part.devices))) for part in slices
    )


def _without_groups(device: Device) -> Device:
    uses = (changed(use, compatibility_groups=None) for use in device.consumes_counters)
    return changed(device, consumes_counters=tuple(uses))
