"""The members of a group are placed together, on as few nodes as can be."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alignup.cluster import Cluster
from alignup.cluster.cluster import NodeAmounts, row_of_amounts
from alignup.cluster.node_totals import Totals
from alignup.cluster.pod_groups import GroupPlan, Place, TotalRoom, place_group
from alignup.cluster.ranking import replicas_that_fit
from alignup.errors import InputError
from alignup.kubernetes.manifest import read_pod
from alignup.node import Node
from alignup.records import replace
from inputs.machines import machine_of

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def node(policy="single-numa-node", numa_nodes=2, cores=4, **kubelet):
    return Node.from_dict(
        {
            "machine": machine_of(numa_nodes, cores),
            "kubelet": {
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0",
                "topologyManagerPolicy": policy,
                **kubelet,
            },
        }
    )


def pod(name, cpus):
    amounts = {"cpu": str(cpus), "memory": "1Mi"}
    container = {"name": "c", "resources": {"limits": amounts}}
    return read_pod({"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}})


def members(*cpus):
    return [pod(f"m{number}", amount) for number, amount in enumerate(cpus)]


def with_policy(member):
    """Return a pod that brings a policy of its own."""
    key = "scheduling.koordinator.sh/numa-topology-spec"
    return replace(member, annotations={key: '{"numaTopologyPolicy": "Restricted"}'})


def cluster_of(*nodes):
    return Cluster.from_nodes({f"n{number}": node for number, node in enumerate(nodes)})


def test_a_member_whose_policy_no_node_can_have_is_left_out():
    """A kubelet has no policy for more than eight NUMA nodes."""
    first, second = members(2, 1)
    cluster = cluster_of(node("none", numa_nodes=9, cores=1))
    plan = place_group(cluster, [first, with_policy(second)])
    assert [place.pod.name for place in plan.places] == [first.name]
    assert [pod.name for pod in plan.left_out] == [second.name]


def is_carried_out(cluster, plan) -> bool:
    """Return whether kubelets would admit the members in the order of a plan."""
    copies = {
        name: member.copy() for name, member in zip(cluster.names, cluster.nodes, strict=True)
    }
    return all(copies[place.node].admit(place.pod).admitted for place in plan.places)


@st.composite
def clusters(draw, most_nodes=6):
    random = Random(draw(st.integers(0, 1 << 32)))
    nodes = []
    for number in range(draw(st.integers(1, most_nodes))):
        made = node(random.choice(POLICIES), random.choice((1, 2, 4)), random.choice((1, 2)))
        for other in range(random.randrange(4)):
            made.admit(pod(f"there-{number}-{other}", random.randint(1, 4)))
        nodes.append(made)
    return cluster_of(*nodes)


@given(clusters(), st.integers(1, 5), st.integers(1, 12))
@settings(max_examples=150)
def test_equal_members_come_to_as_few_nodes_as_can_be(cluster, cpus, count) -> None:
    plan = place_group(cluster, members(*[cpus] * count))
    capacities = replicas_that_fit(cluster.nodes, pod("one", cpus))

    assert len(plan.places) == min(count, sum(capacities))
    assert len(plan.places) + len(plan.left_out) == count
    assert is_carried_out(cluster, plan)
    if plan.left_out:
        return

    fewest = next(
        size
        for size in range(len(capacities) + 1)
        if any(sum(chosen) >= count for chosen in combinations(capacities, size))
    )
    assert len(plan.nodes) == fewest


@given(clusters(3), st.lists(st.integers(1, 6), min_size=1, max_size=5))
@settings(max_examples=100)
def test_members_that_differ_are_placed_where_the_plan_says(cluster, cpus) -> None:
    group = members(*cpus)
    plan = place_group(cluster, group)
    assert is_carried_out(cluster, plan)
    placed = [place.pod.uid for place in plan.places]
    assert sorted([*placed, *(pod.uid for pod in plan.left_out)]) == sorted(
        pod.uid for pod in group
    )


def test_members_that_differ_seldom_miss_a_place() -> None:
    """Beside every way to deal them out, in every order of their sizes."""
    random = Random(7)
    missed = possible = 0
    for _ in range(60):
        nodes = [node(random.choice(POLICIES), 2, 2) for _ in range(2)]
        cluster = cluster_of(*nodes)
        group = members(*[random.randint(1, 6) for _ in range(4)])
        ways = (
            GroupPlan(tuple(zip_places(group, dealt))) for dealt in product(cluster.names, repeat=4)
        )
        if any(is_carried_out(cluster, way) and sums_fit(cluster, way) for way in ways):
            possible += 1
            missed += bool(place_group(cluster, group).left_out)

    assert possible >= 20
    assert missed <= possible // 20


def zip_places(group, dealt):
    order = sorted(zip(group, dealt, strict=True), key=lambda pair: -pair[0].exclusive_cpus)
    return [Place(member, name) for member, name in order]


def sums_fit(cluster, plan):
    room = TotalRoom(Totals(cluster.nodes))
    for place in plan.places:
        index = cluster.index(place.node)
        if not room.most(place.pod)[index]:
            return False
        room.add(index, place.pod)
    return True


def test_the_smallest_node_that_takes_all_is_chosen() -> None:
    cluster = cluster_of(node(cores=8), node(cores=4), node(cores=16))
    assert place_group(cluster, members(3, 3)).nodes == ("n1",)
    assert place_group(cluster, members(*[3] * 4)).nodes == ("n1",)
    assert place_group(cluster, members(*[3] * 5)).nodes == ("n0",)
    assert place_group(cluster, members(*[3] * 11)).nodes == ("n2",)


def test_the_cluster_stays_as_it_is() -> None:
    cluster = cluster_of(node(), node())
    before = cluster.free("cpu").tolist()
    plan = place_group(cluster, members(3, 3, 3))
    assert len(plan.places) == 3
    assert cluster.free("cpu").tolist() == before
    assert all(not member.pods for member in cluster.nodes)


def test_a_refused_member_leaves_no_trace_on_the_node_that_others_get() -> None:
    description = {
        "machine": machine_of(2, 4),
        "kubelet": {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "topologyManagerPolicy": "single-numa-node",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
            "evictionHard": {"memory.available": "100Mi"},
        },
    }
    cluster = cluster_of(Node.from_dict(description))
    plan = place_group(cluster, members(3, 3, 3, 1))
    assert is_carried_out(cluster, plan)


def test_sums_count_pods_that_hold_nothing() -> None:
    full = node()
    for number in range(13):
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        full.admit(
            {
                "metadata": {"name": f"s{number}", "uid": f"s{number}"},
                "spec": {"containers": [container]},
            }
        )
    plan = place_group(cluster_of(full), members(3))
    assert [pod.name for pod in plan.left_out] == ["m0"]


def test_what_no_node_has_leaves_all_out() -> None:
    container = {"name": "c", "resources": {"limits": {"example.com/a": "1"}}}
    asking = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    plan = place_group(cluster_of(node()), [asking])
    assert plan.to_dict() == {"places": [], "leftOut": ["default/p"]}


def test_the_plan_as_plain_objects() -> None:
    plan = place_group(cluster_of(node()), members(3))
    assert plan.to_dict() == {
        "places": [{"pod": "default/m0", "node": "n0", "numaNodes": [0]}],
        "leftOut": [],
    }


def test_amounts_alone_place_nobody() -> None:
    row = row_of_amounts(NodeAmounts(2))
    with pytest.raises(InputError, match="amounts"):
        place_group(Cluster(["a"], [row]), members(1))


def test_a_node_takes_no_more_members_than_its_kubelet_runs_pods():
    plan = place_group(cluster_of(node(maxPods=2), node(maxPods=3)), members(1, 1, 1, 1, 1))
    assert sorted(place.node for place in plan.places) == ["n0", "n0", "n1", "n1", "n1"]
    assert not plan.left_out
    plan = place_group(cluster_of(node(maxPods=1)), members(1, 1))
    assert len(plan.left_out) == 1
