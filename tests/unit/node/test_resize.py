"""Resizes in place, as kubelets 1.33 to 1.38 answer them.

The table is what real kubelets 1.36.3 and 1.37.2 did; that of 1.38 is read in its sources.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError, UnknownPodError
from alignup.machine.cpuset import CPUSet
from alignup.node import Node
from alignup.node.resize import kept_amounts
from alignup.replay import replay

CPU_GATE = {"InPlacePodVerticalScalingExclusiveCPUs": True}
BOTH_GATES = {**CPU_GATE, "InPlacePodVerticalScalingExclusiveMemory": True}
CPU_STATIC = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
MEMORY_STATIC = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
CPU_MODE = "Resize is infeasible for Guaranteed Pods when CPU allocation mode is exclusive"
MEMORY_MODE = "Resize is infeasible for Guaranteed Pods when memory allocation mode is exclusive"
OLD_STATIC = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
LOCALITY = "Resources cannot be allocated with Topology locality"
CAPACITY = "Node didn't have enough capacity: cpu, requested: 100000, capacity: 15000"
ALLOCATABLE = (
    "node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: 15000"
)
BOTH_SHORT = f"{ALLOCATABLE}; memory, requested: {90 << 30}, allocatable: {31 << 30}"
MEMORY_CAPACITY = (
    f"Node didn't have enough capacity: memory, requested: {90 << 30}, capacity: {31 << 30}"
)
TOO_MUCH = {
    "requests": {"cpu": "100", "memory": "90Gi"},
    "limits": {"cpu": "200", "memory": "90Gi"},
}
DISABLED = "InPlacePodVerticalScaling is disabled"
HUNDRED = {"requests": {"cpu": "100"}, "limits": {"cpu": "200"}}
ALL = {"requests": {"cpu": "15", "memory": "31Gi"}, "limits": {"cpu": "16", "memory": "31Gi"}}
MACHINE = {
    "numaNodes": [
        {
            "id": node,
            "memory": 16 << 30,
            "cores": [
                {"id": core, "socket": node, "cpus": [8 * node + 2 * core, 8 * node + 2 * core + 1]}
                for core in range(4)
            ],
        }
        for node in range(2)
    ]
}

BURSTABLE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}}
REFUSING = ("single-numa-node", "restricted")

OLD_MEMORY_STATIC = (
    "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"
)

AMOUNTS = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from([500, 1000, 1500, 2000, 3000, 3000, 100_000]),
        "memory": st.sampled_from([1, 1, 1, 2, 90]),
    }
)

SMALL = AMOUNTS.filter(lambda amount: amount["cpu"] < 100_000 and amount["memory"] < 90)


def node_of(
    version: str,
    policy: str = "single-numa-node",
    gates: dict[str, bool] | None = None,
    **fields: Any,
) -> Node:
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": policy,
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        **fields,
    }
    if gates:
        kubelet["featureGates"] = gates

    return Node.from_dict({"machine": MACHINE, "kubelet": kubelet, "kubeletVersion": version})


def amounts(cpu: str, memory: str = "1Gi") -> dict[str, Any]:
    both = {"cpu": cpu, "memory": memory}
    return {"requests": both, "limits": both}


TWO_GIB = amounts("2", "2Gi")


def pod_of(resources: dict[str, Any], level: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": resources}]}
    if level:
        spec["resources"] = level
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec}


@pytest.mark.parametrize(
    ("version", "gates", "policy", "before", "after", "status", "message", "cpus"),
    [
        ("1.33", {}, "none", amounts("2"), amounts("4"), "Infeasible", OLD_STATIC, 2),
        ("1.33", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", OLD_STATIC, 2),
        ("1.34", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.34", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", MEMORY_STATIC, 2),
        ("1.34", {}, "none", BURSTABLE, TOO_MUCH, "Infeasible", MEMORY_CAPACITY, 0),
        ("1.35", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.36", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.37", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_STATIC, 2),
        ("1.36", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", MEMORY_STATIC, 2),
        ("1.37", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", MEMORY_STATIC, 2),
        ("1.36", {}, "none", amounts("1500m"), amounts("2500m"), "Infeasible", CPU_STATIC, 0),
        ("1.36", {}, "none", BURSTABLE, {"requests": {"cpu": "2"}}, "allocated", "", 0),
        ("1.37", {}, "none", BURSTABLE, {"requests": {"cpu": "2"}}, "allocated", "", 0),
        ("1.36", CPU_GATE, "single-numa-node", amounts("2"), amounts("4"), "Deferred", LOCALITY, 2),
        ("1.36", CPU_GATE, "single-numa-node", amounts("4"), amounts("2"), "Deferred", LOCALITY, 4),
        ("1.37", CPU_GATE, "single-numa-node", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.37", CPU_GATE, "single-numa-node", amounts("4"), amounts("2"), "allocated", "", 4),
        ("1.36", CPU_GATE, "best-effort", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.36", CPU_GATE, "none", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.37", CPU_GATE, "none", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.36", CPU_GATE, "single-numa-node", amounts("1500m"), amounts("2"), "allocated", "", 2),
        ("1.37", CPU_GATE, "single-numa-node", amounts("1500m"), amounts("2"), "allocated", "", 0),
        ("1.36", CPU_GATE, "single-numa-node", amounts("2"), amounts("2500m"), "allocated", "", 2),
        ("1.36", BOTH_GATES, "single-numa-node", amounts("2"), TWO_GIB, "allocated", "", 2),
        ("1.37", BOTH_GATES, "single-numa-node", amounts("2"), TWO_GIB, "allocated", "", 2),
        ("1.35", {}, "none", BURSTABLE, ALL, "allocated", "", 0),
        ("1.36", {}, "none", BURSTABLE, ALL, "allocated", "", 0),
        ("1.35", {}, "none", BURSTABLE, HUNDRED, "Infeasible", CAPACITY, 0),
        ("1.36", {}, "none", BURSTABLE, HUNDRED, "Infeasible", ALLOCATABLE, 0),
        ("1.35", {}, "none", amounts("2"), amounts("100"), "Infeasible", CPU_STATIC, 2),
        ("1.36", {}, "none", amounts("2"), amounts("100"), "Infeasible", ALLOCATABLE, 2),
        ("1.36", {}, "none", amounts("2"), amounts("100", "90Gi"), "Infeasible", BOTH_SHORT, 2),
        ("1.35", {}, "none", BURSTABLE, TOO_MUCH, "Infeasible", MEMORY_CAPACITY, 0),
        ("1.32", {}, "none", BURSTABLE, {"requests": {"cpu": "2"}}, "Infeasible", DISABLED, 0),
        ("1.38", {}, "none", amounts("2"), amounts("4"), "Infeasible", CPU_MODE, 2),
        ("1.38", {}, "none", amounts("2"), amounts("2", "2Gi"), "Infeasible", MEMORY_MODE, 2),
        ("1.38", {}, "none", BURSTABLE, {"requests": {"cpu": "2"}}, "allocated", "", 0),
        ("1.38", CPU_GATE, "single-numa-node", amounts("2"), amounts("4"), "allocated", "", 2),
        ("1.38", BOTH_GATES, "single-numa-node", amounts("2"), TWO_GIB, "allocated", "", 2),
        ("1.38", {}, "none", amounts("2"), amounts("100"), "Infeasible", ALLOCATABLE, 2),
    ],
)  # fmt: skip
def test_what_a_kubelet_says_and_what_then_holds_cpus(
    version, gates, policy, before, after, status, message, cpus
):
    node = node_of(version, policy, gates)
    assert node.admit(pod_of(before))
    free = node.cpu.free_cpus
    answer = node.resize("u", {"c": after})
    assert (answer.status, answer.message, bool(answer)) == (status, message, status == "allocated")
    allocated = node.cpu.cpus("u", "c") or CPUSet()
    assert len(allocated) == cpus
    assert len(free) - len(node.cpu.free_cpus) == (cpus if before == amounts("1500m") else 0)
    node.remove("u")
    assert len(node.cpu.free_cpus) == 15


@pytest.mark.parametrize("gates", [{}, {"PodLevelResourceManagers": True}])
def test_resources_of_the_pod_as_a_whole_grow_alone(gates):
    node = node_of("1.37", "best-effort", gates, topologyManagerScope="pod")
    assert node.admit(pod_of(amounts("2"), amounts("4", "2Gi")))
    before = node.shared_cpus
    assert node.resize("u", {}, amounts("6", "2Gi"))
    assert node.shared_cpus == before
    assert node.pods[0].constraints.requests["cpu"] == 6000
    assert node.resize("u", {"c": amounts("3")}).message == CPU_STATIC


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("pod", "failed admission under pod-scope topology manager"),
        ("container", "failed admission with a container-level topology manager"),
    ],
)
def test_managers_that_cannot_follow_a_pod_with_a_shared_pool_say_in_which_scope(scope, words):
    """The resize waits, and the pod keeps its requests and CPUs."""
    gates = {"PodLevelResourceManagers": True, **CPU_GATE}
    node = node_of("1.36", gates=gates, topologyManagerScope=scope)
    assert node.admit(pod_of(amounts("2"), amounts("4", "2Gi")))
    free = node.cpu.free_cpus

    answer = node.resize("u", {"c": amounts("1")})

    message = f"Pod Scope pod with pod-level resources {words}"
    assert (answer.status, answer.message) == ("Deferred", message)
    assert node.pods[0].containers[0].requests["cpu"] == 2000
    assert node.cpu.free_cpus == free


class PlainResizes:
    """What a kubelet makes of resizes of its only pod.

    It is read off the recorded answers, and knows no topology.

    No container takes more than 3 CPUs, so that those beside it always leave as many near its
    memory.
    """

    def __init__(self, version, gates, policy, *, static, guaranteed, containers):
        self.minor, self.gates, self.policy = int(version[2:]), gates, policy
        self.static, self.guaranteed, self.containers = static, guaranteed, containers
        self.held = {name: self.own(amount) for name, amount in containers.items()}

    def own(self, amount):
        whole = self.static and self.guaranteed and not amount["cpu"] % 1000
        return amount["cpu"] // 1000 if whole else 0

    def resize(self, changes):
        requested = {**self.containers, **changes}
        if requested == self.containers:
            return "allocated", ""
        if refused := self.infeasible(requested):
            return "Infeasible", refused
        if self.minor < 37 and not self.give(requested):  # later managers let resizes pass
            return "Deferred", LOCALITY
        self.containers = requested
        return "allocated", ""

    def infeasible(self, requested):
        if self.minor < 33:
            return DISABLED

        word = "allocatable" if self.minor > 35 else "capacity"
        short = []
        cpu = sum(amount["cpu"] for amount in requested.values())
        memory = sum(amount["memory"] for amount in requested.values())
        if cpu > 15_000:
            short.append(f"cpu, requested: {cpu}, {word}: 15000")
        if memory > 31:
            short.append(f"memory, requested: {memory << 30}, {word}: {31 << 30}")

        if short and self.minor > 35:  # the API server says so, before the kubelet
            return f"node didn't have enough allocatable resources: {'; '.join(short)}"
        if self.guaranteed and (refused := self.beside_static(requested)):
            return refused
        if short:
            return f"Node didn't have enough capacity: {short[-1]}"
        return ""

    def give(self, requested):
        for name, amount in requested.items():
            whole_cpus = self.own(amount)
            if whole_cpus and self.held[name] not in (0, whole_cpus) and self.policy in REFUSING:
                return False
            self.held[name] = self.held[name] or whole_cpus
        return True

    def beside_static(self, requested):
        if self.minor == 33:
            if CPU_GATE.items() <= self.gates.items():
                return ""
            return OLD_STATIC if self.static else OLD_MEMORY_STATIC

        changed = {
            name
            for name in ("cpu", "memory")
            for key, amount in requested.items()
            if amount[name] != self.containers[key][name]
        }
        if "cpu" in changed and self.static and not self.gates:
            return CPU_STATIC if self.minor < 38 else CPU_MODE
        if "memory" in changed and self.gates != BOTH_GATES:
            return MEMORY_STATIC if self.minor < 38 else MEMORY_MODE
        return ""


@given(
    version=st.sampled_from(["1.32", "1.33", "1.34", "1.35", "1.36", "1.37", "1.38"]),
    gates=st.sampled_from([{}, CPU_GATE, BOTH_GATES]),
    policy=st.sampled_from(["none", "best-effort", *REFUSING]),
    static=st.booleans(),
    guaranteed=st.booleans(),
    containers=st.dictionaries(st.sampled_from("ab"), SMALL, min_size=1),
    changes=st.lists(st.dictionaries(st.sampled_from("ab"), AMOUNTS), min_size=1, max_size=6),
)
def test_resizes_one_after_the_other_are_answered_as_the_plain_model_says(
    version, gates, policy, static, guaranteed, containers, changes
):
    if version == "1.32":
        gates = {}
    elif version == "1.33" and gates:
        gates = CPU_GATE

    model = PlainResizes(
        version, gates, policy, static=static, guaranteed=guaranteed, containers=containers
    )
    node = node_of(version, policy, gates, cpuManagerPolicy="static" if static else "none")

    def resources(amount):
        amounts = {"cpu": f"{amount['cpu']}m", "memory": f"{amount['memory']}Gi"}
        return {
            "requests": amounts,
            "limits": amounts if guaranteed else {"cpu": "300", "memory": "300Gi"},
        }

    pod = {
        "containers": [
            {"name": name, "resources": resources(amount)} for name, amount in containers.items()
        ]
    }
    assert node.admit({"metadata": {"name": "p", "uid": "u"}, "spec": pod})
    memory = node.memory.free
    for drawn in changes:
        change = {name: amount for name, amount in drawn.items() if name in containers}
        answer = node.resize("u", {name: resources(amount) for name, amount in change.items()})
        assert (answer.status, answer.message) == model.resize(change)

        counts = dict.fromkeys(containers, 0)
        if static:
            counts = {name: len(node.cpu.cpus("u", name) or ()) for name in containers}
        assert (counts, node.memory.free) == (model.held, memory)

        requests = {
            container.name: container.requests["cpu"] for container in node.pods[0].containers
        }
        assert requests == {name: amount["cpu"] for name, amount in model.containers.items()}

    node.remove("u")
    assert not static or len(node.cpu.free_cpus) == 15


def test_a_resize_of_nothing_is_allocated():
    node = node_of("1.37")
    node.admit(pod_of(amounts("2")))
    assert node.resize("u", {"c": amounts("2")})
    assert node.resize("u", {})


def test_a_resize_counts_for_the_next_one():
    node = node_of("1.37", gates=CPU_GATE)
    node.admit(pod_of(amounts("2")))
    assert node.resize("u", {"c": amounts("4")})
    assert node.pods[0].containers[0].requests["cpu"] == 4000
    assert node.resize("u", {"c": amounts("2")})


@pytest.mark.parametrize(("devices", "is_same"), [("1", True), ("2", False), (None, True)])
def test_what_cannot_be_resized_may_be_said_again(devices, is_same):
    """As kubectl does, which sends what it has read."""
    manifest = pod_of(amounts("2"))
    manifest["spec"]["containers"][0]["resources"]["limits"]["example.com/gpu"] = "1"
    node = node_of("1.37", gates=CPU_GATE)
    node.admit(manifest)
    new = amounts("4")
    if devices is not None:
        new["limits"]["example.com/gpu"] = devices

    if is_same:
        assert node.resize("u", {"c": new})
    else:
        with pytest.raises(InputError, match="changes of cpu and memory only"):
            node.resize("u", {"c": new})


@pytest.mark.parametrize(
    ("containers", "pod", "message"),
    [
        ({"d": amounts("2")}, None, r"expected containers of the pod \(c\), got 'd'"),
        (
            {"c": {"requests": {"cpu": "1"}}},
            None,
            "the QoS class to stay Guaranteed, got 'Burstable'",
        ),
        ({"c": {"limits": {"cpu": "1"}}}, None, "at most the limit"),
        (
            {"c": {"requests": {"example.com/gpu": "1"}}},
            None,
            "changes of cpu and memory only, got 'example.com/gpu'",
        ),
        ({"c": {"cpu": "1"}}, None, 'an object with "requests" and "limits"'),
        ({}, amounts("2"), "a pod that has resources as a whole"),
    ],
)
def test_what_the_api_server_refuses_is_an_error(containers, pod, message):
    node = node_of("1.37")
    node.admit(pod_of(amounts("2")))
    before = node.pods
    with pytest.raises(InputError, match=message):
        node.resize("u", containers, pod)
    assert node.pods == before


def test_a_pod_that_is_not_there_is_not_resized():
    with pytest.raises(UnknownPodError):
        node_of("1.37").resize("u", {})


def test_a_step_of_a_scenario_is_answered_like_any_step():
    def answers(version: str) -> list[tuple[bool, str, str]]:
        scenario = {
            "machine": MACHINE,
            "kubelet": {
                "topologyManagerPolicy": "single-numa-node",
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0",
                "featureGates": CPU_GATE,
            },
            "kubeletVersion": version,
            "steps": [
                {"admit": pod_of(amounts("2"))},
                {"resize": "u", "containers": {"c": amounts("4")}},
                {"admit": {**pod_of(amounts("40")), "metadata": {"name": "q", "uid": "q"}}},
                {"resize": "q", "containers": {"c": amounts("4")}},
            ],
        }

        steps = replay(scenario)["steps"]
        assert steps[1]["containers"]["c"]["cpus"] == steps[0]["containers"]["c"]["cpus"]
        return [
            (step["admitted"], step["reason"], step["message"]) for step in (steps[1], steps[3])
        ]

    refused = (
        False,
        "TopologyAffinityError",
        "the pod is not on the node: its kubelet refused or preempted it before",
    )
    assert answers("1.36") == [(False, "Deferred", LOCALITY), refused]
    assert answers("1.37") == [(True, "allocated", ""), refused]


@pytest.mark.parametrize(
    ("sidecar", "message"), [({"restartPolicy": "Always"}, CPU_STATIC), ({}, "")]
)
def test_a_resized_sidecar_counts_beside_static_policies_and_an_init_container_that_ends_does_not(
    sidecar, message
):
    node = node_of("1.36", "none", {"InPlacePodVerticalScalingInitContainers": False})
    made = pod_of(amounts("2"))
    made["spec"]["initContainers"] = [{"name": "i", "resources": amounts("2"), **sidecar}]
    assert node.admit(made)
    assert node.resize("u", {"i": amounts("1")}).message == message


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        (amounts("2"), amounts("4"), 1),
        (amounts("2"), amounts("4", "2Gi"), 2),
        (amounts("2"), amounts("2"), 0),
        (BURSTABLE, {"requests": {"cpu": "2"}}, 0),
    ],
)
def test_what_stays_after_a_resize_is_told_by_container(before, after, sentences) -> None:
    names = ("InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory")
    node = node_of("1.37", "none", dict.fromkeys(names, True))
    assert node.admit(pod_of(before))
    pod = node.pods[0]
    assert kept_amounts(node, pod) == ()
    assert node.resize("u", {"c": after})
    assert len(kept_amounts(node, pod)) == sentences
