"""Draws a machine for a person: its NUMA nodes, devices and distances, each as a small table.

Equal things are shown once: nodes without CPUs that have the same memory, devices of one kind near one node, and
distances by value where a matrix would be wider than the terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.cli.terminal import counted, make_console, make_table, nodes_text, print_whole, safe
from alignup.machine.cpuset import CPUSet
from alignup.machine.pci_kinds import PCI_KINDS, VENDORS, kind_of
from alignup.machine.summary import summary
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.table import Table

    from alignup.machine.device_inventory import Device
    from alignup.machine.loaded import LoadedMachine
    from alignup.machine.machine import Machine
    from alignup.machine.numa_node import NumaNode

__all__ = ["show_machine"]

UNKNOWN_VENDOR: Final = "0000"

LONG_LIST: Final = 20

MATRIX_CELL: Final = 5
"""Columns of the terminal that a column of the matrix of distances takes."""
WIDEST_MATRIX: Final = 120
"""Columns of the terminal, or of a file's line, beyond which that matrix is too wide to read."""


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
        fits = (len(machine.numa_nodes) + 2) * MATRIX_CELL <= min(console.width, WIDEST_MATRIX)
        tables.append(distance_matrix(machine) if fits else distances_by_value(machine))
    for number, table in enumerate(tables):
        if number:
            console.print()
        print_whole(console, table)
    for note in notes(loaded):
        console.print(f"\n{safe(note)}")


def listed(numbers: CPUSet) -> str:
    """Return numbers as ranges; a long list gets spaces, so that lines break between ranges."""
    text = str(numbers)
    return text if len(text) <= LONG_LIST else text.replace(",", ", ")


def nodes_table(machine: Machine) -> Table:
    """Return the table of NUMA nodes; those in a row that have no CPUs and equal memory share a line."""
    table = make_table(
        "NUMA node",
        "socket",
        "cores",
        "CPUs",
        "CPU numbers",
        "memory",
        "hugepages",
        numbers=("cores", "CPUs", "memory"),
    )
    for nodes in runs_of_equal(machine.numa_nodes):
        node = nodes[0]
        each = " each" if len(nodes) > 1 and node.memory else ""
        cpus = CPUSet(cpu for core in node.cores for cpu in core.cpus)
        table.add_row(
            f"[bold]{CPUSet(node.id for node in nodes)}[/]",
            str(CPUSet({core.socket for core in node.cores})) or "-",
            str(len(node.cores) or "-"),
            str(len(cpus) or "-"),
            listed(cpus) or "-",
            short_bytes(node.memory) + each if node.memory else "-",
            "\n".join(f"{pages.count} x {pages.size}" for pages in node.hugepages if pages.count) or "-",
        )
    return table


def runs_of_equal(nodes: Iterable[NumaNode]) -> Iterator[list[NumaNode]]:
    """Yield the nodes one by one, but those without CPUs that follow each other and have equal memory together."""
    run: list[NumaNode] = []
    for node in nodes:
        alike = run and not node.cores and not run[0].cores and _memory(node) == _memory(run[0])
        if run and not alike:
            yield run
            run = []
        run.append(node)
    yield run


def _memory(node: NumaNode) -> object:
    return node.memory, [pages for pages in node.hugepages if pages.count]


def pci_table(machine: Machine) -> Table:
    """Return the table of GPUs, accelerators, network adapters and NVMe disks: a line for those alike near one node."""
    groups: dict[tuple[int, str, int, str], list[str]] = {}
    kinds = [kind for _, kind in PCI_KINDS]
    for device in machine.pci_devices:
        kind = kind_of(device)
        if kind is not None:
            near = -1 if device.numa_node is None else device.numa_node
            key = (kinds.index(kind), f"{device.vendor}:{device.device}", near, device.vendor)
            groups.setdefault(key, []).append(device.address)
    table = make_table("PCI device", "model", "NUMA node", "count", "addresses", numbers=("count",))
    for (kind_number, model, near, vendor), addresses in sorted(groups.items()):
        name = f"{VENDORS[vendor]} " if vendor in VENDORS else ""
        table.add_row(
            kinds[kind_number],
            "-" if vendor == UNKNOWN_VENDOR else safe(name + model),
            "any" if near < 0 else str(near),
            str(len(addresses)),
            safe(" ".join(addresses)),
        )
    return table


def resources_table(inventory: Mapping[str, Sequence[Device]]) -> Table:
    """Return the table of the devices of each resource, by the NUMA nodes that they are near."""
    table = make_table("resource", "NUMA node", "count", "devices", numbers=("count",))
    for resource, devices in sorted(inventory.items()):
        groups: dict[tuple[int, ...] | None, list[str]] = {}
        for device in devices:
            groups.setdefault(device.numa_nodes, []).append(device.id)
        for near, ids in sorted(groups.items(), key=lambda group: group[0] or ()):
            table.add_row(safe(resource), nodes_text(near or None), str(len(ids)), safe(" ".join(ids)))
    return table


def distance_matrix(machine: Machine) -> Table:
    """Return the distances as rows and columns."""
    ids = [str(numa_id) for numa_id in machine.numa_node_ids]
    table = make_table("distance", *ids, numbers=tuple(ids))
    for node in machine.numa_nodes:
        table.add_row(f"[bold]{node.id}[/]", *map(str, node.distances))
    return table


def distances_by_value(machine: Machine) -> Table:
    """Return the distances the other way round: which nodes are how far from each.

    Nodes in a row that stand alike to all others share a line, which names the others among them too.
    """
    rows = machine.distance_matrix or ()
    values = sorted({value for i, row in enumerate(rows) for j, value in enumerate(row) if i != j})
    table = make_table("distance", *map(str, values))
    for run in runs_of_alike(rows):
        cells = []
        for value in values:
            near = {j for i in run for j, found in enumerate(rows[i]) if j != i and found == value}
            cells.append(listed(CPUSet(machine.numa_node_ids[j] for j in near)))
        table.add_row(f"[bold]{CPUSet(machine.numa_node_ids[i] for i in run)}[/]", *cells)
    return table


def runs_of_alike(rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield positions in order, those in a row that could change places without changing a distance together."""
    run: list[int] = []
    for position in range(len(rows)):
        if run and not all(_alike(rows, other, position) for other in run):
            yield run
            run = []
        run.append(position)
    yield run


def _alike(rows: Sequence[Sequence[int]], one: int, other: int) -> bool:
    if rows[one][one] != rows[other][other] or rows[one][other] != rows[other][one]:
        return False
    return all(
        rows[one][third] == rows[other][third] and rows[third][one] == rows[third][other]
        for third in range(len(rows))
        if third not in {one, other}
    )


def notes(loaded: LoadedMachine) -> Iterator[str]:
    """Yield what is unusual about the machine, and what goes together, in a sentence each."""
    machine = loaded.machine
    if machine.offline_cpus:
        yield f"offline: CPUs {CPUSet(machine.offline_cpus)}"
    if machine.unassigned_cores:
        cpus = CPUSet(cpu for core in machine.unassigned_cores for cpu in core.cpus)
        yield f"in no NUMA node, so nothing is placed on them: CPUs {cpus}"
    if machine.overlapping_cpus:
        cpus = CPUSet.from_int(machine.overlapping_cpus)
        yield f"listed by several NUMA nodes, of which the first counts: CPUs {cpus}"
    for resource, sets in sorted(loaded.preferred_sets.items()):
        if sets:
            yield f"{resource}: {counted(len(sets), 'set')} of devices that go well together"
