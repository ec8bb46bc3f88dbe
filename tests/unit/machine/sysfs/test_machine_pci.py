"""PCI devices and the node each is near."""

from __future__ import annotations

import pytest

from alignup.machine.machine import PciDevice
from alignup.machine.sysfs.machine import pci_devices
from alignup.machine.sysfs.tree import MemoryTree
from inputs.kernel_trees import pci

ADDRESS = "0000:17:00.0"


def devices_of(files, ids=(0, 8), node_cpus=(0b0011, 0b1100)):
    return pci_devices(MemoryTree("test", files), ids, node_cpus)


def test_a_device_says_what_it_is():
    """Numbers in hex without the prefix, the class without the programming interface."""
    assert devices_of(pci(ADDRESS, numa_node=8)) == (PciDevice(ADDRESS, "0302", "10de", "2330", 8),)


@pytest.mark.parametrize(
    ("files", "node"),
    [
        ({"numa_node": "0"}, 0),
        ({"numa_node": "-1", "local_cpus": "c"}, 8),
        ({"local_cpulist": "3"}, 8),
        ({"local_cpus": "00000000,00000003", "local_cpulist": "2-3"}, 0),
        ({"numa_node": "-1", "local_cpus": "f"}, None),
        ({"numa_node": "-1", "local_cpus": "0"}, None),
        ({"numa_node": "5"}, None),
        ({}, None),
    ],
)
def test_the_node_is_the_one_named_or_the_one_of_the_local_cpus(files, node):
    """A device near the CPUs of several nodes is near none in particular."""
    assert devices_of(pci(ADDRESS, **files))[0].numa_node == node


def test_on_a_machine_of_one_node_local_cpus_say_nothing():
    assert devices_of(pci(ADDRESS, local_cpus="3"), (0,), (3,))[0].numa_node is None


def test_domains_can_have_more_than_four_digits():
    """And sort after those that have four."""
    files = pci("10000:00:02.0") | pci("0001:00:00.0") | pci("0000:ff:1f.7")

    assert [device.address for device in devices_of(files)] == [
        "0000:ff:1f.7",
        "0001:00:00.0",
        "10000:00:02.0",
    ]


def test_entries_that_cannot_be_read_are_left_out():
    """And numbers that are missing are 0."""
    files = {
        "sys/bus/pci/devices/0000:00:00.0/config": "",
        "sys/bus/pci/devices/new_id/class": "0x030000",
    }
    files["sys/bus/pci/devices/0000:00:01.0/class"] = "0x030000\n"

    assert devices_of(files) == (PciDevice("0000:00:01.0", "0300", "0000", "0000", None),)


def test_bridges_say_which_buses_are_behind_them() -> None:
    """Only bridges; a range that firmware did not set up is none."""
    buses = {"secondary_bus_number": 1, "subordinate_bus_number": 9}
    for class_, numbers, expected in (("0x060400", buses, (1, 9)), ("0x030200", buses, None)):
        assert devices_of(pci(ADDRESS, class_, **numbers))[0].buses == expected
    for strange in ({"secondary_bus_number": 0}, {"secondary_bus_number": 12}, {}):
        numbers = {}
        if strange:
            numbers = {**buses, **strange}
        files = pci(ADDRESS, "0x060400", **numbers)
        assert devices_of(files)[0].buses is None


@pytest.mark.parametrize(
    ("speed", "lanes", "link"),
    [
        ("2.5 GT/s PCIe", 1, 0.25),
        ("8.0 GT/s PCIe", 16, 15.75),
        ("32.0 GT/s PCIe", 16, 63.02),
        ("64.0 GT/s PCIe", 4, 30.25),
        ("Unknown", 16, None),
        ("16.0 GT/s PCIe", 0, None),
        ("16.0 GT/s PCIe", "", None),
    ],
)
def test_a_link_is_as_fast_as_its_lanes_less_the_encoding(speed, lanes, link) -> None:
    """As hwloc counts."""
    assert (
        devices_of(pci(ADDRESS, current_link_speed=speed, current_link_width=lanes))[0].link == link
    )


@pytest.mark.parametrize(
    ("device", "mode", "partitions"),
    [
        ("0x74a0", "SPX\n", 1),
        ("0x74a0", "TPX", 3),
        ("0x74a0", "CPX", 6),
        ("0x74a1", "DPX", 2),
        ("0x74a1", "QPX", 4),
        ("0x74a1", "CPX", 8),
        ("0x74a2", "CPX", 4),
        ("0x74a1", "UNKNOWN", None),
        ("0x74a1", "", None),
    ],
)
def test_amd_s_driver_says_how_a_gpu_is_cut(device, mode, partitions) -> None:
    """The MI300A has six compute dies, the MI308X four, others eight."""
    files = pci(ADDRESS, "0x120000", "0x1002", device, current_compute_partition=mode)
    assert devices_of(files)[0].partitions == partitions
