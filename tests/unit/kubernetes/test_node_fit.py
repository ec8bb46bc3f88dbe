"""The kubelet's own checks after its managers, in its order and words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.node_fit import (
    NodeObject,
    is_critical,
    misfit_of,
    node_limits,
    node_object,
    requests_of,
    tolerates,
)
from alignup.kubernetes.pod import QOSClass
from alignup.machine.machine import machine_from_dict
from alignup.records import replace
from inputs.machines import machine_of

GIBI = 1 << 30

LIMITS = NodeObject(allocatable={"cpu": 4000, "memory": 8 * GIBI, "pods": 3}, knows_labels=False)


def machine(numa_nodes, cpus, gibi):
    """Return a machine of NUMA nodes with so many CPUs and GiB each."""
    description = machine_of(numa_nodes, cpus // 2)
    return machine_from_dict(
        {
            "numaNodes": [
                {**numa_node, "memory": gibi * GIBI} for numa_node in description["numaNodes"]
            ]
        }
    )


def pod(
    name="p", cpu="1", memory="1Gi", *, critical=False, limits=False, more=None, labels=None, **spec
):
    requests = {
        key: value for key, value in {"cpu": cpu, "memory": memory, **(more or {})}.items() if value
    }
    resources = {"requests": requests}
    if limits:
        resources["limits"] = requests

    container = {"name": "c", "resources": resources, "ports": spec.pop("ports", None)}
    if critical:
        spec["priorityClassName"] = "system-node-critical"

    metadata = {"name": name, "uid": name}
    if labels:
        metadata["labels"] = labels

    return read_pod({"metadata": metadata, "spec": {"containers": [container], **spec}})


def node(**labels):
    return NodeObject("n1", labels, allocatable={"cpu": 4000, "memory": 8 * GIBI, "pods": 3})


@pytest.mark.parametrize(
    ("candidate", "reason", "message"),
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
def test_amounts(candidate, reason, message) -> None:
    misfit = misfit_of(candidate, [pod("other")], LIMITS)
    assert (misfit.reason, misfit.message) == (
        reason,
        f"Node didn't have enough resource: {message}",
    )


def test_what_fits_fits() -> None:
    assert misfit_of(pod(cpu="3", memory="7Gi"), [pod("other")], LIMITS).reason == ""
    assert misfit_of(pod(more={"a/b": "9"}, limits=True), [], LIMITS).reason == ""


def test_pods_are_counted_first() -> None:
    misfit = misfit_of(pod(cpu="9"), [pod(str(number)) for number in range(3)], LIMITS)
    assert (misfit.reason, misfit.resources) == ("OutOfpods", ("pods", "cpu"))


@pytest.mark.parametrize(
    ("candidate", "reason"),
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
def test_what_does_not_suit_the_node(candidate, reason) -> None:
    neighbour = pod("other", ports=[{"containerPort": 5, "hostPort": 80}])
    assert misfit_of(candidate, [neighbour], node(zone="a")).reason == reason


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
        (expression("cores", "Gt", "-7"), True),
        (expression("cores", "Lt", "+9"), True),
        # as Go's strconv.ParseInt has it
        (expression("cores", "Gt", "0_1"), False),
        (expression("cores", "Gt", " 1"), False),
        (expression("cores", "Gt", f"-{2**63}"), True),
        (expression("cores", "Gt", f"-{2**63 + 1}"), False),
        (expression("cores", "Lt", str(2**63 - 1)), True),
        (expression("cores", "Lt", str(2**63)), False),
        (expression("cores", "Lt", "9" * 5_000), False),
        (expression("cores", "Lt"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, False),
        ({}, False),
    ],
)
def test_node_affinity(term, matches) -> None:
    labelled = node(zone="a", cores="8")
    assert misfit_of(pod(affinity=affinity(term)), [], labelled).reason == (
        "" if matches else "NodeAffinity"
    )
    either = affinity(term, expression("zone", "In", "a"))
    assert misfit_of(pod(affinity=either), [], labelled).reason == ""


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


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "x", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Equal", "value": "5"}, True),
        ({"key": "k", "operator": "Equal"}, False),
        ({"key": "k", "operator": "In", "value": "5"}, False),
        ({"key": "k", "operator": "Gt", "value": "4"}, True),
        ({"key": "k", "operator": "Gt", "value": "5"}, False),
        ({"key": "k", "operator": "Lt", "value": "6"}, True),
        ({"key": "k", "operator": "Lt", "value": "06"}, False),
        ({"key": "k", "operator": "Lt", "value": "six"}, False),
    ],
)
def test_a_toleration_is_for_a_taint_as_the_api_says(toleration, is_tolerated) -> None:
    taint = {"key": "k", "value": "5", "effect": "NoExecute"}
    assert tolerates([toleration], taint) == is_tolerated
    assert tolerates([{"key": "other"}, toleration], taint) == is_tolerated


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
            victim.name
            for victim in misfit_of(pod(cpu=cpu, critical=True), others, limits).preempted
        ]

    assert evicted("400m") == ["small"]
    assert evicted("1") == ["large"]
    assert evicted("2") == ["large", "small"]
    assert evicted("2500m") == ["guaranteed", "small"][::-1]
    assert misfit_of(pod(cpu="1", critical=True), others[:1], limits).preempted == ()


@pytest.mark.parametrize(("priority", "victims"), [(2_000_000_002, ["p"]), (2_000_000_001, [])])
def test_of_critical_pods_the_one_of_higher_priority_evicts(priority, victims) -> None:
    other = pod(cpu="3", critical=True, priority=2_000_000_001)
    misfit = misfit_of(pod("q", cpu="2", critical=True, priority=priority), [other], LIMITS)
    assert [victim.name for victim in misfit.preempted] == victims


def test_a_critical_pod_that_finds_nobody_to_evict() -> None:
    misfit = misfit_of(
        pod(cpu="6", critical=True), [pod("a", "1"), pod("b", "2", critical=True)], LIMITS
    )
    assert misfit.reason == "UnexpectedAdmissionError"
    assert misfit.message == (
        "Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 4000), ]"
    )
    assert misfit.resources == ("cpu",)


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
    candidate = pod(cpu=str(wish[0]), memory=f"{wish[1]}Gi", critical=True)

    misfit = misfit_of(candidate, others, limits)

    if misfit.reason:
        critical_pods = [neighbour for neighbour in others if is_critical(neighbour)]
        assert misfit_of(candidate, critical_pods, limits).reason
        return

    victims = misfit.preempted
    assert not any(is_critical(victim) for victim in victims)

    spared = [neighbour for neighbour in others if neighbour not in victims]
    again = misfit_of(candidate, spared, limits)
    assert (again.reason, again.preempted) == ("", ())

    guaranteed_victims = [victim for victim in victims if victim.qos is QOSClass.GUARANTEED]
    if guaranteed_victims:
        not_lower = [
            neighbour
            for neighbour in spared
            if neighbour.qos is QOSClass.GUARANTEED or is_critical(neighbour)
        ]
        assert misfit_of(candidate, [*not_lower, *guaranteed_victims], limits).preempted


def test_requests_count_overhead_and_the_pod_as_a_whole() -> None:
    spec = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "250m"},
    }
    summed = read_pod({"metadata": {"name": "p"}, "spec": spec})
    assert requests_of(summed) == {"cpu": 2250, "memory": GIBI}
    whole = {**spec, "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}
    summed = read_pod({"metadata": {"name": "p"}, "spec": whole})
    assert requests_of(summed) == {"cpu": 3250, "memory": GIBI}


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
            {"evictionHard": {"memory.available": "+2.5e1%%"}},
            {"cpu": 8000, "memory": 12 * GIBI, "pods": 110},
        ),
        # a kubelet does not start with it
        (
            {"evictionHard": {"memory.available": "0"}},
            {"cpu": 8000, "memory": 16 * GIBI, "pods": 110},
        ),
        # it ignores both as they are written here
        (
            {"evictionHard": {"memory.available": "0%"}},
            {"cpu": 8000, "memory": 16 * GIBI, "pods": 110},
        ),
        (
            {"evictionHard": {"memory.available": "100%"}},
            {"cpu": 8000, "memory": 16 * GIBI, "pods": 110},
        ),
        (
            {"evictionHard": {"memory.available": "100.0%"}},
            {"cpu": 8000, "memory": 0, "pods": 110},
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
    from_api = node_object(
        {
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "k", "effect": "NoExecute"}], "unschedulable": True},
            "status": {"allocatable": {"cpu": "3500m", "memory": "1Gi", "pods": "5", "a/b": "2"}},
        }
    )
    limits = node_limits(machine(1, 4, 8), KubeletConfig(), {"a/c": 1}, from_api)
    assert limits.allocatable == {"cpu": 3500, "memory": GIBI, "pods": 5, "a/b": 2, "a/c": 1}
    assert (limits.name, limits.labels["zone"], len(limits.taints)) == ("n", "a", 1)
    assert limits.is_unschedulable


@pytest.mark.parametrize("names", [("large", "small"), ("small", "large")])
def test_of_equally_near_pods_the_one_that_requests_less_memory_is_evicted(names) -> None:
    sizes = {"large": "2Gi", "small": "1Gi"}
    others = [pod(name, "2", sizes[name]) for name in names]
    misfit = misfit_of(pod(cpu="1", critical=True), others, LIMITS)
    assert [victim.name for victim in misfit.preempted] == ["small"]


def test_devices_that_a_node_has_and_does_not_give_are_unhealthy():
    amounts = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8", "a.b/nic": "2"}
    allocatable = {**amounts, "cpu": "3", "nvidia.com/gpu": "6"}
    status = {"capacity": amounts, "allocatable": allocatable}
    node = node_object({"metadata": {"name": "n"}, "status": status})
    assert node.unhealthy_devices == {"nvidia.com/gpu": 2}
    assert node_object({"metadata": {"name": "n"}}).unhealthy_devices == {}


def test_name_labels_and_release_of_a_node_object_are_read():
    data = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": {"zone": "z"}, "uid": "1"},
        "status": {
            "nodeInfo": {"kubeletVersion": "v1.33.4-eks-1", "osImage": "x"},
            "capacity": {"cpu": "4"},
        },
    }
    assert node_object(data) == NodeObject("a", {"zone": "z"}, "v1.33.4-eks-1")


@pytest.mark.parametrize(
    "data", [{}, {"metadata": {}, "status": {}}, {"status": {"nodeInfo": {"kubeletVersion": ""}}}]
)
def test_what_a_node_object_lacks_is_not_known(data):
    assert node_object(data) == NodeObject()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a Node object, got [] at nodeObject"),
        ({"kind": "Pod"}, "expected Node, got 'Pod' at nodeObject.kind"),
        ({"status": {"nodeInfo": 3}}, "got 3 at nodeObject.status.nodeInfo"),
    ],
)
def test_what_is_no_node_object_is_refused(data, message):
    with pytest.raises(InputError) as caught:
        node_object(data)
    assert message in str(caught.value)
