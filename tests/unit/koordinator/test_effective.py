"""The matrix of the design document."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.koordinator.effective import (
    NODE_LABEL,
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    PodPolicy,
    joined_policy,
    labelled_config,
    pod_policy,
)
from alignup.kubernetes.kubelet_config import KubeletConfig
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
    with pytest.raises(
        InputError, match=r"expected one of .* got '[Bb]ogus' at metadata.annotations"
    ):
        pod_policy(wrong)


@pytest.mark.parametrize("node", KUBELET)
@pytest.mark.parametrize("pod_policy_name", KUBELET)
def test_the_matrix(pod_policy_name, node):
    """Equal or absent policies go together, and the pod's comes first.

    All others are a mismatch.
    """
    joined = joined_policy(pod_policy_name, node, none="none")
    if "none" in (pod_policy_name, node) or pod_policy_name == node:
        assert joined == (node if pod_policy_name == "none" else pod_policy_name)
    else:
        assert joined is None


def test_a_label_names_the_policy_of_a_node():
    config = KubeletConfig(topology_manager_policy="restricted")
    assert labelled_config(config, {}) is config
    labelled = labelled_config(config, {NODE_LABEL: "BestEffort"})
    assert (labelled.topology_manager_policy, labelled.topology_manager_scope) == (
        "best-effort",
        "pod",
    )
    with pytest.raises(InputError, match=r"got 'Bogus' at metadata.labels"):
        labelled_config(config, {NODE_LABEL: "Bogus"})
