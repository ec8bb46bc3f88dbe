"""Nothing is suggested that gains nothing, and no explanation fails.

This holds whatever amounts and machines come.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from alignup import explain
from alignup.errors import AlignupError
from alignup.node import Node
from inputs.machines import machine_of
from inputs.refusals import by_kind, node_of
from inputs.strategies import examples

AMOUNTS = ("0", "1", "2", "3", "17", "4000")
SIZES = ("0", "1", "1Gi", "7Gi", "40Gi", "3000Gi", "1Ei")


def container(name: str = "c", **amounts: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": amounts}}


def pod(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    spec = {"containers": list(containers), "initContainers": init or []}
    return {"metadata": {"name": "p", "uid": "p"}, "spec": spec}


def test_a_pod_that_nothing_aligns_is_told_of_no_other_policy() -> None:
    node = node_of(topologyManagerPolicy="none")
    assert not explain(node, pod(container())).suggestions


def test_a_shape_that_is_not_preferred_is_not_suggested() -> None:
    node = node_of(topologyManagerPolicy="best-effort")
    burstable = container(cpu="10", memory="1Gi")
    burstable["resources"]["requests"] = {"cpu": "9"}
    for suggestion in by_kind(node, pod(burstable)).get("pod", ()):
        admission = node.try_admit(suggestion.attempt["pod"])
        assert all(got.affinity and got.affinity.preferred for got in admission.containers.values())


def test_without_limits_nobody_speaks_of_limits() -> None:
    node = node_of(topologyManagerPolicy="none")
    without = {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    texts = [
        suggestion.text
        for suggestion in explain(node, pod(without)).suggestions
        if suggestion.kind == "pod"
    ]
    assert texts == [
        (
            "set the limits of CPU and memory to the requests: "
            "then every container gets CPUs of its own"
        )
    ]


def test_each_container_on_a_node_of_its_own_is_told_so() -> None:
    node = node_of(topologyManagerPolicy="single-numa-node")
    two = [container(name, cpu="7", memory="1Gi") for name in ("a", "b")]
    explanation = explain(node, pod(*two))
    assert explanation.admitted
    assert "0+1" not in explanation.cause
    assert "NUMA node 0 (" in explanation.cause
    assert "NUMA node 1 (" in explanation.cause


def test_a_request_of_zero_pages() -> None:
    node = node_of()
    explanation = explain(node, pod(container(cpu="4000", memory="1Gi", **{"hugepages-2Mi": "0"})))
    assert not explanation.admitted


def test_a_removal_names_what_is_missing() -> None:
    devices = {"example.com/nic": [{"id": "n0", "numa": 0}]}
    node = Node.from_dict(
        {
            "machine": machine_of(2, 4),
            "kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
            "devices": devices,
        }
    )

    holder = pod(container(cpu="2", memory="1Gi", **{"example.com/nic": "1"}))
    holder["metadata"] = {"name": "holder", "uid": "h"}
    assert node.admit(holder)

    texts = [
        suggestion.text
        for suggestion in explain(node, pod(container(**{"example.com/nic": "1"}))).suggestions
    ]
    assert "remove pod default/holder, which holds 1 example.com/nic" in texts


wishes = st.fixed_dictionaries(
    {"cpu": st.sampled_from(AMOUNTS), "memory": st.sampled_from(SIZES)},
    optional={
        "hugepages-2Mi": st.sampled_from(("0", "2Mi", "4Gi")),
        "example.com/gpu": st.sampled_from(AMOUNTS),
        "example.com/nic": st.sampled_from(AMOUNTS),
    },
)


@examples(60)
@given(
    numa_nodes=st.sampled_from((1, 2, 3, 8, 17, 64)),
    policy=st.sampled_from(("none", "best-effort", "restricted", "single-numa-node")),
    scope=st.sampled_from(("container", "pod")),
    static=st.booleans(),
    whole=st.booleans(),
    resident=st.lists(wishes, max_size=3),
    init=st.lists(wishes, max_size=1),
    containers=st.lists(wishes, min_size=1, max_size=3),
)
def test_no_explanation_fails(
    numa_nodes, policy, scope, static, whole, resident, init, containers
) -> None:
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    if policy != "none":
        kubelet["topologyManagerPolicyOptions"] = {"max-allowable-numa-nodes": "64"}

    if static:
        kubelet["memoryManagerPolicy"] = "Static"
        kubelet["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "1Gi"}}]

    devices = {
        f"example.com/{kind}": [
            {"id": f"{kind}{index}", "numa": index % numa_nodes} for index in range(4)
        ]
        for kind in ("gpu", "nic")
    }
    node = Node.from_dict(
        {
            "machine": machine_of(numa_nodes, 2),
            "kubelet": kubelet,
            "devices": devices,
            "wholeVerdict": whole,
        }
    )
    for number, amounts in enumerate(resident):
        earlier = pod(container(**amounts))
        earlier["metadata"] = {"name": f"o{number}", "uid": f"o{number}"}
        try:
            node.admit(earlier)
        except AlignupError:
            continue

    manifest = pod(
        *(container(f"c{number}", **amounts) for number, amounts in enumerate(containers)),
        init=[container(f"i{number}", **amounts) for number, amounts in enumerate(init)],
    )
    try:
        admission = node.try_admit(manifest)
    except AlignupError:  # more than any API server takes
        return

    explanation = explain(node, manifest)
    assert explanation.admitted is admission.admitted
    assert explanation.cause
    assert explanation.to_dict(product=True)
    assert admission.message or admission.admitted
