"""Chooses PCI devices as the devices of a resource, and knows how near two of them are.

How near they are is told by the tree of bridges. Names the kinds and vendors of the PCI devices
that placement depends on. Distances are those of `nvidia-smi topo -m`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.machine.device_inventory import Device, partitions_of  # as above
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
    """A choice of PCI devices as the devices of a resource.

    Numbers are in hex, in lower case; empty: any.

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
        """Return the selector that a text such as `nvidia.com/gpu=10de:*` describes.

        Others are `a.b/nic=class=0200` and `a.b/nic=15b3:*,class=02`. NVIDIA's switches, sound and
        network devices have its vendor id too, so for `nvidia.com/gpu` without a class, only
        display controllers (class 03) count.

        Raises:
            InputError: the text is none of these.
        """
        matched = _SELECTOR.fullmatch(text)
        if not matched:
            raise InputError.at(
                "--device-resource", f"{_FORMS}, such as nvidia.com/gpu=10de:*", text
            )

        resource = matched["resource"]
        class_, vendor, device = (
            (matched[name] or "").lower() for name in ("class", "vendor", "device")
        )
        if not class_ and resource == GPU_RESOURCE:
            class_ = DISPLAY_CLASS

        return cls(resource, class_, vendor, device.replace("*", ""))

    @property
    def option(self) -> str:
        """The option of the command line that makes this choice."""
        choice = f"--device-resource {self.resource}={self.vendor}:{self.device or '*'}"
        if self.class_ and self.resource != GPU_RESOURCE:
            choice += f",class={self.class_}"

        return choice

    def __str__(self) -> str:
        conditions = []
        if self.vendor:
            conditions.append(f"{self.vendor}:{self.device or '*'}")
        if self.class_:
            conditions.append(f"class {self.class_}")

        return " and ".join(conditions)

    def selects(self, device: PciDevice) -> bool:
        """Return whether `device` is one of them."""
        return (
            device.class_.startswith(self.class_)
            and device.vendor.startswith(self.vendor)
            and device.device.startswith(self.device)
        )


def devices_from_pci(
    machine: Machine, selectors: Iterable[PciSelector]
) -> dict[str, tuple[Device, ...]]:
    """Return the selected devices by resource, in the order of their addresses.

    The PCI address is the id of a device, with `/N` behind it for partition N of one. A device that
    several selectors of one resource select is in it once. One that belongs to no node in
    particular has no topology.

    Raises:
        InputError: a selector selects nothing, or a device would be of two resources.
    """
    inventory: dict[str, dict[str, Device]] = {}
    owner: dict[str, str] = {}
    for selector in selectors:
        selected = [device for device in machine.pci_devices if selector.selects(device)]
        if not selected:
            raise InputError(f"no PCI device matches {selector} for {selector.resource}")

        for device in selected:
            if owner.setdefault(device.address, selector.resource) != selector.resource:
                expected = f"PCI device {device.address} in one resource"
                raise InputError.at(
                    "--device-resource", expected, f"{owner[device.address]}, {selector.resource}"
                )

            numa_nodes = None if device.numa_node is None else (device.numa_node,)
            devices = inventory.setdefault(selector.resource, {})
            devices[device.address] = Device(device.address, numa_nodes)

    partitions = {device.address: device.partitions or 1 for device in machine.pci_devices}
    devices_of: dict[str, tuple[Device, ...]] = {}
    for resource, devices in inventory.items():
        parts: list[Device] = []
        for address in sorted(devices):
            whole = devices[address]
            count = partitions[address]
            parts += partitions_of(whole, count) if count > 1 else [whole]

        devices_of[resource] = tuple(parts)

    return devices_of


def usual_selectors(machine: Machine, resource: str) -> list[PciSelector]:
    """Return what selects the devices that a device plugin would offer as a resource.

    A selector that selects none of the machine's devices is left out.
    """
    texts = _names()["usual"].get(resource, ())
    selectors = (PciSelector.parse(f"{resource}={text}") for text in texts)
    return [selector for selector in selectors if any(map(selector.selects, machine.pci_devices))]


@cache
def _names() -> dict[str, dict[str, Any]]:
    """Return the names of the PCI classes that placement depends on, and those of vendors.

    Classes are named by their first digits. With them come the PCI devices that device plugins
    offer as the devices of a resource, as `--device-resource` selects them.
    """
    names: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("pci_names.json").read_bytes()
    )
    return names


def pci_kinds() -> tuple[str, ...]:
    """Return the kinds of PCI devices that placement depends on, in words."""
    return tuple(_names()["kinds"].values())


def kind_of(device: PciDevice) -> str | None:
    """Return the kind of a PCI device in words; None: placement ignores it.

    It is the first kind whose digits the class of the device begins with.
    """
    for digits, kind in _names()["kinds"].items():
        if device.class_.startswith(digits):
            return str(kind)

    return None


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
        self._above: dict[str, tuple[str, ...]] = {}

        # by domain: the first and the last bus behind each bridge, and its address
        self._bridges: dict[str, list[tuple[int, int, str]]] = {}
        for device in machine.pci_devices:
            if device.buses:
                domain, _, _ = device.address.partition(":")
                bridges = self._bridges.setdefault(domain, [])
                bridges.append((*device.buses, device.address))

        for bridges in self._bridges.values():
            bridges.sort(key=lambda bridge: bridge[1] - bridge[0])

    @property
    def is_known(self) -> bool:
        """Whether the machine says which buses are behind any bridge."""
        return bool(self._bridges)

    def above(self, address: str) -> tuple[str, ...]:
        """Return the addresses of the bridges above a device, the nearest first.

        The last is its root, such as `pci0000:17`.
        """
        if address in self._above:
            return self._above[address]

        domain, _, place = address.partition(":")
        bus = int(place.partition(":")[0], 16)
        path: tuple[str, ...] = (f"pci{domain}:{bus:02x}",)
        for first_bus, last_bus, bridge in self._bridges.get(domain, ()):
            if first_bus <= bus <= last_bus and bridge != address:
                path = (bridge, *self.above(bridge))
                break

        self._above[address] = path
        return path

    def distance(self, first: str, second: str) -> int:
        """Return how far two PCI devices of the machine are apart, as an index of `DISTANCES`.

        PIX: no more than one bridge is between each of them and the bridge that they share, as on
        one switch.
        """
        if first == second:
            return 0

        path, other_path = self.above(first), self.above(second)
        shared = next((bridge for bridge in path if bridge in other_path), None)
        if shared is None:
            numa_node = self._devices[first].numa_node
            is_same = numa_node is not None and numa_node == self._devices[second].numa_node
            return NODE if is_same or self._is_one_node else SYS

        if shared == path[-1]:
            return PHB
        if path.index(shared) <= 1 and other_path.index(shared) <= 1:
            return PIX
        return PXB

    def between(self, first: Device, second: Device) -> int:
        """Return how far two devices of resources are apart.

        Where one of them has no PCI address, NUMA nodes decide.
        """
        pci = self._devices.get(first.pci or first.id)
        other_pci = self._devices.get(second.pci or second.id)
        if pci is not None and other_pci is not None:
            return self.distance(pci.address, other_pci.address)
        if set(first.numa_nodes or ()) & set(second.numa_nodes or ()):
            return NODE
        return SYS
