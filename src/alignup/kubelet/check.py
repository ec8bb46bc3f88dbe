"""Checks the files of a kubelet against each other, the machine, the configuration and the pods; writes nothing.

The states of CPU manager and memory manager are checked as `validateState` of
`pkg/kubelet/cm/cpumanager` and `memorymanager/policy_static.go` does, with its messages letter for
letter.

What the kubelet does about each kind of finding, and the repair, is in `findings.json`. The effects
were seen with a kubelet 1.36 that was started on such files (`tests/rig/test_faults.py`); words in
quotation marks are from its log.

`foretell` says what a restart on these files does to the pods: which keep what they hold, and which
are refused. The rules of the admission that follows a start are those of `alignup.node.restart`.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError, InputError
from alignup.kubelet import checkpoints
from alignup.kubelet.layout import (
    CPU_STATE,
    DEVICE_CHECKPOINT,
    MEMORY_STATE,
    FolderFiles,
    NodeFiles,
)
from alignup.kubelet.read import (
    KubeletOptions,
    NodeRecords,
    config_of,
    machine_of,
    make_node,
    read_records,
    stale_entries,
)
from alignup.kubernetes.kubelet_config import KubeletConfig, config_from_document
from alignup.kubernetes.versions import KubeletVersion, release_of
from alignup.machine.bits import union
from alignup.machine.cpuset import CPUSet
from alignup.node.holdings import ContainerHolding, holdings_of
from alignup.node.restart import admit_again, check_start
from alignup.providers.cpu.distribution import never_ends
from alignup.providers.cpu.provider import reserved_by, reserved_fault
from alignup.providers.cpu.topology import cpu_topology
from alignup.records import Record, json_fields, replace
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from alignup.kubelet.checkpoints import CpuState, DeviceCheckpoint
    from alignup.kubelet.pod_resources import Allocatable
    from alignup.kubernetes.pod import Pod
    from alignup.machine.machine import Machine
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission

# The first words of the findings about each.
_FILES: Final = {"cpu": CPU_STATE, "memory": MEMORY_STATE, "device": DEVICE_CHECKPOINT}
# The kinds of findings about a checkpoint that the kubelet passes over, and writes anew
# (`readCheckpoint` of devicemanager/manager.go: "Continue after failing to read checkpoint file").
_FORGET: Final = ("device-file-damaged", "device-checksum")
# Ends of the kinds of findings about formats, which another release may have changed.
_UNSURE: Final = ("-file-damaged", "-checksum", "-format")
_POD_LEVEL_GATE = "PodLevelResourceManagers"
_GATED_FORMATS = 2


class Finding(Record):
    """Something in the files of a kubelet that is not as it should be.

    Attributes:
        file: where it is.
        text: the fault, in words.
        effect: the way the kubelet deals with it at its next start.
        repair: how to mend it.
    """

    kind: str
    file: str
    text: str
    effect: str
    repair: str

    @property
    def stops(self) -> bool:
        """Whether the kubelet does not start, at any time or at some."""
        return "the kubelet does not start" in self.effect


def finding(kind: str, text: str, message: str = "", file: str = "") -> Finding:
    """Return a finding.

    Args:
        kind: one of those that `findings.json` knows.
        text: what it is.
        message: the kubelet's own words, where it does not start and says what it has found.
        file: where it is; empty: in the checkpoint that findings of this kind are in, by its path
            in the layout.
    """
    told = _kinds()[kind]
    effect = told.get("effect") or f'the kubelet does not start: "{message}"'
    return Finding(kind, file or _FILES[told["file"]], text, effect, told["repair"])


@cache
def _kinds() -> dict[str, dict[str, str]]:
    """Return by kind its file, where that is always the same, what the kubelet does, likewise, and how to mend it."""
    kinds: dict[str, dict[str, str]] = json.loads(
        Path(__file__).with_name("findings.json").read_bytes()
    )
    return kinds


def check_node(files: NodeFiles, options: KubeletOptions) -> list[Finding]:
    """Return all that is wrong with the files of a kubelet.

    Args:
        files: the node's files.
        options: as those of `read_kubelet_node`; `devices` and `kubelet_dir` do not matter.

    Raises:
        InputError: there is no file of a kubelet, or something else than a state file is damaged.
    """
    places = {path: files.place(path) for path in _FILES.values()}
    return [replace(one, file=places.get(one.file, one.file)) for one in _found(files, options)]


def _found(files: NodeFiles, options: KubeletOptions) -> list[Finding]:
    """Return the findings, those in a checkpoint with its path in the layout."""
    found: list[Finding] = []
    values: dict[str, Any] = {}

    def read(version: KubeletVersion) -> checkpoints.KubeletState:
        names = {path: name for name, path in _FILES.items()}
        for path, one in checkpoints.read_checkpoints(files, version):
            if isinstance(one, InputError):
                found.append(finding(f"{names[path]}-file-damaged", str(one)))
            else:
                values[path] = one
                found.extend(_owner(files, path))

        return checkpoints.state_of(values)

    records = read_records(files, options, read)
    machine = options.get("machine") or (machine_of(files) if files.kernel is not None else None)
    source = records.configuration.source
    try:
        config = config_of(records, machine)
    except InputError as error:
        return [*found, finding("configuration", str(error), file=source)]

    if machine is not None and source:
        try:
            check_start(machine, config)
        except ConfigError as error:
            found.append(
                finding(
                    "reservations", "the reservations do not suit the machine", str(error), source
                )
            )

    found += _missing(records, config, {*values, *(one.file for one in found)})
    found += _formats(values, config)
    wrong = {one.file for one in found}
    intact = {path: value for path, value in values.items() if path not in wrong}
    if records.newer:
        doubt = f"as kubelet {records.version} reads it; what {records.newer} reads is not known"
        found = [
            replace(one, text=f"{one.text} ({doubt})") if one.kind.endswith(_UNSURE) else one
            for one in found
        ]

    return [
        *found,
        *_contents(replace(records, state=checkpoints.state_of(intact)), machine, config),
    ]


def _owner(files: NodeFiles, path: str) -> Iterator[Finding]:
    """Yield that a file is not its folder's owner's."""
    if isinstance(files, FolderFiles):
        owner, folders = files.path_of(path).stat().st_uid, files.path_of(path).parent.stat().st_uid
        if owner != folders:
            yield finding(
                "owner",
                f"the file belongs to user {owner}, and its folder to user {folders}",
                file=path,
            )


def _missing(
    records: NodeRecords, config: KubeletConfig, there: Collection[str]
) -> Iterator[Finding]:
    """Yield the files that should be there."""
    # without a plugin there is no file of them
    has_devices = bool(records.allocatable and records.allocatable.devices)
    wanted = (
        config.cpu_manager_policy == "static",
        config.memory_manager_policy == "Static",
        has_devices,
    )
    gone = [
        name
        for name, is_wanted in zip(_FILES, wanted, strict=True)
        if is_wanted and _FILES[name] not in there
    ]
    if gone and not there:
        folder = records.files.place(CPU_STATE).removesuffix("/cpu_manager_state")
        yield finding("no-state", "the kubelet's folder has no state file", file=folder)
        return

    for name in gone:
        yield finding(f"{name}-file-missing", "there is no such file")


def _formats(values: Mapping[str, Any], config: KubeletConfig) -> Iterator[Finding]:
    """Yield wrong checksums, and formats that a kubelet of this configuration does not take."""
    # a kubelet that knows more formats than those takes each of them, whatever its gates are
    takes_all = len(release_of(config.version).checkpoints["memory_manager_state"]) > _GATED_FORMATS
    newest = 3 if takes_all or config.feature_gates.get(_POD_LEVEL_GATE) else 2
    for name, path in _FILES.items():
        value = values.get(path)
        if value is None:
            continue
        if not value.is_intact:
            text = (
                f"the checksum in the file is {value.checksum}, and its content has "
                f"{value.expected_checksum}"
            )
            yield finding(f"{name}-checksum", text)
        elif value.version + (path == MEMORY_STATE) > newest and not takes_all:
            text = f"it is written with the feature gate {_POD_LEVEL_GATE}, which is off"
            yield finding("newer-format", text, file=path)


def _contents(
    records: NodeRecords, machine: Machine | None, config: KubeletConfig
) -> Iterator[Finding]:
    """Yield what is wrong with what the files say."""
    state = records.state
    if state.cpu is not None:
        reserved, cpus = config.reserved_system_cpus, None
        if machine is not None:
            reserved, cpus = (
                CPUSet.from_int(reserved_by(config, machine)),
                CPUSet.from_int(machine.cpus),
            )

        yield from _check_cpus(state.cpu, config, reserved, cpus)
        if machine is not None:
            yield from _endless(state.cpu, config, machine, reserved)

    if state.memory is not None:
        yield from _check_memory(state.memory, config, machine)

    if state.devices is not None:
        yield from _check_devices(state.devices, records.allocatable)

    yield from _check_stale(state, stale_entries(records))
    running = [
        one.pod.read_as(config.profile.pods) for one in records.pods or () if one.phase == "Running"
    ]
    yield from _check_pods(state, running, config)


def _check_cpus(
    state: CpuState, config: KubeletConfig, reserved: CPUSet, cpus: CPUSet | None
) -> Iterator[Finding]:
    """Yield what is wrong.

    Args:
        state: what is written.
        config: the kubelet's configuration.
        reserved: the CPUs that it reserves.
        cpus: the CPUs of the machine that are online; None: not known.
    """
    if state.policy != config.cpu_manager_policy:
        wanted = config.cpu_manager_policy
        message = (
            f'configured policy "{wanted}" differs from state checkpoint policy "{state.policy}"'
        )
        yield finding(
            "cpu-policy", f"written under the policy {state.policy or 'of no name'}", message
        )
        return

    if config.cpu_manager_policy != "static":
        return
    if not state.shared:
        if state.entries:
            yield finding(
                "cpus-changed", "the shared pool is empty", "default cpuset cannot be empty"
            )

        return

    strict = config.cpu_manager_policy_options.strict_cpu_reservation
    fault = reserved_fault(reserved, state.shared, strict=strict)
    if fault is not None:
        yield finding("reserved-cpus", *fault)

    yield from _overlaps(state)
    if cpus is not None:
        yield from _changed_cpus(state, CPUSet(cpus - reserved) if strict else cpus)


def _endless(
    state: CpuState, config: KubeletConfig, machine: Machine, reserved: CPUSet
) -> Iterator[Finding]:
    """Yield the smallest number of CPUs with which the kubelet would go round forever, as things are now."""
    options = config.cpu_manager_policy_options
    if not (
        config.cpu_manager_policy == "static"
        and options.full_pcpus_only
        and options.distribute_cpus_across_numa
    ):
        return

    if "distribution_never_ends" not in release_of(config.version).faults:
        return

    topology, free = cpu_topology(machine), int(state.shared) & ~int(reserved)
    together = topology.cpus_per_core
    one_socket = options.align_by_socket and config.profile.distribution_prefers_one_socket
    for count in range(together, free.bit_count() + 1, together):
        if never_ends(topology, free, count, together, in_one_socket=one_socket):
            text = f"a container of {count} CPUs finds halves of cores left on NUMA nodes"
            yield finding("endless-distribution", text)
            return


def _overlaps(state: CpuState) -> Iterator[Finding]:
    """Yield CPUs that are in the shared pool and a container's, or two pods'."""
    for uid, containers in state.entries.items():
        for name, cpus in containers.items():
            both = CPUSet(cpus & state.shared)
            if both:
                text = f"CPUs {both} of container {name} of pod {uid} are in the shared pool too"
                told = (
                    f'pod: {uid}, container: {name} cpuset: "{cpus}" overlaps with default '
                    f'cpuset "{state.shared}"'
                )
                yield finding("cpu-overlap", text, told)

    pods = [
        (uid, union(map(int, containers.values()))) for uid, containers in state.entries.items()
    ]
    for (one, mine), (other, theirs) in combinations(pods, 2):
        if mine & theirs:
            both = CPUSet.from_int(mine & theirs)
            yield finding("cpus-given-twice", f"CPUs {both} are both pod {one}'s and pod {other}'s")


def _changed_cpus(state: CpuState, cpus: CPUSet) -> Iterator[Finding]:
    """Yield that the machine's CPUs are not those of the state."""
    held = [cpus for containers in state.entries.values() for cpus in containers.values()]
    written = CPUSet.from_int(union(map(int, [state.shared, *held, *state.pods.values()])))
    differences = {
        "the machine lacks CPUs of the file:": written - cpus,
        "the file lacks CPUs:": cpus - written,
    }
    words = [f"{words} {some}" for words, some in differences.items() if some]
    if words:
        message = (
            f'current set of available CPUs "{cpus}" doesn\'t match with CPUs in state "{written}"'
        )
        found = finding("cpus-changed", " and ".join(words), message)
        lost = written - cpus
        yield replace(found, repair=f"bring the CPUs back, or {found.repair}") if lost else found


