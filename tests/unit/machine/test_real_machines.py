"""Ten shapes of machines, against what another observer finds in the same files.

Each shape is a small machine of our own making that tells of itself as one real machine does, and
needs nothing beside the repository. The real ones themselves, with what hwloc makes of them, are
not ours to hand on: they are tried as well from the folder that ALIGNUP_MACHINES names, or
`shared/machines` beside the repository, where there is one.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from alignup import read_machine
from alignup.machine.archive import load_snapshot, take_snapshot
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import Machine
from alignup.machine.sysfs.machine import describe
from inputs.kernel_trees import write
from inputs.machine_shapes import SHAPES

FOLDER = Path(os.environ.get("ALIGNUP_MACHINES", Path(__file__).parents[4] / "shared" / "machines"))
ARCHIVES = {file.name.removesuffix(".tar.xz"): file for file in sorted(FOLDER.glob("*.tar.xz"))}


SLOW = [
    pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(ARCHIVES) if number % 5
]
"""Four of five archives, which take a third of a second each."""


@pytest.fixture(scope="module", params=[*SHAPES, *list(ARCHIVES)[::5], *SLOW])
def case(request, tmp_path_factory):
    """Return a tree, an archive of it, the machine read from it, and what another observer says."""
    folder = tmp_path_factory.mktemp("machine")
    if request.param in SHAPES:
        shape = SHAPES[request.param]
        root, archive = write(folder / "shape", shape.files()), folder / "shape.tar.xz"
        with tarfile.open(archive, "w:xz", preset=0) as packed:
            packed.add(root, "shape")
        return root, archive, read_machine(root), shape.expected()

    archive = ARCHIVES[request.param]
    with tarfile.open(archive) as packed:
        # of Python 3.11.4 and newer; a stricter one asks for the real path of each of thousands of
        # files
        packed.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        packed.extractall(folder)  # noqa: S202 - an archive of our own

    expected = json.loads((FOLDER / f"{request.param}.json").read_text())
    return folder / request.param, archive, read_machine(folder / request.param), expected


def all_cores(machine):
    return [core for node in machine.numa_nodes for core in node.cores] + list(
        machine.unassigned_cores
    )


def groups(machine, attribute):
    """Return the CPUs of each socket or L3 group, by its number."""
    cpus_by_number = {}
    for core in all_cores(machine):
        number = getattr(core, attribute)
        if number is not None:
            cpus_by_number.setdefault(number, set()).update(core.cpus)
    return {number: sorted(cpus) for number, cpus in cpus_by_number.items()}


def test_nodes_and_their_cpus(case):
    _, _, machine, expected = case

    assert list(machine.numa_node_ids) == [node["os_index"] for node in expected["numa_nodes"]]
    assert [list(CPUSet.from_int(cpus)) for cpus in machine.node_cpus] == [
        node["cpus"] for node in expected["numa_nodes"]
    ]


def test_memory_and_hugepages(case):
    _, _, machine, expected = case

    for node, expected_node in zip(machine.numa_nodes, expected["numa_nodes"], strict=True):
        counts = {str(pages.size_bytes): pages.count for pages in node.hugepages}
        assert node.memory == expected_node["memory_bytes"]
        assert {size: count for size, count in counts.items() if count} == {
            size: count for size, count in expected_node["hugepages"].items() if count
        }


def test_distances(case):
    _, _, machine, expected = case

    if len(machine.numa_nodes) > 1:
        rows = [list(row) for row in machine.distance_matrix]
        assert rows == expected["distances"]["matrix"]


def test_cores_sockets_and_caches(case):
    _, _, machine, expected = case

    assert sorted(core.cpus for core in all_cores(machine)) == sorted(
        tuple(core["cpus"]) for core in expected["cores"]
    )
    assert groups(machine, "socket") == {
        socket["os_index"]: socket["cpus"] for socket in expected["packages"]
    }
    assert sorted(groups(machine, "l3").values()) == sorted(
        cache["cpus"] for cache in expected["l3"]
    )


def test_offline_cpus(case):
    _, _, machine, expected = case

    assert list(machine.offline_cpus) == expected["cpus_offline"]


def test_pci_devices(case):
    """There may be more than hwloc has: it leaves out some bridges."""
    _, _, machine, expected = case
    devices = {device.address: device for device in machine.pci_devices}

    for expected_device in expected["pci"]:
        device = devices[expected_device["busid"]]
        assert (device.class_, device.vendor, device.device) == (
            expected_device["class"],
            expected_device["vendor"],
            expected_device["device"],
        )
        if expected_device["local_numa_nodes"] is not None:
            assert [device.numa_node] == expected_device["local_numa_nodes"]


def test_the_archive_is_the_same_machine_as_the_directory(case):
    """So is a snapshot of it, and its JSON form."""
    root, archive, machine, _ = case
    snapshot = root.parent / "snapshot.tar.gz"
    take_snapshot(root, snapshot)

    assert describe(load_snapshot(archive)) == machine
    assert describe(load_snapshot(snapshot)) == machine
    assert Machine.from_dict(json.loads(json.dumps(machine.to_dict()))) == machine
