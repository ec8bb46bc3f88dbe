"""Where the memory of a command comes from that has a part of a machine.

The kernel's numa_maps shows it.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

import pytest

from campaign.systemd.virtual_machine import Layout, VirtualMachine, new_disk

pytestmark = pytest.mark.slow

LAYOUT = Layout((1, 1, 2, 0), (512, 512, 512, 1024), sockets=1, threads=1)
"""Four NUMA nodes, the last without CPUs and as near to node 2 as node 1 is; node 0 is farther."""
PART = 3, 4
"""The part with the last CPU, on node 2."""
LITTLE = 64
"""MiB of a node that the kernel keeps, or has in pieces that are smaller than a huge page."""
PROGRAM = r"""
import json, os, re, sys
{before}
taken = bytearray({size} << 20)
lines = [line for line in open("/proc/self/numa_maps") if "anon=" in line]
largest = max(lines, key=lambda line: int(re.search(r"anon=(\d+)", line)[1]))
names = os.listdir("/sys/devices/system/node")
nodes = sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name))
pages_of_nodes = [re.search(rf" N{{node}}=(\d+)", largest) for node in nodes]
free = [open(f"/sys/devices/system/node/node{{node}}/meminfo").read() for node in nodes]
print(json.dumps({{
    "line": largest.strip(),
    "cpus": sorted(os.sched_getaffinity(0)),
    "nodes": os.environ.get("ALIGNUP_NUMA_NODES", ""),
    "taken": [int((pages or [0, 0])[1]) * 4096 >> 20 for pages in pages_of_nodes],
    "free": [int(re.search(r"MemFree: *(\d+)", text)[1]) >> 10 for text in free],
}}))
"""


@dataclass(frozen=True)
class Seen:
    """What a program has seen of itself when it held its memory."""

    line: str
    """Of numa_maps: policy, and pages by node."""
    cpus: list[int]
    nodes: str
    """ALIGNUP_NUMA_NODES."""
    taken: list[int]
    """MiB that it has of each node."""
    free: list[int]
    """MiB that are left of each node."""

    @property
    def used(self) -> set[int]:
        """The nodes that it has memory of."""
        return {node for node, size in enumerate(self.taken) if size}

    @property
    def full(self) -> set[int]:
        """The nodes that have next to nothing left."""
        return {node for node, size in enumerate(self.free) if size < LITTLE}


@pytest.fixture(scope="module")
def machine(image, tmp_path_factory):
    with VirtualMachine(
        image, new_disk(image, tmp_path_factory.mktemp("machine")), LAYOUT, services=False
    ) as virtual_machine:
        yield virtual_machine


def seen(machine: VirtualMachine, size: int, prefix: str = "", before: str = "") -> Seen:
    """Return what a program sees that takes so many MiB.

    It runs below `alignup run`, or after a line of its own.
    """
    program = shlex.join(["python3", "-c", PROGRAM.format(size=size, before=before)])
    report = Seen(**json.loads(machine.run(f"{prefix} {program}").out))
    print(report)  # noqa: T201  # for -s, and for a failure
    return report


def run(machine: VirtualMachine, size: int, *options: str, memory: int = 0) -> Seen:
    """Return what a program sees that `alignup run` starts on the part.

    It has as much memory as it takes, or more.
    """
    part = "{}/{}".format(*PART)
    return seen(
        machine,
        size,
        shlex.join(
            ["alignup", "run", "--part", part, "--memory", f"{memory or size}Mi", *options, "--"]
        ),
    )


def bind(machine: VirtualMachine, size: int, memory: str, part: tuple[int, int] = PART) -> Seen:
    """Return what a program sees that binds itself."""
    return seen(machine, size, before=f"import alignup; alignup.bind(*{part}, memory={memory!r})")


def test_memory_that_fits_is_on_the_node_of_the_cpus(machine) -> None:
    for options in ((), ("--policy", "restricted"), ("--memory-from", "cpus")):
        report = run(machine, 200, *options)
        assert report.cpus == [3], report
        assert report.nodes == "2", report
        assert report.used == {2}, report


def test_memory_comes_from_the_node_of_the_cpus_and_then_from_the_nearest(machine) -> None:
    report = run(machine, 700, memory=750)
    assert report.cpus == [3], report
    # node 1 and the node without CPUs are as near; the latter has more free
    assert report.nodes == "2,3", report
    assert report.used == {2, 3}, report
    assert 2 in report.full, report


def test_the_farthest_node_is_the_last(machine) -> None:
    report = run(machine, 1650)
    assert report.used == {1, 2, 3}, report
    assert report.full >= {2, 3}, report


def test_memory_of_nodes_that_are_named_comes_from_these(machine) -> None:
    report = run(machine, 700, "--memory-from", "3")
    assert report.used == {3}, report
    report = run(machine, 300, "--memory-from", "0-1")
    assert report.used == {1}, report


def test_of_the_nodes_that_are_named_the_nearest_is_first(machine) -> None:
    report = run(machine, 700, "--memory-from", "0,3")
    assert report.used == {3}, report
    report = run(machine, 1150, "--memory-from", "0,3")
    assert report.used == {0, 3}, report
    assert 3 in report.full, report


def test_more_than_the_nodes_of_the_cpus_have_is_refused_where_it_must_be_there(machine) -> None:
    command = f"alignup run --part {PART[0]}/{PART[1]} --memory 750Mi"
    for options in ("--policy restricted", "--memory-from cpus"):
        refused = machine.run(f"{command} {options} true", check=False)
        assert refused.status == 125, refused
        assert "too little memory is free on the NUMA nodes of its CPUs (2)" in refused.err, refused


@pytest.mark.parametrize("memory", ["preferred", "bind", "local"])
def test_who_binds_itself_has_memory_of_the_node_of_its_cpus(machine, memory) -> None:
    report = bind(machine, 200, memory)
    assert report.cpus == [3], report
    assert report.used == {2}, report


@pytest.mark.parametrize("memory", ["preferred", "local"])
def test_who_binds_itself_has_more_of_the_nearest(machine, memory) -> None:
    report = bind(machine, 700, memory)
    assert 2 in report.used & report.full, report
    assert 0 not in report.used, report


def test_memory_in_turn_is_of_each_node_of_the_part(machine) -> None:
    report = bind(machine, 300, "interleave", (0, 1))
    assert report.used == {0, 1, 2}, report
    assert max(report.taken) - min(report.taken[:3]) < LITTLE, report
