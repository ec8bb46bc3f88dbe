"""What a text tells of a machine, and a machine made of what several texts tell.

Sets of CPUs are ints as bit sets: bit i is the CPU that the kernel numbers i.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, TypeVar

from alignup.errors import InputError, warn
from alignup.machine.bits import bit_numbers, union, unions
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.machine import Machine, NumaNode, PciDevice, cores_within, make_cores
from alignup.machine.nvidia import GPU_RESOURCE
from alignup.records import Record
from alignup.text.counting import some_of

_SHOWN: Final = 3
# Of a core, where nothing but the numbers of CPUs suggests it.
_THREADS: Final = 2
_T = TypeVar("_T")


class Gpu(Record):
    """A GPU as NVIDIA's driver lists it.

    Attributes:
        cpus: the CPUs that it is near; 0: not known.
        numa_nodes: the ids of the NUMA nodes that it is near; empty: not known.
    """

    name: str
    cpus: int = 0
    numa_nodes: tuple[int, ...] = ()


class Facts(Record):
    """What one text, or several, tell of a machine; None, or empty: they do not tell it.

    Attributes:
        nodes: by id, the CPUs of each NUMA node that are online.
        cores: the CPUs of each core.
        sockets: by number, the CPUs of each socket.
        memory: by the id of a NUMA node, bytes.
        distances: by the ids of two NUMA nodes.
        threads: the number of CPUs of each core.
        has_adjacent_threads: whether the CPUs of a core have numbers one after another, as on POWER
            and IBM Z.
    """

    nodes: Mapping[int, int] | None = None
    cores: tuple[int, ...] | None = None
    sockets: Mapping[int, int] | None = None
    l3_groups: tuple[int, ...] | None = None
    offline: int | None = None
    memory: Mapping[int, int] | None = None
    distances: Mapping[int, Mapping[int, int]] | None = None
    threads: int | None = None
    socket_count: int | None = None
    has_adjacent_threads: bool | None = None
    gpus: tuple[Gpu, ...] | None = None
    pci_devices: tuple[PciDevice, ...] | None = None


def machine_of_facts(told: Mapping[str, Facts], source: str) -> LoadedMachine | None:
    """Return the machine that some texts describe, and its GPUs; None: they tell no CPUs.

    What was assumed because no text tells it is warned of, as is what is not known.

    Args:
        told: by the name of each text what it tells; where several tell the same, the first counts.
        source: where the texts are, in warnings.

    Raises:
        InputError: two texts disagree on the CPUs of NUMA nodes, so that they are of different
            machines.
    """
    _check_same_nodes(told)
    known = {
        name: [getattr(one, name) for one in told.values()] for name in Facts.__record_fields__
    }
    facts = Facts(
        **{
            name: next((one for one in some if one is not None), None)
            for name, some in known.items()
        }
    )
    online = union(chain((facts.nodes or {}).values(), facts.cores or ()))
    if not online:
        return None

    assumed: list[str] = []
    nodes = {numa_id: cpus & online for numa_id, cpus in (facts.nodes or {0: online}).items()}
    if facts.nodes is None:
        assumed.append("that there is one NUMA node")

    for numa_id in chain(facts.memory or (), facts.distances or ()):
        nodes.setdefault(numa_id, 0)

    cores = facts.cores
    if cores is None:
        cores = tuple(_assumed_cores(nodes, facts))
        sample = next((core for core in cores if core & (core - 1)), 0)
        numbers = (
            f"{CPUSet.from_int(sample)} are a core, and so on" if sample else "each CPU is a core"
        )
        assumed.append(f"that CPUs are numbered in the usual way ({numbers})")

    sockets = facts.sockets
    if sockets is None:
        sockets = _assumed_sockets(
            nodes, cores, facts.socket_count or len([one for one in nodes.values() if one])
        )
        if facts.socket_count != 1:
            assumed.append("that sockets follow the order of NUMA nodes")

    made = make_cores((core & online for core in cores), sockets, facts.l3_groups or ())
    ids = sorted(nodes)
    memory, offline = facts.memory or {}, tuple(bit_numbers((facts.offline or 0) & ~online))
    placed = {one: cores_within(made, cpus) for one, cpus in nodes.items()}
    parts = (
        NumaNode(one, memory.get(one, 0), placed[one], (), _row(facts, one, ids)) for one in ids
    )
    apart = cores_within(made, online & ~union(nodes.values()))
    machine = Machine(tuple(parts), offline, facts.pci_devices or (), apart)
    if assumed:
        warn(f"assumed, since nothing in {source} tells it: {'; '.join(assumed)}; `lscpu -e` does")

    warn(
        f"not known from {source}: {', '.join(_unknown(facts, ids))}; `lscpu -e; numactl -H` "
        "tells more"
    )
    gpus = tuple(_placed(facts.gpus or (), nodes))
    return LoadedMachine(machine, {GPU_RESOURCE: gpus} if gpus else {})


def _check_same_nodes(told: Mapping[str, Facts]) -> None:
    """Refuse texts of different machines."""
    known = {name: facts.nodes for name, facts in told.items() if facts.nodes is not None}
    if not known:
        return

    first, *others = known
    for other in others:
        for numa_id in sorted({*known[first], *known[other]}):
            ours, theirs = (known[name].get(numa_id, 0) for name in (first, other))
            if ours != theirs:
                shown = " and ".join(
                    f"CPUs {CPUSet.from_int(cpus)}" if cpus else "no CPUs"
                    for cpus in (ours, theirs)
                )
                raise InputError(
                    f"{first} and {other} are of different machines: NUMA node {numa_id} has "
                    f"{shown} by them"
                )


def _assumed_cores(nodes: Mapping[int, int], facts: Facts) -> Iterator[int]:
    """Yield the CPUs of each core, as Linux mostly numbers them.

    On bare metal the first threads of all cores come before the second threads, so that the list of
    each NUMA node has a run for each thread. In many virtual machines, on POWER and on IBM Z the
    threads of a core have numbers one after another: where there are several NUMA nodes, each of
    them then is one run.
    """
    listed = {numa_id: list(bit_numbers(cpus)) for numa_id, cpus in nodes.items() if cpus}
    runs = {_runs(cpus) for cpus in nodes.values() if cpus}
    threads = facts.threads or (
        _THREADS if all(map(_is_in_two_runs, filter(None, nodes.values()))) else 1
    )
    adjacent = bool(facts.has_adjacent_threads) or (len(listed) > 1 and runs == {1})
    for cpus in listed.values():
        if len(cpus) % threads:
            yield from (1 << cpu for cpu in cpus)
            continue

        step = 1 if adjacent else len(cpus) // threads
        starts = range(0, len(cpus), threads) if adjacent else range(step)
        for start in starts:
            yield union(1 << cpus[start + step * thread] for thread in range(threads))


def _runs(cpus: int) -> int:
    """Return how many runs of numbers one after another a set of CPUs has."""
    return (cpus & ~(cpus << 1)).bit_count()


def _is_in_two_runs(cpus: int) -> bool:
    """Return whether a set of CPUs is two equal runs such as 0-3,8-11: first threads, and second threads."""
    first = cpus & ~(cpus + (cpus & -cpus))
    return (
        first != first & -first
        and _runs(cpus) == _THREADS
        and 2 * first.bit_count() == cpus.bit_count()
    )


def _assumed_sockets(nodes: Mapping[int, int], cores: Iterable[int], count: int) -> dict[int, int]:
    """Return equal parts of the cores, by NUMA node and number, as sockets."""
    place = {cpu: numa_id for numa_id, cpus in nodes.items() for cpu in bit_numbers(cpus)}
    lowest = [((core & -core).bit_length() - 1, core) for core in cores if core]
    ordered = [core for _, core in sorted(lowest, key=lambda one: (place.get(one[0], 0), one[0]))]
    return unions((index * count // len(ordered), core) for index, core in enumerate(ordered))


def _row(facts: Facts, numa_id: int, ids: list[int]) -> tuple[int, ...]:
    """Return the distances of a node by position; empty unless all rows are whole."""
    rows = facts.distances or {}
    if any(len(rows.get(one, {}).keys() & set(ids)) != len(ids) for one in ids):
        return ()
    return tuple(rows[numa_id][other] for other in ids)


def _placed(gpus: Iterable[Gpu], nodes: Mapping[int, int]) -> Iterator[Device]:
    """Yield the GPUs with the NUMA nodes that they are near: those of the driver, or those of their CPUs."""
    for gpu in gpus:
        named = tuple(one for one in gpu.numa_nodes if one in nodes)
        near = named or tuple(one for one, cpus in sorted(nodes.items()) if cpus & gpu.cpus)
        yield Device(gpu.name, near or None)


def _unknown(facts: Facts, ids: list[int]) -> Iterator[str]:
    """Yield what nothing tells, as far as it matters on such a machine."""
    if facts.memory is None:
        yield "memory (not checked)"
    if len(ids) > 1 and not _row(facts, ids[0], ids):
        yield "distances between NUMA nodes"
    if facts.l3_groups is None:
        yield "L3 caches"
    yield "hugepages (taken as none)"


def only_one(found: Iterable[_T], what: str) -> _T | None:
    """Return the one value that a text has, however often; None: it has none.

    Raises:
        InputError: it has different ones, as texts of two machines do.
    """
    values = list(dict.fromkeys(found))
    if len(values) > 1:
        shown = some_of([repr(value) for value in values], _SHOWN)
        raise InputError(
            f"{what} is there with different values ({shown}): leave the texts of one machine"
        )
    return values[0] if values else None
