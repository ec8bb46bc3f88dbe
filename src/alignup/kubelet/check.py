"""Checks the files of a kubelet against each other, the machine, the configuration and the pods; writes nothing.

The states of CPU manager and memory manager are checked as `validateState` of `pkg/kubelet/cm/cpumanager` and
`memorymanager/policy_static.go` does, with its messages letter for letter.

What the kubelet does about each kind of finding, and the repair, is in `findings.json`. The effects were seen with a
kubelet 1.36 that was started on such files (`tests/rig/test_faults.py`); words in quotation marks are from its log.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.kubelet.checkpoints import (
    KubeletState,
    MemoryState,
    MemoryTable,
    NumaNodeState,
    read_checkpoints,
    state_of,
)
from alignup.kubelet.layout import CPU_STATE, DEVICE_CHECKPOINT, MEMORY_STATE, FolderFiles, NodeFiles
from alignup.kubelet.read import KubeletOptions, NodeRecords, config_of, machine_of, read_records, stale_entries
from alignup.kubernetes.versions import KubeletVersion, release_of
from alignup.machine.bits import union
from alignup.machine.cpuset import CPUSet
from alignup.providers.cpu.provider import reserved_cpus
from alignup.records import Record, json_fields, replace
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from alignup.kubelet.checkpoints import CpuState, DeviceCheckpoint
    from alignup.kubelet.pod_resources import Allocatable
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.machine import Machine

_KINDS: Final = {CPU_STATE: "cpu", MEMORY_STATE: "memory", DEVICE_CHECKPOINT: "device"}
"""By path, the first word of the findings about it."""
_UNSURE: Final = ("-file-damaged", "-checksum", "-format")
"""Ends of the kinds of findings about formats, which another release may have changed."""
_POD_LEVEL_GATE = "PodLevelResourceManagers"
_GATED_FORMATS = 2


def check_node(files: NodeFiles, options: KubeletOptions) -> list[Finding]:
    """Return all that is wrong with the files of a kubelet.

    Args:
        files: the node's files.
        options: as those of `Node.from_kubelet`; `devices` and `kubelet_dir` do not matter.

    Raises:
        InputError: there is no file of a kubelet, or something else than a state file is damaged.
    """
    found: list[Finding] = []
    values: dict[str, Any] = {}
    damaged: set[str] = set()

    def read(version: KubeletVersion) -> KubeletState:
        for path, one in read_checkpoints(files, version):
            if isinstance(one, InputError):
                found.append(finding(f"{_KINDS[path]}-file-damaged", files.place(path), str(one)))
                damaged.add(path)
            else:
                values[path] = one
                found.extend(_owner(files, path))
        return state_of(values)

    records = read_records(files, options, read)
    machine = options.get("machine") or (machine_of(files) if files.kernel is not None else None)
    try:
        config = config_of(records, machine)
    except InputError as error:
        return [*found, finding("configuration", records.configuration.source, str(error))]
    found += _missing(records, config, {*values, *damaged})
    found += _formats(files, values, config)
    wrong = {one.file for one in found}
    intact = {path: value for path, value in values.items() if files.place(path) not in wrong}
    if records.newer:
        doubt = f"as kubelet {records.version} reads it; what {records.newer} reads is not known"
        found = [replace(one, text=f"{one.text} ({doubt})") if one.kind.endswith(_UNSURE) else one for one in found]
    return [*found, *_contents(replace(records, state=state_of(intact)), machine, config)]


def _owner(files: NodeFiles, path: str) -> Iterator[Finding]:
    """Yield that a file is not its folder's owner's."""
    if isinstance(files, FolderFiles):
        owner, folders = files.path_of(path).stat().st_uid, files.path_of(path).parent.stat().st_uid
        if owner != folders:
            text = f"the file is user {owner}'s, and its folder user {folders}'s"
            yield finding("owner", files.place(path), text)


def _missing(records: NodeRecords, config: KubeletConfig, there: Collection[str]) -> Iterator[Finding]:
    """Yield the files that should be there."""
    files = records.files
    wanted = {
        CPU_STATE: config.cpu_manager_policy == "static",
        MEMORY_STATE: config.memory_manager_policy == "Static",
        # without a device plugin there is none
        DEVICE_CHECKPOINT: bool(records.allocatable and records.allocatable.devices),
    }
    gone = [path for path, is_wanted in wanted.items() if is_wanted and path not in there]
    if gone and not there:
        folder = files.place(CPU_STATE).removesuffix("/cpu_manager_state")
        yield finding("no-state", folder, "the kubelet's folder has no state file")
        return
    for path in gone:
        yield finding(f"{_KINDS[path]}-file-missing", files.place(path), "there is no such file")


def _formats(files: NodeFiles, values: dict[str, Any], config: KubeletConfig) -> Iterator[Finding]:
    """Yield wrong checksums, and formats that a kubelet of this configuration does not take."""
    # a kubelet that knows more formats than those takes each of them, whatever its gates are
    takes_all = len(release_of(config.version).checkpoints["memory_manager_state"]) > _GATED_FORMATS
    newest = 3 if takes_all or config.feature_gates.get(_POD_LEVEL_GATE) else 2
    for path, value in values.items():
        name = _KINDS[path]
        version = getattr(value, "version", 0) + (path == MEMORY_STATE)
        if not value.is_intact:
            text = f"the checksum is {value.checksum}, and that of what is written {value.expected_checksum}"
            yield finding(f"{name}-checksum", files.place(path), text)
        elif version > newest and not takes_all:
            text = f"it is written with the feature gate {_POD_LEVEL_GATE}, which is off"
            yield finding("newer-format", files.place(path), text)


def _contents(records: NodeRecords, machine: Machine | None, config: KubeletConfig) -> Iterator[Finding]:
    """Yield what is wrong with what the files say."""
    state, place = records.state, records.files.place
    if state.cpu is not None:
        cpus = None if machine is None else CPUSet.from_int(machine.cpus)
        reserved = config.reserved_system_cpus
        if machine is not None and config.reserved_cpu_count:
            reserved = CPUSet.from_int(
                reserved_cpus(machine, config.reserved_cpu_count, config.cpu_manager_policy_options, config.profile)
            )
        yield from check_cpus(state.cpu, place(CPU_STATE), config, reserved, cpus)
    if state.memory is not None:
        yield from check_memory(state.memory, place(MEMORY_STATE), config, machine)
    if state.devices is not None:
        yield from check_devices(state.devices, place(DEVICE_CHECKPOINT), records.allocatable)
    yield from check_stale(state, stale_entries(records), place)
    running = [one.pod for one in records.pods or () if one.phase == "Running"]
    resources = frozenset(state.devices.registered if state.devices else ())
    yield from check_pods(state, [pod.read_as(config.profile.pods) for pod in running], config, resources, place)


def check_cpus(
    state: CpuState, file: str, config: KubeletConfig, reserved: CPUSet, cpus: CPUSet | None
) -> Iterator[Finding]:
    """Yield what is wrong.

    Args:
        state: what is written.
        file: its name.
        config: the kubelet's configuration.
        reserved: the CPUs that it reserves.
        cpus: the CPUs of the machine that are online; None: not known.
    """
    if state.policy != config.cpu_manager_policy:
        wanted = config.cpu_manager_policy
        message = f'configured policy "{wanted}" differs from state checkpoint policy "{state.policy}"'
        yield finding("cpu-policy", file, f"written under the policy {state.policy or 'of no name'}", message)
        return
    if config.cpu_manager_policy != "static":
        return
    if not state.shared:
        if state.entries:
            yield finding("cpus-changed", file, "the shared pool is empty", "default cpuset cannot be empty")
        return
    strict = config.cpu_manager_policy_options.strict_cpu_reservation
    yield from _reserved(state, file, reserved, strict=strict)
    yield from _overlaps(state, file)
    if cpus is not None:
        yield from _changed_cpus(state, file, CPUSet(cpus - reserved) if strict else cpus)


def _reserved(state: CpuState, file: str, reserved: CPUSet, *, strict: bool) -> Iterator[Finding]:
    """Yield that reserved CPUs are not where they must be."""
    inside = CPUSet(reserved & state.shared)
    if strict and inside:
        yield finding(
            "reserved-cpus",
            file,
            f"CPUs {inside} are reserved and in the shared pool, which strict-cpu-reservation forbids",
            f'some of strictly reserved cpus: "{inside}" are present in defaultCpuSet: "{state.shared}"',
        )
    elif not strict and inside != reserved:
        yield finding(
            "reserved-cpus",
            file,
            f"CPUs {CPUSet(reserved - state.shared)} are reserved now, and were given to containers before",
            f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{state.shared}"',
        )


def _overlaps(state: CpuState, file: str) -> Iterator[Finding]:
    """Yield CPUs that are in the shared pool and a container's, or two pods'."""
    for uid, containers in state.entries.items():
        for name, cpus in containers.items():
            both = CPUSet(cpus & state.shared)
            if both:
                yield finding(
                    "cpu-overlap",
                    file,
                    f"CPUs {both} of container {name} of pod {uid} are in the shared pool too",
                    f'pod: {uid}, container: {name} cpuset: "{cpus}" overlaps with default cpuset "{state.shared}"',
                )
    pods = [
        (uid, CPUSet(cpu for cpus in containers.values() for cpu in cpus)) for uid, containers in state.entries.items()
    ]
    for (one, mine), (other, theirs) in combinations(pods, 2):
        if int(mine) & int(theirs):
            yield finding(
                "cpus-given-twice", file, f"CPUs {CPUSet(mine & theirs)} are both pod {one}'s and pod {other}'s"
            )


def _changed_cpus(state: CpuState, file: str, cpus: CPUSet) -> Iterator[Finding]:
    """Yield that the machine's CPUs are not those of the state."""
    held = [cpus for containers in state.entries.values() for cpus in containers.values()]
    written = CPUSet.from_int(union(map(int, [state.shared, *held, *state.pods.values()])))
    if written == cpus:
        return
    gone, more = CPUSet(written - cpus), CPUSet(cpus - written)
    words = [
        f"{words} {some}"
        for some, words in ((gone, "the machine has no CPUs"), (more, "nobody holds or shares CPUs"))
        if some
    ]
    yield finding(
        "cpus-changed",
        file,
        " and ".join(words),
        f'current set of available CPUs "{cpus}" doesn\'t match with CPUs in state "{written}"',
    )


