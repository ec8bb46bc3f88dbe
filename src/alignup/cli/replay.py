"""`alignup replay`: reads scenarios and prints the answer to each of their steps, or a report on all of them."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli import options, terminal
from alignup.cli.inputs import open_input, read_lines
from alignup.errors import InputError, errors_at, one_line
from alignup.text.counting import counted, number_in, short_bytes
from alignup.text.json_text import numbered_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.cli.terminal import Console
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.replay.summary import Counts, NodeReport, Report

# Fewer scenarios than this are over before a progress bar would be read.
SHOWN_PROGRESS = 200

# Longer tables of utilisation are cut; JSON has all of it.
MOST_ROWS: Final = 60

_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE: Final = 24


@options.subcommand("replay", "0 done; 1 with --fail-on-refusal if something was refused")
def command(
    *,
    as_json: bool = options.json("scenario"),
    with_hints: bool = options.flag("With --json: add the hints of each provider.", "--hints"),
    fail_on_refusal: bool = options.flag(
        "Exit with status 1 if a pod is refused or a kubelet would not start."
    ),
    versions: tuple[KubeletVersion, ...] = options.kubelet_versions,
    compares: bool = options.flag(
        "Compare the decisions of several releases: those of --kubelet-version, of a list that "
        "follows "
        "(`--compare-versions 1.36,1.37 FILE`), or all known releases. With --json, an object for "
        "each release.",
        "--compare-versions",
    ),
    summary: bool = options.flag(
        "Print a report, not the steps: admissions, refusals, alignment, and how full the NUMA "
        "nodes got."
    ),
    compare: str | None = options.value(
        "Replay everything under each of these policies, such as restricted/pod,none, and print "
        "the reports side by "
        "side.",
        metavar="POLICY[/SCOPE],...",
        shell_complete=options.one_of(
            *options.POLICIES, *(f"{one}/pod" for one in options.POLICIES[1:])
        ),
    ),
    files: tuple[str, ...] = options.files("FILE.jsonl...", required=True),
) -> int:
    """Replay scenarios of pods that come and go, one JSON object a line (gzip too; `-` reads standard input).

        alignup replay scenarios.jsonl
        alignup replay --compare restricted/pod,none scenarios.jsonl

    A scenario has the keys `machine` (a catalog name, or what `alignup machine --json` prints),
    `kubelet` (fields of a KubeletConfiguration), `devices` (resource -> [{"id", "numa"}]),
    `preferredSets`, `name`, and `steps`: {"admit": Pod}, {"start": uid, "container": name} or
    {"remove": uid}. docs/scenarios.md describes them all.

    In a report, stranded capacity is free but unusable. It is the share of the allocatable amount
    that was free when a pod was refused although the node had enough of every resource in total,
    averaged over all pods that arrived. Held capacity is averaged over steps.
    """
    if with_hints and not as_json:
        raise click.UsageError("--hints needs --json")
    if compares:
        versions, files = listed_versions(versions, files)

    reports = summary or compare is not None
    if reports and (compares or len(versions) > 1 or with_hints):
        raise click.UsageError(
            "--summary and --compare go with one kubelet version, and without --hints"
        )

    found = scenarios(files)
    version = versions[0] if versions else None
    with terminal.progress("replaying", count_lines(files)) as advance:
        if reports:
            made = make_reports(found, compare, version, advance)
        else:
            compared = versions if compares or len(versions) > 1 else ()
            refused = answer(
                found, compared, version, advance, with_hints=with_hints, as_json=as_json
            )

    if reports:
        if as_json:
            terminal.print_json(*(one.to_dict() for one in made))
        elif compare is not None:
            show_comparison(made)
        else:
            show_report(made[0])

        refused = any(
            one.total.refused or any(node.config_error for node in one.nodes) for one in made
        )

    return 1 if refused and fail_on_refusal else 0


def listed_versions(
    versions: tuple[KubeletVersion, ...], files: tuple[str, ...]
) -> tuple[tuple[KubeletVersion, ...], tuple[str, ...]]:
    """Return the releases to compare, of which the first argument may be a list, and the files."""
    from alignup.kubernetes.versions import KNOWN_VERSIONS, parse_versions

    if not versions and len(files) > 1 and not Path(files[0]).exists():
        with suppress(InputError):
            return parse_versions(files[0], "--compare-versions"), files[1:]
    return versions or KNOWN_VERSIONS, files


def answer(
    found: Iterable[tuple[str, dict[str, Any]]],
    compared: Sequence[KubeletVersion],
    version: KubeletVersion | None,
    advance: Callable[[float], None],
    *,
    with_hints: bool,
    as_json: bool,
) -> bool:
    """Print the answers to the steps of each scenario, and return whether something was refused."""
    from alignup.replay import replay

    refused = False
    for where, scenario in found:
        with errors_at(where):
            answers = [
                ({"kubeletVersion": str(one)} if compared else {})
                | replay(
                    scenario, with_hints=with_hints, with_faults=bool(compared), kubelet_version=one
                )
                for one in compared or (version,)
            ]

        refused = refused or any(refuses(one) for one in answers)
        if as_json:
            terminal.print_json(*answers)
        elif compared:
            click.echo("\n".join(compared_lines(dict(zip(compared, answers, strict=True)), where)))
        else:
            click.echo("\n".join(lines_of(answers[0], scenario.get("steps", ()), where)))

        advance(1)

    return refused


def refuses(answer: dict[str, Any]) -> bool:
    """Return whether a pod is refused, or the kubelet would not start."""
    return "configError" in answer or any(not step["admitted"] for step in answer["steps"])


def compared_lines(answers: dict[KubeletVersion, dict[str, Any]], where: str = "") -> Iterator[str]:
    """Yield the lines that a person reads about one scenario under several kubelets; see `lines_of`."""
    yield f"{next(iter(answers.values()))['name'] or f'scenario {where}'.rstrip()}:"
    for version, answer in answers.items():
        if "configError" in answer:
            yield f"  kubelet {version} would not start: {answer['configError']}"
    started = {version: one["steps"] for version, one in answers.items() if "steps" in one}
    for number in range(len(next(iter(started.values()), ()))):
        texts = {version: answer_text(steps[number]) for version, steps in started.items()}
        yield from (f"  {line}" for line in difference_lines(str(number), texts))


def answer_text(answer: Mapping[str, Any]) -> str:
    """Return verdict and allocations of one pod, as JSON has them, in a line."""
    if "kubelet" in answer:
        return f"the kubelet {answer['kubelet']}"
    if not answer["admitted"]:
        return f"refused, {answer['reason']}"
    got = "; ".join(
        container_text(name, one, whole=True) for name, one in answer["containers"].items()
    )
    return f"admitted, {got}" if got else "done"


def container_text(name: str, container: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return what one container got, in a few words; `whole`: with the memory, and whether it is preferred."""
    affinity = container.get("affinity") or {}
    parts = [f"NUMA node {terminal.nodes_text(affinity.get('numaNodes'))}"]
    if whole and affinity and not affinity["preferred"]:
        parts.append("not preferred")

    parts.append(f"CPUs {container['cpus'] or 'shared'}")
    parts += [
        f"{block['type']} {short_bytes(block['size'])} @ {terminal.nodes_text(block['numaNodes'])}"
        for block in container["memory"]
        if whole and block["size"]
    ]
    parts += [
        f"{resource} {','.join(ids)}" for resource, ids in container["devices"].items() if ids
    ]
    return f"{name}: {', '.join(parts)}"


