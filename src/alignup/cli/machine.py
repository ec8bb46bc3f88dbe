"""`alignup machine`: what a machine looks like, for a person, as JSON, or packed to be sent to somebody."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli.inputs import machine_option, near_cpus_option, pci_inventory
from alignup.cli.options import device_resource_option
from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.machine.machine import Machine

__all__ = ["SeenMachine", "command"]

HERE: Final = "/"


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """A machine and the devices that there are in it, both as in scenarios."""

    machine: Machine
    title: str
    devices: Mapping[str, Any] = field(default_factory=dict)
    preferred_sets: Mapping[str, Any] = field(default_factory=dict)


@click.command(name="machine")
@machine_option
@click.option("--root", metavar="DIR", help="The root of a sysfs tree; the same as --machine DIR.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, which --machine takes, and nothing else."
)
@click.option(
    "--snapshot", metavar="FILE", help="Pack the kernel files that describe it: .tar.xz, .tar.gz or .tgz."
)
@device_resource_option
@click.option("--nvidia", is_flag=True, help="Ask NVIDIA's driver on this machine for its GPUs.")
@near_cpus_option
def command(
    machine: str,
    root: str | None,
    as_json: bool,
    snapshot: str | None,
    selectors: tuple[str, ...],
    nvidia: bool,
    near_cpus: bool,
) -> None:
    """Show a machine at a glance: NUMA nodes, CPUs, memory, devices and distances.

    With --json, devices are added as `devices` and `preferredSets` beside `machine` if an option asks for
    devices. A snapshot holds no host names, serial numbers or MAC addresses.
    """
    if root is not None and machine != HERE:
        raise click.UsageError("--root and --machine exclude each other")
    source = machine if root is None else root
    seen = look_at(source, selectors, is_root=root is not None, nvidia=nvidia, near_cpus=near_cpus)
    if snapshot is not None:
        pack(source, snapshot)
    if as_json:
        import msgspec

        described: dict[str, Any] = seen.machine.to_dict()
        if selectors or nvidia or near_cpus:
            described = {
                "machine": described,
                "devices": seen.devices,
                "preferredSets": seen.preferred_sets,
            }
        click.echo(msgspec.json.encode(described))
        return
    from alignup.cli.machine_view import show_machine

    show_machine(seen)


def look_at(
    source: str, selectors: tuple[str, ...], *, is_root: bool, nvidia: bool, near_cpus: bool
) -> SeenMachine:
    """Return the machine that is meant, with its devices: those that came with it, and those that were asked for.

    Raises:
        InputError: there is no such machine, or no such devices in it.
    """
    from alignup.machine.device_inventory import decode_inventory
    from alignup.machine.load import LoadedMachine, load_machine
    from alignup.machine.machine import Machine

    if nvidia and (is_root or source != HERE):
        raise InputError.at("--nvidia", "this machine, the only one whose driver can be asked", source)
    loaded = LoadedMachine(Machine.from_sysfs(source)) if is_root else load_machine(source)
    devices, preferred_sets = dict(loaded.devices), dict(loaded.preferred_sets)
    devices |= pci_inventory(loaded.machine, selectors)
    if nvidia:
        from alignup.machine.nvidia import read_gpus

        gpus = read_gpus(loaded.machine)
        devices |= gpus.devices
        preferred_sets |= gpus.preferred_sets
    decode_inventory(devices, loaded.machine)
    if near_cpus:
        from alignup.machine import device_locality

        devices = device_locality.near_cpus(loaded.machine, devices)
    return SeenMachine(loaded.machine, "this machine" if source == HERE else source, devices, preferred_sets)


def pack(source: str, target: str) -> None:
    """Write the snapshot of a sysfs tree.

    Raises:
        InputError: the machine does not come from such a tree, or the snapshot cannot be written.
    """
    from alignup.machine.snapshot import take_snapshot

    if not Path(source).is_dir():
        raise InputError.at("--snapshot", "a machine that is read from sysfs", source)
    count = take_snapshot(source, target)
    click.echo(f"alignup: packed {count} kernel files of {source} into {target}", err=True)
