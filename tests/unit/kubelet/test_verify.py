"""Running processes against the state of their node, in a tree of /proc of our own."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import msgspec
import pytest

from alignup import Node, read_machine
from alignup.errors import InputError
from alignup.host.leases.record import MemoryShare
from alignup.host.processes.identity import identify
from alignup.kubelet.allocate_response_pb2 import AllocateResponse, DeviceFile
from alignup.kubelet.processes import all_processes
from alignup.kubelet.read import read_kubelet
from alignup.kubelet.verify import (
    look_at_self,
    placements_of_kubelet,
    placements_of_leases,
    verify,
)
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.records import json_fields
from inputs import leasing
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG, guaranteed, signed, write_node, write_root

UID = "01234567-89ab-cdef-0123-456789abcdef"
ID = "f" * 64
GPUS = {"nvidia.com/gpu": [Device("g0", (0,))]}

SYSTEMD = (
    f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope\n"
)

CGROUPFS = f"12:cpuset:/kubepods/pod{UID}/{'e' * 64}\n"


@pytest.fixture
def root(tmp_path):
    root = write_root(tmp_path / "root", server(cores=4, nodes=2))
    node = Node(read_machine(root), CONFIG, GPUS)
    pod = guaranteed("a", (2, 1, 1), ("1500m", 1))
    pod["metadata"]["uid"] = UID
    pod["status"]["containerStatuses"] = [
        {"name": "c0", "containerID": f"containerd://{ID}"},
        {"name": "c1", "containerID": f"containerd://{'e' * 64}"},
    ]
    assert node.admit(pod)
    write_node(root, node, [pod])

    path = root / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    document = json.loads(path.read_text())
    answer = AllocateResponse(
        devices=[DeviceFile(container_path="/dev/null0", host_path="/dev/null")]
    )
    document["Data"]["PodDeviceEntries"][0]["AllocResp"] = base64.b64encode(
        answer.SerializeToString()
    ).decode()
    path.write_text(signed(document, "devices"))
    return root


def process(root, pid, cpus, *, mems="0", cgroup="", maps="", parent=1, name="work", device=True):
    folder = root / "proc" / str(pid)
    (folder / "root/dev").mkdir(parents=True)
    if device:
        (folder / "root/dev/null0").symlink_to("/dev/null")

    fields = {
        "Name": name,
        "PPid": parent,
        "Kthread": 0,
        "Cpus_allowed_list": cpus,
        "Mems_allowed_list": mems,
    }
    status = "".join(f"{key}:\t{value}\n" for key, value in fields.items())
    (folder / "status").write_text(status)
    (folder / "cgroup").write_text(cgroup)
    (folder / "numa_maps").write_text(maps)


def misplaced(root, *pids):
    running = list(all_processes(root))
    return verify(root, placements_of_kubelet(read_kubelet(root), running), running, pids)


def first_cpus(root):
    """Return the CPUs of the first container."""
    return str(read_kubelet(root).node.cpu.cpus(UID, "c0"))


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, []),
        ({"cpus": "0-15"}, ["cpus"]),
        ({"mems": "0-1"}, ["mems"]),
        (
            {"maps": "7f00 default anon=512 dirty=512 N0=100 N1=412 kernelpagesize_kB=4\n"},
            ["memory"],
        ),
        ({"maps": "7f00 default anon=512 N0=510 N1=2 kernelpagesize_kB=4\n"}, []),
        ({"maps": "7f00 default anon=51500 N0=51200 N1=300 kernelpagesize_kB=4\n"}, []),
        ({"maps": "7f00 default anon=51800 N0=51200 N1=600 kernelpagesize_kB=4\n"}, ["memory"]),
        ({"maps": "7f00 default file=/lib mapped=512 N1=512 kernelpagesize_kB=4\n"}, []),
        ({"maps": "7f00 default huge anon=2 N1=2 kernelpagesize_kB=2048\n"}, ["memory"]),
        (
            {
                "maps": (
                    "7f00 default file=/dev/hugepages/a huge dirty=2 N1=2 kernelpagesize_kB=2048\n"
                )
            },
            ["memory"],
        ),
        ({"device": False}, ["device"]),
    ],
)
def test_what_is_not_where_it_should_be_is_found(root, changed, kinds):
    process(root, 70, **{"cpus": first_cpus(root), "cgroup": SYSTEMD, **changed})
    process(root, 71, "0-15", name="somebody else's")
    misplacements = misplaced(root)
    assert [misplacement.kind for misplacement in misplacements] == kinds
    assert all(
        misplacement.pid == 70 and misplacement.name == "default/a/c0"
        for misplacement in misplacements
    )
    assert all("\n" not in json.dumps(json_fields(misplacement)) for misplacement in misplacements)


def test_device_files_are_looked_for_where_nobody_gives_memory(root):
    """As the memory manager's default policy is."""
    folder = root / "var/lib/kubelet"
    without_memory = {**CONFIG, "memoryManagerPolicy": "None", "reservedMemory": []}
    (folder / "config.yaml").write_text(json.dumps(without_memory))
    (folder / "memory_manager_state").unlink()
    process(root, 70, first_cpus(root), cgroup=SYSTEMD, device=False)
    (misplacement,) = misplaced(root)
    assert misplacement.text == "process 70 (work) does not see the device file /dev/null0"


