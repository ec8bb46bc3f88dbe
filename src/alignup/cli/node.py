"""`alignup node`: reads, checks, publishes and packs the node that a kubelet runs.

It foretells the kubelet's restart, too. A subcommand is the function of its name.
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
    print_line,
    print_whole,
    safe,
)
from alignup.errors import InputError
from alignup.records import json_fields
from alignup.text.counting import counted
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from alignup.cli.terminal import Console
    from alignup.control_plane.api_server.api_client import Api
    from alignup.host.leases.record import LeaseRecord
    from alignup.kubelet.check import Outcome, Restart
    from alignup.kubelet.config import Setting
    from alignup.kubelet.read import KubeletNode
    from alignup.node import Node
    from alignup.node.holdings import Holdings, ResourceAmounts

# ---- collect


# The parts that are worth having, where they are in an archive, and what it costs where one is
# missing.
_WORTHWHILE_PARTS = {
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
    """Pack a kubelet's node into one archive: machine, configuration, state files and pods.

        alignup node collect node1.tar.xz --pods pods.json

    What the kubelet answers to PodResources is packed too. The archive has no environment
    variables, arguments or tokens of pods: only what `--node` reads is kept, such as the
    annotations by which a kubelet knows static pods. The checkpoint of devices is kept whole, with
    what device plugins told containers. Only the archive is written.
    """
    from alignup.kubelet.collect import collect
    from alignup.kubelet.layout import open_node

    if kubeconfig is not None and (pods is not None or node_name is None):
        raise click.UsageError("--kubeconfig needs --node-name, and excludes --pods")

    pod_list: Any = None
    if pods is not None:
        pod_list = decode_json(read_bytes(pods), "a List of Pods as JSON", pods)
        if not isinstance(pod_list, dict):
            raise InputError.at(pods, "a List of Pods", pod_list)

    node = claims = None
    if kubeconfig is not None and node_name is not None:
        need_extra("cluster")
        pod_list, node, claims = asyncio.run(ask_cluster(kubeconfig, node_name))

    files = collect(
        open_node(root, kubelet_dir), target, config=config, pods=pod_list, node=node, claims=claims
    )
    missing = [
        {"name": name, "path": path, "means": cost}
        for name, (path, cost) in _WORTHWHILE_PARTS.items()
        if not any(file.startswith(path) for file in files)
    ]
    if as_json:
        print_json({"archive": target, "files": list(files), "missing": missing})
        return

    complain(f"packed {counted(len(files), 'file')} into {target}")
    for part in missing:
        complain(f"missing from the archive: {part['name']} ({part['path']}); {part['means']}")


async def ask_cluster(kubeconfig: str, node_name: str) -> tuple[Any, Any, Any]:
    """Return the List of the pods of a node, the Node, and a List of objects of claims.

    These are the objects that matter on the node.

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
                plural = "es" if kind.endswith("s") else "s"
                type_fields = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
                path = f"{CLAIMS}/{kind.lower()}{plural}"
                items += [
                    decode_json(item, f"a {kind}") | type_fields
                    async for item in list_objects(api, path)
                ]
        except ApiError as error:
            complain(f"missing from the archive: claims (resources.json); {error}")
            items = []

    pod_list: object = decode_json(pods, "a List of Pods", "the API server")
    node_object: object = decode_json(node, "a Node", "the API server")
    claims = None
    if items:
        claims = {"items": of_node(items, node_name)}

    return pod_list, node_object, claims


