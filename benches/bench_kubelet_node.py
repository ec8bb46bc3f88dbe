"""Reading the node of a kubelet with 200 pods: 30 ms from its folder, 90 from an archive."""

from __future__ import annotations

import pytest

from alignup import Node, read_kubelet_node, read_machine
from alignup.kubelet.collect import collect
from alignup.kubelet.layout import FolderFiles
from alignup.machine.device_inventory import Device
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG, guaranteed, write_node, write_root

PODS = 200
GPUS = {"nvidia.com/gpu": [Device(f"gpu{number}", (number % 8,)) for number in range(64)]}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a node's folder and its archive: 200 pods on 256 CPUs, a quarter with a GPU."""
    folder = tmp_path_factory.mktemp("node")
    root = write_root(folder / "root", server(sockets=2, cores=64, nodes=8, memory=64 << 20))
    node = Node(read_machine(root), CONFIG, GPUS)
    pods = [
        guaranteed(f"p{number}", (1, 2, *([1] if number % 4 == 0 else [])))
        for number in range(PODS)
    ]
    assert all(node.admit(pod) for pod in pods)
    write_node(root, node, pods)
    collect(FolderFiles(root), folder / "node.tar.xz")
    return {"folder": root, "archive": folder / "node.tar.xz"}, node


@pytest.mark.parametrize("kind", ["folder", "archive"])
@pytest.mark.benchmark(group="the node of a kubelet")
def test_reading_a_node_of_200_pods(benchmark, sources, kind, promise):
    """Machine, configuration, state files, PodResources answers and pods; checksums included."""
    places, written = sources
    node = benchmark(read_kubelet_node, places[kind])

    assert len(node.pods) == PODS
    assert node.cpu.shared_cpus == written.cpu.shared_cpus
    assert node.memory.free == written.memory.free
    assert {*node.devices.free["nvidia.com/gpu"]} == {*written.devices.free["nvidia.com/gpu"]}
    promise({"folder": 30_000, "archive": 90_000}[kind])