def _check_memory(
    state: checkpoints.MemoryState, config: KubeletConfig, machine: Machine | None
) -> Iterator[Finding]:
    """Yield what is wrong; without a machine, less can be checked."""
    policy = config.memory_manager_policy
    if state.policy != policy:
        message = (
            f'[memorymanager] configured policy "{policy}" differs from state checkpoint '
            f'policy "{state.policy}"'
        )
        yield finding(
            "memory-policy", f"written under the policy {state.policy or 'of no name'}", message
        )
        return

    if policy != "Static" or not state.nodes:
        return

    fresh = state.nodes if machine is None else _fresh_nodes(machine, config)
    yield from [*_unknown(state, fresh), *_changed_memory(state, fresh)] or _books(
        state, exact=not config.profile.memory_groups_checked
    )


def _fresh_nodes(machine: Machine, config: KubeletConfig) -> dict[int, checkpoints.NumaNodeState]:
    """Return the state that a memory manager writes on an empty node (`getDefaultMachineState`)."""
    kept = {
        (one.numa_node, kind): size for one in config.reserved_memory for kind, size in one.limits
    }
    found = {}
    for node in machine.numa_nodes:
        tables: dict[str, checkpoints.MemoryTable | None] = {}
        for kind, size in node.memory_by_type.items():
            reserved = kept.get((node.id, kind), 0)
            total = node.memory if kind == "memory" else size  # the kubelet counts the pages too
            tables[kind] = checkpoints.MemoryTable(
                total, reserved, size - reserved, 0, size - reserved
            )

        found[node.id] = checkpoints.NumaNodeState(assignments=0, tables=tables, cells=(node.id,))

    return found


