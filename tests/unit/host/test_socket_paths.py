"""Only a socket that nobody serves is ever removed.

And nothing else is taken for the path of one.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

from alignup.errors import InputError
from alignup.host.trusted_files import check_free, check_path, clear, remove
from fakes.device_plugins import short_folder


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
