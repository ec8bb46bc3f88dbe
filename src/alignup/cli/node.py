"""`alignup node`: reads, checks, publishes and packs the node that a kubelet runs, and foretells its restart.

A subcommand is the function of its name.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from alignup.cli import options
from alignup.cli.failures import complain, need_extra, need_text
from alignup.cli.inputs import KubeletSource, Pictures, load_cluster_node, read_bytes, title_of
from alignup.cli.terminal import (
    Table,
    amount_text,
    make_console,
    nodes_text,
    print_json,
    print_whole,
    safe,
)
from alignup.errors import InputError, one_line
from alignup.records import json_fields
from alignup.text.counting import counted
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from alignup.control_plane.api_server.api_client import Api
    from alignup.kubelet.check import Outcome, Restart
    from alignup.kubelet.config import Setting
    from alignup.node import Node
    from alignup.node.holdings import Holdings

# ---- collect


# The parts that are worth having, where they are in an archive, and what it costs where one is
# missing.
_WORTH = {
    "sys": ("sys/", "elsewhere, --machine must name the machine"),
    "configuration": ("var/lib/kubelet/config.yaml", "the topology policy is unknown"),
    "CPUs": ("var/lib/kubelet/cpu_manager_state", "all CPUs count as free"),
    "memory": ("var/lib/kubelet/memory_manager_state", "all memory counts as free"),
    "devices": (
        "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        "all devices count as free",
    ),
    "PodResources": ("podresources/allocatable.json", "the NUMA nodes of free devices are unknown"),
    "pods": ("pods.json", "only what pods hold is known; add --pods or --kubeconfig"),
}


@options.subcommand("collect")
def collect(
    *,
    root: str = options.node,
    kubelet_dir: str | None = options.kubelet_dir,
    config: str | None = options.config,
    pods: str | None = options.file(
        "The pods of the node: `kubectl get pods -A -o json --field-selector spec.nodeName=NAME`."
    ),
    kubeconfig: str | None = options.file("Ask this cluster for pods, Node and claims."),
    node_name: str | None = options.value(
        "The Node's name in the cluster. Needed with --kubeconfig.", metavar="NAME"
    ),
    as_json: bool = options.json(),
    target: str = options.argument("OUT.tar.xz"),
) -> None:
    """Pack a kubelet's node into one archive: machine, configuration, state files, PodResources answers, pods.

        alignup node collect node1.tar.xz --pods pods.json

    The archive has no environment variables, arguments, annotations or tokens of pods: only what
    `--node` reads is kept. The checkpoint of devices is kept whole, with what device plugins told
    containers. Only the archive is written.
    """
    from alignup.kubelet.collect import collect
    from alignup.kubelet.layout import open_node

    if kubeconfig is not None and (pods is not None or node_name is None):
        raise click.UsageError("--kubeconfig needs --node-name, and excludes --pods")

    given: Any = None
    if pods is not None:
        given = decode_json(read_bytes(pods), "a List of Pods as JSON", pods)
        if not isinstance(given, dict):
            raise InputError.at(pods, "a List of Pods", given)

    node = claims = None
    if kubeconfig is not None and node_name is not None:
        need_extra("cluster")
        given, node, claims = asyncio.run(ask_cluster(kubeconfig, node_name))

    found = collect(
        open_node(root, kubelet_dir), target, config=config, pods=given, node=node, claims=claims
    )
    missing = {
        name: words
        for name, words in _WORTH.items()
        if not any(one.startswith(words[0]) for one in found)
    }
    if as_json:
        lacks = [
            {"name": name, "path": path, "means": cost} for name, (path, cost) in missing.items()
        ]
        print_json({"archive": target, "files": list(found), "missing": lacks})
        return

    complain(f"packed {counted(len(found), 'file')} into {target}")
    for name, (path, cost) in missing.items():
        complain(f"missing from the archive: {name} ({path}); {cost}")


async def ask_cluster(kubeconfig: str, node_name: str) -> tuple[Any, Any, Any]:
    """Return the List of the pods of a node, the Node, and the List of the objects of claims that matter there.

    Raises:
        InputError: the credentials cannot be read.
        ApiError: the API server refuses, or does not answer.
    """
    from alignup.control_plane.api_server.api_client import CLAIMS, Api, ApiError
    from alignup.control_plane.api_server.watch import list_objects

    async with await Api.connect(kubeconfig) as api:
        pods = await api.request(
            "GET", "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node_name}"}
        )
        node = await api.request("GET", f"/api/v1/nodes/{quote(node_name, safe='')}")
        items: list[dict[str, Any]] = []
        try:
            for kind in ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"):
                path = f"{CLAIMS}/{kind.lower()}{'es' if kind.endswith('s') else 's'}"
                told = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
                items += [
                    decode_json(item, f"a {kind}") | told async for item in list_objects(api, path)
                ]
        except ApiError as error:
            complain(f"missing from the archive: claims (resources.json); {error}")
            items = []

    return (
        decode_json(pods, "a List of Pods", "the API server"),
        decode_json(node, "a Node", "the API server"),
        {"items": of_node(items, node_name)} if items else None,
    )


def of_node(items: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the objects of claims without slices of other nodes only, and claims that have devices of these only."""
    from alignup.claims.read import resources_of

    known = resources_of(items, "the API server")
    near = {one.name for one in known.slices_near(name)}
    pools = {(one.driver, one.pool.name) for one in known.slices_near(name)}
    far = {
        (one.namespace, one.name)
        for one in known.claims
        if one.allocated
        and not any((device.driver, device.pool) in pools for device in one.allocated)
    }

    def matters(one: dict[str, Any]) -> bool:
        metadata = one["metadata"]
        if one["kind"] == "ResourceSlice":
            return metadata["name"] in near
        return (
            one["kind"] != "ResourceClaim"
            or (metadata.get("namespace", ""), metadata["name"]) not in far
        )

    return [one for one in items if matters(one)]


