"""`alignup gates`: keeps pods that wait behind a scheduling gate until they have a place."""

from __future__ import annotations

import gc
import platform
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import click

from alignup.cli import options
from alignup.cli.cluster import YOUNG_OBJECTS, keep_from_collection, run_in_cluster
from alignup.errors import InputError

if TYPE_CHECKING:
    from alignup.control_plane.api_server.api_client import Api

# Seconds from one look at what the API server has sent to the next one. A pod goes through its
# states in about as long, so that most of them are seen at once.
_BATCH: Final = 0.02


class Keeping(options.Gathered):
    """How the keeper is to run."""

    kubeconfig: str | None = options.kubeconfig
    listen: str = options.value(
        "Serve /healthz and /metrics here; port 0: any free port.",
        default="127.0.0.1:8081",
        metavar="HOST:PORT",
    )
    strategy: str = options.strategy
    scheduler_name: str = options.value(
        "Give places to the pods of this scheduler. Other schedulers' pods are let go at once.",
        default="default-scheduler",
        metavar="NAME",
    )
    patience: float = options.seconds(
        "Keep a node for a pod that has waited this long, until the pods there have ended.",
        default=30.0,
    )
    final: bool = options.flag(
        "Let pods go to the nodes of their places and to no others, whatever happens there. Saves "
        "the scheduler a look at all nodes."
    )
    evict: bool = options.flag(
        "Evict less important pods where that makes room for one that waits, as few as possible "
        "and within disruption budgets."
    )
    placeholders: str | None = options.choice(
        "Let this autoscaler see the pods that have waited for --patience, by placeholders of the "
        "same requests that no present node takes.",
        ("karpenter", "cluster-autoscaler"),
    )
    leader_elect: bool = options.flag(
        "Give places only while this process holds a Lease; other replicas stand by."
    )
    lease: str = options.value(
        "The Lease of --leader-elect.", default="alignup/alignup-gates", metavar="NAMESPACE/NAME"
    )
    install: bool = options.flag(
        "Let the API server give the gate to new pods of namespaces with the label "
        "alignup.dev/gates=enabled, by a MutatingAdmissionPolicy that is tried first, and end. "
        "Needs the rights of an administrator, and Kubernetes 1.36."
    )
    uninstall: bool = options.flag("Take that policy away, and end. Pods keep the gates they have.")


@options.subcommand("gates")
def command(
    *, keeping: Keeping = options.all_of(Keeping), logs: options.Logs = options.all_of(options.Logs)
) -> None:
    """Keep pods that wait behind the gate alignup.dev/room until a node has a place for them.

        alignup gates --kubeconfig ~/.kube/config --install
        alignup gates --kubeconfig ~/.kube/config

    It watches nodes, pods and NodeResourceTopology objects. When a node can align a pod, it takes
    the gate off and requires that node in the same patch, and kube-scheduler, by its defaults,
    binds the pod there. Pods come in the order of their priority, in turns of their namespaces,
    then of their age. It shuts down cleanly on SIGTERM.
    """
    if keeping.strategy not in options.STRATEGIES:
        raise InputError.at(
            "--strategy", f"one of {', '.join(options.STRATEGIES)}", keeping.strategy
        )

    if keeping.install and keeping.uninstall:
        raise click.UsageError("--install and --uninstall exclude each other")
    if keeping.install or keeping.uninstall:
        from alignup.control_plane.gates.installation import install, uninstall

        change = install if keeping.install else uninstall
        run_in_cluster(keeping.kubeconfig, lambda api: change(api, click.echo), logs)
        return

    from alignup.control_plane.batched_loop import new_batched_loop

    # what is imported and listed first stays, and collections over it would find nothing
    gc.set_threshold(YOUNG_OBJECTS)
    work, new_loop = partial(keep, keeping), partial(new_batched_loop, _BATCH)
    run_in_cluster(keeping.kubeconfig, work, logs, new_loop)


async def keep(settings: Keeping, api: Api) -> None:
    """Keep pods until told to end."""
    from alignup.control_plane.api_server.leader import Leader
    from alignup.control_plane.gates.keeper import Keeper
    from alignup.control_plane.gates.keeper_service import KeeperService
    from alignup.control_plane.gates.reasons import ReasonWriter
    from alignup.control_plane.gates.status_server import serving
    from alignup.control_plane.gates.waiting_pods import GatedPodReader
    from alignup.control_plane.process import address, run_until_told
    from alignup.control_plane.scheduler.cluster_state import ClusterState

    where = address(settings.listen)
    namespace, _, name = settings.lease.partition("/")
    if not namespace or not name:
        raise InputError.at("--lease", "NAMESPACE/NAME", settings.lease)

    leader = None
    if settings.leader_elect:
        leader = Leader(api, namespace, name, f"{platform.node()}_{uuid4()}")

    keeper = Keeper(
        ClusterState(settings.strategy),
        patience=settings.patience,
        relabels=not settings.final,
    )
    service = KeeperService(
        api,
        keeper,
        GatedPodReader(settings.scheduler_name),
        leader=leader,
        synced=keep_from_collection,
    )
    if settings.evict:
        from alignup.control_plane.gates.preemption import Evictor

        evictor = Evictor(api, keeper, service.clock)
        service.beside.append(evictor.run)
        service.counters["evicted_pods_total"] = (
            "counter",
            "Pods evicted for others.",
            lambda: evictor.evicted,
        )

    service.beside.append(ReasonWriter(api, keeper).run)
    if settings.placeholders is not None:
        from alignup.control_plane.gates.placeholders import Placeholders

        placeholders = Placeholders(
            api,
            keeper,
            service.clock,
            autoscaler=settings.placeholders,
            patience=settings.patience,
        )
        service.beside.append(placeholders.run)

    async with serving(where, service.pages) as port:
        await run_until_told(service.run(), lambda: click.echo(f"listening on {where[0]}:{port}"))
