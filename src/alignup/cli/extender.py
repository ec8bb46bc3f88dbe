"""`alignup extender`: serves a scheduler extender that sees NUMA nodes."""

from __future__ import annotations

import asyncio
import gc

import click

from alignup.cli.failures import complain, need_extra
from alignup.cli.options import STRATEGIES, files, kubeconfig_option, listen_option, strategy_option
from alignup.errors import InputError

__all__ = ["command", "keep_from_collection"]


@click.command(name="extender")
@kubeconfig_option
@listen_option
@strategy_option
@click.option(
    "--fail",
    type=click.Choice(["open", "closed"]),
    default="open",
    show_default=True,
    help="Nodes of which nothing is known: let them pass, or refuse them.",
)
@click.option("--tls-cert", metavar="FILE", shell_complete=files, help="Serve HTTPS with this certificate.")
@click.option("--tls-key", metavar="FILE", shell_complete=files, help="The key of the certificate.")
def command(
    kubeconfig: str | None, listen: str, strategy: str, fail: str, tls_cert: str | None, tls_key: str | None
) -> None:
    """Serve kube-scheduler: which nodes can align a pod, how well, what to evict, and bind it.

    Watches nodes, pods and NodeResourceTopology objects. A node that publishes its holdings (`alignup node publish`)
    is judged as its kubelet would; another one by the amounts of its object. Ends in order on SIGTERM.
    """
    if strategy not in STRATEGIES:
        raise InputError.at("--strategy", f"one of {', '.join(STRATEGIES)}", strategy)
    need_extra("cluster")
    asyncio.run(serve_extender(kubeconfig, listen, strategy, fail == "open", (tls_cert, tls_key)))


async def serve_extender(
    kubeconfig: str | None, listen: str, strategy: str, fails_open: bool, tls: tuple[str | None, str | None]
) -> None:
    """Serve until told to end."""
    from alignup.scheduler.api_client import Api
    from alignup.scheduler.extender_answers import Answers
    from alignup.scheduler.extender_server import make_app
    from alignup.scheduler.extender_service import Extender
    from alignup.scheduler.serving import address, run_until_told, serve, tls_context
    from alignup.scheduler.state import ClusterState

    where, context = address(listen), tls_context(*tls)
    api = await Api.connect(kubeconfig)
    try:
        answers = Answers(ClusterState(strategy), fails_open=fails_open)
        extender = Extender(api, answers, complain=complain, synced=keep_from_collection)
        runner, port = await serve(make_app(extender), where, context)
        try:
            await run_until_told(extender.run(), lambda: click.echo(f"listening on {where[0]}:{port}"))
        finally:
            await runner.cleanup()
    finally:
        await api.close()


def keep_from_collection() -> None:
    """Let the garbage collector pass over all that is there.

    The objects of thousands of nodes stay, and to look through them takes tens of milliseconds, for which a scheduler
    would wait.
    """
    gc.collect()
    gc.freeze()
