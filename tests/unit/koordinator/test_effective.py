"""The matrix of the design document."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.koordinator.effective import (
    NODE_LABEL,
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    EffectivePolicy,
    PodPolicy,
    PolicyMismatch,
    StatusCode,
    effective_policy,
    node_policy,
    pod_policy,
)
from alignup.kubernetes.pod import Pod

KUBELET = ["single-numa-node", "restricted", "best-effort", "none"]


def pod(policy="", exclusive="", key=NUMA_TOPOLOGY_SPEC):
    text = json.dumps({"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive})
    return Pod("uid", "pod", annotations={key: text})


@pytest.mark.parametrize("key", [NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC])
def test_a_pod_policy_has_the_kubelets_name_and_is_required_by_default(key):
    assert pod_policy(pod("SingleNUMANode", key=key)) == PodPolicy("single-numa-node", "Required")
    assert pod_policy(pod("BestEffort", "Preferred", key)) == PodPolicy("best-effort", "Preferred")


def test_exclusivity_without_a_policy_is_kept_as_it_is():
    assert pod_policy(pod("", "Preferred")) == PodPolicy("none", "Preferred")


@pytest.mark.parametrize("silent", [Pod("u", "p"), Pod("u", "p", annotations={"a": "b"}), pod()])
def test_a_silent_pod_has_none(silent):
    assert pod_policy(silent) is None


@pytest.mark.parametrize("wrong", [pod("Bogus"), pod("Restricted", "bogus")])
def test_unknown_values_are_clear_errors(wrong):
    with pytest.raises(InputError, match=r"expected one of .* got '[Bb]ogus' at metadata.annotations"):
        pod_policy(wrong)


@pytest.mark.parametrize("node", KUBELET)
@pytest.mark.parametrize("asked", KUBELET)
def test_the_matrix(asked, node):
    """Equal or absent policies go together, and the pod's comes first; all others are a mismatch."""
    found = effective_policy(PodPolicy(asked, "Required"), node)
    if "none" in (asked, node) or asked == node:
        assert found == EffectivePolicy(node if asked == "none" else asked, "Required")
    else:
        assert found == PolicyMismatch(asked, node)


def test_a_mismatch_is_unresolvable_and_names_both():
    found = effective_policy(PodPolicy("restricted", "Required"), "best-effort")
    assert isinstance(found, PolicyMismatch)
    assert found.status.code is StatusCode.UNRESOLVABLE
    assert "restricted" in found.reason
    assert "best-effort" in found.reason


def test_a_pod_that_asks_for_nothing_runs_under_the_nodes_policy():
    assert effective_policy(None, "restricted") == EffectivePolicy("restricted", "")


def test_an_unknown_node_policy_is_an_error():
    with pytest.raises(InputError, match="got 'Restricted' at the node's policy"):
        effective_policy(None, "Restricted")
    with pytest.raises(InputError, match=r"got 'Bogus' at metadata.labels"):
        node_policy({NODE_LABEL: "Bogus"})


def test_node_policy_has_the_kubelets_name():
    assert node_policy({NODE_LABEL: "BestEffort"}) == "best-effort"
    assert node_policy({}, ["SingleNUMANodePodLevel"]) == "single-numa-node"
    assert node_policy({}) == "none"
