"""Members of groups in a trace are placed all or none."""

from __future__ import annotations

from random import Random

import pytest

from alignup.cluster import Cluster
from alignup.cluster.node_totals import Totals
from alignup.cluster.simulation import Simulation
from alignup.cluster.traces import Arrival, Removal
from alignup.kubernetes.groups import Membership
from alignup.node import Node
from inputs.machines import machine_of
from inputs.watched_objects import watched

KUBELET = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "single-numa-node",
}


def cluster_of(count=2, cpus=4):
    """Return nodes of two NUMA nodes; the first one has a CPU less."""
    description = {"machine": machine_of(2, cpus // 2), "kubelet": KUBELET}
    return Cluster.from_nodes(
        {f"n{number}": Node.from_dict(description) for number in range(count)}
    )


def came(name, cpu, time=0.0, duration=None, *, group="", size=0, kind="alignup"):
    membership = Membership(kind, "default", group, size) if group else None
    return Arrival(time, watched(name, cpu=cpu).pod, duration, membership)


def group_of(name, cpus, time=0.0, duration=None, **keys):
    keys = {"size": len(cpus), **keys}
    return [
        came(f"{name}-{number}", cpu, time, duration, group=name, **keys)
        for number, cpu in enumerate(cpus)
    ]


def running(cluster):
    return {pod.name for node in cluster.nodes for pod in node.pods}


def test_three_of_four_members_fit_and_none_is_placed():
    """The default scheduler binds three of them, which hold what others could use."""
    events = group_of("train", [4, 4, 4, 4])
    cluster = cluster_of(2)
    report = Simulation(cluster).run(events)
    assert running(cluster) == set()
    assert (report.placed, report.left_out, report.no_room) == (0, 4, 0)

    groups = report.to_dict()["groups"]
    (outcome,) = groups.pop("notWhole")
    assert groups == {"groups": 1, "whole": 0, "partly": 0, "none": 1}
    reason = outcome.pop("reason")
    assert outcome == {
        "group": "default/train",
        "kind": "alignup",
        "members": 4,
        "needed": 4,
        "placed": 0,
    }
    assert reason == (
        "2 of 4 members fit; with these in place, train-2 lacks one: 0/2 nodes have a place: "
        "2 not enough cpu is free on the node"
    )

    blind = Simulation(cluster_of(2), blind=True).run(events)
    assert blind.placed == 2
    assert blind.left_out == 0
    assert blind.groups is not None
    assert blind.groups.partly == 1
    assert blind.groups.not_whole[0].reason == "2 of 4 members ran at once"


def test_a_group_waits_for_its_members_and_for_room():
    """All begin at the moment in which there is room for all."""
    events = [came("single", 4, 0.0, 50.0)]
    events += [came(f"m{n}", 4, 10.0 + n, 5.0, group="g", size=4) for n in range(4)]
    events += [came("last", 1, 100.0)]
    cluster = cluster_of(4)
    report = Simulation(cluster, waits=True).run(events)
    assert (report.placed, report.left_out) == (6, 0)
    assert report.waiting is not None
    assert report.waiting.longest == pytest.approx(40.0)
    assert report.groups is not None
    assert (report.groups.whole, report.groups.not_whole) == (1, ())

    given_up = Simulation(cluster_of(4)).run(events)
    assert (given_up.placed, given_up.left_out) == (2, 4)


def test_too_few_members():
    events = group_of("g", [1, 1], size=3)
    for waits in (False, True):
        cluster = cluster_of()
        report = Simulation(cluster, waits=waits).run(events)
        assert running(cluster) == set()
        assert report.left_out == 2
        assert report.groups is not None
        assert report.groups.not_whole[0].reason == "2 of 3 members are there"


def test_members_that_are_removed_while_they_wait_do_not_count():
    events = [*group_of("g", [1, 1], size=3), Removal(1.0, "uid-g-0")]
    events.append(came("g-2", 1, 2.0, group="g", size=3))
    cluster = cluster_of()
    report = Simulation(cluster, waits=True).run(events)
    assert running(cluster) == set()
    assert report.left_out == 3
    assert report.waiting is not None
    assert (report.waiting.pods, report.waiting.longest) == (2, 2.0)


def test_of_a_group_without_a_number_all_members_of_the_trace_run_together():
    cluster = cluster_of()
    events = group_of("g", [1, 1, 1], size=0, kind="podgroup")
    steps = Simulation(cluster).steps(events)
    next(steps)
    next(steps)
    assert running(cluster) == set()
    next(steps)
    assert running(cluster) == {"g-0", "g-1", "g-2"}


def test_what_is_over_the_number_goes_alone():
    """A later one waits for nobody; of those that waited together some may find no place."""
    events = [*group_of("g", [3, 3], size=2), came("g-2", 1, 1.0, group="g", size=2)]
    cluster = cluster_of(1)
    report = Simulation(cluster).run(events)
    assert running(cluster) == {"g-0", "g-1", "g-2"}
    assert report.left_out == 0

    blocked = [came("b", 3, 0.0, 10.0), *group_of("g", [3, 3, 3], 1.0, size=2)]
    cluster = cluster_of(1)
    report = Simulation(cluster, waits=True).run([*blocked, came("z", 9, 20.0)])
    assert len(running(cluster)) == 2
    assert (report.placed, report.left_out, report.no_room, report.no_alignment) == (3, 0, 2, 0)


def test_of_a_pod_group_all_that_are_there_get_places_or_none():
    """Its scheduler lets none go while one has a gate."""
    events = [came("b", 3, 0.0, 10.0)]
    events += group_of("g", [3, 3, 3], 1.0, size=2, kind="podgroup")
    cluster = cluster_of(1)
    report = Simulation(cluster, waits=True).run([*events, came("z", 1, 20.0)])
    assert running(cluster) == {"z"}
    assert report.left_out == 3


def test_a_group_of_the_same_name_comes_again():
    events = [
        *group_of("g", [3, 3], 0.0, 5.0),
        *(came(f"again-{n}", 3, 10.0, group="g", size=2) for n in range(2)),
    ]
    report = Simulation(cluster_of(1)).run(events)
    assert report.groups is not None
    assert (report.groups.groups, report.groups.whole) == (2, 2)


@pytest.mark.parametrize(("group", "evictions"), [("", 1), ("g", 0)])
def test_nobody_of_a_group_is_evicted(group, evictions):
    """Small pods came to the larger NUMA node, which another pod needs, and could be elsewhere."""
    events = [came("b", 3, 0.0, 1.0)]
    events += [came(f"s{number}", 1, 0.5, group=group, size=2) for number in range(2)]
    events += [came("large", 4, 2.0)]
    report = Simulation(cluster_of(1), rebalance=1.0).run(events)
    assert report.waiting is not None
    assert (report.waiting.evictions > 0) == bool(evictions)
    assert report.waiting.pods == (0 if evictions else 1)


def test_few_groups_are_told_at_length():
    events = [
        event for number in range(25) for event in group_of(f"g{number}", [4, 4, 4], float(number))
    ]
    report = Simulation(cluster_of(1)).run(events)
    assert report.groups is not None
    reasons = [outcome.reason for outcome in report.groups.not_whole]
    assert len(reasons) == 25
    assert sum("lacks one" in reason for reason in reasons) == 20
    assert reasons[-1] == "1 of 3 members fit"


def fits(node, pod):
    totals = Totals([node])
    return bool(totals.fits(totals.request(pod))[0]) and node.try_admit(pod).admitted


def replicas(cluster, pod, ended):
    """Return for how many such pods there is room once some have ended, node by node."""
    count = 0
    for node in cluster.nodes:
        copy = node.copy()
        for uid in ended & {present.uid for present in copy.pods}:
            copy.remove(uid)

        number = 0
        while fits(copy, replica := pod.renamed(uid=f"{pod.uid}/{number}")):
            copy.admit(replica)
            number += 1
        count += number

    return count


def drawn_events(random):
    """Return pods and groups of equal members that come and end; each comes at one moment."""
    time = 0.0
    events = []
    for number in range(14):
        time += random.expovariate(1.0)
        members = random.randint(1, 6)
        events += group_of(
            f"g{number}",
            [random.randint(1, 4)] * members,
            time,
            random.expovariate(0.3),
            size=members,
        )

    return [
        Arrival(event.time, event.pod, event.duration) if event.membership.size == 1 else event
        for event in events
    ]


def test_all_or_none_beside_a_plain_model():
    """A group of equal members runs exactly if, node by node, there is room for as many replicas.

    The nodes that the simulation has chosen for others are the model's, too.
    """
    whole = none = 0
    for seed in range(12):
        random = Random(seed)
        cluster = cluster_of(random.randint(2, 4))
        simulation = Simulation(cluster)
        events = drawn_events(random)
        ends = {}
        has_come = {}
        steps = simulation.steps(events)
        for event in events:
            size = 1 if event.membership is None else event.membership.size
            name = event.pod.name.partition("-")[0]
            has_come[name] = has_come.get(name, 0) + 1
            ended = {uid for uid, end in ends.items() if end <= event.time}
            is_placed = has_come[name] == size and replicas(cluster, event.pod, ended) >= size

            before = running(cluster)
            next(steps)
            new = running(cluster) - before
            assert new == ({f"{name}-{number}" for number in range(size)} if is_placed else set())
            ends |= {f"uid-{member}": event.time + event.duration for member in new}
            whole += is_placed and size > 1
            none += has_come[name] == size > 1 and not is_placed

        report = simulation.report
        outcomes = [report.placed, report.left_out, report.no_room, report.no_alignment]
        assert sum(outcomes) == report.arrivals == len(events)

    assert whole > 20
    assert none > 20
