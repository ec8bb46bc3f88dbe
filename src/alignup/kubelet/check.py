"""Checks a kubelet's files against each other, the machine, the configuration and the pods.

Nothing is written. The states of CPU manager and memory manager are checked as `validateState` of
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
import time
from collections import Counter
from functools import cache, partial
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError, InputError
from alignup.explanations.words import EMPTY_POOL, KEEP_POOL
from alignup.kubelet import checkpoints
from alignup.kubelet.layout import (
    CPU_STATE,
    DEVICE_CHECKPOINT,
    MEMORY_STATE,
    FolderFiles,
    NodeFiles,
)
from alignup.kubelet.messages import DRAIN_AND_DELETE, meaning_of_rejection
from alignup.kubelet.pod_resources_client import socket_of
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
from alignup.kubernetes.versions import (
    KubeletVersion,
    newer_release,
    parse_version,
    release_of,
)
from alignup.machine.bits import ids_of, overlapping, union
from alignup.machine.cpuset import CPUSet
from alignup.node.holdings import ContainerHolding, Holdings, holdings_of
from alignup.node.restart import admit_again, check_start
from alignup.providers.cpu.distribution import never_ends
from alignup.providers.cpu.provider import reserved_by, reserved_fault
from alignup.providers.cpu.topology import cpu_topology
from alignup.records import Record, json_fields, replace
from alignup.text.counting import named, short_difference

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from alignup.kubelet.checkpoints import CpuState, DeviceCheckpoint
    from alignup.kubelet.pod_resources import Allocatable
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.pod_documents import PodDocument
    from alignup.machine.machine import Machine
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission, MemoryBlock

# The first words of the findings about each.
_FILES: Final = {"cpu": CPU_STATE, "memory": MEMORY_STATE, "device": DEVICE_CHECKPOINT}
# The kinds of findings about a checkpoint that the kubelet passes over, and writes anew
# (`readCheckpoint` of devicemanager/manager.go: "Continue after failing to read checkpoint file").
_FORGET: Final = ("device-file-damaged", "device-checksum")
# Ends of the kinds of findings about formats, which another release may have changed.
_UNSURE: Final = ("-file-damaged", "-checksum", "-format")
_POD_LEVEL_GATE = "PodLevelResourceManagers"
_GATED_FORMATS = 2
_DELETE_AFTER_BOOT: Final = (
    "stop the kubelet, delete the file, and start the kubelet (after a boot no container runs, and "
    "nothing is to be drained)"
)
# Seconds after which the files of a kubelet that runs are read again. It writes what a container is
# given in several steps: the shared pool without its CPUs, then its CPUs
# (`allocateCPUs` and `Allocate` of cpumanager/policy_static.go).
_AGAIN: Final = (0.2, 0.3)
# Less than this part of a NUMA node's memory is a difference between two boots.
_DRIFT: Final = 50


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
    facts = _facts_by_kind()[kind]
    effect = facts.get("effect") or f'the kubelet does not start: "{message}"'
    return Finding(kind, file or _FILES[facts["file"]], text, effect, facts["repair"])


@cache
def _facts_by_kind() -> dict[str, dict[str, str]]:
    """Return by kind of finding how to mend it, its file, and what the kubelet does.

    File and effect are there only where they are always the same.
    """
    kinds: dict[str, dict[str, str]] = json.loads(
        Path(__file__).with_name("findings.json").read_bytes()
    )
    return kinds


def check_node(files: NodeFiles, options: KubeletOptions) -> list[Finding]:
    """Return all that is wrong with the files of a kubelet.

    Where one runs, what is wrong for a moment only does not count, as while it admits a container.

    Args:
        files: the node's files.
        options: as those of `read_kubelet_node`; `devices` and `kubelet_dir` do not matter.

    Raises:
        InputError: there is no file of a kubelet, or something else than a state file is damaged.
    """
    places = {path: files.place(path) for path in _FILES.values()}
    findings = _findings(files, options)
    pauses = _AGAIN if socket_of(files) else ()
    for pause in pauses:
        if not findings:
            break

        time.sleep(pause)
        before = {(problem.kind, problem.file) for problem in findings}
        findings = [
            problem
            for problem in _findings(files, options)
            if (problem.kind, problem.file) in before
        ]

    return [replace(problem, file=places.get(problem.file, problem.file)) for problem in findings]


def _findings(files: NodeFiles, options: KubeletOptions) -> list[Finding]:
    """Return the findings, those in a checkpoint with its path in the layout."""
    findings: list[Finding] = []
    values: dict[str, Any] = {}

    def read(version: KubeletVersion) -> checkpoints.KubeletState:
        names = {path: name for name, path in _FILES.items()}

        for path, checkpoint in checkpoints.read_checkpoints(files, version):
            if isinstance(checkpoint, InputError):
                findings.append(finding(f"{names[path]}-file-damaged", str(checkpoint)))
            else:
                values[path] = checkpoint
                findings.extend(_owner(files, path))

        return checkpoints.state_of(values)

    records = read_records(files, options, read)
    machine = options.get("machine")
    if machine is None and files.kernel is not None:
        machine = machine_of(files)

    source = records.configuration.source
    try:
        config = config_of(records, machine)
    except InputError as error:
        return [*findings, finding("configuration", str(error), file=source)]

    if machine is not None and source:
        try:
            check_start(machine, config, records.memory_capacity)
        except ConfigError as error:
            text = "the reservations do not suit the machine"
            findings.append(finding("reservations", text, str(error), source))

    findings += _missing(records, config, {*values, *(problem.file for problem in findings)})
    findings += _formats(values, config)

    wrong_files = {problem.file for problem in findings}
    intact = {path: value for path, value in values.items() if path not in wrong_files}

    if records.newer:
        doubt = (
            f"as kubelet {records.version.title} reads it; what {records.newer} reads is not known"
        )
        findings = [_doubted(problem, doubt) for problem in findings]

    intact_records = replace(records, state=checkpoints.state_of(intact))
    return [*findings, *_contents(intact_records, machine, config), *_outside(intact)]


def _doubted(problem: Finding, doubt: str) -> Finding:
    """Return a finding with a doubt, where a newer release may have changed what it is about."""
    if not problem.kind.endswith(_UNSURE):
        return problem
    return replace(problem, text=f"{problem.text} ({doubt})")


def _owner(files: NodeFiles, path: str) -> Iterator[Finding]:
    """Yield that a file is not its folder's owner's."""
    if not isinstance(files, FolderFiles):
        return

    file = files.path_of(path)
    owner = file.stat().st_uid
    folder_owner = file.parent.stat().st_uid
    if owner != folder_owner:
        text = f"the file belongs to user {owner}, and its folder to user {folder_owner}"
        yield finding("owner", text, file=path)


def _missing(
    records: NodeRecords, config: KubeletConfig, paths: Collection[str]
) -> Iterator[Finding]:
    """Yield the files that should be among those that are there."""
    # without a plugin there is no file of them
    has_devices = bool(records.allocatable and records.allocatable.devices)
    needs = {
        "cpu": config.cpu_manager_policy == "static",
        "memory": config.memory_manager_policy == "Static",
        "device": has_devices,
    }
    missing = [name for name, is_needed in needs.items() if is_needed and _FILES[name] not in paths]

    if missing and not paths:
        folder = records.files.place(CPU_STATE).removesuffix("/cpu_manager_state")
        yield finding("no-state", "the kubelet's folder has no state file", file=folder)
        return

    for name in missing:
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


def _outside(values: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what a file says beside the text in it that counts alone, where they differ."""
    for path in (CPU_STATE, MEMORY_STATE):
        value = values.get(path)
        if value is not None and value.other_outside:
            keys = " and ".join(value.other_outside)
            text = f"{keys} beside data is not what data says, and data counts"
            yield finding("beside-data", text, file=path)


