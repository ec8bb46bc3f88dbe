"""A node packed into an archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from alignup import Node, read_kubelet_node, read_machine
from alignup.claims.read import read_class
from alignup.errors import InputError
from alignup.kubelet import collect as module
from alignup.kubelet.checkpoints import checksum_of
from alignup.kubelet.collect import collect
from alignup.kubelet.layout import (
    ALLOCATED,
    CONFIG,
    CPU_STATE,
    MEMORY_STATE,
    ArchiveFiles,
    FolderFiles,
    open_node,
)
from alignup.kubelet.read import read_allocated
from alignup.kubernetes.node_fit import is_critical
from alignup.kubernetes.wire import CONFIGURATION_FIELDS, NodeWire, PodWire
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG as FIELDS
from inputs.kubelet_files import EXAMPLE, guaranteed, signed, write_node, write_root

SECRET = "hunter2"  # noqa: S105  # of nobody


@pytest.fixture
def root(tmp_path):
    """A node with two pods, and secrets wherever there can be some."""
    folder = write_root(tmp_path / "root", server(cores=4, nodes=4))
    node = Node(read_machine(folder), FIELDS)
    pods = [guaranteed("a", (1, 1)), guaranteed("b", (2, 1))]
    for pod in pods:
        node.admit(pod)

    pods[0]["metadata"]["annotations"] = {"kubernetes.io/config.hash": "uid-a", "password": SECRET}
    pods[0]["metadata"]["labels"] = {"x": SECRET}
    pods[0]["spec"]["containers"][0] |= {"env": [{"name": "P", "value": SECRET}], "args": [SECRET]}
    pods[0]["spec"]["volumes"] = [{"name": SECRET}]
    write_node(folder, node, pods)
    state = folder / "var/lib/kubelet"
    (state / "config.d").mkdir()
    (state / "config.d/10.conf").write_text(
        json.dumps({"staticPodURLHeader": {"Authorization": [SECRET]}})
    )
    (folder / "node.json").write_text(
        json.dumps({"kind": "Node", "metadata": {"name": "node-a", "annotations": {"x": SECRET}}})
    )
    return folder


def books(node):
    return (
        node.cpu.shared_cpus,
        node.memory.free,
        [pod.uid for pod in node.pods],
        node.config,
        node.machine,
    )


def test_an_archive_is_the_node(root, tmp_path):
    target = tmp_path / "node.tar.xz"
    names = collect(FolderFiles(root), target)
    assert names == sorted(names)
    assert books(read_kubelet_node(target)) == books(read_kubelet_node(root))
    collect(FolderFiles(root), tmp_path / "again.tar.xz")
    assert target.read_bytes() == (tmp_path / "again.tar.xz").read_bytes()


def test_no_secret_is_in_it(root, tmp_path):
    names = collect(FolderFiles(root), tmp_path / "node.tar.xz")
    files = ArchiveFiles(tmp_path / "node.tar.xz")
    assert all(SECRET.encode() not in (files.read(name) or b"") for name in names)
    assert files.read("pods.json")
    assert json.loads(files.read(CONFIG))["topologyManagerPolicy"] == "best-effort"


def allocated(pods: str, checksum: int | None = None) -> bytes:
    """`allocated_pods_state` of a kubelet 1.38, with whole pods in protobuf."""
    entries = {"uid-a": {"ContainerResources": {"c0": {}}}}
    data = json.dumps({"podList": pods, "entries": entries})
    if checksum is None:
        checksum = checksum_of(f"(string){data}")
    return json.dumps({"version": "v2", "data": data, "checksum": checksum}).encode()


def test_whole_pods_of_what_is_allocated_are_left_out(root, tmp_path):
    """A kubelet 1.38 keeps them with their environments."""
    (root / ALLOCATED).write_bytes(allocated(SECRET))
    collect(FolderFiles(root), tmp_path / "node.tar.xz")
    kept = ArchiveFiles(tmp_path / "node.tar.xz").read(ALLOCATED)
    assert SECRET.encode() not in kept
    assert read_allocated(kept) == read_allocated(allocated(SECRET))


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        ({"config.source": "file"}, {}),
        ({"config.mirror": "d41d8cd9"}, {}),
        ({}, {"priorityClassName": "system-node-critical"}),
        ({}, {"priority": 2_000_000_000}),
    ],
)
def test_what_makes_a_pod_critical_is_in_it(root, tmp_path, annotations, spec):
    """A static pod is admitted after others are evicted, but not after critical ones are."""
    annotations = {f"kubernetes.io/{name}": value for name, value in annotations.items()}
    pods = json.loads((root / "pods.json").read_text())
    for pod in pods["items"]:
        pod["metadata"]["annotations"] = annotations
        pod["spec"] |= spec
    collect(FolderFiles(root), tmp_path / "node.tar.xz", pods=pods)
    (root / "pods.json").write_text(json.dumps(pods))

    static = guaranteed("static", ("29500m", 1))
    static["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
    messages = []
    for source in (root, tmp_path / "node.tar.xz"):
        node = read_kubelet_node(source)
        node.whole_verdict = True
        messages.append(node.admit(static).message)
    assert "no set of running pods found to reclaim resources" in messages[0]
    assert messages[0] == messages[1]


def test_pods_of_earlier_archives_are_static_if_their_uid_is(root):
    """The uid of a static pod is a hash without dashes; its annotations were left out."""
    pods = json.loads((root / "pods.json").read_text())
    uid = "0" * 31 + "f"
    text = json.dumps(pods).replace("uid-a", uid)
    (root / "pods.json").write_text(text)
    for path in (CPU_STATE, MEMORY_STATE):
        kind = path.rpartition("/")[2].partition("_")[0]
        state = (root / path).read_text().replace("uid-a", uid)
        (root / path).write_text(signed(json.loads(state), kind))
    assert [is_critical(pod) for pod in read_kubelet_node(root).pods] == [True, False]


def wires(struct, shape, place):
    """Yield the fields of a type of the API that a shape does not name."""
    for wire in msgspec.structs.fields(struct):
        name = f"{place}.{wire.encode_name}"
        if wire.encode_name not in shape:
            yield name
            continue

        inner = shape[wire.encode_name]
        if inner is None:
            continue
        for kind in get_args(wire.type):
            element = next(iter(get_args(kind)), kind)
            if isinstance(element, type) and issubclass(element, msgspec.Struct):
                yield from wires(element, inner[0] if isinstance(inner, list) else inner, name)


def test_all_that_is_read_of_pods_node_and_configuration_is_kept():
    shapes = json.loads(Path(module.__file__).with_suffix(".json").read_text())
    pod = set(wires(PodWire, shapes["pod"], "pod"))
    # a name that is made up is in `name`
    assert pod == {"pod.metadata.generateName"}
    node = set(wires(NodeWire, shapes["node"], "node"))
    # the version matters while a node is watched only
    unkept = "generateName", "namespace", "uid", "resourceVersion", "annotations"
    assert node == {f"node.metadata.{name}" for name in unkept}
    assert set(CONFIGURATION_FIELDS) <= shapes["configuration"].keys()


@pytest.mark.parametrize("evicts", ["100Mi", "10%"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_memory_of_a_node_is_that_of_its_kernel(root, tmp_path, is_packed, evicts):
    """NUMA nodes of a machine that grows have less, and a kubelet counts them for pinning only."""
    (root / "node.json").unlink()
    (root / "proc/meminfo").write_text(f"MemTotal: {1 << 30} kB\n")
    fields = {**FIELDS, "evictionHard": {"memory.available": evicts}}
    fields |= {"memoryManagerPolicy": "None", "reservedMemory": []}
    (root / CONFIG).write_text(json.dumps(fields))
    (root / MEMORY_STATE).unlink()
    source = root
    if is_packed:
        source = tmp_path / "node.tar.xz"
        collect(FolderFiles(root), source)

    node = read_kubelet_node(source)
    pages = sum(node.machine.memory_by_type.values()) - node.machine.memory_by_type["memory"]
    reserved = pages + (924 << 20) + (100 << 20 if evicts == "100Mi" else int((1 << 40) * 0.1))
    node.whole_verdict = True
    limits = node.limits(node.pods[0])
    assert limits.allocatable["memory"] == pytest.approx((1 << 40) - reserved, abs=1 << 20)
    assert not limits.knows_labels
    fits = {"requests": {"cpu": "100m", "memory": "800Gi"}}
    pod = guaranteed("large", ("100m", 1))
    pod["spec"]["containers"][0]["resources"] = fits
    assert node.admit(pod)

    machine = read_machine(root)
    other = read_kubelet_node(source, machine=machine)
    assert other.limits(other.pods[0]).allocatable["memory"] < 1 << 38


@pytest.mark.parametrize(
    ("file", "is_kept"),
    [
        (b'{"data": "x"}', True),
        (b'{"podList": "hunter2', False),
        (allocated(SECRET, 1), True),
    ],
)
def test_what_is_damaged_of_it_stays_so_without_pods(root, tmp_path, file, is_kept):
    (root / ALLOCATED).write_bytes(file)
    names = collect(FolderFiles(root), tmp_path / "node.tar.xz")
    assert (ALLOCATED in names) is is_kept
    if is_kept:
        kept = ArchiveFiles(tmp_path / "node.tar.xz").read(ALLOCATED)
        assert SECRET.encode() not in kept
        with pytest.raises(InputError):
            read_allocated(kept)


def test_pods_and_node_can_be_given(root, tmp_path):
    pods = {"items": [guaranteed("a", (1, 1))]}
    collect(
        FolderFiles(root),
        tmp_path / "x.tgz",
        pods=pods,
        node={"kind": "Node", "metadata": {"name": "node-a"}},
    )
    assert [pod.uid for pod in read_kubelet_node(tmp_path / "x.tgz").pods] == ["uid-a"]


def test_an_archive_can_be_packed_again(tmp_path):
    collect(open_node(EXAMPLE / "root.tar.xz"), tmp_path / "x.tar.xz")
    assert books(read_kubelet_node(tmp_path / "x.tar.xz")) == books(
        read_kubelet_node(EXAMPLE / "root.tar.xz")
    )


def test_bad_input_is_one_line(root, tmp_path):
    with pytest.raises(InputError, match="files of a kubelet"):
        collect(FolderFiles(tmp_path / "empty"), tmp_path / "x.tar.xz")
    with pytest.raises(InputError, match=r"a suffix of \.tar\.xz"):
        collect(FolderFiles(root), tmp_path / "x.zip")
    with pytest.raises(InputError, match="cannot write a node's archive"):
        collect(FolderFiles(root), tmp_path / "nowhere/x.tar.xz")
    with pytest.raises(InputError, match="a List of Pods"):
        collect(FolderFiles(root), tmp_path / "x.tar.xz", pods={"items": 3})


def test_what_decides_of_a_class_is_kept() -> None:
    """Its age, too: of two that serve one extended resource the younger counts."""
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "extendedResourceName": "example.com/gpu",
            "selectors": [{"cel": {"expression": "true"}}],
        },
    }
    (item,) = module._claims({"items": [device_class]})["items"]
    assert read_class(item, "kept") == read_class(device_class, "whole")
