"""A machine with its devices, from every place that a user can name for them."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.machine import nvidia
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.load import load_machine, load_with_devices
from alignup.machine.machine import Core, Machine, NumaNode, PciDevice

GPU = nvidia.GPU_RESOURCE
MACHINE = Machine(
    (NumaNode(0, 1, (Core((0,), 0),)), NumaNode(1, 1, (Core((1,), 1),)), NumaNode(2, 1, ())),
    pci_devices=(PciDevice("0000:10:00.0", "0302", "10de", "2330", 1),),
)
DRIVER = (Device("GPU-1", (2,)),)


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """How often the driver was asked."""
    calls = []

    def read_gpus(machine):
        calls.append(machine)
        return LoadedMachine(machine, {GPU: DRIVER}, {GPU: (("GPU-1",),)})

    monkeypatch.setattr(nvidia, "read_gpus", read_gpus)
    return calls


def test_a_machine_brings_its_devices(asked):
    """A record brings none."""
    assert load_with_devices("dgx-h100") == load_machine("dgx-h100")
    assert load_with_devices(MACHINE) == LoadedMachine(MACHINE)
    assert not asked


def test_an_inventory_replaces_all_of_them():
    """And the sets of what is replaced are no longer preferred."""
    loaded = load_with_devices("dgx-h100", devices={"x/y": [{"id": "a", "numa": [1]}]})
    assert loaded.devices == {"x/y": (Device("a", (1,)),)}
    assert loaded.preferred_sets == {}
    assert load_with_devices("dgx-h100", devices={}).devices == {}
    with pytest.raises(InputError, match=r"got 3 at FILE\['x/y'\]\[0\].id"):
        load_with_devices("dgx-h100", devices={"x/y": [{"id": 3}]}, where="FILE")


def test_pci_devices_replace_those_of_their_resource():
    """Others stay."""
    devices = {GPU: [{"id": "a"}], "x/y": [{"id": "b"}]}
    loaded = load_with_devices(MACHINE, devices=devices, selectors=[f"{GPU}=10de:*"])
    assert loaded.devices == {GPU: (Device("0000:10:00.0", (1,)),), "x/y": (Device("b", None),)}


def test_the_driver_is_asked_as_often_as_wanted(asked):
    """Never, for GPUs that nothing else describes, or for all."""
    given = {GPU: [{"id": "a"}]}
    assert load_with_devices(MACHINE, devices=given, nvidia="if missing").devices == {
        GPU: (Device("a", None),)
    }
    assert not asked
    for loaded in (
        load_with_devices(MACHINE, nvidia="if missing"),
        load_with_devices(MACHINE, devices=given, nvidia="always"),
    ):
        assert loaded.devices == {GPU: DRIVER}
        assert loaded.preferred_sets == {GPU: (("GPU-1",),)}


def test_gpus_that_nobody_asked_for_may_be_missing(asked, monkeypatch):
    """A machine without GPUs of NVIDIA is no reason to ask.

    One whose driver does not answer goes on without them.
    """
    told = []
    nvswitch = PciDevice("0000:11:00.0", "0680", "10de", "22a3", 1)
    none = Machine(MACHINE.numa_nodes, pci_devices=(nvswitch,))
    assert load_with_devices(none, nvidia="if there", tell=told.append) == LoadedMachine(none)
    assert not asked
    assert load_with_devices(MACHINE, nvidia="if there", tell=told.append).devices == {GPU: DRIVER}
    assert not told

    def no_driver(_):
        raise InputError("expected a driver, got none")

    monkeypatch.setattr(nvidia, "read_gpus", no_driver)
    assert load_with_devices(MACHINE, nvidia="if there", tell=told.append) == LoadedMachine(MACHINE)
    assert told == ["the NVIDIA GPUs of this machine are left out: expected a driver, got none"]
    with pytest.raises(InputError, match="got none"):
        load_with_devices(MACHINE, nvidia="if missing")


def test_devices_of_every_source_can_be_moved_to_cpus():
    """As the last step."""
    loaded = load_with_devices(MACHINE, nvidia="always", near_cpus=True)
    assert loaded.devices == {GPU: (Device("GPU-1", (0, 1)),)}
