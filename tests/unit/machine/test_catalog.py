"""The machines that come with the package."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from alignup import read_machine
from alignup.machine import load as catalog
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
    ("name", "own", "near"), [("dgx-h100", "PXB", "NODE"), ("gb200", "NODE", "NODE")]
)
def test_where_gpus_and_adapters_are_in_the_published_trees(name, own, near):
    """A DGX H100's GPUs have an adapter each.

    A GB200's GPUs and adapters have roots of their own.
    """
    entry = catalog_entries()[name]
    tree, gpus, nics = (
        PciTree(entry.machine),
        *(entry.devices[key] for key in ("nvidia.com/gpu", "example.com/nic")),
    )

    for (i, gpu), (j, nic) in itertools.product(enumerate(gpus), enumerate(nics)):
        expected = own if i == j else near if gpu.numa_nodes == nic.numa_nodes else "SYS"
        assert DISTANCES[tree.between(gpu, nic)] == expected
        assert tree.above(gpu.pci)[-1].startswith("pci")


@pytest.mark.parametrize(("name", "near"), [("xeon-2s", {(0, 1), (2, 3)}), ("epyc-2s-nps4", set())])
def test_where_adapters_are_in_the_published_trees(name, near):
    """Ports of one card are below one root port.

    Each other adapter is below the root of its NUMA node.
    """
    entry = catalog_entries()[name]
    tree, nics = PciTree(entry.machine), entry.devices["example.com/nic"]

    for (i, one), (j, other) in itertools.combinations(enumerate(nics), 2):
        assert DISTANCES[tree.between(one, other)] == ("PIX" if (i, j) in near else "SYS")
    numa_nodes = {device.address: device.numa_node for device in entry.machine.pci_devices}
    assert all(
        (numa_nodes[one.pci],) == one.numa_nodes == (numa_nodes[tree.above(one.pci)[0]],)
        for one in nics
    )


@pytest.mark.parametrize("name", list(catalog_entries()))
def test_each_entry_names_who_published_its_pcie_tree_or_that_nobody_has(name):
    """And devices are in the tree if there is one."""
    sources = json.loads(
        (Path(catalog.__file__).parent / "catalog_data" / f"{name}.json").read_bytes()
    )["pcieTree"]
    entry = catalog_entries()[name]
    known = PciTree(entry.machine).is_known

    assert known != sources[0].startswith("None is published: ")
    addresses = {device.address for device in entry.machine.pci_devices}
    for device in itertools.chain.from_iterable(entry.devices.values()):
        assert (device.pci in addresses) == known


def test_unknown_names_are_not_there():
    """As in any mapping."""
    assert "missing" not in catalog_entries()
    assert catalog_entries().get("missing") is None
    with pytest.raises(KeyError, match="missing"):
        catalog_entries()["missing"]
