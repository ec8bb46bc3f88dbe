"""Makes a device inventory of the machine's PCI devices, as chosen by class, by vendor and device, or both.

Names the kinds and vendors of the PCI devices that placement depends on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError
from alignup.machine.device_inventory import Device  # as above
from alignup.machine.nvidia import DISPLAY_CLASS, GPU_RESOURCE
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.machine.machine import Machine
    from alignup.machine.numa_node import PciDevice

_EXPECTED: Final = (
    "RESOURCE=VENDOR:DEVICE, RESOURCE=class=CLASS or RESOURCE=VENDOR:DEVICE,class=CLASS in hex, "
    "such as nvidia.com/gpu=10de:*"
)
_SELECTOR: Final = re.compile(
    r"(?P<resource>[A-Za-z0-9][A-Za-z0-9._/-]*)="
    r"(?!$)(?:(?P<vendor>[0-9a-fA-F]{4}):(?P<device>[0-9a-fA-F]{4}|\*))?"
    r"(?:(?(vendor),)class=(?P<class>[0-9a-fA-F]{2}|[0-9a-fA-F]{4}))?"
)


class PciSelector(Record):
    """A choice of PCI devices as the devices of a resource. Numbers are in hex, in lower case; empty: any."""

    resource: str
    class_: str = ""
    """The first two or four digits of the class: `03` for all display controllers, `0302` for 3D
    controllers."""
    vendor: str = ""
    device: str = ""

    @classmethod
    def parse(cls, text: str) -> PciSelector:
        """Return the selector of `nvidia.com/gpu=10de:*`, `a.b/nic=class=0200` or `a.b/nic=15b3:*,class=02`.

        NVIDIA's switches, sound and network devices have its vendor id too, so for `nvidia.com/gpu` without
        a class, only display controllers (class 03) count.

        Raises:
            InputError: the text is none of these.
        """
        found = _SELECTOR.fullmatch(text)
        if not found:
            raise InputError.at("--device-resource", _EXPECTED, text)
        return cls(
            resource=found["resource"],
            class_=(found["class"] or (DISPLAY_CLASS if found["resource"] == GPU_RESOURCE else "")).lower(),
            vendor=(found["vendor"] or "").lower(),
            device=(found["device"] or "").lower().replace("*", ""),
        )

    def __str__(self) -> str:
        identity = f"{self.vendor}:{self.device or '*'}" if self.vendor else ""
        return " and ".join(filter(None, (identity, self.class_ and f"class {self.class_}")))

    def selects(self, device: PciDevice) -> bool:
        """Return whether `device` is one of them."""
        return (
            device.class_.startswith(self.class_)
            and device.vendor.startswith(self.vendor)
            and device.device.startswith(self.device)
        )


def devices_from_pci(machine: Machine, selectors: Iterable[PciSelector]) -> dict[str, tuple[Device, ...]]:
    """Return the selected devices by resource, with the PCI address as id, in the order of the addresses.

    A device that several selectors of one resource select is in it once. One that belongs to no node in
    particular has no topology.

    Raises:
        InputError: a selector selects nothing, or a device would be of two resources.
    """
    inventory: dict[str, dict[str, Device]] = {}
    owner: dict[str, str] = {}
    for selector in selectors:
        chosen = [device for device in machine.pci_devices if selector.selects(device)]
        if not chosen:
            raise InputError(f"expected a PCI device for {selector.resource}, got none that matches {selector}")
        for device in chosen:
            if owner.setdefault(device.address, selector.resource) != selector.resource:
                expected = f"PCI device {device.address} in one resource"
                got = f"{owner[device.address]}, {selector.resource}"
                raise InputError.at("--device-resource", expected, got)
            nodes = None if device.numa_node is None else (device.numa_node,)
            inventory.setdefault(selector.resource, {})[device.address] = Device(device.address, nodes)
    return {resource: tuple(devices[address] for address in sorted(devices)) for resource, devices in inventory.items()}


PCI_KINDS: Final = (
    ("0300", "GPU (VGA)"),
    ("0302", "GPU"),
    ("03", "display"),
    ("12", "accelerator"),
    ("0207", "InfiniBand"),
    ("02", "network"),
    ("0108", "NVMe"),
)
"""The first digits of the PCI classes that placement depends on, and their names; the first that fits counts."""

VENDORS: Final = {
    "1002": "AMD",
    "1022": "AMD",
    "10de": "NVIDIA",
    "14e4": "Broadcom",
    "144d": "Samsung",
    "15b3": "Mellanox",
    "1af4": "virtio",
    "1d0f": "Amazon",
    "1da3": "Habana",
    "1e0f": "KIOXIA",
    "8086": "Intel",
}
"""Names of vendors, by the number that PCI gives them."""


def kind_of(device: PciDevice) -> str | None:
    """Return the kind of a PCI device in words; None if placement does not depend on it."""
    return next((kind for digits, kind in PCI_KINDS if device.class_.startswith(digits)), None)
