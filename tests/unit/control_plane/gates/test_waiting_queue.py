"""The order of waiting pods, and which kinds of them fit, compared with plain models."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.control_plane.gates.waiting_pods import Kind
from alignup.control_plane.gates.waiting_queue import KindTable, WaitingQueue
from alignup.kubernetes.pod import Pod
from inputs.waiting_pods import waiting_pod

# Not much of each, so that much is equal.
PODS = st.builds(
    lambda number, priority, second, namespace, cpu: waiting_pod(
        f"p{number}",
        priority=priority,
        created=f"2026-01-01T00:00:0{second}Z",
        namespace=namespace,
        cpu=cpu,
    ),
    st.integers(0, 9),
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from(["a", "b", "c"]),
    st.integers(1, 3),
)
STEPS = st.lists(
    st.one_of(
        PODS,
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("serve"), st.sets(st.integers(1, 3), min_size=1)),
    ),
    max_size=40,
)

RESOURCES = [f"r{number}" for number in range(12)]
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5), max_size=12)
LARGE = st.dictionaries(st.sampled_from(RESOURCES), st.integers(-(1 << 70), 1 << 70), max_size=3)


class PlainQueue:
    """Sorts all pods whenever somebody asks."""

    def __init__(self) -> None:
        self.pods = []
        self.charged = {}
        self.turn = 0.0

    def _waits(self, namespace) -> bool:
        return any(pod.watched.pod.namespace == namespace for pod in self.pods)

    def add(self, pod) -> None:
        namespace = pod.watched.pod.namespace
        if not self._waits(namespace):
            self.charged[namespace] = max(self.charged.get(namespace, 0.0), self.turn)
        self.pods = [other for other in self.pods if other.uid != pod.uid] + [pod]

    def remove(self, uid) -> None:
        self.pods = [pod for pod in self.pods if pod.uid != uid]

    def ordered(self):
        return sorted(
            self.pods,
            key=lambda pod: (
                -pod.watched.priority,
                self.charged[pod.watched.pod.namespace],
                pod.created,
                pod.watched.pod.name,
            ),
        )

    def charge(self, namespace, part) -> None:
        before = self.charged[namespace]
        self.turn = max(self.turn, before)
        self.charged[namespace] = before + part


@given(STEPS)
def test_pods_come_in_the_order_of_a_plain_model(steps) -> None:
    queue = WaitingQueue()
    plain = PlainQueue()
    for now, step in enumerate(steps):
        if not isinstance(step, tuple):
            # a pod does not change its namespace
            if any(
                pod.uid == step.uid and pod.watched.pod.namespace != step.watched.pod.namespace
                for pod in plain.pods
            ):
                continue
            queue.add(step, now)
            plain.add(step)
        elif step[0] == "remove":
            uid = f"uid-p{step[1]}"
            assert (queue.remove(uid) is not None) == any(pod.uid == uid for pod in plain.pods)
            plain.remove(uid)
        else:
            ordered = [pod for pod in plain.ordered() if pod.watched.pod.exclusive_cpus in step[1]]
            kinds = [kind for kind in queue.kinds if kind.pod.exclusive_cpus in step[1]]
            first = next(iter(queue.firsts(kinds)), None)
            assert first == (ordered[0] if ordered else None)
            if first is not None:
                queue.remove(first.uid)
                namespace = first.watched.pod.namespace
                queue.charge(namespace, first.watched.pod.exclusive_cpus / 8)
                plain.charge(namespace, first.watched.pod.exclusive_cpus / 8)
                plain.remove(first.uid)

        assert queue.in_order() == plain.ordered()
        assert len(queue) == len(plain.pods)
        assert set(queue.kinds) == {pod.kind for pod in plain.pods}


def test_namespaces_take_turns_by_what_they_get() -> None:
    queue = WaitingQueue()
    for number in range(8):
        for namespace in ("large", "small"):
            size = {"large": 4, "small": 1}[namespace]
            name = f"{namespace}-{number}"
            queue.add(waiting_pod(name, namespace=namespace, cpu=size), 0)

    served = []
    for _ in range(10):
        pod = queue.firsts(queue.kinds)[0]
        queue.remove(pod.uid)
        queue.charge(pod.watched.pod.namespace, pod.watched.pod.exclusive_cpus / 100)
        served.append(pod.watched.pod.namespace)

    assert served.count("large") == 2
    assert served[:2] == ["large", "small"]


def test_nobody_saves_up_turns_while_nothing_waits() -> None:
    queue = WaitingQueue()
    for number in range(9):
        queue.add(waiting_pod(f"first-{number}", namespace="first"), 0)
    for _ in range(5):
        pod = queue.firsts(queue.kinds)[0]
        queue.remove(pod.uid)
        queue.charge("first", 0.5)

    for number in range(9):
        queue.add(waiting_pod(f"second-{number}", namespace="second", cpu=2), 0)
    order = []
    for _ in range(6):
        pod = queue.firsts(queue.kinds)[0]
        queue.remove(pod.uid)
        queue.charge(pod.watched.pod.namespace, 0.5)
        order.append(pod.watched.pod.namespace)

    assert order.count("second") == 3 or order.count("second") == 4


def test_who_has_waited_long_may_have_a_node_kept() -> None:
    queue = WaitingQueue()
    queue.add(waiting_pod("old", created="2026-01-01T00:00:01Z"), 0)
    queue.add(waiting_pod("older", created="2026-01-01T00:00:00Z"), 3)
    queue.add(waiting_pod("important", priority=5), 3)
    queue.add(waiting_pod("new"), 20)
    assert queue.overdue(9, 10) == []
    assert [pod.uid for pod in queue.overdue(10, 10)] == ["uid-old"]
    names = [pod.watched.pod.name for pod in queue.overdue(29, 10)]
    assert names == ["important", "older", "old"]

    # a pod that changes has waited for as long as before
    queue.add(waiting_pod("old", priority=9), 30)
    assert queue.since("uid-old") == 0
    assert queue.overdue(31, 31)[0].uid == "uid-old"


def kind_of(requests):
    pod = Pod("uid", "name")
    return Kind(pod, pod, (), requests)


@given(st.lists(st.tuples(st.booleans(), AMOUNTS), max_size=90), st.lists(AMOUNTS, max_size=3))
def test_the_kinds_that_fit_are_those_that_a_loop_finds(steps, nodes) -> None:
    table = KindTable()
    kinds = []
    for adds, requests in steps:
        if adds or not kinds:
            kinds.append(kind_of(requests))
            table.add(kinds[-1])
            table.add(kinds[-1])
        else:
            table.discard(kinds.pop(len(requests) % len(kinds)))

        assert len(table) == len(kinds)
        assert set(table) == set(kinds)

    for free in nodes:
        expected = {
            kind
            for kind in kinds
            if all(amount <= free.get(name, 0) for name, amount in kind.requests.items())
        }
        fitting = table.fitting(free)
        assert set(fitting) == expected
        assert len(fitting) == len(expected)


@given(LARGE)
def test_amounts_beyond_any_node_fit_nowhere(free) -> None:
    table = KindTable()
    kind = kind_of({"r0": 1 << 80})
    table.add(kind)
    assert table.fitting(free) == []
    table.discard(kind)
    table.discard(kind)
    assert kind not in table
    assert table.fitting({}) == []


@pytest.mark.parametrize("most", [2, 8, 9, 64])
def test_resources_without_a_column_count_too(most, monkeypatch) -> None:
    monkeypatch.setattr("alignup.control_plane.gates.waiting_queue._MOST_COLUMNS", most)
    random = Random(most)
    table = KindTable()
    kinds: list[Kind] = []
    for _ in range(400):
        names = random.sample([f"r{number}" for number in range(20)], random.randint(1, 12))
        if random.random() < 0.6 or not kinds:
            kinds.append(kind_of({name: random.randint(1, 2) for name in names}))
            table.add(kinds[-1])
        else:
            table.discard(kinds.pop(random.randrange(len(kinds))))

        free = {f"r{number}": random.randint(0, 2) for number in range(random.randint(0, 20))}
        expected = {
            kind
            for kind in kinds
            if all(amount <= free.get(name, 0) for name, amount in kind.requests.items())
        }
        assert set(table.fitting(free)) == expected


def test_resources_without_end_leave_nothing_behind() -> None:
    table = KindTable()
    for number in range(300):
        kind = kind_of({f"example.com/r{number}-{further}": 1 for further in range(200)})
        table.add(kind)
        assert table.fitting({"cpu": 1}) == []
        table.discard(kind)

    assert table._amounts.nbytes <= 64 * 64 * 8
    assert not any((table._columns, table._uses, table._further))
