"""Faults made by hand in the files of a kubelet, for tests of `alignup node check`.

The kubelet is stopped, or the files are a copy.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alignup.machine.cpuset import CPUSet
from inputs.kubelet_files import signed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FAULTS", "Place", "mixed_groups"]

CPU, MEMORY, DEVICES = (
    "cpu_manager_state",
    "memory_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
)
KINDS = {CPU: "cpu", MEMORY: "memory", DEVICES: "devices"}
GONE = "deadbeef-0000-4000-8000-000000000001"


@dataclass
class Place:
    """The files of a kubelet's node, to be spoilt."""

    root: Path
    """With `sys` in it."""
    state: Path
    """The kubelet's folder."""
    config: Path

    def edit(self, name, change, *, sign=True):
        """Change a state file, and give it the checksum that it then has."""
        path = self.state / name
        document = json.loads(path.read_text())
        change(document)
        path.write_text(signed(document, KINDS[name]) if sign else json.dumps(document))

    def configure(self, **fields):
        document = {**json.loads(self.config.read_text()), **fields}
        self.config.write_text(
            json.dumps({key: value for key, value in document.items() if value is not None})
        )


def wrong_checksum(name):
    def fault(place):
        def change(document):
            document["Checksum" if name == DEVICES else "checksum"] ^= 1

        place.edit(name, change, sign=False)

    return fault


def missing(*names):
    return lambda place: [(place.state / name).unlink() for name in names]


def torn(name):
    return lambda place: (place.state / name).write_bytes((place.state / name).read_bytes()[:-30])


def emptied(name):
    return lambda place: (place.state / name).write_bytes(b"")


def without_cpu(document, cpu):
    document["defaultCpuSet"] = str(CPUSet(CPUSet.parse(document["defaultCpuSet"]) - {cpu}))


def offline_cpu(place):
    system = place.root / "sys/devices/system"
    shutil.rmtree(system / "cpu/cpu15")
    (system / "cpu/online").write_text("0-14,16-31\n")
    for link in (system / "node").glob("node*/cpu15"):
        link.unlink()


def less_memory(place):
    path = place.root / "sys/devices/system/node/node1/meminfo"
    path.write_text(path.read_text().replace(str(16 << 20), str(12 << 20)))


def more_hugepages(place):
    for pattern in ("sys/devices/system/node/node1/hugepages", "sys/kernel/mm/hugepages"):
        for path in place.root.glob(f"{pattern}/*/nr_hugepages"):
            path.write_text("512\n")


def stale_cpus(place):
    def change(document):
        document["entries"][GONE] = {"c0": "7"}
        without_cpu(document, 7)

    place.edit(CPU, change)


def stale_memory(place):
    def change(document):
        document["entries"][GONE] = {"c0": [{"numaAffinity": [1], "type": "memory", "size": 2**30}]}
        node = document["machineState"]["1"]
        node["numberOfAssignments"] += 1
        node["memoryMap"]["memory"]["reserved"] += 2**30
        node["memoryMap"]["memory"]["free"] -= 2**30

    place.edit(MEMORY, change)


def stale_devices(place):
    def change(document):
        entries = document["Data"]["PodDeviceEntries"]
        entries.append({**entries[0], "PodUID": GONE, "DeviceIDs": {"1": ["gpu3"]}})

    place.edit(DEVICES, change)


def unknown_device(place):
    def change(document):
        document["Data"]["PodDeviceEntries"][0]["DeviceIDs"] = {"0": ["gone9"]}

    place.edit(DEVICES, change)


def device_twice(place):
    def change(document):
        first, second = document["Data"]["PodDeviceEntries"][:2]
        second["DeviceIDs"] = first["DeviceIDs"]

    place.edit(DEVICES, change)


def first_entry(document):
    uid = next(iter(document["entries"]))
    return uid, document["entries"][uid]["c0"]


def newer_format(place):
    def change(document):
        uid, cpus = first_entry(document)
        document["podEntries"] = {uid: {"cpuSet": cpus}}

    place.edit(CPU, change)


def overlap(place):
    def change(document):
        cpus = CPUSet.parse(first_entry(document)[1])
        document["defaultCpuSet"] = str(CPUSet(CPUSet.parse(document["defaultCpuSet"]) | cpus))

    place.edit(CPU, change)


def leaked_cpu(place):
    place.edit(CPU, lambda document: without_cpu(document, 7))


def wrong_books(place):
    def change(document):
        document["machineState"]["0"]["memoryMap"]["memory"]["free"] -= 4096

    place.edit(MEMORY, change)


def wrong_group(place):
    place.edit(MEMORY, lambda document: document["machineState"]["0"].update(cells=[0, 1]))


