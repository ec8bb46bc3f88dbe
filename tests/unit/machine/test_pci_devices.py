"""Device inventories made of PCI devices."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Core, Machine, NumaNode, PciDevice
from alignup.machine.pci_devices import (
    DISTANCES,
    PciSelector,
    PciTree,
    devices_from_pci,
    usual_selectors,
)
from alignup.records import replace

MACHINE = Machine(
    (NumaNode(0, 1, (Core((0,), 0),)), NumaNode(1, 1, (Core((1,), 1),))),
    pci_devices=(
        PciDevice("0000:10:00.0", "0302", "10de", "2330", 0),
        PciDevice("0000:11:00.0", "0302", "10de", "20b0", 1),
        PciDevice("0000:12:00.0", "0680", "10de", "22a3", None),
        PciDevice("0000:20:00.0", "0200", "15b3", "1021", None),
    ),
)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("x/y=10de:2330", ["0000:10:00.0"]),
        ("x/y=10DE:*", ["0000:10:00.0", "0000:11:00.0", "0000:12:00.0"]),
        ("x/y=class=0302", ["0000:10:00.0", "0000:11:00.0"]),
        ("x/y=class=02", ["0000:20:00.0"]),
        ("x/y=10de:*,class=03", ["0000:10:00.0", "0000:11:00.0"]),
        ("x/y=10de:2330,class=0302", ["0000:10:00.0"]),
    ],
)
def test_devices_are_chosen_by_vendor_and_device_or_by_class(text, addresses):
    """Numbers are in hex, in either case."""
    inventory = devices_from_pci(MACHINE, [PciSelector.parse(text)])

    assert [device.id for device in inventory["x/y"]] == addresses


def test_nvidias_gpus_are_its_display_controllers():
    """Its switches have its vendor id too; whoever says a class gets what it says."""
    for text, addresses in (
        ("nvidia.com/gpu=10de:*", ["0000:10:00.0", "0000:11:00.0"]),
        ("nvidia.com/gpu=10de:*,class=0680", ["0000:12:00.0"]),
    ):
        inventory = devices_from_pci(MACHINE, [PciSelector.parse(text)])
        assert [device.id for device in inventory["nvidia.com/gpu"]] == addresses


def test_numa_is_the_node_or_none():
    inventory = devices_from_pci(
        MACHINE, map(PciSelector.parse, ["a/gpu=class=0302", "a/nic=15b3:*"])
    )

    assert inventory == {
        "a/gpu": (Device("0000:10:00.0", (0,)), Device("0000:11:00.0", (1,))),
        "a/nic": (Device("0000:20:00.0", None),),
    }


def test_selectors_of_one_resource_add_up():
    """Without repeating a device."""
    inventory = devices_from_pci(
        MACHINE, map(PciSelector.parse, ["a/b=10de:*", "a/b=class=03", "a/b=15b3:1021"])
    )

    assert len(inventory["a/b"]) == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x=",
        "=10de:*",
        "x=10de",
        "x=10de:",
        "x=*:*",
        "x=10dex:*",
        "x=class=",
        "x=class=3",
        "x=class=0302:1",
        "x=,class=03",
        "x=10de:*,",
        "x=10de:*class=03",
        "x=class=03,10de:*",
        "a b=10de:*",
    ],
)
def test_a_selector_without_sense_is_refused(text):
    with pytest.raises(InputError, match="RESOURCE=VENDOR:DEVICE, RESOURCE=class=CLASS or"):
        PciSelector.parse(text)


@pytest.mark.parametrize(
    ("text", "criteria"),
    [
        ("x/y=dead:*", r"dead:\*"),
        ("x/y=class=12", "class 12"),
        ("x/y=10de:*,class=02", r"10de:\* and class 02"),
    ],
)
def test_a_selector_that_selects_nothing_is_refused(text, criteria):
    with pytest.raises(InputError, match=f"no PCI device matches {criteria} for x/y"):
        devices_from_pci(MACHINE, [PciSelector.parse(text)])


def test_a_device_in_two_resources_is_refused():
    """It would be given out twice."""
    with pytest.raises(InputError, match=r"0000:10:00\.0 in one resource, got 'a/a, a/b'"):
        devices_from_pci(MACHINE, map(PciSelector.parse, ["a/a=10de:*", "a/b=class=0302"]))


def bridge(address: str, first: int, last: int) -> PciDevice:
    return PciDevice(address, "0604", "1000", "c030", None, (first, last))


TREE = Machine(
    tuple(NumaNode(node, 1 << 30, (Core((node,), 0),)) for node in (0, 1)),
    pci_devices=(
        bridge("0000:00:01.0", 1, 9),  # a root port, a switch below it, and a switch below that
        bridge("0000:01:00.0", 2, 9),
        bridge("0000:02:00.0", 3, 3),
        bridge("0000:02:01.0", 4, 4),
        bridge("0000:02:02.0", 5, 9),
        bridge("0000:05:00.0", 6, 9),
        bridge("0000:06:00.0", 7, 7),
        *(PciDevice(f"0000:{bus:02x}:00.0", "0302", "10de", "2330", 0) for bus in (3, 4, 7)),
        PciDevice("0000:04:00.1", "0200", "15b3", "1021", 0),
        PciDevice("0000:00:1f.0", "0200", "15b3", "1021", 0),
        PciDevice("0000:80:00.0", "0200", "15b3", "1021", 0),
        PciDevice("0000:90:00.0", "0200", "15b3", "1021", 1),
        PciDevice("0001:03:00.0", "0200", "15b3", "1021", None),
    ),
)


@pytest.mark.parametrize(
    ("address", "distance"),
    [
        ("0000:03:00.0", "X"),
        ("0000:04:00.0", "PIX"),
        ("0000:04:00.1", "PIX"),
        ("0000:07:00.0", "PXB"),
        ("0000:00:1f.0", "PHB"),
        ("0000:80:00.0", "NODE"),
        ("0000:90:00.0", "SYS"),
        ("0001:03:00.0", "SYS"),
    ],
)
def test_devices_are_as_far_apart_as_the_bridges_between_them(address: str, distance: str) -> None:
    """From the device on bus 3; both ways."""
    tree = PciTree(TREE)
    assert DISTANCES[tree.distance("0000:03:00.0", address)] == distance
    assert DISTANCES[tree.distance(address, "0000:03:00.0")] == distance


def test_the_bridges_above_a_device_end_in_its_root() -> None:
    assert PciTree(TREE).above("0000:04:00.0") == (
        "0000:02:01.0",
        "0000:01:00.0",
        "0000:00:01.0",
        "pci0000:00",
    )


def test_a_tree_survives_json_and_says_so() -> None:
    again = Machine.from_dict(TREE.to_dict())
    assert (again, PciTree(again).is_known) == (TREE, True)
    assert not PciTree(MACHINE).is_known
    assert DISTANCES[PciTree(MACHINE).distance("0000:10:00.0", "0000:11:00.0")] == "SYS"


def test_devices_of_resources_are_found_by_address_id_or_node() -> None:
    tree = PciTree(TREE)
    gpu = Device("GPU-1", (0,), pci="0000:03:00.0")
    assert DISTANCES[tree.between(gpu, Device("0000:04:00.0", (0,)))] == "PIX"
    assert [DISTANCES[tree.between(gpu, Device("nic", nodes))] for nodes in ((0,), (1,), None)] == [
        "NODE",
        "SYS",
        "SYS",
    ]


def test_partitions_are_devices_near_the_node_of_the_whole():
    """As ROCm numbers those of an MI300A in CPX; a GPU in SPX is one device."""
    gpus = tuple(
        PciDevice(f"0000:0{number}:00.0", "1200", "1002", "74a0", number, partitions=partitions)
        for number, partitions in enumerate((1, 3))
    )
    machine = replace(MACHINE, pci_devices=gpus)
    devices = devices_from_pci(machine, usual_selectors(machine, "amd.com/gpu"))["amd.com/gpu"]
    assert [(device.id, device.numa_nodes, device.pci) for device in devices] == [
        ("0000:00:00.0", (0,), ""),
        *((f"0000:01:00.0/{number}", (1,), "0000:01:00.0") for number in range(3)),
    ]
