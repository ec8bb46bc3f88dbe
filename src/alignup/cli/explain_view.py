"""Shows an explanation to a person: the cause in one sentence, tables of what it rests on, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.cli.terminal import Table, fits, make_console, mark, print_whole, safe
from alignup.explanations import words
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.cli.terminal import Console
    from alignup.explanations.explanation import Explanation, ResourcePart, Step
    from alignup.explanations.product import Product
    from alignup.kubernetes.pod_documents import PodDocument


def show_note(note: str) -> None:
    """Print a line by itself."""
    make_console().print(f"\n{safe(note)}")


def explanation_dict(explanation: Explanation, was: PodDocument | None, *, product: bool) -> dict[str, Any]:
    """Return an explanation in JSON's types, and how the pod was rejected before."""
    rejection = {} if was is None else {"was": {"reason": was.reason, "message": was.message}}
    return explanation.to_dict(product=product) | rejection


def show_explanation(explanation: Explanation, was: PodDocument | None = None, *, product: bool = False) -> None:
    """Print an explanation on standard output.

    Args:
        explanation: the explanation.
        was: the pod's document, if its kubelet has rejected it before.
        product: show the cross product of each decision too.
    """
    console = make_console()
    if was is not None:
        message = was.message.removeprefix("Pod was rejected: ")
        console.print(safe(f"{explanation.pod} was rejected: {was.reason}{f' ({message})' if message else ''}"))
        room = "There is room now: its replacement would be admitted"
        console.print(f"{room if explanation.admitted else 'It would be rejected again'}. As of now:")
    sign = mark(console, good=explanation.admitted)
    console.print(f"{sign} {safe(explanation.pod)}: [bold]{safe(explanation.cause)}[/]")
    console.print(safe(verdict(explanation)))
    for step in explanation.relevant_steps:
        show_step(console, step, product=product)
    if explanation.before.memory_groups:
        console.print()
        for group in explanation.before.memory_groups:
            console.print(safe(words.group_in_words(group)))
    table = Table(*words.container_columns(explanation), rows=words.container_rows(explanation))
    print_whole(console, table, below=True)
    if explanation.neighbours:
        print_whole(console, Table(*words.NEIGHBOUR_COLUMNS, rows=words.neighbour_rows(explanation)), below=True)
        if len(explanation.neighbours) > words.MOST_NEIGHBOURS:
            console.print(f"and {counted(len(explanation.neighbours) - words.MOST_NEIGHBOURS, 'more container')}")
    if explanation.suggestions:
        console.print("\nwhat would help (each was tried):")
    for number, one in enumerate(explanation.suggestions, 1):
        console.print(f"  {number}. {safe(one.text)}")


def verdict(explanation: Explanation) -> str:
    """Return the verdict with the kubelet's reason, policy and scope, and the pod's QoS class."""
    word = "admitted" if explanation.admitted else f"refused with {explanation.reason}"
    scope = "" if explanation.policy == "none" else f", scope {explanation.scope}"
    return f"{word}; policy {explanation.policy}{scope}; the pod is {explanation.qos}"


def show_step(console: Console, step: Step, *, product: bool) -> None:
    """Print one decision: what was asked, there and offered, and the rule."""
    console.print()
    console.print("[bold]the pod as a whole[/]" if step.container is None else f"[bold]{safe(step.container)}[/]")
    if step.resources:
        show_resources(console, step.resources)
    elif step.container is not None:
        console.print("requests nothing that is allocated by NUMA node")
    console.print(f"rule: {safe(step.rule)}")
    if common := words.in_common(step):
        console.print(f"the offers have in common: {common}")
    if product and step.product is not None:
        show_product(console, step.product)


def show_resources(console: Console, resources: Sequence[ResourcePart]) -> None:
    """Print what was asked, there and offered; holders are one a line, and below the table where it is too wide."""
    rows: list[tuple[str, ...]] = [
        (*cells, holders.replace(", ", "\n")) for *cells, holders in words.resource_rows(resources)
    ]
    columns: tuple[str, ...] = words.RESOURCE_COLUMNS
    reserved = columns.index("reserved")
    if all(row[reserved] in {"-", ""} for row in rows):
        columns = (*columns[:reserved], *columns[reserved + 1 :])
        rows = [(*row[:reserved], *row[reserved + 1 :]) for row in rows]
    table = Table(*columns, numbers=words.RESOURCE_NUMBERS, whole=("held by",), rows=rows)
    if fits(console, table):
        print_whole(console, table)
        return
    rest = [row[:-1] for row in rows]
    print_whole(console, Table(*columns[:-1], numbers=words.RESOURCE_NUMBERS, rows=rest))
    resource, where = "", columns.index("where")
    for row in rows:
        resource = row[0] or resource
        if row[-1] not in {"-", ""}:
            console.print(safe(f"held, {resource}, {row[where]}: {row[-1].replace(chr(10), ', ')}"))


def show_product(console: Console, product: Product) -> None:
    """Print the cross product: a hint of each resource, and what the row merges into; and what "left out" means."""
    table = Table(*map(safe, product.resources), "merged", "preferred")
    for row in product.rows:
        cells = [
            f"{words.nodes_in_short(one.numa_nodes)}{'' if one.preferred else ' (not preferred)'}" for one in row.hints
        ]
        merged = "nothing" if row.merged == () else words.nodes_in_short(row.merged)
        preferred = "yes" if row.preferred else "no"
        table.add_row(*cells, merged, preferred if row.considered else f"{preferred}, left out")
    print_whole(console, table, below=True)
    shown = f"{len(product.rows)} of {product.count}" if product.count > len(product.rows) else str(product.count)
    note = "; single-numa-node leaves out rows with a hint of several nodes, or one that is not preferred"
    console.print(f"{shown} rows{note if any(not row.considered for row in product.rows) else ''}")