def check_memory(state: MemoryState, file: str, config: KubeletConfig, machine: Machine | None) -> Iterator[Finding]:
    """Yield what is wrong.

    Args:
        state: what is written.
        file: its name.
        config: the kubelet's configuration.
        machine: the machine; None: not known.
    """
    policy = config.memory_manager_policy
    if state.policy != policy:
        message = f'[memorymanager] configured policy "{policy}" differs from state checkpoint policy "{state.policy}"'
        yield finding("memory-policy", file, f"written under the policy {state.policy or 'of no name'}", message)
        return
    if policy != "Static" or not state.nodes:
        return
    fresh = state.nodes if machine is None else fresh_nodes(machine, config)
    unknown = list(_unknown(state, file, fresh))
    yield from unknown
    changed = list(_changed_memory(state, file, fresh))
    yield from changed
    if not unknown and not changed:
        yield from _books(state, file)


def fresh_nodes(machine: Machine, config: KubeletConfig) -> dict[int, NumaNodeState]:
    """Return the state that a memory manager writes on an empty node (`getDefaultMachineState`)."""
    kept = {(one.numa_node, kind): size for one in config.reserved_memory for kind, size in one.limits}
    found = {}
    for node in machine.numa_nodes:
        tables: dict[str, MemoryTable | None] = {}
        for kind, size in node.memory_by_type.items():
            reserved = kept.get((node.id, kind), 0)
            total = node.memory if kind == "memory" else size  # the kubelet counts the pages too
            tables[kind] = MemoryTable(total, reserved, size - reserved, 0, size - reserved)
        found[node.id] = NumaNodeState(assignments=0, tables=tables, cells=(node.id,))
    return found


