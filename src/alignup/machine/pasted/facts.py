"""What a text tells of a machine, and a machine made of what several texts tell.

Sets of CPUs are ints as bit sets: bit i is the CPU that the kernel numbers i.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

from alignup.errors import InputError, warn
from alignup.machine.bits import bit_numbers, bit_set, union, unions
from alignup.machine.cpuset import CPU_COUNT_LIMIT, CPUSet
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.machine import (
    Machine,
    NumaNode,
    PciDevice,
    check_node_count,
    cores_within,
    make_cores,
)
from alignup.records import Record
from alignup.text.counting import some_of

# That of most servers with several NPUs; what Huawei's program lists does not name the model.
NPU_RESOURCE: Final = "huawei.com/Ascend910"

_SHOWN: Final = 3
# Of a core, where nothing but the numbers of CPUs suggests it.
_THREADS: Final = 2
_T = TypeVar("_T")


class Accelerator(Record):
    """A device as a program of its vendor lists it.

    Attributes:
        resource: that of a device plugin for such devices.
        cpus: the CPUs that it is near; 0: not known.
        numa_nodes: the ids of the NUMA nodes that it is near; empty: not known.
    """

    resource: str
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
    accelerators: tuple[Accelerator, ...] | None = None
    pci_devices: tuple[PciDevice, ...] | None = None


def check_counts(*, nodes: int = 0, cpus: int = 0) -> None:
    """Refuse more NUMA nodes or CPUs than a machine has, before anything is done with each.

    Raises:
        InputError: there are more.
    """
    check_node_count(nodes)
    if cpus > CPU_COUNT_LIMIT:
        raise InputError(f"machines may have up to {CPU_COUNT_LIMIT} CPUs, and this one has {cpus}")


def machine_of_facts(facts_by_text: Mapping[str, Facts], source: str) -> LoadedMachine | None:
    """Return the machine that some texts describe, and its devices; None: they tell no CPUs.

    What was assumed because no text tells it is warned of, as is what is not known.

    Args:
        facts_by_text: by the name of each text what it tells; where several tell the same, the
            first counts.
        source: where the texts are, in warnings.

    Raises:
        InputError: two texts disagree on the CPUs of NUMA nodes, so that they are of different
            machines.
    """
    _check_same_nodes(facts_by_text)
    facts = _first_facts(facts_by_text.values())
    online = union(chain((facts.nodes or {}).values(), facts.cores or ()))
    if not online:
        return None

    numa_ids = {*(facts.nodes or ()), *(facts.memory or ()), *(facts.distances or ())}
    check_counts(nodes=len(numa_ids), cpus=online.bit_count())
    assumed: list[str] = []
    nodes = {numa_id: cpus & online for numa_id, cpus in (facts.nodes or {0: online}).items()}
    if facts.nodes is None:
        assumed.append("that there is one NUMA node")

    for numa_id in chain(facts.memory or (), facts.distances or ()):
        nodes.setdefault(numa_id, 0)

    core_groups = facts.cores
    if core_groups is None:
        core_groups = tuple(_assumed_cores(nodes, facts))
        numbering = "each CPU is a core"
        sample = next((core for core in core_groups if core & (core - 1)), 0)
        if sample:
            numbering = f"{CPUSet.from_int(sample)} are a core, and so on"
        assumed.append(f"that CPUs are numbered in the usual way ({numbering})")

    sockets = facts.sockets
    if sockets is None:
        socket_count = facts.socket_count or len(list(filter(None, nodes.values())))
        sockets = _assumed_sockets(nodes, core_groups, socket_count)
        if facts.socket_count != 1:
            assumed.append("that sockets follow the order of NUMA nodes")

    cores = make_cores((core & online for core in core_groups), sockets, facts.l3_groups or ())
    memory = facts.memory or {}
    ids = sorted(nodes)
    numa_nodes = [
        NumaNode(
            numa_id,
            memory=memory.get(numa_id, 0),
            cores=cores_within(cores, nodes[numa_id]),
            distances=_row(facts, numa_id, ids),
        )
        for numa_id in ids
    ]
    devices = _devices(facts_by_text, nodes)
    if NPU_RESOURCE in devices:
        assumed.append(f"that the NPUs are {NPU_RESOURCE}")

    machine = Machine(
        tuple(numa_nodes),
        offline_cpus=tuple(bit_numbers((facts.offline or 0) & ~online)),
        pci_devices=facts.pci_devices or (),
        unassigned_cores=cores_within(cores, online & ~union(nodes.values())),
        knows_devices=False,
    )

    if assumed:
        warn(f"assumed, since nothing in {source} tells it: {'; '.join(assumed)}; `lscpu -e` does")

    warn(
        f"not known from {source}: {', '.join(_unknown(facts, ids))}; `lscpu -e; numactl -H` "
        "tells more"
    )
    return LoadedMachine(machine, devices)


def _first_facts(facts_of_texts: Iterable[Facts]) -> Facts:
    """Return of each kind what the first text tells that tells any of it."""
    first: dict[str, Any] = {}
    for facts in facts_of_texts:
        for name in Facts.__record_fields__:
            value = getattr(facts, name)
            if value is not None:
                first.setdefault(name, value)

    return Facts(**first)


def _check_same_nodes(facts_by_text: Mapping[str, Facts]) -> None:
    """Refuse texts of different machines."""
    nodes_by_text = {
        name: facts.nodes for name, facts in facts_by_text.items() if facts.nodes is not None
    }
    if not nodes_by_text:
        return

    first_name, *names = nodes_by_text
    first_nodes = nodes_by_text[first_name]
    for name in names:
        nodes = nodes_by_text[name]
        for numa_id in sorted({*first_nodes, *nodes}):
            first_cpus = first_nodes.get(numa_id, 0)
            cpus = nodes.get(numa_id, 0)
            if cpus != first_cpus:
                raise InputError(
                    f"{first_name} and {name} are of different machines: NUMA node {numa_id} has "
                    f"{_cpus_in_words(first_cpus)} and {_cpus_in_words(cpus)} by them"
                )


def _cpus_in_words(cpus: int) -> str:
    return f"CPUs {CPUSet.from_int(cpus)}" if cpus else "no CPUs"


def _assumed_cores(nodes: Mapping[int, int], facts: Facts) -> Iterator[int]:
    """Yield the CPUs of each core, as Linux mostly numbers them.

    On bare metal the first threads of all cores come before the second threads, so that the list of
    each NUMA node has a run for each thread. In many virtual machines, on POWER and on IBM Z the
    threads of a core have numbers one after another: where there are several NUMA nodes, each of
    them then is one run.
    """
    cpus_of_nodes = [cpus for cpus in nodes.values() if cpus]
    threads = facts.threads
    if not threads:
        threads = _THREADS if all(map(_is_in_two_runs, cpus_of_nodes)) else 1

    are_single_runs = all(_runs(cpus) == 1 for cpus in cpus_of_nodes)
    is_adjacent = facts.has_adjacent_threads or (len(cpus_of_nodes) > 1 and are_single_runs)
    for node_cpus in cpus_of_nodes:
        cpus = list(bit_numbers(node_cpus))
        core_count, extra = divmod(len(cpus), threads)
        if extra:
            yield from (1 << cpu for cpu in cpus)
        elif is_adjacent:
            for start in range(0, len(cpus), threads):
                yield bit_set(cpus[start : start + threads])
        else:
            for start in range(core_count):
                yield bit_set(cpus[start::core_count])


def _runs(cpus: int) -> int:
    """Return how many runs of numbers one after another a set of CPUs has."""
    return (cpus & ~(cpus << 1)).bit_count()


def _is_in_two_runs(cpus: int) -> bool:
    """Return whether a set of CPUs is two equal runs, of first and second threads, as 0-3,8-11."""
    first = cpus & ~(cpus + (cpus & -cpus))
    return (
        first != first & -first
        and _runs(cpus) == _THREADS
        and 2 * first.bit_count() == cpus.bit_count()
    )


def _assumed_sockets(nodes: Mapping[int, int], cores: Iterable[int], count: int) -> dict[int, int]:
    """Return equal parts of the cores, by NUMA node and number, as sockets."""
    node_of_cpu = {cpu: numa_id for numa_id, cpus in nodes.items() for cpu in bit_numbers(cpus)}

    def place(core: int) -> tuple[int, int]:
        lowest_cpu = (core & -core).bit_length() - 1
        return node_of_cpu.get(lowest_cpu, 0), lowest_cpu

    ordered = sorted(filter(None, cores), key=place)
    return unions((index * count // len(ordered), core) for index, core in enumerate(ordered))


def _row(facts: Facts, numa_id: int, ids: list[int]) -> tuple[int, ...]:
    """Return the distances of a node by position; empty unless all rows are whole."""
    rows = facts.distances or {}
    for row_id in ids:
        if not rows.get(row_id, {}).keys() >= set(ids):
            return ()

    return tuple(rows[numa_id][column_id] for column_id in ids)


def _devices(
    facts_by_text: Mapping[str, Facts], nodes: Mapping[int, int]
) -> dict[str, tuple[Device, ...]]:
    """Return the devices by resource, with the NUMA nodes that they are near.

    Raises:
        InputError: two texts place devices of a resource differently, or a device is near what the
            machine does not have.
    """
    devices: dict[str, tuple[Device, ...]] = {}
    first_texts: dict[str, str] = {}
    for text, facts in facts_by_text.items():
        placed: dict[str, list[Device]] = {}
        for accelerator in facts.accelerators or ():
            placed.setdefault(accelerator.resource, []).append(_placed(accelerator, nodes, text))

        for resource, devices_of_text in placed.items():
            first_text = first_texts.setdefault(resource, text)
            if devices.setdefault(resource, tuple(devices_of_text)) != tuple(devices_of_text):
                raise InputError(
                    f"{first_text} and {text} are of different machines: {resource} are not near "
                    "the same NUMA nodes by them"
                )

    return devices


def _placed(accelerator: Accelerator, nodes: Mapping[int, int], text: str) -> Device:
    """Return a device with the NUMA nodes that it is near.

    These are those that the driver names, or those of its CPUs.

    Raises:
        InputError: the machine has none of them.
    """
    numa_ids = [numa_id for numa_id in accelerator.numa_nodes if numa_id in nodes]
    if not numa_ids:
        numa_ids = [numa_id for numa_id, cpus in sorted(nodes.items()) if cpus & accelerator.cpus]

    if not numa_ids and (accelerator.numa_nodes or accelerator.cpus):
        places = []
        if accelerator.numa_nodes:
            places.append(f"NUMA nodes {CPUSet(accelerator.numa_nodes)}")
        if accelerator.cpus:
            places.append(f"CPUs {CPUSet.from_int(accelerator.cpus)}")

        raise InputError(
            f"{accelerator.name} is near {' and '.join(places)} by {text}, and the machine has "
            f"NUMA nodes {CPUSet(nodes)}: give outputs of one machine"
        )

    return Device(accelerator.name, tuple(numa_ids) or None)


def _unknown(facts: Facts, ids: list[int]) -> Iterator[str]:
    """Yield what nothing tells, as far as it matters on such a machine."""
    if facts.memory is None:
        yield "memory (not checked)"
    if len(ids) > 1 and not _row(facts, ids[0], ids):
        yield "distances between NUMA nodes"
    if facts.l3_groups is None:
        yield "L3 caches"
    yield "hugepages (taken as none)"


def only_one(occurrences: Iterable[_T], label: str) -> _T | None:
    """Return the one value that a text has, however often; None: it has none.

    Raises:
        InputError: it has different ones, as texts of two machines do.
    """
    values = list(dict.fromkeys(occurrences))
    if len(values) > 1:
        shown = some_of([repr(value) for value in values], _SHOWN)
        raise InputError(
            f"{label} is there with different values ({shown}): leave the texts of one machine"
        )

    return values[0] if values else None
