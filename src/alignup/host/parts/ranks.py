"""One call for every rank, `bind`: which part of this machine it has, and the binding to it.

`split` shows all parts. No rank talks to another: each computes the whole division, of what all of
them may use, and takes its own part. With devices, `device_shares` has the rule, else `cut`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping

from alignup.errors import InputError, warn
from alignup.host.parts.cut import split_machine
from alignup.host.parts.device_shares import (
    DeviceParts,
    ShareRules,
    check_share,
)
from alignup.host.parts.part import MEMORY_MODES, Part
from alignup.host.parts.report import is_wanted, say_binding
from alignup.host.parts.usable import reachable, usable
from alignup.host.parts.visible_devices import (
    VISIBLE,
    HostFiles,
    Rank,
    Sight,
    sight,
    unread_variables,
    visible_variables,
)
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Machine
from alignup.records import replace
from alignup.text.counting import counted

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

    from alignup.machine.device_inventory import LoadedMachine

ORDERS: Final = ("local", "world")
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
    share: str = "",
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
        share: `machine` or `seen`: the parts that `bind` gives ranks with devices, in place of
            equal parts of the whole machine.

    Raises:
        InputError: the machine has too few CPUs or devices, a device is described wrongly, or there
            is no such machine.

    Examples:
        >>> from alignup import split
        >>> [str(part.cpus) for part in split("align-up-article", 2)]
        ['0-3', '4-7']
    """
    check_share(share)
    parts = _whole_number(parts, "parts")
    cpus_per_part = _whole_number(cpus_per_part, "cpus_per_part")
    counts = _device_counts(devices)
    loaded = _load(machine, counts, inventory)
    if preferred_sets is None and inventory is None:
        preferred_sets = loaded.preferred_sets

    if counts and share:
        sights = device_sights(loaded, counts, 0, 0, is_here=_is_here(machine))
        rules = ShareRules(share, cpus_per_part, full_cores, preferred_sets=preferred_sets or {})
        job = DeviceParts(loaded.machine, parts, counts, sights, rules, tuple(VISIBLE))
        return [_with_variables(job.part(rank), loaded, sights) for rank in range(parts)]

    cut = split_machine(
        loaded.machine,
        parts,
        cpus_per_part=cpus_per_part,
        devices=counts,
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
    share: str = "machine",
    oversubscribe: bool = False,
    memory: str = "preferred",
    threads: bool = True,
    order: str = "local",
    report: bool = False,
) -> Part:
    """Bind this process to its part of this machine, and return the part.

    Called in every rank with the same arguments, this gives each a part of its own, of what the
    process may use: within its affinity, its cpuset and the CPUs that are not isolated. Nothing is
    written and no lease taken; where others share the machine, `alignup.lease` arbitrates.

    Without devices, the parts are those of `split`. With devices, rank i has the i-th GPU that
    CUDA_VISIBLE_DEVICES or its like lists, or those that its launcher has left it, and the share
    that these have of the CPUs near them, see `share`.

    Args:
        part: the rank, counted from 0; None: as the launcher says (`alignup.host.launchers`).
        of: how many ranks there are on this machine; None: as the launcher says.
        devices: by resource, how many each, such as `{"nvidia.com/gpu": 1}`.
        cpus: how many CPUs each; None: as many whole cores as there are for everybody.
        layout: as `split` takes it; CPUs follow it then, and not the devices.
        full_cores: refuse to split a core.
        share: `machine`: the CPUs near devices are shared out among all such devices of the
            machine, so that jobs with other devices have other CPUs; `seen`: among those that this
            process sees, where nobody else needs CPUs.
        oversubscribe: let several ranks have one CPU or one device where there are fewer than
            ranks: rank i the device i modulo their number.
        memory: where memory comes from, see `Part.bind`.
        threads: bind the threads that are there already too.
        order: `local`: part i is the launcher's local rank i; `world`: the i-th of this machine in
            the order of the whole job's ranks, where the launcher tells it (see
            `LocalRank.by_world`). Only where `part` is None.
        report: say in a line on standard error where this rank is bound, as `mpirun
            --report-bindings` does. So does the variable ALIGNUP_REPORT_BINDINGS=1.

    Raises:
        InputError: no launcher says which part it is, there are too few CPUs or devices, or an
            argument cannot be.
        AllocationError: the kernel does not let the process use the CPUs.

    Examples:
        >>> part = bind()  # doctest: +SKIP
    """
    if order not in ORDERS:
        raise InputError.at("order", f"one of {', '.join(ORDERS)}", order)

    part, of, bound = _rank_of(part, of, order)
    if memory not in MEMORY_MODES:
        raise InputError.at("memory", f"one of {', '.join(MEMORY_MODES)}", memory)

    check_share(share or "none")
    counts = _device_counts(devices)
    cpus = _whole_number(cpus or 0, "cpus")
    loaded = _load(_HERE, counts, None)
    rules = ShareRules(share, cpus, full_cores, oversubscribe, loaded.preferred_sets)
    try:
        own_part = _part_of(loaded, part, of, counts, rules, layout or "")
    except InputError as error:
        raise InputError(f"{error}; {bound}" if bound else str(error)) from None

    if bound:
        warn(bound)
    for note in unread_variables(os.environ):
        warn(note)

    own_part.bind(memory, threads=threads)
    if report or is_wanted():
        # what the kernel made of it, within this thread's cpuset
        say_binding(f"rank {part} of {of}", CPUSet(os.sched_getaffinity(0)), own_part.devices)
    return own_part


