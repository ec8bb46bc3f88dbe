"""Reads `sys/bus/pci/devices`: class, vendor, device, NUMA node, link and the buses behind each PCI device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from alignup.machine.numa_node import PciDevice
from alignup.machine.sysfs.tree import KernelTree, first_number, hex_number, number_list, number_mask

if TYPE_CHECKING:
    from collections.abc import Sequence


PCI_FOLDER: Final = "sys/bus/pci/devices"

_BRIDGE: Final = 0x06
_SPEED: Final = re.compile(r"\s*(\d{1,3}(?:\.\d)?) GT/s")
_GEN_3: Final = 8
_GEN_6: Final = 64
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_devices(tree: KernelTree, ids: Sequence[int], node_cpus: Sequence[int]) -> tuple[PciDevice, ...]:
    """Return the PCI devices by address; `ids` and `node_cpus` are the machine's nodes and their CPUs.

    An entry of which no file can be read (a link that leads nowhere) is left out.
    """
    found = (
        _device(tree, address, ids, node_cpus)
        for address in sorted(filter(_ADDRESS.fullmatch, tree.names(PCI_FOLDER)), key=_order)
    )
    return tuple(device for device in found if device)


def _order(address: str) -> tuple[int, str]:
    """Return a key that sorts domains of four digits before longer ones."""
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


def _device(tree: KernelTree, address: str, ids: Sequence[int], node_cpus: Sequence[int]) -> PciDevice | None:
    folder = f"{PCI_FOLDER}/{address}"
    class_number = hex_number(tree.read(f"{folder}/class"))
    vendor = hex_number(tree.read(f"{folder}/vendor"))
    if class_number is None and vendor is None:
        return None
    return PciDevice(
        address=address,
        class_=f"{(class_number or 0) >> 8:04x}",
        vendor=f"{vendor or 0:04x}",
        device=f"{hex_number(tree.read(f'{folder}/device')) or 0:04x}",
        numa_node=_numa_node(tree, folder, ids, node_cpus),
        buses=_buses(tree, folder) if (class_number or 0) >> 16 == _BRIDGE else None,
        link=_link(tree, folder),
    )


def _buses(tree: KernelTree, folder: str) -> tuple[int, int] | None:
    """Return the buses behind the bridge in `folder`; None: the kernel does not say, or firmware has set none up."""
    first = first_number(tree.read(f"{folder}/secondary_bus_number"))
    last = first_number(tree.read(f"{folder}/subordinate_bus_number"))
    return (first, last) if first and last and first <= last else None


def _link(tree: KernelTree, folder: str) -> float | None:
    """Return the GB/s of a link such as `16.0 GT/s PCIe` of 16 lanes, less what the encoding takes."""
    speed = _SPEED.match(tree.read(f"{folder}/current_link_speed") or "")
    lanes = first_number(tree.read(f"{folder}/current_link_width")) if speed else None
    if not speed or not lanes or lanes < 0:
        return None
    transfers = float(speed[1])
    carried = 8 / 10 if transfers < _GEN_3 else 128 / 130 if transfers < _GEN_6 else 242 / 256
    return round(transfers * carried * lanes / 8, 2) or None


def _numa_node(tree: KernelTree, folder: str, ids: Sequence[int], node_cpus: Sequence[int]) -> int | None:
    """Return the node of the device in `folder`.

    `numa_node` is -1 where the firmware does not say, and missing on some kernels. Then it is the node whose
    CPUs `local_cpus` names, if that is one node only: a device that is near all CPUs is near none in
    particular.
    """
    numa_id = first_number(tree.read(f"{folder}/numa_node"))
    if numa_id in ids:
        return numa_id
    local = number_mask(tree.read(f"{folder}/local_cpus"))
    if local is None:
        local = number_list(tree.read(f"{folder}/local_cpulist")) or 0
    near = [node for node, cpus in zip(ids, node_cpus, strict=True) if cpus & local]
    return near[0] if len(near) == 1 and len(ids) > 1 else None