def _unknown(
    state: checkpoints.MemoryState, nodes: Mapping[int, checkpoints.NumaNodeState]
) -> Iterator[Finding]:
    """Yield blocks on NUMA nodes, or of types, that the machine does not have."""
    held = [(uid, *one) for uid, containers in state.entries.items() for one in containers.items()]
    for uid, name, block in ((uid, name, block) for uid, name, blocks in held for block in blocks):
        where = f"container {name} of pod {uid} has {block.type}"
        told = f"[memorymanager] (pod: {uid}, container: {name}) the memory assignment uses"
        strange = [one for one in block.numa_nodes if one not in nodes]
        if strange:
            text = f"{where} of NUMA node {strange[0]}, which the machine does not have"
            yield finding("memory-unknown", text, f"{told} the NUMA that does not exist")
        elif any(block.type not in (nodes[one].tables or {}) for one in block.numa_nodes):
            text = f"{where}, which the machine does not have"
            yield finding("memory-unknown", text, f"{told} memory resource that does not exist")


def _changed_memory(
    state: checkpoints.MemoryState, fresh: Mapping[int, checkpoints.NumaNodeState]
) -> Iterator[Finding]:
    """Yield what there is on the machine, or reserved, and is not what was written."""
    for numa_id in sorted({*state.nodes, *fresh}):
        if numa_id not in fresh or numa_id not in state.nodes:
            who = "the machine has no" if numa_id not in fresh else "the file has no"
            yield finding("memory-changed", f"{who} NUMA node {numa_id}")
            continue

        then, now = state.nodes[numa_id], fresh[numa_id]
        for kind in sorted({*(then.tables or {}), *(now.tables or {})}):
            before, after = then.table(kind), now.table(kind)
            amounts = (
                (kind, before.total, after.total),
                (f"{kind} that is reserved", before.system_reserved, after.system_reserved),
                (f"{kind} for pods", before.allocatable, after.allocatable),
            )
            changed = next((one for one in amounts if one[1] != one[2]), None)
            if changed is not None:
                yield finding("memory-changed", _difference(numa_id, *changed))
            elif (kind in (then.tables or {})) != (kind in (now.tables or {})):
                yield finding(
                    "memory-changed",
                    f"NUMA node {numa_id} has {kind} in one of file and machine only",
                )


