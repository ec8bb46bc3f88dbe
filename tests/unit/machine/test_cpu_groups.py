"""Core records from groups of CPUs."""

from __future__ import annotations

from alignup.machine.machine import Core, make_cores, number_groups


def test_cores_have_the_socket_and_cache_of_their_lowest_cpu():
    """And come by that CPU."""
    cores = make_cores([0b1010, 0, 0b0101], {3: 0b0101, 7: 0b1010}, [0b1111])
    assert cores == (Core((0, 2), 3, 0), Core((1, 3), 7, 0))


def test_what_is_in_no_group():
    """Socket 0, and no cache."""
    assert make_cores([0b1], {}, []) == (Core((0,), 0, None),)


def test_groups_keep_their_numbers():
    """A number that comes twice, or is missing, is replaced by the lowest free one."""
    assert number_groups([(1, 0b1), (None, 0b10), (1, 0b100), (0, 0b1000), (None, 0b10000)]) == {
        1: 0b1,
        0: 0b1000,
        2: 0b10,
        3: 0b100,
        4: 0b10000,
    }