def test_shared_containers_keep_to_the_shared_pool(root):
    process(root, 70, "0", cgroup=CGROUPFS)
    process(root, 72, first_cpus(root), cgroup=CGROUPFS)
    (misplacement,) = misplaced(root)
    assert (misplacement.pid, misplacement.kind, misplacement.name) == (72, "cpus", "default/a/c1")
    assert "shares CPUs" in misplacement.text


def test_named_processes_must_run_in_a_container(root):
    process(root, 70, first_cpus(root), cgroup=SYSTEMD)
    process(root, 71, "0-15")
    assert misplaced(root, 70) == []
    with pytest.raises(InputError, match="process 71 belongs to no container and to no lease"):
        misplaced(root, 71)
    with pytest.raises(InputError, match="process 99 does not run"):
        misplaced(root, 99)


def test_threads_of_the_kernel_and_processes_that_end_are_passed_over(root):
    process(root, 70, "0-15", cgroup=SYSTEMD)
    (root / "proc/70/status").write_text("Name:\tkworker\nKthread:\t1\nCpus_allowed_list:\t0-15\n")
    (root / "proc/71").mkdir()
    assert misplaced(root) == []


def test_leases_and_what_they_have_started_are_verified(root):
    """The kernel does not confine a lease's memory, so only where it is counts."""
    lease = leasing.record(
        "mine", cpus=CPUSet.parse("1-2"), memory=(MemoryShare(0, "memory", 1 << 30),)
    )
    pid = lease.process.pid
    process(root, pid, "1", mems="0-1")
    process(root, pid + 1, "1-3", mems="0-1", parent=pid)
    process(root, pid + 2, "9", parent=1)
    running = list(all_processes(root))
    misplacements = verify(root, placements_of_leases([lease], running), running)
    assert [
        (misplacement.pid, misplacement.kind, misplacement.name) for misplacement in misplacements
    ] == [(pid + 1, "cpus", "mine")]


def test_what_a_command_of_a_lease_has_left_is_verified(root):
    """The keeper inherits it, and is bound to nothing itself."""
    lease = leasing.record("mine", cpus=CPUSet.parse("1-2"))
    keeper = identify(os.getppid())
    lease = msgspec.structs.replace(lease, keeper=keeper)
    process(root, keeper.pid, "0-15")
    process(root, 71, "3", parent=keeper.pid)
    running = list(all_processes(root))
    (misplacement,) = verify(root, placements_of_leases([lease], running), running)
    assert (misplacement.pid, misplacement.name) == (71, "mine")


def test_this_process_can_be_read():
    mine = next(process for process in all_processes(Path("/")) if process.pid == os.getpid())
    assert set(os.sched_getaffinity(0)) == set(mine.cpus)


@pytest.mark.parametrize(
    ("cpus", "numa_nodes", "aligned", "text"),
    [
        ("1", [0], True, "aligned: all of it is on one NUMA node"),
        ("1,3", [0, 1], False, "not aligned: CPUs of 2 NUMA nodes may be used"),
        ("63", [], None, "unknown: no CPU of a NUMA node may be used"),
        ("", [], None, "unknown: no CPU of a NUMA node may be used"),
    ],
)
def test_this_process_is_aligned_by_the_cpus_of_numa_nodes_that_it_may_use(
    tmp_path, cpus, numa_nodes, aligned, text
):
    root = write_root(tmp_path / "root", server(cores=2, threads=1))
    process(root, "self", cpus)
    placement = look_at_self(root, {})
    assert [placement[key] for key in ("numaNodes", "aligned", "text")] == [
        numa_nodes,
        aligned,
        text,
    ]
