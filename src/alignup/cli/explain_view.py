"""Shows an explanation to a person.

Verdict, cause, a picture of the NUMA nodes and what would help come first, then tables.
"""

from __future__ import annotations

import itertools
import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from alignup.cli import options
from alignup.cli.terminal import (
    PLAIN_WIDTH,
    Table,
    can_write,
    fits,
    make_console,
    mark,
    print_whole,
    printed,
    safe,
)
from alignup.explanations import words
from alignup.kubelet.messages import meaning_of_rejection, meaning_of_start, reference_to
from alignup.machine.cpuset import CPUSet
from alignup.records import replace
from alignup.text.counting import counted, named, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.cli.terminal import Console
    from alignup.explanations.explanation import Explanation, PlacePart, ResourcePart, Step
    from alignup.explanations.product import Product, Row
    from alignup.kubelet.messages import Meaning
    from alignup.kubernetes.pod_documents import PodDocument

    # By what NUMA nodes have of the resources how these nodes are called.
    Columns = dict[tuple[PlacePart | None, ...], str]

# Of a machine with more NUMA nodes the help stands before the picture.
MOST_NODES_BEFORE_HELP: Final = 4
# With more, all but the first cause stand below.
MOST_CAUSE_LINES: Final = 2
# Lines of a short explanation: with the node's line below and one above, a screen of forty.
MOST_SHORT_LINES: Final = 36
# What a short explanation that is longer goes without, the first of them first.
LEFT_OUT_FIRST: Final = ("containers", "memory groups", "holders", "decisions")
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
    explanation: Explanation, rejection: PodDocument | None, *, product: bool
) -> dict[str, Any]:
    """Return an explanation in JSON's types, and how the pod was rejected before."""
    fields = explanation.to_dict(product=product) | entry_fields(explanation)
    if rejection is not None:
        meaning = meaning_of_rejection(rejection.reason, rejection.message)
        fields["was"] = {"reason": rejection.reason, "message": rejection.message}
        if meaning is not None and meaning.remedy:
            fields["was"]["repair"] = meaning.remedy

    return fields


def entry_fields(explanation: Explanation) -> dict[str, str]:
    """Return the entry of the page Messages that a refusal has, in JSON's types; empty: none."""
    meaning = _meaning_of(explanation)
    return {} if meaning is None else {"see": meaning.message.anchor}


def _meaning_of(explanation: Explanation) -> Meaning | None:
    """Return what a refusal means by the tables of messages; None: it is none of them."""
    if explanation.admitted:
        return None

    message = explanation.log["message"] if explanation.log else explanation.cause
    return meaning_of_rejection(explanation.reason, message)


class View(options.Gathered):
    """How much of an explanation is shown."""

    product: bool = options.product
    tables: str | None = options.choice(
        "Tables below the suggestions: none, only rows that matter (short), or all.  [default: "
        "short on a terminal, else all]",
        ("none", "short", "all"),
    )


class Extent(NamedTuple):
    """How much of an explanation's tables is shown.

    Attributes:
        has_tables: whether there are any.
        is_short: without the rows that do not bear on the verdict.
        product: with the cross product of the hints.
        left_out: names of `LEFT_OUT_FIRST`.
    """

    has_tables: bool
    is_short: bool
    product: bool
    left_out: tuple[str, ...] = ()

    def shown_steps(self, explanation: Explanation) -> Sequence[Step]:
        """Return the decisions of an explanation that are shown."""
        needs_none = self.is_short and explanation.admitted and not self.product
        if needs_none or "decisions" in self.left_out:
            return ()
        return explanation.relevant_steps


def show_explanation(
    explanation: Explanation, rejection: PodDocument | None = None, view: View | None = None
) -> None:
    """Print an explanation on standard output: the verdict, the cause and what would help first.

    Args:
        explanation: the explanation.
        rejection: the pod's document, if its kubelet has rejected it before.
        view: how much of it; None: as without options.
    """
    console = make_console()
    view = view or View()
    tables = view.tables or ("short" if sys.stdout.isatty() else "all")
    if tables == "short":
        click.echo(_short_explanation(console, explanation, rejection, view), nl=False)
        return

    extent = Extent(tables != "none", is_short=False, product=view.product)
    show_to_some_extent(console, explanation, rejection, extent)