def _unknown(state: MemoryState, file: str, nodes: Mapping[int, NumaNodeState]) -> Iterator[Finding]:
    """Yield blocks on NUMA nodes, or of types, that the machine does not have."""
    for uid, containers in state.entries.items():
        for name, blocks in containers.items():
            for block in blocks:
                where = f"container {name} of pod {uid} has {block.type}"
                told = f"[memorymanager] (pod: {uid}, container: {name}) the memory assignment uses"
                strange = [one for one in block.numa_nodes if one not in nodes]
                if strange:
                    text = f"{where} of NUMA node {strange[0]}, which the machine does not have"
                    yield finding("memory-unknown", file, text, f"{told} the NUMA that does not exist")
                elif any(block.type not in (nodes[one].tables or {}) for one in block.numa_nodes):
                    text = f"{where}, which the machine does not have"
                    yield finding("memory-unknown", file, text, f"{told} memory resource that does not exist")


def _changed_memory(state: MemoryState, file: str, fresh: Mapping[int, NumaNodeState]) -> Iterator[Finding]:
    """Yield what there is on the machine, or reserved, and is not what was written."""
    for numa_id in sorted({*state.nodes, *fresh}):
        if numa_id not in fresh or numa_id not in state.nodes:
            who = "the machine has no" if numa_id not in fresh else "the file has no"
            yield finding("memory-changed", file, f"{who} NUMA node {numa_id}")
            continue
        then, now = state.nodes[numa_id], fresh[numa_id]
        for kind in sorted({*(then.tables or {}), *(now.tables or {})}):
            before, after = then.table(kind), now.table(kind)
            for what, old, new in (
                (kind, before.total, after.total),
                (f"{kind} that is reserved", before.system_reserved, after.system_reserved),
                (f"{kind} for pods", before.allocatable, after.allocatable),
            ):
                if old != new:
                    yield finding("memory-changed", file, _difference(numa_id, what, new, old))
                    break
            else:
                if (kind in (then.tables or {})) != (kind in (now.tables or {})):
                    yield finding(
                        "memory-changed", file, f"NUMA node {numa_id} has {kind} in one of file and machine only"
                    )


