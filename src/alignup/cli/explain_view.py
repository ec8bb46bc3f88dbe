"""Shows an explanation to a person: verdict, cause, a picture of the NUMA nodes and what would help; then tables."""

from __future__ import annotations

import itertools
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

from alignup.cli import options
from alignup.cli.terminal import (
    PLAIN_WIDTH,
    Table,
    can_write,
    fits,
    make_console,
    mark,
    print_whole,
    safe,
)
from alignup.explanations import words
from alignup.machine.cpuset import CPUSet
from alignup.records import replace
from alignup.text.counting import counted, named, some_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from alignup.cli.terminal import Console
    from alignup.explanations.explanation import Explanation, PlacePart, ResourcePart, Step
    from alignup.explanations.product import Product
    from alignup.kubernetes.pod_documents import PodDocument

    # By what NUMA nodes have of the resources how these nodes are called.
    Columns = dict[tuple[PlacePart | None, ...], str]

# Of a machine with more NUMA nodes the help stands before the picture.
MOST_NODES_BEFORE_HELP: Final = 4
# With more, all but the first cause stand below.
MOST_CAUSE_LINES: Final = 2
# Columns of the line before the tables.
RULE: Final = 40

# In a bar; of more units a square stands for several.
MOST_SQUARES: Final = 8

# Columns that the picture takes where there are more.
WIDEST: Final = 120

# Of more NUMA nodes, those that are alike share one.
MOST_COLUMNS: Final = 4

MOST_PODS: Final = 2

# Of a container's name in the heading of a narrow column.
LONGEST_NAME: Final = 12

USED: Final = "■"
FREE: Final = "□"


def show_note(note: str) -> None:
    """Print a line by itself."""
    make_console().print(f"\n{safe(note)}")


def explanation_dict(
    explanation: Explanation, was: PodDocument | None, *, product: bool
) -> dict[str, Any]:
    """Return an explanation in JSON's types, and how the pod was rejected before."""
    rejection = {} if was is None else {"was": {"reason": was.reason, "message": was.message}}
    return explanation.to_dict(product=product) | rejection


class View(options.Gathered):
    """How much of an explanation is shown."""

    product: bool = options.product
    tables: str | None = options.choice(
        "Tables below the suggestions: none, only rows that matter (short), or all.  "
        "[default: short on a terminal, else all]",
        ("none", "short", "all"),
    )


def show_explanation(
    explanation: Explanation, was: PodDocument | None = None, view: View | None = None
) -> None:
    """Print an explanation on standard output: the verdict, the cause and what would help first.

    Args:
        explanation: the explanation.
        was: the pod's document, if its kubelet has rejected it before.
        view: how much of it; None: as without options.
    """
    console = make_console()
    view = view or View()
    if was is not None:
        message = was.message.removeprefix("Pod was rejected: ")
        console.print(
            safe(
                f"{explanation.pod} was rejected: {was.reason}{f' ({message})' if message else ''}"
            )
        )
        room = "There is room now: its replacement would be admitted"
        console.print(
            f"{room if explanation.admitted else 'It would be rejected again'}. As of now:"
        )

    sign = mark(console, good=explanation.admitted)
    word = "admitted" if explanation.admitted else f"refused: {safe(explanation.reason)}"
    rules = (
        "policy none"
        if explanation.policy == "none"
        else f"{explanation.policy}, scope {explanation.scope}"
    )
    console.print(f"{sign} [bold]{safe(explanation.pod)}[/] {word} ({rules})")
    tables = view.tables or ("short" if sys.stdout.isatty() else "all")
    first, *below = _causes(console, explanation) if tables != "none" else [explanation.cause]
    more = f" ({counted(len(below), 'more cause')} below)" if below else ""
    show_prose(console, f"{first}{more}".removeprefix("admitted").lstrip(",; "))
    if explanation.log:
        show_log(console, explanation.log)

    parts = [show_suggestions] if explanation.admitted else [show_nodes, show_suggestions]
    # the help is to be on the first screen, and the picture of a wide machine is long
    for part in (
        parts
        if len(explanation.before.numa_node_ids) <= MOST_NODES_BEFORE_HELP
        else reversed(parts)
    ):
        part(console, explanation)

    if tables != "none" and (explanation.steps or not explanation.log):
        show_tables(console, explanation, is_short=tables == "short", product=view.product)