# ---- show


@options.subcommand("show")
def show(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    as_json: bool = options.json(),
    watch: float | None = options.value(
        "Read the node again every SECONDS and show it when something has changed, until "
        "interrupted.",
        type=options.Seconds(0.1, 86400),
        metavar="SECONDS",
    ),
    pictures: Pictures = options.all_of(Pictures),
    kubeconfig: str | None = options.file(
        "Show the node --node-name of this cluster, as it publishes itself."
    ),
) -> None:
    """Show what each NUMA node of a kubelet's node has, which container holds what, and the settings in effect.

        alignup node show
        alignup node show --node node1.tar.xz --json

    Settings are policies, their options and feature gates, each with its origin: a file, a drop-in,
    the kubelet's flags or the release's default. --json also lists those that nothing sets.

    Pods that are gone but still in the state files are left out: the kubelet drops them at its next
    admission.
    """
    from alignup.kubelet.config import settings_of
    from alignup.node.holdings import holdings_of

    shown: Holdings | None = None
    settings: tuple[Setting, ...] = ()
    while True:
        if kubeconfig is None:
            found = source.read()
            title, node = found.records.files.source, found.node
            settings = settings_of(found.records.configuration, node.config)
        else:
            title, node = str(source.node_name), load_cluster_node(kubeconfig, source.node_name)

        holdings = holdings_of(node)
        if holdings != shown:
            if shown is not None and not as_json:
                click.echo()
            print_holdings(
                title_of(title, node), node, holdings, settings, pictures, as_json=as_json
            )
            shown = holdings

        if watch is None:
            return
        time.sleep(watch)


def print_holdings(
    title: str,
    node: Node,
    holdings: Holdings,
    settings: tuple[Setting, ...],
    pictures: Pictures,
    *,
    as_json: bool,
) -> None:
    """Write the node in the forms that are asked for; with nothing asked for, as tables."""
    if pictures:
        from alignup.pictures.picture import Scene

        pictures.draw(Scene(title, node.machine, node.inventory, holdings))

    if pictures.take_the_output:
        return
    if as_json:
        more = [{"name": one.name, "value": one.value, "from": one.origin} for one in settings]
        print_json({**holdings.to_dict(), **({"settings": more} if more else {})})
        return

    console = make_console()
    console.print(safe(title))
    rows = []
    for name, place in (
        (one.resource, place) for one in holdings.resources for place in one.places
    ):
        amounts = (
            amount_text(name, amount) for amount in (place.allocatable, place.held, place.free)
        )
        rows.append((name, nodes_text(place.numa_nodes) or "-", *amounts))

    print_whole(
        console,
        Table("resource", "NUMA nodes", "allocatable", "held", "free", rows=rows),
        below=True,
    )
    holders = [(one.pod, one.container, *one.cells()) for one in holdings.containers if one]
    table = Table("pod", "container", "CPUs", "memory", "devices", rows=holders)
    if table.rows:
        print_whole(console, table, below=True)
    else:
        console.print("\nno container holds anything for itself")

    if holdings.shared_cpus is not None:
        console.print(f"\nshared pool: CPUs {holdings.shared_cpus}")

    told = [one for one in settings if not (one.is_default and "." in one.name)]
    if told:
        console.print()
        origins = ((one.name, one.value, one.origin) for one in told)
        print_whole(console, Table("setting", "value", "from", rows=origins))


# ---- export


