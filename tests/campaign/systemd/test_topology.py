"""The PCIe tree and the layouts of parts, beside `lstopo` and `mpirun` on the same machine.

The former is of hwloc, the latter of Open MPI.

The machines have root complexes of their own (pxb-pcie) with switches, NUMA nodes that are sockets
or parts of them, and L3 caches that are parts of sockets.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from alignup.machine.cpuset import CPUSet
from campaign.systemd.virtual_machine import Layout, VirtualMachine, new_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

LAYOUTS = {"numa": "numa", "socket": "socket", "l3": "l3cache", "core": "core"}
"""The words of `--layout`, and those of `--map-by`.

For several cores of a rank, mpirun wants `slot` for `core`.
"""
XML = "/root/lstopo.xml"
"""What lstopo writes in the machine."""
PARTS = ((3, 1), (8, 1), (2, 2), (4, 2), (2, 3))
"""Ranks, and cores of each."""

MPIRUN = "HOME=/root OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun"


def tree(*roots: tuple[int, int, str]) -> tuple[str, ...]:
    """Return QEMU's options for root complexes.

    Number of the bus, NUMA node, and what is below its ports.

    `n` is a network card on a port, `d` a display, and what stands in parentheses is on the ports
    of a switch.
    """
    numbers = itertools.count(1)

    def below(text: Iterator[str], port: str, bus: str) -> Iterator[str]:
        for letter in text:
            if letter == ")":
                return
            name = f"p{next(numbers)}"
            yield f"{port},id={name},bus={bus},chassis={name[1:]},slot={name[1:]}"
            if letter == "(":
                yield f"x3130-upstream,id={name}s,bus={name}"
                yield from below(text, "xio3130-downstream", f"{name}s")
            else:
                device = "bochs-display"
                if letter == "n":
                    device = "virtio-net-pci,romfile="
                yield f"{device},bus={name}"

    devices: list[str] = []
    for bus, node, text in roots:
        devices.append(f"pxb-pcie,id=r{bus},bus=pcie.0,bus_nr={bus},numa_node={node}")
        devices += below(iter(text), "pcie-root-port", f"r{bus}")

    return tuple(word for device in devices for word in ("-device", device))


SOCKETS = Layout(
    (4, 4), (1024, 1024), dies=2, extra=tree((32, 0, "(nd(nd))n"), (96, 0, "d"), (160, 1, "(nd)"))
)
"""A NUMA node a socket, each with two L3 caches, of one core with two threads each."""
PARTS_OF_SOCKETS = Layout(
    (2, 2, 2, 2),
    (512, 512, 512, 512),
    sockets=2,
    dies=2,
    threads=1,
    extra=tree((32, 1, "(n((d)n))"), (64, 1, "(nn)n"), (128, 2, "((n)(d))")),
)
"""Two NUMA nodes a socket, each with an L3 cache."""


@pytest.fixture(
    scope="module", params=[SOCKETS, PARTS_OF_SOCKETS], ids=["sockets", "parts of sockets"]
)
def seen(request, image, tmp_path_factory):
    """A machine, and what hwloc sees of it."""
    with VirtualMachine(
        image, new_disk(image, tmp_path_factory.mktemp("machine")), request.param
    ) as machine:
        xml = machine.run(f"lstopo-no-graphics --whole-io {XML} && cat {XML}").out
        yield machine, Hwloc.of(ET.fromstring(xml))  # noqa: S314  # of our own machine


@dataclass(frozen=True)
class Hwloc:
    """What `lstopo` sees."""

    devices: dict[str, tuple[str, int | None, tuple[str, ...]]]
    """By address of each PCI device and bridge.

    Class, NUMA node, and root and bridges above, outermost first.
    """
    buses: dict[str, tuple[int, int]]
    """By address of each bridge, the first and the last bus behind it."""
    cores: tuple[CPUSet, ...]
    """By hwloc's logical number."""

    @classmethod
    def of(cls, top: ET.Element) -> Hwloc:
        devices, buses, cores = {}, {}, []

        def walk(element: ET.Element, nodes: str, above: tuple[str, ...]) -> None:
            nodes = element.get("nodeset", nodes)
            address, behind = element.get("pci_busid"), element.get("bridge_pci")
            if element.get("type") == "Core":
                digits = [int(group or "0", 16) for group in element.get("cpuset", "").split(",")]
                cores.append(
                    CPUSet.from_int(
                        sum(group << 32 * place for place, group in enumerate(reversed(digits)))
                    )
                )

            if address is not None:
                bits = int(nodes, 16)
                node = None
                if bits.bit_count() == 1:
                    node = bits.bit_length() - 1
                devices[address] = (element.get("pci_type", "")[:4], node, above)
                above = (*above, address)
            elif behind is not None:
                above = (behind,)

            if address is not None and behind is not None:
                buses[address] = tuple(
                    int(bus, 16) for bus in re.findall(r"[0-9a-f]{2}", behind.partition(":")[2])
                )

            for child in element:
                walk(child, nodes, above)

        walk(top, "0x0", ())
        return cls(devices, buses, tuple(cores))

    def distance(self, first: str, second: str) -> str:
        """Return how far two devices are apart in hwloc's tree.

        It is in the words of `nvidia-smi topo -m`.
        """
        if first == second:
            return "X"

        (_, near, up), (_, far, down) = self.devices[first], self.devices[second]
        shared = sum(
            1
            for _ in itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(up, down, strict=False)
            )
        )
        if shared == 0:
            if near is not None and near == far:
                return "NODE"
            return "SYS"
        if shared == 1:
            return "PHB"

        if max(len(up), len(down)) - shared <= 1:
            return "PIX"
        return "PXB"


