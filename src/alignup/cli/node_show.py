"""`alignup node show`: shows who holds what on a kubelet's node, as tables, as JSON or as a picture."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from alignup.cli import options
from alignup.cli.inputs import KubeletSource, Pictures, load_cluster_node, title_of
from alignup.cli.terminal import Table, amount_text, make_console, nodes_text, print_json, print_whole, safe

if TYPE_CHECKING:
    from alignup.kubelet.settings import Setting
    from alignup.node import Node
    from alignup.node.holdings import Holdings


@options.subcommand("show")
def command(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    as_json: bool = options.json(),
    watch: float | None = options.value(
        "Read the node again every SECONDS, and show it when something has changed, until interrupted.",
        type=click.FloatRange(0.1, 86400),
        metavar="SECONDS",
    ),
    pictures: Pictures = options.all_of(Pictures),
    kubeconfig: str | None = options.file(
        "Show the node --node-name of the cluster of this file, as it publishes itself.", "--kubeconfig"
    ),
) -> None:
    """Show what there is of each resource on each NUMA node of a kubelet's node, and which container holds what.

    Then which policies, options of policies and feature gates are in effect, and where each comes from: a file, a
    drop-in, the kubelet's flags or the release's default; with --json, those that nothing sets, too.

    Pods that the state files know and that are gone are left out: the kubelet drops them at its next admission.
    """
    from alignup.kubelet.settings import settings_of
    from alignup.node.holdings import holdings_of

    shown: Holdings | None = None
    settings: tuple[Setting, ...] = ()
    while True:
        if kubeconfig is None:
            found = source.read()
            title, node = found.records.files.source, found.node
            settings = settings_of(found.records.configuration, node.config)
        else:
            title, node = str(source.node_name), load_cluster_node(kubeconfig, source.node_name)
        holdings = holdings_of(node)
        if holdings != shown:
            if shown is not None and not as_json:
                click.echo()
            show(title_of(title, node), node, holdings, settings, pictures, as_json=as_json)
            shown = holdings
        if watch is None:
            return
        time.sleep(watch)


def show(
    title: str, node: Node, holdings: Holdings, settings: tuple[Setting, ...], pictures: Pictures, *, as_json: bool
) -> None:
    """Write the node in the forms that are asked for; with nothing asked for, as tables."""
    if pictures:
        from alignup.pictures.picture import Scene

        pictures.draw(Scene(title, node.machine, node.inventory, holdings))
    if pictures.take_the_output:
        return
    if as_json:
        more = [{"name": one.name, "value": one.value, "from": one.origin} for one in settings]
        print_json({**holdings.to_dict(), **({"settings": more} if more else {})})
        return
    console = make_console()
    console.print(safe(title))
    rows = (
        (
            one.resource,
            nodes_text(place.numa_nodes) if place.numa_nodes else "-",
            *(amount_text(one.resource, amount) for amount in (place.allocatable, place.held, place.free)),
        )
        for one in holdings.resources
        for place in one.places
    )
    print_whole(console, Table("resource", "NUMA nodes", "allocatable", "held", "free", rows=rows), below=True)
    holders = [(one.pod, one.container, *one.cells()) for one in holdings.containers if one]
    table = Table("pod", "container", "CPUs", "memory", "devices", rows=holders)
    if table.rows:
        print_whole(console, table, below=True)
    else:
        console.print("\nno container holds anything for itself")
    if holdings.shared_cpus is not None:
        console.print(f"\nshared pool: CPUs {holdings.shared_cpus}")
    told = [one for one in settings if not (one.is_default and "." in one.name)]
    if told:
        console.print()
        rows = ((one.name, one.value, one.origin) for one in told)
        print_whole(console, Table("setting", "value", "from", rows=rows))
