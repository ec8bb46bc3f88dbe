"""Draws in characters what the NUMA nodes of a machine have of what a pod asked for, and who holds the rest."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from alignup.cli.terminal import Table, can_write, fits, print_whole, safe
from alignup.explanations.words import amounts_in_words
from alignup.machine.cpuset import CPUSet
from alignup.records import replace
from alignup.text.counting import counted, named, some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.cli.terminal import Console
    from alignup.explanations.explanation import Explanation, PlacePart, ResourcePart

# In a bar; of more units a square stands for several.
MOST_SQUARES: Final = 8
# Columns that the picture takes where there are more.
WIDEST: Final = 120
# Of more NUMA nodes, those that are alike share one.
MOST_COLUMNS: Final = 4
MOST_PODS: Final = 2
USED: Final = "■"
FREE: Final = "□"


def show_nodes(console: Console, explanation: Explanation) -> None:
    """Print a row for each resource that was asked for, with a column for NUMA nodes that have the same of all.

    Where the console is too narrow, it goes without the holders, without bars, and without the nodes where least is
    free, in this order; these are counted.
    """
    resources = [one for one in explanation.resources if any(place.capacity for place in one.places)]
    columns = _columns(resources)
    if not columns:
        return
    shown = sorted(columns, key=lambda places: -sum(place.free / (place.capacity or 1) for place in places if place))
    bars = (True, False) if can_write(console, USED) else (False,)
    for count, has_bars, has_holders in product(range(len(columns), 0, -1), bars, (True, False)):
        some = {places: heading for places, heading in columns.items() if places in shown[:count]}
        table = _table(explanation, resources, some, has_bars=has_bars, has_holders=has_holders)
        if fits(console, table, WIDEST):
            break
    print_whole(console, table, below=True)
    if count < len(columns):
        console.print(f"{counted(len(columns) - count, 'more column')} of NUMA nodes, where less is free")


def _columns(resources: Sequence[ResourcePart]) -> dict[tuple[PlacePart | None, ...], str]:
    """Return by what NUMA nodes have of the resources how these nodes are called.

    Of many nodes, those that have the same share a column. Devices near several nodes, or near none, have their own.
    """
    names: dict[tuple[PlacePart | None, ...], list[int]] = {}
    own = {}
    nodes = sorted({place.numa_nodes for one in resources for place in one.places if place.capacity})
    for where in nodes:
        places = tuple(next((one for one in part.places if one.numa_nodes == where), None) for part in resources)
        if len(where) == 1 and len(nodes) > MOST_COLUMNS:
            alike = tuple(one and replace(one, numa_nodes=(), holders=()) for one in places)
            names.setdefault(alike, []).append(where[0])
        else:
            own[places] = named("node" if len(where) == 1 else "near node", where) if where else "near no node"
    return {places: f"node{'s' * (len(alike) > 1)} {CPUSet(alike)}" for places, alike in names.items()} | own


def _table(
    explanation: Explanation,
    resources: Sequence[ResourcePart],
    columns: dict[tuple[PlacePart | None, ...], str],
    *,
    has_bars: bool,
    has_holders: bool,
) -> Table:
    """Return the picture as a table, where it can be read without colours too."""
    legend = f"{USED} used {FREE} free" if has_bars else "free"
    table = Table(
        legend,
        "asked",
        *columns.values(),
        *(["held by"] if has_holders else []),
        numbers=("asked",),
        whole=tuple(columns.values()),
    )
    for row, one in enumerate(resources):
        words = amounts_in_words(one)
        name = f"[bold]{safe(one.resource)}[/]" if one.resource in explanation.blamed else safe(one.resource)
        cells = []
        for places in columns:
            place = places[row]
            bar = _bar(place) if place and has_bars else ""
            cells.append("-" if place is None else f"{bar}{words(place.free)}")
        holders = [safe(_holders(one))] if has_holders else []
        table.add_row(name, "" if one.asked is None else words(one.asked), *cells, *holders)
    return table


def _bar(place: PlacePart) -> str:
    """Return a square for each unit, those in use first, with rich's marks; of what is there some is seen."""
    squares = min(place.capacity, MOST_SQUARES)
    used = squares * (place.capacity - place.free) // place.capacity
    if used == 0 and place.free < place.capacity:
        used = 1
    if used == squares and place.free:
        used -= 1
    return f"[red]{USED * used}[/][green]{FREE * (squares - used)}[/]{' ' * (MOST_SQUARES - squares)} "


def _holders(resource: ResourcePart) -> str:
    """Return the pods that hold some of a resource, and what nobody can have."""
    pods = dict.fromkeys(holder.pod for place in resource.places for holder in place.holders)
    reserved = sum(place.reserved for place in resource.places)
    held = some_of(list(pods), MOST_PODS)
    kept = f"{amounts_in_words(resource)(reserved)} reserved" if reserved else ""
    return ", ".join(filter(None, (held, kept)))
