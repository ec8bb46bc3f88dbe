"""`alignup extender`: serves a scheduler extender that sees NUMA nodes."""

from __future__ import annotations

import asyncio
import gc
import platform
from functools import partial
from typing import Any
from uuid import uuid4

import click

from alignup.cli.failures import complain, need_extra
from alignup.cli.options import STRATEGIES, files, kubeconfig_option, listen_option, strategy_option
from alignup.errors import InputError


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
@click.option(
    "--client-ca",
    metavar="FILE",
    shell_complete=files,
    help="Answer only clients with a certificate of these authorities; not asked for /healthz and /metrics.",
)
@click.option(
    "--insecure-bind",
    is_flag=True,
    help="Answer /bind to anybody who reaches --listen, though it is no loopback address and there is no --client-ca.",
)
@click.option("--leader-elect", is_flag=True, help="Answer only while this process holds a Lease; others stand by.")
@click.option(
    "--lease",
    default="alignup/alignup-extender",
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="The Lease of --leader-elect.",
)
@click.option(
    "--pod",
    envvar="POD_NAME",
    metavar="NAME",
    help="This pod, in the namespace of the lease: labelled alignup.dev/leader=true while it leads; or in $POD_NAME.",
)
def command(**options: Any) -> None:
    """Serve kube-scheduler: which nodes can align a pod, how well, what to evict, and bind it.

    Watches nodes, pods and NodeResourceTopology objects. A node that publishes its holdings (`alignup node publish`)
    is judged as its kubelet would; another one by the amounts of its object. Ends in order on SIGTERM.
    """
    if options["strategy"] not in STRATEGIES:
        raise InputError.at("--strategy", f"one of {', '.join(STRATEGIES)}", options["strategy"])
    need_extra("cluster")
    asyncio.run(serve_extender(**options))


async def serve_extender(
    kubeconfig: str | None,
    listen: str,
    strategy: str,
    fail: str,
    tls_cert: str | None,
    tls_key: str | None,
    client_ca: str | None,
    insecure_bind: bool,
    leader_elect: bool,
    lease: str,
    pod: str | None,
) -> None:
    """Serve until told to end; the arguments are the options."""
    from alignup.scheduler.api_client import Api
    from alignup.scheduler.extender_answers import Answers
    from alignup.scheduler.extender_server import make_app
    from alignup.scheduler.extender_service import Extender
    from alignup.scheduler.leader import Leader, label_leader
    from alignup.scheduler.serving import address, is_loopback, run_until_told, serve, tls_context
    from alignup.scheduler.state import ClusterState

    where, context = address(listen), tls_context(tls_cert, tls_key, client_ca)
    binds = client_ca is not None or insecure_bind or is_loopback(where[0])
    namespace, _, name = lease.partition("/")
    if not namespace or not name:
        raise InputError.at("--lease", "NAMESPACE/NAME", lease)
    api = await Api.connect(kubeconfig)
    leader = led = None
    if leader_elect:
        identity = f"{pod or platform.node()}_{uuid4()}"
        leader = Leader(api, namespace, name, identity, complain=complain)
        if pod:
            led = partial(label_leader, api, namespace, pod)
    try:
        answers = Answers(ClusterState(strategy), fails_open=fail == "open")
        extender = Extender(api, answers, complain=complain, synced=keep_from_collection, leader=leader, led=led)
        app = make_app(extender, needs_certificate=client_ca is not None, binds=binds)
        runner, port = await serve(app, where, context)
        if not binds:
            complain("/bind is not answered: see --client-ca and --insecure-bind")
        try:
            await run_until_told(extender.run(), lambda: click.echo(f"listening on {where[0]}:{port}"))
        finally:
            await runner.cleanup()
    finally:
        await api.close()


def keep_from_collection() -> None:
    """Exclude all objects so far from garbage collection.

    The objects of thousands of nodes stay, and a collection over them takes tens of milliseconds, for which a scheduler
    would wait.
    """
    gc.collect()
    gc.freeze()
