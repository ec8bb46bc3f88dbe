"""Chooses PCI devices as the devices of a resource, and knows how near two of them are in the tree of bridges.

Names the kinds and vendors of the PCI devices that placement depends on. Distances are those of
`nvidia-smi topo -m`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.machine.device_inventory import Device  # as above
from alignup.machine.nvidia import DISPLAY_CLASS, GPU_RESOURCE
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.machine.machine import Machine, PciDevice

_FORMS: Final = (
    "RESOURCE=VENDOR:DEVICE, RESOURCE=class=CLASS or RESOURCE=VENDOR:DEVICE,class=CLASS in hex"
)
_SELECTOR: Final = re.compile(
    r"(?P<resource>[A-Za-z0-9][A-Za-z0-9._/-]*)="
    r"(?!$)(?:(?P<vendor>[0-9a-fA-F]{4}):(?P<device>[0-9a-fA-F]{4}|\*))?"
    r"(?:(?(vendor),)class=(?P<class>[0-9a-fA-F]{2}|[0-9a-fA-F]{4}))?"
)

# How far two devices are apart, nearest first: one device, one switch, several bridges, one host
# bridge (root), one NUMA node, the machine. NVIDIA's words, as
# `nvmlDeviceGetTopologyCommonAncestor` means them.
DISTANCES: Final = ("X", "PIX", "PXB", "PHB", "NODE", "SYS")


class PciSelector(Record):
    """A choice of PCI devices as the devices of a resource. Numbers are in hex, in lower case; empty: any.

    Attributes:
        class_: the first two or four digits of the class: `03` for all display controllers, `0302`
            for 3D controllers.
    """

    resource: str
    class_: str = ""
    vendor: str = ""
    device: str = ""

    @classmethod
    def parse(cls, text: str) -> PciSelector:
        """Return the selector of `nvidia.com/gpu=10de:*`, `a.b/nic=class=0200` or `a.b/nic=15b3:*,class=02`.

        NVIDIA's switches, sound and network devices have its vendor id too, so for `nvidia.com/gpu`
        without a class, only display controllers (class 03) count.

        Raises:
            InputError: the text is none of these.
        """
        found = _SELECTOR.fullmatch(text)
        if not found:
            raise InputError.at(
                "--device-resource", f"{_FORMS}, such as nvidia.com/gpu=10de:*", text
            )

        class_, vendor, device = (
            (found[name] or "").lower() for name in ("class", "vendor", "device")
        )
        usual = DISPLAY_CLASS if found["resource"] == GPU_RESOURCE else ""
        return cls(found["resource"], class_ or usual, vendor, device.replace("*", ""))

    @property
    def option(self) -> str:
        """The option of the command line that makes this choice."""
        classes = f",class={self.class_}" if self.class_ and self.resource != GPU_RESOURCE else ""
        return f"--device-resource {self.resource}={self.vendor}:{self.device or '*'}{classes}"

    def __str__(self) -> str:
        identity = f"{self.vendor}:{self.device or '*'}" if self.vendor else ""
        return " and ".join(filter(None, (identity, self.class_ and f"class {self.class_}")))

    def selects(self, device: PciDevice) -> bool:
        """Return whether `device` is one of them."""
        numbers = (
            (device.class_, self.class_),
            (device.vendor, self.vendor),
            (device.device, self.device),
        )
        return all(number.startswith(wanted) for number, wanted in numbers)


def devices_from_pci(
    machine: Machine, selectors: Iterable[PciSelector]
) -> dict[str, tuple[Device, ...]]:
    """Return the selected devices by resource, with the PCI address as id, in the order of the addresses.

    A device that several selectors of one resource select is in it once. One that belongs to no
    node in particular has no topology.

    Raises:
        InputError: a selector selects nothing, or a device would be of two resources.
    """
    inventory: dict[str, dict[str, Device]] = {}
    owner: dict[str, str] = {}
    for selector in selectors:
        chosen = [device for device in machine.pci_devices if selector.selects(device)]
        if not chosen:
            raise InputError(f"no PCI device matches {selector} for {selector.resource}")
        for device in chosen:
            if owner.setdefault(device.address, selector.resource) != selector.resource:
                expected = f"PCI device {device.address} in one resource"
                raise InputError.at(
                    "--device-resource", expected, f"{owner[device.address]}, {selector.resource}"
                )

            nodes = None if device.numa_node is None else (device.numa_node,)
            inventory.setdefault(selector.resource, {})[device.address] = Device(
                device.address, nodes
            )

    return {
        resource: tuple(devices[address] for address in sorted(devices))
        for resource, devices in inventory.items()
    }


def usual_selectors(machine: Machine, resource: str) -> list[PciSelector]:
    """Return what selects the devices of a machine that a device plugin would offer as a resource, if it has any."""
    selectors = (
        PciSelector.parse(f"{resource}={text}") for text in _names()["usual"].get(resource, ())
    )
    return [one for one in selectors if any(map(one.selects, machine.pci_devices))]


@cache
def _names() -> dict[str, dict[str, Any]]:
    """Return the first digits of the PCI classes that placement depends on, with names, and the names of vendors.

    And the PCI devices that device plugins offer as the devices of a resource, as
    `--device-resource` selects them.
    """
    found: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("pci_names.json").read_bytes()
    )
    return found


def pci_kinds() -> tuple[str, ...]:
    """Return the kinds of PCI devices that placement depends on, in words."""
    return tuple(_names()["kinds"].values())


def kind_of(device: PciDevice) -> str | None:
    """Return the kind of a PCI device in words, the first that its class begins as; None: placement ignores it."""
    return next(
        (kind for digits, kind in _names()["kinds"].items() if device.class_.startswith(digits)),
        None,
    )


def vendor_of(number: str) -> str:
    """Return the name of a vendor by the number that PCI gives it; empty: not known."""
    return str(_names()["vendors"].get(number, ""))


PIX, PXB, PHB, NODE, SYS = range(1, len(DISTANCES))


class PciTree:
    """The bridges above the PCI devices of a machine.

    A device is below the bridge whose buses it is on; where there are several, below that with the
    fewest.
    """

    def __init__(self, machine: Machine) -> None:
        self._devices = {device.address: device for device in machine.pci_devices}
        self._is_one_node = len(machine.numa_nodes) == 1
        behind: dict[str, list[tuple[int, int, str]]] = {}
        for device in machine.pci_devices:
            if device.buses:
                behind.setdefault(device.address.partition(":")[0], []).append(
                    (*device.buses, device.address)
                )
        self._behind = {
            domain: sorted(found, key=lambda one: one[1] - one[0])
            for domain, found in behind.items()
        }
        self._above: dict[str, tuple[str, ...]] = {}

    @property
    def is_known(self) -> bool:
        """Whether the machine says which buses are behind any bridge."""
        return bool(self._behind)

    def above(self, address: str) -> tuple[str, ...]:
        """Return the addresses of the bridges above a device, the nearest first, and its root, such as `pci0000:17`."""
        found = self._above.get(address)
        if found is None:
            domain, _, rest = address.partition(":")
            bus = int(rest.partition(":")[0], 16)
            bridges = (
                one for first, last, one in self._behind.get(domain, ()) if first <= bus <= last
            )
            bridge = next((one for one in bridges if one != address), None)
            found = (f"pci{domain}:{bus:02x}",) if bridge is None else (bridge, *self.above(bridge))
            self._above[address] = found
        return found

    def distance(self, one: str, other: str) -> int:
        """Return how far two PCI devices of the machine are apart, as an index of `DISTANCES`.

        PIX: no more than one bridge is between each of them and the bridge that they share, as on
        one switch.
        """
        if one == other:
            return 0

        up, down = self.above(one), self.above(other)
        shared = next((bridge for bridge in up if bridge in down), None)
        if shared is None:
            near, far = self._devices[one].numa_node, self._devices[other].numa_node
            return NODE if self._is_one_node or (near is not None and near == far) else SYS

        return (
            PHB
            if shared == up[-1]
            else PIX
            if up.index(shared) <= 1 and down.index(shared) <= 1
            else PXB
        )

    def between(self, one: Device, other: Device) -> int:
        """Return how far two devices of resources are apart; by NUMA nodes if one has no PCI address."""
        first, second = (self._devices.get(device.pci or device.id) for device in (one, other))
        if first is not None and second is not None:
            return self.distance(first.address, second.address)
        return NODE if set(one.numa_nodes or ()) & set(other.numa_nodes or ()) else SYS
