"""The kubelet's own checks after its managers, in its order and words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.node_fit import (
    NodeObject,
    is_critical,
    misfit_of,
    node_limits,
    node_object,
    requests_of,
)
from alignup.kubernetes.pod import QOSClass
from alignup.machine.machine import machine_from_dict
from alignup.records import replace
from inputs.machines import machine_of

GIBI = 1 << 30
LIMITS = NodeObject(allocatable={"cpu": 4000, "memory": 8 * GIBI, "pods": 3}, knows_labels=False)


def machine(numa_nodes, cpus, gibi):
    """Return a machine of NUMA nodes with so many CPUs and GiB each."""
    made = machine_of(numa_nodes, cpus // 2)
    return machine_from_dict(
        {"numaNodes": [{**one, "memory": gibi * GIBI} for one in made["numaNodes"]]}
    )


def pod(
    name="p", cpu="1", memory="1Gi", *, critical=False, limits=False, more=None, labels=None, **spec
):
    requests = {
        key: value for key, value in {"cpu": cpu, "memory": memory, **(more or {})}.items() if value
    }
    resources = {"requests": requests, **({"limits": requests} if limits else {})}
    container = {"name": "c", "resources": resources, "ports": spec.pop("ports", None)}
    if critical:
        spec["priorityClassName"] = "system-node-critical"
    metadata = {"name": name, "uid": name, **({"labels": labels} if labels else {})}
    return read_pod({"metadata": metadata, "spec": {"containers": [container], **spec}})


def node(**labels):
    return NodeObject("n1", labels, allocatable={"cpu": 4000, "memory": 8 * GIBI, "pods": 3})


@pytest.mark.parametrize(
    ("one", "reason", "message"),
    [
        (pod(cpu="5"), "OutOfcpu", "cpu, requested: 5000, used: 1000, capacity: 4000"),
        (
            pod(memory="8Gi"),
            "OutOfmemory",
            f"memory, requested: {8 * GIBI}, used: {GIBI}, capacity: {8 * GIBI}",
        ),
        (
            pod(cpu="9", memory="9Gi"),
            "OutOfcpu",
            "cpu, requested: 9000, used: 1000, capacity: 4000",
        ),
        (
            pod(more={"hugepages-2Mi": "4Mi"}, limits=True),
            "OutOfhugepages-2Mi",
            "hugepages-2Mi, requested: 4194304, used: 0, capacity: 0",
        ),
    ],
)
def test_amounts(one, reason, message) -> None:
    found = misfit_of(one, [pod("other")], LIMITS)
    assert (found.reason, found.message) == (reason, f"Node didn't have enough resource: {message}")


def test_what_fits_fits() -> None:
    assert misfit_of(pod(cpu="3", memory="7Gi"), [pod("other")], LIMITS).reason == ""
    assert misfit_of(pod(more={"a/b": "9"}, limits=True), [], LIMITS).reason == ""


def test_pods_are_counted_first() -> None:
    found = misfit_of(pod(cpu="9"), [pod(str(number)) for number in range(3)], LIMITS)
    assert (found.reason, found.resources) == ("OutOfpods", ("pods", "cpu"))


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (pod(nodeSelector={"disk": "ssd"}), "NodeAffinity"),
        (pod(nodeSelector={"zone": "a"}), ""),
        (pod(nodeName="n2"), "NodeName"),
        (pod(nodeName="n1"), ""),
        (pod(ports=[{"containerPort": 1, "hostPort": 80}]), "NodePorts"),
        (pod(ports=[{"containerPort": 80}], hostNetwork=True), "NodePorts"),
        (pod(ports=[{"containerPort": 80}]), ""),
        (pod(ports=[{"containerPort": 1, "hostPort": 80, "protocol": "UDP"}]), ""),
        (pod(os={"name": "windows"}), "PodOSNotSupported"),
        (pod(labels={"kubernetes.io/os": "windows"}), "PodOSSelectorNodeLabelDoesNotMatch"),
        (pod(nodeSelector={"disk": "ssd"}, nodeName="n2", cpu="9"), "OutOfcpu"),
        (pod(nodeSelector={"disk": "ssd"}, nodeName="n2", cpu="9", critical=True), "NodeAffinity"),
    ],
)
def test_what_does_not_suit_the_node(one, reason) -> None:
    other = pod("other", ports=[{"containerPort": 5, "hostPort": 80}])
    assert misfit_of(one, [other], node(zone="a")).reason == reason


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("zone", "NotIn", "a"), False),
        (expression("disk", "NotIn", "a"), True),
        (expression("zone", "Exists"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("disk", "DoesNotExist"), True),
        (expression("cores", "Gt", "7"), True),
        (expression("cores", "Lt", "8"), False),
        (expression("zone", "Gt", "7"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, False),
        ({}, False),
    ],
)
def test_node_affinity(term, matches) -> None:
    known = node(zone="a", cores="8")
    assert misfit_of(pod(affinity=affinity(term)), [], known).reason == (
        "" if matches else "NodeAffinity"
    )
    either = affinity(term, expression("zone", "In", "a"))
    assert misfit_of(pod(affinity=either), [], known).reason == ""


def test_labels_that_nobody_knows_are_not_missed() -> None:
    assert misfit_of(pod(nodeSelector={"disk": "ssd"}), [], LIMITS).reason == ""
    limits = node_limits(machine(1, 4, 8), KubeletConfig(), {})
    assert (
        misfit_of(pod(nodeSelector={"kubernetes.io/os": "windows"}), [], limits).reason
        == "NodeAffinity"
    )


@pytest.mark.parametrize(
    ("tolerations", "reason"),
    [
        ([], "TaintToleration"),
        ([{"operator": "Exists"}], ""),
        ([{"key": "k", "value": "v", "effect": "NoExecute"}], ""),
        ([{"key": "k", "value": "w"}], "TaintToleration"),
        ([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], "TaintToleration"),
    ],
)
def test_taints(tolerations, reason) -> None:
    taints = (
        {"key": "k", "value": "v", "effect": "NoExecute"},
        {"key": "x", "effect": "NoSchedule"},
    )
    tainted = replace(LIMITS, taints=taints)
    assert misfit_of(pod(tolerations=tolerations), [], tainted).reason == reason


def test_a_critical_pod_evicts_the_lowest_class_and_the_nearest_amount() -> None:
    others = [
        pod("guaranteed", "2", "1Gi", limits=True),
        pod("small", "500m", "1Gi"),
        pod("large", "1500m", "1Gi"),
    ]
    limits = NodeObject(
        allocatable={"cpu": 4000, "memory": 8 * GIBI, "pods": 9}, knows_labels=False
    )

    def evicted(cpu):
        return [
            one.name for one in misfit_of(pod(cpu=cpu, critical=True), others, limits).preempted
        ]

    assert evicted("400m") == ["small"]
    assert evicted("1") == ["large"]
    assert evicted("2") == ["large", "small"]
    assert evicted("2500m") == ["guaranteed", "small"][::-1]
    assert misfit_of(pod(cpu="1", critical=True), others[:1], limits).preempted == ()


def test_a_critical_pod_that_finds_nobody_to_evict() -> None:
    found = misfit_of(
        pod(cpu="6", critical=True), [pod("a", "1"), pod("b", "2", critical=True)], LIMITS
    )
    assert found.reason == "UnexpectedAdmissionError"
    assert found.message == (
        "Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods "
        "to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 4000), ]"
    )
    assert found.resources == ("cpu",)


@pytest.mark.parametrize(
    ("metadata", "priority", "critical"),
    [
        ({"annotations": {"kubernetes.io/config.source": "file"}}, None, True),
        ({"annotations": {"kubernetes.io/config.source": "api"}}, None, False),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, None, True),
        ({}, 2_000_000_000, True),
        ({}, 1_999_999_999, False),
        ({}, None, False),
    ],
)
def test_who_is_critical(metadata, priority, critical) -> None:
    spec = {"containers": [{"name": "c"}], "priority": priority}
    assert is_critical(read_pod({"metadata": {"name": "p", **metadata}, "spec": spec})) is critical


@given(
    sizes=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans(), st.integers(0, 2)),
        max_size=9,
    ),
    wish=st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
def test_whoever_is_evicted_makes_room_and_may_be_evicted(sizes, wish) -> None:
    others = [
        pod(f"o{number}", str(cpu), f"{memory}Gi", limits=full, critical=not kind)
        for number, (cpu, memory, full, kind) in enumerate(sizes)
    ]
    limits = NodeObject(
        allocatable={"cpu": 20000, "memory": 20 * GIBI, "pods": 8}, knows_labels=False
    )
    asked = pod(cpu=str(wish[0]), memory=f"{wish[1]}Gi", critical=True)

    found = misfit_of(asked, others, limits)

    if found.reason:
        alone = [one for one in others if is_critical(one)]
        assert misfit_of(asked, alone, limits).reason
    else:
        assert not any(is_critical(one) for one in found.preempted)
        left = [one for one in others if one not in found.preempted]
        again = misfit_of(asked, left, limits)
        assert (again.reason, again.preempted) == ("", ())
        if any(one.qos is QOSClass.GUARANTEED for one in found.preempted):
            lower = [one for one in left if one.qos is QOSClass.GUARANTEED or is_critical(one)]
            spared = [one for one in found.preempted if one.qos is QOSClass.GUARANTEED]
            assert misfit_of(asked, [*lower, *spared], limits).preempted


def test_requests_count_overhead_and_the_pod_as_a_whole() -> None:
    spec = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "250m"},
    }
    made = read_pod({"metadata": {"name": "p"}, "spec": spec})
    assert requests_of(made) == {"cpu": 2250, "memory": GIBI}
    whole = {**spec, "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}
    made = read_pod({"metadata": {"name": "p"}, "spec": whole})
    assert requests_of(made) == {"cpu": 3250, "memory": GIBI}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"cpu": 8000, "memory": 16 * GIBI - (100 << 20), "pods": 110}),
        ({"evictionHard": {}}, {"cpu": 8000, "memory": 16 * GIBI, "pods": 110}),
        # as a kubelet on 16 GiB: it keeps percentages in single precision
        (
            {"evictionHard": {"memory.available": "5%"}},
            {"cpu": 8000, "memory": 16 * GIBI - 858993472, "pods": 110},
        ),
        (
            {"evictionHard": {"memory.available": "25%"}},
            {"cpu": 8000, "memory": 12 * GIBI, "pods": 110},
        ),
        (
            {
                "kubeReserved": {"cpu": "300m", "memory": "1Gi"},
                "systemReserved": {"cpu": "200m", "memory": "1Gi"},
                "evictionHard": {"memory.available": "1Gi"},
                "maxPods": 20,
            },
            {"cpu": 7500, "memory": 13 * GIBI, "pods": 20},
        ),
        (
            {
                "reservedSystemCPUs": "0-1",
                "kubeReserved": {"cpu": "5"},
                "podsPerCore": 3,
                "evictionHard": {},
            },
            {"cpu": 6000, "memory": 16 * GIBI, "pods": 24},
        ),
    ],
)
def test_allocatable(fields, expected) -> None:
    assert (
        node_limits(machine(2, 4, 8), KubeletConfig.from_dict(fields), {}).allocatable == expected
    )


def test_the_node_object_goes_before_the_machine() -> None:
    found = node_object(
        {
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]},
            "status": {"allocatable": {"cpu": "3500m", "memory": "1Gi", "pods": "5", "a/b": "2"}},
        }
    )
    limits = node_limits(machine(1, 4, 8), KubeletConfig(), {"a/c": 1}, found)
    assert limits.allocatable == {"cpu": 3500, "memory": GIBI, "pods": 5, "a/b": 2, "a/c": 1}
    assert (limits.name, limits.labels["zone"], len(limits.taints)) == ("n", "a", 1)


@pytest.mark.parametrize("names", [("large", "small"), ("small", "large")])
def test_of_equally_near_pods_the_one_that_requests_less_memory_is_evicted(names) -> None:
    sizes = {"large": "2Gi", "small": "1Gi"}
    others = [pod(name, "2", sizes[name]) for name in names]
    found = misfit_of(pod(cpu="1", critical=True), others, LIMITS)
    assert [one.name for one in found.preempted] == ["small"]
