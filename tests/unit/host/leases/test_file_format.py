"""The text of the file of leases."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.host.leases.file import DamagedError, decode_table, encode_table
from alignup.host.leases.record import LeaseTable, MachineIdentity
from alignup.machine.cpuset import CPUSet
from inputs import leasing

TABLE = LeaseTable(
    MachineIdentity("f", "d"), (leasing.record(cpus=CPUSet.parse("0-3")), leasing.record("two"))
)
TEXT = encode_table(TABLE)


def test_what_is_written_is_read():
    """An empty table too."""
    assert decode_table(TEXT, "f") == TABLE
    assert decode_table(encode_table(LeaseTable()), "f") == LeaseTable()


@given(st.integers(0, len(TEXT) - 2), st.integers(1, 255))
def test_one_wrong_byte_never_changes_leases(index, flip):
    """It is noticed, or it does not matter, such as a letter's case in a key that is not read."""
    damaged = TEXT[:index] + bytes([TEXT[index] ^ flip]) + TEXT[index + 1 :]
    try:
        table = decode_table(damaged, "f")
    except InputError:
        return
    assert table == TABLE


@given(st.integers(0, len(TEXT) - 2))
def test_a_torn_file_is_noticed(length):
    """Whatever its length."""
    with pytest.raises(DamagedError):
        decode_table(TEXT[:length], "f")


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 100, b"{}", b"[]", b"\xff\xfe", b"null", b'{"a":' * 50_000]
)
def test_other_files_are_no_leases(text):
    """Each is damage, said in one line."""
    with pytest.raises(DamagedError, match="at the place"):
        decode_table(text, "the place")


def test_a_wrong_shape_with_a_right_checksum_is_damage():
    """Somebody took pains."""
    inner = b'{"leases":7}'
    text = msgspec.json.encode(
        {"version": 1, "checksum": f"{zlib.crc32(inner):08x}", "table": msgspec.Raw(inner)}
    )
    with pytest.raises(DamagedError):
        decode_table(text, "f")


def test_a_later_release_is_no_damage():
    """Its file is left alone."""
    with pytest.raises(InputError, match="version 2, got 3 at f") as caught:
        decode_table(TEXT.replace(b'"version":1', b'"version":3'), "f")
    assert not isinstance(caught.value, DamagedError)


def test_a_file_that_an_agent_has_is_of_a_later_version():
    """Releases that know no agents refuse it, and give nothing beside the agent."""
    text = encode_table(LeaseTable(agent="/a.sock"))
    assert text.startswith(b'{"version":2,')
    assert decode_table(text, "f").agent == "/a.sock"
    assert b"agent" not in encode_table(LeaseTable())