def _causes(console: Console, explanation: Explanation) -> Sequence[str]:
    """Return the causes of a refusal, the first to be told above the tables, or all in one if that is short."""
    return (
        explanation.causes
        if len(wrapped(console, explanation.cause)) > MOST_CAUSE_LINES
        else [explanation.cause]
    )


def show_log(console: Console, log: Mapping[str, Any]) -> None:
    """Print what a kubelet's log says of a refusal, whether its hints merge into that, and what it leaves out."""
    if log["message"]:
        show_prose(console, f"the kubelet's words: {log['message']}")

    if log["agrees"] is not None:
        hints = (log["best"], log["merged"])
        best, merged = (
            words.hint_in_words(one["numaNodes"], preferred=one["preferred"]) for one in hints
        )
        show_prose(
            console,
            f"the log's best hint: {best}; its hints merge into "
            f"{'it' if log['agrees'] else merged}",
        )

    show_prose(console, f"the log does not tell {'; '.join(log['unknown'])}")


def show_prose(console: Console, text: str, first: str = "  ", indent: str = "  ") -> None:
    """Print a text of plain words, on a console of some width broken between words; `first` begins it."""
    for line in wrapped(console, text, first, indent):
        console.print(safe(line))


def wrapped(console: Console, text: str, first: str = "  ", indent: str = "  ") -> list[str]:
    """Return the lines of a text of plain words."""
    # what is no terminal has no width
    width = console.width if console.width < PLAIN_WIDTH else len(first) + len(text)
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def show_tables(
    console: Console, explanation: Explanation, *, is_short: bool, product: bool
) -> None:
    """Print the tables that the verdict rests on; short: without the rows that do not bear on it, which are counted."""
    console.print(
        f"\n[dim]{('─' if can_write(console, '─') else '-') * min(console.width, RULE)}[/]"
    )
    others = _causes(console, explanation)[1:]
    for other in others:
        show_prose(console, f"another cause: {other}", "")

    steps = () if is_short and explanation.admitted and not product else explanation.relevant_steps
    for number, step in enumerate(steps):
        if number or others:
            console.print()
        show_step(console, step, explanation, is_short=is_short, product=product)

    if explanation.before.memory_groups and any(
        one.unit == "bytes" and one.places for one in explanation.resources
    ):
        console.print()
        for group in explanation.before.memory_groups:
            show_prose(console, words.group_in_words(group), "")

    parts = [
        one
        for one in explanation.containers
        if not is_short or one.got or one.missed or explanation.admitted
    ]
    if parts:
        table = Table(
            *words.container_columns(explanation), rows=words.container_rows(explanation, parts)
        )
        print_whole(console, table, below=bool(steps))
        show_left_out(console, len(explanation.containers) - len(parts), "container", " of the pod")

    most = 0 if is_short else words.MOST_NEIGHBOURS
    if explanation.neighbours and most:
        print_whole(
            console,
            Table(*words.NEIGHBOUR_COLUMNS, rows=words.neighbour_rows(explanation)),
            below=True,
        )

    show_left_out(console, len(explanation.neighbours) - most, "container", " on the node")
    if not explanation.log:
        console.print(f"the pod is {explanation.qos}")


def show_left_out(console: Console, count: int, noun: str, where: str = "") -> None:
    """Say how many of some things are not shown."""
    if count > 0:
        console.print(f"and {counted(count, f'more {noun}')}{where}")


def show_step(
    console: Console, step: Step, explanation: Explanation, *, is_short: bool, product: bool
) -> None:
    """Print one decision: what was asked, there and offered, and the rule.

    Args:
        console: where.
        step: the decision.
        explanation: whose it is.
        is_short: show only the resources to blame.
        product: show the cross product of the offers too.
    """
    console.print(
        "[bold]the pod as a whole[/]"
        if step.container is None
        else f"[bold]{safe(step.container)}[/]"
    )
    only = explanation.blamed if is_short else ()
    resources = [one for one in step.resources if not only or one.resource in only]
    if resources:
        show_resources(console, resources, explanation.named_first)
        show_left_out(console, len(step.resources) - len(resources), "resource")
    elif step.container is not None:
        console.print("requests nothing that is allocated by NUMA node")

    show_prose(console, f"rule: {step.rule}", "")
    if common := words.in_common(step):
        show_prose(console, f"NUMA nodes left by the merge: {common}", "")

    if product and step.product is not None:
        show_product(console, step.product)


