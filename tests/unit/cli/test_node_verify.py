"""`alignup node verify`."""

from __future__ import annotations

import tarfile

import pytest

import leasing
from alignup.leases.file import LeaseFile
from alignup.machine.cpuset import CPUSet
from kubelet_files import EXAMPLE

UID = "bb3dd3329dbfbb9821512e830261d032"


@pytest.fixture
def root(tmp_path):
    with tarfile.open(EXAMPLE / "root.tar.xz") as archive:
        archive.extractall(tmp_path / "root", filter="data")
    return tmp_path / "root"


def process(root, pid, cpus, identity):
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text(f"Name:\twork\nPPid:\t1\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n")
    uid = f"{UID[:8]}-{UID[8:12]}-{UID[12:16]}-{UID[16:20]}-{UID[20:]}"
    (folder / "cgroup").write_text(f"0::/kubepods/pod{uid}/{identity}\n")


def test_processes_that_sit_well_and_badly(alignup, root):
    process(root, 70, "1-2,25-26", "container-000002")
    ended = alignup("node", "verify", "--node", root)
    assert (ended.status, ended.out) == (0, "1 process looked at: all sit where they should\n")
    process(root, 71, "0-47", "container-000002")
    ended = alignup("node", "verify", "--node", root)
    assert ended.status == 1
    assert ended.out.startswith("default/p51-00-node-real/c0: process 71 (work) may run on CPUs 0,3-24,27-47")
    ended = alignup("node", "verify", "--node", root, "--json", "70", "71")
    assert [(one["kind"], one["pid"]) for one in ended.lines] == [("cpus", 71)]
    assert alignup("node", "verify", "--node", root, "72").complains("one that does not run: 72")


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
    assert alignup("node", "verify", "--node", EXAMPLE / "root.tar.xz").complains("the root of a machine")