def _difference(numa_id: int, what: str, now: int, then: int) -> str:
    """Return two amounts in words; in bytes where short ones look alike."""
    new, old = short_bytes(now), short_bytes(then)
    if new == old:
        new, old = f"{now} bytes", f"{then} bytes"
    return f"NUMA node {numa_id} has {new} of {what}, and had {old} when the file was written"


def _books(state: MemoryState, file: str) -> Iterator[Finding]:
    """Yield where free and held memory do not follow from the blocks of containers."""
    held = [
        block
        for uid, containers in state.entries.items()
        for blocks in ([state.pods[uid]] if uid in state.pods else containers.values())
        for block in blocks
    ]
    for numa_id, node in sorted(state.nodes.items()):
        count = sum(numa_id in block.numa_nodes for block in held)
        if count != node.assignments:
            text = f"NUMA node {numa_id} has {node.assignments} assignments, and {count} blocks lie on it"
            yield finding("memory-books", file, text)
            continue
        cells = [one for one in node.cells or () if one in state.nodes]
        for kind in node.tables or {}:
            tables = [state.nodes[one].table(kind) for one in cells]
            reserved, free = sum(one.reserved for one in tables), sum(one.free for one in tables)
            there = sum(one.allocatable for one in tables)
            sizes = sum(block.size for block in held if block.type == kind and {*block.numa_nodes} & {*cells})
            if reserved != min(sizes, there) or free != there - reserved:
                text = (
                    f"of {kind} on NUMA nodes {','.join(map(str, cells))}, {reserved} bytes count as held and {free} "
                    f"as free; containers hold {sizes} of {there}"
                )
                yield finding("memory-books", file, text)


def check_devices(checkpoint: DeviceCheckpoint, file: str, allocatable: Allocatable | None) -> Iterator[Finding]:
    """Yield devices that are held twice, or that no plugin reports.

    Args:
        checkpoint: what is written.
        file: its name.
        allocatable: what PodResources tells of the devices; None: not known.
    """
    holders: dict[tuple[str, str], str] = {}
    for entry in checkpoint.entries:
        for identity in entry.ids:
            other = holders.setdefault((entry.resource, identity), entry.pod_uid)
            if other != entry.pod_uid:
                text = f"{entry.resource} {identity} is both pod {other}'s and pod {entry.pod_uid}'s"
                yield finding("device-given-twice", file, text)
    if allocatable is None:
        return
    for resource in checkpoint.registered:
        if resource not in allocatable.devices:
            yield finding("resource-gone", file, f"{resource} is registered and has no healthy device")
    for entry in checkpoint.entries:
        there = {device.id for device in allocatable.devices.get(entry.resource, ())}
        gone = [identity for identity in entry.ids if identity not in there]
        if gone:
            what = f"{entry.resource} {', '.join(gone)}, which no plugin reports as healthy"
            text = f"container {entry.container} of pod {entry.pod_uid} holds {what}"
            yield finding("device-gone", file, text)


