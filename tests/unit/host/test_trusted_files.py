"""Files of this user's own: made for nobody else, and never reached through a link.

Only a socket that nobody serves is ever removed, and nothing else is taken for the path of one.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from alignup.errors import InputError
from alignup.host.trusted_files import (
    check_free,
    check_path,
    clear,
    distrust,
    make_folders,
    open_own,
    open_plain,
    remove,
    write_new,
)
from fakes.device_plugins import short_folder


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_all_that_is_made_is_private(tmp_path, umask):
    """Folders above the last one too, whatever the umask.

    Those that were there stay as they are.
    """
    tmp_path.chmod(0o755)
    before = os.umask(umask)
    try:
        make_folders(tmp_path / "a" / "b")
        make_folders(tmp_path / "a" / "b")
        write_new(tmp_path / "a" / "b" / "file", b"text")
    finally:
        os.umask(before)

    assert [mode(tmp_path / name) for name in ("", "a", "a/b", "a/b/file")] == [
        0o755,
        0o700,
        0o700,
        0o600,
    ]


@pytest.mark.parametrize(
    ("name", "members", "is_trusted"),
    [("me", [], True), ("me", ["me"], True), ("me", ["me", "other"], False), ("staff", [], False)],
)
def test_a_group_may_write_only_if_it_has_this_user_alone(
    tmp_path, monkeypatch, name, members, is_trusted
):
    gid = os.getegid() or 4242
    me = pwd.struct_passwd(("me", "x", os.geteuid(), gid, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", gid, members)))
    folder = tmp_path / "folder"
    folder.mkdir()
    os.chown(folder, -1, gid)
    folder.chmod(0o770)
    assert distrust(folder / "file") == ("" if is_trusted else f"other users may write to {folder}")


def test_a_folder_cannot_be_made_beneath_a_file(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            make_folders(path)


def test_what_is_there_is_not_written_over(tmp_path):
    """Nor is what a link of the name leads to, be it there or not."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "dangling").symlink_to(tmp_path / "missing")
    for name in ("precious", "link", "dangling"):
        with pytest.raises(FileExistsError):
            write_new(tmp_path / name, b"x")
    assert precious.read_bytes() == b"precious"
    assert not (tmp_path / "missing").exists()


def test_a_file_that_cannot_be_written_does_not_stay(tmp_path, monkeypatch):
    """Half a file is none."""

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_new(tmp_path / "file", b"x")
    assert list(tmp_path.iterdir()) == []


def test_only_plain_files_are_opened(tmp_path):
    """The sentence says what it is instead."""
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")

    descriptor = open_plain(tmp_path / "file")
    assert os.read(descriptor, 10) == b"text"
    os.close(descriptor)

    for path, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "link", "a symbolic link"),
        (tmp_path / "pipe", "a device, pipe or socket"),
        (tmp_path / "missing", "No such file"),
    ):
        with pytest.raises(OSError, match=why):
            open_plain(path)


def test_a_file_with_a_second_name_is_not_our_own(tmp_path):
    """The other name may be somebody's precious file."""
    (tmp_path / "file").touch()
    os.close(open_own(tmp_path / "file", os.O_RDWR))
    (tmp_path / "second").hardlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="more than one name"):
        open_own(tmp_path / "file", os.O_RDWR)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_another_user_s_file_is_not_our_own(tmp_path):
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", 12345, 12345)
    with pytest.raises(OSError, match="a file of user 12345, not of user 0"):
        open_own(tmp_path / "file", os.O_RDWR)


@pytest.fixture
def path():
    with short_folder() as folder:
        yield folder / "a.sock"


@contextmanager
def served(path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield


def leave(path):
    """Leave a socket as one does who is killed."""
    with served(path):
        pass


def test_what_was_left_is_removed(path):
    for take_away in (lambda: clear(path, "--socket"), lambda: remove(path)):
        leave(path)
        take_away()
        assert not path.exists()
        take_away()


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.write_text("precious"), "a file"),
        (lambda path: path.mkdir(), "a folder"),
        (lambda path: path.symlink_to("/nowhere"), "a link"),
        (os.mkfifo, "a pipe"),
    ],
)
def test_what_is_no_socket_stays(path, make, kind):
    make(path)
    for work in (clear, check_free):
        with pytest.raises(InputError, match=f"{path} is {kind}, not a socket, at --metrics"):
            work(path, "--metrics")
    remove(path)
    assert path.lstat()


def test_what_is_served_stays(path):
    with served(path):
        with pytest.raises(
            InputError, match=r"somebody serves the socket .*a.sock' already at --socket"
        ):
            clear(path, "--socket")
        remove(path)
        assert path.is_socket()


def test_what_cannot_be_looked_at_is_an_error(path):
    path.touch()
    with pytest.raises(InputError, match="cannot serve a socket: not a directory"):
        check_free(path / "a.sock", "--socket")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/" + "x" * 106, ""),
        (
            "/" + "x" * 107,
            (
                r"expected a path of up to 107 bytes for a socket, "
                r"got '/x+\.\.\. of 108 bytes' at --socket"
            ),
        ),
        ("/" + "ü" * 54, "of 109 bytes"),
        ("/\udcff", "expected a path of UTF-8, got"),
        ("/a\0b", "expected a path of UTF-8, got"),
    ],
)
def test_a_path_has_a_length_and_is_text(name, reason):
    if not reason:
        check_path(Path(name), "--socket")
        return
    with pytest.raises(InputError, match=reason):
        check_path(Path(name), "--socket")


def test_a_path_has_so_many_links_as_the_kernel_follows():
    """Those of one chain, and a loop."""
    with short_folder() as folder:
        target = folder / "file"
        target.touch()
        for number in range(40):
            link = folder / f"link{number}"
            link.symlink_to(target)
            target = link

        assert distrust(target) == ""
        assert target.exists()

        one_more = folder / "one-more"
        one_more.symlink_to(target.name)
        assert distrust(one_more) == f"there are too many links at {folder / 'link0'}"
        with pytest.raises(OSError, match="symbolic links"):
            one_more.stat()

        loop = folder / "loop"
        loop.symlink_to("loop")
        assert distrust(loop) == f"there are too many links at {loop}"
