"""What kube-scheduler's filters say of a pod on a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.control_plane.gates import scheduler_rules
from alignup.control_plane.gates.scheduler_rules import NodeLoad, refusal, refusals
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.node_fit import NodeObject
from alignup.records import replace

NODE = NodeObject(
    "a",
    labels={"zone": "east"},
    allocatable={"cpu": 4000, "memory": 1 << 30, "pods": 3, "example.com/gpu": 2},
)


def pod(name="p", **spec):
    requests = spec.pop("requests", {"cpu": "1"})
    ports = [{"hostPort": port} for port in spec.pop("ports", ())]
    resources = {"requests": requests, "limits": {k: v for k, v in requests.items() if "/" in k}}
    container = {"name": "c", "resources": resources, "ports": ports}
    return read_pod(
        {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], **spec}}
    )


def load_of(*pods):
    load = NodeLoad()
    for bound_pod in pods:
        load.add(bound_pod)
    return load


@pytest.mark.parametrize(
    ("changes", "spec", "reason"),
    [
        ({}, {}, ""),
        ({"is_unschedulable": True}, {}, scheduler_rules.CORDONED),
        ({"is_unschedulable": True}, {"tolerations": [{"operator": "Exists"}]}, ""),
        (
            {"is_unschedulable": True},
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            "",
        ),
        ({"taints": ({"key": "k", "effect": "NoSchedule"},)}, {}, scheduler_rules.TAINTED),
        ({"taints": ({"key": "k", "effect": "NoExecute"},)}, {}, scheduler_rules.TAINTED),
        ({"taints": ({"key": "k", "effect": "PreferNoSchedule"},)}, {}, ""),
        (
            {"taints": ({"key": "k", "value": "v", "effect": "NoSchedule"},)},
            {"tolerations": [{"key": "k", "value": "v"}]},
            "",
        ),
        ({}, {"nodeSelector": {"zone": "west"}}, scheduler_rules.UNSELECTED),
        ({}, {"nodeSelector": {"zone": "east"}}, ""),
        ({}, {"requests": {"cpu": "4"}}, ""),
        ({}, {"requests": {"cpu": "4001m"}}, "Insufficient cpu"),
        ({}, {"requests": {"memory": "1Gi"}}, ""),
        ({}, {"requests": {"memory": "1025Mi"}}, "Insufficient memory"),
        ({}, {"requests": {"example.com/gpu": "2"}}, ""),
        ({}, {"requests": {"example.com/gpu": "3"}}, "Insufficient example.com/gpu"),
        ({}, {"requests": {"example.com/nic": "1"}}, "Insufficient example.com/nic"),
        ({}, {"requests": {"ephemeral-storage": "1"}}, "Insufficient ephemeral-storage"),
    ],
)
def test_the_first_reason(changes, spec, reason) -> None:
    assert refusal(pod(**spec), replace(NODE, **changes), NodeLoad()) == reason


def test_pods_that_are_there_count() -> None:
    load = load_of(pod("x", requests={"cpu": "3"}, ports=[80]), pod("y", requests={}))
    assert refusal(pod(), NODE, load) == ""
    assert refusal(pod(requests={"cpu": "1500m"}), NODE, load) == "Insufficient cpu"
    assert refusal(pod(ports=[80]), NODE, load) == scheduler_rules.PORTS_TAKEN
    assert refusal(pod(ports=[81]), NODE, load) == ""

    load.add(pod("z", requests={}))
    assert refusal(pod(requests={}), NODE, load) == scheduler_rules.TOO_MANY_PODS


def test_all_reasons_come_in_the_order_of_the_plugins() -> None:
    node = replace(NODE, is_unschedulable=True, taints=({"key": "k", "effect": "NoSchedule"},))
    asking = pod(nodeSelector={"zone": "west"}, requests={"cpu": "5"}, ports=[80])
    reasons = [
        scheduler_rules.CORDONED,
        scheduler_rules.TAINTED,
        scheduler_rules.UNSELECTED,
        scheduler_rules.PORTS_TAKEN,
        "Insufficient cpu",
    ]
    assert list(refusals(asking, node, load_of(pod("x", ports=[80])))) == reasons


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=20),
    st.data(),
)
def test_what_is_removed_leaves_no_trace(additions, data) -> None:
    pods = [
        pod(f"p{number}", requests={"cpu": str(cpus)}, ports=[80 + port] if has_port else [])
        for number, (cpus, port, has_port) in enumerate(additions)
    ]
    load = load_of(*pods)
    gone = data.draw(st.lists(st.sampled_from(pods), unique=True) if pods else st.just([]))
    for removed in gone:
        load.remove(removed)

    rest = load_of(*[bound for bound in pods if bound not in gone])
    assert load.pods == rest.pods
    assert +load.amounts == +rest.amounts
    assert +load.host_ports == +rest.host_ports


def test_a_load_keeps_nothing_of_pods_that_are_gone() -> None:
    load = NodeLoad()
    for number in range(50):
        changing = pod(ports=(1000 + number,), requests={"cpu": "1", f"example.com/r{number}": "1"})
        load.add(changing)
        load.add(changing)
        load.remove(changing)
        assert load.host_ports.total() == 1
        load.remove(changing)
    assert (load.pods, dict(load.amounts), dict(load.host_ports)) == (0, {}, {})
