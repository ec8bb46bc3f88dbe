"""Files that a user asks for are whole or as they were, and no link is followed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from alignup.text import output_files
from alignup.text.output_files import write_output


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_gets_the_mode_of_the_umask(tmp_path) -> None:
    for mask in (0o022, 0o077, 0o002):
        path = tmp_path / f"a{mask}.svg"
        with umask(mask):
            write_output(path, b"x")
        assert mode(path) == 0o666 & ~mask


@pytest.mark.parametrize("before", [0o600, 0o640, 0o666, 0o755])
def test_a_file_keeps_its_mode_and_becomes_another_one(tmp_path, before) -> None:
    path = tmp_path / "a.svg"
    path.write_bytes(b"long ago")
    path.chmod(before)
    reader = path.open("rb")
    write_output(path, b"now")

    assert (mode(path), path.read_bytes()) == (before, b"now")
    assert reader.read() == b"long ago"
    reader.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.svg"]


@pytest.mark.parametrize("target", ["there", "missing"])
def test_no_link_is_followed(tmp_path, target) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"precious")
    link = tmp_path / "a.svg"
    link.symlink_to(tmp_path / target)
    write_output(link, b"x")

    assert not link.is_symlink()
    assert (link.read_bytes(), there.read_bytes()) == (b"x", b"precious")
    assert not (tmp_path / "missing").exists()


def test_another_name_of_the_same_file_keeps_what_it_has(tmp_path) -> None:
    path = tmp_path / "a.svg"
    path.write_bytes(b"before")
    (tmp_path / "b.svg").hardlink_to(path)
    write_output(path, b"after")
    assert (tmp_path / "b.svg").read_bytes() == b"before"


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.svg"
    path.write_bytes(b"before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_files.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_output(path, b"after")
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.svg"]


def test_a_file_that_cannot_be_replaced_is_written_in_its_place(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.svg"
    path.write_bytes(b"something longer")
    inode = path.stat().st_ino

    def mounted(*_):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(output_files.os, "replace", mounted)
    write_output(path, b"after")
    assert (path.stat().st_ino, path.read_bytes()) == (inode, b"after")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.svg"]


def test_a_pipe_without_a_reader_is_an_error_and_no_wait(tmp_path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device or address"):
        write_output(path, b"x")
    assert stat.S_ISFIFO(path.lstat().st_mode)


def test_a_pipe_gets_all_that_is_written(tmp_path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    data = b"x" * (1 << 20)
    # both ends stay open, so that neither side meets an end before the other has begun
    descriptor = os.open(path, os.O_RDWR)
    writer = threading.Thread(target=write_output, args=(path, data))
    writer.start()
    received = b""
    while len(received) < len(data):
        received += os.read(descriptor, len(data))
    writer.join(20)
    os.close(descriptor)
    assert received == data


def test_a_device_is_written_to() -> None:
    write_output("/dev/null", b"x")


def test_a_folder_is_an_error(tmp_path) -> None:
    with pytest.raises(OSError, match="Is a directory"):
        write_output(tmp_path, b"x")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/stderr"])
def test_what_is_open_already_is_written_on(tmp_path, name) -> None:
    program = (
        "from alignup.text.output_files import write_output\n"
        "print('before', flush=True)\n"
        f"write_output({name!r}, b'picture\\n')\n"
        "print('after')\n"
    )
    path = tmp_path / "out"
    with path.open("wb") as file:
        subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-c", program], stdout=file, stderr=file, check=True, timeout=60
        )
    assert path.read_text() == "before\npicture\nafter\n"


def test_a_descriptor_that_is_not_open_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_output("/dev/fd/987654", b"x")
