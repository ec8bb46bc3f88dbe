"""The machines that come with the package."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from alignup import read_machine
from alignup.machine import load
from alignup.machine.load import catalog_entries
from alignup.machine.machine import Machine
from alignup.machine.pci_devices import DISTANCES, PciTree


def test_names_are_those_the_documentation_uses():
    assert list(catalog_entries()) == [
        "align-up-article",
        "dgx-h100",
        "epyc-2s-nps4",
        "gb200",
        "xeon-2s",
    ]
    assert len(catalog_entries()) == 5


@pytest.mark.parametrize("name", list(catalog_entries()))
def test_an_entry_is_a_machine_with_devices_near_its_nodes(name):
    """And survives its JSON form."""
    entry = catalog_entries()[name]

    assert Machine.from_dict(entry.machine.to_dict()) == entry.machine == read_machine(name)
    assert entry.machine.distance_matrix
    ids = [device.id for devices in entry.devices.values() for device in devices]
    assert len(ids) == len(set(ids))
    for devices in entry.devices.values():
        for device in devices:
            assert set(device.numa_nodes) <= set(entry.machine.numa_node_ids)


def test_the_article():
    """Figure 1: two sockets of four CPUs, a GPU and a NIC each."""
    entry = catalog_entries()["align-up-article"]

    assert entry.machine.node_cpus == (0x0F, 0xF0)
    assert entry.machine.sockets == (0, 1)
    assert [[device.id for device in devices] for devices in entry.devices.values()] == [
        ["gpu0", "gpu1"],
        ["nic0", "nic1"],
    ]


@pytest.mark.parametrize(
    ("name", "nodes", "cores", "cpus", "sockets"),
    [
        ("xeon-2s", 2, 64, 128, 2),
        ("epyc-2s-nps4", 8, 128, 256, 2),
        ("dgx-h100", 2, 112, 224, 2),
        ("gb200", 34, 144, 144, 2),
    ],
)
def test_shapes(name, nodes, cores, cpus, sockets):
    machine = read_machine(name)

    assert (len(machine.numa_nodes), machine.core_count, machine.cpu_count) == (nodes, cores, cpus)
    assert len(machine.sockets) == sockets


@pytest.mark.parametrize(
    ("name", "paired", "near"), [("dgx-h100", "PXB", "NODE"), ("gb200", "NODE", "NODE")]
)
def test_where_gpus_and_adapters_are_in_the_published_trees(name, paired, near):
    """A DGX H100's GPUs have an adapter each.

    A GB200's GPUs and adapters have roots of their own.
    """
    entry = catalog_entries()[name]
    tree = PciTree(entry.machine)
    gpus = entry.devices["nvidia.com/gpu"]
    nics = entry.devices["example.com/nic"]

    for (i, gpu), (j, nic) in itertools.product(enumerate(gpus), enumerate(nics)):
        expected = "SYS"
        if i == j:
            expected = paired
        elif gpu.numa_nodes == nic.numa_nodes:
            expected = near

        assert DISTANCES[tree.between(gpu, nic)] == expected
        assert tree.above(gpu.pci)[-1].startswith("pci")


@pytest.mark.parametrize(("name", "near"), [("xeon-2s", {(0, 1), (2, 3)}), ("epyc-2s-nps4", set())])
def test_where_adapters_are_in_the_published_trees(name, near):
    """Ports of one card are below one root port.

    Each other adapter is below the root of its NUMA node.
    """
    entry = catalog_entries()[name]
    tree = PciTree(entry.machine)
    nics = entry.devices["example.com/nic"]

    for (i, nic), (j, neighbour) in itertools.combinations(enumerate(nics), 2):
        expected = "SYS"
        if (i, j) in near:
            expected = "PIX"
        assert DISTANCES[tree.between(nic, neighbour)] == expected

    numa_nodes = {device.address: device.numa_node for device in entry.machine.pci_devices}
    assert all(
        (numa_nodes[nic.pci],) == nic.numa_nodes == (numa_nodes[tree.above(nic.pci)[0]],)
        for nic in nics
    )


@pytest.mark.parametrize("name", list(catalog_entries()))
def test_each_entry_names_who_published_its_pcie_tree_or_that_nobody_has(name):
    """And devices are in the tree if there is one."""
    sources = json.loads(
        (Path(load.__file__).parent / "catalog_data" / f"{name}.json").read_bytes()
    )["pcieTree"]
    entry = catalog_entries()[name]
    is_known = PciTree(entry.machine).is_known

    assert is_known != sources[0].startswith("None is published: ")
    addresses = {device.address for device in entry.machine.pci_devices}
    for device in itertools.chain.from_iterable(entry.devices.values()):
        assert (device.pci in addresses) == is_known


def test_unknown_names_are_not_there():
    """As in any mapping."""
    assert "missing" not in catalog_entries()
    assert catalog_entries().get("missing") is None
    with pytest.raises(KeyError, match="missing"):
        catalog_entries()["missing"]
