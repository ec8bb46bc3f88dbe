"""What a node publishes is read or refused in one line, whatever somebody wrote into it."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import pytest

from alignup.errors import ConfigError, InputError
from alignup.kubelet.node_resource_topology import report
from alignup.kubelet.node_resource_topology.report import (
    Description,
    decode_holdings,
    decode_report,
    holdings_of,
    restored_node,
)
from alignup.node import Node
from inputs.watched_objects import description, topology, watched

DEEP = '{"a":' * 5000 + "1" + "}" * 5000

GI = 1 << 30


@pytest.mark.parametrize(
    "text", [DEEP, '{"machine": ' + DEEP + "}", "[]", "{", '{"a":' * 900 + "1" + "}" * 900]
)
def test_what_is_no_description_is_refused(text) -> None:
    with pytest.raises(InputError, match="expected a node as a JSON object"):
        Description().template(text, {})


def test_labels_that_are_none_are_refused_also_where_the_node_has_labels() -> None:
    text = json.dumps({**description(), "labels": [1]})
    with pytest.raises(InputError, match=r"Expected `object`, got `array` - at `\$\.labels`"):
        Description().template(text, {"a": "b"})


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_node_that_describes_itself_anew_again_and_again_is_forgotten(
    monkeypatch, is_refused
) -> None:
    """Whatever it was, the extender and the keeper kept it for good."""
    document = description(reservedSystemCPUs="99" if is_refused else "0")
    text = json.dumps(document)
    monkeypatch.setattr(report, "_MOST_DESCRIBED", 10 * len(text))
    descriptions = Description()
    kept = []
    for number in range(100):
        document["machine"]["numaNodes"][0]["memory"] += 4096
        with suppress(ConfigError):
            descriptions.template(json.dumps(document), {"number": str(number)})
        kept.append(len(descriptions._reader._parts))

    assert max(kept) == 10
    if not is_refused:
        again = [descriptions.template(json.dumps(document), {}) for _ in range(2)]
        assert again[0] is again[1]


@pytest.mark.parametrize("size", [-1, 1 << 62, 1 << 80, "1"])
def test_memory_that_no_node_has_is_refused(size) -> None:
    holding = {"uid": "u", "name": "p", "containers": {"c": {"memory": {"memory": {"0": size}}}}}
    with pytest.raises(InputError, match="expected holdings, got"):
        decode_holdings(json.dumps({"pods": [holding]}))


@pytest.mark.parametrize("text", [DEEP, "[]", "", '{"pods": [' + DEEP + "]}"])
def test_what_is_no_list_of_holdings_is_refused(text) -> None:
    with pytest.raises(
        InputError, match=r"expected holdings, got .* at the annotation alignup.dev/holdings"
    ):
        decode_holdings(text)


@pytest.mark.parametrize(
    "text", [DEEP, '{"metadata": 3}', '{"metadata": {"name": "n", "annotations": {"a": 1}}}', "["]
)
def test_what_is_no_object_is_refused(text) -> None:
    with pytest.raises(InputError, match="expected a NodeResourceTopology, got"):
        decode_report(text.encode())


@pytest.mark.parametrize("field", ["apiVersion", "kind", "zones", "attributes", "topologyPolicies"])
@pytest.mark.parametrize("levels", [1, 900])
def test_fields_of_another_type_are_refused(field, levels) -> None:
    value = msgspec.json.decode('{"a":' * levels + "1" + "}" * levels)
    text = msgspec.json.encode({**topology("n"), field: value})
    with pytest.raises(InputError, match="expected"):
        decode_report(text).topology()


POOLED = {
    "name": "node",
    "machine": {
        "numaNodes": [
            {
                "id": node,
                "memory": 16 * GI,
                "cores": [
                    {"id": core, "socket": 0, "cpus": [8 * node + core]} for core in range(8)
                ],
            }
            for node in range(2)
        ]
    },
    "kubelet": {
        "topologyManagerPolicy": "best-effort",
        "topologyManagerScope": "pod",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "featureGates": {"PodLevelResourceManagers": True},
    },
}


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_a_pod_holds_as_a_whole_is_published(shares: bool, is_known: bool) -> None:
    """Also the part of it that no container has; it all comes back when the pod goes."""
    amounts, pod_amounts = {"cpu": "2", "memory": "1Gi"}, {"cpu": "6", "memory": "4Gi"}
    containers = [{"name": "c0", "resources": {"requests": amounts, "limits": amounts}}]
    if shares:
        containers.append({"name": "c1", "resources": {}})

    spec = {"resources": {"requests": pod_amounts, "limits": pod_amounts}, "containers": containers}
    template = Node.from_dict({key: POOLED[key] for key in ("machine", "kubelet")})
    node = template.copy()
    assert node.admit({"metadata": {"name": "p", "uid": "u"}, "spec": spec})

    text = msgspec.json.encode(holdings_of(node)).decode()
    known_pods = {"u": node.pods[0]} if is_known else {}
    restored = restored_node(template, decode_holdings(text), known_pods)

    assert restored.cpu.free_cpus == node.cpu.free_cpus
    assert len(restored.cpu.free_cpus) == 9
    assert restored.memory.free == node.memory.free
    assert restored.cpu.pod_cpus("u") == node.cpu.pod_cpus("u")
    assert restored.cpu.cpus("u", "c0") == node.cpu.cpus("u", "c0")
    if is_known:
        assert holdings_of(restored) == holdings_of(node)

    restored.remove("u")
    assert restored.cpu.free_cpus == template.cpu.free_cpus
    assert restored.memory.free == template.memory.free


def test_devices_that_an_init_container_handed_on_are_held_once() -> None:
    """A kubelet lists them for both; the node is known exactly all the same."""
    template = Description().template(json.dumps(description()), {})
    gpu = {"devices": {"example.com/gpu": ["gpu0"]}}
    pods = [
        {
            "uid": "p",
            "name": "p",
            "containers": {"init": {"cpus": "1", **gpu}, "main": {"cpus": "1-2", **gpu}},
        }
    ]

    node = restored_node(template, decode_holdings(json.dumps({"pods": pods})), {})
    assert node.devices.free == {"example.com/gpu": ("gpu1",)}
    assert node.try_admit(watched("q", gpu=2).pod).reason == "TopologyAffinityError"

    node.remove("p")
    assert node.devices.free == {"example.com/gpu": ("gpu0", "gpu1")}