def _contents(
    records: NodeRecords, machine: Machine | None, config: KubeletConfig
) -> Iterator[Finding]:
    """Yield what is wrong with what the files say."""
    state = records.state
    if state.cpu is not None:
        if machine is None:
            yield from _check_cpus(state.cpu, config, config.reserved_system_cpus, None)
        else:
            reserved = CPUSet.from_int(reserved_by(config, machine))
            yield from _check_cpus(state.cpu, config, reserved, CPUSet.from_int(machine.cpus))
            yield from _endless(state.cpu, config, machine, reserved)

    if state.memory is not None:
        yield from _check_memory(state.memory, config, machine)

    if state.devices is not None:
        yield from _check_devices(state.devices, records.allocatable)

    yield from _check_stale(state, stale_entries(records).containers)

    running = [
        document.pod.read_as(config.profile.pods)
        for document in records.pods or ()
        if document.phase == "Running"
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
    policy = config.cpu_manager_policy
    if state.policy != policy:
        text = f"written under the policy {state.policy or 'of no name'}"
        message = (
            f'configured policy "{policy}" differs from state checkpoint policy "{state.policy}"'
        )
        yield finding("cpu-policy", text, message)
        return

    if policy != "static":
        return

    strict = config.cpu_manager_policy_options.strict_cpu_reservation
    if not state.shared:
        if state.entries:
            problem = finding("empty-pool", EMPTY_POOL, "default cpuset cannot be empty")
            if strict:
                problem = replace(problem, repair=f"{problem.repair}; {KEEP_POOL}")
            yield problem

        return

    problems = list(_cpu_faults(state, reserved, cpus, strict=strict))
    if problems:
        repairs = _cpu_repairs(state, config, reserved, cpus)
        problems = [_with_repairs(problem, repairs) for problem in problems]

    yield from problems
    yield from _overlaps(state)


def _cpu_faults(
    state: CpuState, reserved: CPUSet, cpus: CPUSet | None, *, strict: bool
) -> Iterator[Finding]:
    """Yield that reserved CPUs, or the machine's, are not those of the state."""
    fault = reserved_fault(reserved, state.shared, strict=strict)
    if fault is not None:
        text, message = fault
        unknown = CPUSet(reserved - _written_cpus(state))
        if unknown and not strict:
            text = f"CPUs {unknown} are reserved, and the file has them nowhere"

        yield finding("reserved-cpus", text, message)

    if cpus is not None:
        yield from _changed_cpus(state, cpus, reserved if strict else CPUSet())


def _cpu_repairs(
    state: CpuState, config: KubeletConfig, reserved: CPUSet, cpus: CPUSet | None
) -> list[str]:
    """Return what would mend the faults of the CPUs without another file; each was tried."""
    strict = config.cpu_manager_policy_options.strict_cpu_reservation
    written = _written_cpus(state)
    changes: list[tuple[str, CPUSet, CPUSet | None, bool]] = []
    if cpus is not None and written - cpus:
        lost = CPUSet(written - cpus)
        changes.append((f"bring CPUs {lost} back", reserved, CPUSet(cpus | lost), strict))

    if strict:
        changes.append(("turn strict-cpu-reservation off again", reserved, cpus, False))
        if cpus is not None:
            before = CPUSet(cpus - written)
            changes.append((f"set the reserved CPUs back to {before}", before, cpus, True))
    else:
        before = CPUSet(reserved & state.shared) or state.shared
        text = f"set the reserved CPUs back (they were among {state.shared})"
        changes.append((text, before, cpus, False))
        if "strict-cpu-reservation" in release_of(config.version).cpu_options:
            changes.append(("turn strict-cpu-reservation on again", reserved, cpus, True))

    return [
        text
        for text, reserved_then, cpus_then, strict_then in changes
        if reserved_then
        and not any(_cpu_faults(state, reserved_then, cpus_then, strict=strict_then))
    ]


def _with_repairs(problem: Finding, repairs: Sequence[str]) -> Finding:
    """Return a finding with further ways to mend it, the ones that keep the file first."""
    return replace(problem, repair=", or ".join([*repairs, problem.repair]))


def _endless(
    state: CpuState, config: KubeletConfig, machine: Machine, reserved: CPUSet
) -> Iterator[Finding]:
    """Yield the smallest number of CPUs with which the kubelet would now go round forever."""
    options = config.cpu_manager_policy_options
    if not (
        config.cpu_manager_policy == "static"
        and options.full_pcpus_only
        and options.distribute_cpus_across_numa
    ):
        return

    if "distribution_never_ends" not in release_of(config.version).faults:
        return

    topology = cpu_topology(machine)
    free_cpus = int(state.shared) & ~int(reserved)
    together = topology.cpus_per_core
    one_socket = options.align_by_socket and config.profile.distribution_prefers_one_socket
    for count in range(together, free_cpus.bit_count() + 1, together):
        if never_ends(topology, free_cpus, count, together, in_one_socket=one_socket):
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
                message = (
                    f'pod: {uid}, container: {name} cpuset: "{cpus}" overlaps with default '
                    f'cpuset "{state.shared}"'
                )
                yield finding("cpu-overlap", text, message)

    pods = [
        (uid, union(map(int, containers.values()))) for uid, containers in state.entries.items()
    ]
    for (uid, cpus_of_pod), (second_uid, cpus_of_second) in combinations(pods, 2):
        common = cpus_of_pod & cpus_of_second
        if common:
            text = f"CPUs {CPUSet.from_int(common)} are both pod {uid}'s and pod {second_uid}'s"
            yield finding("cpus-given-twice", text)


def _written_cpus(state: CpuState) -> CPUSet:
    """Return all CPUs that a state has."""
    exclusive = [cpus for containers in state.entries.values() for cpus in containers.values()]
    return CPUSet.from_int(union(map(int, [state.shared, *exclusive, *state.pods.values()])))


def _changed_cpus(state: CpuState, online: CPUSet, kept_out: CPUSet) -> Iterator[Finding]:
    """Yield that the CPUs for pods are not those of the state.

    Args:
        state: what is written.
        online: the machine's CPUs.
        kept_out: those that are strictly reserved.
    """
    written = _written_cpus(state)
    cpus = CPUSet(online - kept_out)
    if written == cpus:
        return

    texts = []
    if lost := CPUSet(written - online):
        texts.append(f"the machine lacks CPUs of the file: {lost}")
    if strict := CPUSet(written & online - cpus):
        texts.append(f"the file has CPUs that are strictly reserved now: {strict}")
    if new := CPUSet(cpus - written):
        texts.append(f"the file lacks CPUs: {new}")

    message = (
        f'current set of available CPUs "{cpus}" doesn\'t match with CPUs in state "{written}"'
    )
    yield finding("cpus-changed", " and ".join(texts), message)


def _check_memory(
    state: checkpoints.MemoryState, config: KubeletConfig, machine: Machine | None
) -> Iterator[Finding]:
    """Yield what is wrong; without a machine, less can be checked."""
    policy = config.memory_manager_policy
    if state.policy != policy:
        text = f"written under the policy {state.policy or 'of no name'}"
        message = (
            f'[memorymanager] configured policy "{policy}" differs from state checkpoint '
            f'policy "{state.policy}"'
        )
        yield finding("memory-policy", text, message)
        return

    if policy != "Static" or not state.nodes:
        return

    fresh = state.nodes
    if machine is not None:
        fresh = _fresh_nodes(_amounts_of(machine), _reservations(config))

    changed = list(_changed_memory(state, fresh))
    if changed and machine is not None:
        repairs = _memory_repairs(state, _amounts_of(machine), _reservations(config))
        changed = [_with_repairs(problem, repairs) for problem in changed]

    findings = [*_unknown(state, fresh), *changed]
    if findings:
        yield from findings
    else:
        yield from _wrong_sums(state, exact=not config.profile.memory_groups_checked)


def _amounts_of(machine: Machine) -> dict[int, dict[str, int]]:
    """Return the bytes of each NUMA node by type; those of `memory` include hugepages."""
    return {node.id: {**node.memory_by_type, "memory": node.memory} for node in machine.numa_nodes}


def _reservations(config: KubeletConfig) -> dict[tuple[int, str], int]:
    """Return what a configuration reserves, by NUMA node and type."""
    return {
        (reservation.numa_node, kind): size
        for reservation in config.reserved_memory
        for kind, size in reservation.limits
    }


def _fresh_nodes(
    amounts: Mapping[int, Mapping[str, int]], reservations: Mapping[tuple[int, str], int]
) -> dict[int, checkpoints.NumaNodeState]:
    """Return the state that a memory manager writes on an empty node (`getDefaultMachineState`).

    Args:
        amounts: of the machine, as those of `_amounts_of`; the kubelet counts hugepages in the
            total of the memory, and not in what it can give.
        reservations: as those of `_reservations`.
    """
    states = {}
    for numa_id, totals in amounts.items():
        pages = sum(size for kind, size in totals.items() if kind != "memory")
        tables: dict[str, checkpoints.MemoryTable | None] = {}
        for kind, total in totals.items():
            size = max(0, total - pages) if kind == "memory" else total
            reserved = reservations.get((numa_id, kind), 0)
            free = size - reserved
            tables[kind] = checkpoints.MemoryTable(total, reserved, free, 0, free)

        states[numa_id] = checkpoints.NumaNodeState(assignments=0, tables=tables, cells=(numa_id,))

    return states


def _memory_repairs(
    state: checkpoints.MemoryState,
    amounts: Mapping[int, Mapping[str, int]],
    reservations: Mapping[tuple[int, str], int],
) -> list[str]:
    """Return the fewest things that are to be set back to mend the memory; they were tried.

    There is none where the kernel tells of a little more or less memory than before.
    """
    reserved_before = {
        (numa_id, kind): table.system_reserved
        for numa_id, node in state.nodes.items()
        for kind, table in (node.tables or {}).items()
        if table is not None
    }
    before = {
        numa_id: {kind: node.table(kind).total for kind in node.tables or ()}
        for numa_id, node in state.nodes.items()
    }
    lost = [
        numa_id
        for numa_id, node in state.nodes.items()
        if amounts.get(numa_id, {}).get("memory", 0) < node.table("memory").total
    ]
    words = {
        "reservations": "set reservedMemory back, with the reservations that it is the sum of",
        "hugepages": "set the hugepages back",
        "memory": f"bring the memory of {named('NUMA node', lost)} back",
    }
    for count in range(1, len(words) + 1):
        for names in combinations(words, count):
            reserved = reserved_before if "reservations" in names else reservations
            present = before if "memory" in names else amounts
            pages = before if "hugepages" in names else amounts
            mended = {
                numa_id: {**pages.get(numa_id, {}), "memory": totals.get("memory", 0)}
                for numa_id, totals in present.items()
            }
            if any(_changed_memory(state, _fresh_nodes(mended, reserved))):
                continue

            if "memory" in names and (not lost or _drifts(state, amounts)):
                return []
            return [" and ".join(words[name] for name in names)]

    return []


def _drifts(state: checkpoints.MemoryState, amounts: Mapping[int, Mapping[str, int]]) -> bool:
    """Return whether each NUMA node has about the memory that it had."""
    return state.nodes.keys() == amounts.keys() and all(
        _is_drift(node.table("memory").total, amounts[numa_id].get("memory", 0))
        for numa_id, node in state.nodes.items()
    )


def _is_drift(before: int, now: int) -> bool:
    """Return whether memory differs by so little as what a kernel keeps at one boot or another."""
    return abs(before - now) <= before // _DRIFT


def _unknown(
    state: checkpoints.MemoryState, nodes: Mapping[int, checkpoints.NumaNodeState]
) -> Iterator[Finding]:
    """Yield blocks on NUMA nodes, or of types, that the machine does not have."""
    blocks = [
        (uid, name, block)
        for uid, containers in state.entries.items()
        for name, blocks in containers.items()
        for block in blocks
    ]

    for uid, name, block in blocks:
        where = f"container {name} of pod {uid} has {block.type}"
        message = f"[memorymanager] (pod: {uid}, container: {name}) the memory assignment uses"

        strange = [numa_id for numa_id in block.numa_nodes if numa_id not in nodes]
        if strange:
            text = f"{where} of NUMA node {strange[0]}, which the machine does not have"
            yield finding("memory-unknown", text, f"{message} the NUMA that does not exist")
        elif any(block.type not in (nodes[numa_id].tables or {}) for numa_id in block.numa_nodes):
            text = f"{where}, which the machine does not have"
            yield finding("memory-unknown", text, f"{message} memory resource that does not exist")


def _changed_memory(
    state: checkpoints.MemoryState, fresh: Mapping[int, checkpoints.NumaNodeState]
) -> Iterator[Finding]:
    """Yield what there is on the machine, or reserved, and is not what was written."""
    for numa_id in sorted({*state.nodes, *fresh}):
        if numa_id not in fresh:
            yield finding("memory-changed", f"the machine has no NUMA node {numa_id}")
            continue
        if numa_id not in state.nodes:
            yield finding("memory-changed", f"the file has no NUMA node {numa_id}")
            continue

        written, present = state.nodes[numa_id], fresh[numa_id]
        written_kinds, present_kinds = {*(written.tables or ())}, {*(present.tables or ())}
        for kind in sorted(written_kinds | present_kinds):
            difference = _difference(kind, written.table(kind), present.table(kind))
            if difference:
                yield finding("memory-changed", f"NUMA node {numa_id} has {difference}")
            elif kind not in written_kinds & present_kinds:
                text = f"NUMA node {numa_id} has {kind} in one of file and machine only"
                yield finding("memory-changed", text)


def _difference(
    kind: str, written: checkpoints.MemoryTable, present: checkpoints.MemoryTable
) -> str:
    """Return the first of a type's amounts that differ, in words; empty: they are the same.

    In bytes where short amounts look alike.
    """
    amounts = (
        (kind, written.total, present.total),
        (f"{kind} that is reserved", written.system_reserved, present.system_reserved),
        (f"{kind} for pods", written.allocatable, present.allocatable),
    )
    for name, before, now in amounts:
        if before != now:
            old, new = short_difference(before, now)
            text = f"{new} of {name}, and had {old} when the file was written"
            if name == "memory" and _is_drift(before, now):
                text += "; what the kernel keeps for itself differs a little from boot to boot"
            return text

    return ""


def _wrong_sums(state: checkpoints.MemoryState, *, exact: bool) -> Iterator[Finding]:
    """Yield where the file's sums of memory do not follow from the blocks of containers.

    A start takes the blocks in no order, and the last one on a NUMA node says the node's group:
    where blocks of several groups are on one node, the kubelet starts at some times and not at
    others, whatever amounts are written.

    Args:
        state: what is written.
        exact: compare each NUMA node, as kubelets up to 1.31 do, and not the sums of each group.
    """
    groups: dict[int, Counter[tuple[int, ...]]] = {numa_id: Counter() for numa_id in state.nodes}
    sizes: Counter[tuple[tuple[int, ...], str]] = Counter()
    for block in _counted_blocks(state):
        group = tuple(sorted(block.numa_nodes))
        sizes[group, block.type] += block.size
        for numa_id in group:
            groups[numa_id][group] += 1

    is_mixed = any(len(groups_of_node) > 1 for groups_of_node in groups.values())
    for numa_id, node in sorted(state.nodes.items()):
        count = groups[numa_id].total()
        cells = tuple(sorted(node.cells or ()))
        groups_of_node = set(groups[numa_id] or [(numa_id,)])

        if count != node.assignments:
            text = (
                f"NUMA node {numa_id} has {node.assignments} assignments, and {count} blocks "
                "lie on it"
            )
            yield finding("memory-books", text)
        elif groups_of_node != {cells}:
            written = ",".join(map(str, cells))
            group_of_block = ",".join(map(str, min(groups_of_node - {cells})))
            text = (
                f"NUMA node {numa_id} is in the group {written}, and a block on it in "
                f"{group_of_block}"
            )
            yield finding("memory-groups" if cells in groups_of_node else "memory-books", text)
        elif not is_mixed:
            yield from _amounts(state, cells, sizes)
            if exact:
                yield from _amounts_of_node(state, numa_id, cells, sizes)


def _counted_blocks(state: checkpoints.MemoryState) -> Iterator[MemoryBlock]:
    """Yield the blocks of containers, of a pod that has memory as a whole its own ones."""
    for uid, containers in state.entries.items():
        if uid in state.pods:
            yield from state.pods[uid]
        else:
            yield from chain.from_iterable(containers.values())


def _amounts(
    state: checkpoints.MemoryState,
    group: tuple[int, ...],
    sizes: Mapping[tuple[tuple[int, ...], str], int],
) -> Iterator[Finding]:
    """Yield where memory of a group of NUMA nodes is not held and free as its blocks' sizes say."""
    for kind in state.nodes[group[0]].tables or {}:
        tables = [state.nodes[numa_id].table(kind) for numa_id in group]
        reserved = sum(table.reserved for table in tables)
        free = sum(table.free for table in tables)
        allocatable = sum(table.allocatable for table in tables)
        size = sizes.get((group, kind), 0)

        if reserved != min(size, allocatable) or free != allocatable - reserved:
            where = ",".join(map(str, group))
            amounts = (
                f"{reserved} bytes count as held and {free} as free; containers hold "
                f"{size} of {allocatable}"
            )
            yield finding("memory-books", f"of {kind} on NUMA nodes {where}, {amounts}")


def _amounts_of_node(
    state: checkpoints.MemoryState,
    numa_id: int,
    group: tuple[int, ...],
    sizes: Mapping[tuple[tuple[int, ...], str], int],
) -> Iterator[Finding]:
    """Yield where a NUMA node holds other amounts than a start deals out.

    A start fills the first nodes of a group.
    """
    earlier_ids = group[: group.index(numa_id)]
    for kind in state.nodes[numa_id].tables or {}:
        table = state.nodes[numa_id].table(kind)
        on_earlier = sum(state.nodes[earlier].table(kind).allocatable for earlier in earlier_ids)
        to_deal = sizes.get((group, kind), 0) - on_earlier
        dealt = max(0, min(to_deal, table.allocatable))

        if table.reserved != dealt:
            text = (
                f"{table.reserved} bytes of {kind} on NUMA node {numa_id} count as held, and a "
                f"start deals {dealt}"
            )
            yield finding("memory-books", text)


def _check_devices(
    checkpoint: DeviceCheckpoint, allocatable: Allocatable | None
) -> Iterator[Finding]:
    """Yield devices that are held twice, or that no plugin reports.

    The latter where PodResources tells of devices.
    """
    holders: dict[tuple[str, str], str] = {}
    for entry in checkpoint.entries:
        for identity in entry.ids:
            holder = holders.setdefault((entry.resource, identity), entry.pod_uid)
            if holder != entry.pod_uid:
                text = (
                    f"{entry.resource} {identity} is both pod {holder}'s and pod {entry.pod_uid}'s"
                )
                yield finding("device-given-twice", text)

    if allocatable is None:
        return

    for resource in checkpoint.registered:
        if resource not in allocatable.devices:
            yield finding("resource-gone", f"{resource} is registered and has no healthy device")

    for entry in checkpoint.entries:
        healthy = {device.id for device in allocatable.devices.get(entry.resource, ())}
        unhealthy = [identity for identity in entry.ids if identity not in healthy]
        if unhealthy:
            text = (
                f"container {entry.container} of pod {entry.pod_uid} holds {entry.resource} "
                f"{', '.join(unhealthy)}, which no plugin reports as healthy"
            )
            yield finding("device-gone", text)


def _check_stale(
    state: checkpoints.KubeletState, stale: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    """Yield entries of pods or containers that are gone."""
    devices = state.device_ids()
    containers = [(uid, name) for uid, names in stale.items() for name in names]
    for uid, name in containers:
        beginning = f"container {name} of pod {uid}, which is gone, has"

        cpus = state.cpus(uid, name)
        if cpus is not None:
            yield finding("stale-cpus", f"{beginning} CPUs {cpus}")

        types = sorted({block.type for block in state.blocks(uid, name)})
        if types:
            yield finding("stale-memory", f"{beginning} {', '.join(types)}")

        for resource, ids in devices.get((uid, name), {}).items():
            yield finding("stale-devices", f"{beginning} {resource} {', '.join(ids)}")


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
        for container in pod.containers:
            name = container.name
            beginning = f"container {name} of pod {pod.namespaced_name} ({pod.uid}) runs and has no"

            if wants_cpus and container.exclusive_cpus and state.cpus(pod.uid, name) is None:
                yield finding("pod-without-cpus", f"{beginning} CPUs of its own there")
            if wants_memory and container.memory and not state.blocks(pod.uid, name):
                yield finding("pod-without-memory", f"{beginning} memory there")

            ids = devices.get((pod.uid, name), {})
            missing = [
                resource
                for resource, count in container.devices
                if count and resource in resources and not ids.get(resource)
            ]
            if missing:
                yield finding("pod-without-devices", f"{beginning} {', '.join(missing)} there")


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
        moved: where the CPUs that it keeps are now, if that is on other NUMA nodes than before;
            empty: it is not.
    """

    pod: Pod
    held: tuple[ContainerHolding, ...]
    holds: tuple[ContainerHolding, ...]
    refusal: Admission | None = None
    again: Admission | None = None
    forgotten: tuple[str, ...] = ()
    moved: str = ""

    @property
    def keeps(self) -> bool:
        """Whether it stays with what it holds.

        The memory of init containers that have ended does not matter.
        """
        ended = {
            container.name for container in self.pod.init_containers if not container.is_sidecar
        }
        before = [holding for holding in self.held if holding.container not in ended]
        after = [holding for holding in self.holds if holding.container not in ended]
        is_changed = before != after or self.forgotten or self.moved
        return self.refusal is None and not is_changed

    @property
    def awaited(self) -> tuple[str, ...]:
        """The resources whose plugins it did not wait for, if it is refused for these."""
        refusal = None if self.refusal is None else self.refusal.refusal
        if refusal is None or not refusal.detail.startswith("no healthy devices present"):
            return ()
        return refusal.resources

    def to_dict(self, numa_node_ids: tuple[int, ...]) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        reason, message = "", ""
        if self.refusal is not None:
            reason, message = self.refusal.reason, self.refusal.message

        again = None
        if self.again is not None:
            containers = {
                name: allocation.to_dict(numa_node_ids)
                for name, allocation in self.again.containers.items()
            }
            again = {**json_fields(self.again, "admitted", "reason"), "containers": containers}

        return {
            **json_fields(self.pod, "name", "namespace", "uid"),
            **json_fields(self, "keeps", "held", "holds", "forgotten", "moved"),
            "admitted": self.refusal is None,
            "reason": reason,
            "message": message,
            "again": again,
        }


class Restart(Record):
    """What a restart of the kubelet does.

    Attributes:
        faults: why it does not start; empty: it does.
        after_boot: the machine is booted.
        risks: what may keep it from starting then, as the machine may come up otherwise than it is.
        outcomes: the pods, in the order in which they are admitted again.
        node: the node after it; None: it does not start.
        damaged: what it passes over when it starts.
    """

    faults: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...] = ()
    node: Node | None = None
    damaged: tuple[Finding, ...] = ()
    after_boot: bool = False
    risks: tuple[Finding, ...] = ()

    @property
    def awaited(self) -> tuple[str, ...]:
        """The resources without whose plugins pods are refused."""
        return tuple(sorted({name for outcome in self.outcomes for name in outcome.awaited}))

    @property
    def remedy(self) -> str:
        """What to do about pods that are refused without them; empty: there are none."""
        for outcome in self.outcomes:
            if outcome.awaited and outcome.refusal is not None:
                meaning = meaning_of_rejection(outcome.refusal.reason, outcome.refusal.message)
                return meaning.repair if meaning else ""

        return ""

    @property
    def keeps_all(self) -> bool:
        """Whether the kubelet starts, and every pod keeps what it holds."""
        return not self.faults and all(outcome.keeps for outcome in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """Return what it does in JSON's types."""
        ids = self.node.machine.numa_node_ids if self.node else ()
        pods = [outcome.to_dict(ids) for outcome in self.outcomes]
        return {
            "starts": not self.faults,
            "reboot": self.after_boot,
            **json_fields(self, "faults", "damaged", "risks", "awaited", "remedy"),
            "pods": pods,
        }


def foretell(files: NodeFiles, options: KubeletOptions, *, after_boot: bool = False) -> Restart:
    """Return what a restart of the kubelet does.

    Args:
        files: the node's files, as they are now.
        options: the configuration and the release that the kubelet starts with, and the machine as
            it is then.
        after_boot: the machine is booted, so that no container runs.

    Raises:
        InputError: there is no file of a kubelet.
        AllocationError: the device checkpoint names devices that are not known.
    """
    records = read_records(files, options, partial(_intact, files))
    complaint = _refused_configuration(records)
    if complaint:  # before it reads any of its files
        source = records.configuration.source
        refusal = finding("configuration", complaint, file=source)
        return Restart((refusal,), after_boot=after_boot)

    findings = check_node(files, options)
    if after_boot:
        findings = list(map(_after_boot, findings))

    faults = tuple(problem for problem in findings if problem.stops)
    if faults:
        return Restart(faults, after_boot=after_boot)

    damaged = tuple(problem for problem in findings if problem.kind in _FORGET)
    machine = options.get("machine") or machine_of(files)
    kubelet_node = make_node(records, machine, keeps_gone=True)
    node, stale = kubelet_node.node, kubelet_node.stale
    node.whole_verdict = True
    documents = {document.pod.uid: document for document in records.pods or ()}
    pods = sorted(
        (pod for pod in node.pods if pod.uid not in stale.pods),
        key=lambda pod: _creation(documents.get(pod.uid)),
    )

    before = holdings_of(node)
    refused = admit_again(node, pods, after_boot=after_boot).refused
    for uid in stale.pods:
        node.remove(uid)
    _remove_stale_containers(node, stale.containers, refused)

    after = holdings_of(node)
    before_boot = None
    if options.get("machine") is not None and files.kernel is not None:
        before_boot = machine_of(files).disjoint()

    def outcome(pod: Pod) -> Outcome:
        held = _holdings_of_pod(before, pod)
        holds = _holdings_of_pod(after, pod)
        if pod.uid in refused:
            refusal = node.admission(pod, refused[pod.uid])
            return Outcome(pod, held, holds, refusal, node.try_admit(pod))

        forgotten = tuple(resource for resource, _ in pod.devices) if damaged else ()
        moved = ""
        if before_boot is not None:
            moved = _moved(holds, before_boot, node.machine)
        return Outcome(pod, held, holds, forgotten=forgotten, moved=moved)

    risks: tuple[Finding, ...] = ()
    if after_boot and options.get("machine") is None:
        risks = tuple(_risks(files, node.config))

    return Restart((), tuple(map(outcome, pods)), node, damaged, after_boot, risks)


def _remove_stale_containers(
    node: Node, stale: Mapping[str, Sequence[str]], refused: Collection[str]
) -> None:
    """Give back what containers hold that their pods do not have, as a start does after all else.

    The managers of CPUs and memory look at each container (`removeStaleState`), that of devices at
    whole pods (`UpdateAllocatedDevices`).
    """
    with node.manager.lock.guard() as guard, guard.take():
        for uid, names in stale.items():
            for name in names:
                for manager in (node.cpu, node.memory):
                    if manager is not None:
                        manager.release(uid, name)
                if node.devices is not None and uid in refused:
                    node.devices.release(uid, name)


def _moved(holdings: Iterable[ContainerHolding], before: Machine, now: Machine) -> str:
    """Return where CPUs are, if they are on other NUMA nodes than before; empty: they are not."""
    for holding in holdings:
        cpus = int(holding.cpus or 0)
        old, new = (
            ids_of(overlapping(machine.node_cpus, cpus), machine.numa_node_ids)
            for machine in (before, now)
        )
        if old != new:
            return (
                f"container {holding.container} keeps CPUs {holding.cpus}, which are on "
                f"{named('NUMA node', new)} now, and were on {named('NUMA node', old)}"
            )

    return ""


def _risks(files: NodeFiles, config: KubeletConfig) -> Iterator[Finding]:
    """Yield what would keep the kubelet from starting if the machine came up otherwise."""
    if config.cpu_manager_policy == "static":
        text = "if other CPUs are online, as after a change of the firmware's or kernel's settings"
        message = "current set of available CPUs doesn't match with CPUs in state"
        yield _after_boot(finding("cpus-changed", text, message, files.place(CPU_STATE)))
    if config.memory_manager_policy == "Static":
        text = (
            "if a NUMA node has other memory than now, and be it a few MiB, as the kernel may keep "
            "more or less for itself"
        )
        yield _after_boot(finding("memory-changed", text, file=files.place(MEMORY_STATE)))


def _after_boot(problem: Finding) -> Finding:
    """Return a finding whose repair is that after a boot, when no container runs."""
    repair = problem.repair.replace(DRAIN_AND_DELETE, _DELETE_AFTER_BOOT)
    return replace(problem, repair=repair)


def _creation(document: PodDocument | None) -> str:
    """Return when a pod was made, or else when it started; empty: that is not known."""
    return "" if document is None else document.created or document.started


def refused_configuration(files: NodeFiles, options: KubeletOptions) -> str:
    """Return why a kubelet of another release would not start with a node's configuration.

    Args:
        files: the node's files, as they are now.
        options: the configuration and the release that the kubelet starts with.

    Returns:
        The sentence; empty: it would start, or it is the release that the Node reports.

    Raises:
        InputError: there is no file of a kubelet.
    """
    records = read_records(files, options, partial(_intact, files))
    reported = records.node_object.kubelet_version if records.node_object else None
    if reported and not newer_release(reported) and parse_version(reported) == records.version:
        return ""
    return _refused_configuration(records)


def _refused_configuration(records: NodeRecords) -> str:
    """Return why a kubelet would not start with a configuration; empty: it would."""
    configuration = records.configuration
    try:
        # gates count as the kubelet has them, unlike those of a kubelet that is known to run
        config_from_document(configuration.fields, configuration.source, version=records.version)
    except InputError as error:
        return str(error)
    return ""


def _holdings_of_pod(holdings: Holdings, pod: Pod) -> tuple[ContainerHolding, ...]:
    """Return what the containers of a pod hold, without those that hold nothing."""
    return tuple(
        holding for holding in holdings.containers if holding and holding.pod_uid == pod.uid
    )


def _intact(files: NodeFiles, version: KubeletVersion) -> checkpoints.KubeletState:
    """Return the state as a kubelet that starts reads it.

    A damaged checkpoint of devices counts as none.
    """
    intact = {
        path: checkpoint
        for path, checkpoint in checkpoints.read_checkpoints(files, version)
        if not isinstance(checkpoint, InputError) and checkpoint.is_intact
    }
    return checkpoints.state_of(intact)
