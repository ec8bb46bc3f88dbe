"""A machine in JSON brings what belongs to it, and what stands beside it wins."""

from __future__ import annotations

import pytest

from alignup import read_machine
from alignup.errors import InputError
from alignup.machine.load import catalog_entries, described_machine, machine_with_devices_from_dict

DGX = catalog_entries()["dgx-h100"]


def test_a_name_of_the_catalog_brings_its_devices_and_configuration() -> None:
    described = described_machine("dgx-h100")

    assert described.machine == DGX.machine
    assert (described.devices, described.kubelet) == (DGX.devices, DGX.kubelet)
    assert described.preferred_sets == DGX.preferred_sets


def test_the_round_trip_keeps_everything() -> None:
    """What is printed is read back."""
    described = described_machine("dgx-h100")

    assert described_machine(described.to_dict()) == described


def test_a_machine_of_nothing_else_has_no_extra_keys() -> None:
    plain = read_machine("xeon-2s").to_dict()

    assert described_machine(plain).to_dict() == plain


def test_own_keys_win() -> None:
    """Each by itself; devices come without the machine's preferred sets."""
    plain = described_machine("dgx-h100").to_dict()
    pair = {"example.com/nic": [[device.id for device in DGX.devices["example.com/nic"][:2]]]}
    machine = {**plain, "preferredSets": pair}
    own = machine_with_devices_from_dict({"machine": machine, "devices": {}, "kubelet": None})

    assert (own.devices, own.preferred_sets, own.kubelet) == ({}, {}, DGX.kubelet)
    assert machine_with_devices_from_dict({"machine": machine, "kubelet": {}}).kubelet == {}
    kept = machine_with_devices_from_dict({"machine": machine, "preferredSets": {}})
    assert (kept.devices, kept.preferred_sets) == (DGX.devices, {})
    assert described_machine(machine).to_dict() == machine


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (
            "bogus",
            r"unknown machine 'bogus' at machine: expected a machine object, or one of the catalog: .*, xeon-2s$",
        ),
        ("", "xeon-2s$"),
        ("x" * 300, "^unknown machine 'x{79} at machine"),
        (3, "expected a mapping, got 3 at machine"),
        ({**DGX.machine.to_dict(), "devices": 3}, "expected a mapping, got 3 at machine.devices"),
    ],
)
def test_what_is_no_machine_says_so(described: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        described_machine(described)
