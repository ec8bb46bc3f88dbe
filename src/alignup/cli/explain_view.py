"""Shows an explanation to a person: the cause in one sentence, tables of what it rests on, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from alignup.cli.terminal import make_console, make_table, mark, print_whole, safe
from alignup.text.byte_sizes import amount_in, counted, shared_unit, short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from alignup.cli.terminal import Console, Table
    from alignup.node.explain.explanation import ContainerPart, Explanation, PlacePart, ResourcePart, Step
    from alignup.node.explain.product import Product

__all__ = ["show_explanation", "show_note"]

MOST_HOLDERS: Final = 4
MOST_NEIGHBOURS: Final = 20
MOST_SETS: Final = 4


def show_note(note: str) -> None:
    """Print a line by itself."""
    make_console().print(f"\n{safe(note)}")


def show_explanation(explanation: Explanation, *, product: bool = False) -> None:
    """Print an explanation on standard output.

    Args:
        explanation: the explanation.
        product: show the cross product of each decision too.
    """
    console = make_console()
    sign = mark(console, good=explanation.admitted)
    console.print(f"{sign} {safe(explanation.pod)}: [bold]{safe(explanation.cause)}[/]")
    console.print(safe(verdict(explanation)))
    for step in explanation.steps if explanation.admitted else explanation.steps[-1:]:
        show_step(console, step, product=product)
    if explanation.before.memory_groups:
        console.print()
        for group in explanation.before.memory_groups:
            console.print(safe(tie(group.numa_nodes, group.pods, usable=group.usable)))
    console.print()
    print_whole(console, containers_table(explanation))
    if explanation.neighbours:
        console.print()
        print_whole(console, neighbours_table(explanation))
        if len(explanation.neighbours) > MOST_NEIGHBOURS:
            console.print(f"and {counted(len(explanation.neighbours) - MOST_NEIGHBOURS, 'more container')}")
    show_suggestions(console, explanation)


def verdict(explanation: Explanation) -> str:
    """Return the verdict with the kubelet's reason, policy and scope, and the pod's QoS class."""
    word = "admitted" if explanation.admitted else f"refused with {explanation.reason}"
    scope = "" if explanation.policy == "none" else f", scope {explanation.scope}"
    return f"{word}; policy {explanation.policy}{scope}; the pod is {explanation.qos}"


def show_step(console: Console, step: Step, *, product: bool) -> None:
    """Print one decision: what was asked, there and offered, and the rule."""
    console.print()
    console.print(
        "[bold]the pod as a whole[/]" if step.container is None else f"[bold]{safe(step.container)}[/]"
    )
    if step.resources:
        print_whole(console, resources_table(step.resources))
    elif step.container is not None:
        console.print("asks for nothing that is given out by NUMA node")
    console.print(f"rule: {safe(step.rule)}")
    if step.best is not None and step.reachable is not None:
        sets = [
            f"{nodes_words(nodes)}{' (preferred)' if preferred else ''}"
            for nodes, preferred in step.reachable
        ]
        more = (step.reachable_count or 0) - MOST_SETS
        shown = "; ".join(sets[:MOST_SETS]) + (f"; {more} more" if more > 0 else "")
        console.print(f"the offers have in common: {shown or 'nothing'}")
    if product and step.product is not None:
        console.print()
        print_whole(console, product_table(step.product))
        console.print(rows_told(step.product))


def resources_table(resources: Sequence[ResourcePart]) -> Table:
    """Return what was asked for, what was there by NUMA node and who held it, and which nodes were offered."""
    table = make_table(
        "resource", "asked", "offered", "where", "there", "reserved", "free", "held by",
        numbers=("asked", "there", "reserved", "free"),
    )  # fmt: skip
    for one in resources:
        words = amounts_words(one)
        asked = "" if one.asked is None else words(one.asked)
        cells = [safe(one.resource), asked, safe(offered_words(one))]
        for names, place in equal_places(one.places):
            reserved = words(place.reserved) if place.reserved else "-"
            row = [names, words(place.capacity), reserved, words(place.free)]
            table.add_row(*cells, *row, safe(holders_words(place, words)))
            cells = ["", "", ""]
        if not one.places:
            table.add_row(*cells)
    return table


def equal_places(places: Iterable[PlacePart]) -> list[tuple[str, PlacePart]]:
    """Return the places where there is something, with their names; those where there is the same are told once."""
    names: dict[tuple[bool, PlacePart], list[str]] = {}
    for place in places:
        if place.capacity:
            key = bool(place.numa_nodes), replace(place, numa_nodes=())
            names.setdefault(key, []).append("+".join(map(str, place.numa_nodes)))
    return [
        (f"node {','.join(some)}" if is_near else "no node", place)
        for (is_near, place), some in names.items()
    ]


def amounts_words(resource: ResourcePart) -> Callable[[int], str]:
    """Return a function that writes amounts of a resource, bytes in one unit."""
    if resource.unit != "bytes":
        return str
    unit = shared_unit([(resource.asked or 0, [place.free for place in resource.places])])
    return lambda amount: amount_in(unit, amount) if amount else "0"


def offered_words(resource: ResourcePart) -> str:
    """Return the sets of NUMA nodes that a resource was offered on."""
    seen = resource.offered
    if seen is None:
        return "" if resource.places else "not given out by NUMA node here"
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


def holders_words(place: PlacePart, words: Callable[[int], str]) -> str:
    """Return who holds some of a resource in one place."""
    shown = [f"{one.pod}/{one.container} {words(one.amount)}" for one in place.holders[:MOST_HOLDERS]]
    more = len(place.holders) - MOST_HOLDERS
    return ", ".join(shown) + (f", {more} more" if more > 0 else "") or "-"


def nodes_words(nodes: Iterable[int] | None) -> str:
    """Return a set of NUMA nodes in words."""
    if nodes is None:
        return "any node"
    ids = tuple(nodes)
    return f"node{'s' if len(ids) > 1 else ''} {'+'.join(map(str, ids))}"


def tie(numa_nodes: tuple[int, ...], pods: tuple[str, ...], *, usable: bool) -> str:
    """Return which NUMA nodes memory binds together, and whose memory it is."""
    holders = f"memory of {', '.join(pods[:MOST_HOLDERS])}" if pods else "a binding that a pod left behind"
    more = f" and {len(pods) - MOST_HOLDERS} more" if len(pods) > MOST_HOLDERS else ""
    if len(numa_nodes) == 1:
        return f"NUMA node {numa_nodes[0]} gives memory by itself only: {holders}{more}"
    how = "together only" if usable else "to nobody new together"
    return f"NUMA nodes {'+'.join(map(str, numa_nodes))} give memory {how}: {holders}{more}"


def containers_table(explanation: Explanation) -> Table:
    """Return where each container's CPUs come from, and what it got or missed."""
    table = make_table(
        "container", "CPUs", "got" if explanation.admitted else "got before the refusal", "missed"
    )
    for one in explanation.containers:
        name = one.name if one.kind == "container" else f"{one.name} ({one.kind})"
        cpus = (
            f"{one.exclusive_cpus} exclusive"
            if not one.shared_because
            else f"shared pool: {one.shared_because}"
        )
        table.add_row(*map(safe, (name, cpus, got_words(one, explanation), one.missed or "-")))
    return table


