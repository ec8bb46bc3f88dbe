"""One call for every rank, `bind`: which part of this machine it has, and the binding to it; `split` shows all parts.

No rank talks to another: each computes the whole division, of what all of them may use, and takes
its own part.
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
    """Return equal, disjoint, aligned parts of a machine, by rank; `alignup.host.parts.cut` has the rule.

    >>> from alignup import split
    >>> [str(part.cpus) for part in split("align-up-article", 2)]
    ['0-3', '4-7']

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
    """
    loaded = _load(machine, devices or {}, inventory)
    sets = loaded.preferred_sets if preferred_sets is None and inventory is None else preferred_sets
    made = split_machine(
        loaded.machine,
        parts,
        cpus_per_part=cpus_per_part,
        devices=devices,
        inventory=loaded.devices,
        preferred_sets=sets,
        layout=layout or "",
        full_cores=full_cores,
    )
    return [_with_variables(part, loaded) for part in made]


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

    >>> part = bind()  # doctest: +SKIP

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
    """
    bound = ""
    if part is None and of is None:
        from alignup.host.launchers import local_rank  # noqa: PLC0415  # startup counts

        found = local_rank(os.environ)
        part, of, bound = found.rank, found.ranks, found.binding()

    if part is None or of is None or not 0 <= part < of:
        raise InputError.at(
            "bind", "a part below the number of parts, or neither of the two", f"{part} of {of}"
        )

    if memory not in MEMORY_MODES:
        raise InputError.at("memory", f"one of {', '.join(MEMORY_MODES)}", memory)

    wanted = {resource: count for resource, count in (devices or {}).items() if count}
    loaded = _load(_HERE, wanted, None)
    rules: dict[str, Any] = {
        "cpus_per_part": cpus or 0,
        "layout": layout or "",
        "full_cores": full_cores,
    }
    try:
        mine = _part_of(loaded, part, of, wanted, rules)
    except InputError as error:
        raise InputError(f"{error}; {bound}" if bound else str(error)) from None

    if bound:
        warn(bound)

    mine = _with_variables(mine, loaded)
    mine.bind(memory, threads=threads)
    return mine


def _part_of(
    loaded: LoadedMachine, rank: int, of: int, wanted: Mapping[str, int], rules: Mapping[str, Any]
) -> Part:
    """Return a part of a machine with the devices that the rank sees.

    Raises:
        InputError: the machine has too little.
    """
    known: Mapping[str, Sequence[Device]] = loaded.devices
    own: dict[str, tuple[str, ...]] = {}
    if wanted:
        seen = seen_devices(known, os.environ)
        own = {
            resource: tuple(device.id for device in seen[resource])
            for resource, count in wanted.items()
            if of > 1 and len(seen.get(resource, ())) == count < len(known[resource])
        }
        known = {**seen, **{resource: known[resource] for resource in own}}

    shared = {"inventory": known, "preferred_sets": loaded.preferred_sets, **rules}
    if not own:
        return split_machine(loaded.machine, of, devices=wanted, **shared)[rank]

    # one place for each set of devices that the machine has, of which the launcher gave this rank
    # one
    places = min(len(known[resource]) // wanted[resource] for resource in own)
    cut = split_machine(
        loaded.machine, max(places, of), devices=wanted if places >= of else {}, **shared
    )
    mine = next(
        (
            one
            for one in cut
            if all({*one.devices.get(name, ())} == {*ids} for name, ids in own.items())
        ),
        None,
    )
    if mine is None:
        warn(
            f"the devices that this rank was given ({own}) are those of no part: its CPUs may be "
            "far from them"
        )
        mine = cut[rank]

    return replace(mine, rank=rank, parts=of, devices={**mine.devices, **own})


def _load(
    source: Machine | str | os.PathLike[str],
    wanted: Mapping[str, int],
    inventory: Mapping[str, Sequence[Any]] | None,
) -> LoadedMachine:
    """Return a machine as work may be placed on it, with the devices that are asked for.

    Raises:
        InputError: it cannot be read.
    """
    from alignup.machine.device_inventory import LoadedMachine  # noqa: PLC0415  # startup counts

    is_here = not isinstance(source, Machine) and str(source) == _HERE
    if is_here and not wanted and inventory is None:
        from alignup.machine.sysfs.machine import read_sysfs  # noqa: PLC0415  # what `load_machine` does, sooner

        return LoadedMachine(_here(read_sysfs(_HERE)))

    from alignup.machine.load import load_with_devices, with_usual_devices  # noqa: PLC0415  # startup counts

    loaded = load_with_devices(
        source if isinstance(source, Machine) else str(source), devices=inventory
    )
    loaded = with_usual_devices(loaded, wanted, is_here=is_here)
    return replace(loaded, machine=_here(loaded.machine) if is_here else usable(loaded.machine))


def _here(machine: Machine) -> Machine:
    """Return this machine as this process may use it; one that was bound to isolated CPUs only may use these."""
    isolated = os.sched_getaffinity(0) <= {*machine.isolated_cpus, *machine.nohz_full_cpus}
    return reachable(usable(machine, isolated=isolated))


def _with_variables(part: Part, loaded: LoadedMachine) -> Part:
    """Return a part with the variables by which runtimes see its GPUs only; none where they could not number one."""
    if not part.devices:
        return part
    try:
        return replace(
            part, visible=visible_variables(part.devices, loaded.devices, loaded.machine)
        )
    except InputError as error:
        warn(f"no variable names the GPUs of part {part.rank}: {error}")
        return part
