"""`alignup node show`: shows who holds what on a kubelet's node, as tables, as JSON or as a picture."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from alignup.cli.inputs import write_text
from alignup.cli.options import html_option, json_option, kubelet_node_options, svg_option
from alignup.cli.terminal import devices_text, make_console, make_table, nodes_text, print_whole, safe
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from alignup.cli.options import KubeletSource
    from alignup.cli.terminal import Console
    from alignup.kubelet.read import KubeletNode
    from alignup.node.holdings import ContainerHolding, Holdings


@click.command(name="show")
@kubelet_node_options
@json_option()
@click.option(
    "--watch",
    type=click.FloatRange(0.1, 86400),
    metavar="SECONDS",
    help="Look again every so many seconds, and show the node when something has changed, until interrupted.",
)
@svg_option
@html_option
def command(source: KubeletSource, as_json: bool, watch: float | None, svg: str | None, html: str | None) -> None:
    """Show what there is of each resource on each NUMA node of a kubelet's node, and which container holds what.

    Pods that the state files know and that are gone are left out: the kubelet drops them at its next admission.
    """
    from alignup.node.holdings import holdings_of

    shown: Holdings | None = None
    while True:
        found = source.read()
        holdings = holdings_of(found.node)
        if holdings != shown:
            if shown is not None and not as_json:
                click.echo()
            show(found, holdings, as_json=as_json, svg=svg, html=html)
            shown = holdings
        if watch is None:
            return
        time.sleep(watch)


def show(found: KubeletNode, holdings: Holdings, *, as_json: bool, svg: str | None, html: str | None) -> None:
    """Write the node in the forms that are asked for; with nothing asked for, as tables."""
    if svg is not None or html is not None:
        draw(found, holdings, svg, html)
    if "-" in (svg, html):
        return
    if as_json:
        click.echo(json.dumps(holdings.to_dict(), separators=(",", ":")))
        return
    console = make_console()
    console.print(safe(title_of(found)))
    show_amounts(console, holdings)
    show_containers(console, holdings)
    if holdings.shared_cpus is not None:
        console.print(f"\nshared pool: CPUs {holdings.shared_cpus}")


def title_of(found: KubeletNode) -> str:
    """Return the node in one line."""
    from alignup.cli.inputs import title_of as title

    return title(found.records.files.source, found.node)


def draw(found: KubeletNode, holdings: Holdings, svg: str | None, html: str | None) -> None:
    """Write pictures of the machine with what containers hold."""
    from alignup.node.pictures.picture import Scene, drawing_of, machine_page

    pools = found.node.devices.pools if found.node.devices else {}
    devices = {resource: pool.devices for resource, pool in pools.items()}
    scene = Scene(title_of(found), found.node.machine, devices, holdings)
    if svg is not None:
        write_text(svg, drawing_of(scene))
    if html is not None:
        write_text(html, machine_page(scene))


def show_amounts(console: Console, holdings: Holdings) -> None:
    """Print what there is, held and free of each resource in each place."""
    table = make_table("resource", "NUMA nodes", "allocatable", "held", "free")
    for one in holdings.resources:
        in_bytes = one.resource == "memory" or one.resource.startswith("hugepages-")
        for place in one.places:
            amounts = (place.allocatable, place.held, place.free)
            cells = [short_bytes(amount) if in_bytes else str(amount) for amount in amounts]
            table.add_row(safe(one.resource), nodes_text(place.numa_nodes) if place.numa_nodes else "-", *cells)
    console.print()
    print_whole(console, table)


def show_containers(console: Console, holdings: Holdings) -> None:
    """Print what each container holds."""
    table = make_table("pod", "container", "CPUs", "memory", "devices")
    for holding in holdings.containers:
        if holding:
            table.add_row(*map(safe, container_row(holding)))
    console.print()
    if table.row_count:
        print_whole(console, table)
    else:
        console.print("no container holds anything for itself")


def container_row(holding: ContainerHolding) -> tuple[str, ...]:
    """Return the cells of one container."""
    memory = [
        f"{kind} {short_bytes(size)} @ {node}"
        for kind, taken in holding.memory.items()
        for node, size in taken.items()
        if size
    ]
    return (
        holding.pod,
        holding.container,
        "shared" if holding.cpus is None else str(holding.cpus),
        "\n".join(memory) or "-",
        devices_text(holding.devices),
    )