def difference_lines(label: str, texts: Mapping[KubeletVersion, str]) -> Iterator[str]:
    """Yield what releases say about one thing: one line if several agree on it, else one for each group that does."""
    if len(set(texts.values())) == 1 < len(texts):
        yield terminal.safe(
            f"{label}: {', '.join(map(str, texts))} agree: {next(iter(texts.values()))}"
        )
        return
    yield terminal.safe(f"{label}:")
    for text in dict.fromkeys(texts.values()):
        agreeing = [str(version) for version, one in texts.items() if one == text]
        yield terminal.safe(f"  {', '.join(agreeing)}: {text}")


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


def count_lines(files: Iterable[str]) -> int | None:
    """Return how many scenarios there are, if somebody may want to see how far it is; None: it cannot be foreseen."""
    if not sys.stderr.isatty() or not all(Path(name).is_file() for name in files):
        return None
    total = sum(1 for _ in lines(files))
    return total if total >= SHOWN_PROGRESS else None


def lines_of(
    answer: dict[str, Any], steps: Sequence[Mapping[str, Any]], where: str = ""
) -> Iterator[str]:
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

        got = "; ".join(
            container_text(name, container) for name, container in step["containers"].items()
        )
        other = f"{one_line(asked['container'])} started" if "start" in asked else "removed"
        yield f"  {number}: " + (f"admitted, {got}" if got else other)


def make_reports(
    scenarios: Iterable[tuple[str, dict[str, object]]],
    compare: str | None,
    version: KubeletVersion | None,
    advance: Callable[[float], None],
) -> list[Report]:
    """Return a report for each configuration.

    Args:
        scenarios: each with its place.
        compare: the configurations; None: that of each scenario.
        version: the release of all kubelets; None: that of each scenario.
        advance: told the parts of a scenario that are done.
    """
    from alignup.replay.scenario import read_steps
    from alignup.replay.summary import Report, parse_configurations, summarized, with_kubelet

    configurations = {"": None} if compare is None else parse_configurations(compare)
    nodes: dict[str, list[NodeReport]] = {label: [] for label in configurations}
    for where, scenario in scenarios:
        with errors_at(where):
            steps = read_steps(scenario)
            whole = len(steps) * len(configurations)

            def tick(done: int, whole: int = whole) -> None:
                advance(done / whole)

            for label, fields in configurations.items():
                node = scenario if fields is None else with_kubelet(scenario, fields)
                nodes[label].append(summarized(node, steps, kubelet_version=version, tick=tick))

            if not steps:
                advance(1)

    return [Report(found, label) for label, found in nodes.items()]


def errors_of(report: Report) -> Iterator[str]:
    """Yield a sentence for each node whose kubelet would not start."""
    for node in report.nodes:
        if node.config_error:
            yield terminal.safe(f"{node.name or 'scenario'} would not start: {node.config_error}")


