"""`alignup replay`: reads scenarios and prints the answer to each of their steps, or a report on all of them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli.inputs import open_input, read_lines, write_text
from alignup.cli.options import (
    file_arguments,
    flag,
    html_option,
    json_option,
    kubelet_versions_option,
    option,
    subcommand,
)
from alignup.cli.terminal import can_write, make_console, make_table, nodes_text, print_whole, safe
from alignup.errors import InputError, one_line
from alignup.text.byte_sizes import counted, short_bytes
from alignup.text.json_text import errors_at, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.cli.terminal import Console
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.replay.report import Counts, NodeReport, Report
    from alignup.replay.summary import Configuration

SHOWN_PROGRESS = 200
"""Fewer scenarios than this are over before a progress bar would be read."""


@subcommand("replay", "0 done; 1 with --fail-on-refusal if something was refused")
def command(
    *,
    as_json: bool = json_option("a scenario"),
    with_hints: bool = flag("With --json: add what each provider offered.", "--hints"),
    fail_on_refusal: bool = flag("Exit with status 1 if a pod is refused, or a kubelet would not start."),
    versions: tuple[KubeletVersion, ...] = kubelet_versions_option,
    compares: bool = flag(
        "Compare what the kubelets of --kubelet-version decide, or all that are known; with --json, one object for "
        "each of them.",
        "--compare-versions",
    ),
    summary: bool = flag(
        "Print a report in place of the steps: admissions, refusals, alignment, and how full the NUMA nodes got."
    ),
    compare: str | None = option(
        "Replay everything under each of these, and print the reports side by side: as in restricted/pod,none.",
        metavar="POLICY[/SCOPE],...",
    ),
    html: str | None = html_option,
    files: tuple[str, ...] = file_arguments("FILE.jsonl...", required=True),
) -> int:
    """Replay scenarios, one JSON object a line (gzip too; `-` reads standard input).

    A scenario has the keys `machine` (as `alignup machine --json` prints it, or a name of the catalog), `kubelet`
    (fields of a KubeletConfiguration), `devices` (resource -> [{"id", "numa"}]), `preferredSets`, `name`, and `steps`:
    {"admit": Pod}, {"start": uid, "container": name} or {"remove": uid}. docs/scenarios.md describes them all.

    In a report, stranded is free but unusable capacity: the part of the allocatable amount that was free when a pod
    was refused although the node had enough of every resource in total; averaged over all pods that arrived. Held is
    averaged over steps.
    """
    if with_hints and not as_json:
        raise click.UsageError("--hints needs --json")
    if summary or compare is not None:
        if compares or len(versions) > 1 or with_hints:
            raise click.UsageError("--summary and --compare go with one kubelet version, and without --hints")
        refused = report(files, compare, versions[0] if versions else None, html, as_json=as_json)
    else:
        refused = answer(files, versions, html, compares=compares, with_hints=with_hints, as_json=as_json)
    return 1 if refused and fail_on_refusal else 0


def answer(
    files: tuple[str, ...],
    versions: tuple[KubeletVersion, ...],
    html: str | None,
    *,
    compares: bool,
    with_hints: bool,
    as_json: bool,
) -> bool:
    """Print the answers to the steps of each scenario, and return whether something was refused."""
    import msgspec

    from alignup.kubernetes.versions import KNOWN_VERSIONS
    from alignup.replay import replay

    compared = (versions or KNOWN_VERSIONS) if compares or len(versions) > 1 else ()
    refused = False
    kept = Kept()
    found = scenarios(files) if html is None else kept.passing(scenarios(files))
    for where, scenario in with_progress(found, files):
        with errors_at(where):
            answers = [
                {
                    **({"kubeletVersion": str(version)} if compared else {}),
                    **replay(scenario, with_hints=with_hints, kubelet_version=version),
                }
                for version in compared or versions or (None,)
            ]
        refused = refused or any(refuses(one) for one in answers)
        if as_json:
            for one in answers:
                click.echo(msgspec.json.encode(one))
        elif compared:
            click.echo("\n".join(compared_lines(dict(zip(compared, answers, strict=True)), where)))
        else:
            click.echo("\n".join(lines_of(answers[0], scenario.get("steps", ()), where)))
    if html is not None:
        write_text(html, kept.page(None, versions[0] if versions else None))
    return refused


def report(
    files: Sequence[str], compare: str | None, version: KubeletVersion | None, html: str | None, *, as_json: bool
) -> bool:
    """Print a report, or several side by side, and return whether something was refused."""
    import msgspec

    from alignup.replay.summary import parse_configurations

    configurations = (None,) if compare is None else parse_configurations(compare)
    total = sum(1 for _ in lines(files)) if shows_progress(files) else None
    kept = Kept()
    found = scenarios(files) if html is None else kept.passing(scenarios(files))
    reports = make_reports(found, configurations, version, total)
    if html is not None:
        from alignup.replay.report_page import comparison_page

        write_text(html, comparison_page(reports) if compare is not None else kept.page(reports[0], version))
    if as_json:
        for one in reports:
            click.echo(msgspec.json.encode(one.to_dict()))
    elif compare is None:
        show_report(reports[0])
    else:
        show_comparison(reports)
    return any(one.total.refused or any(node.config_error for node in one.nodes) for one in reports)


class Kept:
    """Keeps the scenarios that pass by, as many as a page shows."""

    def __init__(self) -> None:
        self.scenarios: list[dict[str, Any]] = []
        self.count = 0

    def passing(self, found: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what is found."""
        from alignup.replay.report_page import MOST_SCENARIOS

        for where, scenario in found:
            self.count += 1
            if self.count <= MOST_SCENARIOS:
                self.scenarios.append(scenario)
            yield where, scenario

    def page(self, report: Report | None, version: KubeletVersion | None) -> str:
        """Return the page of what has passed by."""
        from alignup.replay.report_page import replay_page

        return replay_page(self.scenarios, self.count, report, version)


