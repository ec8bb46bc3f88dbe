"""Files of the kernel, and the fields of a process whose command has any name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.host.proc_files import (
    FLAGS,
    GROUP,
    PARENT,
    START_TIME,
    STATE,
    THREADS,
    opened,
    start_of,
    stat_fields,
)


@pytest.fixture(scope="module")
def proc(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proc")
    (folder / "7").mkdir()
    return folder


@given(name=st.binary(max_size=64))
def test_the_name_of_a_command_may_hold_anything(proc, name) -> None:
    numbers = [str(number) for number in range(4, 53)]
    (proc / "7/stat").write_bytes(b"7 (%b) S %b\n" % (name, " ".join(numbers).encode()))
    fields = stat_fields(7, str(proc))
    assert fields is not None
    assert fields == ["S", *numbers]
    # as proc(5) numbers them
    assert fields[STATE] == "S"
    assert [fields[field] for field in (PARENT, GROUP, FLAGS, THREADS, START_TIME)] == [
        "4",
        "5",
        "9",
        "20",
        "22",
    ]


def test_this_process_is_what_the_system_says() -> None:
    fields = stat_fields(os.getpid())
    assert fields is not None
    assert int(fields[PARENT]) == os.getppid()
    assert int(fields[GROUP]) == os.getpgrp()


def test_a_process_that_is_gone_has_no_fields(tmp_path) -> None:
    assert stat_fields(8, str(tmp_path)) is None
    (tmp_path / "8").mkdir()
    (tmp_path / "8/stat").write_text("nonsense")
    assert stat_fields(8, str(tmp_path)) is None

    (tmp_path / "8/stat").unlink()
    (tmp_path / "8/stat").mkdir()
    with pytest.raises(OSError, match="directory"):
        stat_fields(8, str(tmp_path))


def test_a_file_is_read_no_further_than_asked_and_closed(tmp_path) -> None:
    (tmp_path / "file").write_text("12345")
    before = len([*Path("/proc/self/fd").iterdir()])
    assert start_of(str(tmp_path / "file"), 3) == b"123"
    with opened(tmp_path) as folder, opened("file", folder=folder) as descriptor:
        assert os.read(descriptor, 9) == b"12345"
        assert not os.get_inheritable(descriptor)

    assert len([*Path("/proc/self/fd").iterdir()]) == before
