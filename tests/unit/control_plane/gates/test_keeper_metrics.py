"""The keeper in numbers."""

from __future__ import annotations

import json

from alignup.control_plane.gates.keeper_metrics import KeeperMetrics
from inputs.keepers import grouped_pod, keeper_of, let_go
from inputs.waiting_pods import GATED_READER, gated_object, waiting_pod
from inputs.watched_objects import pod_object, watched


class Told:
    """A keeper and its metrics, which are told the same."""

    def __init__(self, *names: str) -> None:
        self.keeper = keeper_of(*names)
        self.metrics = KeeperMetrics(self.keeper)

    def seen(self, pod, now: float) -> None:
        self.metrics.pod_seen(pod, now)
        self.keeper.pod_seen(pod, now)

    def gone(self, uid: str, now: float) -> None:
        self.metrics.pod_gone(uid, now)
        self.keeper.pod_gone(uid, now)

    def decide(self, now: float):
        decisions = self.keeper.decide(now)
        self.metrics.decided(decisions, now)
        return decisions

    def values(self, now: float = 100.0, *, leads: bool = True):
        return {
            name: value
            for name, (_, _, value) in self.metrics.values(now, leads=leads, lists=1).items()
        }

    def room(self) -> tuple[float, float]:
        samples = self.values()["room_to_bound_seconds"]
        return samples["_count"], samples["_sum"]


def test_from_the_end_of_a_pod_to_the_binding_of_the_next() -> None:
    told = Told("a")
    told.seen(waiting_pod("p", cpu=4), 1.0)
    told.decide(1.5)
    told.seen(let_go("p", ["a"], cpu=4), 1.6)
    told.seen(watched("p", "a", cpu=4), 3.0)
    assert told.room() == (1, 2.0)

    told.seen(waiting_pod("q", cpu=4), 4.0)
    assert told.decide(4.0) == []
    told.gone("uid-p", 10.0)
    (release,) = told.decide(10.5)
    assert release.nodes == ("a",)
    told.seen(let_go("q", ["a"], cpu=4), 10.6)
    told.seen(watched("q", "a", cpu=4), 11.0)
    assert told.room() == (2, 3.0)
    told.seen(watched("q", "a", cpu=4), 12.0)
    assert told.room() == (2, 3.0)


def test_a_member_of_a_group_has_room_since_the_plan() -> None:
    told = Told("a", "b")
    for number in range(2):
        told.seen(grouped_pod(f"m{number}", size=2), 1.0 + number)
    plans = told.decide(2.5)
    assert len(plans) == 2
    for plan in plans:
        pod = gated_object(plan.pod.watched.pod.name, cpu=4)
        pod["metadata"] |= {
            "labels": {"alignup.dev/group": "g"},
            "annotations": {"alignup.dev/group-size": "2", "alignup.dev/place": plan.node},
            "resourceVersion": "2",
        }
        told.seen(GATED_READER.decode(json.dumps(pod).encode()), 3.0)

    assert len(told.decide(3.5)) == 2
    for plan in plans:
        told.seen(watched(plan.pod.watched.pod.name, plan.node, cpu=4), 5.0)
    assert told.room() == (2, 3.0 + 3.0)


def test_pods_that_lose_their_gate_or_go_are_forgotten() -> None:
    told = Told("a")
    told.seen(waiting_pod("p", cpu=4), 1.0)
    told.decide(1.0)
    taken_off = gated_object("p", cpu=4)
    del taken_off["spec"]["schedulingGates"]
    told.seen(GATED_READER.decode(json.dumps(taken_off).encode()), 2.0)
    told.seen(watched("p", "a", cpu=4), 3.0)
    assert told.room() == (0, 0)

    told.metrics.pods_listed([waiting_pod("q", cpu=1)], 4.0)
    assert len(told.metrics.room_times) == 3  # the node of p changed, and q is new and waits
    told.metrics.pods_listed([], 5.0)
    told.metrics.stood_by()
    assert len(told.metrics.room_times) == 0


def test_what_pods_wait_for_is_said_by_the_leader_alone() -> None:
    told = Told("a")
    told.seen(waiting_pod("p", cpu=5), 40.0)
    gates = [{"name": "alignup.dev/room"}, {"name": "kueue.x-k8s.io/admission"}]
    kueue = GATED_READER.decode(
        json.dumps(gated_object("k", cpu=5, spec={"schedulingGates": gates})).encode()
    )
    told.seen(kueue, 40.0)
    told.decide(41.0)
    told.metrics.reasons.look()
    values = told.values()
    by_reason = values["waiting_by_reason_pods"]
    assert {key: count for key, count in by_reason.items() if count} == {
        '{reason="no_node_aligns"}': 1,
        '{reason="other_gate"}': 1,
    }
    assert (values["waiting_pods"], values["longest_wait_seconds"]) == (1, 60.0)
    assert not any(told.values(leads=False)["waiting_by_reason_pods"].values())

    told.gone("uid-k", 50.0)
    assert told.values()["waiting_by_reason_pods"]['{reason="other_gate"}'] == 0


def test_ungated_pods_are_warned_of_beside_gated_ones_only() -> None:
    told = Told("a")
    told.seen(GATED_READER.decode(json.dumps(pod_object("u", "a", cpu=2)).encode()), 1.0)
    assert told.values()["ungated_pods"] == 1
    assert told.metrics.warning(1.0) == ""
    told.seen(waiting_pod("p", cpu=4), 2.0)
    assert "such as default/u on node a" in told.metrics.warning(2.0)

    told.metrics.pods_listed([], 3.0)
    assert told.values()["ungated_pods"] == 0
    told.seen(GATED_READER.decode(json.dumps(pod_object("u", "a", cpu=2)).encode()), 1.0)
    told.gone("uid-u", 4.0)
    assert told.values()["ungated_pods"] == 0
