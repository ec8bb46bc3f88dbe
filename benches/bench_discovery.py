"""Discovery of a machine of 256 CPUs: 100 ms, from a directory or a snapshot, with unpacking."""

from __future__ import annotations

import pytest

from alignup.machine.archive import take_snapshot
from alignup.machine.load import load_machine
from inputs.kernel_trees import pci, server, write

DEVICES = 100


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a directory and a snapshot of it."""
    folder = tmp_path_factory.mktemp("machine")
    files = server(sockets=2, cores=64, threads=2, nodes=8)
    for bus in range(DEVICES):
        files |= pci(f"0000:{bus:02x}:00.0", numa_node=bus % 8)
    root = write(folder / "root", files)
    take_snapshot(root, folder / "machine.tar.xz")
    return {"directory": str(root), "snapshot": str(folder / "machine.tar.xz")}


@pytest.mark.parametrize("kind", ["directory", "snapshot"])
@pytest.mark.benchmark(group="discovery")
def test_discovery_of_256_cpus(benchmark, sources, kind, promise):
    """Two sockets, eight nodes, 128 cores, 100 PCI devices."""
    machine = benchmark(load_machine, sources[kind]).machine

    assert (machine.cpu_count, machine.core_count, len(machine.numa_nodes)) == (256, 128, 8)
    assert len(machine.pci_devices) == DEVICES
    promise(100_000)
