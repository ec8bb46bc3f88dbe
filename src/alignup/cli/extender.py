"""`alignup extender`: serves a scheduler extender that sees NUMA nodes."""

from __future__ import annotations

import asyncio
import gc
import platform
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from alignup.cli import options
from alignup.cli.failures import need_extra
from alignup.errors import InputError

if TYPE_CHECKING:
    from alignup.control_plane.api_server.api_client import Api


class Serving(options.Gathered):
    """How the extender is to run."""

    kubeconfig: str | None = options.kubeconfig
    listen: str = options.value(
        "Where to serve HTTP; port 0 is any free one.", default="127.0.0.1:8080", metavar="HOST:PORT"
    )
    strategy: str = options.strategy
    fail: str = options.value(
        "Accept nodes about which nothing is known (open), or refuse them (closed).",
        type=click.Choice(["open", "closed"]),
        default="open",
    )
    require_dra_alignment: bool = options.require_dra_alignment
    tls_cert: str | None = options.file("Serve HTTPS with this certificate.")
    tls_key: str | None = options.file("The key of the certificate.")
    client_ca: str | None = options.file(
        "Answer only clients with a certificate of these authorities; not asked for /healthz and /metrics."
    )
    insecure_bind: bool = options.flag(
        "Accept /bind from any client that can reach --listen, even on a non-loopback address without --client-ca."
    )
    leader_elect: bool = options.flag("Answer only while this process holds a Lease; others stand by.")
    lease: str = options.value(
        "The Lease of --leader-elect.", default="alignup/alignup-extender", metavar="NAMESPACE/NAME"
    )
    no_events: bool = options.flag("Write no Events on pods that no node takes.")
    pod: str | None = options.value(
        "The pod of this process, in the namespace of the lease; labelled alignup.dev/leader=true while it leads; "
        "or in $POD_NAME.",
        envvar="POD_NAME",
        metavar="NAME",
    )


@options.subcommand("extender")
def command(*, serving: Serving = options.all_of(Serving), logs: options.Logs = options.all_of(options.Logs)) -> None:
    """Serve kube-scheduler: which nodes can align a pod, how well, what to evict, and bind it.

    Watches nodes, pods and NodeResourceTopology objects. A node that publishes its holdings (`alignup node publish`)
    is judged as its kubelet would; another one by the amounts of its object. Ends in order on SIGTERM.
    """
    if serving.strategy not in options.STRATEGIES:
        raise InputError.at("--strategy", f"one of {', '.join(options.STRATEGIES)}", serving.strategy)
    need_extra("cluster")
    from alignup.cli.agent import logged
    from alignup.control_plane.api_server.api_client import with_api

    complain = logged(logs.log_format, logs.log_level)
    with_api(serving.kubeconfig, partial(serve_extender, serving), complain=complain)


async def serve_extender(how: Serving, api: Api) -> None:
    """Serve until told to end."""
    from alignup.control_plane.api_server.leader import Leader, label_leader
    from alignup.control_plane.scheduler.extender_answers import Answers
    from alignup.control_plane.scheduler.extender_server import make_app
    from alignup.control_plane.scheduler.extender_service import Extender
    from alignup.control_plane.scheduler.state import ClusterState
    from alignup.control_plane.serving import (
        ServedCertificate,
        address,
        is_loopback,
        run_until_told,
        serve,
        tls_context,
    )

    where, context, served = address(how.listen), tls_context(how.tls_cert, how.tls_key, how.client_ca), None
    if how.tls_cert is not None and how.tls_key is not None:
        served = ServedCertificate(how.tls_cert, how.tls_key, how.client_ca, api.complain)
        context = served.context
    binds = how.client_ca is not None or how.insecure_bind or is_loopback(where[0])
    namespace, _, name = how.lease.partition("/")
    if not namespace or not name:
        raise InputError.at("--lease", "NAMESPACE/NAME", how.lease)
    leader = led = None
    if how.leader_elect:
        leader = Leader(api, namespace, name, f"{how.pod or platform.node()}_{uuid4()}")
        if how.pod:
            led = partial(label_leader, api, namespace, how.pod)
    state = ClusterState(how.strategy)
    answers = Answers(state, fails_open=how.fail == "open", requires_near=how.require_dra_alignment)
    extender = Extender(
        api, answers, synced=keep_from_collection, leader=leader, led=led, writes_events=not how.no_events
    )
    ends = dict if served is None else served.ends
    app = make_app(extender, needs_certificate=how.client_ca is not None, binds=binds, ends=ends)
    runner, port = await serve(app, where, context)
    if not binds:
        api.complain("/bind is not answered: see --client-ca and --insecure-bind")
    keeping = None if served is None else asyncio.create_task(served.keep())
    try:
        await run_until_told(extender.run(), lambda: click.echo(f"listening on {where[0]}:{port}"))
    finally:
        if keeping is not None:
            keeping.cancel()
        await runner.cleanup()


def keep_from_collection() -> None:
    """Exclude all objects so far from garbage collection.

    The objects of thousands of nodes stay, and a collection over them takes tens of milliseconds, for which a scheduler
    would wait.
    """
    gc.collect()
    gc.freeze()
