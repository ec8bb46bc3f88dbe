"""Groups of pods that wait: who is a member, how many are lacking, and how many a node may take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from alignup.control_plane.gates.waiting_groups import GroupRoom, WaitingGroup, WaitingGroups
from alignup.control_plane.gates.waiting_pods import WaitingPod
from alignup.kubernetes.groups import PodGroup
from inputs.waiting_pods import GATED_READER, idle_member, member

if TYPE_CHECKING:
    from typing import Any


def read(manifest: dict[str, Any]) -> WaitingPod:
    pod = GATED_READER.decode(json.dumps(manifest).encode())
    assert isinstance(pod, WaitingPod)
    return pod


def groups_of(*manifests: dict[str, Any]) -> tuple[WaitingGroups, WaitingGroup]:
    """Return groups with some members, and the group of the first one."""
    groups = WaitingGroups()
    for moment, pod in enumerate(map(read, manifests)):
        assert pod.watched.membership is not None
        groups.add(pod.watched.membership, pod, moment)

    group = groups.of(read(manifests[0]).uid)
    assert group is not None
    return groups, group


def test_members_are_counted_until_as_many_have_come_as_run_together() -> None:
    groups, group = groups_of(member("m0", 3), member("m1", 3))
    assert (group.lacking, group.words()) == (1, "2 of 3 members are there")
    assert groups.to_place(lambda _: 0.0) == []

    last = read(idle_member("m2", 3))
    assert last.watched.membership is not None
    groups.add(last.watched.membership, last, 9)
    assert (group.lacking, group.needed) == (0, 3)
    assert groups.to_place(lambda _: 0.0) == [group]
    assert groups.overdue(8, lambda _: 0.0) is None
    assert groups.overdue(9, lambda _: 0.0) is group


def test_a_member_that_is_gone_is_lacking_and_the_last_one_takes_its_group_with_it() -> None:
    groups, group = groups_of(member("m0", 2), member("m1", 2))
    groups.gone("uid-m1")
    assert group.lacking == 1
    groups.gone("uid-m0")
    assert list(groups) == []
    assert groups.of("uid-m0") is None
    groups.gone("uid-m0")  # no error


def test_where_members_differ_the_size_that_only_one_has_said_goes_with_it() -> None:
    groups, group = groups_of(member("m0", 4), member("m1", 2), member("m2", 2))
    assert group.words() == "3 of 4 members are there"
    groups.gone("uid-m0")
    assert (group.size, group.lacking) == (2, 0)
    groups.gone("uid-m1")
    assert (group.size, group.lacking) == (2, 1)


def test_a_group_is_there_as_long_as_one_that_waits_for_itself() -> None:
    groups, group = groups_of(member("m0", 2), member("m1", 2))
    groups.alone(group, "uid-m0")
    groups.gone("uid-m1")
    assert groups.of("uid-m0") is group
    groups.gone("uid-m0")
    assert groups.of("uid-m0") is None


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_who_comes_after_a_member_that_asks_for_something_exclusive_goes_alone(
    is_exclusive,
) -> None:
    groups, group = groups_of(member("m0", 3), member("m1", 3))
    groups.begins(group.membership, "uid-m0", is_exclusive=is_exclusive)
    assert group.goes_alone is is_exclusive
    assert group.needed == 2


def test_the_largest_of_different_numbers_counts() -> None:
    _, group = groups_of(member("m0", 2), member("m1", 4))
    assert group.size == 4


def test_the_number_of_a_pod_group_comes_with_its_object() -> None:
    groups, group = groups_of(member("m0", group=""))
    assert "was not seen yet" in group.words()
    assert group.lacking == 1
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    found = {"metadata": {"name": "gang"}, "spec": spec}
    groups.seen(msgspec.convert(found, PodGroup))
    assert group.lacking == 0
    groups.object_gone(msgspec.convert(found, PodGroup))
    assert group.lacking == 1


def test_a_group_that_was_refused_is_tried_again_once_there_may_be_room_for_all() -> None:
    groups, group = groups_of(*[member(f"m{number}", 4, cpu=2) for number in range(4)])
    group.is_refused, group.fitting = True, (1, 4)
    free = {"cpu": 2000, "memory": 1 << 40, "pods": 10}
    for count in range(3):
        assert group.is_refused, count
        groups.room_on(free)
    assert not group.is_refused


@pytest.mark.parametrize("mixes", [True, False])
def test_room_beside_other_members_is_what_is_said_of_them(mixes) -> None:
    pods = {pod.uid: pod for pod in (read(member(f"m{n}", 4, cpu=1 + n // 2)) for n in range(4))}
    small, _, large, _ = pods.values()
    questions = []

    def most_beside(index, pod, others, most) -> int:
        questions.append((index, pod, list(others), most))
        return 1

    def most_of(pod) -> dict[int, int]:
        return {0: 2, 2: 5} if pod.kind is small.kind else {0: 3, 1: 1}

    room = GroupRoom(3, pods, most_of, most_beside)
    room = room.mixing() if mixes else room
    plain = small.watched.pod
    assert room.most(plain).tolist() == [2, 0, 5]
    room.add(0, plain)
    assert room.most(plain).tolist() == [1, 0, 5]
    for _ in range(2):
        assert room.most(large.watched.pod).tolist() == [int(mixes), 1, 0]
    assert questions == ([(0, large, [small], 2)] if mixes else [])
    assert np.array_equal(room.fresh().most(plain), [2, 0, 5])
