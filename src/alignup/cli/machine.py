"""`alignup machine`: shows a machine as tables, as JSON or as a picture.

It also packs the kernel files of a machine into an archive. Tables show equal things once: nodes
without CPUs that have the same memory, devices of one kind near one node, and distances by value
where a matrix would be wider than the terminal.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.inputs import Pictures
from alignup.cli.terminal import (
    Table,
    can_write,
    make_console,
    nodes_text,
    print_json,
    print_whole,
    runs,
    safe,
)
from alignup.errors import InputError
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import HERE, catalog_entries
from alignup.machine.machine import Machine, NumaNode, PciDevice, summary
from alignup.machine.pci_devices import DISTANCES, PciTree, kind_of, pci_kinds, vendor_of
from alignup.text.counting import counted, short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.cli.terminal import Console
    from alignup.machine.device_inventory import Device, LoadedMachine

UNKNOWN_VENDOR: Final = "0000"
LONG_LIST: Final = 20

# Columns of the terminal that a column of the matrix of distances takes.
MATRIX_CELL: Final = 5

# Columns of the terminal, or of a file's line, beyond which that matrix is too wide to read.
WIDEST_MATRIX: Final = 120

LEGEND: Final = (
    "\nX: itself; PIX: one switch at most; PXB: several bridges of one root; PHB: one host bridge "
    "(root); NODE: one NUMA node;\nSYS: the links between NUMA nodes"
)


@options.subcommand("machine")
def command(
    *,
    machine: str = options.machine,
    kubelet_node: str | None = options.kubelet_node,
    root: str | None = options.value(
        "The root of a sysfs tree; the same as --machine DIR.", metavar="DIR"
    ),
    as_json: bool = options.flag(
        "Print one JSON object, which --machine reads, and nothing else.", "--json"
    ),
    snapshot: str | None = options.value(
        "Pack the kernel files that describe the machine: .tar.xz, .tar.gz or .tgz.", metavar="FILE"
    ),
    pictures: Pictures = options.all_of(Pictures),
    selectors: tuple[str, ...] = options.selectors,
    nvidia: bool = options.flag("Ask NVIDIA's driver on this machine for its GPUs."),
    near_cpus: bool = options.near_cpus,
    node_name: str | None = options.value("Which node, if an archive has several.", metavar="NAME"),
    distances: bool = options.flag(
        "Show how far GPUs, accelerators, network adapters and devices of --device-resource are "
        "apart, like `nvidia-smi topo -m`."
    ),
) -> None:
    """Show a machine at a glance: NUMA nodes, CPUs, memory, devices and distances.

        alignup machine
        alignup machine --machine dgx-h100 --svg dgx.svg

    A picture shows sockets, NUMA nodes, L3 caches, cores, CPUs, memory, and devices beside their
    nodes.

    With --json, the keys `devices`, `preferredSets` and `kubelet` hold what came with the machine,
    and the devices that an option asked for. A snapshot holds no host names, serial numbers or MAC
    addresses.
    """
    from alignup.machine.load import load_with_devices
    from alignup.machine.sysfs.machine import read_sysfs

    if sum((root is not None, machine != HERE, kubelet_node is not None)) > 1:
        raise click.UsageError("--root, --machine and --node exclude each other")

    source = (kubelet_node or machine) if root is None else root
    if nvidia and (root is not None or source != HERE):
        raise InputError.at(
            "--nvidia", "this machine, the only one whose driver can be asked", source
        )

    machine_source: str | Machine | LoadedMachine = machine
    if root is not None:
        machine_source = read_sysfs(root)
    if kubelet_node is not None:
        machine_source = machine_with_kubelet(kubelet_node, node_name)

    loaded = load_with_devices(
        machine_source,
        selectors=selectors,
        nvidia="always" if nvidia else "never",
        near_cpus=near_cpus,
        node_name=node_name,
    )
    title = "this machine" if source == HERE else source
    if snapshot is not None:
        pack(source, snapshot)

    if pictures:
        from alignup.pictures.picture import Scene

        pictures.draw(Scene(title, loaded.machine, loaded.devices))

    if pictures.take_the_output:
        return
    if distances:
        show_distances(title, loaded, as_json=as_json)
    elif as_json:
        print_json(loaded.to_dict())
    else:
        show_machine(title, loaded)


def machine_with_kubelet(root: str, node_name: str | None) -> LoadedMachine:
    """Return the machine of a kubelet's node, with its devices and its configuration.

    Raises:
        InputError: a file is damaged, or there is none of a kubelet.
    """
    from alignup.kubelet.read import read_kubelet
    from alignup.machine.device_inventory import LoadedMachine

    kubelet_node = read_kubelet(root, node_name=node_name)
    node = kubelet_node.node
    devices = {resource: pool.reported for resource, pool in node.pools.items()}
    fields = kubelet_node.records.configuration.fields
    return LoadedMachine(node.machine, devices, kubelet=fields)


def pack(source: str, target: str) -> None:
    """Write the snapshot of a sysfs tree.

    Raises:
        InputError: the machine does not come from such a tree, or the snapshot cannot be written.
    """
    from alignup.machine.archive import take_snapshot

    if not Path(source).is_dir():
        raise InputError.at("--snapshot", "a machine that is read from sysfs", source)
    complain(f"packed {take_snapshot(source, target)} kernel files of {source} into {target}")


def show_machine(title: str, loaded: LoadedMachine) -> None:
    """Print a machine and its devices on standard output, under a title."""
    machine = loaded.machine
    console = make_console()
    console.print(f"[bold]{safe(title)}[/]: {summary(machine)}\n")
    tables = [nodes_table(machine)]
    if any(kind_of(device) for device in machine.pci_devices):
        tables.append(pci_table(machine))

    if loaded.devices:
        tables.append(resources_table(loaded.devices))

    if machine.distance_matrix and len(machine.numa_nodes) > 1:
        matrix_width = (len(machine.numa_nodes) + 2) * MATRIX_CELL
        if matrix_width <= min(console.width, WIDEST_MATRIX):
            tables.append(distance_matrix(machine))
        else:
            tables.append(distances_by_value(machine))

    for number, table in enumerate(tables):
        print_whole(console, table, below=number > 0)

    for line in pci_lines(console, machine):
        console.print(line)

    for note in notes(loaded):
        console.print(f"\n{safe(note)}")


def listed(numbers: CPUSet) -> str:
    """Return numbers as ranges; a long list gets spaces, so that lines break between ranges."""
    text = str(numbers)
    if len(text) > LONG_LIST:
        text = text.replace(",", ", ")

    return text


def nodes_table(machine: Machine) -> Table:
    """Return the table of NUMA nodes.

    Those in a row that have no CPUs and equal memory share a line.
    """
    headings = ("NUMA node", "socket", "cores", "CPUs", "CPU numbers", "memory", "hugepages")
    table = Table(*headings, numbers=("cores", "CPUs", "memory"))
    for nodes in runs(machine.numa_nodes, only_equal_memory):
        node = nodes[0]
        cpus = CPUSet(cpu for core in node.cores for cpu in core.cpus)
        sockets = CPUSet({core.socket for core in node.cores})
        memory = short_bytes(node.memory) if node.memory else ""
        if memory and len(nodes) > 1:
            memory += " each"

        cells = (
            str(sockets),
            str(len(node.cores) or ""),
            str(len(cpus) or ""),
            listed(cpus),
            memory,
            "\n".join(f"{pages.count} x {pages.size}" for pages in node.hugepages if pages.count),
        )
        ids = CPUSet(node.id for node in nodes)
        table.add_row(f"[bold]{ids}[/]", *(cell or "-" for cell in cells))

    return table


def only_equal_memory(first: NumaNode, second: NumaNode) -> bool:
    """Return whether two nodes have no CPUs, and equal memory."""
    if first.cores or second.cores or first.memory != second.memory:
        return False

    first_pages, second_pages = (
        [pages for pages in node.hugepages if pages.count] for node in (first, second)
    )
    return first_pages == second_pages


def pci_table(machine: Machine) -> Table:
    """Return the table of GPUs, accelerators, network adapters and NVMe disks.

    It has a line for those that are alike near one node.
    """
    groups: dict[tuple[int, str, int, str], list[str]] = {}
    kinds = pci_kinds()
    for device in machine.pci_devices:
        kind = kind_of(device)
        if kind is not None:
            numa_node = -1 if device.numa_node is None else device.numa_node
            model = f"{device.vendor}:{device.device}"
            key = (kinds.index(kind), model, numa_node, device.vendor)
            groups.setdefault(key, []).append(device.address)

    rows = []
    for (kind_index, model, numa_node, vendor), addresses in sorted(groups.items()):
        name = "-"
        if vendor != UNKNOWN_VENDOR:
            name = f"{vendor_of(vendor)} {model}".strip()

        numa_nodes = nodes_text(None if numa_node < 0 else (numa_node,))
        count = str(len(addresses))
        rows.append((kinds[kind_index], name, numa_nodes, count, " ".join(addresses)))

    headings = ("PCI device", "model", "NUMA node", "count", "addresses")
    return Table(*headings, numbers=("count",), rows=rows)


def pci_lines(console: Console, machine: Machine) -> Iterator[str]:
    """Yield the tree of PCI devices that placement depends on.

    Bridges that lead to one thing only are left out.
    """
    tree = PciTree(machine)
    if not tree.is_known:
        return

    devices = {device.address: device for device in machine.pci_devices}
    middle, end, down = "|- ", "`- ", "|  "
    if can_write(console, "├└│─"):
        middle, end, down = "├─ ", "└─ ", "│  "

    def lines(branches: dict[str, Any], indent: str) -> Iterator[str]:
        for number, (name, below) in enumerate(branches.items(), 1):
            while len(below) == 1 and name in devices:
                [(name, below)] = below.items()  # noqa: PLW2901  # what is below takes its place

            text = f"switch {name}" if below else pci_words(devices[name])
            if number < len(branches):
                yield safe(f"{indent}{middle}{text}")
                yield from lines(below, indent + down)
            else:
                yield safe(f"{indent}{end}{text}")
                yield from lines(below, indent + "   ")

    yield ""
    for root, below in _pci_branches(machine, tree).items():
        yield safe(root)
        yield from lines(below, "")


def _pci_branches(machine: Machine, tree: PciTree) -> dict[str, Any]:
    """Return the roots that PCI devices are below: by name what is below each, down to devices."""
    roots: dict[str, Any] = {}
    for device in machine.pci_devices:
        if kind_of(device) is not None:
            branch = roots
            for name in (*reversed(tree.above(device.address)), device.address):
                branch = branch.setdefault(name, {})

    return roots


def pci_words(device: PciDevice) -> str:
    """Return a device in a few words."""
    model = f"{vendor_of(device.vendor)} {device.vendor}:{device.device}".strip()
    text = f"{device.address} {kind_of(device)} {model}"
    if device.numa_node is not None:
        text += f", NUMA node {device.numa_node}"
    if device.link:
        text += f", {device.link:g} GB/s"

    return text


def show_distances(title: str, loaded: LoadedMachine, *, as_json: bool) -> None:
    """Print how far PCI devices are apart, and which CPUs and NUMA node each is near.

    Say so where no tree is known.
    """
    machine = loaded.machine
    tree = PciTree(machine)
    if as_json:
        print_json({"devices": list(distance_rows(loaded, tree))})

    if not tree.is_known and title in catalog_entries():
        complain(f"no PCIe tree is published for {title}")
    elif not tree.is_known:
        complain(f"no PCIe tree is known of {title}")

    if as_json:
        return

    rows = []
    for number, row in enumerate(distance_rows(loaded, tree)):
        numa_nodes = None if row["numaNode"] is None else [row["numaNode"]]
        rows.append(
            (
                str(number),
                *row["distances"],
                row["address"],
                row["kind"] or "-",
                row["cpus"] or "-",
                nodes_text(numa_nodes),
            )
        )

    if rows:
        numbers = map(str, range(len(rows)))
        table = Table("", *numbers, "device", "kind", "CPUs", "NUMA node", rows=rows)
        print_whole(make_console(), table)
        click.echo(LEGEND)


def distance_rows(loaded: LoadedMachine, tree: PciTree) -> Iterator[dict[str, Any]]:
    """Yield in JSON's types what each PCI device is near, and how far it is from all others."""
    machine = loaded.machine
    resource_ids = {
        device.pci or device.id for devices in loaded.devices.values() for device in devices
    }
    devices = [
        device
        for device in machine.pci_devices
        if device.address in resource_ids or device.class_.startswith(("03", "12", "02"))
    ]
    cpus = {
        numa_id: str(CPUSet.from_int(bits))
        for numa_id, bits in zip(machine.numa_node_ids, machine.node_cpus, strict=True)
    }

    for device in devices:
        distances = [tree.distance(device.address, peer.address) for peer in devices]
        yield {
            "address": device.address,
            "kind": kind_of(device),
            "numaNode": device.numa_node,
            "cpus": None if device.numa_node is None else cpus.get(device.numa_node),
            "distances": [DISTANCES[distance] for distance in distances],
        }


