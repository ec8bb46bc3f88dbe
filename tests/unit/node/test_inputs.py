"""The keys of a node's JSON form, and containers that name policies of their own.

No kubelet reads those policies.
"""

from __future__ import annotations

import json

import pytest

from alignup import Node
from alignup.errors import AlignupWarning, InputError
from alignup.kubernetes.pod import Pod
from alignup.kubernetes.versions import NEWEST, parse_version
from alignup.machine.load import catalog_entries
from alignup.node.inputs import (
    check_keys,
    has_policy,
    is_set,
    node_object_of,
    plugins_of,
    version_of,
)

KEY = "alignup.dev/policies"


def node(**options) -> Node:
    """Return a node that wants everything on one NUMA node."""
    config = {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    return Node(catalog_entries()["xeon-2s"].machine, config, **options)


def pod(policies: object, *cpus: int, name: str = "pod") -> dict:
    containers = [
        {
            "name": f"c{index}",
            "image": "x",
            "resources": {"limits": {"cpu": str(count), "memory": "1Gi"}},
        }
        for index, count in enumerate(cpus)
    ]
    text = policies if isinstance(policies, str) else json.dumps(policies)

    metadata = {"name": name, "uid": name, "annotations": {KEY: text}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {"containers": containers},
    }


def test_a_container_can_be_less_strict_than_its_node():
    """And the other one is judged as ever; what is tried is what is done, also on a copy."""
    wide = pod({"c0": "best-effort"}, 80, 2)
    assert not node().admit(wide).admitted
    beyond = node(beyond_kubelet=True)
    for admission in (beyond.try_admit(wide), beyond.copy().admit(wide), beyond.admit(wide)):
        assert admission.admitted
        assert [
            len(list(admission.containers[name].affinity.affinity.bits())) for name in ("c0", "c1")
        ] == [2, 1]
    refused = beyond.admit(pod({"c1": "best-effort"}, 80, 2, name="late"))
    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")


def test_a_single_container_too():
    assert node(beyond_kubelet=True).try_admit(pod({"c0": "none"}, 80)).admitted
    assert not node().try_admit(pod({"c0": "none"}, 80)).admitted


@pytest.mark.parametrize(
    "policies", ["{", "[]", {"nobody": "none"}, {"c0": "loose"}, {"c0": None}, {"c0": {}}]
)
def test_what_is_no_policy_is_said(policies):
    with pytest.raises(InputError, match=KEY):
        node(beyond_kubelet=True).admit(pod(policies, 2))
    assert node().admit(pod(policies, 2)).admitted


@pytest.mark.parametrize(
    ("key", "meant"), [("machin", "machine"), ("kubeletversion", "kubeletVersion")]
)
def test_a_misspelt_key_is_warned_of(key: str, meant: str) -> None:
    """Keys that resemble none are the writer's own notes."""
    with pytest.warns(AlignupWarning, match=f"the key '{key}' of the scenario is unknown.*{meant}"):
        check_keys(["kubelet", key, "colour"], "the scenario")
    check_keys(["kubelet", "colour"], "the scenario")


@pytest.mark.parametrize(
    ("data", "version", "node_version", "expected"),
    [
        ({}, None, None, NEWEST),
        ({}, None, "v1.33.1", parse_version("1.33")),
        ({"kubeletVersion": "1.34"}, None, "v1.33.1", parse_version("1.34")),
        ({"kubeletVersion": "1.34"}, "1.35", "v1.33.1", parse_version("1.35")),
    ],
)
def test_the_release_is_the_one_said_last(data, version, node_version, expected) -> None:
    """By an argument, else by the scenario, else by the Node object; else the newest."""
    document = None
    if node_version:
        document = node_object_of({"status": {"nodeInfo": {"kubeletVersion": node_version}}})

    assert version_of(data, version, document) == expected


def test_what_is_no_release_is_refused_where_it_stands() -> None:
    with pytest.raises(InputError, match="kubeletVersion"):
        version_of({"kubeletVersion": "soon"})
    document = node_object_of({"status": {"nodeInfo": {"kubeletVersion": "soon"}}})
    with pytest.raises(InputError, match=r"nodeObject\.status\.nodeInfo\.kubeletVersion"):
        version_of({}, None, document)


def test_a_truth_value_is_nothing_else() -> None:
    assert is_set({"wholeVerdict": True}, "wholeVerdict", default=False)
    assert is_set({}, "wholeVerdict", default=True)
    for value in (1, "true", None):
        with pytest.raises(InputError, match=r"true or false, got .* at wholeVerdict"):
            is_set({"wholeVerdict": value}, "wholeVerdict", default=False)


def test_only_koordinators_annotations_name_a_policy_of_the_pod() -> None:
    for named, expected in (
        ({}, False),
        ({"alignup.dev/policies": "{}"}, False),
        ({"scheduling.koordinator.sh/numa-topology-spec": "{}"}, True),
    ):
        assert has_policy(Pod("u", "p", annotations=named)) is expected


def test_preferred_sets_are_plugins_by_resource() -> None:
    plugins = plugins_of({"example.com/gpu": [["b", "c"]]})

    assert list(plugins) == ["example.com/gpu"]
    assert plugins["example.com/gpu"].preferred_allocation(["a", "b", "c"], [], 2) == ["b", "c"]
    assert plugins_of({}) == {}
