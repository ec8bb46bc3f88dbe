"""`alignup fleet`: simulated kubelets on a real API server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from alignup.cli.failures import complain, need_extra, need_text
from alignup.cli.inputs import read_bytes
from alignup.cli.options import file_option, flag, kubeconfig_option, machines, option, seconds_option, subcommand
from alignup.errors import InputError

if TYPE_CHECKING:
    from alignup.scheduler.fleet_node import FleetNode


@subcommand("fleet")
def command(
    *,
    kubeconfig: str | None = kubeconfig_option,
    nodes: str | None = file_option("Nodes as JSON lines; see `alignup rank`.", *("--nodes", "-n")),
    machine: str | None = option(
        "A machine of the catalog, in place of --nodes.", *("--machine", "-m"), metavar="NAME", shell_complete=machines
    ),
    count: int = option("How many of --machine.", default=1, type=click.IntRange(1, 100_000)),
    labels: tuple[str, ...] = option("A label of all Node objects.", "--label", multiple=True, metavar="KEY=VALUE"),
    duration: float | None = seconds_option(
        "End pods after this time, if their annotation alignup.dev/duration says nothing else."
    ),
    amounts_only: bool = flag("Publish amounts and no holdings, as topology exporters do."),
    listen: str | None = option("Serve the state of the nodes over HTTP: /nodes, /nodes/NAME.", metavar="HOST:PORT"),
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
    async with await Api.connect(kubeconfig) as api, AsyncExitStack() as stack:
        fleet = Fleet(api, nodes, labels=labels, duration=duration, with_holdings=with_holdings, complain=complain)
        if where is not None:
            runner, port = await serve(make_app(fleet), where)
            stack.push_async_callback(runner.cleanup)
            click.echo(f"listening on {where[0]}:{port}")
        await run_until_told(fleet.run(), lambda: click.echo(f"{len(nodes)} nodes"))
