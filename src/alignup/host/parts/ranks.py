"""One call for every rank, `bind`: which part of this machine it has, and the binding to it.

`split` shows all parts. No rank talks to another: each computes the whole division, of what all of
them may use, and takes its own part.
"""

from __future__ import annotations

import os

from alignup.errors import InputError, warn
from alignup.host.parts.cut import split_machine
from alignup.host.parts.part import MEMORY_MODES, Part, seen_devices, visible_variables
from alignup.host.parts.usable import reachable, usable
from alignup.machine.machine import Machine
from alignup.records import replace

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

    from alignup.machine.device_inventory import Device, LoadedMachine

_HERE: Final = "/"


def split(
    machine: Machine | str | os.PathLike[str],
    parts: int,
    *,
    cpus_per_part: int = 0,
    devices: Mapping[str, int] | None = None,
    inventory: Mapping[str, Sequence[Any]] | None = None,
    preferred_sets: Mapping[str, Sequence[Sequence[str]]] | None = None,
    layout: str | None = None,
    full_cores: bool = False,
) -> list[Part]:
    """Return equal, disjoint, aligned parts of a machine, by rank.

    `alignup.host.parts.cut` has the rule.

    Args:
        machine: the machine, or what `read_machine` takes; the devices that it comes with are known
            then, and so are GPUs among its PCI devices. `/` is this machine, as far as this process
            may use it.
        parts: how many.
        cpus_per_part: how many CPUs each; 0: as many whole cores as there are for everybody.
        devices: by resource, how many devices each.
        inventory: by resource, the devices of the machine: `Device` records, or mappings with `id`
            and `numa`.
        preferred_sets: by resource, ids of devices that belong together.
        layout: deal parts out rank by rank over `numa`, `socket`, `l3` or `core`, as mpirun's
            `--map-by` does.
        full_cores: refuse to split a core.

    Raises:
        InputError: the machine has too few CPUs or devices, a device is described wrongly, or there
            is no such machine.

    Examples:
        >>> from alignup import split
        >>> [str(part.cpus) for part in split("align-up-article", 2)]
        ['0-3', '4-7']
    """
    loaded = _load(machine, devices or {}, inventory)
    if preferred_sets is None and inventory is None:
        preferred_sets = loaded.preferred_sets

    cut = split_machine(
        loaded.machine,
        parts,
        cpus_per_part=cpus_per_part,
        devices=devices,
        inventory=loaded.devices,
        preferred_sets=preferred_sets,
        layout=layout or "",
        full_cores=full_cores,
    )
    return [_with_variables(part, loaded) for part in cut]


def bind(
    part: int | None = None,
    of: int | None = None,
    *,
    devices: Mapping[str, int] | None = None,
    cpus: int | None = None,
    layout: str | None = None,
    full_cores: bool = False,
    memory: str = "preferred",
    threads: bool = True,
) -> Part:
    """Bind this process to its part of this machine, and return the part.

    Called in every rank with the same arguments, this gives each a part of its own, as `split`
    would cut what the process may use: within its affinity, its cpuset and the CPUs that are not
    isolated. Nothing is written and no lease taken; where others share the machine, `alignup.lease`
    arbitrates.

    With devices, GPU i of the machine is the GPU that CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES
    lists at i. Where these leave the rank only as many as it asks for, its launcher has given it
    these, and its CPUs are near them.

    Args:
        part: the rank, counted from 0; None: as the launcher says (`alignup.host.launchers`).
        of: how many ranks there are on this machine; None: as the launcher says.
        devices: by resource, how many each, such as `{"nvidia.com/gpu": 1}`.
        cpus: how many CPUs each; None: as many whole cores as there are for everybody.
        layout: as `split` takes it.
        full_cores: refuse to split a core.
        memory: where memory comes from, see `Part.bind`.
        threads: bind the threads that are there already too.

    Raises:
        InputError: no launcher says which part it is, there are too few CPUs or devices, or an
            argument cannot be.
        AllocationError: the kernel does not let the process use the CPUs.

    Examples:
        >>> part = bind()  # doctest: +SKIP
    """
    bound = ""
    if part is None and of is None:
        from alignup.host.launchers import local_rank  # noqa: PLC0415  # startup counts

        local = local_rank(os.environ)
        part = local.rank
        of = local.ranks
        bound = local.binding()

    if part is None or of is None or not 0 <= part < of:
        raise InputError.at(
            "bind", "a part below the number of parts, or neither of the two", f"{part} of {of}"
        )

    if memory not in MEMORY_MODES:
        raise InputError.at("memory", f"one of {', '.join(MEMORY_MODES)}", memory)

    counts = {resource: count for resource, count in (devices or {}).items() if count}
    loaded = _load(_HERE, counts, None)
    rules: dict[str, Any] = {
        "cpus_per_part": cpus or 0,
        "layout": layout or "",
        "full_cores": full_cores,
    }
    try:
        own_part = _part_of(loaded, part, of, counts, rules)
    except InputError as error:
        raise InputError(f"{error}; {bound}" if bound else str(error)) from None

    if bound:
        warn(bound)

    own_part = _with_variables(own_part, loaded)
    own_part.bind(memory, threads=threads)
    return own_part


