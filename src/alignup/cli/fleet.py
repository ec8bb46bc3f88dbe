"""`alignup fleet`: simulated kubelets on a real API server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alignup.cli import options
from alignup.cli.failures import need_extra, need_text
from alignup.cli.inputs import read_bytes
from alignup.errors import InputError
from alignup.host.trusted_files import check_path

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.control_plane.api_server.api_client import Api
    from alignup.control_plane.publishers.fleet import FleetNode


@options.subcommand("fleet")
def command(
    *,
    kubeconfig: str | None = options.kubeconfig,
    nodes: str | None = options.file("Nodes as JSON lines; see `alignup rank`.", *("--nodes", "-n")),
    machine: str | None = options.a_machine("A machine of the catalog, in place of --nodes.", "NAME"),
    count: int = options.value("How many of --machine.", default=1, type=click.IntRange(1, 100_000)),
    labels: tuple[str, ...] = options.value(
        "A label of all Node objects.", "--label", multiple=True, metavar="KEY=VALUE"
    ),
    duration: float | None = options.seconds(
        "End pods after this time, unless their annotation alignup.dev/duration gives another."
    ),
    amounts_only: bool = options.flag("Publish amounts and no holdings, as topology exporters do."),
    listen: str | None = options.value(
        "Serve the state of the nodes over HTTP: /nodes, /nodes/NAME.", metavar="HOST:PORT"
    ),
    podresources_dir: Path | None = options.path(
        "Serve PodResources (v1) of each node, as its kubelet does, on a socket DIR/NODE.sock.", metavar="DIR"
    ),
    logs: options.Logs = options.all_of(options.Logs),
) -> None:
    """Register nodes and act as their kubelets: admit the pods that are bound to the nodes, run them, and end them.

    Each node decides exactly as a kubelet of its machine and configuration would; containers do not run. Leases, Node
    status and NodeResourceTopology objects are kept current until SIGTERM. For schedulers under test, and for planning.
    """
    need_extra("cluster")
    if podresources_dir is not None:
        need_extra("kubelet")
    need_text("--machine", machine or "")
    named = {}
    for label in labels:
        need_text("--label", label)
        key, sign, value = label.partition("=")
        if not key or not sign:
            raise InputError.at("--label", "KEY=VALUE", key)
        named[key] = value
    from alignup.cli.agent import logged
    from alignup.control_plane.api_server.api_client import with_api
    from alignup.control_plane.publishers.fleet import catalog_nodes, read_fleet
    from alignup.control_plane.serving import address

    where = None if listen is None else address(listen)
    if (nodes is None) == (machine is None):
        raise click.UsageError("give either --nodes or --machine")
    found = catalog_nodes(machine, count) if machine is not None else read_fleet(read_bytes(str(nodes)), str(nodes))
    sockets = {} if podresources_dir is None else sockets_of(found, podresources_dir)
    how = {"labels": named, "duration": duration, "with_holdings": not amounts_only}
    with_api(
        kubeconfig, partial(serve_fleet, where, found, sockets, how), complain=logged(logs.log_format, logs.log_level)
    )


def sockets_of(nodes: list[FleetNode], folder: Path) -> dict[Path, FleetNode]:
    """Return the nodes by the socket where their PodResources are served.

    Raises:
        InputError: a name is none of a file, or makes a path that is too long.
    """
    for node in nodes:
        if "/" in node.name:
            raise InputError.at("--podresources-dir", "names of nodes without a slash", node.name)
        check_path(folder / f"{node.name}.sock", "--podresources-dir")
    return {folder / f"{node.name}.sock": node for node in nodes}


async def serve_fleet(
    where: tuple[str, int] | None, nodes: list[FleetNode], sockets: dict[Path, FleetNode], how: dict[str, Any], api: Api
) -> None:
    """Be the kubelets until told to end; `how` is what `Fleet` takes."""
    from alignup.control_plane.publishers.fleet import Fleet, make_app
    from alignup.control_plane.serving import run_until_told, serve

    async with AsyncExitStack() as stack:
        fleet = Fleet(api, nodes, **how)
        if where is not None:
            runner, port = await serve(make_app(fleet), where)
            stack.push_async_callback(runner.cleanup)
            click.echo(f"listening on {where[0]}:{port}")
        if sockets:
            from alignup.kubelet.pod_resources_server import serve_pod_resources

            tell = {path: node.pod_resources for path, node in sockets.items()}
            stop = serve_pod_resources(tell, asyncio.get_running_loop(), "--podresources-dir")
            stack.push_async_callback(asyncio.to_thread, stop)
        await run_until_told(fleet.run(), lambda: click.echo(f"{len(nodes)} nodes"))