def show_resources(
    console: Console, resources: Sequence[ResourcePart], first: Collection[str]
) -> None:
    """Print what was asked, there and offered; holders are one a line, and below the table where it is too wide."""
    rows: list[tuple[str, ...]] = [
        (*cells, holders.replace(", ", "\n"))
        for *cells, holders in words.resource_rows(resources, first)
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
    resource, where = "", columns.index("NUMA node")
    for row in rows:
        resource = row[0] or resource
        if row[-1] not in {"-", ""}:
            console.print(
                safe(f"held, {resource}, NUMA node {row[where]}: {row[-1].replace(chr(10), ', ')}")
            )


def show_product(console: Console, product: Product) -> None:
    """Print the cross product: a hint of each resource, and what the row merges into; and what "left out" means.

    What the documents' rule would make of a row is told where it differs.
    """
    rows = []
    for row in product.rows:
        cells = [words.hint_in_words(one.numa_nodes, preferred=one.preferred) for one in row.hints]
        merged = "nothing" if row.merged == () else words.nodes_in_short(row.merged)
        is_written = row.considered or all(
            one.numa_nodes is None or len(one.numa_nodes) == 1 for one in row.hints
        )
        told = [
            (row.preferred, row.considered),
            (all(one.preferred for one in row.hints), is_written),
        ]
        verdict, written = (
            f"{'yes' if good else 'no'}{'' if kept else ', left out'}" for good, kept in told
        )
        rows.append((*cells, merged, verdict, "" if verdict == written else written))

    columns = (*map(safe, product.resources), "merged", "preferred", "documents")
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]

    table = Table(*columns, rows=rows)
    print_whole(console, table, below=True)
    shown = (
        f"{len(product.rows)} of {product.count}"
        if product.count > len(product.rows)
        else str(product.count)
    )
    note = (
        "; single-numa-node leaves out rows with a hint of several nodes, or one that is not "
        "preferred"
    )
    console.print(f"{shown} rows{note if any(not row.considered for row in product.rows) else ''}")


def show_suggestions(console: Console, explanation: Explanation) -> None:
    """Print what would help, the best first."""
    if not explanation.suggestions:
        if not (explanation.admitted or explanation.log):
            tried = "smaller requests, fewer pods, other settings of the kubelet"
            console.print()
            show_prose(
                console,
                f"nothing that was tried helps on this node ({tried}): move the pod to another "
                "node",
                "",
            )

        return

    console.print("\nwhat would help (each was tried):")
    for number, one in enumerate(explanation.suggestions, 1):
        show_prose(
            console,
            "ask for less, all of these:" if one.changes else one.text,
            f"  {number}. ",
            "     ",
        )
        for line in one.changes:
            show_prose(console, line, "       ", "         ")


# ---- the picture


def show_nodes(console: Console, explanation: Explanation) -> None:
    """Print a row for each resource that was asked for, with a column for NUMA nodes that have the same of all.

    Where the console is too narrow, it goes without the holders, without bars, and without the
    nodes where least is free, in this order; these are counted.
    """
    resources = [
        one for one in explanation.resources if any(place.capacity for place in one.places)
    ]
    columns = _columns(resources)
    if not columns:
        return

    shown = sorted(
        columns,
        key=lambda places: -sum(place.free / (place.capacity or 1) for place in places if place),
    )
    bars = (True, False) if can_write(console, USED) else (False,)
    for count, has_bars, has_holders in itertools.product(
        range(len(columns), 0, -1), bars, (True, False)
    ):
        some = {places: heading for places, heading in columns.items() if places in shown[:count]}
        table = _table(explanation, resources, some, has_bars=has_bars, has_holders=has_holders)
        if fits(console, table, WIDEST):
            break

    print_whole(console, table, below=True)
    if count < len(columns):
        console.print(
            f"{counted(len(columns) - count, 'more column')} of NUMA nodes, where less is free"
        )


