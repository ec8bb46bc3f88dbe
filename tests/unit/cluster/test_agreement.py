"""What a cluster of nodes answers must be what its nodes would answer themselves.

For every node, option and pod.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
import pytest

from alignup import read_pod
from alignup.cluster import REASONS, STRATEGIES, Cluster
from alignup.errors import ConfigError
from alignup.node import Node
from inputs.cluster_nodes import GIBI, RESOURCES, node_of, pod_of
from inputs.strategies import seeds

KINDS = 100
"""Node states of one seed; each is asked about every pod of that seed."""

PODS = 50
SEEDS = range(1)
MORE_SEEDS = range(1, 24)

ALIKE = 6
"""So many nodes of each state; a judgement of one serves the others."""

FEW = 50
"""Of so few nodes none is remembered."""


def kinds_of(seed, count=KINDS):
    """Return nodes of all kinds, with pods on them, and what each was made from."""
    random = Random(seed)
    return [node_of(random) for _ in range(count)]


@pytest.fixture(scope="module")
def kinds():
    return kinds_of(20, 200)


def pod_for(random, kinds, uid="new"):
    """Return a pod that suits one of the nodes."""
    scenario, _ = random.choice(kinds)
    return read_pod(pod_of(random, uid, scenario["machine"], scenario["devices"]))


def own_answer(node, pod):
    """Return what the node itself answers.

    Verdict, reason, all affinities together, and whether all are preferred.
    """
    try:
        admission = node.try_admit(pod)
    except ConfigError:  # the pod's own policy does not go with so many NUMA nodes
        return False, "UnschedulableAndUnresolvable", 0, False
    hints = [got.affinity for got in admission.containers.values() if got.affinity is not None]

    affinity = 0
    for hint in hints:
        affinity |= int(hint.affinity or 0)

    preferred = bool(hints) and all(hint.preferred for hint in hints)
    return admission.admitted, admission.reason, affinity, preferred


def answer_at(answer, index):
    """Return the same from a cluster's answer."""
    return (
        bool(answer.admitted[index]),
        REASONS[answer.reason[index]],
        int(answer.affinity[index]),
        bool(answer.preferred[index]),
    )


def assert_agreement(cluster, pod, strategy="least-numa-nodes"):
    """Compare a cluster's answer with every node's; return how many pods were admitted."""
    answer = cluster.evaluate(pod, strategy, exact=True)
    assert answer.exact.all()
    for index, node in enumerate(cluster.nodes):
        assert answer_at(answer, index) == own_answer(node, pod), f"node {index}"
    return int(answer.admitted.sum())


def agree_on_many(seed):
    """Compare `KINDS` nodes on `PODS` pods."""
    kinds, random = kinds_of(seed), Random(1000 + seed)
    cluster = Cluster.from_nodes([node for _, node in kinds])
    admitted = 0
    for number in range(PODS):
        admitted += assert_agreement(
            cluster, pod_for(random, kinds), STRATEGIES[number % len(STRATEGIES)]
        )
    assert KINDS * PODS // 10 < admitted < KINDS * PODS  # neither verdict is rare


