"""Names the kinds and vendors of the PCI devices that placement depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from alignup.machine.numa_node import PciDevice

__all__ = ["PCI_KINDS", "VENDORS", "kind_of"]

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