@options.subcommand("export")
def export(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    form: str = options.choice(
        "A NodeResourceTopology object (JSON), or text for Prometheus.",
        ("nrt", "prometheus"),
        "--format",
        default="nrt",
    ),
    as_json: bool = options.flag("Print the object on one line.", "--json"),
) -> None:
    """Print a kubelet's node as a NodeResourceTopology object, or what is free and held as metrics.

    alignup node export --node node1.tar.xz
    alignup node export --format prometheus
    """
    if as_json and form == "prometheus":
        raise click.UsageError("--json goes with --format nrt")

    found = source.read()
    if form == "prometheus":
        from alignup.kubelet.node_metrics import prometheus_text

        click.echo(prometheus_text(found), nl=False)
        return

    from alignup.kubelet.node_resource_topology.write import kubelet_topology_object

    known = found.records.node_object.name if found.records.node_object else ""
    hostname = (
        found.records.configuration.kubelet.flags.hostname
        if found.records.configuration.kubelet
        else ""
    )
    bound = next((one.node_name for one in found.records.pods or () if one.node_name), "")
    name = source.node_name or known or hostname or bound or platform.node().lower()
    told = kubelet_topology_object(name, found)
    click.echo(json.dumps(told) if as_json else json.dumps(told, indent=1))


# ---- verify


@options.subcommand("verify", "0 all processes are placed as recorded; 1 one is not")
def verify(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    leases: bool = options.flag(
        "Verify the processes of leases (`alignup run`) and their children, not those of "
        "containers."
    ),
    is_self: bool = options.flag(
        "Verify the calling process: is it bound to one NUMA node, and are its devices there? "
        "Works inside a container "
        "without privileges. Status 2 also means that the answer is unknown.",
        "--self",
    ),
    state: Path | None = options.state,
    as_json: bool = options.json("finding"),
    pids: tuple[int, ...] = options.argument("[PID]...", nargs=-1, type=click.IntRange(1)),
) -> int:
    """Verify that running processes are placed as recorded: CPU affinity, memory, device files.

        alignup node verify
        alignup node verify --self

    It looks at all processes of the node's containers, or only at those that are named.
    """
    from alignup.kubelet.processes import all_processes
    from alignup.kubelet.verify import placements_of_kubelet, placements_of_leases, verify

    if is_self:
        return verify_self(Path(source.root), as_json=as_json)
    if not Path(source.root).is_dir():
        raise InputError.at(
            "--node", "the root of a machine, whose processes can be looked at", source.root
        )

    running = list(all_processes(Path(source.root)))
    if leases:
        from alignup.host.leases.file import LeaseFile

        placements = placements_of_leases(LeaseFile(state, complain).read().leases, running)
    else:
        placements = placements_of_kubelet(source.read(), running)

    found = verify(Path(source.root), placements, running, pids)
    for one in found:
        if as_json:
            print_json(json_fields(one))
        else:
            click.echo(one_line(f"{one.name}: {one.text}"))

    if not found and not as_json:
        checked = len(pids) or len(placements.keys() & {one.pid for one in running})
        click.echo(
            f"{checked} process{'' if checked == 1 else 'es'} checked: all are placed as recorded"
        )

    return 1 if found else 0


def verify_self(root: Path, *, as_json: bool) -> int:
    """Print what this process is bound to, and whether its devices are there; return the exit status."""
    from alignup.kubelet.verify import look_at_self

    found = look_at_self(root, os.environ)
    if as_json:
        print_json(found)
    else:
        click.echo(f"CPUs {found['cpus']}, NUMA nodes {nodes_text(found['numaNodes'])}")
        for one in found["devices"]:
            near = "unknown" if one["numaNode"] is None else one["numaNode"]
            click.echo(one_line(f"{one['address']} ({one['from']}): NUMA node {near}"))
        click.echo(found["text"])
    return {True: 0, False: 1, None: 2}[found["aligned"]]


# ---- publish


@options.subcommand("publish")
def publish(
    *,
    kubeconfig: str | None = options.kubeconfig,
    name: str = options.value(
        "The name of the Node object.  [default: $NODE_NAME]",
        envvar="NODE_NAME",
        required=True,
        metavar="NAME",
    ),
    root: str = options.file(
        "The root of the machine; in a container, where it is mounted.", default="/", metavar="DIR"
    ),
    interval: float = options.seconds("Look for changes this often.", default=1.0, least=0.05),
    config: str | None = options.file(
        "The kubelet's configuration, if it is not in the kubelet's folder and no running kubelet "
        "tells it."
    ),
    once: bool = options.flag("Publish once, and end."),
    no_events: bool = options.flag("Write no Events on rejected pods."),
    logs: options.Logs = options.all_of(options.Logs),
) -> None:
    """Publish for schedulers what this node's kubelet has allocated to which pods.

        alignup node publish --name node1

    It updates the NodeResourceTopology object of the node, with the annotations alignup.dev/node
    and alignup.dev/holdings, when the kubelet's state files change. It writes an Event on each pod
    that the kubelet rejects, with the cause and what would help. Runs until SIGTERM.

    `alignup extender` judges nodes that publish as exactly as their kubelets do.
    """
    need_extra("cluster")
    need_extra("kubelet")  # without PodResources there are no devices, and pods that are gone stay
    need_text("--name", name)
    from alignup.cli.cluster import run_in_cluster
    from alignup.control_plane.publishers.publish import publish_node, read_running
    from alignup.control_plane.serving import run_until_told

    read = partial(read_running, root, config)

    async def publish(api: Api) -> None:
        await run_until_told(
            publish_node(api, name, read, interval=interval, once=once, writes_events=not no_events)
        )

    run_in_cluster(kubeconfig, publish, logs)