def mixed_groups(place, others=0):
    """Memory on both NUMA nodes beside that of containers on one.

    A kubelet starts on it at some times only.
    """

    def change(document):
        alone = [{"numaAffinity": [0], "type": "memory", "size": 0}]
        document["entries"] |= {f"{GONE}-{number}": {"c0": alone} for number in range(others)}
        document["machineState"]["0"]["numberOfAssignments"] += others
        document["entries"][GONE] = {
            "c0": [{"numaAffinity": [0, 1], "type": "memory", "size": 2**30}]
        }
        for node in document["machineState"].values():
            if not node["numberOfAssignments"]:
                node["cells"] = [0, 1]
            node["numberOfAssignments"] += 1

        memory = document["machineState"]["0"]["memoryMap"]["memory"]
        memory["reserved"] += 2**30
        memory["free"] -= 2**30

    place.edit(MEMORY, change)


def unknown_node(place):
    def change(document):
        first_entry(document)[1][0]["numaAffinity"] = [7]

    place.edit(MEMORY, change)


def pod_without_cpus(place):
    def change(document):
        uid, cpus = first_entry(document)
        del document["entries"][uid]
        both = CPUSet(CPUSet.parse(document["defaultCpuSet"]) | CPUSet.parse(cpus))
        document["defaultCpuSet"] = str(both)

    place.edit(CPU, change)


def foreign_owner(place):
    for name in KINDS:
        os.chown(place.state / name, 65534, 65534)
        (place.state / name).chmod(0)


def other_reserved_memory(place):
    place.configure(
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi"}}],
        systemReserved={"memory": "1948Mi"},
    )


FAULTS = {
    "nothing": (lambda _: None, set(), True),
    "wrong checksum of CPUs": (wrong_checksum(CPU), {"cpu-checksum"}, False),
    "wrong checksum of memory": (wrong_checksum(MEMORY), {"memory-checksum"}, False),
    "wrong checksum of devices": (wrong_checksum(DEVICES), {"device-checksum"}, True),
    "no file of CPUs": (missing(CPU), {"cpu-file-missing"}, True),
    "no file of memory": (missing(MEMORY), {"memory-file-missing"}, True),
    "no file of devices": (missing(DEVICES), {"device-file-missing"}, True),
    "empty folder": (missing(*KINDS), {"no-state"}, True),
    "torn file of CPUs": (torn(CPU), {"cpu-file-damaged"}, False),
    "torn file of memory": (torn(MEMORY), {"memory-file-damaged"}, False),
    "torn file of devices": (torn(DEVICES), {"device-file-damaged"}, True),
    "empty file of CPUs": (emptied(CPU), {"cpu-file-damaged"}, False),
    "newer format": (newer_format, {"newer-format"}, False),
    "foreign owner": (foreign_owner, {"owner"}, True),
    "more reserved CPUs": (
        lambda place: place.configure(reservedSystemCPUs="0-3"),
        {"reserved-cpus"},
        False,
    ),
    "strict reservation": (
        lambda place: place.configure(cpuManagerPolicyOptions={"strict-cpu-reservation": "true"}),
        {"reserved-cpus", "cpus-changed"},
        False,
    ),
    "other CPU policy": (
        lambda place: place.configure(cpuManagerPolicy="none"),
        {"cpu-policy"},
        False,
    ),
    "other memory policy": (
        lambda place: place.configure(memoryManagerPolicy="None", reservedMemory=None),
        {"memory-policy"},
        False,
    ),
    "other reserved memory": (other_reserved_memory, {"memory-changed"}, False),
    "offline CPU": (offline_cpu, {"cpus-changed"}, False),
    "leaked CPU": (leaked_cpu, {"cpus-changed"}, False),
    "CPUs in the pool and a container": (overlap, {"cpu-overlap"}, False),
    "less memory": (less_memory, {"memory-changed"}, False),
    "other hugepages": (more_hugepages, {"memory-changed"}, False),
    "wrong books of memory": (wrong_books, {"memory-books"}, False),
    "wrong group of NUMA nodes": (wrong_group, {"memory-books"}, False),
    "memory of an unknown NUMA node": (unknown_node, {"memory-unknown"}, False),
    "stale CPUs": (stale_cpus, {"stale-cpus"}, True),
    "stale memory": (stale_memory, {"stale-memory"}, True),
    "stale devices": (stale_devices, {"stale-devices"}, True),
    "unknown device": (unknown_device, {"device-gone"}, True),
    "device of two pods": (device_twice, {"device-given-twice"}, True),
    "pod without CPUs": (pod_without_cpus, {"pod-without-cpus"}, True),
}
"""By name: what spoils the files, the kinds of findings that must follow.

And whether a kubelet starts on them.
"""
