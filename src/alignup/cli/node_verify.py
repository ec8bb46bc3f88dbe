"""`alignup node verify`: checks that running processes are placed as the state of their node, or their lease, says."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.inputs import KubeletSource
from alignup.cli.terminal import nodes_text, print_json
from alignup.errors import InputError, one_line
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Machine
from alignup.records import json_fields

if TYPE_CHECKING:
    from collections.abc import Mapping


@options.subcommand("verify", "0 all processes are placed as recorded; 1 one is not")
def command(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    leases: bool = options.flag("Verify the processes of leases, not those of a kubelet's containers."),
    is_self: bool = options.flag(
        "Verify the process that asks: is it bound to one NUMA node, and are its devices there? From inside a "
        "container, without privileges. Status 2 also means that the answer is unknown.",
        "--self",
    ),
    state: Path | None = options.state,
    as_json: bool = options.json("a finding"),
    pids: tuple[int, ...] = options.argument("[PID]...", nargs=-1, type=click.IntRange(1)),
) -> int:
    """Verify that running processes are placed as recorded: affinity, memory, device files.

    All processes of the node's containers, or those that are named; with --leases those of `alignup run` and what they
    have started.
    """
    from alignup.kubelet.processes import all_processes
    from alignup.kubelet.verify import placements_of_kubelet, placements_of_leases, verify

    if is_self:
        return verify_self(Path(source.root), as_json=as_json)
    if not Path(source.root).is_dir():
        raise InputError.at("--node", "the root of a machine, whose processes can be looked at", source.root)
    running = list(all_processes(Path(source.root)))
    if leases:
        from alignup.leases.file import LeaseFile

        seats = placements_of_leases(LeaseFile(state, complain).read().leases, running)
    else:
        seats = placements_of_kubelet(source.read(), running)
    found = verify(Path(source.root), seats, running, pids)
    for one in found:
        if as_json:
            print_json(json_fields(one))
        else:
            click.echo(one_line(f"{one.name}: {one.text}"))
    if not found and not as_json:
        looked_at = len(pids) or len(seats.keys() & {one.pid for one in running})
        click.echo(f"{looked_at} process{'' if looked_at == 1 else 'es'} checked: all are placed as recorded")
    return 1 if found else 0


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DEVICE_VARIABLES = ("PCIDEVICE_", "ALIGNUP_DEVICE_")


def verify_self(root: Path, *, as_json: bool) -> int:
    """Print what this process is bound to, and whether its devices are there; return the exit status."""
    found = look_at_self(root, os.environ)
    if as_json:
        print_json(found)
    else:
        click.echo(f"CPUs {found['cpus']}, NUMA nodes {nodes_text(found['numaNodes'])}")
        for one in found["devices"]:
            near = "unknown" if one["numaNode"] is None else one["numaNode"]
            click.echo(one_line(f"{one['address']} ({one['from']}): NUMA node {near}"))
        click.echo(found["text"])
    return {True: 0, False: 1, None: 2}[found["aligned"]]


def look_at_self(root: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return in JSON's types what this process is bound to, its PCI devices, and whether they go together.

    Its devices are those that device plugins name in its environment, those of its network namespace, and the GPUs of
    NVIDIA whose device files it has. `aligned` is null where that is unknown.

    Args:
        root: below which `sys`, `proc` and `dev` are.
        environment: of the process.

    Raises:
        InputError: the machine cannot be read.
    """
    machine = Machine.from_sysfs(root)
    status = (root / "proc/self/status").read_text("utf-8", "replace")
    lists = {
        key: CPUSet.parse(value, key)
        for key, _, value in (line.partition(":") for line in status.splitlines())
        if key.endswith("_allowed_list")
    }
    cpus = lists.get("Cpus_allowed_list", CPUSet()) & CPUSet.from_int(machine.cpus)
    own = [node for node, there in zip(machine.numa_node_ids, machine.node_cpus, strict=True) if there & int(cpus)]
    known = {device.address: device.numa_node for device in machine.pci_devices}
    only = machine.numa_node_ids[0] if len(machine.numa_nodes) == 1 else None
    devices = [
        {"address": address, "from": where, "numaNode": known.get(address, only) if only is None else only}
        for address, where in sorted(devices_of_self(root, environment).items())
    ]
    near = {one["numaNode"] for one in devices}
    aligned: bool | None = len(own) == 1 and near <= {*own}
    text = "aligned: all of it is on one NUMA node"
    if not own or (len(own) == 1 and None in near and near <= {*own, None}):
        missing = "the NUMA node of a device is not known" if own else "no CPU of a NUMA node may be used"
        aligned, text = None, f"unknown: {missing}"
    elif len(own) > 1:
        text = f"not aligned: CPUs of {len(own)} NUMA nodes may be used"
    elif not aligned:
        text = "not aligned: a device is on another NUMA node than the CPUs"
    return {
        "cpus": str(cpus),
        "numaNodes": own,
        "memoryNumaNodes": sorted(lists.get("Mems_allowed_list", CPUSet())),
        "devices": devices,
        "aligned": aligned,
        "text": text,
    }


def devices_of_self(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the PCI addresses of the devices that this process was given, and what says so."""
    found = {
        address: name
        for name, value in environment.items()
        if name.startswith(_DEVICE_VARIABLES)
        for address in _ADDRESS.findall(value.lower())
    }
    for folder in ("net", "infiniband"):
        for link in sorted((root / "sys/class" / folder).glob("*/device")):
            address = link.resolve().name
            if _ADDRESS.fullmatch(address):
                found.setdefault(address, f"{folder} {link.parent.name}")
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        minor = re.search(r"Device Minor:\s*(\d+)", information.read_text("utf-8", "replace"))
        if minor and (root / f"dev/nvidia{minor[1]}").exists():
            found.setdefault(information.parent.name.lower(), f"/dev/nvidia{minor[1]}")
    return found
