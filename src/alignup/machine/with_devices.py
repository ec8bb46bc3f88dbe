"""Puts a machine together with its devices, from every place that a user can name for them.

Reading a machine is left to `alignup.machine.load`, reading devices to `device_inventory`, `pci_devices` and
`nvidia`; here it is decided which of them counts where several describe a resource.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from alignup.errors import InputError
from alignup.machine.device_inventory import decode_inventory
from alignup.machine.load import load_machine
from alignup.machine.loaded import LoadedMachine
from alignup.machine.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["AskDriver", "load_with_devices"]

AskDriver = Literal["never", "if there", "if missing", "always"]
"""When NVIDIA's driver is asked for GPUs: never, only if nothing else describes them, or even then.

"if there" is "if missing" for somebody who did not ask for GPUs: a machine without any, and one whose driver does not
answer, have none then.
"""


def load_with_devices(
    source: str | Machine | LoadedMachine,
    *,
    devices: object = None,
    where: str = "devices",
    selectors: Iterable[str] = (),
    nvidia: AskDriver = "never",
    near_cpus: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> LoadedMachine:
    """Return a machine with its devices.

    An inventory takes the place of all devices that come with the machine. Then PCI devices, and then the driver's
    GPUs, take the place of the devices of the same resource. The preferred sets of devices that are replaced are
    dropped.

    Args:
        source: a machine as `load_machine` takes it, or its record, with devices or without.
        devices: an inventory as `decode_inventory` takes it; None: the devices that come with the machine.
        where: the name of the inventory in errors.
        selectors: PCI devices of resources, as `PciSelector.parse` takes them.
        nvidia: whether to ask NVIDIA's driver, which knows the GPUs of the machine at hand only.
        near_cpus: whether devices near nodes without CPUs count as near the closest nodes with CPUs.
        tell: called with a sentence about GPUs that are left out; see "if there" of `AskDriver`.

    Raises:
        InputError: there is no such machine, a device is described wrongly, a selector selects nothing, or the
            driver does not answer.
    """
    if isinstance(source, str):
        loaded = load_machine(source)
    else:
        loaded = LoadedMachine(source) if isinstance(source, Machine) else source
    machine = loaded.machine
    if devices is not None:
        loaded = replace(loaded, devices=decode_inventory(devices, machine, where), preferred_sets={})
    chosen = list(selectors)
    if chosen:
        from alignup.machine.pci_devices import PciSelector, devices_from_pci  # noqa: PLC0415  # seldom used

        loaded = loaded.with_devices(devices_from_pci(machine, map(PciSelector.parse, chosen)))
    if nvidia != "never":
        loaded = _with_gpus(loaded, nvidia, tell)
    if near_cpus and loaded.devices:
        from alignup.machine.device_locality import near_cpu_nodes  # noqa: PLC0415  # seldom used

        loaded = replace(loaded, devices=near_cpu_nodes(machine, loaded.devices))
    return loaded


def _with_gpus(loaded: LoadedMachine, ask: AskDriver, tell: Callable[[str], None]) -> LoadedMachine:
    """Return a machine with the GPUs that the driver knows, where it is to be asked for them."""
    from alignup.machine.nvidia import GPU_RESOURCE, has_gpus, read_gpus  # noqa: PLC0415  # seldom used

    if ask != "always" and GPU_RESOURCE in loaded.devices:
        return loaded
    if ask == "if there" and not has_gpus(loaded.machine):
        return loaded
    try:
        gpus = read_gpus(loaded.machine)
    except InputError as error:
        if ask != "if there":
            raise
        tell(f"the NVIDIA GPUs of this machine are left out: {error}")
        return loaded
    return loaded.with_devices(gpus.devices, gpus.preferred_sets)
