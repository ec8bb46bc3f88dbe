"""What the kernel writes into files: lists, masks, rows, numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.machine.cpuset import CPUSet
from alignup.machine.sysfs.machine import (
    first_number,
    hex_number,
    meminfo_bytes,
    number_list,
    number_mask,
    number_row,
)
from inputs.kernel_trees import mask

ENDINGS = ["", "\n", "\0", "\n\0", "\0\n"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_lists_and_masks_end_in_anything(ending):
    """Newline, NUL, both or nothing."""
    assert number_list("0-2,8" + ending) == 0b100000111
    assert number_mask("1,00000007" + ending) == (1 << 32) + 7
    assert number_row("10 21 " + ending) == [10, 21]
    assert hex_number("0x030200" + ending) == 0x030200


def test_an_empty_list_is_the_empty_set():
    """A node of memory only has a list of one newline and a mask of zeros."""
    assert number_list("\n") == 0
    assert number_mask("00000000,00000000\n") == 0


@given(st.sets(st.integers(0, 500)))
def test_lists_and_masks_mean_the_same_set(cpus):
    """Both are read back to what was written."""
    bits = sum(1 << cpu for cpu in cpus)

    assert number_mask(mask(cpus)) == bits
    assert number_list(f"{CPUSet(cpus)}\n") == bits


def test_words_of_a_mask_count_as_32_bits_even_if_short():
    """Only the first is short on real machines; others would mean the same."""
    assert number_mask("f,3,00000001") == (0xF << 64) + (3 << 32) + 1


@pytest.mark.parametrize("text", [None, "", "0-", "a-b", "3-1", "x", "99999999999", "1,,2"])
def test_a_list_without_sense_is_not_known(text):
    if text != "":
        assert number_list(text) is None


@pytest.mark.parametrize("text", [None, "", "\n", "xyz", "ff,", "123456789", "ff ff"])
def test_a_mask_without_sense_is_not_known(text):
    assert number_mask(text) is None


@pytest.mark.parametrize("text", [None, "", "10 x", "10 -1", "\n"])
def test_a_row_without_sense_is_not_known(text):
    assert number_row(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("-1\n", -1), ("10240K\n", 10240), (" 7", 7), ("x", None), ("", None), (None, None)],
)
def test_first_number_is_what_a_text_starts_with(text, number):
    assert first_number(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("10de", 0x10DE), ("0x", None), ("zz", None), (None, None)]
)
def test_hex_number_may_have_a_prefix(text, number):
    assert hex_number(text) == number


def test_memory_is_in_bytes():
    """Of a node or of the machine; 0 if it is not told."""
    assert meminfo_bytes("Node 3 MemTotal:       16 kB\nNode 3 MemFree: 1 kB\n") == 16384
    assert meminfo_bytes("MemTotal: 2 kB\n") == 2048
    assert meminfo_bytes("MemFree: 2 kB\n") == 0
    assert meminfo_bytes(None) == 0


@given(st.text(max_size=30))
def test_no_text_raises(text):
    """Whatever is in a file, a reader gets a value or None."""
    for parse in (first_number, hex_number, meminfo_bytes, number_list, number_mask, number_row):
        parse(text)


def test_sizes_of_thousands_of_digits_are_none():
    """They are no sizes."""
    assert meminfo_bytes(f"MemTotal: {'9' * 5000} kB") == 0
