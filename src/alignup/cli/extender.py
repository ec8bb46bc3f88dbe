"""`alignup extender`: serves a scheduler extender that sees NUMA nodes."""

from __future__ import annotations

import asyncio
import gc
import platform
from functools import partial
from uuid import uuid4

import click

from alignup.cli.failures import complain, need_extra
from alignup.cli.options import (
    STRATEGIES,
    Gathered,
    file_option,
    flag,
    gathered,
    kubeconfig_option,
    option,
    strategy_option,
    subcommand,
)
from alignup.errors import InputError


class Serving(Gathered):
    """How the extender is to run."""

    kubeconfig: str | None = kubeconfig_option
    listen: str = option("Where to serve HTTP; port 0 is any free one.", default="127.0.0.1:8080", metavar="HOST:PORT")
    strategy: str = strategy_option
    fail: str = option(
        "Nodes of which nothing is known: let them pass, or refuse them.",
        type=click.Choice(["open", "closed"]),
        default="open",
    )
    tls_cert: str | None = file_option("Serve HTTPS with this certificate.")
    tls_key: str | None = file_option("The key of the certificate.")
    client_ca: str | None = file_option(
        "Answer only clients with a certificate of these authorities; not asked for /healthz and /metrics."
    )
    insecure_bind: bool = flag(
        "Answer /bind to anybody who reaches --listen, though it is no loopback address and there is no --client-ca."
    )
    leader_elect: bool = flag("Answer only while this process holds a Lease; others stand by.")
    lease: str = option("The Lease of --leader-elect.", default="alignup/alignup-extender", metavar="NAMESPACE/NAME")
    pod: str | None = option(
        "This pod, in the namespace of the lease: labelled alignup.dev/leader=true while it leads; or in $POD_NAME.",
        envvar="POD_NAME",
        metavar="NAME",
    )


@subcommand("extender")
def command(*, serving: Serving = gathered(Serving)) -> None:
    """Serve kube-scheduler: which nodes can align a pod, how well, what to evict, and bind it.

    Watches nodes, pods and NodeResourceTopology objects. A node that publishes its holdings (`alignup node publish`)
    is judged as its kubelet would; another one by the amounts of its object. Ends in order on SIGTERM.
    """
    if serving.strategy not in STRATEGIES:
        raise InputError.at("--strategy", f"one of {', '.join(STRATEGIES)}", serving.strategy)
    need_extra("cluster")
    asyncio.run(serve_extender(serving))


async def serve_extender(how: Serving) -> None:
    """Serve until told to end."""
    from alignup.scheduler.api_client import Api
    from alignup.scheduler.extender_answers import Answers
    from alignup.scheduler.extender_server import make_app
    from alignup.scheduler.extender_service import Extender
    from alignup.scheduler.leader import Leader, label_leader
    from alignup.scheduler.serving import address, is_loopback, run_until_told, serve, tls_context
    from alignup.scheduler.state import ClusterState

    where, context = address(how.listen), tls_context(how.tls_cert, how.tls_key, how.client_ca)
    binds = how.client_ca is not None or how.insecure_bind or is_loopback(where[0])
    namespace, _, name = how.lease.partition("/")
    if not namespace or not name:
        raise InputError.at("--lease", "NAMESPACE/NAME", how.lease)
    leader = led = None
    async with await Api.connect(how.kubeconfig) as api:
        if how.leader_elect:
            identity = f"{how.pod or platform.node()}_{uuid4()}"
            leader = Leader(api, namespace, name, identity, complain=complain)
            if how.pod:
                led = partial(label_leader, api, namespace, how.pod)
        answers = Answers(ClusterState(how.strategy), fails_open=how.fail == "open")
        extender = Extender(api, answers, complain=complain, synced=keep_from_collection, leader=leader, led=led)
        app = make_app(extender, needs_certificate=how.client_ca is not None, binds=binds)
        runner, port = await serve(app, where, context)
        if not binds:
            complain("/bind is not answered: see --client-ca and --insecure-bind")
        try:
            await run_until_told(extender.run(), lambda: click.echo(f"listening on {where[0]}:{port}"))
        finally:
            await runner.cleanup()


def keep_from_collection() -> None:
    """Exclude all objects so far from garbage collection.

    The objects of thousands of nodes stay, and a collection over them takes tens of milliseconds, for which a scheduler
    would wait.
    """
    gc.collect()
    gc.freeze()
