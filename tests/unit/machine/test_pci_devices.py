"""Device inventories made of PCI devices."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Core, Machine, NumaNode, PciDevice
from alignup.machine.pci_devices import PciSelector, devices_from_pci

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
    inventory = devices_from_pci(MACHINE, map(PciSelector.parse, ["a/gpu=class=0302", "a/nic=15b3:*"]))

    assert inventory == {
        "a/gpu": (Device("0000:10:00.0", (0,)), Device("0000:11:00.0", (1,))),
        "a/nic": (Device("0000:20:00.0", None),),
    }


def test_selectors_of_one_resource_add_up():
    """Without repeating a device."""
    inventory = devices_from_pci(MACHINE, map(PciSelector.parse, ["a/b=10de:*", "a/b=class=03", "a/b=15b3:1021"]))

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
    ("text", "what"),
    [("x/y=dead:*", r"dead:\*"), ("x/y=class=12", "class 12"), ("x/y=10de:*,class=02", r"10de:\* and class 02")],
)
def test_a_selector_that_selects_nothing_is_refused(text, what):
    with pytest.raises(InputError, match=f"a PCI device for x/y, got none that matches {what}"):
        devices_from_pci(MACHINE, [PciSelector.parse(text)])


def test_a_device_in_two_resources_is_refused():
    """It would be given out twice."""
    with pytest.raises(InputError, match=r"0000:10:00\.0 in one resource, got 'a/a, a/b'"):
        devices_from_pci(MACHINE, map(PciSelector.parse, ["a/a=10de:*", "a/b=class=0302"]))
