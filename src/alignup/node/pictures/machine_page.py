"""Makes the page of a machine: its picture, and tables of its NUMA nodes, devices and distances."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from alignup.machine.cpuset import CPUSet
from alignup.machine.summary import summary
from alignup.node.pictures.machine_picture import draw
from alignup.node.pictures.page import Table, heading, page, paragraph, scrolling
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from xml.etree.ElementTree import Element

    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine
    from alignup.node.pictures.machine_picture import Scene

__all__ = ["machine_page", "machine_tables"]


def machine_page(scene: Scene) -> str:
    """Return the page of a scene's machine as the text of an HTML file."""
    picture = scrolling(draw(replace(scene, is_headed=False)))
    tables = machine_tables(scene.machine, scene.devices)
    return page(scene.title, [paragraph(summary(scene.machine)), picture, *tables])


def machine_tables(machine: Machine, devices: Mapping[str, Sequence[Device]]) -> Iterator[Element]:
    """Yield the tables of a machine, with their headings."""
    yield heading("NUMA nodes")
    yield _nodes_table(machine).element()
    if devices:
        yield heading("Devices")
        yield _devices_table(devices).element()
    if machine.distance_matrix and len(machine.numa_nodes) > 1:
        yield heading("Distances")
        yield scrolling(_distances_table(machine).element())


def _nodes_table(machine: Machine) -> Table:
    columns = ("NUMA node", "socket", "cores", "CPUs", "CPU numbers", "memory", "hugepages")
    rows = []
    for node in machine.numa_nodes:
        cpus = CPUSet(cpu for core in node.cores for cpu in core.cpus)
        pages = ", ".join(f"{one.count} x {one.size}" for one in node.hugepages if one.count)
        sockets = CPUSet({core.socket for core in node.cores})
        rows.append(
            (
                str(node.id),
                str(sockets) or "-",
                str(len(node.cores)),
                str(len(cpus)),
                str(cpus).replace(",", ", ") or "-",
                short_bytes(node.memory),
                pages or "-",
            )
        )
    return Table(columns, rows, frozenset({"NUMA node", "cores", "CPUs", "memory"}))


def _devices_table(devices: Mapping[str, Sequence[Device]]) -> Table:
    rows = [
        (
            resource,
            one.id,
            "any" if not one.numa_nodes else ", ".join(map(str, one.numa_nodes)),
            "yes" if one.healthy else "no",
        )
        for resource, found in sorted(devices.items())
        for one in found
    ]
    return Table(("resource", "device", "NUMA nodes", "healthy"), rows)


def _distances_table(machine: Machine) -> Table:
    ids = [str(numa_id) for numa_id in machine.numa_node_ids]
    rows = [(str(node.id), *map(str, node.distances)) for node in machine.numa_nodes]
    return Table(("from \\ to", *ids), rows, frozenset(ids))
