"""Makes a device inventory of the machine's PCI devices, as chosen by class or by vendor and device.

How the devices are given out is left to the device manager's provider.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.machine import Machine, PciDevice

__all__ = ["PciSelector", "devices_from_pci"]

_EXPECTED: Final = "RESOURCE=VENDOR:DEVICE or RESOURCE=class=CLASS in hex, such as nvidia.com/gpu=10de:*"
_SELECTOR: Final = re.compile(
    r"(?P<resource>[A-Za-z0-9][A-Za-z0-9._/-]*)="
    r"(?:class=(?P<class>[0-9a-fA-F]{2}|[0-9a-fA-F]{4})|(?P<vendor>[0-9a-fA-F]{4}):(?P<device>[0-9a-fA-F]{4}|\*))"
)


@dataclass(frozen=True, slots=True)
class PciSelector:
    """Which PCI devices are devices of a resource. Numbers are in hex, in lower case; empty: any."""

    resource: str
    class_: str = ""
    """The first two or four digits of the class: `03` for all display controllers, `0302` for 3D
    controllers."""
    vendor: str = ""
    device: str = ""

    @classmethod
    def parse(cls, text: str) -> PciSelector:
        """Return what a text such as `nvidia.com/gpu=10de:*` or `example.com/nic=class=0200` selects.

        Raises:
            InputError: The text is neither.
        """
        found = _SELECTOR.fullmatch(text)
        if not found:
            raise InputError.at("--device-resource", _EXPECTED, text)
        return cls(
            resource=found["resource"],
            class_=(found["class"] or "").lower(),
            vendor=(found["vendor"] or "").lower(),
            device=(found["device"] or "").lower().replace("*", ""),
        )

    def __str__(self) -> str:
        return f"class {self.class_}" if self.class_ else f"{self.vendor}:{self.device or '*'}"

    def selects(self, device: PciDevice) -> bool:
        """Tell whether `device` is one of them."""
        return (
            device.class_.startswith(self.class_)
            and device.vendor.startswith(self.vendor)
            and device.device.startswith(self.device)
        )


def devices_from_pci(machine: Machine, selectors: Iterable[PciSelector]) -> dict[str, list[dict[str, Any]]]:
    """Return an inventory: resource to devices, with the PCI address as `id` and the NUMA node as `numa`.

    A device that several selectors of one resource select is in it once. One that belongs to no node in
    particular has `numa` None: its place does not matter.

    Raises:
        InputError: A selector selects nothing, or a device would be of two resources.
    """
    inventory: dict[str, dict[str, dict[str, Any]]] = {}
    owner: dict[str, str] = {}
    for selector in selectors:
        chosen = [device for device in machine.pci_devices if selector.selects(device)]
        if not chosen:
            raise InputError(
                f"expected a PCI device for {selector.resource}, got none that matches {selector}"
            )
        for device in chosen:
            if owner.setdefault(device.address, selector.resource) != selector.resource:
                expected = f"PCI device {device.address} in one resource"
                got = f"{owner[device.address]}, {selector.resource}"
                raise InputError.at("--device-resource", expected, got)
            numa = None if device.numa_node is None else [device.numa_node]
            inventory.setdefault(selector.resource, {})[device.address] = {"id": device.address, "numa": numa}
    return {
        resource: [devices[address] for address in sorted(devices)] for resource, devices in inventory.items()
    }
