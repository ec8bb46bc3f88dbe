"""A cluster's answer from amounts must be that of its nodes."""

from __future__ import annotations

from random import Random

import pytest

from alignup.cluster import REASONS, STRATEGIES, Cluster
from alignup.errors import ConfigError
from alignup.kubernetes.pod import Pod
from alignup.node import Node
from cluster_cases import GIBI, RESOURCES, node_of, pod_of

CLUSTERS, NODES, KINDS = 200, 50, 600


@pytest.fixture(scope="module")
def kinds():
    """Nodes of all kinds, with pods on them; every cluster is a sample of them."""
    random = Random(20)
    return [node_of(random) for _ in range(KINDS)]


def answer_of(node, pod):
    """Admit the pod and remove it again: verdict, reason, all affinities together, whether all are preferred."""
    try:
        admission = node.admit(pod)
    except ConfigError:  # the pod's own policy does not go with so many NUMA nodes
        return False, "UnschedulableAndUnresolvable", 0, False
    hints = [got.affinity for got in admission.containers.values() if got.affinity is not None]
    affinity = 0
    for hint in hints:
        affinity |= 0 if hint.affinity is None else int(hint.affinity)
    if admission.admitted:
        node.remove(pod.uid)
    return (
        admission.admitted,
        admission.reason,
        affinity,
        bool(hints) and all(hint.preferred for hint in hints),
    )


def evaluated(answer, index):
    """Return the same from a cluster's answer."""
    return (
        bool(answer.admitted[index]),
        REASONS[answer.reason[index]],
        int(answer.affinity[index]),
        bool(answer.preferred[index]),
    )


def test_evaluate_agrees_with_every_node(kinds):
    """Verdict, reason, affinity and preferred are the node's own; where amounts cannot tell, the verdict is a yes."""
    random = Random(7)
    judged = bounds = wrong = several = bounds_of_one = 0
    for number in range(CLUSTERS):
        chosen = random.sample(kinds, NODES)
        cluster = Cluster.from_nodes([node for _, node in chosen])
        scenario = random.choice(chosen)[0]
        pod = Pod.from_manifest(pod_of(random, "new", scenario["machine"], scenario["devices"]))
        answer = cluster.evaluate(pod, STRATEGIES[number % len(STRATEGIES)])
        for index, (_, node) in enumerate(chosen):
            own = answer_of(node, pod)
            judged += 1
            several += len(pod.all_containers) > 1
            if answer.exact[index]:
                assert evaluated(answer, index) == own, (number, index)
                continue
            bounds += 1
            bounds_of_one += len(pod.all_containers) == 1
            wrong += not own[0]
            assert answer.admitted[index], "an upper bound admits"
    print(  # noqa: T201  # the figure is asked for
        f"{judged} answers, {several} for pods of several containers: {bounds} upper bounds "
        f"({bounds_of_one} for one container), {wrong} of which a node refused"
    )
    assert bounds < judged * 0.12
    assert bounds_of_one < (judged - several) * 0.05


def test_evaluate_exactly_asks_nodes_where_amounts_cannot_tell(kinds):
    """With `exact` nothing is an upper bound, and the nodes are as they were."""
    random = Random(9)
    asked = 0
    for _ in range(20):
        chosen = random.sample(kinds, NODES)
        cluster = Cluster.from_nodes([node for _, node in chosen])
        scenario = random.choice(chosen)[0]
        pod = Pod.from_manifest(pod_of(random, "new", scenario["machine"], scenario["devices"]))
        asked += int((~cluster.evaluate(pod).exact).sum())
        answer = cluster.evaluate(pod, exact=True)
        assert answer.exact.all()
        for index, (_, node) in enumerate(chosen):
            assert evaluated(answer, index) == answer_of(node, pod)
    assert asked


