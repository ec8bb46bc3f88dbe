"""Files of this user's own: made for nobody else, and never reached through a link."""

from __future__ import annotations

import os
import stat

import pytest

from alignup.trusted_files import make_folders, open_own, open_plain, write_new


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_all_that_is_made_is_private(tmp_path, umask):
    """Folders above the last one too, whatever the umask; those that were there stay as they are."""
    tmp_path.chmod(0o755)
    before = os.umask(umask)
    try:
        make_folders(tmp_path / "a" / "b")
        make_folders(tmp_path / "a" / "b")
        write_new(tmp_path / "a" / "b" / "file", b"text")
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("", "a", "a/b", "a/b/file")] == [0o755, 0o700, 0o700, 0o600]


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