def _columns(resources: Sequence[ResourcePart]) -> Columns:
    """Return by what NUMA nodes have of the resources how these nodes are called.

    Of many nodes, those that have the same share a column. Devices near several nodes, or near
    none, have their own.
    """
    names: dict[tuple[PlacePart | None, ...], list[int]] = {}
    first: dict[tuple[PlacePart | None, ...], tuple[PlacePart | None, ...]] = {}
    own = {}
    nodes = sorted(
        {place.numa_nodes for one in resources for place in one.places if place.capacity}
    )
    for where in nodes:
        places = tuple(
            next((one for one in part.places if one.numa_nodes == where), None)
            for part in resources
        )
        if len(where) == 1 and len(nodes) > MOST_COLUMNS:
            alike = tuple(one and replace(one, numa_nodes=(), holders=()) for one in places)
            names.setdefault(alike, []).append(where[0])
            first.setdefault(alike, places)
        else:
            every = "both" if len(where) == 2 else "all of"  # noqa: PLR2004  # English has a word for two
            name = (
                f"near {every} {'+'.join(map(str, where))}"
                if len(where) > 1
                else named("NUMA node", where)
            )
            own[places] = name if where else "without NUMA node"

    each = {
        first[alike]: ("each of NUMA nodes " if ids[1:] else "NUMA node ") + str(CPUSet(ids))
        for alike, ids in names.items()
    }
    return each | own


def _table(
    explanation: Explanation,
    resources: Sequence[ResourcePart],
    columns: Columns,
    *,
    has_bars: bool,
    has_holders: bool,
) -> Table:
    """Return the picture as a table, where it can be read without colours too."""
    legend = f"{USED} used {FREE} free" if has_bars else "free"
    nodes, held = columns.values(), ["held by"] if has_holders else []
    whose = resources[0].container or "pod"
    asked = (
        f"{whose} asks"
        if len(explanation.containers) > 1 and len(whose) <= LONGEST_NAME
        else "asked"
    )
    table = Table(legend, asked, *nodes, *held, numbers=(asked,), whole=tuple(nodes))
    for row, one in enumerate(resources):
        in_words = words.amounts_in_words(one)
        name = (
            f"[bold]{safe(one.resource)}[/]"
            if one.resource in explanation.blamed
            else safe(one.resource)
        )
        cells = []
        for places in columns:
            place = places[row]
            bar = _bar(place) if place and place.capacity and has_bars else ""
            cells.append(f"{bar}{in_words(place.free)}" if place and place.capacity else "-")

        holders = [safe(_holders(one, explanation))] if has_holders else []
        table.add_row(name, "" if one.asked is None else in_words(one.asked), *cells, *holders)

    return table


def _bar(place: PlacePart) -> str:
    """Return a square for each unit, those in use first, with rich's marks; of what is there some is seen."""
    squares = min(place.capacity, MOST_SQUARES)
    used = squares * (place.capacity - place.free) // place.capacity
    if used == 0 and place.free < place.capacity:
        used = 1
    if used == squares and place.free:
        used -= 1
    return (
        f"[red]{USED * used}[/][green]{FREE * (squares - used)}[/]{' ' * (MOST_SQUARES - squares)} "
    )


def _holders(resource: ResourcePart, explanation: Explanation) -> str:
    """Return who holds some of a resource, pods to remove and containers of this pod first, and what is reserved."""
    names = {
        f"own {one.container}" if one.pod == explanation.pod else one.pod: one.pod
        in explanation.named_first
        for place in resource.places
        for one in place.holders
    }
    reserved = sum(place.reserved for place in resource.places)
    held = some_of(
        sorted(names, key=lambda name: not names[name]), max(MOST_PODS, sum(names.values()))
    )
    whose = "unhealthy" if resource.unit == "devices" else "system"
    kept = f"{whose} ({words.amounts_in_words(resource)(reserved)})" if reserved else ""
    return ", ".join(filter(None, (held, kept)))
