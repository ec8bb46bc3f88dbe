"""Prints reports on replays for people: of one configuration in full, of several side by side."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from alignup.cli.terminal import counted, make_console, make_table, print_whole, safe
from alignup.text.byte_sizes import short_bytes
from alignup.text.json_lines import errors_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

    from alignup.kubernetes.versions import KubeletVersion
    from alignup.replay.report import Counts, NodeReport, Report
    from alignup.replay.summary import Configuration

__all__ = ["make_reports", "show_comparison", "show_report"]

MOST_ROWS: Final = 60
"""Longer tables of utilisation are cut; JSON has all of it."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE: Final = 24


def make_reports(
    scenarios: Iterable[tuple[str, dict[str, object]]],
    configurations: Sequence[Configuration | None],
    version: KubeletVersion | None,
    total: int | None,
) -> list[Report]:
    """Return a report for each configuration.

    Args:
        scenarios: each with its place.
        configurations: None stands for that of each scenario.
        version: the release of all kubelets; None: that of each scenario.
        total: how many scenarios there are, to show how far it is; None: show nothing.
    """
    from alignup.replay.report import Report
    from alignup.replay.steps import read_steps, steps_of
    from alignup.replay.summary import summarized, with_kubelet

    nodes: list[list[NodeReport]] = [[] for _ in configurations]
    with progress(total) as advance:
        for where, scenario in scenarios:
            with errors_at(where):
                steps = read_steps(steps_of(scenario))
                whole = max(1, len(steps) * len(configurations))

                def tick(done: int, whole: int = whole) -> None:
                    advance(done / whole)

                for found, one in zip(nodes, configurations, strict=True):
                    node = scenario if one is None else with_kubelet(scenario, one.fields)
                    found.append(summarized(node, steps, kubelet_version=version, tick=tick))
                if not steps:
                    advance(1)
    return [Report(found, one.label if one else "") for found, one in zip(nodes, configurations, strict=True)]


