"""A node packed into an archive."""

from __future__ import annotations

import json

import pytest

from alignup import Node, read_kubelet_node, read_machine
from alignup.errors import InputError
from alignup.kubelet.checkpoints import checksum_of
from alignup.kubelet.collect import collect
from alignup.kubelet.layout import ALLOCATED, CONFIG, ArchiveFiles, FolderFiles, open_node
from alignup.kubelet.read import read_allocated
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG as FIELDS
from inputs.kubelet_files import EXAMPLE, guaranteed, write_node, write_root

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