def _short_explanation(
    console: Console, explanation: Explanation, rejection: PodDocument | None, view: View
) -> str:
    """Return an explanation that fits on a screen, as far as leaving out tables makes it."""
    text = ""
    for count in range(len(LEFT_OUT_FIRST) + 1):
        extent = Extent(
            has_tables=True,
            is_short=True,
            product=view.product,
            left_out=LEFT_OUT_FIRST[:count],
        )
        text = printed(partial(show_to_some_extent, console, explanation, rejection, extent))
        if text.count("\n") <= MOST_SHORT_LINES:
            break

    return text


def show_to_some_extent(
    console: Console, explanation: Explanation, rejection: PodDocument | None, extent: Extent
) -> None:
    """Print an explanation, with so much of its tables."""
    if rejection is not None:
        show_rejection(console, rejection, explanation)

    show_verdict(console, explanation)
    causes: Sequence[str] = [explanation.cause]
    if extent.has_tables:
        causes = _causes(console, explanation)

    sentence = causes[0]
    if len(causes) > 1:
        sentence += f" ({counted(len(causes) - 1, 'more cause')} below)"

    sentence = sentence.removeprefix("admitted").lstrip(",; ")
    show_prose(console, sentence.removeprefix(explanation.extent).lstrip("; "))
    if explanation.log:
        show_log(console, explanation.log)

    if explanation.admitted:
        show_suggestions(console, explanation)
    elif len(explanation.before.numa_node_ids) <= MOST_NODES_BEFORE_HELP:
        show_nodes(console, explanation)
        show_suggestions(console, explanation)
    else:
        # the help is to be on the first screen, and the picture of a wide machine is long
        show_suggestions(console, explanation)
        show_nodes(console, explanation)

    reference = reference_to(_meaning_of(explanation))
    if reference:
        show_note(reference)

    if extent.has_tables and (explanation.steps or not explanation.log):
        show_tables(console, explanation, extent)

    for note in explanation.notes:
        show_prose(console, note, "", "")


def show_rejection(console: Console, rejection: PodDocument, explanation: Explanation) -> None:
    """Print how a kubelet rejected a pod, and what it would do with it now."""
    sentence = f"{explanation.pod} was rejected: {rejection.reason}"
    message = rejection.message.removeprefix("Pod was rejected: ")
    if message:
        sentence += f" ({message})"

    console.print(safe(sentence))
    meaning = meaning_of_rejection(rejection.reason, rejection.message)
    if meaning is not None and meaning.remedy:
        show_prose(console, f"what to do: {meaning.remedy}")

    unknown = [
        resource
        for resource, _ in rejection.pod.devices
        if explanation.before.amounts(resource) is None
    ]
    if not explanation.admitted:
        console.print("It would be rejected again. As of now:")
    elif unknown:
        names = safe(", ".join(unknown))
        show_prose(
            console,
            f"Whether there is room now is not known: nothing here tells of {names} (--devices "
            "does). As of now, as far as all else goes:",
            "",
            "",
        )
    else:
        console.print("There is room now: its replacement would be admitted. As of now:")


def show_verdict(console: Console, explanation: Explanation) -> None:
    """Print whether a pod is admitted, and by which policy."""
    sign = mark(console, good=explanation.admitted)
    verdict = "admitted"
    if not explanation.admitted:
        verdict = f"refused: {safe(explanation.reason)}"
    elif explanation.is_open:
        sign = mark(console, good=None)

    rules = "policy none"
    if explanation.policy != "none":
        rules = f"{explanation.policy}, scope {explanation.scope}"

    sentence = f"{sign} [bold]{safe(explanation.pod)}[/] {verdict} ({rules})"
    if explanation.admitted:
        sentence += safe(words.extent_with_help(explanation.extent, explanation.unknown))

    console.print(sentence)


def _causes(console: Console, explanation: Explanation) -> Sequence[str]:
    """Return the causes of a refusal, or all in one if that is short.

    The first is to be told above the tables.
    """
    if len(wrapped(console, explanation.cause)) > MOST_CAUSE_LINES:
        return explanation.causes
    return [explanation.cause]