def refuses(answer: dict[str, Any]) -> bool:
    """Return whether a pod is refused, or the kubelet would not start."""
    return "configError" in answer or any(not step["admitted"] for step in answer["steps"])


def compared_lines(answers: dict[KubeletVersion, dict[str, Any]], where: str = "") -> Iterator[str]:
    """Yield the lines that a person reads about one scenario under several kubelets; see `lines_of`."""
    from alignup.cli.comparison import answer_text, difference_lines

    first = next(iter(answers.values()))
    yield f"{first['name'] or f'scenario {where}'.rstrip()}:"
    for version, answer in answers.items():
        if "configError" in answer:
            yield f"  kubelet {version} would not start: {answer['configError']}"
    started = {version: one["steps"] for version, one in answers.items() if "steps" in one}
    for number in range(len(next(iter(started.values()), ()))):
        texts = {version: answer_text(steps[number]) for version, steps in started.items()}
        yield from (f"  {line}" for line in difference_lines(str(number), texts))


def scenarios(files: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each scenario, and before it its place, as soon as its line is there.

    Raises:
        InputError: a line is not a JSON object.
    """
    from alignup.text.json_text import decode_json

    for where, line in lines(files):
        scenario: Any = decode_json(line, "a scenario as a JSON object on one line", where)
        if not isinstance(scenario, dict):
            raise InputError.at(where, "a JSON object", scenario)
        yield where, scenario


def lines(files: Iterable[str]) -> Iterator[tuple[str, str | bytes]]:
    """Yield each line that is not blank, and before it its place.

    Raises:
        InputError: a file cannot be read, or a line is too long.
    """
    for name in files:
        with open_input(name) as file:
            yield from numbered_lines(read_lines(file, name), name)


def shows_progress(files: Iterable[str]) -> bool:
    """Return whether somebody may want to see how far it is, and how far it goes can be found out beforehand."""
    return sys.stderr.isatty() and all(Path(name).is_file() for name in files)


def with_progress(
    work: Iterable[tuple[str, dict[str, Any]]], files: tuple[str, ...]
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Show how far a long replay is, on a terminal only, and only of files that can be read twice."""
    if not shows_progress(files):
        return work
    total = sum(1 for _ in lines(files))
    if total < SHOWN_PROGRESS:
        return work
    from rich.console import Console
    from rich.progress import track

    return track(work, "replaying", total=total, console=Console(stderr=True), transient=True)


def lines_of(answer: dict[str, Any], steps: Sequence[Mapping[str, Any]], where: str = "") -> Iterator[str]:
    """Yield the lines that a person reads about the answer to one scenario with these steps.

    Args:
        answer: as `replay` returns it.
        steps: of the scenario.
        where: its place, which stands for a name that it lacks.
    """
    yield f"{answer['name'] or f'scenario {where}'.rstrip()}:"
    if "configError" in answer:
        yield f"  the kubelet would not start: {answer['configError']}"
        return
    for number, (asked, step) in enumerate(zip(steps, answer["steps"], strict=True)):
        if not step["admitted"]:
            yield f"  {number}: refused, {step['reason']}: {step['message']}"
            continue
        got = "; ".join(container_text(name, container) for name, container in step["containers"].items())
        other = f"{one_line(asked['container'])} started" if "start" in asked else "removed"
        yield f"  {number}: " + (f"admitted, {got}" if got else other)


def container_text(name: str, container: dict[str, Any]) -> str:
    """Return what one container got, in a few words."""
    affinity = container.get("affinity") or {}
    nodes = affinity.get("numaNodes")
    parts = [f"NUMA {nodes_text(nodes)}", f"CPUs {container['cpus'] or 'shared'}"]
    parts += [f"{resource} {','.join(ids)}" for resource, ids in container["devices"].items() if ids]
    return f"{name}: {', '.join(parts)}"


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
    console.print(f"{total.admitted:8} of {total.arrivals} pods ({part(total.admitted, total.arrivals)}) admitted")
    console.print(f"{total.fitting:8} refused although the node had enough of every resource in total")
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
    bars = _BARS if can_write(console, _BARS) else "01234567"
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
        cells = [str(total.arrivals), part(total.admitted, total.arrivals), str(total.refused), str(total.fitting)]
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
