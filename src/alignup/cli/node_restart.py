"""`alignup node restart`: foretells what a restart or an upgrade of the kubelet does to the pods that run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from alignup.cli import options
from alignup.cli.inputs import KubeletSource
from alignup.cli.terminal import Table, make_console, print_json, print_whole, safe
from alignup.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubelet.restart import Outcome, Restart


@options.subcommand("restart", "0 the kubelet starts, and every pod keeps what it holds; 1 not so")
def command(*, source: KubeletSource = options.all_of(KubeletSource), as_json: bool = options.json()) -> int:
    """Say what a restart of the kubelet does: whether it starts, which pods keep what they hold, which are refused.

    The restart is with the node's own configuration, release and machine, or with those that are given: `--config`
    for a changed configuration, `--kubelet-version` for an upgrade, `--machine` for other CPUs or memory. Nothing is
    written.
    """
    from alignup.kubelet.layout import open_node
    from alignup.kubelet.restart import foretell

    found = foretell(open_node(source.root, source.kubelet_dir), source.how())
    if as_json:
        print_json(found.to_dict())
    else:
        show(found)
    return 0 if found.keeps_all else 1


def show(found: Restart) -> None:
    """Print what the restart does for a person."""
    for fault in found.faults:
        click.echo(one_line(f"{fault.effect}"))
        click.echo(one_line(f"  {fault.file}: {fault.text} ({fault.kind})"))
        click.echo(one_line(f"  repair: {fault.repair}"))
    if found.faults:
        return
    click.echo("the kubelet starts")
    if found.outcomes:
        table = Table("pod", "after the restart", "CPUs", "memory", "devices")
        for one in found.outcomes:
            table.add_row(*(safe(cell) for cell in row_of(one)))
        print_whole(make_console(), table)
    for one in found.outcomes:
        for line in lines_of(one):
            click.echo(one_line(line))


def row_of(one: Outcome) -> tuple[str, ...]:
    """Return the cells of a pod: what becomes of it, and what it holds then."""
    verdict = one.refusal.reason if one.refusal is not None else "stays" if one.keeps else "stays, on other resources"
    cells = [holding.cells() for holding in one.holds] or [("-", "-", "-")]
    return one.pod.namespaced_name, verdict, *("\n".join(column) for column in zip(*cells, strict=True))


def lines_of(one: Outcome) -> Iterator[str]:
    """Yield why a pod is refused, and what it would get if it came again."""
    if one.refusal is None or one.again is None:
        return
    yield f"{one.pod.namespaced_name} is refused: {one.refusal.message}"
    if not one.again.admitted:
        yield f"  if it comes again, it is refused: {one.again.reason}"
        return
    got = [f"{name} CPUs {got.cpus}" for name, got in one.again.containers.items() if got.cpus]
    yield f"  if it comes again, it is admitted{': ' if got else ''}{', '.join(got)}"