def resources_table(inventory: Mapping[str, Sequence[Device]]) -> Table:
    """Return the table of the devices of each resource, by the NUMA nodes that they are near."""
    rows = []
    for resource, devices in sorted(inventory.items()):
        groups: dict[tuple[int, ...], list[str]] = {}
        for device in devices:
            groups.setdefault(device.numa_nodes or (), []).append(device.id)

        for numa_nodes, ids in sorted(groups.items()):
            rows.append((resource, nodes_text(numa_nodes or None), str(len(ids)), " ".join(ids)))

    return Table("resource", "NUMA node", "count", "devices", numbers=("count",), rows=rows)


def distance_matrix(machine: Machine) -> Table:
    """Return the distances as rows and columns."""
    ids = [str(numa_id) for numa_id in machine.numa_node_ids]
    table = Table("distance", *ids, numbers=tuple(ids))
    for node in machine.numa_nodes:
        table.add_row(f"[bold]{node.id}[/]", *map(str, node.distances))

    return table


def distances_by_value(machine: Machine) -> Table:
    """Return the distances the other way round: which nodes are how far from each.

    Nodes in a row that stand alike to all others share a line, which names the others among them
    too.
    """
    rows = machine.distance_matrix or ()
    values = sorted({value for i, row in enumerate(rows) for j, value in enumerate(row) if i != j})
    table = Table("distance", *map(str, values))
    for run in runs_of_alike(rows):
        cells = []
        for value in values:
            positions = {
                j for i in run for j, distance in enumerate(rows[i]) if j != i and distance == value
            }
            cells.append(listed(CPUSet(machine.numa_node_ids[j] for j in positions)))

        table.add_row(f"[bold]{CPUSet(machine.numa_node_ids[i] for i in run)}[/]", *cells)

    return table


