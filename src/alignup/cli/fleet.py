"""`alignup fleet`: simulated kubelets on a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from alignup.cli.failures import complain, need_extra, need_text
from alignup.cli.inputs import read_bytes
from alignup.cli.options import files, kubeconfig_option
from alignup.errors import InputError

if TYPE_CHECKING:
    from alignup.scheduler.fleet_node import FleetNode


@click.command(name="fleet")
@kubeconfig_option
@click.option("--nodes", "-n", metavar="FILE", shell_complete=files, help="Nodes as JSON lines; see `alignup rank`.")
@click.option("--machine", "-m", metavar="NAME", help="A machine of the catalog, in place of --nodes.")
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 100_000), help="How many of --machine.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of all Node objects.")
@click.option(
    "--duration",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End pods after this time, if their annotation alignup.dev/duration says nothing else.",
)
@click.option("--amounts-only", is_flag=True, help="Publish amounts and no holdings, as topology exporters do.")
@click.option("--listen", metavar="HOST:PORT", help="Serve the state of the nodes over HTTP: /nodes, /nodes/NAME.")
def command(
    kubeconfig: str | None,
    nodes: str | None,
    machine: str | None,
    count: int,
    labels: tuple[str, ...],
    duration: float | None,
    amounts_only: bool,
    listen: str | None,
) -> None:
    """Register nodes, and be their kubelets: admit the pods that are bound to them, run them, and end them.

    Each node decides exactly as a kubelet of its machine and configuration would; containers do not run. Leases, Node
    status and NodeResourceTopology objects are kept current until SIGTERM. For schedulers under test, and for planning.
    """
    need_extra("cluster")
    pairs = [label.partition("=") for label in labels]
    for word in labels:
        need_text("--label", word)
    need_text("--machine", machine or "")
    for key, sign, _ in pairs:
        if not key or not sign:
            raise InputError.at("--label", "KEY=VALUE", key)
    asyncio.run(
        serve_fleet(
            kubeconfig,
            fleet_nodes(nodes, machine, count),
            listen,
            {key: value for key, _, value in pairs},
            duration,
            not amounts_only,
        )
    )


def fleet_nodes(nodes: str | None, machine: str | None, count: int) -> list[FleetNode]:
    """Return the nodes that the options ask for.

    Raises:
        UsageError: neither, or both, are given.
        InputError: they cannot be read.
    """
    from alignup.scheduler.fleet import catalog_nodes, read_fleet

    if (nodes is None) == (machine is None):
        raise click.UsageError("give either --nodes or --machine")
    return catalog_nodes(machine, count) if machine is not None else read_fleet(read_bytes(str(nodes)), str(nodes))


async def serve_fleet(
    kubeconfig: str | None,
    nodes: list[FleetNode],
    listen: str | None,
    labels: dict[str, str],
    duration: float | None,
    with_holdings: bool,
) -> None:
    """Be the kubelets until told to end."""
    from alignup.scheduler.api_client import Api
    from alignup.scheduler.fleet import Fleet, make_app
    from alignup.scheduler.serving import address, run_until_told, serve

    where = None if listen is None else address(listen)
    api = await Api.connect(kubeconfig)
    try:
        fleet = Fleet(api, nodes, labels=labels, duration=duration, with_holdings=with_holdings, complain=complain)
        runner = None
        if where is not None:
            runner, port = await serve(make_app(fleet), where)
            click.echo(f"listening on {where[0]}:{port}")
        try:
            await run_until_told(fleet.run(), lambda: click.echo(f"{len(nodes)} nodes"))
        finally:
            if runner is not None:
                await runner.cleanup()
    finally:
        await api.close()
