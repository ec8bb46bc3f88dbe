"""The list of kernel files that matter."""

from __future__ import annotations

import pytest

from alignup.machine.archive import find_kernel_files, is_kernel_file, kept_text
from alignup.machine.sysfs.machine import describe
from alignup.machine.sysfs.tree import MemoryTree
from inputs.kernel_trees import CPU, NODE, pci, server


class RecordingTree(MemoryTree):
    """Remembers what was read and was there."""

    def __init__(self, files):
        super().__init__("test", files)
        self.seen = set()

    def read(self, path, *, whole=True):
        text = super().read(path, whole=whole)
        if text is not None:
            self.seen.add(path)
        return text


def everything():
    """Return a tree that makes discovery read files of every kind."""
    files = server() | pci("0000:01:00.0", numa_node=-1, local_cpus="3", local_cpulist="0-1")
    files |= {f"{CPU}/cpu{cpu}/topology/core_id": f"{cpu}\n" for cpu in range(8)}
    files |= {path.replace("/level", "/id"): "0\n" for path in files if path.endswith("/level")}
    files[f"{CPU}/online"] = ""
    files[f"{CPU}/cpu1/online"] = "1\n"
    files["proc/cpuinfo"] = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\n"
    files[f"{NODE}/node1/cpumap"] = ""
    files[f"{NODE}/node1/cpulist"] = "2-3"
    return files


def test_discovery_reads_nothing_that_is_not_on_the_list():
    """So what a snapshot has is what discovery needs."""
    tree = RecordingTree(everything())
    describe(tree)

    assert [path for path in tree.seen if not is_kernel_file(path)] == []
    assert "proc/cpuinfo" in tree.seen


def test_what_is_found_describes_the_same_machine():
    tree = MemoryTree("test", everything())
    found = dict(find_kernel_files(tree))

    assert describe(MemoryTree("again", found)) == describe(tree)
    assert all(map(is_kernel_file, found))


@pytest.mark.parametrize(
    "path",
    [
        "proc/sys/kernel/hostname",
        "sys/class/dmi/id/product_serial",
        "sys/class/net/eth0/address",
        "sys/bus/pci/devices/0000:01:00.0/config",
        "sys/bus/pci/devices/0000:01:00.0/vpd",
        "sys/devices/system/node/node0/x/meminfo",
        "sys/devices/system/cpu/online/x",
        "etc/passwd",
    ],
)
def test_other_files_are_not_on_the_list(path):
    assert not is_kernel_file(path)
    assert list(find_kernel_files(MemoryTree("test", {path: "secret"}))) == []


def test_serial_numbers_in_cpuinfo_are_not_kept():
    """ARM and POWER have some; only what tells AMD's modules is kept."""
    text = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nSerial\t\t: "
        "00c0ffee\n\nHardware : X\n"
    )

    assert (
        kept_text("proc/cpuinfo", text)
        == "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\n"
    )
    assert kept_text("proc/meminfo", text) == text
