"""Memory of a command that has a part of a machine, as the kernel's numa_maps shows it."""

from __future__ import annotations

import json
import shlex

import pytest

from campaign.systemd.virtual_machine import Layout, VirtualMachine, new_disk

pytestmark = pytest.mark.slow

LAYOUT = Layout((2, 2, 4, 0), (512, 512, 512, 1024), sockets=1, threads=1)
"""Four NUMA nodes, the last of them without CPUs and as near to node 2 as node 1 is, node 0 farther."""
SIZE = 700
"""MiB, more than node 2 has."""
PROGRAM = f"""
import json, os, re
taken = bytearray({SIZE} << 20)
lines = [line for line in open("/proc/self/numa_maps") if "anon=" in line]
largest = max(lines, key=lambda line: int(re.search("anon=(\\d+)", line)[1]))
pages = {{int(node): int(count) for node, count in re.findall("N(\\d+)=(\\d+)", largest)}}
print(json.dumps({{"pages": pages, "cpus": sorted(os.sched_getaffinity(0)), "memory": os.environ["ALIGNUP_MEMORY"]}}))
"""


@pytest.fixture(scope="module")
def machine(image, tmp_path_factory):
    with VirtualMachine(image, new_disk(image, tmp_path_factory.mktemp("machine")), LAYOUT) as made:
        yield made


def seen(machine: VirtualMachine, *options: str) -> dict[str, object]:
    command = [
        "alignup",
        "run",
        "--part",
        "3/4",
        "--memory",
        f"{SIZE + 50}Mi",
        *options,
        "--",
        "python3",
        "-c",
        PROGRAM,
    ]
    return json.loads(machine.run(shlex.join(command)).out)


def test_memory_comes_from_the_node_of_the_cpus_and_then_from_the_nearest(machine) -> None:
    found = seen(machine)
    pages = {int(node): count for node, count in found["pages"].items()}
    assert set(found["cpus"]) <= {4, 5, 6, 7}, found
    # node 1 and the node without CPUs are as near; the latter has more free
    assert pages.keys() <= {2, 3}, found
    assert pages[2] > 0, found


def test_memory_of_nodes_that_are_named_comes_from_these(machine) -> None:
    found = seen(machine, "--memory-from", "3")
    assert {int(node) for node in found["pages"]} == {3}, found