def show_log(console: Console, log: Mapping[str, Any]) -> None:
    """Print what a kubelet's log says of a refusal, and what it leaves out.

    If that is known, say whether the hints in the log merge into the log's best one, too.
    """
    if log["message"]:
        show_prose(console, f"the kubelet's words: {log['message']}")

    if log["repair"]:
        show_prose(console, f"what to do: {log['repair']}")

    if log["agrees"] is not None:
        best, merged = (
            words.hint_in_words(
                hint["numaNodes"], preferred=hint["preferred"], score=hint.get("score")
            )
            for hint in (log["best"], log["merged"])
        )
        if log["agrees"]:
            merged = "the same"

        show_prose(console, f"best hint in the log: {best}; the logged hints merge to {merged}")

    show_prose(console, f"not in the log: {'; '.join(log['unknown'])}")


def show_failed_start(fields: Mapping[str, Any]) -> None:
    """Print why a kubelet does not start, and how to mend that.

    Args:
        fields: as JSON has them.
    """
    console = make_console()
    times = f", {fields['count']} times in this log" if fields["count"] > 1 else ""
    verdict = "did not start, and has started since" if fields["startedSince"] else "does not start"
    console.print(
        f"{mark(console, good=False)} [bold]the kubelet[/] {verdict} ({fields['component']}{times})"
    )
    show_prose(console, fields["cause"])
    if fields["file"]:
        show_prose(console, f"file: {fields['file']}")

    show_prose(console, f"the kubelet's words: {fields['message']}")
    if fields["repair"]:
        show_prose(console, f"repair: {fields['repair']}")

    reference = reference_to(meaning_of_start(fields["message"]))
    if reference:
        show_prose(console, reference)

    if fields["component"] != "unknown":
        show_prose(
            console, "`alignup node check` on the node tells all that is wrong with its files"
        )


def show_prose(console: Console, text: str, first_indent: str = "  ", indent: str = "  ") -> None:
    """Print a text of plain words, on a console of some width broken between words.

    Args:
        console: where.
        text: the text.
        first_indent: begins the first line.
        indent: begins the other lines.
    """
    for line in wrapped(console, text, first_indent, indent):
        console.print(safe(line))