def of_node(items: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the objects of claims that matter on a node.

    These are all without slices of other nodes, and without claims that have devices of these only.
    """
    from alignup.claims.read import resources_of

    resources = resources_of(items, "the API server")
    slices = list(resources.slices_near(name))
    slice_names = {device_slice.name for device_slice in slices}
    pools = {(device_slice.driver, device_slice.pool.name) for device_slice in slices}
    far_claims = set()
    for claim in resources.claims:
        claim_pools = {(device.driver, device.pool) for device in claim.allocated or ()}
        if claim_pools and pools.isdisjoint(claim_pools):
            far_claims.add((claim.namespace, claim.name))

    def matters(item: dict[str, Any]) -> bool:
        metadata = item["metadata"]
        if item["kind"] == "ResourceSlice":
            return metadata["name"] in slice_names
        if item["kind"] == "ResourceClaim":
            return (metadata.get("namespace", ""), metadata["name"]) not in far_claims
        return True

    return [item for item in items if matters(item)]


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
    """Show what a kubelet's NUMA nodes have, which container holds what, and settings in effect.

        alignup node show
        alignup node show --node node1.tar.xz --json

    Settings are policies, their options and feature gates, each with its origin: a file, a drop-in,
    the kubelet's flags or the release's default. --json also lists those that nothing sets.

    Pods that are gone but still in the state files are left out: the kubelet drops them at its next
    admission.
    """
    from alignup.kubelet.config import settings_of
    from alignup.node.holdings import holdings_of

    shown_holdings: Holdings | None = None
    settings: tuple[Setting, ...] = ()
    while True:
        if kubeconfig is None:
            kubelet_node = source.read()
            node = kubelet_node.node
            title = title_of(kubelet_node.records.files.source, node)
            settings = settings_of(kubelet_node.records.configuration, node.config)
        else:
            node = load_cluster_node(kubeconfig, source.node_name)
            title = title_of(str(source.node_name), node)

        holdings = holdings_of(node)
        if holdings != shown_holdings:
            if shown_holdings is not None and not as_json:
                click.echo()

            print_holdings(title, node, holdings, settings, pictures, as_json=as_json)
            shown_holdings = holdings

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
        fields = holdings.to_dict()
        if node.node_object is not None and node.node_object.unhealthy_devices:
            fields["unhealthyDevices"] = dict(node.node_object.unhealthy_devices)
        if settings:
            fields["settings"] = [
                {"name": setting.name, "value": setting.value, "from": setting.origin}
                for setting in settings
            ]

        print_json(fields)
        return

    console = make_console()
    console.print(safe(title))
    _print_amounts(console, holdings.resources)
    for sentence in unhealthy_notes(node, holdings.resources):
        console.print(safe(sentence))

    rows: list[tuple[str, ...]] = [
        (holding.pod, holding.container, *holding.cells())
        for holding in holdings.containers
        if holding
    ]
    table = Table("pod", "container", "CPUs", "memory", "devices", rows=rows)
    if table.rows:
        print_whole(console, table, below=True)
    else:
        console.print("\nno container holds anything for itself")

    if holdings.shared_cpus is not None:
        console.print(f"\nshared pool: CPUs {holdings.shared_cpus}")

    rows = [
        (setting.name, setting.value, setting.origin)
        for setting in settings
        if not (setting.is_default and "." in setting.name)
    ]
    if rows:
        print_whole(console, Table("setting", "value", "from", rows=rows), below=True)


def unhealthy_notes(node: Node, resources: Sequence[ResourceAmounts]) -> list[str]:
    """Return what the Node object tells of unhealthy devices that no file of the kubelet names.

    A kubelet writes down the devices that containers hold, and the healthy ones.
    """
    if node.node_object is None:
        return []

    named = {resource.resource: len(resource.unhealthy) for resource in resources}
    notes = []
    for name, count in sorted(node.node_object.unhealthy_devices.items()):
        unnamed = count - named.get(name, 0)
        if unnamed > 0:
            devices = counted(unnamed, "free device")
            notes.append(
                f"{name}: {devices} unhealthy by the Node object (no file of a kubelet tells which)"
            )

    return notes


def _print_amounts(console: Console, resources: Sequence[ResourceAmounts]) -> None:
    """Write a table of what there is of each resource in each place.

    It has a column of unhealthy devices where there are some.
    """
    headings = ["resource", "NUMA nodes", "allocatable", "held", "free"]
    has_unhealthy = any(resource.unhealthy for resource in resources)
    if has_unhealthy:
        headings.append("unhealthy")

    rows: list[tuple[str, ...]] = []
    for resource in resources:
        for place in resource.places:
            amounts = [
                amount_text(resource.resource, amount)
                for amount in (place.allocatable, place.held, place.free)
            ]
            if has_unhealthy:
                amounts.append(str(place.unavailable) if resource.devices else "-")
            rows.append((resource.resource, nodes_text(place.numa_nodes) or "-", *amounts))

    print_whole(console, Table(*headings, rows=rows), below=True)


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

    kubelet_node = source.read()
    if form == "prometheus":
        from alignup.kubelet.node_metrics import prometheus_text

        click.echo(prometheus_text(kubelet_node), nl=False)
        return

    from alignup.kubelet.node_resource_topology.write import kubelet_topology_object

    name = source.node_name or recorded_name(kubelet_node) or platform.node().lower()
    topology = kubelet_topology_object(name, kubelet_node)
    if as_json:
        print_json(topology)
    else:
        click.echo(json.dumps(topology, indent=1))


def recorded_name(kubelet_node: KubeletNode) -> str:
    """Return the name of a kubelet's node as its files tell it; empty: they do not."""
    records = kubelet_node.records
    if records.node_object and records.node_object.name:
        return records.node_object.name

    kubelet = records.configuration.kubelet
    if kubelet and kubelet.flags.hostname:
        return kubelet.flags.hostname

    for document in records.pods or ():
        if document.node_name:
            return document.node_name

    return ""


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
        "Works inside a container without privileges. Status 2 also means that the answer is "
        "unknown.",
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
        placements = placements_of_leases(visible_leases(state), running)
    else:
        placements = placements_of_kubelet(source.read(), running)

    findings = verify(Path(source.root), placements, running, pids)
    for finding in findings:
        if as_json:
            print_json(json_fields(finding))
        else:
            print_line(f"{finding.name}: {finding.text}")

    if not findings and not as_json:
        count = len(pids) or len(placements.keys() & {process.pid for process in running})
        noun = "process" if count == 1 else "processes"
        outcome = "all are placed as recorded"
        if count == 0:
            outcome = "none has a lease" if leases else "none is in a container of this node"
        click.echo(f"{count} {noun} checked: {outcome}")

    return 1 if findings else 0


def visible_leases(state: Path | None) -> list[LeaseRecord]:
    """Return the leases whose processes may run, of the agent or of the file.

    Those of other users, of which an agent tells no process, are counted in a complaint.

    Raises:
        InputError: whoever keeps the leases cannot be asked.
    """
    from alignup.host.leases.source import open_source
    from alignup.host.processes.identity import Liveness

    leases = [
        listed.lease
        for listed in open_source(state, complain).overview().leases
        if listed.state != Liveness.GONE.value
    ]
    visible = [lease for lease in leases if lease.process.pid]
    hidden_count = len(leases) - len(visible)
    if hidden_count:
        complain(f"{counted(hidden_count, 'lease')} of other users not checked: ask as root")

    return visible


def verify_self(root: Path, *, as_json: bool) -> int:
    """Print what this process is bound to, and whether its devices are there.

    Return the exit status.
    """
    from alignup.kubelet.verify import look_at_self

    placement = look_at_self(root, os.environ)
    if as_json:
        print_json(placement)
    else:
        click.echo(f"CPUs {placement['cpus']}, NUMA nodes {nodes_text(placement['numaNodes'])}")
        for device in placement["devices"]:
            numa_node = "unknown" if device["numaNode"] is None else device["numaNode"]
            text = f"{device['address']} ({device['from']}): NUMA node {numa_node}"
            print_line(text)

        print_line(placement["text"])

    return {True: 0, False: 1, None: 2}[placement["aligned"]]


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
    interval: float = options.seconds("Look for changes this often.", default=1.0, minimum=0.05),
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
    from alignup.control_plane.process import run_until_told
    from alignup.control_plane.publishers.publish import publish_node, read_running

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
    """Check a kubelet's state files against each other, its machine, its configuration and pods.

        alignup node check
        alignup node check --node node1.tar.xz

    Each finding says what is wrong, what the kubelet does about it at its next start, and how to
    repair it. Nothing is written.
    """
    from alignup.kubelet.check import check_node
    from alignup.kubelet.layout import open_node

    files = open_node(source.root, source.kubelet_dir, source.node_name)
    findings = check_node(files, source.how())
    if as_json:
        print_json(*map(json_fields, findings))
        return 1 if findings else 0
    if not findings:
        click.echo("nothing is wrong with the kubelet's files")

    for number, finding in enumerate(findings):
        click.echo(nl=number > 0)
        print_line(f"{finding.file}: {finding.text} ({finding.kind})")
        print_line(f"  the next start: {finding.effect}")
        print_line(f"  repair: {finding.repair}")

    return 1 if findings else 0


# ---- restart


@options.subcommand("restart", "0 the kubelet starts, and every pod keeps what it holds; 1 not so")
def restart(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    reboot: bool = options.flag("The machine is booted: no container runs, no device is there."),
    as_json: bool = options.json(),
) -> int:
    """Say what a restart of the kubelet does: if it starts, and which pods keep what they hold.

        alignup node restart --kubelet-version 1.37
        alignup node restart --node node1.tar.xz --config new.yaml
        alignup node restart --reboot

    The restart uses the node's own configuration, release and machine, unless options give others:
    `--config` for a changed configuration, `--kubelet-version` for an upgrade, `--machine` for
    other CPUs or memory. With `--reboot` the machine is booted first: no container runs any more,
    and pods with devices come before their device plugins; `--machine` is then the machine as it
    comes up. Pods that are refused are named. Nothing is written.
    """
    from alignup.kubelet.check import foretell
    from alignup.kubelet.layout import open_node

    files = open_node(source.root, source.kubelet_dir, source.node_name)
    forecast = foretell(files, source.how(), after_boot=reboot)
    if as_json:
        print_json(forecast.to_dict())
    else:
        print_restart(forecast)

    return 0 if forecast.keeps_all else 1


def print_restart(forecast: Restart) -> None:
    """Print what the restart does for a person."""
    from alignup.kubernetes.versions import PREVIEWS

    for fault in (*forecast.faults, *forecast.damaged):
        print_line(fault.effect)
        print_line(f"  {fault.file}: {fault.text} ({fault.kind})")
        print_line(f"  repair: {fault.repair}")

    if forecast.faults:
        return

    version = forecast.node.config.version if forecast.node else None
    if version is not None and version in PREVIEWS:
        click.echo(f"kubelet {version.title} starts")
    else:
        click.echo("the kubelet starts")

    if forecast.outcomes:
        event = "reboot" if forecast.after_boot else "restart"
        table = Table("pod", f"after the {event}", "CPUs", "memory", "devices")
        for outcome in forecast.outcomes:
            table.add_row(*(safe(cell) for cell in row_of(outcome)))

        print_whole(make_console(), table)

    for outcome in forecast.outcomes:
        for line in lines_of(outcome):
            print_line(line)

    for line in lines_of_boot(forecast):
        print_line(line)


def lines_of_boot(forecast: Restart) -> Iterator[str]:
    """Yield what to do about pods that came before their plugins, and what may come otherwise."""
    if forecast.awaited:
        yield f"{', '.join(forecast.awaited)}: {forecast.remedy}"

    if forecast.risks:
        yield "the machine may come up otherwise than it is now (--machine FILE: as it comes up):"

    for risk in forecast.risks:
        yield f"  {risk.text}: {risk.effect}"
        yield f"    {risk.file}: {risk.repair}"


def row_of(outcome: Outcome) -> tuple[str, ...]:
    """Return the cells of a pod: what becomes of it, and what it holds then."""
    if outcome.refusal is not None:
        verdict = outcome.refusal.reason
    elif outcome.moved:
        verdict = "stays, its CPUs elsewhere"
    elif outcome.forgotten:
        verdict = "stays, with devices forgotten"
    elif outcome.keeps:
        verdict = "stays"
    else:
        verdict = "stays, on other resources"

    rows = [holding.cells() for holding in outcome.holds] or [("-", "-", "-")]
    cells = ("\n".join(column) for column in zip(*rows, strict=True))
    return outcome.pod.namespaced_name, verdict, *cells


def lines_of(outcome: Outcome) -> Iterator[str]:
    """Yield why a pod is refused, and what it would get if it came again, or where it is now."""
    if outcome.moved:
        yield f"{outcome.pod.namespaced_name}: {outcome.moved}"

    if outcome.refusal is None or outcome.again is None:
        return

    yield f"{outcome.pod.namespaced_name} is refused: {outcome.refusal.message}"
    if not outcome.again.admitted:
        yield f"  if it comes again, it is refused: {outcome.again.reason}"
        return

    cpus = [
        f"{name} CPUs {allocation.cpus}"
        for name, allocation in outcome.again.containers.items()
        if allocation.cpus
    ]
    sentence = "  if it comes again, it is admitted"
    if cpus:
        sentence += f": {', '.join(cpus)}"

    yield sentence
