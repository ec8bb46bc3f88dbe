"""The NUMA node of a device of a claim: by its attributes, or by its PCI address on the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.claims.problem import attribute_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.claims.objects import Device

PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
PCI_ADDRESS: Final = "resource.kubernetes.io/pciBusID"
NUMA_ATTRIBUTES: Final = (
    "resource.kubernetes.io/numaNode",
    "dra.net/numaNode",
    "dra.cpu/numaNodeID",
    "dra.cpu/numaNode",
    "dra.memory/numaNode",
    "gpu.nvidia.com/numaNode",
    "gpu.amd.com/numaNode",
    "gpu.intel.com/numaNode",
)
"""Attributes that name a NUMA node: the standard one (KEP-6072), and vendors' from before it."""
_ADDRESS: Final = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_address_of(driver: str, device: Device) -> str:
    """Return the PCI address that a device publishes; empty: none."""
    for name in (PCI_ADDRESS, f"{driver}/pciBusID", f"{driver}/pciAddress", f"{driver}/pciBusAddress"):
        value = attribute_of(device, driver, name)
        if value is not None and value.values and isinstance(value.values[0], str):
            address = value.values[0].lower()
            if _ADDRESS.fullmatch(address):
                return address if address.count(":") > 1 else f"0000:{address}"
    return ""


def numa_nodes_of(driver: str, device: Device, by_address: Mapping[str, int]) -> tuple[int, ...]:
    """Return the NUMA nodes of a device; empty: not known.

    Of a list, the first is the node that the device is near; the others are of the same socket.

    Args:
        driver: of the device.
        device: with its attributes.
        by_address: the NUMA nodes of the machine's PCI devices.
    """
    name = numa_attribute_of(driver, device)
    if name:
        value = attribute_of(device, driver, name)
        return () if value is None else tuple(map(int, value.values))
    node = by_address.get(pci_address_of(driver, device), -1)
    return (node,) if node >= 0 else ()


def numa_attribute_of(driver: str, device: Device) -> str:
    """Return the full name of the attribute that tells a device's NUMA node; empty: none does."""
    for name in (*NUMA_ATTRIBUTES, f"{driver}/numaNode", f"{driver}/numa"):
        value = attribute_of(device, driver, name)
        if value is not None and value.kind == "int" and value.values:
            return name
    return ""
