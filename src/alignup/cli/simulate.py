"""`alignup simulate`: places a trace of pods on a cluster and prints how many found a node, and how full it got."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alignup.cli import options
from alignup.cli.inputs import read_bytes
from alignup.cli.rank import load_cluster
from alignup.cli.terminal import Table, make_console, print_json, print_whole, progress, safe
from alignup.errors import InputError
from alignup.text.counting import counted, number_in

if TYPE_CHECKING:
    from alignup.kubernetes.versions import KubeletVersion

SHOWN_CAUSES = 10

# Shorter traces are over before a progress bar would be read.
SHOWN_PROGRESS = 2000


@options.subcommand("simulate")
def command(
    *,
    nodes: str = options.file(
        "Nodes: JSON lines (the keys of a scenario and a name), or NodeResourceTopology objects.",
        *("--nodes", "-n"),
        required=True,
    ),
    pods: str | None = options.file(
        "The trace as JSON lines: a time with admit (and duration) or remove.", *("--pods", "-p")
    ),
    generate: int | None = options.value("Generate N arrivals in place of --pods.", type=click.IntRange(min=1)),
    strategy: str | None = options.word(
        "What makes a node better; see `alignup rank`.  [default: least-numa-nodes; least-allocated with --blind]",
        options.STRATEGIES,
        *("--strategy", "-s"),
    ),
    blind: bool = options.flag("Let the scheduler see node totals only, like the default scheduler."),
    seed: int = options.value(
        "The seed for choosing between equal nodes and for --generate.", default=0, show_default=True
    ),
    attempts: int = options.value("Try N nodes before a pod is given up.", default=1, type=click.IntRange(min=1)),
    rebalance: float | None = options.seconds(
        "Let pods wait, evict others to make room at most once in SECONDS of the trace, and compare."
    ),
    version: KubeletVersion | None = options.kubelet_version,
    resources: tuple[str, ...] = options.resources,
    as_json: bool = options.json(),
) -> None:
    """Place a trace of pods on a cluster: a scheduler ranks the nodes, and the chosen node admits or refuses.

        alignup simulate --nodes nodes.jsonl --generate 1000
        alignup simulate --nodes nodes.jsonl --pods trace.jsonl --blind

    With --blind, the scheduler does not see NUMA nodes; compare how much the nodes then refuse. With --rebalance, pods
    that find no node wait, and `alignup rebalance` makes room for them. The trace is also played without it, and that
    result is taken if it is better.
    """
    from alignup.cluster.cluster import Cluster
    from alignup.cluster.simulation import Simulation, read_trace, synthetic_trace

    if (pods is None) == (generate is None):
        raise click.UsageError("give either --pods or --generate")
    if rebalance is not None and blind:
        raise click.UsageError("--rebalance is for a scheduler that sees NUMA nodes, without --blind")
    cluster = load_cluster(nodes, version, can_admit=True, resources=resources)
    events = synthetic_trace(cluster, generate or 0, seed) if pods is None else read_trace(read_bytes(pods), pods)
    if not events:
        raise InputError(f"there is no event in {pods}")
    simulate = partial(Simulation, strategy=strategy, blind=blind, seed=seed, attempts=attempts)

    def play(simulation: Simulation) -> dict[str, Any]:
        with progress("simulating", len(events) if len(events) >= SHOWN_PROGRESS else None) as advance:
            for _ in simulation.steps(events):
                advance(1)
        return simulation.report.to_dict()

    without = None
    if rebalance is not None:
        copies = [node.copy() for node in cluster.nodes]
        without = play(simulate(Cluster.from_nodes(dict(zip(cluster.names, copies, strict=True))), waits=True))
    simulation = simulate(cluster, rebalance=rebalance)
    report = {"nodes": len(cluster), "strategy": simulation.strategy, "blind": blind, "seed": seed, **play(simulation)}
    if without is not None and merit(report) < merit(without):
        report = {**report, **without, "rebalance": rebalance, "discarded": {name: report[name] for name in without}}
    elif without is not None:
        report |= {"rebalance": rebalance, "without": without}
    if as_json:
        print_json(report)
    else:
        show(report)


def merit(report: dict[str, Any]) -> tuple[int, float]:
    """Return how good a report is, the higher the better: how many pods were placed, and how little they waited."""
    return report["placed"], -report["waiting"]["mean"]


def show(report: dict[str, Any]) -> None:
    """Print what a person reads at a glance."""
    console = make_console()
    sight = "node totals only" if report["blind"] else "NUMA nodes"
    console.print(f"{counted(report['nodes'], 'node')}, {report['strategy']}, a scheduler that sees {sight}")
    arrivals = max(1, report["arrivals"])
    for key, words in (
        ("placed", "placed"),
        ("noRoom", "found no node with enough in total"),
        ("noAlignment", "found nodes with enough in total, none that could align them"),
        ("refused", "refused by the node that was chosen"),
        ("misaligned", "placed with devices of claims that are not near their CPUs and memory"),
    ):
        if key in report:
            console.print(f"{report[key]:8} of {report['arrivals']} pods ({report[key] / arrivals:6.1%}) {words}")
    for reason, count in report["refusals"].items():
        console.print(f"{count:8} {'refusal' if count == 1 else 'refusals'}: {reason}")
    for one in report["causes"][:SHOWN_CAUSES]:
        times = "time" if one["count"] == 1 else "times"
        console.print(f"{one['count']:8} {times} a node refused, {safe(one['reason'])}: {safe(one['cause'])}")
    if len(report["causes"]) > SHOWN_CAUSES:
        console.print(f"         and {len(report['causes']) - SHOWN_CAUSES} other causes; --json has all of them")
    numbers = ("used on average", "at most", "stranded of what was free")
    columns = (report["utilisation"], report["peak"], report["stranded"])
    rows = ((name, *(number_in(column[name]) for column in columns)) for name in report["utilisation"])
    print_whole(console, Table("resource", *numbers, numbers=numbers, rows=rows))
    if "discarded" in report:
        console.print("rebalancing would make it worse, so it was not done:")
    if "rebalance" in report:
        headings = ("placed", "still wait", "waited on average", "at most", "evictions", "CPUs in use", "stranded")
        forms = {"pods": "d", "mean": ".1f", "longest": ".0f", "evictions": "d"}
        rows = (
            (
                words,
                str(found["placed"]),
                *(number_in(found["waiting"][key], form) for key, form in forms.items()),
                *(number_in(found[key].get("cpu")) for key in ("utilisation", "stranded")),
            )
            for words, found in (("without", report.get("without", report)), ("with", report.get("discarded", report)))
        )
        print_whole(console, Table("rebalancing (s)", *headings, numbers=headings, rows=rows))
