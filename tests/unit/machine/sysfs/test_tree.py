"""Trees of kernel files, on disk and in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alignup.errors import InputError
from alignup.machine.sysfs.tree import DirectoryTree, MemoryTree
from inputs.kernel_trees import write

FILES = {"sys/a/b": "1\n", "sys/a/c": "2\n", "proc/x": "3"}


@pytest.fixture(params=["directory", "memory"])
def tree(request, tmp_path):
    return (
        DirectoryTree(write(tmp_path, FILES))
        if request.param == "directory"
        else MemoryTree("test", FILES)
    )


def test_files_are_read_whole(tree):
    """By path from the root."""
    assert tree.read("sys/a/b") == "1\n"
    assert tree.read("proc/x", whole=False) == "3"


def test_what_is_not_there_is_none(tree):
    """Missing files, folders read as files, and files read as folders."""
    assert tree.read("sys/a/missing") is None
    assert tree.read("sys/a") is None
    assert list(tree.names("sys/missing")) == []
    assert list(tree.names("sys/a/b")) == []


def test_names_are_those_in_a_folder(tree):
    assert sorted(tree.names("sys/a")) == ["b", "c"]
    assert sorted(tree.names("sys")) == ["a"]


def test_odd_paths_are_not_there(tree):
    """A NUL in a path is no reason to fail."""
    assert tree.read("sys/\0") is None
    assert list(tree.names("sys/\0")) == []


def test_a_long_file_is_read_in_pieces_and_its_head_is_short(tmp_path):
    """The head of a file that is long stops early."""
    long = DirectoryTree(write(tmp_path, {"proc/cpuinfo": "x" * 200_000}))

    assert len(long.read("proc/cpuinfo")) == 200_000
    assert 0 < len(long.read("proc/cpuinfo", whole=False)) < 200_000


def test_a_pipe_in_a_copied_tree_does_not_hang(tmp_path):
    """Its content is none."""
    os.mkfifo(tmp_path / "online")

    assert DirectoryTree(tmp_path).read("online") in (None, "")


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_root_that_cannot_be_read_is_named(tmp_path, name):
    """The error has the path in it."""
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match=f"{tmp_path}/{name}"):
        DirectoryTree(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero here")
def test_a_link_to_what_never_ends_is_no_file(tmp_path):
    """A copied tree can have any links."""
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"0," * (1 << 19) + b"0")
    (tmp_path / "largest").write_bytes(b"0," * (1 << 19))

    assert DirectoryTree(tmp_path).read("endless") is None
    assert DirectoryTree(tmp_path).read("large") is None
    assert DirectoryTree(tmp_path).read("large", whole=False) is not None
    assert DirectoryTree(tmp_path).read("largest") == "0," * (1 << 19)


def test_a_file_is_no_tree_and_the_error_says_who_reads_it(tmp_path):
    (tmp_path / "here.tar.xz").touch()
    with pytest.raises(InputError, match=r"not a directory; read_machine reads files"):
        DirectoryTree(tmp_path / "here.tar.xz")
