"""`alignup extender`, `fleet`, `reconcile` and `rebalance`, which run in a cluster.

Each is the function of its name.
"""

from __future__ import annotations

import asyncio
import gc
import platform
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import click

from alignup.cli import options
from alignup.cli.failures import need_extra, need_text
from alignup.cli.inputs import read_bytes, read_pods
from alignup.cli.rank import load_cluster
from alignup.cli.terminal import Table, make_console, nodes_text, print_json, print_whole, safe
from alignup.errors import InputError
from alignup.host.trusted_files import check_path
from alignup.text.counting import counted

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.cluster.evictions import RoomPlan
    from alignup.control_plane.api_server.api_client import Api
    from alignup.control_plane.publishers.fleet import FleetNode
    from alignup.kubernetes.versions import KubeletVersion

_THRESHOLDS: Final = gc.get_threshold()
# New objects before a collection until all of a cluster is listed.
YOUNG_OBJECTS: Final = 1_000_000


def run_in_cluster(
    kubeconfig: str | None,
    work: Callable[[Api], Awaitable[None]],
    logs: options.Logs,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Do some work with connections to an API server, and log as the options say.

    Args:
        kubeconfig: as for `Api.connect`.
        work: is given the connections.
        logs: the options.
        new_loop: makes the event loop; None: as usual.
    """
    need_extra("cluster")
    from alignup.cli.agent import start_logging
    from alignup.control_plane.api_server.api_client import with_api

    complain = start_logging(logs.log_format, logs.log_level)
    with_api(kubeconfig, work, complain=complain, new_loop=new_loop)


class Serving(options.Gathered):
    """How the extender is to run."""

    kubeconfig: str | None = options.kubeconfig
    listen: str = options.value(
        "Serve HTTP here; port 0: any free port.", default="127.0.0.1:8080", metavar="HOST:PORT"
    )
    strategy: str = options.strategy
    koordinator_profile: str | None = options.koordinator_profile
    fail: str = options.choice(
        "Accept nodes that publish nothing (open), or refuse them (closed).",
        ("open", "closed"),
        default="open",
    )
    require_dra_alignment: bool = options.require_dra_alignment
    tls_cert: str | None = options.file("Serve HTTPS with this certificate.")
    tls_key: str | None = options.file("The key of the certificate.")
    client_ca: str | None = options.file(
        "Answer only clients with a certificate of these authorities, except on /healthz and "
        "/metrics."
    )
    insecure_bind: bool = options.flag(
        "Accept /bind from any client that reaches --listen, even without loopback or --client-ca."
    )
    leader_elect: bool = options.flag(
        "Answer only while this process holds a Lease; other replicas stand by."
    )
    lease: str = options.value(
        "The Lease of --leader-elect.", default="alignup/alignup-extender", metavar="NAMESPACE/NAME"
    )
    no_events: bool = options.flag("Write no Events on pods that no node takes.")
    pod: str | None = options.value(
        "The pod of this process, in the Lease's namespace; labelled alignup.dev/leader=true "
        "while it leads.  [default: $POD_NAME]",
        envvar="POD_NAME",
        metavar="NAME",
    )


@options.subcommand("extender")
def extender(
    *, serving: Serving = options.all_of(Serving), logs: options.Logs = options.all_of(options.Logs)
) -> None:
    """Serve kube-scheduler: filter and score nodes for a pod, pick victims, and bind the pod.

        alignup extender --kubeconfig ~/.kube/config --listen 127.0.0.1:8080

    It watches nodes, pods and NodeResourceTopology objects. It judges a node that publishes its
    holdings (`alignup node publish`) as the node's kubelet would, and other nodes by totals. The
    victims are those of a preemption. It shuts down cleanly on SIGTERM.
    """
    if serving.strategy not in options.STRATEGIES:
        raise InputError.at(
            "--strategy", f"one of {', '.join(options.STRATEGIES)}", serving.strategy
        )

    # what is imported and listed first stays, and collections over it would find nothing
    gc.set_threshold(YOUNG_OBJECTS)
    run_in_cluster(serving.kubeconfig, partial(serve_extender, serving), logs)


async def serve_extender(settings: Serving, api: Api) -> None:
    """Serve until told to end."""
    from alignup.control_plane import process, serving
    from alignup.control_plane.api_server.leader import Leader, label_leader
    from alignup.control_plane.scheduler.cluster_state import ClusterState
    from alignup.control_plane.scheduler.extender_answers import Answers
    from alignup.control_plane.scheduler.extender_server import make_app
    from alignup.control_plane.scheduler.extender_service import Extender

    address = process.address(settings.listen)
    host, _ = address
    context = serving.tls_context(settings.tls_cert, settings.tls_key, settings.client_ca)
    certificate = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        certificate = serving.ServedCertificate(
            settings.tls_cert, settings.tls_key, settings.client_ca, api.complain
        )
        context = certificate.context

    namespace, _, name = settings.lease.partition("/")
    if not namespace or not name:
        raise InputError.at("--lease", "NAMESPACE/NAME", settings.lease)

    leader = led = None
    if settings.leader_elect:
        leader = Leader(api, namespace, name, f"{settings.pod or platform.node()}_{uuid4()}")
        if settings.pod:
            led = partial(label_leader, api, namespace, settings.pod)

    state = ClusterState(settings.strategy, settings.koordinator_profile or "")
    answers = Answers(
        state,
        fails_open=settings.fail == "open",
        requires_near=settings.require_dra_alignment,
    )
    extender = Extender(
        api,
        answers,
        synced=keep_from_collection,
        leader=leader,
        led=led,
        writes_events=not settings.no_events,
    )

    needs_certificate = settings.client_ca is not None
    binds = needs_certificate or settings.insecure_bind or process.is_loopback(host)
    ends = dict if certificate is None else certificate.ends
    app = make_app(extender, needs_certificate=needs_certificate, binds=binds, ends=ends)
    serving.trace(app, "alignup-extender", api.complain)
    runner, port = await serving.serve(app, address, context)
    if not binds:
        api.complain("/bind is not answered: see --client-ca and --insecure-bind")

    renewal = None if certificate is None else asyncio.create_task(certificate.keep())
    try:
        await process.run_until_told(
            extender.run(), lambda: click.echo(f"listening on {host}:{port}")
        )
    finally:
        if renewal is not None:
            renewal.cancel()

        await runner.cleanup()


def keep_from_collection() -> None:
    """Exclude all objects so far from garbage collection, and let it run as often as Python does.

    The objects of thousands of nodes stay, and a collection over them takes tens of milliseconds,
    for which a scheduler would wait.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@options.subcommand("fleet")
def fleet(
    *,
    kubeconfig: str | None = options.kubeconfig,
    nodes: str | None = options.file(
        "Nodes as JSON lines; see `alignup rank`.", *("--nodes", "-n")
    ),
    machine: str | None = options.a_machine(
        "A machine of the catalog, in place of --nodes.", "NAME"
    ),
    count: int = options.number("Register N nodes of --machine.", maximum=100_000, default=1),
    labels: tuple[str, ...] = options.several(
        "A label of all Node objects.", "KEY=VALUE", "--label"
    ),
    duration: float | None = options.seconds(
        "End pods after this time, unless their annotation alignup.dev/duration gives another."
    ),
    amounts_only: bool = options.flag("Publish totals only, like topology exporters."),
    listen: str | None = options.value(
        "Serve the state of the nodes over HTTP: /nodes, /nodes/NAME.", metavar="HOST:PORT"
    ),
    podresources_dir: Path | None = options.path(
        "Serve PodResources (v1) of each node, like its kubelet, on a socket DIR/NODE.sock.",
        metavar="DIR",
    ),
    logs: options.Logs = options.all_of(options.Logs),
) -> None:
    """Register nodes and act as their kubelets: admit the pods bound to them, and end these pods.

        alignup fleet --kubeconfig ~/.kube/config --machine dgx-h100 --count 100

    For planning, and to test schedulers. Each node decides exactly as a kubelet of its machine and
    configuration would. Containers do not run. Leases, Node status and NodeResourceTopology objects
    are kept current until SIGTERM.
    """
    need_extra("cluster")
    if podresources_dir is not None:
        need_extra("kubelet")

    need_text("--machine", machine or "")
    node_labels = {}
    for label in labels:
        need_text("--label", label)
        key, sign, value = label.partition("=")
        if not key or not sign:
            raise InputError.at("--label", "KEY=VALUE", key)

        node_labels[key] = value

    from alignup.control_plane.process import address
    from alignup.control_plane.publishers.fleet import catalog_nodes, read_fleet

    listen_address = None if listen is None else address(listen)
    if (nodes is None) == (machine is None):
        raise click.UsageError("give either --nodes or --machine")

    if machine is not None:
        fleet_nodes = catalog_nodes(machine, count)
    else:
        fleet_nodes = read_fleet(read_bytes(str(nodes)), str(nodes))

    sockets: dict[Path, FleetNode] = {}
    if podresources_dir is not None:
        sockets = sockets_of(fleet_nodes, podresources_dir)

    settings = {"labels": node_labels, "duration": duration, "with_holdings": not amounts_only}
    work = partial(serve_fleet, listen_address, fleet_nodes, sockets, settings)
    run_in_cluster(kubeconfig, work, logs)


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
    address: tuple[str, int] | None,
    nodes: list[FleetNode],
    sockets: dict[Path, FleetNode],
    settings: dict[str, Any],
    api: Api,
) -> None:
    """Be the kubelets until told to end; `settings` are what `Fleet` takes."""
    from alignup.control_plane.process import run_until_told
    from alignup.control_plane.publishers.fleet import Fleet, make_app
    from alignup.control_plane.serving import serve

    async with AsyncExitStack() as stack:
        fleet = Fleet(api, nodes, **settings)
        if address is not None:
            runner, port = await serve(make_app(fleet), address)
            stack.push_async_callback(runner.cleanup)
            click.echo(f"listening on {address[0]}:{port}")

        if sockets:
            from alignup.kubelet.pod_resources_server import serve_pod_resources

            sources = {path: node.pod_resources for path, node in sockets.items()}
            stop = serve_pod_resources(sources, asyncio.get_running_loop(), "--podresources-dir")
            stack.push_async_callback(asyncio.to_thread, stop)

        await run_until_told(fleet.run(), lambda: click.echo(f"{len(nodes)} nodes"))