def check_stale(
    state: KubeletState, stale: Mapping[str, Sequence[str]], place: Callable[[str], str]
) -> Iterator[Finding]:
    """Yield entries of pods or containers that are gone."""
    devices = state.device_ids()
    for uid, names in stale.items():
        for name in names:
            words = f"container {name} of pod {uid}, which is gone, has"
            cpus, blocks = state.cpus(uid, name), state.blocks(uid, name)
            if cpus is not None:
                yield finding("stale-cpus", place(CPU_STATE), f"{words} CPUs {cpus}")
            if blocks:
                kinds = ", ".join(sorted({one.type for one in blocks}))
                yield finding("stale-memory", place(MEMORY_STATE), f"{words} {kinds}")
            for resource, ids in devices.get((uid, name), {}).items():
                text = f"{words} {resource} {', '.join(ids)}"
                yield finding("stale-devices", place(DEVICE_CHECKPOINT), text)


def check_pods(
    state: KubeletState,
    pods: Sequence[Pod],
    config: KubeletConfig,
    resources: frozenset[str],
    place: Callable[[str], str],
) -> Iterator[Finding]:
    """Yield pods that run and whose files have not what they ask for.

    Init containers are ignored: what they held may be others' by now.

    Args:
        state: what is written.
        pods: those that run.
        config: the kubelet's configuration.
        resources: those that plugins have devices of.
        place: returns where a file is.
    """
    devices = state.device_ids()
    wants_cpus = state.cpu is not None and config.cpu_manager_policy == "static"
    wants_memory = state.memory is not None and config.memory_manager_policy == "Static"
    for pod in pods:
        for one in pod.containers:
            words = f"container {one.name} of pod {pod.namespace}/{pod.name} ({pod.uid}) runs and has no"
            if wants_cpus and one.exclusive_cpus and state.cpus(pod.uid, one.name) is None:
                yield finding("pod-without-cpus", place(CPU_STATE), f"{words} CPUs of its own there")
            if wants_memory and one.memory and not state.blocks(pod.uid, one.name):
                yield finding("pod-without-memory", place(MEMORY_STATE), f"{words} memory there")
            if state.devices:
                missing = _not_held(one, devices.get((pod.uid, one.name), {}), resources)
                if missing:
                    text = f"{words} {', '.join(missing)} there"
                    yield finding("pod-without-devices", place(DEVICE_CHECKPOINT), text)


def _not_held(container: Container, held: Mapping[str, Sequence[str]], resources: frozenset[str]) -> list[str]:
    """Return the resources that a container asks for and has no device of."""
    return [name for name, count in container.devices if count and name in resources and not held.get(name)]


class Finding(Record):
    """Something in the files of a kubelet that is not as it should be."""

    kind: str
    file: str
    """Where it is."""
    text: str
    """The fault, in words."""
    effect: str
    """The way the kubelet deals with it at its next start."""
    repair: str
    """How to mend it."""

    def to_dict(self) -> dict[str, str]:
        """Return the finding in JSON's types."""
        return json_fields(self)


def finding(kind: str, file: str, text: str, message: str = "") -> Finding:
    """Return a finding of a known kind.

    Args:
        kind: one of those that this module knows.
        file: where it is.
        text: what it is.
        message: the kubelet's own words, where it does not start and says what it has found.
    """
    told = _kinds()[kind]
    return Finding(kind, file, text, told.get("effect") or f'the kubelet does not start: "{message}"', told["repair"])


@cache
def _kinds() -> dict[str, dict[str, str]]:
    """Return by kind what the kubelet does, where that is always the same, and how to mend it."""
    kinds: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("findings.json").read_bytes())
    return kinds
