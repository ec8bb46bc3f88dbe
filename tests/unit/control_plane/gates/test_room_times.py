"""From the event that makes room for a pod to its binding."""

from __future__ import annotations

from random import Random

import pytest

from alignup.control_plane.gates.room_times import Histogram, RoomTimes


def observed(times):
    samples = times.histogram.samples()
    return samples["_count"], samples["_sum"]


def test_a_pod_that_waits_has_room_from_the_first_change_of_its_node() -> None:
    times = RoomTimes()
    times.pod_waits("p", 1.0)
    times.node_changed("a", 10.0)
    times.node_changed("a", 10.3)
    times.node_changed("b", 9.0)
    times.placed("p", "a", 10.5)
    times.decided()
    times.bound("p", 11.0)
    assert observed(times) == (1, 1.0)
    assert len(times) == 0


def test_a_pod_that_comes_where_there_is_room_has_it_since_it_came() -> None:
    """A change before the last decision, or before it came, is none that made room for it."""
    times = RoomTimes()
    times.node_changed("a", 1.0)
    times.decided()
    times.pod_waits("p", 5.0)
    times.node_changed("a", 4.0)
    times.placed("p", "a", 5.5)
    times.bound("p", 5.25)
    assert observed(times) == (1, 0.25)

    times.decided()
    times.pod_waits("q", 6.0)
    times.placed("q", "a", 6.5)
    times.bound("q", 7.0)
    assert observed(times) == (2, 1.25)


def test_where_nothing_happened_time_alone_made_room() -> None:
    times = RoomTimes()
    times.pod_waits("q", 6.0)
    times.decided()
    times.pod_waits("q", 7.0)
    times.placed("q", "a", 9.0)
    times.bound("q", 9.5)
    assert observed(times) == (1, 0.5)


def test_members_have_room_since_the_last_of_them_came() -> None:
    times = RoomTimes()
    times.pod_waits("p", 1.0)
    times.decided()
    times.pod_waits("q", 2.0)
    for uid in "pq":
        times.placed(uid, "a", 2.5, ["p", "q"])
    for uid in "pq":
        times.bound(uid, 3.0)
    assert observed(times) == (2, 2.0)


def test_only_a_pod_with_a_place_is_counted_and_each_once() -> None:
    times = RoomTimes()
    times.bound("other", 1.0)
    times.pod_waits("p", 1.0)
    times.placed("p", "a", 2.0)
    times.place_lost("p")
    times.bound("p", 3.0)
    times.placed("q", "a", 3.0)
    times.gone("q")
    times.bound("q", 4.0)
    assert observed(times) == (0, 0.0)
    times.placed("r", "a", 4.0)
    times.bound("r", 5.0)
    times.bound("r", 6.0)
    assert observed(times) == (1, 1.0)


def test_pods_that_are_not_listed_any_more_are_forgotten() -> None:
    times = RoomTimes()
    for uid in ("p", "q"):
        times.pod_waits(uid, 1.0)
        times.placed(uid, "a", 1.0)
    times.forget_all_but(["q", "r"])
    times.decided()
    assert len(times) == 2
    assert times.has_room_since("q") == 1.0
    assert times.has_room_since("p") is None


@pytest.mark.parametrize("seed", range(20))
def test_beside_a_plain_model(seed) -> None:
    """Which looks through all that has happened so far."""
    random = Random(seed)
    times = RoomTimes()
    log: list[tuple[float, str, str, str]] = []
    expected = []
    now = 0.0
    for number in range(200):
        now += random.random()
        uid = f"p{number // 20}-{random.randrange(3)}"
        node = random.choice("ab")
        kind = random.choice(("node", "waits", "placed", "decided", "bound"))
        if kind == "node":
            times.node_changed(node, now)
        elif kind == "waits":
            times.pod_waits(uid, now)
        elif kind == "placed":
            times.placed(uid, node, now)
        elif kind == "decided":
            times.decided()
        else:
            times.bound(uid, now)
            began = plain_room(log, uid)
            if began is not None:
                expected.append(now - began)
        log.append((now, kind, uid, node))

    assert observed(times) == (len(expected), pytest.approx(sum(expected)))
    assert len(expected) > 5


def plain_room(log, uid):
    own = [index for index, entry in enumerate(log) if entry[2] == uid]
    last_bound = max((index for index in own if log[index][1] == "bound"), default=-1)
    places = [index for index in own if index > last_bound and log[index][1] == "placed"]
    if not places:
        return None

    index = places[-1]
    moment, _, _, node = log[index]
    before = log[:index]
    decided = max((at for at, entry in enumerate(before) if entry[1] == "decided"), default=-1)
    changes = [at for at, kind, _, name in before[decided + 1 :] if (kind, name) == ("node", node)]
    waits = [at for at in own if last_bound < at < index and log[at][1] == "waits"]
    came = log[waits[0]][0] if waits else moment
    if changes:
        return max(min(changes), came)
    return came if waits and waits[0] > decided else moment


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram()
    for seconds in (0.05, 0.051, 3.0, 100.0):
        histogram.observe(seconds)
    samples = histogram.samples()
    assert samples['_bucket{le="0.05"}'] == 1
    assert samples['_bucket{le="0.1"}'] == 2
    assert samples['_bucket{le="5.0"}'] == 3
    assert samples['_bucket{le="60.0"}'] == 3
    assert samples['_bucket{le="+Inf"}'] == samples["_count"] == 4
    assert samples["_sum"] == pytest.approx(103.101)