@options.subcommand("reconcile")
def reconcile(
    *,
    kubeconfig: str | None = options.kubeconfig,
    reasons: tuple[str, ...] = options.several(
        "The status.reason of pods to delete.",
        "REASON",
        "--reason",
        default=("TopologyAffinityError",),
    ),
    backoff: float = options.seconds(
        "The wait before the first pod of a controller is deleted. It doubles each time.",
        default=10.0,
    ),
    longest: float = options.seconds("The longest wait before a pod is deleted.", default=300.0),
    limit: int = options.number("Delete at most N pods of one controller an hour.", default=20),
    no_events: bool = options.flag("Write no Events on rejected pods."),
    dry_run: bool = options.flag("Say what would be deleted, and delete nothing."),
    logs: options.Logs = options.all_of(options.Logs),
) -> None:
    """Delete pods that nodes rejected, so that their controllers replace them.

        alignup reconcile --kubeconfig ~/.kube/config --dry-run

    Pods without a controller stay. A ReplicaSet whose pods fit nowhere keeps making new ones; only
    the extender prevents that. Runs until SIGTERM.
    """
    need_extra("cluster")
    from alignup.control_plane.process import run_until_told
    from alignup.control_plane.scheduler.reconcile import Reconciler, Rules

    rules = Rules(frozenset(reasons), backoff, longest, limit)

    async def run(api: Api) -> None:
        reconciler = Reconciler(
            api, rules, say=click.echo, dry=dry_run, writes_events=not (no_events or dry_run)
        )
        await run_until_told(reconciler.run())

    run_in_cluster(kubeconfig, run, logs)