def got_words(container: ContainerPart, explanation: Explanation) -> str:
    """Return what a container was given, one thing a line."""
    got = container.got
    if got is None:
        return "-"
    ids = explanation.before.numa_node_ids
    lines = []
    if got.affinity is not None and got.affinity.affinity is not None:
        nodes = nodes_words(ids[bit] for bit in got.affinity.affinity.bits())
        lines.append(f"{nodes}{'' if got.affinity.preferred else ' (not preferred)'}")
    if got.cpus is not None:
        lines.append(f"CPUs {got.cpus}")
    lines += [
        f"{block.type} {short_bytes(block.size)} on {nodes_words(block.numa_nodes)}"
        for block in got.memory
        if block.size
    ]
    lines += [f"{resource} {','.join(found)}" for resource, found in sorted(got.devices.items()) if found]
    return "\n".join(lines) or "-"


def neighbours_table(explanation: Explanation) -> Table:
    """Return where the containers of the pods sit that are admitted already."""
    table = make_table("admitted already", "NUMA nodes", "CPUs", "memory", "devices")
    node_cpus = explanation.before.node_cpus
    for one in explanation.neighbours[:MOST_NEIGHBOURS]:
        nodes = {node for node, bits in node_cpus.items() if bits & int(one.cpus or 0)}
        nodes |= {node for taken in one.memory.values() for node, size in taken.items() if size}
        memory = [
            f"{kind} {short_bytes(size)} on node {node}"
            for kind, taken in one.memory.items()
            for node, size in taken.items()
            if size
        ]
        devices = [f"{resource} {','.join(found)}" for resource, found in one.devices.items() if found]
        table.add_row(
            *map(
                safe,
                (
                    one.label,
                    ",".join(map(str, sorted(nodes))) or "-",
                    "shared" if one.cpus is None else str(one.cpus),
                    "\n".join(memory) or "-",
                    "\n".join(devices) or "-",
                ),
            )
        )
    return table


def product_table(product: Product) -> Table:
    """Return the cross product: a hint of each resource, and what the row merges into."""
    table = make_table(*map(safe, product.resources), "merged", "preferred")
    for row in product.rows:
        cells = [
            f"{nodes_words(product.ids(mask))}{'' if preferred else ' (not preferred)'}"
            for mask, preferred in row.hints
        ]
        merged = "nothing" if row.merged == 0 else nodes_words(product.ids(row.merged))
        preferred = "yes" if row.preferred else "no"
        table.add_row(*cells, merged, preferred if row.considered else f"{preferred}, left out")
    return table


def rows_told(product: Product) -> str:
    """Return how many rows there are, and what "left out" means."""
    shown = (
        f"{len(product.rows)} of {product.count}" if product.count > len(product.rows) else str(product.count)
    )
    note = "; single-numa-node leaves out rows with a hint of several nodes, or one that is not preferred"
    return f"{shown} rows{note if any(not row.considered for row in product.rows) else ''}"


def show_suggestions(console: Console, explanation: Explanation) -> None:
    """Print what would help, the best first."""
    if not explanation.suggestions:
        return
    console.print("\nwhat would help (each was tried):")
    for number, one in enumerate(explanation.suggestions, 1):
        console.print(f"  {number}. {safe(one.text)}")