def wrapped(console: Console, text: str, first_indent: str = "  ", indent: str = "  ") -> list[str]:
    """Return the lines of a text of plain words."""
    width = console.width
    if width >= PLAIN_WIDTH:
        # what is no terminal has no width
        width = len(first_indent) + len(text)

    return textwrap.wrap(
        text,
        width,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def show_tables(console: Console, explanation: Explanation, extent: Extent) -> None:
    """Print the tables that the verdict rests on.

    Short tables are without the rows that do not bear on it, which are counted.
    """
    rule = "─" if can_write(console, "─") else "-"
    console.print(f"\n[dim]{rule * min(console.width, RULE)}[/]")

    other_causes = _causes(console, explanation)[1:]
    for cause in other_causes:
        show_prose(console, f"another cause: {cause}", "")

    steps = extent.shown_steps(explanation)
    for number, step in enumerate(steps):
        if number or other_causes:
            console.print()

        show_step(console, step, explanation, extent)

    if "memory groups" not in extent.left_out:
        show_memory_groups(console, explanation)
    if "containers" not in extent.left_out:
        show_containers(console, explanation, is_short=extent.is_short, below=bool(steps))

    show_neighbours(console, explanation, is_short=extent.is_short)
    if extent.left_out:
        console.print("--tables all shows the tables that are left out here")
    if not explanation.log:
        console.print(f"the pod is {explanation.qos}")


def show_memory_groups(console: Console, explanation: Explanation) -> None:
    """Print which NUMA nodes share memory, if memory was asked for."""
    groups = explanation.before.memory_groups
    uses_memory = any(part.unit == "bytes" and part.places for part in explanation.resources)
    if not groups or not uses_memory:
        return

    console.print()
    for group in groups:
        show_prose(console, words.group_in_words(group), "")


def show_containers(
    console: Console, explanation: Explanation, *, is_short: bool, below: bool
) -> None:
    """Print what each container of the pod got.

    If it `is_short`, containers that the verdict is not about are left out.
    """
    parts = explanation.containers
    if is_short and not explanation.admitted:
        parts = tuple(part for part in parts if part.got or part.missed)

    if parts:
        columns = words.container_columns(explanation)
        table = Table(*columns, rows=words.container_rows(explanation, parts))
        print_whole(console, table, below=below)
        show_left_out(console, len(explanation.containers) - len(parts), "container", " of the pod")


def show_neighbours(console: Console, explanation: Explanation, *, is_short: bool) -> None:
    """Print what other containers on the node have; in short, only how many there are."""
    shown = 0
    if not is_short:
        shown = words.MOST_NEIGHBOURS
        if explanation.neighbours:
            table = Table(*words.NEIGHBOUR_COLUMNS, rows=words.neighbour_rows(explanation))
            print_whole(console, table, below=True)

    show_left_out(console, len(explanation.neighbours) - shown, "container", " on the node")


def show_left_out(console: Console, count: int, noun: str, suffix: str = "") -> None:
    """Say how many of some things are not shown."""
    if count > 0:
        console.print(f"and {counted(count, f'more {noun}')}{suffix}")


def show_step(console: Console, step: Step, explanation: Explanation, extent: Extent) -> None:
    """Print one decision: what was asked, there and offered, and the rule.

    Args:
        console: where.
        step: the decision.
        explanation: whose it is.
        extent: if short, only the resources to blame are shown.
    """
    heading = "the pod as a whole" if step.container is None else safe(step.container)
    console.print(f"[bold]{heading}[/]")

    resources = step.resources
    if extent.is_short and explanation.blamed:
        resources = tuple(part for part in resources if part.resource in explanation.blamed)

    if resources:
        show_resources(
            console, resources, explanation, has_holders="holders" not in extent.left_out
        )
        show_left_out(console, len(step.resources) - len(resources), "resource")
    elif step.container is not None:
        console.print("requests nothing that is allocated by NUMA node")

    show_prose(console, f"rule: {step.rule}", "")

    common = words.in_common(step)
    if common:
        show_prose(console, f"NUMA nodes left by the merge: {common}", "")

    if extent.product and step.product is not None:
        show_product(console, step.product)


def show_resources(
    console: Console,
    resources: Sequence[ResourcePart],
    explanation: Explanation,
    *,
    has_holders: bool = True,
) -> None:
    """Print what was asked, there and offered.

    Holders are one a line, and below the table where it is too wide.
    """
    rows: list[tuple[str, ...]] = [
        (*cells, holders.replace(", ", "\n"))
        for *cells, holders in words.resource_rows(
            resources, explanation.named_first, explanation.unknown
        )
    ]
    columns: tuple[str, ...] = words.RESOURCE_COLUMNS
    reserved = columns.index("reserved")
    if all(row[reserved] in {"-", ""} for row in rows):
        columns = (*columns[:reserved], *columns[reserved + 1 :])
        rows = [(*row[:reserved], *row[reserved + 1 :]) for row in rows]

    table = _resource_table(columns, rows, explanation)
    if has_holders and fits(console, table):
        print_whole(console, table)
        return

    rows_without_holders = [row[:-1] for row in rows]
    print_whole(console, _resource_table(columns[:-1], rows_without_holders, explanation))
    if not has_holders:
        return

    resource = ""
    numa_node = columns.index("NUMA node")
    for row in rows:
        # the name of a resource is in its first row only
        resource = row[0] or resource
        holders = row[-1].replace("\n", ", ")
        if holders not in {"-", ""}:
            console.print(safe(f"held, {resource}, NUMA node {row[numa_node]}: {holders}"))


def _resource_table(
    columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], explanation: Explanation
) -> Table:
    """Return a table of resources, in which those to blame and what is used up are marked."""
    table = Table(*columns, numbers=words.RESOURCE_NUMBERS, whole=("held by",))
    free = columns.index("free")
    for row in rows:
        cells = [safe(cell) for cell in row]
        if row[0] in explanation.blamed:
            cells[0] = short_of(cells[0])
        if row[free] == "0":
            cells[free] = none_left(cells[free])

        table.add_row(*cells)

    return table


def short_of(name: str) -> str:
    """Return the name of a resource that the pod is refused for, with rich's marks."""
    return f"[bold red]{name}[/]"


def none_left(amount: str) -> str:
    """Return an amount of nothing, with rich's marks."""
    return f"[red]{amount}[/]"