def _difference(numa_id: int, what: str, then: int, now: int) -> str:
    """Return two amounts in words; in bytes where short ones look alike."""
    new, old = short_bytes(now), short_bytes(then)
    if new == old:
        new, old = f"{now} bytes", f"{then} bytes"
    return f"NUMA node {numa_id} has {new} of {what}, and had {old} when the file was written"


def _books(state: checkpoints.MemoryState, *, exact: bool) -> Iterator[Finding]:
    """Yield where the file's books of memory do not follow from the blocks of containers.

    A start takes the blocks in no order, and the last one on a NUMA node says the node's group:
    where blocks of several groups are on one node, the kubelet starts at some times and not at
    others, whatever amounts are written.

    Args:
        state: what is written.
        exact: compare each NUMA node, as kubelets up to 1.31 do, and not the sums of each group.
    """
    by_pod = (
        [state.pods[uid]] if uid in state.pods else of.values() for uid, of in state.entries.items()
    )
    held = [block for containers in by_pod for blocks in containers for block in blocks]
    groups: dict[int, Counter[tuple[int, ...]]] = {numa_id: Counter() for numa_id in state.nodes}
    sizes: Counter[tuple[tuple[int, ...], str]] = Counter()
    for block in held:
        group = tuple(sorted(block.numa_nodes))
        sizes[group, block.type] += block.size
        for numa_id in group:
            groups[numa_id][group] += 1

    is_mixed = any(len(some) > 1 for some in groups.values())
    for numa_id, node in sorted(state.nodes.items()):
        count, cells = groups[numa_id].total(), tuple(sorted(node.cells or ()))
        there = set(groups[numa_id] or [(numa_id,)])
        if count != node.assignments:
            text = (
                f"NUMA node {numa_id} has {node.assignments} assignments, and {count} blocks "
                "lie on it"
            )
            yield finding("memory-books", text)
        elif there != {cells}:
            told, other = (",".join(map(str, one)) for one in (cells, min(there - {cells})))
            text = f"NUMA node {numa_id} is in the group {told}, and a block on it in {other}"
            yield finding("memory-groups" if cells in there else "memory-books", text)
        elif not is_mixed:
            yield from _amounts(state, cells, sizes)
            if exact:
                yield from _amounts_of_node(state, numa_id, cells, sizes)