# ---- check


@options.subcommand("check", "0 nothing is wrong; 1 there are findings")
def check(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    as_json: bool = options.json("finding"),
) -> int:
    """Check the state files of a kubelet against each other, the machine, the configuration and the pods.

        alignup node check
        alignup node check --node node1.tar.xz

    Each finding says what is wrong, what the kubelet does about it at its next start, and how to
    repair it. Nothing is written.
    """
    from alignup.kubelet.check import check_node
    from alignup.kubelet.layout import open_node

    files = open_node(source.root, source.kubelet_dir, source.node_name)
    found = check_node(files, source.how())
    if as_json:
        print_json(*map(json_fields, found))
        return 1 if found else 0
    if not found:
        click.echo("nothing is wrong with the kubelet's files")

    for number, one in enumerate(found):
        click.echo(nl=number > 0)
        click.echo(one_line(f"{one.file}: {one.text} ({one.kind})"))
        click.echo(one_line(f"  the next start: {one.effect}"))
        click.echo(one_line(f"  repair: {one.repair}"))

    return 1 if found else 0


# ---- restart


@options.subcommand("restart", "0 the kubelet starts, and every pod keeps what it holds; 1 not so")
def restart(
    *, source: KubeletSource = options.all_of(KubeletSource), as_json: bool = options.json()
) -> int:
    """Say what a restart of the kubelet does: whether it starts, which pods keep what they hold, which are refused.

        alignup node restart --kubelet-version 1.37
        alignup node restart --node node1.tar.xz --config new.yaml

    The restart uses the node's own configuration, release and machine, unless options give others:
    `--config` for a changed configuration, `--kubelet-version` for an upgrade, `--machine` for
    other CPUs or memory. Nothing is written.
    """
    from alignup.kubelet.check import foretell
    from alignup.kubelet.layout import open_node

    found = foretell(open_node(source.root, source.kubelet_dir, source.node_name), source.how())
    if as_json:
        print_json(found.to_dict())
    else:
        print_restart(found)

    return 0 if found.keeps_all else 1


def print_restart(found: Restart) -> None:
    """Print what the restart does for a person."""
    for fault in (*found.faults, *found.damaged):
        click.echo(one_line(f"{fault.effect}"))
        click.echo(one_line(f"  {fault.file}: {fault.text} ({fault.kind})"))
        click.echo(one_line(f"  repair: {fault.repair}"))

    if found.faults:
        return

    click.echo("the kubelet starts")
    if found.outcomes:
        table = Table("pod", "after the restart", "CPUs", "memory", "devices")
        for one in found.outcomes:
            table.add_row(*(safe(cell) for cell in row_of(one)))
        print_whole(make_console(), table)

    for one in found.outcomes:
        for line in lines_of(one):
            click.echo(one_line(line))


def row_of(one: Outcome) -> tuple[str, ...]:
    """Return the cells of a pod: what becomes of it, and what it holds then."""
    stays = (
        "stays, with devices forgotten"
        if one.forgotten
        else "stays"
        if one.keeps
        else "stays, on other resources"
    )
    verdict = stays if one.refusal is None else one.refusal.reason
    cells = [holding.cells() for holding in one.holds] or [("-", "-", "-")]
    return (
        one.pod.namespaced_name,
        verdict,
        *("\n".join(column) for column in zip(*cells, strict=True)),
    )


def lines_of(one: Outcome) -> Iterator[str]:
    """Yield why a pod is refused, and what it would get if it came again."""
    if one.refusal is None or one.again is None:
        return
    yield f"{one.pod.namespaced_name} is refused: {one.refusal.message}"
    if not one.again.admitted:
        yield f"  if it comes again, it is refused: {one.again.reason}"
        return
    got = [f"{name} CPUs {got.cpus}" for name, got in one.again.containers.items() if got.cpus]
    yield f"  if it comes again, it is admitted{': ' if got else ''}{', '.join(got)}"
