"""`alignup replay`: reads scenarios and prints the answer to each of their steps.

It can also print a report on all of them.
"""

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
        "follows (`--compare-versions 1.36,1.37 FILE`), or all that are out. With --json, an "
        "object for each release.",
        "--compare-versions",
    ),
    summary: bool = options.flag(
        "Print a report, not the steps: admissions, refusals, alignment, and how full the NUMA "
        "nodes got."
    ),
    compare: str | None = options.value(
        "Replay everything under each of these policies, such as restricted/pod,none, and print "
        "the reports side by side.",
        metavar="POLICY[/SCOPE],...",
        shell_complete=options.one_of(
            *options.POLICIES, *(f"{policy}/pod" for policy in options.POLICIES[1:])
        ),
    ),
    files: tuple[str, ...] = options.files("FILE.jsonl...", required=True),
) -> int:
    """Replay scenarios of pods that come and go, one JSON object a line.

        alignup replay scenarios.jsonl
        alignup replay --compare restricted/pod,none scenarios.jsonl

    A scenario has the keys `machine` (a catalog name, or what `alignup machine --json` prints),
    `kubelet` (fields of a KubeletConfiguration), `devices` (resource -> [{"id", "numa"}]),
    `preferredSets`, `name`, and `steps`: {"admit": Pod}, {"start": uid, "container": name} or
    {"remove": uid}. docs/scenarios.md describes them all. Files may be compressed with gzip; `-`
    reads standard input.

    In a report, stranded capacity is free but unusable. It is the share of the allocatable amount
    that was free when a pod was refused although the node had enough of every resource in total,
    averaged over all pods that arrived. Held capacity is averaged over steps.
    """
    if with_hints and not as_json:
        raise click.UsageError("--hints needs --json")
    if compares:
        versions, files = listed_versions(versions, files)

    wants_reports = summary or compare is not None
    if wants_reports and (compares or len(versions) > 1 or with_hints):
        raise click.UsageError(
            "--summary and --compare go with one kubelet version, and without --hints"
        )

    version = versions[0] if versions else None
    compared = versions if compares or len(versions) > 1 else ()
    with terminal.progress("replaying", count_lines(files)) as advance:
        if wants_reports:
            reports = make_reports(scenarios(files), compare, version, advance)
        else:
            has_refusal = answer(
                scenarios(files), compared, version, advance, with_hints=with_hints, as_json=as_json
            )

    if wants_reports:
        if as_json:
            terminal.print_json(*(report.to_dict() for report in reports))
        elif compare is not None:
            show_comparison(reports)
        else:
            show_report(reports[0])

        has_refusal = any(map(reports_refusal, reports))

    return 1 if has_refusal and fail_on_refusal else 0


def reports_refusal(report: Report) -> bool:
    """Return whether a pod was refused, or a kubelet would not start."""
    return bool(report.total.refused) or any(node.config_error for node in report.nodes)


def listed_versions(
    versions: tuple[KubeletVersion, ...], files: tuple[str, ...]
) -> tuple[tuple[KubeletVersion, ...], tuple[str, ...]]:
    """Return the releases to compare, of which the first argument may be a list, and the files."""
    from alignup.kubernetes.versions import RELEASED, parse_versions

    if not versions and len(files) > 1 and not Path(files[0]).exists():
        with suppress(InputError):
            return parse_versions(files[0], "--compare-versions"), files[1:]

    return versions or RELEASED, files


def answer(
    scenarios: Iterable[tuple[str, dict[str, Any]]],
    compared: Sequence[KubeletVersion],
    version: KubeletVersion | None,
    advance: Callable[[float], None],
    *,
    with_hints: bool,
    as_json: bool,
) -> bool:
    """Print the answers to the steps of each scenario, and return whether something was refused."""
    from alignup.replay import replay

    has_refusal = False
    for place, scenario in scenarios:
        answers = []
        with errors_at(place):
            for kubelet_version in compared or (version,):
                version_answer = replay(
                    scenario,
                    with_hints=with_hints,
                    with_faults=bool(compared),
                    kubelet_version=kubelet_version,
                )
                if compared:
                    version_answer = {"kubeletVersion": str(kubelet_version), **version_answer}

                answers.append(version_answer)

        has_refusal = has_refusal or any(map(refuses, answers))
        if as_json:
            terminal.print_json(*answers)
        else:
            if compared:
                lines = compared_lines(dict(zip(compared, answers, strict=True)), place)
            else:
                lines = lines_of(answers[0], scenario.get("steps", ()), place)

            click.echo("\n".join(lines))

        advance(1)

    return has_refusal