def show_report(report: Report) -> None:
    """Print a report."""
    console = terminal.make_console()
    total = report.total
    console.print(f"{counted(len(report.nodes), 'node')}, {counted(total.steps, 'step')}")
    for sentence in errors_of(report):
        console.print(f"  {sentence}")

    share = total.admitted / max(1, total.arrivals)
    console.print(f"{total.admitted:8} of {total.arrivals} pods ({share:.1%}) admitted")
    console.print(
        f"{total.fitting:8} refused although the node had enough of every resource in total"
    )
    for reason, count in sorted(total.reasons.items()):
        console.print(f"{count:8} refused: {terminal.safe(reason)}")

    for resource, count in sorted(total.resources.items()):
        console.print(f"{count:8} refused because of {terminal.safe(resource)}")

    console.print(alignment(total))
    if len(report.nodes) > 1:
        show_nodes(console, report.nodes)

    show_use(console, report.nodes)
    numbers = ("held on average", "stranded")
    used = report.utilisation.items()
    rows = [
        (resource, number_in(held), number_in(report.stranded.get(resource)))
        for resource, held in used
    ]
    if rows:
        terminal.print_whole(
            console, terminal.Table("resource", *numbers, numbers=numbers, rows=rows), below=True
        )


def alignment(counts: Counts) -> str:
    """Return how well containers are aligned, in a line."""
    if counts.preferred_share is None and counts.mean_numa_nodes is None:
        return "no container was aligned"
    return (
        f"alignment: {number_in(counts.preferred_share)} of containers preferred, "
        f"{number_in(counts.mean_numa_nodes, '.2f')} NUMA nodes a container on average"
    )


def show_nodes(console: Console, nodes: Sequence[NodeReport]) -> None:
    """Print a line for each node."""
    numbers = ("pods", "admitted", "refused", "preferred", "NUMA nodes a container")
    rows = []
    for node, counts in ((node, node.counts) for node in nodes[:MOST_ROWS]):
        admitted = number_in(counts.admitted / max(1, counts.arrivals))
        aligned = (number_in(counts.preferred_share), number_in(counts.mean_numa_nodes, ".2f"))
        blamed = ", ".join(
            f"{resource} {count}" for resource, count in counts.resources.most_common()
        )
        rows.append(
            (
                node.name or "-",
                str(counts.arrivals),
                admitted,
                str(counts.refused),
                *aligned,
                blamed or "-",
            )
        )

    print_rows(
        console,
        terminal.Table("node", *numbers, "refused because of", numbers=numbers, rows=rows),
        len(nodes),
    )


def show_use(console: Console, nodes: Sequence[NodeReport]) -> None:
    """Print how full each NUMA node was, on average, at most and over time."""
    numbers = ("allocatable", "mean", "peak")
    uses = [(node, use) for node in nodes for use in node.uses]
    bars = _BARS if terminal.can_write(console, _BARS) else "01234567"
    rows = []
    for node, use in uses[:MOST_ROWS]:
        place = (node.name or "-", use.resource, terminal.nodes_text(use.numa_nodes or None))
        amounts = (
            terminal.amount_text(use.resource, use.allocatable),
            number_in(use.mean),
            number_in(use.peak),
        )
        rows.append((*place, *amounts, sparkline(use.curve, bars)))

    if uses:
        headings = ("node", "resource", "NUMA node", *numbers, "over time")
        print_rows(console, terminal.Table(*headings, numbers=numbers, rows=rows), len(uses))


def print_rows(console: Console, table: terminal.Table, count: int) -> None:
    """Print a table, and how many lines more it would have if it were whole."""
    terminal.print_whole(console, table, below=True)
    if count > MOST_ROWS:
        console.print(f"and {count - MOST_ROWS} more; --json has all of them")


def sparkline(curve: Sequence[float], bars: str) -> str:
    """Return a curve of parts from 0 to 1 as letters of rising height."""
    if not curve:
        return "-"
    width = min(_CURVE, len(curve))
    chosen = [curve[index * len(curve) // width] for index in range(width)]
    return "".join(bars[min(len(bars) - 1, int(one * len(bars)))] for one in chosen)


def show_comparison(reports: Sequence[Report]) -> None:
    """Print the reports of several configurations side by side."""
    from alignup.replay.summary import HEADINGS

    console = terminal.make_console()
    resources = list(dict.fromkeys(name for report in reports for name in report.utilisation))
    numbers = [
        *HEADINGS,
        *(f"{name} {word}" for name in resources for word in ("held", "stranded")),
    ]
    rows = []
    for report in reports:
        cells = list(report.total.cells())
        for name in resources:
            cells += [number_in(report.utilisation.get(name)), number_in(report.stranded.get(name))]
        rows.append((report.configuration, *cells))

    headings = tuple(map(terminal.safe, numbers))
    terminal.print_whole(
        console, terminal.Table("configuration", *headings, numbers=headings, rows=rows)
    )
    for report in reports:
        for sentence in errors_of(report):
            console.print(f"{report.configuration}: {sentence}")
