"""Reads `cpu_manager_state`: the shared pool, and the CPUs that containers have for themselves.

All formats are read (`pkg/kubelet/cm/cpumanager/state/checkpoint.go`): version 1 (before Kubernetes 1.18) is keyed by
container id, version 2 by pod uid and container name, version 3 (feature gate PodLevelResourceManagers) has CPUs of
whole pods too. Version 4 (from Kubernetes 1.37 on) is version 2 with a text beside it that has everything and counts
alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from alignup.errors import InputError
from alignup.kubelet.checkpoints import Checkpoint, DataWire, decode_with_data, map_text, matching
from alignup.kubernetes.versions import NEWEST, KubeletVersion, release_of
from alignup.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class CpuState(Checkpoint):
    """The state that a CPU manager has written."""

    policy: str
    """`none` or `static`."""
    shared: CPUSet
    """The shared pool, reserved CPUs included."""
    entries: Mapping[str, Mapping[str, CPUSet]]
    """By pod uid and container name, CPUs of its own."""
    pods: Mapping[str, CPUSet] = field(default_factory=dict)
    """By pod uid, the CPUs of a pod that has them as a whole; of versions 3 and 4 only."""
    by_container_id: Mapping[str, CPUSet] = field(default_factory=dict)
    """By the runtime's container id; of version 1 only."""

    def named(self, containers: Mapping[str, tuple[str, str]]) -> CpuState:
        """Return version 1 as version 2; others as they are.

        Args:
            containers: by container id, the pod's uid and the container's name.

        Raises:
            InputError: a container is not among them; a kubelet would not start either.
        """
        if not self.by_container_id:
            return self
        entries: dict[str, dict[str, CPUSet]] = {}
        for identity, cpus in self.by_container_id.items():
            if identity not in containers:
                raise InputError.at("entries", "ids of containers that are known", identity)
            uid, name = containers[identity]
            entries.setdefault(uid, {})[name] = cpus
        return replace(self, entries=entries, by_container_id={})


class _PodEntry(msgspec.Struct, rename={"cpus": "cpuSet"}):
    """The CPUs of a pod on the wire."""

    cpus: str = ""


class _Wire(DataWire, rename="camel"):
    """The file on the wire, in any version."""

    policy_name: str = ""
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str] | str] | None = msgspec.field(default_factory=dict)
    pod_entries: dict[str, _PodEntry] | None = msgspec.field(default_factory=dict)


def read_cpu_state(data: bytes, source: str = "cpu_manager_state", version: KubeletVersion = NEWEST) -> CpuState:
    """Return the state in a file; whether its checksum is right is left to the caller.

    Args:
        data: the content of the file.
        source: its name in errors.
        version: the release of the kubelet that reads it.

    Raises:
        InputError: it is no JSON, or of another shape, or a set of CPUs is none; or a version that the kubelet does
            not read.
    """
    what, known = "the JSON of a CPU manager's state", release_of(version).checkpoints["cpu_manager_state"]
    wire, told = decode_with_data(data, _Wire, what, source, known, 4)
    entries = wire.entries or {}
    by_id = {key: value for key, value in entries.items() if isinstance(value, str)}
    by_pod = {key: value for key, value in entries.items() if not isinstance(value, str)}
    if by_id and by_pod:
        raise InputError.at(f"entries in {source}", "entries of one version", sorted(entries))
    pods = {uid: entry.cpus for uid, entry in (wire.pod_entries or {}).items()}
    state = CpuState(
        policy=wire.policy_name,
        shared=CPUSet.parse(wire.default_cpu_set, f"defaultCpuSet in {source}"),
        entries={uid: _sets(containers, source) for uid, containers in by_pod.items()},
        pods=_sets(pods, source),
        by_container_id=_sets(by_id, source),
    )
    told = told or matching(_texts(wire, state), wire.checksum, 1 if by_id else 3 if pods else 2)
    if told.version == 1 and "V1" not in known:
        raise InputError(
            f"expected a state of version {known[0][1:]} or later for kubelet {version}, got 1 at {source}"
        )
    return replace(state, **asdict(told))


def _sets(lists: Mapping[str, str], source: str) -> dict[str, CPUSet]:
    """Return the sets of CPUs in lists, by key."""
    return {key: CPUSet.parse(text, f"the CPUs of {key!r} in {source}") for key, text in lists.items()}


def _texts(wire: _Wire, state: CpuState) -> Iterator[tuple[int, str]]:
    """Yield (version, text to be hashed) for each format that a kubelet may take this file for."""
    before = f"PolicyName:(string){wire.policy_name} DefaultCPUSet:(string){wire.default_cpu_set} Entries:"
    after = "Checksum:(checksum.Checksum)0}"
    if state.by_container_id:
        yield 1, f"(*state.CPUManagerCheckpoint){{{before}(map[string]string){map_text(wire.entries)} {after}"
        return
    by_pod: Mapping[str, Any] | None = wire.entries
    entries = f"{before}(map[string]map[string]string){map_text(by_pod, map_text)}"
    yield 2, f"(*state.CPUManagerCheckpoint){{{entries} {after}"
    pods = map_text(None if wire.pod_entries is None else state.pods, _cpus_text)
    yield 3, f"(*state.CPUManagerCheckpoint){{{entries} PodEntries:(state.PodCPUAssignments){pods} {after}"
    # a kubelet without PodLevelResourceManagers accepts the text under this name too
    yield 2, f"(*state.CPUManagerCheckpointV2){{{entries} {after}"


def _cpus_text(cpus: CPUSet) -> str:
    """Return the entry of a pod as spew prints it."""
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){map_text(dict.fromkeys(cpus, '{}'))}}}}}"
