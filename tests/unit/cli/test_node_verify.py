"""`alignup node verify`."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest

from alignup.host.leases.file import LeaseFile
from alignup.machine.cpuset import CPUSet
from inputs import leasing
from inputs.kubelet_files import EXAMPLE

if TYPE_CHECKING:
    from pathlib import Path

UID = "bb3dd3329dbfbb9821512e830261d032"


@pytest.fixture
def root(tmp_path):
    with tarfile.open(EXAMPLE / "root.tar.xz") as archive:
        archive.extractall(tmp_path / "root", filter="data")
    return tmp_path / "root"


def process(root, pid, cpus, identity):
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text(
        f"Name:\twork\nPPid:\t1\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n"
    )
    uid = f"{UID[:8]}-{UID[8:12]}-{UID[12:16]}-{UID[16:20]}-{UID[20:]}"
    (folder / "cgroup").write_text(f"0::/kubepods/pod{uid}/{identity}\n")


def test_processes_that_sit_well_and_badly(alignup, root):
    process(root, 70, "1-2,25-26", "container-000002")
    ended = alignup("node", "verify", "--node", root)
    assert (ended.status, ended.out) == (0, "1 process checked: all are placed as recorded\n")
    process(root, 71, "0-47", "container-000002")
    ended = alignup("node", "verify", "--node", root)
    assert ended.status == 1
    assert ended.out.startswith(
        "default/p51-00-node-real/c0: process 71 (work) may run on CPUs 0,3-24,27-47"
    )
    ended = alignup("node", "verify", "--node", root, "--json", "70", "71")
    assert [(finding["kind"], finding["pid"]) for finding in ended.lines] == [("cpus", 71)]
    assert alignup("node", "verify", "--node", root, "72").complains("process 72 does not run")


def test_leases_are_verified_by_their_file(alignup, root, tmp_path):
    file = tmp_path / "leases.json"
    lease = leasing.record("mine", cpus=CPUSet.parse("1"))
    leasing.put(LeaseFile(file, pytest.fail), lease)
    pid = lease.process.pid
    process(root, pid, "5", "x")
    ended = alignup("node", "verify", "--node", root, "--leases", "--state", file)
    assert ended.status == 1
    assert ended.out.startswith(f"mine: process {pid} (work) may run on CPUs 5")


def test_an_archive_has_no_processes(alignup):
    assert alignup("node", "verify", "--node", EXAMPLE / "root.tar.xz").complains(
        "the root of a machine"
    )


def container(tmp_path, cpus: str, *, numa_node: int = 0) -> Path:
    """Return the root of a machine as a container sees it.

    It has two NUMA nodes, a GPU and a network adapter.
    """
    files = {
        "sys/devices/system/cpu/online": "0-3",
        "sys/devices/system/node/online": "0-1",
        "proc/self/status": f"Name:\tx\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n",
        "proc/driver/nvidia/gpus/0000:18:00.0/information": "Model: X\nDevice Minor: \t 2\n",
        "proc/driver/nvidia/gpus/0000:19:00.0/information": "Model: X\nDevice Minor: \t 3\n",
        "dev/nvidia2": "",
    }
    for node, own in ((0, "0-1"), (1, "2-3")):
        files[f"sys/devices/system/node/node{node}/cpulist"] = own
        files[f"sys/devices/system/node/node{node}/meminfo"] = "Node 0 MemTotal: 1024 kB"

    for cpu in range(4):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = str(cpu)

    for address, node in (("0000:18:00.0", 0), ("0000:19:00.0", 1), ("0000:1a:00.0", numa_node)):
        files[f"sys/bus/pci/devices/{address}/class"] = "0x030200"
        files[f"sys/bus/pci/devices/{address}/numa_node"] = str(node)

    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    adapter = tmp_path / "sys/class/net/eth0"
    adapter.mkdir(parents=True)
    (adapter / "device").symlink_to(tmp_path / "sys/bus/pci/devices/0000:1a:00.0")
    return tmp_path


@pytest.mark.parametrize(
    ("cpus", "numa_node", "aligned", "status"),
    [
        ("0-1", 0, True, 0),
        ("0-1", 1, False, 1),
        ("2", 1, False, 1),
        ("0-3", 0, False, 1),
        ("0", -1, None, 2),
        ("9", 0, None, 2),
    ],
)
def test_a_container_asks_about_itself(
    alignup, tmp_path, cpus: str, numa_node: int, aligned, status: int
) -> None:
    """It needs no rights for its own affinity, and for where its devices are."""
    ended = alignup(
        "node",
        "verify",
        "--self",
        "--node",
        container(tmp_path, cpus, numa_node=numa_node),
        "--json",
    )

    verdict = ended.lines[0]
    assert (ended.status, verdict["aligned"], verdict["memoryNumaNodes"]) == (
        status,
        aligned,
        [0, 1],
    )
    assert [(device["address"], device["from"]) for device in verdict["devices"]] == [
        ("0000:18:00.0", "/dev/nvidia2"),
        ("0000:1a:00.0", "net eth0"),
    ]


def test_device_plugins_name_devices_in_the_environment(alignup, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PCIDEVICE_INTEL_COM_SRIOV", "0000:19:00.0,0000:1a:00.0")
    ended = alignup("node", "verify", "--self", "--node", container(tmp_path, "0-1"))
    assert ended.status == 1
    assert "0000:19:00.0 (PCIDEVICE_INTEL_COM_SRIOV): NUMA node 1" in ended.out
    assert "not aligned: a device is on another NUMA node than the CPUs" in ended.out


def test_this_process_can_ask_about_itself(alignup) -> None:
    """On whatever machine this is."""
    assert alignup("node", "verify", "--self").status in {0, 1, 2}
