"""Traces, what a blind scheduler sees, and what comes of a simulation."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest

from alignup import read_pod
from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.cluster.node_totals import Totals
from alignup.cluster.simulation import Candidates, Meter, Simulation, Waiting
from alignup.cluster.traces import Arrival, Removal, synthetic_trace
from alignup.errors import InputError
from alignup.node import Node
from inputs.cluster_files import TOPOLOGY, node_line, pod_manifest
from inputs.machines import machine_of
from inputs.strategies import seeds
from inputs.watched_objects import description, watched

GIBI = 1 << 30


def cluster_of(count=2, **more):
    return Cluster.from_json_lines([node_line(f"n{index}", **more) for index in range(count)])


def arrival(uid, time=0.0, duration=None, **more):
    return Arrival(time, read_pod(pod_manifest(uid, **more)), duration)


def test_a_pod_leaves_when_its_time_is_over():
    """Utilisation is weighted with time."""
    cluster = cluster_of(1)
    events = [arrival("a", 0, 10, cpus=6), Removal(20, "a")]
    report = Simulation(cluster).run(events)
    assert report.placed == 1
    assert report.utilisation["cpu"] == pytest.approx(6 / 15 / 2)
    assert report.peak["cpu"] == pytest.approx(6 / 15)
    assert cluster.nodes[0].pods == ()


def test_pods_that_stay_and_pods_that_were_there():
    """Without durations pods stay until they are removed, whenever they came."""
    cluster = cluster_of(1, pods=[pod_manifest("old", cpus=7)])
    simulation = Simulation(cluster)
    report = simulation.run([Removal(0, "old"), arrival("a", 1, cpus=7), arrival("b", 2, cpus=8)])
    assert (report.placed, report.no_room) == (2, 0)
    assert {pod.uid for pod in cluster.nodes[0].pods} == {"a", "b"}
    again = simulation.run([Removal(3, "a"), arrival("c", 4, cpus=8)])
    assert (again.arrivals, again.placed) == (1, 0)


class Nothing:
    """A provider of a user, for whom a node is asked itself."""

    def topology_hints(self, _pod, _container):
        return None

    def pod_topology_hints(self, _pod):
        return None

    def allocate(self, pod, container, affinity):
        pass

    def release(self, pod_uid, container_name):
        pass

    def copy(self):
        return Nothing()


def test_nodes_that_are_asked_themselves_may_have_the_pod_that_asked_first():
    """Pods that ask for the same share one question.

    Its pod may be there when a node is asked again.
    """
    cluster = cluster_of(2)
    for name, node in zip(cluster.names, cluster.nodes, strict=True):
        node.manager.add_provider(Nothing())
        cluster.update(name, node)
    events = [arrival(f"p{number}", number, cpus=2) for number in range(6)]
    assert Simulation(cluster).run(events).placed == 6


def test_why_a_pod_has_no_place():
    """No node has as much in total, or none can align it.

    A blind scheduler learns the latter from the node.
    """
    events = [arrival("a", cpus=16), arrival("b", cpus=10)]
    seeing = Simulation(cluster_of(2)).run(events)
    assert (seeing.no_room, seeing.no_alignment, seeing.refused) == (1, 1, 0)
    # no room, nothing stranded; then all of it
    assert seeing.stranded["cpu"] == pytest.approx(1 / 2)
    blind = Simulation(cluster_of(2), blind=True, attempts=3).run(events)
    assert (blind.no_room, blind.no_alignment, blind.refused) == (1, 0, 1)
    assert blind.refusals == {"TopologyAffinityError": 2}
    once = Simulation(cluster_of(2), blind=True).run(events)
    assert (once.no_alignment, once.refused, once.refusals) == (0, 1, {"TopologyAffinityError": 1})


@pytest.mark.parametrize(("blind", "outcome"), [(False, (0, 1, 0)), (True, (0, 0, 1))])
def test_a_node_that_cannot_have_the_policy_of_a_pod_refuses_it(blind, outcome):
    """No policy is for more than eight NUMA nodes."""
    nodes = [Node(machine_of(9, 1), {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})]
    manifest = pod_manifest("p", cpus=1)
    policy = '{"numaTopologyPolicy": "BestEffort"}'
    manifest["metadata"]["annotations"] = {"scheduling.koordinator.sh/numa-topology-spec": policy}
    simulation = Simulation(Cluster.from_nodes(nodes), blind=blind)
    report = simulation.run([Arrival(0.0, read_pod(manifest))])
    assert (report.placed, report.no_alignment, report.refused) == outcome
    assert dict(report.causes) == {
        ("UnschedulableAndUnresolvable", "the pod's policy is not the node's"): 1
    }


def test_a_scheduler_that_sees_topology_is_refused_less():
    """The same pods; the blind scheduler is refused, the other never where answers are exact."""
    events = synthetic_trace(cluster_of(8), 600, seed=3)
    seeing = Simulation(cluster_of(8), seed=1).run(events)
    blind = Simulation(cluster_of(8), seed=1, blind=True).run(events)
    assert seeing.refused == 0
    assert blind.refused > 0
    assert seeing.placed > blind.placed
    assert seeing.to_dict() == Simulation(cluster_of(8), seed=1).run(events).to_dict()


def test_answers_kept_are_forgotten_together(monkeypatch):
    """More different pods than answers are kept for change nothing."""
    events = [arrival(f"p{index}", index, 2, cpus=1 + index % 5) for index in range(40)]
    plain = Simulation(cluster_of(3)).run(events)
    monkeypatch.setattr("alignup.cluster.simulation._DEMANDS_KEPT", 2)
    assert Simulation(cluster_of(3)).run(events) == plain


@pytest.mark.parametrize(
    ("events", "message"),
    [([Removal(0, "x")], "a pod that has come"), ([arrival("a"), arrival("a")], "not there yet")],
)
def test_a_trace_that_makes_no_sense(events, message):
    with pytest.raises(InputError, match=message):
        Simulation(cluster_of(1)).run(events)


def test_removing_a_pod_that_found_no_place():
    """There is nothing to take away."""
    report = Simulation(cluster_of(1)).run([arrival("a", cpus=16), Removal(1, "a")])
    assert report.no_room == 1


def test_what_a_simulation_needs():
    amounts = read_node_resource_topologies(TOPOLOGY.encode())
    with pytest.raises(InputError, match="amounts only: make it from nodes"):
        Simulation(amounts)
    with pytest.raises(InputError, match="at least one attempt"):
        Simulation(cluster_of(1), attempts=0)
    with pytest.raises(InputError, match="totals only, got 'document'"):
        Simulation(cluster_of(1), "document", blind=True)


def narrow(count=2):
    """Return nodes of two NUMA nodes of 3 and 4 CPUs.

    A container gets CPUs of one NUMA node only.
    """
    return Cluster.from_nodes(
        {f"n{number}": Node.from_dict(description()) for number in range(count)}
    )


def of_cpus(uid, cpu, time, duration=None):
    return Arrival(time, watched(uid, cpu=cpu).pod, duration)


def test_pods_wait_for_room_in_the_order_in_which_they_came():
    """Each NUMA node has room for two CPUs more, so a pod of three waits for the end of one."""
    events = [of_cpus(f"p{number}", 2, 0.0, 100.0 + number) for number in range(2)]
    events += [
        of_cpus("first", 3, 10.0),
        of_cpus("second", 3, 20.0),
        of_cpus("gone", 3, 30.0),
        of_cpus("huge", 40, 40.0),
    ]
    events += [Removal(60.0, "uid-gone"), of_cpus("late", 1, 200.0)]
    simulation = Simulation(narrow(1), waits=True)
    report = simulation.run(events)

    assert {pod.uid for node in simulation.cluster.nodes for pod in node.pods} == {
        "uid-first",
        "uid-second",
        "uid-late",
    }
    assert (report.placed, report.no_alignment, report.no_room) == (5, 1, 1)
    assert report.waiting == Waiting(mean=(90 + 81 + 30) / 7, longest=90.0, pods=0, evictions=0)


def test_room_is_made_for_pods_that_wait_because_of_alignment():
    """Of two nodes each has 1 and 2 CPUs left: one pod of two CPUs has to move for one of three."""

    def full():
        cluster = narrow()
        for number, node in enumerate(cluster.nodes * 2):
            node.admit(watched(f"p{number}", cpu=2).pod)
        return cluster

    events = [of_cpus("waits", 3, 10.0, 5.0), of_cpus("last", 1, 40.0)]
    simulation = Simulation(full(), rebalance=30.0)
    report = simulation.run(events)
    assert (report.placed, report.waiting) == (2, Waiting(0.0, 0.0, 0, 1))
    placed = [pod.name for node in simulation.cluster.nodes for pod in node.pods]
    assert sorted(placed) == ["last", "p0", "p1", "p2", "p3"]
    without = Simulation(full(), waits=True).run(events)
    assert (without.placed, without.waiting) == (1, Waiting(15.0, 30.0, 1, 0))


@pytest.mark.parametrize(("seconds", "waited"), [(0.0, 0.0), (5.0, 0.0), (6.0, 25.0), (30.0, 25.0)])
def test_room_is_made_no_more_often_than_was_asked_for(seconds, waited):
    """The second pod comes 5 s after the first, and what comes 25 s later looks again."""
    cluster = narrow(4)
    for number, node in enumerate(cluster.nodes * 2):
        node.admit(watched(f"p{number}", cpu=2).pod)
    events = [of_cpus("first", 3, 10.0), of_cpus("second", 3, 15.0), of_cpus("last", 1, 40.0)]
    report = Simulation(cluster, rebalance=seconds).run(events)
    assert report.placed == 3
    assert report.waiting == Waiting(mean=waited / 3, longest=waited, pods=0, evictions=2)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_rebalancing_loses_no_pod(seed):
    """Whatever moves.

    Who came and has not ended is on exactly one node, or waits, or no node takes it.
    """
    lines = [node_line(f"n{index}") for index in range(3)]
    lines[seed % 3] = node_line(f"n{seed % 3}", devices={})
    simulation = Simulation(Cluster.from_json_lines(lines), rebalance=200.0, seed=seed)
    # more than three nodes hold
    report = simulation.run(synthetic_trace(cluster_of(5), 60, seed))
    placed_uids = [pod.uid for node in simulation.cluster.nodes for pod in node.pods]

    assert len(placed_uids) == len(set(placed_uids))
    assert report.placed + report.no_room + report.no_alignment + report.refused == report.arrivals
    assert report.waiting.pods <= report.no_room + report.no_alignment
    assert report.waiting.evictions >= 0
    assert report.waiting.mean <= report.waiting.longest
    assert max(report.peak.values()) <= 1


@pytest.fixture
def totals():
    return Totals(Cluster.from_json_lines([node_line(name) for name in "ab"]).nodes)


def request_of_cpus(totals, cpus):
    return np.array([1000 * cpus if name == "cpu" else 0 for name in totals.resources], np.int64)


def test_without_time_the_mean_is_what_is_used_now(totals):
    meter = Meter(totals)
    totals.add(0, request_of_cpus(totals, 3))
    meter.note()
    used = dict(zip(totals.resources, meter.mean.tolist(), strict=True))
    assert used["cpu"] == pytest.approx(
        3000 / totals.allocatable[:, totals.resources.index("cpu")].sum()
    )


def test_the_mean_is_weighted_with_time_and_the_peak_stays(totals):
    cpu = totals.resources.index("cpu")
    whole = totals.allocatable[:, cpu].sum()
    meter = Meter(totals)
    meter.advance(0)
    for now, cpus in ((1, 4), (3, -2), (7, -2)):
        meter.advance(now)
        totals.add(0, request_of_cpus(totals, cpus))
        meter.note()
    meter.advance(7)  # no time passes
    assert meter.mean[cpu] == pytest.approx((0 * 1 + 4000 * 2 + 2000 * 4) / 7 / whole)
    assert meter.peak[cpu] == pytest.approx(4000 / whole)


def test_what_is_free_where_a_pod_fits_and_is_refused_is_stranded(totals):
    meter = Meter(totals)
    assert meter.stranded.tolist() == [0] * len(totals.resources)
    meter.strand(np.array([True, True]), np.array([True, False]))
    meter.strand(np.array([True, True]), np.array([True, True]))
    assert meter.stranded.tolist() == pytest.approx([0.25] * len(totals.resources))


def test_what_is_stranded_is_a_part_of_what_is_free_by_amount_not_by_node(totals):
    """Nodes with little free count for little, and each moment for as much as any other."""
    cpu, used = totals.resources.index("cpu"), 3
    whole = int(totals.allocatable[0, cpu]) // 1000
    totals.add(0, request_of_cpus(totals, used))
    meter = Meter(totals)
    free = [whole - used, whole]
    meter.strand(np.array([True, True]), np.array([False, True]))  # the first is stranded
    meter.strand(np.array([True, False]), np.array([False, False]))  # where nothing fits nothing is
    meter.strand(np.array([True, True]), np.array([False, False]))
    parts = [free[0] / sum(free), free[0] / sum(free), 1]
    assert meter.stranded[cpu] == pytest.approx(sum(parts) / 3)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("strategy", ["least-allocated", "balanced-allocation"])
def test_kept_demands_follow_the_nodes(blind, strategy):
    """Pods come and go.

    After each step every demand that was asked for before is as a new one would be.
    """
    random = Random(f"{blind} {strategy}")
    cluster = Cluster.from_json_lines([node_line(str(n)) for n in range(6)])
    totals = Totals(cluster.nodes)
    kept = Candidates(cluster, totals, strategy, blind=blind)
    pods = [
        read_pod(pod_manifest("a", cpus=cpus, gpu=gpu)) for cpus in (1, 3, 7) for gpu in (0, 1, 2)
    ]
    placed = {}
    for number in range(60):
        index = random.randrange(len(cluster))
        if placed and random.random() < 0.4:
            uid, (index, request) = random.choice(list(placed.items()))
            del placed[uid]
            cluster.nodes[index].remove(uid)
            totals.remove(index, request)
        else:
            pod = read_pod(pod_manifest(f"p{number}", cpus=random.choice([1, 3, 7]), gpu=1))
            if cluster.nodes[index].admit(pod).admitted:
                placed[pod.uid] = (index, totals.request(pod))
                totals.add(*placed[pod.uid])

        kept.changed(index)
        pod = random.choice(pods)
        kept_demand = kept.of(pod)
        fresh = Candidates(cluster, totals, strategy, blind=blind)
        demand = fresh.of(pod)
        assert kept_demand.fits.tolist() == demand.fits.tolist()
        assert kept_demand.scores.tolist() == demand.scores.tolist()
        fits = np.flatnonzero(kept_demand.fits)
        assert kept.admitted(kept_demand)[fits].tolist() == fresh.admitted(demand)[fits].tolist()

    assert placed


def test_a_demand_of_what_no_node_has_fits_nowhere():
    cluster = Cluster.from_json_lines([node_line("a")])
    demand = Candidates(cluster, Totals(cluster.nodes), "least-numa-nodes", blind=False).of(
        read_pod(pod_manifest("strange", tpu=1))
    )
    assert demand.request is None
    assert demand.scores.tolist() == [-np.inf]


@pytest.mark.parametrize("blind", [False, True])
def test_a_pod_waits_while_a_node_runs_as_many_as_its_kubelet_takes(blind):
    line = {**json.loads(node_line("n0")), "kubelet": {"maxPods": 1}}
    simulation = Simulation(
        Cluster.from_json_lines([json.dumps(line)]),
        blind=blind,
        strategy="least-allocated" if blind else "least-numa-nodes",
    )
    report = simulation.run([arrival("a", 0, 10, cpus=1), arrival("b", 1, cpus=1)])
    assert (report.placed, report.no_room) == (1, 1)