def refuses(answer: dict[str, Any]) -> bool:
    """Return whether a pod is refused, or the kubelet would not start."""
    if "configError" in answer:
        return True

    return any(
        not decision["admitted"]
        for step in answer["steps"]
        for decision in (step, *step.get("again", ()))
    )


def compared_lines(answers: dict[KubeletVersion, dict[str, Any]], place: str = "") -> Iterator[str]:
    """Yield the lines that a person reads about one scenario under several kubelets.

    See `lines_of`.
    """
    name = next(iter(answers.values()))["name"]
    yield f"{scenario_name(name, place)}:"

    steps_by_version = {}
    for version, answer in answers.items():
        if "configError" in answer:
            yield f"  kubelet {version.title} would not start: {answer['configError']}"
        if "steps" in answer:
            steps_by_version[version] = answer["steps"]

    step_count = len(next(iter(steps_by_version.values()), ()))
    for number in range(step_count):
        texts = {version: answer_text(steps[number]) for version, steps in steps_by_version.items()}
        for line in difference_lines(str(number), texts):
            yield f"  {line}"


def scenario_name(name: str, place: str) -> str:
    """Return the name of a scenario, for which its place stands if it has none."""
    return name or f"scenario {place}".rstrip()


def answer_text(answer: Mapping[str, Any]) -> str:
    """Return verdict and allocations of one pod, as JSON has them, in a line.

    Of a restart, those of all pods.
    """
    if "kubelet" in answer:
        return f"the kubelet {answer['kubelet']}"
    if not answer["admitted"]:
        return f"refused, {answer['reason']}" if answer["reason"] else answer["message"]
    if "again" in answer:
        texts = [f"{pod['uid']} {answer_text(pod)}" for pod in answer["again"]]
        return " | ".join(["restarted", *texts])

    allocations = "; ".join(
        container_text(name, container, whole=True)
        for name, container in answer["containers"].items()
    )
    if not allocations:
        return "done"
    return f"admitted, {allocations}"