def show_product(console: Console, product: Product) -> None:
    """Print the cross product: a hint of each resource, and what they merge into.

    What the documents' rule would make of a row is told where it differs. The last line says what
    "left out" means.
    """
    rows = [product_cells(row) for row in product.rows]
    columns = (*map(safe, product.resources), "merged", "preferred", "documents")
    if not any(row[-1] for row in rows):
        columns = columns[:-1]
        rows = [row[:-1] for row in rows]

    print_whole(console, Table(*columns, rows=rows), below=True)

    count = str(product.count)
    if product.count > len(product.rows):
        count = f"{len(product.rows)} of {product.count}"

    note = ""
    if not all(row.considered for row in product.rows):
        note = (
            "; single-numa-node leaves out rows with a hint of several nodes, or one that is not "
            "preferred"
        )

    console.print(f"{count} rows{note}")


def product_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row of the cross product; the last is empty where the rules agree."""
    hints = [
        words.hint_in_words(hint.numa_nodes, preferred=hint.preferred, score=hint.score)
        for hint in row.hints
    ]
    merged = "nothing"
    if row.merged != ():
        merged = words.hint_in_words(row.merged, preferred=True, score=row.score)

    verdict = product_verdict(preferred=row.preferred, considered=row.considered)

    all_are_narrow = all(hint.numa_nodes is None or len(hint.numa_nodes) == 1 for hint in row.hints)
    documented_verdict = product_verdict(
        preferred=all(hint.preferred for hint in row.hints),
        considered=row.considered or all_are_narrow,
    )
    if documented_verdict == verdict:
        documented_verdict = ""

    return *hints, merged, verdict, documented_verdict


def product_verdict(*, preferred: bool, considered: bool) -> str:
    """Return whether a merged hint is preferred, and whether it counts at all."""
    verdict = "yes" if preferred else "no"
    if not considered:
        verdict += ", left out"

    return verdict


def _nothing_helps(kinds: Sequence[str]) -> str:
    """Return that no change helps, of the kinds that were tried."""
    if not kinds:
        return "no change could be tried on this node: try another node"
    return (
        f"nothing that was tried helps on this node ({', '.join(kinds)}): move the pod to another "
        "node"
    )


def show_suggestions(console: Console, explanation: Explanation, place: str = "") -> None:
    """Print what would help, the best first.

    Args:
        console: where.
        explanation: whose suggestions.
        place: in the heading, where they would help.
    """
    if not explanation.suggestions:
        if not (explanation.admitted or explanation.log):
            console.print()
            show_prose(console, _nothing_helps(explanation.tried), "")

        return

    console.print(f"\n[bold]what would help[/]{safe(place)} (each was tried):")
    for number, suggestion in enumerate(explanation.suggestions, 1):
        text = "ask for less, all of these:" if suggestion.changes else suggestion.text
        show_prose(console, text, f"  {number}. ", "     ")
        for change in suggestion.changes:
            show_prose(console, change, "       ", "         ")


# ---- the picture


def show_nodes(console: Console, explanation: Explanation) -> None:
    """Print a row for each resource that was asked for.

    It has a column for NUMA nodes that have the same of all. Where the console is too narrow, it
    goes without the holders, without bars, and without the nodes where least is free, in this
    order; these are counted.
    """
    resources = [
        part for part in explanation.resources if any(place.capacity for place in part.places)
    ]
    columns = _columns(resources)
    if not columns:
        return

    freest_first = sorted(columns, key=_free_share, reverse=True)
    bars = (True, False) if can_write(console, USED) else (False,)
    counts = range(len(columns), 0, -1)
    for count, has_bars, has_holders in itertools.product(counts, bars, (True, False)):
        shown_columns = {
            places: heading for places, heading in columns.items() if places in freest_first[:count]
        }
        table = _table(
            explanation, resources, shown_columns, has_bars=has_bars, has_holders=has_holders
        )
        if fits(console, table, WIDEST):
            break

    print_whole(console, table, below=True)
    if count < len(columns):
        more = counted(len(columns) - count, "more column")
        console.print(f"{more} of NUMA nodes, where less is free")


def _free_share(places: Sequence[PlacePart | None]) -> float:
    """Return how much is free of all resources together, each as a share of what is there."""
    return sum(place.free / (place.capacity or 1) for place in places if place)


def _columns(resources: Sequence[ResourcePart]) -> Columns:
    """Return by what NUMA nodes have of the resources how these nodes are called.

    Of many nodes, those that have the same share a column. Devices near several nodes, or near
    none, have their own.
    """
    shared_columns: dict[tuple[PlacePart | None, ...], list[int]] = {}
    first_places: dict[tuple[PlacePart | None, ...], tuple[PlacePart | None, ...]] = {}
    separate_columns = {}
    node_sets = sorted(
        {place.numa_nodes for part in resources for place in part.places if place.capacity}
    )
    for numa_nodes in node_sets:
        places = tuple(
            next((place for place in part.places if place.numa_nodes == numa_nodes), None)
            for part in resources
        )
        if len(numa_nodes) == 1 and len(node_sets) > MOST_COLUMNS:
            amounts = tuple(place and replace(place, numa_nodes=(), holders=()) for place in places)
            shared_columns.setdefault(amounts, []).append(numa_nodes[0])
            first_places.setdefault(amounts, places)
        else:
            separate_columns[places] = _column_heading(numa_nodes)

    columns = {}
    for amounts, ids in shared_columns.items():
        prefix = "NUMA node" if len(ids) == 1 else "each of NUMA nodes"
        columns[first_places[amounts]] = f"{prefix} {CPUSet(ids)}"

    return columns | separate_columns


def _column_heading(numa_nodes: tuple[int, ...]) -> str:
    """Return how a column of what is near some NUMA nodes is called."""
    if not numa_nodes:
        return "without NUMA node"
    if len(numa_nodes) == 1:
        return named("NUMA node", numa_nodes)

    ids = "+".join(map(str, numa_nodes))
    if len(numa_nodes) == 2:  # noqa: PLR2004  # English has a word for two
        return f"near both {ids}"
    return f"near all of {ids}"


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
    request = "asked"
    requester = resources[0].container or "pod"
    if len(explanation.containers) > 1 and len(requester) <= LONGEST_NAME:
        request = f"{requester} asks"

    headings = [legend, request, *columns.values()]
    if has_holders:
        headings.append("held by")

    table = Table(*headings, numbers=(request,), whole=tuple(columns.values()))
    for row, part in enumerate(resources):
        in_words = words.amounts_in_words(part)
        name = safe(part.resource)
        if part.resource in explanation.blamed:
            name = short_of(name)

        requested = ""
        if part.asked is not None:
            requested = in_words(part.asked)

        cells = [name, requested]
        cells += [_cell(places[row], in_words, has_bars=has_bars) for places in columns]

        if has_holders:
            cells.append(safe(_holders(part, explanation)))

        table.add_row(*cells)

    return table


def _cell(place: PlacePart | None, in_words: Callable[[int], str], *, has_bars: bool) -> str:
    """Return what is free at a place, with rich's marks."""
    if place is None or not place.capacity:
        return "-"

    amount = in_words(place.free)
    if not place.free:
        amount = none_left(amount)
    if has_bars:
        return f"{_bar(place)}{amount}"
    return amount