def _part_of(
    loaded: LoadedMachine, rank: int, of: int, counts: Mapping[str, int], rules: Mapping[str, Any]
) -> Part:
    """Return a part of a machine with the devices that the rank sees.

    Raises:
        InputError: the machine has too little.
    """
    inventory: dict[str, Sequence[Device]] = dict(loaded.devices)
    # What the launcher gave this rank only.
    own_ids: dict[str, tuple[str, ...]] = {}
    if counts:
        visible = seen_devices(inventory, os.environ)
        for resource, count in counts.items():
            devices = visible.get(resource, ())
            if of > 1 and len(devices) == count < len(inventory[resource]):
                own_ids[resource] = tuple(device.id for device in devices)
            elif resource in visible:
                inventory[resource] = devices

    shared = {"inventory": inventory, "preferred_sets": loaded.preferred_sets, **rules}
    if not own_ids:
        return split_machine(loaded.machine, of, devices=counts, **shared)[rank]

    # one place for each set of devices that the machine has, of which the launcher gave this rank
    # one
    places = min(len(inventory[resource]) // counts[resource] for resource in own_ids)
    shared["devices"] = counts if places >= of else {}
    parts = split_machine(loaded.machine, max(places, of), **shared)
    own_part = next((part for part in parts if _has_devices(part, own_ids)), None)
    if own_part is None:
        warn(
            f"the devices that this rank was given ({own_ids}) are those of no part: its CPUs may "
            "be far from them"
        )
        own_part = parts[rank]

    return replace(own_part, rank=rank, parts=of, devices={**own_part.devices, **own_ids})


def _has_devices(part: Part, own_ids: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a part has just these devices of their resources."""
    return all(set(part.devices.get(name, ())) == set(ids) for name, ids in own_ids.items())


def _load(
    source: Machine | str | os.PathLike[str],
    counts: Mapping[str, int],
    inventory: Mapping[str, Sequence[Any]] | None,
) -> LoadedMachine:
    """Return a machine as work may be placed on it, with the devices that are asked for.

    Raises:
        InputError: it cannot be read.
    """
    from alignup.machine.device_inventory import LoadedMachine  # noqa: PLC0415  # startup counts

    is_here = not isinstance(source, Machine) and str(source) == _HERE
    if is_here and not counts and inventory is None:
        # what `load_machine` does, sooner
        from alignup.machine.sysfs.machine import read_sysfs  # noqa: PLC0415

        return LoadedMachine(_here(read_sysfs(_HERE)))

    # startup counts
    from alignup.machine.load import load_with_devices, with_usual_devices  # noqa: PLC0415

    if not isinstance(source, Machine):
        source = str(source)
    loaded = load_with_devices(source, devices=inventory)
    loaded = with_usual_devices(loaded, counts, is_here=is_here)
    machine = _here(loaded.machine) if is_here else usable(loaded.machine)
    return replace(loaded, machine=machine)


def _here(machine: Machine) -> Machine:
    """Return this machine as this process may use it.

    A process that was bound to isolated CPUs only may use these.
    """
    isolated = os.sched_getaffinity(0) <= {*machine.isolated_cpus, *machine.nohz_full_cpus}
    return reachable(usable(machine, isolated=isolated))


def _with_variables(part: Part, loaded: LoadedMachine) -> Part:
    """Return a part with the variables by which runtimes see its GPUs only.

    There are none where they could not number one.
    """
    if not part.devices:
        return part

    try:
        visible = visible_variables(part.devices, loaded.devices, loaded.machine)
        return replace(part, visible=visible)
    except InputError as error:
        warn(f"no variable names the GPUs of part {part.rank}: {error}")
        return part
