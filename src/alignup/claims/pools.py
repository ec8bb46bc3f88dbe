"""The pools of devices that a node reaches, in the order in which the scheduler tries them.

Source: `GatherPools` in `structured/internal/incubating` and `stable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.kubernetes.node_fit import FIELD_NAME, meets
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from alignup.claims.objects import Device, NodeSelector, Slice
    from alignup.claims.scheduler_gates import Gates
    from alignup.kubernetes.node_fit import NodeObject


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
    is_stable = gates.allocator == "stable"

    def is_hoisted(one: Slice) -> bool:
        return gates.is_before_37 and bool(one.shared_counters)

    # the node's own slices come first; 1.36 takes the counters of a pool wherever they are
    near = (
        slices
        if is_stable
        else sorted(slices, key=lambda one: not one.node_name or is_hoisted(one))
    )
    found: dict[tuple[str, str], list[Slice]] = {}
    for one in near:
        if _is_hidden(one, gates) or not _is_near(
            one, node, is_stable=is_stable, is_old=gates.is_before_37
        ):
            continue

        parts = found.setdefault((one.driver, one.pool.name), [])
        if parts and one.pool.generation < parts[0].pool.generation:
            continue
        if parts and one.pool.generation > parts[0].pool.generation:
            parts.clear()
        parts.append(one)

    pools = [
        pool
        for key, parts in found.items()
        if (pool := _pool(key, parts, slices, gates)) is not None
    ]
    if not is_stable:
        pools.sort(key=lambda pool: (_binds(pool), pool.driver.encode(), pool.name.encode()))

    return pools


def _is_hidden(one: Slice, gates: Gates) -> bool:
    if not gates.partitionable_devices and (
        one.per_device_node_selection is not None or one.shared_counters
    ):
        return True
    return one.uses_compatibility_groups and not gates.is_before_37


def _is_near(one: Slice, node: NodeObject, *, is_stable: bool, is_old: bool) -> bool:
    if (is_stable or is_old) and one.shared_counters:
        return True
    if one.node_name or one.all_nodes or one.node_selector is not None:
        return is_for(one, node)
    return bool(one.per_device_node_selection) and any(
        is_for(device, node) for device in one.devices
    )


def _pool(
    key: tuple[str, str], near: list[Slice], slices: Sequence[Slice], gates: Gates
) -> PoolOnNode | None:
    """Return a pool of the slices that the node sees; None: a newer generation takes its place."""
    generation, wanted = near[0].pool.generation, near[0].pool.resource_slice_count
    whole = near
    if len(near) != wanted:
        mine = [one for one in slices if (one.driver, one.pool.name) == key]
        if any(one.pool.generation > generation for one in mine):
            return None
        whole = [one for one in mine if one.pool.generation == generation]
        if not gates.is_before_37:
            whole = [one for one in whole if not one.uses_compatibility_groups]
        if len(whole) != wanted:
            return PoolOnNode(*key, is_incomplete=True)

    if gates.allocator != "stable":
        near = sorted(near, key=lambda one: one.name.encode())

    names = {one.name for one in near}
    far = [one for one in whole if one.name not in names] if len(near) < len(whole) else []
    splits = gates.partitionable_devices
    here = tuple(one for one in near if not (splits and one.shared_counters))
    elsewhere = tuple(one for one in far if not (splits and one.shared_counters))
    counters, invalid = _counters((*near, *far), here, elsewhere) if splits else ({}, "")
    twice = _first_twice(device.name for one in here for device in one.devices)
    invalid = f"duplicate device name {twice}" if twice else invalid
    if invalid:
        return PoolOnNode(*key, invalid=invalid)

    flat = tuple(
        (shared, name, value)
        for shared, values in counters.items()
        for name, value in values.items()
    )
    return PoolOnNode(*key, slices=here, elsewhere=elsewhere, counters=flat)


def _first_twice(names: Iterable[str]) -> str:
    """Return the first name that comes a second time; empty: none does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _counters(
    slices: tuple[Slice, ...], here: tuple[Slice, ...], elsewhere: tuple[Slice, ...]
) -> tuple[dict[str, dict[str, int]], str]:
    """Return the counters of a pool by set, and what is wrong with them or their use; empty: nothing."""
    shared = [one for part in slices for one in part.shared_counters]
    if twice := _first_twice(one.name for one in shared):
        return {}, f"duplicate counter set name {twice}"

    counters: dict[str, dict[str, int]] = {
        one.name: {name: counter.value for name, counter in one.counters.items()} for one in shared
    }
    for use in [
        use
        for one in (*here, *elsewhere)
        for device in one.devices
        for use in device.consumes_counters
    ]:
        if use.counter_set not in counters:
            return {}, f"counter set {use.counter_set} not found"
        if missing := use.counters.keys() - counters[use.counter_set].keys():
            return {}, f"counter {min(missing)} not found in counter set {use.counter_set}"

    return counters, ""


def _binds(pool: PoolOnNode) -> bool:
    return any(
        device.binding_conditions is not None for one in pool.slices for device in one.devices
    )


def is_for(owner: Slice | Device, node: NodeObject) -> bool:
    """Return whether a slice, or a device that selects nodes itself, is for a node."""
    if owner.node_name:
        return owner.node_name == node.name
    return owner.all_nodes or (
        owner.node_selector is not None and selects(owner.node_selector, node)
    )


def selects(selector: NodeSelector, node: NodeObject) -> bool:
    """Return whether a selector matches a node."""
    return any(
        all(
            meets(node.labels.get(one.key), one.operator, one.values)
            for one in term.match_expressions
        )
        and all(
            one.key == FIELD_NAME and meets(node.name, one.operator, one.values)
            for one in term.match_fields
        )
        for term in selector.node_selector_terms
        if term.match_expressions or term.match_fields
    )
