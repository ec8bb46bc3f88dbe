"""`alignup fleet`: simulated kubelets on a real API server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from alignup.cli import options
from alignup.cli.failures import complain, need_extra, need_text
from alignup.cli.inputs import read_bytes
from alignup.errors import InputError

if TYPE_CHECKING:
    from alignup.scheduler.fleet_node import FleetNode


@options.subcommand("fleet")
def command(
    *,
    kubeconfig: str | None = options.kubeconfig,
    nodes: str | None = options.file("Nodes as JSON lines; see `alignup rank`.", *("--nodes", "-n")),
    machine: str | None = options.value(
        "A machine of the catalog, in place of --nodes.",
        *("--machine", "-m"),
        metavar="NAME",
        shell_complete=options.complete_machines,
    ),
    count: int = options.value("How many of --machine.", default=1, type=click.IntRange(1, 100_000)),
    labels: tuple[str, ...] = options.value(
        "A label of all Node objects.", "--label", multiple=True, metavar="KEY=VALUE"
    ),
    duration: float | None = options.seconds(
        "End pods after this time, if their annotation alignup.dev/duration says nothing else."
    ),
    amounts_only: bool = options.flag("Publish amounts and no holdings, as topology exporters do."),
    listen: str | None = options.value(
        "Serve the state of the nodes over HTTP: /nodes, /nodes/NAME.", metavar="HOST:PORT"
    ),
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
    named = {key: value for key, _, value in pairs}
    asyncio.run(
        serve_fleet(
            kubeconfig,
            listen,
            fleet_nodes(nodes, machine, count),
            labels=named,
            duration=duration,
            with_holdings=not amounts_only,
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


async def serve_fleet(kubeconfig: str | None, listen: str | None, nodes: list[FleetNode], **how: Any) -> None:
    """Be the kubelets until told to end; `how` is what `Fleet` takes."""
    from alignup.scheduler.api_client import Api
    from alignup.scheduler.fleet import Fleet, make_app
    from alignup.scheduler.serving import address, run_until_told, serve

    where = None if listen is None else address(listen)
    async with await Api.connect(kubeconfig) as api, AsyncExitStack() as stack:
        fleet = Fleet(api, nodes, complain=complain, **how)
        if where is not None:
            runner, port = await serve(make_app(fleet), where)
            stack.push_async_callback(runner.cleanup)
            click.echo(f"listening on {where[0]}:{port}")
        await run_until_told(fleet.run(), lambda: click.echo(f"{len(nodes)} nodes"))