def test_the_pcie_tree_is_that_of_lstopo(seen):
    """Each device and bridge with its class, NUMA node and buses."""
    machine, hwloc = seen
    devices = json.loads(machine.run("alignup machine --json").out)["pciDevices"]
    assert {device["address"]: (device["class"], device["numaNode"]) for device in devices} == {
        address: (kind, node) for address, (kind, node, _) in hwloc.devices.items()
    }
    assert {
        device["address"]: tuple(device["buses"]) for device in devices if device.get("buses")
    } == hwloc.buses


@pytest.mark.parametrize("source", ["/", XML], ids=["sysfs", "lstopo's XML"])
def test_distances_are_those_of_lstopos_tree(seen, source):
    machine, hwloc = seen
    devices = json.loads(machine.run(f"alignup machine --distances --json --machine {source}").out)[
        "devices"
    ]
    addresses = [device["address"] for device in devices]
    assert addresses == sorted(
        at for at, (kind, *_) in hwloc.devices.items() if kind[:2] in {"02", "03"}
    )

    expected = {
        first: [hwloc.distance(first, second) for second in addresses] for first in addresses
    }
    assert {device["address"]: device["distances"] for device in devices} == expected
    distances = {distance for row in expected.values() for distance in row}
    assert {"X", "PIX", "PXB", "PHB", "SYS"} <= distances


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_parts_are_where_mpirun_binds_ranks(seen, layout):
    """Where one refuses, the other does."""
    machine, hwloc = seen
    threads = len(hwloc.cores[0])
    different = {}
    for ranks, cores in PARTS:
        place = LAYOUTS[layout]
        if layout == "core" and cores > 1:
            place = "slot"

        bound = by_mpirun(machine, hwloc, f"-np {ranks} --map-by {place}:PE={cores}")
        done = machine.run(
            f"alignup split {ranks} --layout {layout} --cpus-per-part {cores * threads} --json",
            check=False,
        )
        parts = [CPUSet.parse(json.loads(line)["cpus"]) for line in done.out.splitlines()]
        if parts != bound:
            different[ranks, cores] = (list(map(str, parts)), done.err, list(map(str, bound)))

    assert different == {}


def by_mpirun(machine: VirtualMachine, hwloc: Hwloc, options: str) -> list[CPUSet]:
    """Return the CPUs of each rank, as mpirun reports them; none if it refuses."""
    done = machine.run(f"{MPIRUN} {options} --bind-to core --report-bindings true", check=False)
    bound = dict(re.findall(r"MCW rank (\d+) bound to (.*?): \[", done.err))
    if done.status:
        return []
    cores = [map(int, re.findall(r"core (\d+)\[", bound[str(rank)])) for rank in range(len(bound))]
    return [CPUSet(cpu for core in numbers for cpu in hwloc.cores[core]) for numbers in cores]


def test_ranks_under_mpirun_get_what_mpirun_would_bind_them_to(seen):
    """`alignup run --part auto` in place of mpirun's own binding."""
    machine, hwloc = seen
    bound = by_mpirun(machine, hwloc, "-np 4 --map-by numa:PE=1")
    run = f"alignup run --part auto --layout numa --cpus {len(hwloc.cores[0])} --memory 0"
    show = "echo $OMPI_COMM_WORLD_RANK $(grep Cpus_allowed_list /proc/self/status)"
    output = machine.run(f"{MPIRUN} -np 4 --bind-to none {run} -- sh -c '{show}'").out
    cpus_by_rank = {
        int(rank): CPUSet.parse(cpus) for rank, _, cpus in map(str.split, output.splitlines())
    }
    assert [cpus_by_rank[rank] for rank in range(4)] == bound