def container_text(name: str, container: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return what one container got, in a few words.

    The `whole` text says the memory, too, and whether the NUMA nodes are preferred.
    """
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
    """Yield what releases say about one thing.

    It is one line if several agree on it, else one for each group that does.
    """
    versions_by_text: dict[str, list[str]] = {}
    for version, text in texts.items():
        versions_by_text.setdefault(text, []).append(str(version))

    if len(versions_by_text) == 1 < len(texts):
        [(text, versions)] = versions_by_text.items()
        yield terminal.safe(f"{label}: {', '.join(versions)} agree: {text}")
        return

    yield terminal.safe(f"{label}:")
    for text, versions in versions_by_text.items():
        yield terminal.safe(f"  {', '.join(versions)}: {text}")


def scenarios(files: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each scenario, and before it its place, as soon as its line is there.

    Raises:
        InputError: a line is not a JSON object.
    """
    from alignup.text.json_text import decode_json

    for place, line in lines_in(files):
        scenario: Any = decode_json(line, "a scenario as a JSON object on one line", place)
        if not isinstance(scenario, dict):
            raise InputError.at(place, "a JSON object", scenario)

        yield place, scenario


def lines_in(files: Iterable[str]) -> Iterator[tuple[str, str | bytes]]:
    """Yield each line that is not blank, and before it its place.

    Raises:
        InputError: a file cannot be read, or a line is too long.
    """
    for name in files:
        with open_input(name) as file:
            yield from numbered_lines(read_lines(file, name), name)


def count_lines(files: Iterable[str]) -> int | None:
    """Return how many scenarios there are, if somebody may want to see how far it is.

    None: it cannot be foreseen.
    """
    if not sys.stderr.isatty() or not all(Path(name).is_file() for name in files):
        return None

    total = sum(1 for _ in lines_in(files))
    return total if total >= SHOWN_PROGRESS else None


def lines_of(
    answer: dict[str, Any], steps: Sequence[Mapping[str, Any]], place: str = ""
) -> Iterator[str]:
    """Yield the lines that a person reads about the answer to one scenario with these steps.

    Args:
        answer: as `replay` returns it.
        steps: of the scenario.
        place: where the scenario is, which stands for a name that it lacks.
    """
    yield f"{scenario_name(answer['name'], place)}:"
    if "configError" in answer:
        yield f"  the kubelet would not start: {answer['configError']}"
        return

    for number, (step, step_answer) in enumerate(zip(steps, answer["steps"], strict=True)):
        decision = decision_text(step_answer)
        if decision:
            yield f"  {number}: {decision}"
        elif "start" in step:
            yield f"  {number}: {one_line(step['container'])} started"
        elif "restart" in step:
            yield f"  {number}: the kubelet restarted"
        else:
            yield f"  {number}: removed"

        for pod in step_answer.get("again", ()):
            yield terminal.safe(f"     {pod['uid']}: {decision_text(pod) or 'admitted'}")


def decision_text(answer: Mapping[str, Any]) -> str:
    """Return in a line why a pod is refused, or what its containers got; empty: nothing."""
    if not answer["admitted"]:
        if not answer["reason"]:
            return str(answer["message"])
        return f"refused, {answer['reason']}: {answer['message']}"

    allocations = "; ".join(
        container_text(name, container) for name, container in answer["containers"].items()
    )
    return f"admitted, {allocations}" if allocations else ""


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
    for place, scenario in scenarios:
        with errors_at(place):
            steps = read_steps(scenario)
            step_count = len(steps) * len(configurations)

            def tick(done: int, step_count: int = step_count) -> None:
                advance(done / step_count)

            for label, fields in configurations.items():
                node = scenario if fields is None else with_kubelet(scenario, fields)
                nodes[label].append(summarized(node, steps, kubelet_version=version, tick=tick))

            if not steps:
                advance(1)

    return [Report(node_reports, label) for label, node_reports in nodes.items()]


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
    rows = [
        (resource, number_in(share), number_in(report.stranded.get(resource)))
        for resource, share in report.utilisation.items()
    ]
    if rows:
        table = terminal.Table("resource", *numbers, numbers=numbers, rows=rows)
        terminal.print_whole(console, table, below=True)


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
    for node in nodes[:MOST_ROWS]:
        counts = node.counts
        blamed = ", ".join(
            f"{resource} {count}" for resource, count in counts.resources.most_common()
        )
        rows.append(
            (
                node.name or "-",
                str(counts.arrivals),
                number_in(counts.admitted / max(1, counts.arrivals)),
                str(counts.refused),
                number_in(counts.preferred_share),
                number_in(counts.mean_numa_nodes, ".2f"),
                blamed or "-",
            )
        )

    table = terminal.Table("node", *numbers, "refused because of", numbers=numbers, rows=rows)
    print_rows(console, table, len(nodes))


def show_use(console: Console, nodes: Sequence[NodeReport]) -> None:
    """Print how full each NUMA node was, on average, at most and over time."""
    numbers = ("allocatable", "mean", "peak")
    uses = [(node, use) for node in nodes for use in node.uses]
    bars = _BARS if terminal.can_write(console, _BARS) else "01234567"
    rows = []
    for node, use in uses[:MOST_ROWS]:
        rows.append(
            (
                node.name or "-",
                use.resource,
                terminal.nodes_text(use.numa_nodes or None),
                terminal.amount_text(use.resource, use.allocatable),
                number_in(use.mean),
                number_in(use.peak),
                sparkline(use.curve, bars),
            )
        )

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
    samples = [curve[index * len(curve) // width] for index in range(width)]
    heights = [min(len(bars) - 1, int(sample * len(bars))) for sample in samples]
    return "".join(bars[height] for height in heights)


def show_comparison(reports: Sequence[Report]) -> None:
    """Print the reports of several configurations side by side."""
    from alignup.replay.summary import HEADINGS

    console = terminal.make_console()
    resources = list(dict.fromkeys(name for report in reports for name in report.utilisation))
    headings = list(HEADINGS)
    for name in resources:
        headings += [terminal.safe(f"{name} held"), terminal.safe(f"{name} stranded")]

    rows = []
    for report in reports:
        cells = list(report.total.cells())
        for name in resources:
            cells += [number_in(report.utilisation.get(name)), number_in(report.stranded.get(name))]

        rows.append((report.configuration, *cells))

    table = terminal.Table("configuration", *headings, numbers=headings, rows=rows)
    terminal.print_whole(console, table)
    for report in reports:
        for sentence in errors_of(report):
            console.print(f"{report.configuration}: {sentence}")
