"""`alignup extender`: serves a scheduler extender that sees NUMA nodes."""

from __future__ import annotations

import asyncio
import gc

import click

from alignup.cli.completion import files
from alignup.cli.failures import complain
from alignup.cli.options import STRATEGIES
from alignup.errors import InputError

__all__ = ["command", "keep_from_collection", "kubeconfig_option", "listen_option", "need_extra", "need_text"]

kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="FILE",
    shell_complete=files,
    help="How to reach the API server.  [default: the service account of this pod]",
)
listen_option = click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve HTTP; port 0 is any free one.",
)


@click.command(name="extender")
@kubeconfig_option
@listen_option
@click.option(
    "--strategy",
    "-s",
    default="least-numa-nodes",
    show_default=True,
    metavar=f"[{'|'.join(STRATEGIES)}]",
    help="How placements are scored; see `alignup rank`.",
)
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
    need_extra("aiohttp", "kubernetes_asyncio", "prometheus_client")
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


def need_text(option: str, word: str) -> None:
    """Check that a word of the command line is text, which an API server can be sent.

    Raises:
        InputError: its bytes are no UTF-8.
    """
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise InputError.at(option, "UTF-8", word) from error


def need_extra(*modules: str) -> None:
    """Check that the libraries of the extra `cluster` are there, without importing them.

    Raises:
        InputError: one is missing.
    """
    from importlib.util import find_spec

    for name in modules:
        if find_spec(name) is None:
            raise InputError(f"expected the module {name}, got none; install alignup[cluster]")