def _amounts(
    state: checkpoints.MemoryState,
    group: tuple[int, ...],
    sizes: Mapping[tuple[tuple[int, ...], str], int],
) -> Iterator[Finding]:
    """Yield where free and held memory of a group of NUMA nodes are not what the sizes of its blocks leave."""
    for kind in state.nodes[group[0]].tables or {}:
        tables = [state.nodes[one].table(kind) for one in group]
        reserved, free = sum(one.reserved for one in tables), sum(one.free for one in tables)
        there, taken = sum(one.allocatable for one in tables), sizes.get((group, kind), 0)
        if reserved != min(taken, there) or free != there - reserved:
            where = ",".join(map(str, group))
            amounts = (
                f"{reserved} bytes count as held and {free} as free; containers hold "
                f"{taken} of {there}"
            )
            yield finding("memory-books", f"of {kind} on NUMA nodes {where}, {amounts}")


def _amounts_of_node(
    state: checkpoints.MemoryState,
    numa_id: int,
    group: tuple[int, ...],
    sizes: Mapping[tuple[tuple[int, ...], str], int],
) -> Iterator[Finding]:
    """Yield where a NUMA node holds other amounts than a start deals out, which fills the first nodes of a group."""
    before = group[: group.index(numa_id)]
    for kind in state.nodes[numa_id].tables or {}:
        table = state.nodes[numa_id].table(kind)
        left = sizes.get((group, kind), 0) - sum(
            state.nodes[one].table(kind).allocatable for one in before
        )
        dealt = max(0, min(left, table.allocatable))
        if table.reserved != dealt:
            text = (
                f"{table.reserved} bytes of {kind} on NUMA node {numa_id} count as held, and a "
                f"start deals {dealt}"
            )
            yield finding("memory-books", text)