def _rank_of(part: int | None, of: int | None, order: str) -> tuple[int, int, str]:
    """Return which part this process has, of how many, and words on how its launcher has bound it.

    Where a caller says neither, its launcher does.

    Raises:
        InputError: no launcher says it, or there is no such part.
    """
    if part is None and of is None:
        from alignup.host.launchers import local_rank  # noqa: PLC0415  # startup counts

        local = local_rank(os.environ)
        if order == "world":
            local = local.by_world(os.environ)
        return local.rank, local.ranks, local.binding()

    if part is not None and of is not None:
        part = _whole_number(part, "part")
        of = _whole_number(of, "of")
        if 0 <= part < of:
            return part, of, ""

    raise InputError.at(
        "bind", "a part below the number of parts, or neither of the two", f"{part} of {of}"
    )


def _whole_number(value: Any, place: str) -> int:
    """Return a number that a caller gave.

    Raises:
        InputError: it is none; the text of a variable, such as LOCAL_RANK, is none either.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise InputError.at(place, "a whole number", value) from None


def _device_counts(devices: Mapping[str, int] | None) -> dict[str, int]:
    """Return how many devices of each resource a caller wants, of those of which it wants any.

    Raises:
        InputError: they are no numbers by resource.
    """
    if not isinstance(devices, Mapping | None):
        raise InputError.at("devices", 'numbers such as {"nvidia.com/gpu": 1}', devices)

    counts = {
        resource: _whole_number(count, f"devices[{resource!r}]")
        for resource, count in (devices or {}).items()
    }
    return {resource: count for resource, count in counts.items() if count}


def device_sights(
    loaded: LoadedMachine,
    counts: Mapping[str, int],
    rank: int,
    of: int,
    *,
    is_here: bool = True,
) -> dict[str, Sight]:
    """Return the devices of some resources, and those that a rank sees.

    Raises:
        InputError: nothing tells which of the machine's GPUs this process may use.
    """
    files = HostFiles() if is_here else None
    environment: Mapping[str, str] = os.environ if is_here else {}
    return {
        resource: sight(loaded, resource, environment, Rank(rank, of, count), files)
        for resource, count in counts.items()
    }


def _part_of(
    loaded: LoadedMachine,
    rank: int,
    of: int,
    counts: Mapping[str, int],
    rules: ShareRules,
    layout: str,
) -> Part:
    """Return a part of a machine, with the devices that the rank sees.

    Raises:
        InputError: the machine has too little.
    """
    machine = loaded.machine
    sights = device_sights(loaded, counts, rank, of) if counts else {}
    if counts and not layout:
        job = DeviceParts(machine, of, counts, sights, rules, tuple(VISIBLE))
        for note in job.notes(rank):
            warn(note)

        return _with_variables(job.part(rank), loaded, sights)

    places = of
    if rules.oversubscribe:
        places = min(of, machine.cpu_count)
    elif of * max(1, rules.cpus) > machine.cpu_count:
        each = f" of {counted(rules.cpus, 'CPU')}" if rules.cpus else ""
        trouble = (
            f"{of} parts{each} are too many for the {counted(machine.cpu_count, 'CPU')} that this "
            "process may use"
        )
        if not rules.cpus:
            trouble += ": with oversubscribe=True several ranks share a CPU"
        raise InputError(trouble)

    own_ids = {
        resource: tuple(device.id for device in view.seen)
        for resource, view in sights.items()
        if view.is_one_rank_s(counts[resource])
    }
    parts = split_machine(
        machine,
        places,
        cpus_per_part=rules.cpus,
        devices={resource: count for resource, count in counts.items() if resource not in own_ids},
        inventory={resource: view.seen for resource, view in sights.items()},
        preferred_sets=loaded.preferred_sets,
        layout=layout,
        full_cores=rules.full_cores,
    )
    own_part = parts[rank % places]
    devices = {**own_part.devices, **own_ids}
    own_part = replace(own_part, rank=rank, parts=of, devices=devices)
    return _with_variables(own_part, loaded, sights)


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

    is_here = _is_here(source)
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


def _is_here(source: Machine | str | os.PathLike[str]) -> bool:
    """Return whether a machine that was asked for is the one that this process runs on."""
    return not isinstance(source, Machine) and str(source) == _HERE


def _here(machine: Machine) -> Machine:
    """Return this machine as this process may use it.

    A process that was bound to isolated CPUs only may use these.
    """
    isolated = os.sched_getaffinity(0) <= {*machine.isolated_cpus, *machine.nohz_full_cpus}
    return reachable(usable(machine, isolated=isolated))


def _with_variables(
    part: Part, loaded: LoadedMachine, sights: Mapping[str, Sight] | None = None
) -> Part:
    """Return a part with the variables by which runtimes see its GPUs only.

    There are none where they could not number one.
    """
    if not part.devices:
        return part

    numbered = {resource: sight.numbered for resource, sight in (sights or {}).items()}
    try:
        visible = visible_variables(
            part.devices, loaded.devices, loaded.machine, numbered, os.environ
        )
        return replace(part, visible=visible)
    except InputError as error:
        warn(f"no variable names the GPUs of part {part.rank}: {error}")
        return part
