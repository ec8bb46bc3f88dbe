"""Behaviour of `alignup.machine.cpuset`."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.machine.cpuset import CPU_LIMIT, CPUSet

CPUS = st.frozensets(st.integers(0, 200))


@given(CPUS, CPUS)
def test_arithmetic_is_that_of_frozensets(left, right):
    """Every operator agrees with the model, against another CPUSet and against a builtin set."""
    ours = CPUSet(left)
    for operand in (CPUSet(right), right):
        assert ours & operand == left & right
        assert ours | operand == left | right
        assert ours - operand == left - right
        assert ours ^ operand == left ^ right
        assert (ours <= operand) == (left <= right)
        assert (ours < operand) == (left < right)
        assert (ours >= operand) == (left >= right)
        assert (ours == operand) == (left == right)
        assert ours.isdisjoint(operand) == left.isdisjoint(right)
        assert isinstance(ours & operand, CPUSet)

    assert right - ours == right - left
    assert isinstance(right | ours, CPUSet)


@given(CPUS)
def test_forms_round_trip(cpus):
    """Text, int, repr, pickle and copy all give the same set back.

    A set hashes like its equal.
    """
    ours = CPUSet(cpus)
    assert list(ours) == sorted(cpus)
    assert len(ours) == len(cpus)
    assert bool(ours) == bool(cpus)
    assert CPUSet.parse(str(ours)) == ours
    assert CPUSet.from_int(int(ours)) == ours
    assert int(ours) == sum(1 << cpu for cpu in cpus)
    assert eval(repr(ours)) == ours  # noqa: S307  # the promise of repr
    assert pickle.loads(pickle.dumps(ours)) == ours  # noqa: S301  # made two words to the left
    assert copy.deepcopy(ours) == ours
    assert hash(ours) == hash(cpus)
    assert {ours: 1}[cpus] == 1


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3,8\n", [0, 1, 2, 3, 8]),
        ("8,0-1,1-2", [0, 1, 2, 8]),
        ("0-7:2", [0, 2, 4, 6]),
        ("5-5", [5]),
        (f"{CPU_LIMIT - 1}", [CPU_LIMIT - 1]),
    ],
)
def test_lists_are_read(text, cpus):
    assert list(CPUSet.parse(text)) == cpus


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([8, 0, 1, 2, 3, 10, 11], "0-3,8,10-11"),
    ],
)
def test_lists_are_written_as_the_kubelet_does(cpus, text):
    assert str(CPUSet(cpus)) == text


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "1,,2",
        "1,",
        "3-1",
        "-1",
        "1-",
        "0-3:0",
        "3:2",
        "0-3:",
        "0- 3",
        "1 2",
        "²",
        "0-99999999999",
        "9" * 50,
        "0x1",
    ],
)
def test_what_is_no_list_is_an_error_with_a_place(text):
    with pytest.raises(InputError, match=r"^expected .*, got .* at reservedSystemCPUs$"):
        CPUSet.parse(text, "reservedSystemCPUs")


def test_membership_takes_any_object():
    cpus = CPUSet([1, 64])
    assert 64 in cpus
    assert -1 not in cpus
    assert 10**9 not in cpus
    assert "1" not in cpus


def test_elements_that_are_no_cpus_are_refused():
    with pytest.raises(InputError, match="got -1"):
        CPUSet([-1])
    with pytest.raises(InputError, match=f"got {CPU_LIMIT}"):
        CPUSet([CPU_LIMIT])
    with pytest.raises(InputError, match="not negative"):
        CPUSet.from_int(-1)
    with pytest.raises(TypeError):
        CPUSet(["1"])
    with pytest.raises(TypeError):
        CPUSet([1]) & 3


def test_it_equals_sets_only():
    assert CPUSet([1]) != [1]
    assert CPUSet([1]) != {"1"}
    assert CPUSet([1, 2]) == {1: "a", 2: "b"}.keys()


@pytest.mark.parametrize("stride", [2, 3, 7, 64, 65535])
def test_strides_are_those_of_a_range(stride):
    """However it is computed."""
    for first, last in ((0, 0), (0, 65535), (5, 100), (1, 64), (64, 127)):
        assert list(CPUSet.parse(f"{first}-{last}:{stride}")) == list(
            range(first, last + 1, stride)
        )


def test_a_list_that_is_longer_than_any_is_refused():
    """The time to read it would grow with it."""
    assert len(CPUSet.parse(",".join(map(str, range(0, 65536, 2))))) == 32768
    with pytest.raises(InputError, match="a CPU list of up to 262144 characters"):
        CPUSet.parse("0-65535," * 40_000 + "0")


@pytest.mark.parametrize("text", [f"{CPU_LIMIT}", f"0-{CPU_LIMIT}", f"0-{CPU_LIMIT}:{CPU_LIMIT}"])
def test_a_list_ends_below_the_limit(text: str) -> None:
    with pytest.raises(InputError, match=f"expected CPU numbers below {CPU_LIMIT}"):
        CPUSet.parse(text)


def test_a_list_may_be_as_long_as_one_of_all_cpus_needs_to_be() -> None:
    whole = "0," * (2 * CPU_LIMIT - 1) + "17"
    assert CPUSet.parse(f"\n{whole}\n") == CPUSet([0, 17])
    with pytest.raises(
        InputError, match=f"expected a CPU list of up to {4 * CPU_LIMIT} characters"
    ):
        CPUSet.parse(f"{whole}0")
