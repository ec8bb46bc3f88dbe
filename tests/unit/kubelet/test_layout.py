"""The files of a node, in a folder and in an archive."""

from __future__ import annotations

import os
import tarfile

import pytest

from alignup.errors import InputError
from alignup.kubelet.layout import (
    CONFIG,
    CONFIG_FOLDER,
    CPU_STATE,
    PODS,
    ArchiveFiles,
    FolderFiles,
    open_node,
    read_file,
)


def filled(root):
    for name, data in (
        (CONFIG, "a"),
        (f"{CONFIG_FOLDER}/10.conf", "b"),
        (PODS, "c"),
        ("etc/shadow", "d"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(data)
    return root


@pytest.fixture(params=["folder", "archive", "archive of a folder"])
def files(request, tmp_path):
    root = filled(tmp_path / "root")
    if request.param == "folder":
        return open_node(root)
    with tarfile.open(tmp_path / "x.tar.xz", "w:xz") as archive:
        archive.add(root, "node-a" if request.param == "archive of a folder" else ".")
    return open_node(tmp_path / "x.tar.xz")


def test_files_are_found_by_their_place(files):
    assert (files.read(CONFIG), files.read(PODS), files.read(CPU_STATE)) == (b"a", b"c", None)
    assert files.names(CONFIG_FOLDER) == ["10.conf"]
    assert not files.names("nowhere")
    assert files.kernel is None


def test_an_archive_gives_only_files_of_a_node(tmp_path):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(filled(tmp_path / "root"), ".")
    assert ArchiveFiles(tmp_path / "x.tar.gz").read("etc/shadow") is None


def test_the_kubelets_folder_can_be_elsewhere(tmp_path):
    (tmp_path / "k").mkdir()
    (tmp_path / "k/cpu_manager_state").write_text("x")
    files = FolderFiles(tmp_path / "root", tmp_path / "k")
    assert files.read(CPU_STATE) == b"x"
    assert files.place(CPU_STATE) == str(tmp_path / "k/cpu_manager_state")


def test_no_link_leads_out_of_the_folder(tmp_path):
    root = filled(tmp_path / "root")
    (tmp_path / "secret").write_text("x")
    (root / "pods.json").unlink()
    (root / "pods.json").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="leads out of the node's files"):
        FolderFiles(root).read(PODS)


def test_a_link_within_the_folder_is_followed(tmp_path):
    """As distributions that keep the configuration elsewhere have it."""
    root = filled(tmp_path / "root")
    (root / "var/lib/kubelet/config.yaml").rename(root / "var/lib/kubelet/real.yaml")
    (root / "var/lib/kubelet/config.yaml").symlink_to("real.yaml")
    assert FolderFiles(root).read(CONFIG) == b"a"


def test_what_is_no_plain_file_is_refused_at_once(tmp_path):
    root = filled(tmp_path / "root")
    (root / "pods.json").unlink()
    os.mkfifo(root / "pods.json")
    with pytest.raises(InputError, match="a plain file"):
        FolderFiles(root).read(PODS)


def test_what_is_neither_folder_nor_archive_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no machine's root folder or archive at"):
        open_node(tmp_path / "nowhere")
    (tmp_path / "x").write_text("{}")
    with pytest.raises(InputError, match="a node's archive, but the file is damaged"):
        open_node(tmp_path / "x")


def test_a_file_that_is_far_too_large_takes_no_memory(tmp_path) -> None:
    path = tmp_path / "pods.json"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(InputError, match="is larger than"):
        read_file(path)