def _check_devices(
    checkpoint: DeviceCheckpoint, allocatable: Allocatable | None
) -> Iterator[Finding]:
    """Yield devices that are held twice, or that no plugin reports, where PodResources tells of them."""
    holders: dict[tuple[str, str], str] = {}
    for entry in checkpoint.entries:
        for identity in entry.ids:
            other = holders.setdefault((entry.resource, identity), entry.pod_uid)
            if other != entry.pod_uid:
                text = (
                    f"{entry.resource} {identity} is both pod {other}'s and pod {entry.pod_uid}'s"
                )
                yield finding("device-given-twice", text)

    if allocatable is None:
        return

    for resource in checkpoint.registered:
        if resource not in allocatable.devices:
            yield finding("resource-gone", f"{resource} is registered and has no healthy device")

    for entry in checkpoint.entries:
        there = {device.id for device in allocatable.devices.get(entry.resource, ())}
        gone = [identity for identity in entry.ids if identity not in there]
        if gone:
            what = f"{entry.resource} {', '.join(gone)}, which no plugin reports as healthy"
            yield finding(
                "device-gone", f"container {entry.container} of pod {entry.pod_uid} holds {what}"
            )


def _check_stale(
    state: checkpoints.KubeletState, stale: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    """Yield entries of pods or containers that are gone."""
    devices = state.device_ids()
    for uid, name in ((uid, name) for uid, names in stale.items() for name in names):
        words = f"container {name} of pod {uid}, which is gone, has"
        cpus, blocks = state.cpus(uid, name), state.blocks(uid, name)
        if cpus is not None:
            yield finding("stale-cpus", f"{words} CPUs {cpus}")
        if blocks:
            yield finding(
                "stale-memory", f"{words} {', '.join(sorted({one.type for one in blocks}))}"
            )

        for resource, ids in devices.get((uid, name), {}).items():
            yield finding("stale-devices", f"{words} {resource} {', '.join(ids)}")


def _check_pods(
    state: checkpoints.KubeletState, pods: Iterable[Pod], config: KubeletConfig
) -> Iterator[Finding]:
    """Yield pods that run and whose files have not what they ask for.

    Init containers are ignored: what they held may be others' by now.
    """
    devices = state.device_ids()
    resources = state.devices.registered if state.devices else ()
    wants_cpus = state.cpu is not None and config.cpu_manager_policy == "static"
    wants_memory = state.memory is not None and config.memory_manager_policy == "Static"
    for pod in pods:
        for one in pod.containers:
            words = f"container {one.name} of pod {pod.namespaced_name} ({pod.uid}) runs and has no"
            if wants_cpus and one.exclusive_cpus and state.cpus(pod.uid, one.name) is None:
                yield finding("pod-without-cpus", f"{words} CPUs of its own there")
            if wants_memory and one.memory and not state.blocks(pod.uid, one.name):
                yield finding("pod-without-memory", f"{words} memory there")
            held = devices.get((pod.uid, one.name), {})
            missing = [
                name
                for name, count in one.devices
                if count and name in resources and not held.get(name)
            ]
            if missing:
                yield finding("pod-without-devices", f"{words} {', '.join(missing)} there")


class Outcome(Record):
    """What becomes of a pod that runs.

    Attributes:
        held: what its containers hold before the restart.
        holds: what they hold in the kubelet's books after it; empty: it is refused.
        refusal: None: it stays.
        again: of a refused pod: how it would be admitted if it came again, once all refused ones
            are gone.
        forgotten: resources of which the kubelet forgets which devices it has, so that others get
            them too.
    """

    pod: Pod
    held: tuple[ContainerHolding, ...]
    holds: tuple[ContainerHolding, ...]
    refusal: Admission | None = None
    again: Admission | None = None
    forgotten: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether it stays with what it holds; the memory of init containers that have ended does not matter."""
        ended = {one.name for one in self.pod.init_containers if not one.is_sidecar}
        before, after = (
            [one for one in some if one.container not in ended] for some in (self.held, self.holds)
        )
        return self.refusal is None and before == after and not self.forgotten

    def to_dict(self, numa_node_ids: tuple[int, ...]) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        again, got = self.again, self.again.containers if self.again is not None else {}
        containers = {name: one.to_dict(numa_node_ids) for name, one in got.items()}
        return {
            **json_fields(self.pod, "name", "namespace", "uid"),
            **json_fields(self, "keeps", "held", "holds", "forgotten"),
            "admitted": self.refusal is None,
            "reason": "" if self.refusal is None else self.refusal.reason,
            "message": "" if self.refusal is None else self.refusal.message,
            "again": again
            if again is None
            else {**json_fields(again, "admitted", "reason"), "containers": containers},
        }


class Restart(Record):
    """What a restart of the kubelet does.

    Attributes:
        faults: why it does not start; empty: it does.
        outcomes: the pods, in the order in which they are admitted again.
        node: the node after it; None: it does not start.
        damaged: what it passes over when it starts.
    """

    faults: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...] = ()
    node: Node | None = None
    damaged: tuple[Finding, ...] = ()

    @property
    def keeps_all(self) -> bool:
        """Whether the kubelet starts, and every pod keeps what it holds."""
        return not self.faults and all(one.keeps for one in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """Return what it does in JSON's types."""
        ids = self.node.machine.numa_node_ids if self.node else ()
        pods = [one.to_dict(ids) for one in self.outcomes]
        return {"starts": not self.faults, **json_fields(self, "faults", "damaged"), "pods": pods}


def foretell(files: NodeFiles, options: KubeletOptions) -> Restart:
    """Return what a restart of the kubelet does.

    Args:
        files: the node's files, as they are now.
        options: the configuration and the release that the kubelet starts with, and the machine as
            it is then.

    Raises:
        InputError: there is no file of a kubelet.
        AllocationError: the device checkpoint names devices that are not known.
    """
    found = check_node(files, options)
    faults = tuple(one for one in found if one.stops)
    if faults:
        return Restart(faults)

    damaged = tuple(one for one in found if one.kind in _FORGET)
    records = read_records(files, options, partial(_intact, files))
    source = records.configuration.source
    try:
        # gates count as the kubelet has them, unlike those of a kubelet that is known to run
        config_from_document(records.configuration.fields, source, version=records.version)
    except ConfigError as error:
        return Restart((finding("configuration", str(error), file=source),))

    node = make_node(records, options.get("machine") or machine_of(files)).node
    node.whole_verdict = True
    created = {one.pod.uid: one.created or one.started for one in records.pods or ()}
    pods = sorted(node.pods, key=lambda one: created.get(one.uid, ""))
    before = holdings_of(node)
    refused = admit_again(node, pods).refused
    after = holdings_of(node)

    def outcome(pod: Pod) -> Outcome:
        held, holds = (
            tuple(one for one in some.containers if one and one.pod_uid == pod.uid)
            for some in (before, after)
        )
        if pod.uid not in refused:
            return Outcome(
                pod,
                held,
                holds,
                forgotten=tuple(name for name, _ in pod.devices) if damaged else (),
            )

        return Outcome(pod, held, holds, node.admission(pod, refused[pod.uid]), node.try_admit(pod))

    return Restart((), tuple(map(outcome, pods)), node, damaged)


def _intact(files: NodeFiles, version: KubeletVersion) -> checkpoints.KubeletState:
    """Return the state as a kubelet reads it that starts: a damaged checkpoint of devices counts as none."""
    read = checkpoints.read_checkpoints(files, version)
    return checkpoints.state_of(
        {path: one for path, one in read if not isinstance(one, InputError) and one.is_intact}
    )
