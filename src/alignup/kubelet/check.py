"""Checks the files of a kubelet against each other, the machine, the configuration and the pods; writes nothing.

What is wrong with one file is found in the modules `check_cpus`, `check_memory` and `check_pods` beside this one; what
a finding means is said in `findings`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alignup.errors import InputError
from alignup.kubelet.check_cpus import check_cpus
from alignup.kubelet.check_memory import check_memory
from alignup.kubelet.check_pods import check_devices, check_pods, check_stale
from alignup.kubelet.cpu_state import read_cpu_state
from alignup.kubelet.device_checkpoint import read_device_checkpoint
from alignup.kubelet.findings import finding
from alignup.kubelet.layout import CPU_STATE, DEVICE_CHECKPOINT, MEMORY_STATE, FolderFiles
from alignup.kubelet.memory_state import read_memory_state
from alignup.kubelet.read import config_of, machine_of, read_records, stale_entries
from alignup.kubelet.state import KubeletState
from alignup.machine.cpuset import CPUSet
from alignup.providers.cpu.provider import reserved_cpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.kubelet.cpu_state import CpuState
    from alignup.kubelet.findings import Finding
    from alignup.kubelet.layout import NodeFiles
    from alignup.kubelet.options import KubeletOptions
    from alignup.kubelet.read import NodeRecords
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.machine.machine import Machine

__all__ = ["check_node"]

_READERS: dict[str, tuple[str, Any]] = {
    CPU_STATE: ("cpu", read_cpu_state),
    MEMORY_STATE: ("memory", read_memory_state),
    DEVICE_CHECKPOINT: ("device", read_device_checkpoint),
}
_POD_LEVEL_GATE = "PodLevelResourceManagers"


def check_node(files: NodeFiles, options: KubeletOptions) -> list[Finding]:
    """Return all that is wrong with the files of a kubelet.

    Args:
        files: the node's files.
        options: as those of `Node.from_kubelet`; `devices` and `kubelet_dir` do not matter.

    Raises:
        InputError: there is no file of a kubelet, or something else than a state file is damaged.
    """
    found, values = _read_files(files)
    records = read_records(
        files, options.get("config"), options.get("config_dir"), lambda ids: _state(values, ids)
    )
    machine = options.get("machine") or (machine_of(files) if files.kernel is not None else None)
    try:
        config = config_of(records, machine, options.get("kubelet_version"))
    except InputError as error:
        return [*found, finding("configuration", records.configuration.source, str(error))]
    found += _missing(records, config)
    found += _formats(files, values, config)
    damaged = {one.file for one in found}
    intact = {path: value for path, value in values.items() if files.place(path) not in damaged}
    state = _state(intact, {})
    return [*found, *_contents(replace(records, state=state), machine, config)]


def _state(values: dict[str, Any], containers: dict[str, tuple[str, str]]) -> KubeletState:
    """Return the state of files that could be read."""
    cpu: CpuState | None = values.get(CPU_STATE)
    if cpu is not None and containers:
        with suppress(InputError):  # of containers that are gone
            cpu = cpu.named(containers)
    return KubeletState(cpu, values.get(MEMORY_STATE), values.get(DEVICE_CHECKPOINT))


def _read_files(files: NodeFiles) -> tuple[list[Finding], dict[str, Any]]:
    """Return what is wrong with the state files by themselves, and what those say that can be read."""
    found: list[Finding] = []
    values: dict[str, Any] = {}
    for path, (name, read) in _READERS.items():
        try:
            data = files.read(path)
            if data is None:
                continue
            values[path] = read(data, files.place(path))
        except InputError as error:
            found.append(finding(f"{name}-file-damaged", files.place(path), str(error)))
            continue
        found += _owner(files, path)
    return found, values


def _owner(files: NodeFiles, path: str) -> Iterator[Finding]:
    """Yield that a file is not its folder's owner's."""
    if isinstance(files, FolderFiles):
        owner, folders = files.path_of(path).stat().st_uid, files.path_of(path).parent.stat().st_uid
        if owner != folders:
            text = f"the file is user {owner}'s, and its folder user {folders}'s"
            yield finding("owner", files.place(path), text)


def _missing(records: NodeRecords, config: KubeletConfig) -> Iterator[Finding]:
    """Yield the files that should be there."""
    files = records.files
    wanted = {
        CPU_STATE: config.cpu_manager_policy == "static",
        MEMORY_STATE: config.memory_manager_policy == "Static",
        # without a device plugin there is none
        DEVICE_CHECKPOINT: bool(records.allocatable and records.allocatable.devices),
    }
    there = [path for path in wanted if _is_there(files, path)]
    gone = [path for path, is_wanted in wanted.items() if is_wanted and path not in there]
    if gone and not there:
        folder = files.place(CPU_STATE).removesuffix("/cpu_manager_state")
        yield finding("no-state", folder, "the kubelet's folder has no state file")
        return
    for path in gone:
        yield finding(f"{_READERS[path][0]}-file-missing", files.place(path), "there is no such file")


def _is_there(files: NodeFiles, path: str) -> bool:
    try:
        return files.read(path) is not None
    except InputError:  # there is something, which is a finding by itself
        return True


def _formats(files: NodeFiles, values: dict[str, Any], config: KubeletConfig) -> Iterator[Finding]:
    """Yield wrong checksums, and formats that a kubelet of this configuration does not take."""
    newest = 3 if config.feature_gates.get(_POD_LEVEL_GATE) else 2
    for path, value in values.items():
        name = _READERS[path][0]
        version = getattr(value, "version", 0) + (path == MEMORY_STATE)
        if not value.is_intact:
            text = f"the checksum is {value.checksum}, and that of what is written {value.expected_checksum}"
            yield finding(f"{name}-checksum", files.place(path), text)
        elif version > newest:
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
                reserved_cpus(
                    machine, config.reserved_cpu_count, config.cpu_manager_policy_options, config.profile
                )
            )
        yield from check_cpus(state.cpu, place(CPU_STATE), config, reserved, cpus)
    if state.memory is not None:
        yield from check_memory(state.memory, place(MEMORY_STATE), config, machine)
    if state.devices is not None:
        yield from check_devices(state.devices, place(DEVICE_CHECKPOINT), records.allocatable)
    yield from check_stale(state, stale_entries(records), place)
    running = [one.pod for one in records.pods or () if one.phase == "Running"]
    resources = frozenset(state.devices.registered if state.devices else ())
    yield from check_pods(
        state, [pod.read_as(config.profile.pods) for pod in running], config, resources, place
    )