@pytest.mark.parametrize("seed", SEEDS)
def test_evaluate_agrees_with_every_node(seed):
    """10,000 pairs of a node and a pod.

    Verdict, reason, affinity and preferred are the node's own, none unsure.
    """
    agree_on_many(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_evaluate_agrees_with_every_node_again(seed):
    """110,000 more."""
    agree_on_many(seed)


def test_amounts_decide_where_they_can(kinds):
    """Nodes are asked only where something else than amounts decides.

    For less than one answer in ten.

    A pod that brings a policy of its own is judged by every node that has pods: these know who
    holds which NUMA node.
    """
    random = Random(9)
    plain = [
        (scenario, node)
        for scenario, node in kinds
        if len(node.machine.numa_nodes) <= 8 and not scenario["preferredSets"]
    ]
    cluster = Cluster.from_nodes([node for _, node in plain])
    with patch.object(Node, "try_admit", autospec=True, side_effect=Node.try_admit) as try_admit:
        for _ in range(40):
            cluster.evaluate(replace(pod_for(random, plain), annotations={}))

    assert try_admit.call_count < 40 * len(plain) * 0.1


def test_threads_change_nothing(kinds, monkeypatch):
    """The answer is the same, whoever computes it."""
    monkeypatch.setattr("alignup.cluster.cluster._WORTH_A_THREAD", 0)
    random = Random(3)
    cluster = Cluster.from_nodes([node for _, node in kinds])
    for number in range(10):
        pod, strategy = pod_for(random, kinds), STRATEGIES[number % len(STRATEGIES)]
        alone, shared = cluster.evaluate(pod, strategy), cluster.evaluate(pod, strategy, threads=4)
        for name in ("admitted", "reason", "affinity", "preferred", "score", "exact"):
            assert (getattr(alone, name) == getattr(shared, name)).all(), name


def test_evaluating_changes_no_node(kinds):
    """Whatever was asked, and of whom: what each node would do next is the same."""
    random = Random(31)
    chosen = random.sample(kinds, 60)
    cluster = Cluster.from_nodes([node for _, node in chosen])
    probe = pod_for(random, chosen, "probe")
    before = [own_answer(node, probe) for node in cluster.nodes]
    score = cluster.evaluate(probe).score.tolist()
    for strategy in STRATEGIES:
        cluster.evaluate(pod_for(random, chosen), strategy)
    assert [own_answer(node, probe) for node in cluster.nodes] == before
    assert cluster.evaluate(probe).score.tolist() == score


def test_an_answer_follows_the_pods_that_come_and_go():
    """A node that took a pod is judged as it is now, and after its removal as it was.

    The cluster is not told.
    """
    random = Random(5)
    admitted_pods = 0
    for scenario, node in kinds_of(21, 60):
        cluster = Cluster.from_nodes([node])
        first, second = (pod_for(random, [(scenario, node)], uid) for uid in ("first", "second"))
        before = cluster.evaluate(second)
        if not cluster.evaluate(first).admitted[0]:
            continue
        admitted_pods += 1
        assert node.admit(first).admitted
        assert_agreement(cluster, second)
        node.remove("first")
        after = cluster.evaluate(second)
        assert after.score.tolist() == before.score.tolist()
        assert answer_at(after, 0) == answer_at(before, 0)

    assert admitted_pods > 20


def test_what_does_not_fit_one_numa_node(kinds):
    """Pods of one container that several NUMA nodes must share.

    On machines of 4 to 8, busy ones too.
    """
    random = Random(11)
    shared = [
        node
        for _, node in kinds
        if 4 <= len(node.machine.numa_nodes) <= 8
        and node.manager.policy.name in {"best-effort", "restricted"}
    ][:60]
    cluster = Cluster.from_nodes(shared)
    several = 0
    for _ in range(60):
        cpus, gibi, devices = random.randint(1, 40), random.randint(1, 60), random.randint(0, 6)
        limits = {"cpu": str(cpus), "memory": f"{gibi}Gi", random.choice(RESOURCES): str(devices)}
        pod = read_pod(
            {
                "metadata": {"name": "new", "uid": "new"},
                "spec": {
                    "containers": [{"name": "c0", "image": "i", "resources": {"limits": limits}}]
                },
            }
        )
        assert_agreement(cluster, pod)
        several += sum(int(mask).bit_count() > 1 for mask in cluster.evaluate(pod).affinity)

    assert several > 300


def alike_containers(random, resource):
    """Return a pod of a few kinds of containers, in runs or mixed.

    Some kinds need several NUMA nodes.
    """
    containers = []
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        limits = {
            "cpu": str(random.choice([1, 1, 2, 2, 4, 9])),
            "memory": f"{random.choice([128, 512, 1500])}Mi",
        }
        if random.random() < 0.5:
            limits[resource] = str(random.choice([1, 1, 2, 4]))
        if random.random() < 0.1:
            limits["hugepages-2Mi"] = "64Mi"
        if random.random() < 0.2:
            limits = {
                name: amount
                for name, amount in limits.items()
                if name in {"memory", "hugepages-2Mi"}
            }

        containers += [limits] * random.choice([1, 2, 4, 8, 16])

    if random.random() < 0.5:
        random.shuffle(containers)

    return read_pod(
        {
            "metadata": {"name": "new", "uid": "new"},
            "spec": {
                "containers": [
                    {"name": f"c{number}", "image": "i", "resources": {"limits": limits}}
                    for number, limits in enumerate(containers)
                ]
            },
        }
    )


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_containers_that_are_alike(seed):
    """What is decided for one is decided for the next, while it holds.

    The node decides each one anew.
    """
    random = Random(seed)
    cluster = Cluster.from_nodes([node for _, node in kinds_of(30 + seed, 80)])
    admitted = 0
    for _ in range(40):
        admitted += assert_agreement(cluster, alike_containers(random, random.choice(RESOURCES)))
    assert 80 * 40 // 20 < admitted < 80 * 40


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
@pytest.mark.parametrize("wish", [1, 2, 3])
def test_devices_near_to_several_of_ten_numa_nodes(policy, wish):
    """A single node that has enough is preferred on a wide machine too.

    Wherever the other devices are.
    """
    nodes = [{"id": i, "memory": GIBI, "cores": [{"cpus": [i], "socket": 0}]} for i in range(10)]
    inventory = {
        RESOURCES[0]: [
            {"id": f"d{n}", "numa": near} for n, near in enumerate(([0], [1, 9], [2], [2, 3]))
        ]
    }
    kubelet = {
        "topologyManagerPolicy": policy,
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
    }
    node = Node.from_dict(
        {"machine": {"numaNodes": nodes}, "kubelet": kubelet, "devices": inventory}
    )
    containers = [{"name": "c0", "image": "i", "resources": {"limits": {RESOURCES[0]: str(wish)}}}]
    pod = read_pod({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": containers}})
    admitted = assert_agreement(Cluster.from_nodes([node]), pod)

    assert admitted == (wish < 3 or policy != "single-numa-node")


def test_cores_of_several_sizes_give_more_than_is_free():
    """A core that is taken as a whole can have a reserved CPU, as in the kubelet.

    What is free in all is no bound.
    """
    _, node = kinds_of(12, 3)[2]
    wishes = [("2", "2Gi"), ("6", "5Gi"), ("10", "5Gi"), ("8", "256Mi")]
    containers = [
        {
            "name": f"c{number}",
            "image": "i",
            "resources": {"limits": {"cpu": cpus, "memory": memory}},
        }
        for number, (cpus, memory) in enumerate(wishes)
    ]
    pod = read_pod({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": containers}})
    assert len(node.cpu.free_cpus) < pod.exclusive_cpus
    assert node.try_admit(pod).admitted

    assert_agreement(Cluster.from_nodes([node]), pod)


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_containers_that_are_alike_fill_one_numa_node_after_the_other(policy):
    """Down to the last container, and one more.

    The reason is the policy's, or that of the manager that ran out.
    """
    nodes = [
        {
            "id": i,
            "memory": 4 * GIBI,
            "cores": [{"cpus": [4 * i + cpu], "socket": 0} for cpu in range(4)],
        }
        for i in range(4)
    ]
    kubelet = {
        "topologyManagerPolicy": policy,
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
    }
    cluster = Cluster.from_nodes(
        [Node.from_dict({"machine": {"numaNodes": nodes}, "kubelet": kubelet})]
    )
    verdicts = set()
    for limits in (
        {"memory": "1Gi"},
        {"cpu": "1", "memory": "1Gi"},
        {"cpu": "2", "memory": "512Mi"},
    ):
        for count in range(1, 20):
            container = {"image": "i", "resources": {"limits": limits}}
            containers = [{**container, "name": f"c{number}"} for number in range(count)]
            manifest = {
                "metadata": {"name": "new", "uid": "new"},
                "spec": {"containers": containers},
            }
            assert_agreement(cluster, read_pod(manifest))
            verdicts.add(REASONS[cluster.evaluate(manifest).reason[0]])

    assert "" in verdicts
    assert len(verdicts) > 1


@pytest.mark.parametrize(
    ("places", "policy", "wishes"),
    [
        pytest.param(
            [[0], [0, 1], [1], [0]], "best-effort", (2, 2), id="near two nodes between those of one"
        ),
        pytest.param([[1], [0, 1], [1]], "restricted", (2, 1), id="near two nodes second"),
    ],
)
def test_devices_that_are_mixed_in_the_inventory_are_taken_in_its_order(places, policy, wishes):
    """Amounts do not tell which of them are left for the second container.

    Unless somebody keeps the order.
    """
    name = "example.com/gpu"
    nodes = [{"id": i, "memory": GIBI, "cores": [{"cpus": [i], "socket": 0}]} for i in range(2)]
    inventory = {name: [{"id": f"d{index}", "numa": near} for index, near in enumerate(places)]}
    node = Node.from_dict(
        {
            "machine": {"numaNodes": nodes},
            "kubelet": {"topologyManagerPolicy": policy},
            "devices": inventory,
        }
    )

    containers = [
        {"name": f"c{index}", "resources": {"limits": {name: str(count)}}}
        for index, count in enumerate(wishes)
    ]
    pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": containers}})
    cluster = Cluster.from_nodes([node])
    assert_agreement(cluster, pod)


def crowded(random):
    """Return a small node, and a pod for it.

    Its containers are for one NUMA node, then one for several, then more for one.
    """
    count = random.choice([2, 2, 3, 4])
    cpus = random.choice([4, 6, 8])
    threads = random.choice([1, 2])
    nodes = [
        {
            "id": i,
            "memory": 4 * GIBI,
            "cores": [
                {"cpus": [cpus * i + cpu + thread for thread in range(threads)], "socket": 0}
                for cpu in range(0, cpus, threads)
            ],
        }
        for i in range(count)
    ]
    near = [*range(count), *random.choices(range(count), k=random.randint(count, 3 * count))]
    kubelet = {
        "topologyManagerPolicy": random.choice(
            ["none", "best-effort", "restricted", "restricted", "restricted"]
        ),
        "cpuManagerPolicy": random.choice(["none", "static", "static", "static"]),
        "reservedSystemCPUs": "0",
    }
    if random.random() < 0.5:
        kubelet["memoryManagerPolicy"] = "Static"
        kubelet["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "512Mi"}}]

    node = Node.from_dict(
        {
            "machine": {"numaNodes": nodes},
            "kubelet": kubelet,
            "devices": {
                RESOURCES[0]: [{"id": f"d{number}", "numa": [at]} for number, at in enumerate(near)]
            },
        },
        kubelet_version=random.choice(["1.31", None]),
    )
    largest = max(map(near.count, range(count)))
    few = [
        {
            "cpu": str(random.choice([1, 1, 2, 3, cpus - 1])),
            "memory": random.choice(["64Mi", "1Gi"]),
            RESOURCES[0]: str(random.choice([0, 1, 1, 2])),
        }
        for _ in range(2)
    ]
    many = {
        "cpu": random.choice(["100m", str(cpus + 1), str(cpus + 2)]),
        "memory": random.choice(["64Mi", "5Gi"]),
        RESOURCES[0]: str(min(largest + random.randint(0, 1), len(near) - 1)),
    }
    wishes = [
        *random.choices(few, k=random.randint(1, 3)),
        many,
        *random.choices([*few, many], k=random.randint(1, 3)),
    ]
    containers = [
        {"name": f"c{number}", "image": "i", "resources": {"limits": limits, "requests": limits}}
        for number, limits in enumerate(wishes)
    ]
    initial = random.choice([0, 0, 0, 0, 1, 2])
    spec = {"initContainers": containers[:initial], "containers": containers[initial:]}
    return node, read_pod({"metadata": {"name": "p", "uid": "p"}, "spec": spec})


@pytest.mark.parametrize("seed", seeds(1, 80))
def test_what_was_counted_is_settled_once_a_container_needs_more(seed):
    """Which CPUs and devices the first containers took tells where the others lie.

    They are left for later containers.
    """
    random = Random(seed)
    admitted = 0
    cases = 500
    for _ in range(cases):
        node, pod = crowded(random)
        admitted += assert_agreement(Cluster.from_nodes([node]), pod)
    assert cases // 20 < admitted < cases // 2


@pytest.mark.parametrize("seed", seeds(1, 10))
def test_nodes_that_are_alike_are_answered_as_each_by_itself(kinds, seed):
    """Copies of nodes, some of which have changed since.

    Beside the same nodes judged a few at a time.
    """
    random = Random(seed)
    nodes = [node.copy() for _, node in kinds for _ in range(ALIKE)]
    random.shuffle(nodes)
    whole = Cluster.from_nodes(nodes)
    parts = [Cluster.from_nodes(nodes[start : start + FEW]) for start in range(0, len(nodes), FEW)]
    for number in range(3 * len(STRATEGIES)):
        pod = pod_for(random, kinds, f"new-{number}")
        strategy = STRATEGIES[number % len(STRATEGIES)]
        if number % 4:  # with a policy of its own, nodes that hold pods would be asked themselves
            pod = replace(pod, annotations={})
        at_once = whole.evaluate(pod, strategy)
        by_parts = [part.evaluate(pod, strategy) for part in parts]
        for name in ("admitted", "reason", "affinity", "preferred", "score", "exact"):
            values = np.concatenate([getattr(part, name) for part in by_parts])
            assert getattr(at_once, name).tolist() == values.tolist(), name

        for node in random.sample(nodes, 200):  # alike until now
            uid = random.choice(node.pods).uid if node.pods else None
            if uid is None or random.random() < 0.5:
                with suppress(ConfigError):
                    node.admit(pod)
            elif node.manager.has_pod(uid):
                node.remove(uid)


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_a_state_is_one_for_every_pod_until_its_node_changes(seed):
    """Nodes that are alike to one pod, and not to the next one, which asks for other devices."""
    random = Random(seed)
    machine = {
        "numaNodes": [
            {
                "id": i,
                "memory": GIBI,
                "cores": [{"cpus": [4 * i + cpu], "socket": 0} for cpu in range(4)],
            }
            for i in range(2)
        ]
    }
    inventory = {
        name: [{"id": f"{name}-{n}", "numa": [n % 2]} for n in range(4)] for name in RESOURCES[:2]
    }
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    empty = Node.from_dict({"machine": machine, "kubelet": kubelet, "devices": inventory})
    nodes = [empty.copy() for _ in range(200)]
    whole = Cluster.from_nodes(nodes)
    uids = [[] for _ in nodes]
    admitted = 0
    verdicts = 0
    for number in range(40):
        limits = {"cpu": str(random.choice([1, 2, 3])), "memory": "64Mi"}
        for name in random.sample(RESOURCES[:2], random.choice([0, 1, 1, 1, 2])):
            limits[name] = str(random.choice([1, 2, 3]))
        containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
        pod = read_pod(
            {"metadata": {"name": "p", "uid": f"p{number}"}, "spec": {"containers": containers}}
        )
        for _ in range(random.choice([1, 2])):
            answer = whole.evaluate(pod, threads=random.choice([1, 2]))
            few = [
                Cluster.from_nodes(nodes[start : start + FEW]).evaluate(pod)
                for start in range(0, len(nodes), FEW)
            ]
            for name in ("admitted", "reason", "affinity", "preferred", "score"):
                values = np.concatenate([getattr(part, name) for part in few])
                assert getattr(answer, name).tolist() == values.tolist(), name

            admitted += int(answer.admitted.sum())
            verdicts += len(nodes)

        for index in random.sample(range(len(nodes)), random.choice([0, 5, 60])):
            if uids[index] and random.random() < 0.5:
                nodes[index].remove(uids[index].pop())
            elif nodes[index].admit(pod):
                uids[index].append(pod.uid)

        for _ in range(random.choice([0, 5])):
            index, source = random.sample(range(len(nodes)), 2)
            nodes[index] = nodes[source].copy()
            uids[index] = uids[source].copy()
            whole.update(whole.names[index], nodes[index])

    assert verdicts // 10 < admitted < verdicts


def test_nodes_that_all_differ_are_judged_one_by_one(kinds):
    """After some hundreds of nodes that are like no other, no more are compared."""
    scenario = next(scenario for scenario, node in kinds if node.memory is not None)
    nodes = []
    for number in range(1200):
        *others, last = scenario["machine"]["numaNodes"]
        last = {**last, "memory": last["memory"] + (number << 12)}
        machine = {**scenario["machine"], "numaNodes": [*others, last]}
        nodes.append(Node.from_dict({**scenario, "machine": machine}))

    nodes += [nodes[0].copy(), nodes[-1].copy()]
    whole = Cluster.from_nodes(nodes)
    random = Random(1)
    for _ in range(10):
        pod = pod_for(random, kinds)
        answer = whole.evaluate(pod, "balanced-allocation")
        for index in (0, 1, 511, 512, 513, 1199, 1200, 1201):
            alone = Cluster.from_nodes([nodes[index]]).evaluate(pod, "balanced-allocation")
            assert answer_at(answer, index) == answer_at(alone, 0)
            assert answer.score[index] == alone.score[0]