@options.subcommand(
    "rebalance", "0 if all waiting pods get a place; 1 if some do not, or a plan came to nothing"
)
def rebalance(
    *,
    nodes: str | None = options.nodes_or_cluster,
    kubeconfig: str | None = options.asked_kubeconfig,
    version: KubeletVersion | None = options.kubelet_version,
    apply: bool = options.flag(
        "Carry out the plan: evict pods of the cluster and wait for the planned placements."
    ),
    patience: float = options.seconds("Wait this long for a pod to be bound.", default=120.0),
    continuous: bool = options.flag("With --apply: keep making room until SIGTERM."),
    interval: float = options.seconds("With --continuous: look this often.", default=30.0),
    per_hour: int = options.number("With --continuous: evict at most N pods an hour.", default=20),
    as_json: bool = options.json(),
    pods: tuple[str, ...] = options.files("[POD.yaml]..."),
) -> int:
    """Plan evictions so that waiting pods find a place: as few and as unimportant pods as possible.

        alignup rebalance --kubeconfig ~/.kube/config
        alignup rebalance --nodes nodes.jsonl pod.yaml

    Every evicted pod gets a place in the plan, aligned as well as before. Without --apply nothing
    is evicted.

    With --nodes, the pods in the files wait, and every pod on the nodes may move. In a cluster, its
    pending pods wait. A pod is evicted only if a controller replaces it, if it is no more important
    than the pod that needs its place, and if PodDisruptionBudgets allow it.
    """
    if nodes is not None:
        if kubeconfig is not None or apply or continuous or not pods:
            raise click.UsageError(
                "--nodes goes with files of pods, and without --kubeconfig, --apply and "
                "--continuous"
            )

        from alignup.cluster.evictions import plan_room
        from alignup.kubernetes.pod_documents import expanded, live_pods

        waiting = expanded(live_pods(read_pods(pods), None, one_node=False))
        plan = plan_room(load_cluster(nodes, version, can_admit=True), waiting)
        print_plan(plan, as_json=as_json)
        return 1 if plan.left_out else 0

    if pods or (continuous and not apply):
        raise click.UsageError("POD.yaml files need --nodes; --continuous needs --apply")

    need_extra("cluster")
    from alignup.control_plane.process import run_until_told
    from alignup.control_plane.scheduler.ask import ask
    from alignup.control_plane.scheduler.rebalance import (
        apply_plan,
        plan_cluster,
        rebalance_for_ever,
    )

    async def work(api: Api) -> bool:
        if continuous:
            say: Callable[[str], None] = click.echo
            if as_json:
                say = _say_as_json

            forever = rebalance_for_ever(
                api, per_hour=per_hour, interval=interval, patience=patience, say=say
            )
            await run_until_told(forever)
            return True

        plan = await plan_cluster(api)
        print_plan(plan, as_json=as_json)
        if apply:
            is_carried_out = await apply_plan(
                api, plan, lambda line: click.echo(line, err=as_json), patience
            )
            if not is_carried_out:
                return False

        return not plan.left_out

    return 0 if ask(kubeconfig, work) else 1


def _say_as_json(line: str) -> None:
    print_json({"message": line})


def print_plan(plan: RoomPlan, *, as_json: bool) -> None:
    """Print a plan."""
    if as_json:
        print_json(plan.to_dict())
        return

    console = make_console()
    table = Table("step", "pod", "node", "NUMA nodes")
    for step in plan.steps:
        numa_nodes = "-" if step.action == "evict" else nodes_text(step.numa_nodes)
        table.add_row(step.action, safe(step.pod.namespaced_name), safe(step.node), numa_nodes)

    if plan.steps:
        print_whole(console, table)

    sentence = f"{counted(len(plan.placements), 'pod')} placed"
    sentence += f", {counted(len(plan.evictions), 'eviction')}"
    if plan.evictions:
        proof = "the fewest there can be" if plan.proven else "not proven to be the fewest"
        sentence += f", {proof}"

    console.print(sentence)
    for pod in plan.left_out:
        console.print(f"no place for {safe(pod.namespaced_name)}")