def runs_of_alike(rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Return positions in order, those in a row together that are alike.

    Two are alike if they could change places without changing a distance.
    """
    return runs(range(len(rows)), partial(_alike, rows))


def _alike(rows: Sequence[Sequence[int]], i: int, j: int) -> bool:
    if rows[i][i] != rows[j][j] or rows[i][j] != rows[j][i]:
        return False
    return all(
        rows[i][k] == rows[j][k] and rows[k][i] == rows[k][j]
        for k in range(len(rows))
        if k not in {i, j}
    )


def _ids_by_memory_kind(machine: Machine) -> dict[str, list[int]]:
    """Return the NUMA nodes with memory of each kind that is told and is no ordinary one."""
    ids: dict[str, list[int]] = {}
    for node in machine.numa_nodes:
        if node.memory_kind not in {"", "dram"}:
            ids.setdefault(node.memory_kind, []).append(node.id)

    return ids


def notes(loaded: LoadedMachine) -> Iterator[str]:
    """Yield what is unusual about the machine, and what goes together, in a sentence each."""
    machine = loaded.machine
    if machine.offline_cpus:
        yield f"offline: CPUs {CPUSet(machine.offline_cpus)}"

    if machine.unassigned_cores:
        cpus = CPUSet(cpu for core in machine.unassigned_cores for cpu in core.cpus)
        yield f"in no NUMA node, so nothing is placed on them: CPUs {cpus}"

    for parameter, isolated in (
        ("isolated (isolcpus)", machine.isolated_cpus),
        ("nohz_full", machine.nohz_full_cpus),
    ):
        if isolated:
            reason = "so nothing is placed on them without --isolated"
            yield f"{parameter}, {reason}: CPUs {CPUSet(isolated)}"

    for kind, ids in sorted(_ids_by_memory_kind(machine).items()):
        yield f"memory of kind {kind}: NUMA nodes {CPUSet(ids)}"

    if machine.overlapping_cpus:
        cpus = CPUSet.from_int(machine.overlapping_cpus)
        yield f"listed by several NUMA nodes, of which the first counts: CPUs {cpus}"

    for resource, sets in sorted(loaded.preferred_sets.items()):
        if sets:
            yield f"{resource}: {counted(len(sets), 'set')} of devices that go well together"
