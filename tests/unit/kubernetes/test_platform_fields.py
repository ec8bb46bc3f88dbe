"""What platforms call the fields of a KubeletConfiguration."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.kubernetes.platform_fields import (
    fields_of_deckhouse,
    fields_of_kubespray,
    fields_of_platform,
    fields_of_settings,
)
from alignup.kubernetes.wire import CONFIGURATION_FIELDS


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (
            {"topologyManager": {"policy": "restricted", "scope": "pod"}},
            {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"},
        ),
        ({"memoryManager": {"policy": "Static"}}, {"memoryManagerPolicy": "Static"}),
        ({"cpuCfsQuota": True, "maxPods": 9}, {"maxPods": 9}),
        (
            {"evictionHard": "memory.available<1Gi,nodefs.available<10%"},
            {"evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"}},
        ),
        (
            {"evictionHard": {"memoryAvailable": "1Gi", "imageFSInodesFree": "5%"}},
            {"evictionHard": {"memory.available": "1Gi", "imagefs.inodesFree": "5%"}},
        ),
        (
            {"evictionHard": {"memory.available": "1Gi"}},
            {"evictionHard": {"memory.available": "1Gi"}},
        ),
        ({"evictionMaxPodGracePeriodSeconds": 3}, {}),
    ],
)
def test_fields_of_platforms(fields, read):
    assert fields_of_platform(fields, "p") == read


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"topologyManager": {"options": {}}}, r"'topologyManager\.options' of p may decide"),
        ({"topologyManager": "restricted"}, "expected a mapping, got 'restricted' at topologyMan"),
        ({"topologyManagerPolcy": "none"}, r"did you mean topologyManagerPolicy\?"),
        ({"reservedCpus": "0"}, "'reservedCpus' of p may decide"),
        ({"numaPolicy": "x"}, "'numaPolicy' of p may decide"),
    ],
)
def test_a_key_that_may_decide_is_read_or_refused(fields, message):
    with pytest.raises(InputError, match=message):
        fields_of_platform(fields, "p")


@pytest.mark.parametrize("field", CONFIGURATION_FIELDS)
def test_fields_that_are_read_are_fields_of_platforms(field):
    assert fields_of_platform({field: {}}, "p") == {field: {}}


def test_settings_of_bottlerocket():
    settings = {
        "cluster-name": "c",
        "cpu-manager-policy": "static",
        "cpu-manager-policy-options": ["full-pcpus-only"],
        "topology-manager-policy-options": {"prefer-closest-numa-nodes": True},
        "max-pods": 40,
        "eviction-hard": {"memory.available": "5%"},
        "kube-reserved": {"cpu": "1"},
        "memory-manager-reserved-memory": {
            "0": {"enabled": True, "memory": "1Gi"},
            "1": {"enabled": False, "memory": "2Gi"},
        },
    }
    assert fields_of_settings(settings, "p") == {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        "maxPods": 40,
        "evictionHard": {"memory.available": "5%"},
        "kubeReserved": {"cpu": "1"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topology-manager-mode": "x"}, "'topology-manager-mode' of p may decide"),
        ({"cpu-manager-policy-options": "full-pcpus-only"}, "expected options"),
        ({"memory-manager-reserved-memory": {"a": {}}}, "by the number of a NUMA node"),
        ({"memory-manager-reserved-memory": {"9" * 5_000: {}}}, "by the number of a NUMA node"),
        ({"memory-manager-reserved-memory": 3}, "a mapping of NUMA nodes"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        fields_of_settings(settings, "p")


@pytest.mark.parametrize(
    ("kubelet", "fields"),
    [
        (
            {
                "topologyManager": {"enabled": True, "policy": "SingleNumaNode", "scope": "Pod"},
                "resourceReservation": {"mode": "Static", "static": {"cpu": 1, "memory": "1Gi"}},
            },
            {
                "cpuManagerPolicy": "static",
                "memoryManagerPolicy": "Static",
                "topologyManagerPolicy": "single-numa-node",
                "topologyManagerScope": "pod",
                "systemReserved": {"cpu": 1, "memory": "1Gi"},
            },
        ),
        (
            {"topologyManager": {"enabled": True}, "maxPods": 9},
            {
                "cpuManagerPolicy": "static",
                "memoryManagerPolicy": "Static",
                "topologyManagerPolicy": "none",
                "topologyManagerScope": "container",
                "maxPods": 9,
            },
        ),
        (
            {"topologyManager": {"enabled": False, "policy": "Restricted"}},
            {},
        ),
        (
            {"resourceReservation": {"mode": "Off"}, "containerLogMaxFiles": 3},
            {"systemReserved": {"cpu": 0, "memory": 0}},
        ),
    ],
)
def test_node_groups_of_deckhouse(kubelet, fields):
    assert fields_of_deckhouse(kubelet, "p") == fields


@pytest.mark.parametrize(
    ("kubelet", "message"),
    [
        ({"topologyManager": {"polcy": "None"}}, r"'topologyManager\.polcy' of p may decide"),
        ({"cpuManager": {}}, "'cpuManager' of p may decide"),
        ({"resourceReservation": "Auto"}, "expected a mapping, got 'Auto'"),
        (
            {"resourceReservation": {"mode": "Static", "static": ["1"]}},
            r"a mapping, got \['1'\] at static of resourceReservation of p",
        ),
        (
            {"topologyManager": {"enabled": "true"}},
            r"true or false, got 'true' at topologyManager\.enabled of p",
        ),
    ],
)
def test_node_groups_that_are_refused(kubelet, message):
    with pytest.raises(InputError, match=message):
        fields_of_deckhouse(kubelet, "p")


@pytest.mark.parametrize(
    ("variables", "fields"),
    [
        (
            {"kubelet_topology_manager_policy": "restricted", "kube_reserved": True},
            {
                "topologyManagerPolicy": "restricted",
                "kubeReserved": {"cpu": "100m", "memory": "256Mi"},
            },
        ),
        (
            {"system_cpu_reserved": 1, "kube_reserved": False},
            {"systemReserved": {"cpu": 1, "memory": "512Mi"}},
        ),
        (
            {"kubelet_feature_gates": ["A=true", "B=False"]},
            {"featureGates": {"A": True, "B": False}},
        ),
        ({"kubelet_config_extra_args": {"maxPods": 3}, "kube_version": "x"}, {"maxPods": 3}),
    ],
)
def test_variables_of_kubespray(variables, fields):
    assert fields_of_kubespray(variables, "p") == fields


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"kubelet_feature_gates": ["A=yes"]}, "GATE=true or GATE=false, got 'A=yes' at kubelet_f"),
        ({"kubelet_feature_gates": ["A"]}, "GATE=true or GATE=false, got 'A' at kubelet_feature_"),
        ({"kube_reserved": "true"}, "true or false, got 'true' at kube_reserved of p"),
        (
            {"kubelet_reserved_system_cpus": "0", "reserved_system_cpus": "1"},
            "expected '0', as another variable sets reservedSystemCPUs, got '1' at reserved_system",
        ),
    ],
)
def test_variables_of_kubespray_that_are_refused(variables, message):
    with pytest.raises(InputError, match=message):
        fields_of_kubespray(variables, "p")


def test_a_variable_that_may_decide_is_read_or_refused():
    with pytest.raises(InputError, match="'kubelet_topology_policy' of p may decide"):
        fields_of_kubespray({"kubelet_topology_policy": "none"}, "p")


@pytest.mark.parametrize("key", [None, 3, True, 1.5])
@pytest.mark.parametrize(
    ("read", "size"),
    [
        (fields_of_platform, {"maxPods": 10}),
        (fields_of_settings, {"max-pods": 10}),
        (fields_of_deckhouse, {"maxPods": 10}),
        (fields_of_kubespray, {"kubelet_max_pods": 10}),
    ],
)
def test_a_key_that_is_no_text_is_passed_over(read, size, key) -> None:
    """It ended in a traceback."""
    assert read({key: 1, **size}, "x") == {"maxPods": 10}


def test_a_field_that_is_said_twice_says_the_same():
    """The last one won, whatever the other said."""
    fields = {"topologyManagerPolicy": "none", "topologyManager": {"policy": "none"}}
    assert fields_of_platform(fields, "p") == {"topologyManagerPolicy": "none"}
    for said_first in fields:
        other = {name: fields[name] for name in sorted(fields, key=lambda name: name != said_first)}
        other["topologyManager"] = {"policy": "restricted"}
        message = r"expected 'none', as topologyManagerPolicy is beside it, got 'restricted' at top"
        with pytest.raises(InputError, match=message):
            fields_of_platform(other, "p")


@pytest.mark.parametrize("value", [["a"], "a: b", 3, True])
def test_extra_arguments_that_are_no_mapping_are_refused(value):
    """They were passed over."""
    message = "expected a mapping, got .* at kubelet_config_extra_args of p"
    with pytest.raises(InputError, match=message):
        fields_of_kubespray({"kubelet_config_extra_args": value}, "p")