@contextmanager
def progress(total: int | None) -> Iterator[Callable[[float], None]]:
    """Show how many of so many scenarios are replayed; None: show nothing."""
    if total is None:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("replaying"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda done: bar.advance(task, done)


def show_report(report: Report) -> None:
    """Print a report."""
    console = make_console()
    total = report.total
    console.print(f"{counted(len(report.nodes), 'node')}, {counted(total.steps, 'step')}")
    for node in report.nodes:
        if node.config_error:
            console.print(f"  {safe(node.name or 'scenario')} would not start: {safe(node.config_error)}")
    console.print(
        f"{total.admitted:8} of {total.arrivals} pods ({part(total.admitted, total.arrivals)}) admitted"
    )
    console.print(f"{total.fitting:8} refused although the node had enough of everything in sum")
    for reason, count in sorted(total.reasons.items()):
        console.print(f"{count:8} refused: {safe(reason)}")
    for resource, count in sorted(total.resources.items()):
        console.print(f"{count:8} refused because of {safe(resource)}")
    console.print(alignment(total))
    if len(report.nodes) > 1:
        show_nodes(console, report.nodes)
    show_use(console, report.nodes)
    show_stranded(console, report)


def part(count: int, whole: int) -> str:
    """Return a part of a number in percent."""
    return f"{count / max(1, whole):.1%}"


def share(value: float | None) -> str:
    """Return a part in percent, a dash for none."""
    return "-" if value is None else f"{value:.1%}"


def mean(value: float | None) -> str:
    """Return a mean with two decimals, a dash for none."""
    return "-" if value is None else f"{value:.2f}"


def alignment(counts: Counts) -> str:
    """Return how well containers are aligned, in a line."""
    if counts.preferred_share is None and counts.mean_numa_nodes is None:
        return "no container was aligned"
    return (
        f"alignment: {share(counts.preferred_share)} of containers preferred, "
        f"{mean(counts.mean_numa_nodes)} NUMA nodes a container on average"
    )


def show_nodes(console: Console, nodes: Sequence[NodeReport]) -> None:
    """Print a line for each node."""
    numbers = ("pods", "admitted", "refused", "preferred", "NUMA nodes a container")
    table = make_table("node", *numbers, "refused because of", numbers=numbers)
    for node in nodes[:MOST_ROWS]:
        counts = node.counts
        why = ", ".join(f"{resource} {count}" for resource, count in counts.resources.most_common())
        table.add_row(
            safe(node.name or "-"),
            str(counts.arrivals),
            part(counts.admitted, counts.arrivals),
            str(counts.refused),
            share(counts.preferred_share),
            mean(counts.mean_numa_nodes),
            safe(why or "-"),
        )
    console.print()
    print_whole(console, table)
    say_rest(console, len(nodes))


def show_use(console: Console, nodes: Sequence[NodeReport]) -> None:
    """Print how full each NUMA node was, on average, at most and over time."""
    numbers = ("allocatable", "mean", "peak")
    table = make_table("node", "resource", "NUMA node", *numbers, "over time", numbers=numbers)
    rows = [(node, use) for node in nodes for use in node.uses]
    bars = _BARS if can_show(console, _BARS) else "01234567"
    for node, use in rows[:MOST_ROWS]:
        place = use.place
        is_bytes = place.resource == "memory" or place.resource.startswith("hugepages-")
        table.add_row(
            safe(node.name or "-"),
            safe(place.resource),
            ",".join(map(str, place.numa_nodes)) or "any",
            short_bytes(place.allocatable) if is_bytes else str(place.allocatable),
            share(use.mean),
            share(use.peak),
            sparkline(use.curve, bars),
        )
    if rows:
        console.print()
        print_whole(console, table)
        say_rest(console, len(rows))


def say_rest(console: Console, count: int) -> None:
    """Print how many lines a table would have beyond those that are shown."""
    if count > MOST_ROWS:
        console.print(f"and {count - MOST_ROWS} more; --json has all of them")


def can_show(console: Console, text: str) -> bool:
    """Return whether the console's encoding has all of a text's letters."""
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return True


def sparkline(curve: Sequence[float], bars: str) -> str:
    """Return a curve of parts from 0 to 1 as letters of rising height."""
    if not curve:
        return "-"
    width = min(_CURVE, len(curve))
    chosen = [curve[index * len(curve) // width] for index in range(width)]
    return "".join(bars[min(len(bars) - 1, int(one * len(bars)))] for one in chosen)


def show_stranded(console: Console, report: Report) -> None:
    """Print stranded capacity by resource."""
    numbers = ("held on average", "stranded")
    table = make_table("resource", *numbers, numbers=numbers)
    for resource, held in report.utilisation.items():
        table.add_row(safe(resource), share(held), share(report.stranded.get(resource)))
    if table.row_count:
        console.print()
        print_whole(console, table)


def show_comparison(reports: Sequence[Report]) -> None:
    """Print the reports of several configurations side by side."""
    console = make_console()
    resources = list(dict.fromkeys(name for report in reports for name in report.utilisation))
    numbers = ["pods", "admitted", "refused", "enough in sum", "preferred", "NUMA nodes a container"]
    numbers += [f"{name} {word}" for name in resources for word in ("held", "stranded")]
    table = make_table("configuration", *map(safe, numbers), numbers=tuple(map(safe, numbers)))
    for report in reports:
        total = report.total
        cells = [
            str(total.arrivals),
            part(total.admitted, total.arrivals),
            str(total.refused),
            str(total.fitting),
        ]
        cells += [share(total.preferred_share), mean(total.mean_numa_nodes)]
        for name in resources:
            cells += [share(report.utilisation.get(name)), share(report.stranded.get(name))]
        table.add_row(report.configuration, *cells)
    print_whole(console, table)
    for report in reports:
        for node in report.nodes:
            if node.config_error:
                name = safe(node.name or "scenario")
                console.print(f"{report.configuration}: {name} would not start: {safe(node.config_error)}")
