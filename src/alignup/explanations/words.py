"""Writes the tables of an explanation as rows of text, for a terminal and for a page alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.records import replace
from alignup.text.counting import amount_in, named, shared_unit, short_bytes, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from alignup.explanations.explanation import (
        ContainerPart,
        Explanation,
        PlacePart,
        ResourcePart,
        Step,
    )
    from alignup.node.holdings import MemoryGroup

RESOURCE_COLUMNS: Final = (
    "resource",
    "asked",
    "offered",
    "NUMA node",
    "there",
    "reserved",
    "free",
    "held by",
)
RESOURCE_NUMBERS: Final = ("asked", "there", "reserved", "free")
NEIGHBOUR_COLUMNS: Final = ("admitted already", "NUMA nodes", "CPUs", "memory", "devices")
MOST_HOLDERS: Final = 4
MOST_NEIGHBOURS: Final = 20
MOST_SETS: Final = 4


def resource_rows(
    resources: Iterable[ResourcePart], first: Container[str]
) -> Iterator[tuple[str, ...]]:
    """Yield what was asked for, which nodes were offered, and what was there by NUMA node and who held it.

    `first` are pods that are named before others.
    """
    for one in resources:
        words = amounts_in_words(one)
        cells = (one.resource, "" if one.asked is None else words(one.asked), offered_in_words(one))
        for names, place in _equal_places(one.places):
            reserved = words(place.reserved) if place.reserved else "-"
            yield (
                *cells, names, words(place.capacity), reserved, words(place.free),
                _holders_in_words(place, words, first),
            )  # fmt: skip
            cells = ("", "", "")

        if not one.places:
            yield (*cells, "", "", "", "", "")


def _equal_places(places: Iterable[PlacePart]) -> list[tuple[str, PlacePart]]:
    """Return the places that have any of it, equal ones once, with their names; `0+1` is one place near two nodes."""
    names: dict[tuple[bool, PlacePart], list[str]] = {}
    for place in places:
        if place.capacity:
            key = bool(place.numa_nodes), replace(place, numa_nodes=())
            names.setdefault(key, []).append("+".join(map(str, place.numa_nodes)))
    return [
        (f"{'each of ' if len(some) > 1 else ''}{', '.join(some)}" if is_near else "none", place)
        for (is_near, place), some in names.items()
    ]


def amounts_in_words(resource: ResourcePart) -> Callable[[int], str]:
    """Return a function that writes amounts of a resource, bytes in one unit unless that is too large for them."""
    if resource.unit != "bytes":
        return str
    unit = shared_unit([(resource.asked or 0, [place.free for place in resource.places])])
    return lambda amount: (
        short_bytes(amount) if amount * 100 < unit.size else amount_in(unit, amount)
    )


def offered_in_words(resource: ResourcePart) -> str:
    """Return the sets of NUMA nodes that a resource was offered on."""
    seen = resource.offered
    if seen is None:
        return "" if resource.places else "not pinned to NUMA nodes here"
    if seen.anywhere:
        return "any"
    if seen.is_impossible:
        return "none"

    parts = []
    for sets, count, note in (
        (seen.preferred, seen.preferred_count, ""),
        (seen.other, seen.other_count, " (not preferred)"),
    ):
        if sets:
            names = " or ".join("+".join(map(str, nodes)) for nodes in sets[:MOST_SETS])
            more = f" or {count - MOST_SETS} more" if seen.is_whole else " or others"
            parts.append(f"{names}{more if count > MOST_SETS else ''}{note}")

    return "; ".join(parts)


def _holders_in_words(place: PlacePart, words: Callable[[int], str], first: Container[str]) -> str:
    """Return who holds some of a resource in one place; what a container took over is marked, so that sums add up."""
    shown = []
    holders = sorted(place.holders, key=lambda one: one.pod not in first)
    for one in holders[: max(MOST_HOLDERS, sum(one.pod in first for one in holders))]:
        reused = f" ({words(one.reused)} of them reused)" if 0 < one.reused < one.amount else ""
        reused = " (reused)" if one.reused == one.amount else reused
        shown.append(f"{one.pod}/{one.container} {words(one.amount)}{reused}")
    more = len(holders) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more > 0 else "") or "-"


def nodes_in_short(nodes: Iterable[int] | None) -> str:
    """Return a set of NUMA nodes in few words; None: any."""
    return "any NUMA node" if nodes is None else named("NUMA node", nodes)


def hint_in_words(nodes: Iterable[int] | None, *, preferred: bool) -> str:
    """Return a hint in few words."""
    return f"{nodes_in_short(nodes)}{'' if preferred else ' (not preferred)'}"


def in_common(step: Step) -> str:
    """Return the results that the merge could reach.

    Empty where nothing was merged, where there are too many, and where a resource was offered on no
    NUMA node: a merge takes such a resource for one of any node, and nobody else does.
    """
    if step.best is None or step.reachable is None:
        return ""
    if any(one.offered is not None and one.offered.is_impossible for one in step.resources):
        return ""

    nodes = (
        "any" if one.numa_nodes is None else "+".join(map(str, one.numa_nodes))
        for one in step.reachable
    )
    sets = [
        f"{name}{' (preferred)' if one.preferred else ''}"
        for name, one in zip(nodes, step.reachable, strict=True)
    ]
    more = (step.reachable_count or 0) - MOST_SETS
    return "; ".join(sets[:MOST_SETS]) + (f"; {more} more" if more > 0 else "") or "nothing"


def group_in_words(group: MemoryGroup) -> str:
    """Return which NUMA nodes memory binds together, and whose memory it is."""
    some = some_of(group.pods, MOST_HOLDERS)
    holders = f"the memory of {some}" if some else "a binding that a removed pod left behind"
    if len(group.numa_nodes) == 1:
        return (
            f"NUMA node {group.numa_nodes[0]} is not combined with others for memory, because "
            f"of {holders}"
        )

    names = "+".join(map(str, group.numa_nodes))
    if group.usable:
        return f"NUMA nodes {names} supply memory only together, because of {holders}"

    return (
        f"NUMA nodes {names} can no longer supply memory together, although they are still "
        f"tied by {holders}"
    )


def container_columns(explanation: Explanation) -> tuple[str, str, str, str]:
    """Return the headings of `container_rows`."""
    return (
        "container",
        "CPUs",
        "got" if explanation else "allocated, then taken back",
        "better placement missed",
    )


def container_rows(
    explanation: Explanation, containers: Sequence[ContainerPart]
) -> Iterator[tuple[str, ...]]:
    """Yield where the CPUs of some containers come from, and what each got or missed."""
    for one in containers:
        name = one.name if one.kind == "container" else f"{one.name} ({one.kind})"
        cpus = (
            f"shared pool: {one.shared_because}"
            if one.shared_because
            else f"{one.exclusive_cpus} exclusive"
        )
        yield name, cpus, _got_in_words(one, explanation), one.missed or "-"


def _got_in_words(container: ContainerPart, explanation: Explanation) -> str:
    """Return what a container was given, one thing a line."""
    got = container.got
    if got is None:
        return "-"

    ids = explanation.before.numa_node_ids
    lines = []
    if got.affinity is not None and got.affinity.affinity is not None:
        nodes = (ids[bit] for bit in got.affinity.affinity.bits())
        lines.append(hint_in_words(nodes, preferred=got.affinity.preferred))

    if got.cpus is not None:
        lines.append(f"CPUs {got.cpus}")

    shares = [one for one in got.memory if one.size]
    lines += [
        f"{one.type} {short_bytes(one.size)} on {nodes_in_short(one.numa_nodes)}" for one in shares
    ]
    lines += [
        f"{resource} {','.join(found)}" for resource, found in sorted(got.devices.items()) if found
    ]
    return "\n".join(lines) or "-"


def neighbour_rows(explanation: Explanation) -> Iterator[tuple[str, ...]]:
    """Yield what the containers of the first pods hold that are admitted already."""
    for one in explanation.neighbours[:MOST_NEIGHBOURS]:
        nodes = {
            node for node, bits in explanation.before.node_cpus.items() if bits & int(one.cpus or 0)
        }
        nodes |= {node for _, node, _ in one.blocks}
        yield one.label, ",".join(map(str, sorted(nodes))) or "-", *one.cells()
