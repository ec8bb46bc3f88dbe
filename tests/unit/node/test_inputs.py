"""Containers that name policies of their own, which no kubelet reads."""

from __future__ import annotations

import json

import pytest

from alignup import Node
from alignup.errors import InputError
from alignup.machine.load import catalog_entries

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