def test_threads_change_nothing(kinds):
    """The answer is the same, whoever computes it."""
    random = Random(3)
    cluster = Cluster.from_nodes([node for _, node in kinds])
    for _ in range(10):
        scenario = random.choice(kinds)[0]
        pod = Pod.from_manifest(pod_of(random, "new", scenario["machine"], scenario["devices"]))
        one, four = cluster.evaluate(pod), cluster.evaluate(pod, threads=4)
        for name in ("admitted", "reason", "affinity", "preferred", "score", "exact"):
            assert (getattr(one, name) == getattr(four, name)).all(), name


def test_an_answer_follows_the_pods_that_come_and_go(kinds):
    """After `refresh` a node that took a pod is judged as it is now, and after its removal as it was."""
    random = Random(5)
    for scenario, node in random.sample(kinds, 60):
        cluster = Cluster.from_nodes([node])
        first = Pod.from_manifest(pod_of(random, "first", scenario["machine"], scenario["devices"]))
        second = Pod.from_manifest(pod_of(random, "second", scenario["machine"], scenario["devices"]))
        before = cluster.evaluate(second)
        if not cluster.evaluate(first, exact=True).admitted[0]:
            continue
        node.admit(first)
        cluster.refresh(0)
        between = cluster.evaluate(second)
        if between.exact[0]:
            assert evaluated(between, 0) == answer_of(node, second)
        node.remove("first")
        cluster.refresh(0)
        after = cluster.evaluate(second)
        assert after.score.tolist() == before.score.tolist()
        assert evaluated(after, 0) == evaluated(before, 0)


def test_what_does_not_fit_one_numa_node(kinds):
    """Pods of one container that several NUMA nodes must share, on machines of 4 to 8, busy ones too."""
    random = Random(11)
    shared = [
        (scenario, node)
        for scenario, node in kinds
        if 4 <= len(node.machine.numa_nodes) <= 8
        and node.manager.policy.name in {"best-effort", "restricted"}
    ][:60]
    cluster = Cluster.from_nodes([node for _, node in shared])
    several = 0
    for number in range(100):
        cpus, gibi, devices = random.randint(1, 40), random.randint(1, 60), random.randint(0, 6)
        limits = {"cpu": str(cpus), "memory": f"{gibi}Gi", random.choice(RESOURCES): str(devices)}
        pod = Pod.from_manifest(
            {
                "metadata": {"name": "new", "uid": "new"},
                "spec": {"containers": [{"name": "c0", "image": "i", "resources": {"limits": limits}}]},
            }
        )
        answer = cluster.evaluate(pod)
        for index, (_, node) in enumerate(shared):
            if answer.exact[index]:
                assert evaluated(answer, index) == answer_of(node, pod), (number, index)
                several += int(answer.affinity[index]).bit_count() > 1
                cluster.refresh(
                    index
                )  # a pod that was here for a moment can leave nodes bound, as in the kubelet
    assert several > 500


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
    """Amounts do not tell which of them are left for the second container, unless somebody keeps the order."""
    name = "example.com/gpu"
    nodes = [{"id": i, "memory": GIBI, "cores": [{"cpus": [i], "socket": 0}]} for i in range(2)]
    inventory = {name: [{"id": f"d{index}", "numa": near} for index, near in enumerate(places)]}
    node = Node.from_dict(
        {"machine": {"numaNodes": nodes}, "kubelet": {"topologyManagerPolicy": policy}, "devices": inventory}
    )
    containers = [
        {"name": f"c{index}", "resources": {"limits": {name: str(count)}}}
        for index, count in enumerate(wishes)
    ]
    pod = Pod.from_manifest({"metadata": {"name": "p"}, "spec": {"containers": containers}})
    cluster = Cluster.from_nodes([node])
    answer = cluster.evaluate(pod)
    if answer.exact[0]:
        assert evaluated(answer, 0) == answer_of(node, pod)
    assert evaluated(cluster.evaluate(pod, exact=True), 0) == answer_of(node, pod)