def _bar(place: PlacePart) -> str:
    """Return a square for each unit, those in use first, with rich's marks.

    Of what is there, be it in use or free, some is seen.
    """
    squares = min(place.capacity, MOST_SQUARES)
    used = squares * (place.capacity - place.free) // place.capacity
    if used == 0 and place.free < place.capacity:
        used = 1
    if used == squares and place.free:
        used -= 1

    padding = " " * (MOST_SQUARES - squares)
    return f"[red]{USED * used}[/][green]{FREE * (squares - used)}[/]{padding} "


def _holders(resource: ResourcePart, explanation: Explanation) -> str:
    """Return who holds some of a resource, and what is reserved.

    Pods to remove and containers of this pod come first.
    """
    comes_first: dict[str, bool] = {}
    for place in resource.places:
        for holder in place.holders:
            name = holder.pod
            if holder.pod == explanation.pod:
                name = f"own {holder.container}"

            comes_first[name] = holder.pod in explanation.named_first

    names = sorted(comes_first, key=lambda name: not comes_first[name])
    parts = []
    if names:
        parts.append(some_of(names, max(MOST_PODS, sum(comes_first.values()))))

    reserved = sum(place.reserved for place in resource.places)
    if reserved:
        keeper = "unhealthy" if resource.unit == "devices" else "system"
        parts.append(f"{keeper} ({words.amounts_in_words(resource)(reserved)})")

    return ", ".join(parts)
